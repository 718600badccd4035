//! The stable names of the kinds of error.

use std::fmt;

macro_rules! codes {
    ($($variant:ident $word:literal $doc:literal,)*) => {
        /// The stable name of a kind of error, as printed in JSON and in `error[…]`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = $doc] $variant,)*
        }

        impl Code {
            /// All codes.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The code as it is printed.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }
    };
}

codes! {
    Syntax "syntax" "The text is not a spec: malformed, a wrong type, a missing key.",
    UnknownKey "unknown_key" "A key that specs do not have.",
    UnknownName "unknown_name" "A name that nothing defines.",
    Expression "expression" "Malformed, inexact, zero divisor, overflow, or not known in time.",
    Shape "shape" "A dimension below 1 or a size beyond 63 bits.",
    Align "align" "Not a power of two, or below the pool's.",
    Layers "layers" "Columns shorter than the count, not a list, or no layer at all.",
    Duplicate "duplicate" "Two steps, groups or buffers of a group with one name.",
    Order "order" "An `after` that names a step which is not listed earlier.",
    Config "config" "The configuration file is missing, unreadable or not JSON.",
    ReadBeforeWrite "read_before_write" "A read, in the very first pass, of what nothing has written.",
    Race "race" "Two accesses of one live range, one of them a write, in no order.",
    Reuse "reuse" "A buffer written again while its former value may still be read.",
    NotExclusive "not_exclusive" "Groups claimed exclusive that can be live at the same time.",
    Internal "internal" "The planner's own check refused its layout: a fault of this crate.",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
