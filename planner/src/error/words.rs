//! Lists and numbers of things, as sentences have them.

use scratchpool_tables::layer_list;

/// `` `a`, `b` and `c` ``.
pub(super) fn list(names: &[String]) -> String {
    match names {
        [] => "nothing".into(),
        [one] => format!("`{one}`"),
        [rest @ .., last] => {
            let rest: Vec<_> = rest.iter().map(|name| format!("`{name}`")).collect();
            format!("{} and `{last}`", rest.join(", "))
        }
    }
}

/// `` `a`, `b` or `c` ``.
pub(super) fn either(names: &[String]) -> String {
    match names {
        [rest @ .., last] if !rest.is_empty() => {
            let rest: Vec<_> = rest.iter().map(|name| format!("`{name}`")).collect();
            format!("{} or `{last}`", rest.join(", "))
        }
        names => list(names),
    }
}

/// `happens in layers 2, 4; between layers 2 and 3, 3 and 0 of the next pass`, of which either part
/// may be absent.
pub(crate) fn layers_of_pairs(layers: &[(usize, usize)]) -> String {
    let within: Vec<usize> = layers.iter().filter(|(a, b)| a == b).map(|(a, _)| *a).collect();
    let between: Vec<_> = layers.iter().filter(|(a, b)| a != b).collect();
    let mut parts = Vec::new();
    if !within.is_empty() {
        parts.push(format!("in {}", layer_list(&within)));
    }
    let pair = |(a, b): &(usize, usize)| {
        let next = if b < a { " of the next pass" } else { "" };
        format!("{a} and {b}{next}")
    };
    let shown: Vec<String> = between.iter().take(6).map(|each| pair(each)).collect();
    if !shown.is_empty() {
        let tail = match between.len().saturating_sub(shown.len()) {
            0 => String::new(),
            1 => " and 1 more pair".into(),
            more => format!(" and {more} more pairs"),
        };
        parts.push(format!("between layers {}{tail}", shown.join(", ")));
    }
    format!("happens {}", parts.join("; "))
}

pub(super) fn there_are<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    format!("there {} {}", agree(&names, "is only", "are"), list(&names))
}

/// A word that agrees in number with what it is about.
pub(super) const fn agree<'w>(about: &[String], one: &'w str, more: &'w str) -> &'w str {
    if about.len() == 1 { one } else { more }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_layers_are_told_apart_by_whether_they_are_one_layer() {
        for (pairs, text) in [
            (&[(3, 3)][..], "happens in layer 3"),
            (&[(0, 0), (2, 2), (3, 4)], "happens in layers 0, 2; between layers 3 and 4"),
            (&[(2, 3), (3, 0)], "happens between layers 2 and 3, 3 and 0 of the next pass"),
            (
                &[(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7)],
                "happens between layers 0 and 1, 1 and 2, 2 and 3, 3 and 4, 4 and 5, 5 and 6 and 1 more pair",
            ),
        ] {
            assert_eq!(layers_of_pairs(pairs), text);
        }
    }
}
