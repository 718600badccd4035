//! How a step is launched.

/// How a step's first kernel is launched, which decides what it comes after on its own stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Launch {
    /// After every node issued earlier on its stream.
    #[default]
    Full,
    /// Programmatic dependent launch that waits for the preceding kernel before its first access:
    /// after that node and all which that node comes after, nothing more.
    Dependent,
    /// Programmatic dependent launch without that wait: after all that the preceding node comes
    /// after, but not after that node itself.
    Early,
}

impl Launch {
    /// All kinds, in the order of the documentation.
    pub const ALL: [Self; 3] = [Self::Full, Self::Dependent, Self::Early];

    /// The word used in specs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Dependent => "dependent",
            Self::Early => "early",
        }
    }

    /// The kind that a spec's word names.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}
