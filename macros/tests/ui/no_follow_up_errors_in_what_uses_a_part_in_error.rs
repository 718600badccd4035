use scratchpool::scratch_pool;

#[scratch_pool(
    align = large,
    rows = n,
    dims(n = 16 +, ratios = [4, four, 8], third = n / 3, tenth = ceil_div(n, 10)),
    layers(ratio = ratios, other = [1, two], count = 3),
    exclusive(a, c),
)]
#[step(fill, when = ratio == 4 && other == third, writes(a))]
#[step(drain, when = 7 / ratio, reads(a, c))]
#[group(a, if = third > 2)]
struct Pool {
    #[group(a)]
    #[shape(n / 3, third, n - 16)]
    #[align(16)]
    x: u8,
    #[group(a)]
    #[shape(tenth)]
    y: u8,
    #[group("c")]
    #[shape(n)]
    z: u8,
}

fn main() {}
