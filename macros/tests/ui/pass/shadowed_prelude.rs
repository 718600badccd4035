//! A module in which hardly a word means what it means elsewhere.
#![allow(dead_code, non_camel_case_types, unused_macros)]

mod shadowed {
    mod core {}
    mod std {}
    mod alloc {}
    mod scratchpool {}
    struct Option;
    struct Some;
    struct None;
    struct Result;
    struct Ok;
    struct Err;
    struct Vec;
    struct String;
    struct Box;
    struct Self_;
    struct u8;
    struct u64;
    struct usize;
    struct bool;
    struct str;
    struct bf16;
    struct Device;
    struct Error;
    struct View;
    struct D;
    trait Clone {}
    trait Copy {}
    trait Debug {}
    trait Drop {}
    trait Iterator {}
    fn drop() {}
    macro_rules! assert {
        () => {};
    }
    macro_rules! concat {
        () => {};
    }
    macro_rules! stringify {
        () => {};
    }
    macro_rules! env {
        () => {};
    }
    macro_rules! include_bytes {
        () => {};
    }
    macro_rules! matches {
        () => {};
    }

    #[::scratchpool::scratch_pool(
        config = "../examples/configs/deepseek-v4-flash.json",
        rows = n,
        dims(n = 16),
        layers(ratio = compress_ratios, count = 4),
        exclusive(a, b),
    )]
    #[step(fill, when = ratio == 4, writes(a))]
    #[step(drain, reads(a))]
    #[step(next, writes(b))]
    #[group(a, when = ratio == 4)]
    pub struct Constant {
        #[group(a)]
        #[shape(n, head_dim)]
        pub x: u8,
        #[group(b)]
        #[shape(n)]
        pub y: bf16,
    }

    #[::scratchpool::scratch_pool(ubatches = 2, rows = n, dims(n: runtime, m = max(n, 3) * 2))]
    #[step(fill, writes(a))]
    pub struct Later {
        #[group(a)]
        #[shape(ceil_div(n, 4), align_up(m, 8), min(m, 5))]
        pub x: u64,
    }
}

fn main() -> Result<(), scratchpool::Error> {
    let device = scratchpool::Host::in_order();
    let mut pool = shadowed::Constant::allocate(&device)?;
    let mut pass = pool.begin(3)?;
    assert!(pass.layer(2)?.fill()?.is_some());
    let dims = shadowed::later::Dims { n: 9 };
    let mut later = shadowed::Later::allocate(&device, dims)?;
    let [mut first, _second] = later.split();
    let mut pass = first.begin(5)?;
    assert_eq!(pass.layer(0)?.fill()?.buffers().x.shape(), [2, 24, 5]);
    Ok(())
}
