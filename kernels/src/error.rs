//! What can be wrong with a launch, and every text that says so.

use std::sync::Arc;

/// A launch that was refused or failed. Nothing was launched, except where the driver reports an
/// earlier fault.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An extent differs from what the other arguments ask for.
    #[error("{kernel}: axis {axis} of `{argument}` is {found}; expected {expected}{}", like(.of))]
    Extent {
        /// The kernel.
        kernel: &'static str,
        /// The argument.
        argument: &'static str,
        /// The axis, from 0.
        axis: usize,
        /// Its extent.
        found: usize,
        /// The extent expected.
        expected: usize,
        /// The argument that sets it; empty where it is a constant of the kernel.
        of: &'static str,
    },
    /// An extent is too small.
    #[error("{kernel}: axis {axis} of `{argument}` is {found}; expected at least {least}")]
    TooSmall {
        /// The kernel.
        kernel: &'static str,
        /// The argument.
        argument: &'static str,
        /// The axis, from 0.
        axis: usize,
        /// Its extent.
        found: usize,
        /// The least extent that will do.
        least: usize,
    },
    /// An extent or a number is too large.
    #[error("{kernel}: `{argument}` is {found}; at most {most}{}", most_of(.of))]
    TooLarge {
        /// The kernel.
        kernel: &'static str,
        /// The argument.
        argument: &'static str,
        /// The value.
        found: usize,
        /// The largest value that will do.
        most: usize,
        /// The argument that sets it; empty where it is what the kernel can address.
        of: &'static str,
    },
    /// A number breaks a rule.
    #[error("{kernel}: `{argument}` is {found}; it must be {rule}")]
    Value {
        /// The kernel.
        kernel: &'static str,
        /// The argument.
        argument: &'static str,
        /// The value.
        found: f64,
        /// What it must be.
        rule: &'static str,
    },
    /// An address is not aligned as the kernel's loads and stores need.
    #[error("{kernel}: `{argument}` is at {address:#x}; it must be aligned to {align} bytes")]
    Align {
        /// The kernel.
        kernel: &'static str,
        /// The argument.
        argument: &'static str,
        /// Where it is.
        address: u64,
        /// What it must be a multiple of.
        align: u64,
    },
    /// A program was refused by NVRTC.
    #[error("NVRTC refused `{program}` for {arch} ({code}):\n{log}")]
    Compile {
        /// The program.
        program: &'static str,
        /// The architecture.
        arch: String,
        /// NVRTC's own code.
        code: String,
        /// NVRTC's log.
        log: String,
    },
    /// The device is older than the kernels.
    #[error("the device is of compute capability {major}.{minor}; the kernels need 8.0 or later")]
    TooOld {
        /// Major number.
        major: i32,
        /// Minor number.
        minor: i32,
    },
    /// The device has too little shared memory for a kernel.
    #[error("{kernel}: a block needs {needed} bytes of shared memory; this device has {most}")]
    SharedMemory {
        /// The kernel.
        kernel: &'static str,
        /// Bytes needed.
        needed: u32,
        /// Bytes that a block can have.
        most: u32,
    },
    /// A failure of the runtime.
    #[error(transparent)]
    Runtime(Arc<scratchpool::Error>),
}

impl From<scratchpool::Error> for Error {
    fn from(error: scratchpool::Error) -> Self {
        Self::Runtime(Arc::new(error))
    }
}

fn like(of: &str) -> String {
    if of.is_empty() { String::new() } else { format!(", as `{of}` has") }
}

fn most_of(of: &str) -> String {
    if of.is_empty() { " can be addressed".to_owned() } else { like(of) }
}

/// A number that an argument is to have, and the argument that sets it.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    value: usize,
    of: &'static str,
}

impl Wanted {
    /// The `value` that `of` has.
    pub(crate) const fn of(of: &'static str, value: usize) -> Self {
        Self { value, of }
    }
}

/// A constant of the kernel's.
impl From<usize> for Wanted {
    fn from(value: usize) -> Self {
        Self { value, of: "" }
    }
}

/// The checks of one kernel's arguments.
#[derive(Clone, Copy)]
pub(crate) struct Check(pub(crate) &'static str);

impl Check {
    pub(crate) fn extent(
        self,
        argument: &'static str,
        axis: usize,
        found: usize,
        expected: impl Into<Wanted>,
    ) -> Result<(), Error> {
        let Wanted { value: expected, of } = expected.into();
        if found == expected {
            return Ok(());
        }
        Err(Error::Extent { kernel: self.0, argument, axis, found, expected, of })
    }

    pub(crate) fn shape<const R: usize>(
        self,
        argument: &'static str,
        found: [usize; R],
        expected: [impl Into<Wanted>; R],
    ) -> Result<(), Error> {
        for (axis, (found, expected)) in found.into_iter().zip(expected).enumerate() {
            self.extent(argument, axis, found, expected)?;
        }
        Ok(())
    }

    pub(crate) fn at_least(
        self,
        argument: &'static str,
        axis: usize,
        found: usize,
        least: usize,
    ) -> Result<(), Error> {
        if found >= least {
            return Ok(());
        }
        Err(Error::TooSmall { kernel: self.0, argument, axis, found, least })
    }

    pub(crate) fn at_most(
        self,
        argument: &'static str,
        found: usize,
        most: impl Into<Wanted>,
    ) -> Result<(), Error> {
        let Wanted { value: most, of } = most.into();
        if found <= most {
            return Ok(());
        }
        Err(Error::TooLarge { kernel: self.0, argument, found, most, of })
    }

    /// Refuses what a device's 32-bit counters cannot hold.
    pub(crate) fn counts(self, numbers: &[(&'static str, usize)]) -> Result<(), Error> {
        const MOST: usize = 0x7fff_ffff;
        numbers.iter().try_for_each(|(argument, found)| self.at_most(argument, *found, MOST))
    }

    pub(crate) fn value(
        self,
        argument: &'static str,
        holds: bool,
        found: f64,
        rule: &'static str,
    ) -> Result<(), Error> {
        if holds {
            return Ok(());
        }
        Err(Error::Value { kernel: self.0, argument, found, rule })
    }

    /// A count that must be at least 1.
    pub(crate) fn positive(self, argument: &'static str, found: usize) -> Result<(), Error> {
        self.value(argument, found > 0, 0.0, "at least 1")
    }

    /// An epsilon or a scale.
    pub(crate) fn above_zero(self, argument: &'static str, found: f32) -> Result<(), Error> {
        let holds = found.is_finite() && found > 0.0;
        self.value(argument, holds, f64::from(found), "finite and above 0")
    }

    /// The norm's epsilon, which may be 0.
    pub(crate) fn epsilon(self, argument: &'static str, found: f32) -> Result<(), Error> {
        let holds = found.is_finite() && found >= 0.0;
        self.value(argument, holds, f64::from(found), "finite and not below 0")
    }
}
