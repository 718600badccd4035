//! What is declared without effect is warned of; here the warnings are errors.
#![deny(deprecated)]

use scratchpool::scratch_pool;

#[scratch_pool(dims(n = 64, m = n / 2), layers(count = 4), exclusive(c))]
#[step(fill, writes(c, d), after(prev.join))]
#[step(miss, when = layer == 3, writes(a))]
#[step(store, on = copy, after(fill), reads(c, d.indices))]
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
    #[group(d)]
    #[shape(n)]
    pub indices: f32,
    #[group(d)]
    #[shape(n)]
    pub lens: f32,
}

fn main() {}
