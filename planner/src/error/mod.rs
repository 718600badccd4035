//! What can be wrong with a spec, and the texts that say so.
//!
//! A [`Fault`] carries the numbers and names; its texts are made from it here, so that the macro,
//! the command and the JSON say the same thing. One kind of fault comes with its text from outside:
//! [`Fault::Syntax`], where only the reader of a spelling knows what its grammar expects. Each error
//! has a [`Code`] of the contract and a place ([`Error::span`]); many have related places and a way
//! to fix them.
//!
//! Stages collect errors and go on: a user sees all of them at once. Where the text of a spec was
//! in error, [`LeftOut`] says of which errors of the later stages that is safe.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `code` | the stable names |
//! | `fault` | the faults, with numbers and names, and the hints beside them |
//! | `message` | what was found, what was expected, and where |
//! | `help` | how it is fixed, in the words of either spelling |
//! | `left_out` | which errors stand alone in a spec that was read in part |
//! | `nearest` | the name that was probably meant |
//! | `words` | lists and numbers of things |

mod code;
mod fault;
mod help;
mod left_out;
mod message;
mod nearest;
mod words;

pub use code::Code;
pub(crate) use fault::MOST_LAYERS;
pub use fault::{
    AccessAt, Cause, Conflict, Error, Fault, Fix, Hint, Label, NameKind, Unwritten, hint_at_config,
};
pub use help::Spelling;
pub use left_out::LeftOut;
pub use nearest::nearest;
#[cfg(feature = "cli")]
pub(crate) use words::layers_of_pairs;
