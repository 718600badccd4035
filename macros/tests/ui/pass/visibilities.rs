//! A pool is as visible as it is declared, from whatever module.
#![deny(unreachable_pub, private_interfaces, private_bounds, unused)]

use scratchpool::{Error, Host};

macro_rules! pool {
    ($(#[$meta:meta])* $visibility:vis $name:ident) => {
        $(#[$meta])*
        #[scratchpool::scratch_pool(rows = n, dims(n = 16))]
        #[step(fill, writes(a))]
        $visibility struct $name {
            /// The only one.
            #[group(a)]
            #[shape(n, 3)]
            $visibility x: u8,
        }
    };
}

mod outer {
    pub(crate) mod inner {
        pool!(pub(crate) InCrate);
        pool!(pub(super) InOuter);
        pool!(pub(in crate::outer) InPath);
        pool!(pub(self) InSelf);
        pool!(InInner);

        pub(crate) fn here() -> Result<usize, scratchpool::Error> {
            let device = scratchpool::Host::in_order();
            let mut pool = InInner::allocate(&device)?;
            let mut own = InSelf::allocate(&device)?;
            let rows = own.begin(2)?.layer(0)?.fill()?.buffers().x.rows();
            Ok(rows + pool.begin(3)?.layer(0)?.fill()?.buffers().x.rows())
        }
    }

    pub(crate) fn above() -> Result<usize, scratchpool::Error> {
        let device = scratchpool::Host::in_order();
        let mut pool = inner::InOuter::allocate(&device)?;
        let mut path = inner::InPath::allocate(&device)?;
        let rows = path.begin(4)?.layer(0)?.fill()?.buffers().x.rows();
        assert_eq!(inner::in_path::layout::TOTAL_BYTES, 256);
        Ok(rows + pool.begin(5)?.layer(0)?.fill()?.buffers().x.rows())
    }
}

fn main() -> Result<(), Error> {
    assert_eq!((outer::inner::here()?, outer::above()?), (5, 9));
    let mut pool = outer::inner::InCrate::allocate(&Host::in_order())?;
    assert_eq!(pool.begin(6)?.layer(0)?.fill()?.buffers().x.rows(), 6);

    // Inside a function, where no path leads to.
    pool!(Local);
    let mut pool = Local::allocate(&Host::in_order())?;
    assert_eq!(pool.begin(7)?.layer(0)?.fill()?.buffers().x.rows(), 7);
    Ok(())
}
