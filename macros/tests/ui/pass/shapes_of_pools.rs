//! Pools with little in them, with much, and with every launch and element type.

use scratchpool::{Error, Host, scratch_pool};

#[scratch_pool]
struct Empty;

#[scratch_pool()]
struct NoFields {}

#[scratch_pool(layers(count = 2,),)]
#[step(fork,)]
#[step(join, on = aux, after(fork,),)]
struct NoGroups;

#[scratch_pool]
#[step(rest)]
struct NeverTouched {
    #[group(a)]
    #[shape(4)]
    x: u8,
}

#[scratch_pool(rows = n, dims(n: runtime(64), m: runtime, padded = align_up(n, 8), parts = ceil_div(m, 3), twice = parts * 2))]
#[step(fill, writes(a))]
#[step(drain, reads(a), writes(b))]
#[step(last, reads(b))]
struct Derived {
    #[group(a)]
    #[shape(padded, twice)]
    x: f64,
    #[group(b)]
    #[shape(m % 2 + 1, parts)]
    y: i8,
}

#[scratch_pool(dims(fp4 = 0))]
#[step(fill, writes(a, b))]
#[group(b, if = fp4 == 1)]
struct Removed {
    #[group(a)]
    #[shape()]
    scalar: i64,
    #[group(b)]
    #[shape(16 / 3)]
    gone: u8,
}

#[scratch_pool(layers(count = 3), align = 1_024)]
#[step(fill, writes(all))]
#[step(next, launch = dependent, reads(all.a, all.b))]
#[step(third, launch = early, when = layer == 2 && !(layer < 2))]
#[step(last, launch = full)]
struct Everything {
    #[group(all)]
    #[shape(2)]
    a: bool,
    #[group(all)]
    #[shape(2)]
    b: u8,
    #[group(all)]
    #[shape(2)]
    c: i8,
    #[group(all)]
    #[shape(2)]
    d: f8e4m3,
    #[group(all)]
    #[shape(2)]
    e: f8e5m2,
    #[group(all)]
    #[shape(2)]
    f: e8m0,
    #[group(all)]
    #[shape(2)]
    g: u16,
    #[group(all)]
    #[shape(2)]
    h: i16,
    #[group(all)]
    #[shape(2)]
    i: f16,
    #[group(all)]
    #[shape(2)]
    j: bf16,
    #[group(all)]
    #[shape(2)]
    k: u32,
    #[group(all)]
    #[shape(2)]
    l: i32,
    #[group(all)]
    #[shape(2)]
    m: f32,
    #[group(all)]
    #[shape(2)]
    n: u64,
    #[group(all)]
    #[shape(2)]
    o: i64,
    #[group(all)]
    #[shape(2, 3, 4)]
    #[align(4096)]
    p: f64,
}

macro_rules! sized {
    ($name:ident, $rows:expr, $($extent:expr),*; $dtype:ident) => {
        #[scratch_pool(dims(rows = $rows), align = 512)]
        #[step(fill, when = $rows > 3, writes(a))]
        struct $name {
            #[group(a)]
            #[shape(rows * $rows, $($extent),*)]
            x: $dtype,
        }
    };
}

sized!(Generated, 2 + 2, 3 * 5, 7; bf16);

// Rows that are a constant, beside a dim that is not.
#[scratch_pool(rows = n, dims(n = 64, m: runtime(8)))]
#[step(fill, writes(a))]
struct ConstantRows {
    #[group(a)]
    #[shape(n * 2, m)]
    x: f32,
}

// What `macro_rules!` pastes arrives in invisible groups.
macro_rules! pasted {
    ($name:ident, $align:literal, $stream:ident, $element:ty) => {
        #[scratch_pool(align = $align)]
        #[step(fill, on = $stream, writes(a))]
        struct $name {
            #[group(a)]
            #[shape(3)]
            x: $element,
        }
    };
}

pasted!(Pasted, 64, side, u16);

fn main() -> Result<(), Error> {
    let device = Host::in_order();
    Empty::allocate(&device)?.begin()?.layer(0)?;
    NoFields::allocate(&device)?.begin()?.layer(0)?;
    let mut pool = NoGroups::allocate(&device)?;
    pool.begin()?.layer(1)?.join()?;
    assert_eq!(pool.memory().bytes_per_copy, 0);
    NeverTouched::allocate(&device)?.begin()?.layer(0)?.rest()?;

    let mut pool = Derived::allocate(&device, derived::Dims { n: 13, m: 7 })?;
    let mut pass = pool.begin(5)?;
    let mut layer = pass.layer(0)?;
    assert_eq!(layer.fill()?.buffers().x.shape(), [8, 6]);
    assert_eq!(layer.drain()?.buffers().y.shape(), [2, 3]);

    let mut pool = Removed::allocate(&device)?;
    let mut pass = pool.begin()?;
    let mut layer = pass.layer(0)?;
    let scalar: [usize; 0] = layer.fill()?.buffers().scalar.shape();
    assert!(scalar.is_empty());

    let mut pool = Everything::allocate(&device)?;
    let mut pass = pool.begin()?;
    let mut layer = pass.layer(2)?;
    let mut step = layer.fill()?;
    assert_eq!(step.buffers().p.address() % 4096, 0);
    drop(step);
    assert!(layer.third()?.is_some());

    let mut pool = Generated::allocate(&device)?;
    let mut pass = pool.begin()?;
    let mut layer = pass.layer(0)?;
    assert_eq!(layer.fill()?.buffers().x.shape(), [16, 15, 7]);
    let mut pool = ConstantRows::allocate(&device, constant_rows::Dims { m: 5 })?;
    assert_eq!(pool.memory().bytes_per_copy, 2560);
    assert!(pool.begin(65).is_err());
    let mut pass = pool.begin(3)?;
    assert_eq!(pass.layer(0)?.fill()?.buffers().x.shape(), [6, 5]);

    assert_eq!(Pasted::LAYOUT.align, 64);
    Ok(())
}
