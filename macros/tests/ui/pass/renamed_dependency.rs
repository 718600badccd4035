//! The runtime crate under another name, named by `crate`.

use scratchpool as renamed;

mod alias {
    pub use scratchpool::*;
}

mod nested {
    #[scratchpool::scratch_pool(crate = crate::alias)]
    #[step(fill, writes(a))]
    pub struct ByAlias {
        /// The only one.
        #[group(a)]
        #[shape(16)]
        pub x: e8m0,
    }

    #[scratchpool::scratch_pool(crate = crate::renamed, dims(n: runtime))]
    #[step(fill, writes(a))]
    pub struct ByUse {
        /// The only one.
        #[group(a)]
        #[shape(n)]
        pub x: bf16,
    }

    #[scratchpool::scratch_pool(crate = ::scratchpool, ubatches = 2)]
    #[step(fill, writes(a))]
    pub struct Absolute {
        /// The only one.
        #[group(a)]
        #[shape(16)]
        pub x: f16,
    }
}

fn main() -> Result<(), alias::Error> {
    let device = alias::Host::in_order();
    nested::ByAlias::allocate(&device)?.begin()?.layer(0)?.fill()?;
    nested::ByUse::allocate(&device, nested::by_use::Dims { n: 3 })?.begin()?.layer(0)?.fill()?;
    let mut pool = nested::Absolute::allocate(&device)?;
    let [mut first, _] = pool.split();
    first.begin()?.layer(0)?.fill()?;
    Ok(())
}
