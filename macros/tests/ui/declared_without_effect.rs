//! What is declared without effect is warned of; here the warnings are errors.
#![deny(deprecated)]

use scratchpool::scratch_pool;

#[scratch_pool(dims(n = 64), layers(count = 4))]
#[step(fill, writes(c), after(prev.join))]
#[step(miss, when = layer == 3, writes(a))]
#[step(store, on = copy, after(fill), reads(c))]
#[step(check, on = copy, reads(c))]
#[step(probe, on = cpoy, after(fill), reads(c))]
#[step(join, after(check, probe))]
#[step(never, when = layer == 9)]
#[group(a, when = layer == 0)]
pub struct Pool {
    #[group(a)]
    #[shape(n)]
    pub x: f32,
    #[group(b)]
    #[shape(n)]
    pub y: f32,
    #[group(c)]
    #[shape(n)]
    pub z: f32,
}

fn main() {}
