//! From checked arguments to a launch on a stream.
//!
//! Invariant, on which every unsafe launch rests: parameters come from a `check`, which fixes all
//! shapes, and from views, which are live memory in order on their stream; [`Site::on`] makes sure that
//! it is the stream launched on, and aligned for the kernel's loads; parameters are laid out as the
//! source declares (`params`); and kernels stay inside the shapes whatever the contents are.

use scratchpool::cuda::cudarc::driver::{CudaFunction, LaunchConfig};
use scratchpool::cuda::{KernelArg, Stream};
use scratchpool::{Device, Element, View, ViewMut};

use crate::error::Error;

/// Which kernel is launched where.
#[derive(Clone, Copy)]
pub(super) struct Site<'s> {
    pub(super) kernel: &'static str,
    pub(super) stream: &'s Stream,
}

/// An argument that has an address and a stream.
pub(super) trait Placed<'v> {
    fn place(&self) -> (u64, &'v Stream);
}

impl<'v, T: Element, D: Device<Stream = Stream>, const R: usize> Placed<'v> for View<'v, T, D, R> {
    fn place(&self) -> (u64, &'v Stream) {
        (self.address(), self.stream())
    }
}

impl<'v, T: Element, D: Device<Stream = Stream>, const R: usize> Placed<'v>
    for ViewMut<'v, T, D, R>
{
    fn place(&self) -> (u64, &'v Stream) {
        (self.address(), self.stream())
    }
}

impl Site<'_> {
    /// The address of an argument, which must be of this stream, and aligned.
    pub(super) fn on<'v>(
        &self,
        argument: &'static str,
        placed: &impl Placed<'v>,
        align: u64,
    ) -> Result<u64, Error> {
        let (address, stream) = placed.place();
        if stream != self.stream {
            let (view, launch) = (stream.name(), self.stream.name());
            return Err(scratchpool::Error::ForeignStream { view, launch }.into());
        }
        if address % align != 0 {
            return Err(Error::Align { kernel: self.kernel, argument, address, align });
        }
        Ok(address)
    }

    /// Launches on a grid of `x` times `y` blocks; nothing where there is none.
    ///
    /// # Safety
    ///
    /// The module's invariant, and the parameters are those of the function, at most two.
    pub(super) unsafe fn launch<A: KernelArg, B: KernelArg>(
        &self,
        function: &CudaFunction,
        (x, y): (usize, usize),
        threads: u32,
        shared: u32,
        first: &A,
        second: Option<&B>,
    ) -> Result<(), Error> {
        let config = LaunchConfig {
            grid_dim: (count(x), count(y), 1),
            block_dim: (threads, 1, 1),
            shared_mem_bytes: shared,
        };
        let call = self.stream.kernel(function).arg(first);
        let call = match second {
            Some(second) => call.arg(second),
            None => call,
        };
        // SAFETY: the caller's promise; every kernel begins by waiting for the one in front of it.
        unsafe { call.launch(config)? };
        Ok(())
    }
}

/// A count that a check has bounded.
pub(super) fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// A factor and a shift that divide any number below `2^31`: `n / by = n * factor >> shift`.
///
/// With `by <= 2^s` the factor is `2^(31 + s) / by` rounded up, which adds less than
/// `n / 2^(31 + s) < 1 / by` to the quotient: too little to reach the next whole number.
pub(super) fn divisor(by: u32) -> (u32, u32) {
    let by = u64::from(by.clamp(1, 1 << 30));
    let shift = 31 + by.next_power_of_two().trailing_zeros();
    (u32::try_from((1_u64 << shift).div_ceil(by)).unwrap_or(u32::MAX), shift)
}

/// For launches of one parameter.
pub(super) const NONE: Option<&u32> = None;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_and_a_shift_divide_as_division_does() {
        let most = (1_u32 << 31) - 1;
        for by in (1..=4096).chain([65_535, 65_536, 65_537, (1 << 30) - 1, 1 << 30]) {
            let (factor, shift) = divisor(by);
            let whole = most / by * by;
            for n in [0, 1, by - 1, by, by + 1, whole / 2, whole - 1, whole, most] {
                let quotient = (u64::from(n) * u64::from(factor)) >> shift;
                assert_eq!(quotient, u64::from(n / by), "{n} / {by}");
            }
        }
    }
}
