//! Names, and the values that they stand for.

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// One integer.
    Int(i64),
    /// Text, which can only be compared.
    Text(String),
    /// A list of integers.
    List(Vec<i64>),
    /// A list of texts.
    Texts(Vec<String>),
}

/// Whether a word can name a step, group, buffer, dim, stream or attribute: a letter or `_`, then
/// letters, digits and `_`.
///
/// ```
/// use scratchpool_planner::spec::is_name;
/// assert!(is_name("index_q"));
/// assert!(!is_name("prev.fork"));
/// ```
pub fn is_name(word: &str) -> bool {
    let mut chars = word.chars();
    chars.next().is_some_and(|first| first == '_' || first.is_alphabetic())
        && chars.all(|rest| rest == '_' || rest.is_alphanumeric())
}
