//! The name that was probably meant.

/// The candidate nearest to `word` by edit distance, if it is near enough to be a slip. A full name
/// `group.buffer` is nearest to its last part.
///
/// ```
/// use scratchpool_planner::error::nearest;
/// assert_eq!(nearest("mpl", ["attention", "mlp"]), Some("mlp".to_owned()));
/// assert_eq!(nearest("qkv", ["attention", "attention.qkv"]), Some("attention.qkv".to_owned()));
/// assert_eq!(nearest("streem", ["stream", "name"]), Some("stream".to_owned()));
/// assert_eq!(nearest("zebra", ["stream", "name"]), None);
/// ```
pub fn nearest<'n>(word: &str, candidates: impl IntoIterator<Item = &'n str>) -> Option<String> {
    // No name that anyone wrote by hand is that long or has that many others beside it; what a
    // program wrote wrongly is not worth the comparisons.
    if word.len() > 256 {
        return None;
    }
    let word = word.to_lowercase();
    let length = word.chars().count();
    let limit = length.div_ceil(3).max(1);
    candidates
        .into_iter()
        .take(300)
        .filter_map(|candidate| {
            let lower = candidate.to_lowercase();
            if lower.rsplit_once('.').is_some_and(|(_, last)| last == word) {
                return Some((0, candidate));
            }
            // A word cut short or drawn out is a slip too, however long the rest.
            let shorter = lower.len().min(word.len());
            let part = shorter >= 3 && (lower.starts_with(&word) || word.starts_with(&lower));
            let near = part || lower.chars().count().abs_diff(length) <= limit;
            let most = if part { limit } else { usize::MAX };
            near.then(|| (distance(&word, &lower).min(most), candidate))
        })
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate.to_owned())
}

/// Edit distance with insertions, deletions, substitutions and swaps of two neighbouring letters,
/// no letter edited twice (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    // The row above that one, and the letter that it stands for.
    let mut two_above: Vec<usize> = Vec::new();
    let mut a_before = None;
    for (i, a_char) in a.chars().enumerate() {
        let mut row = Vec::with_capacity(above.len());
        let mut left = i + 1;
        row.push(left);
        let mut b_before = None;
        for (j, (edges, b_char)) in above.windows(2).zip(&b).enumerate() {
            let &[diagonal, up] = edges else { continue };
            let substituted = diagonal + usize::from(a_char != *b_char);
            left = substituted.min(left + 1).min(up + 1);
            let swap = a_before == Some(*b_char) && b_before == Some(a_char);
            if let Some(before) = j.checked_sub(1).and_then(|j| two_above.get(j)).filter(|_| swap) {
                left = left.min(before + 1);
            }
            row.push(left);
            b_before = Some(*b_char);
        }
        two_above = std::mem::replace(&mut above, row);
        a_before = Some(a_char);
    }
    above.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distance_counts_single_changes() {
        for (a, b, steps) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("abc", "abc", 0),
            ("mpl", "mlp", 1),
            ("ab", "ba", 1),
            ("abcd", "badc", 2),
            ("ca", "abc", 3),
        ] {
            assert_eq!(distance(a, b), steps, "{a} {b}");
        }
    }

    #[test]
    fn a_word_cut_short_or_drawn_out_is_near() {
        assert_eq!(nearest("alignment", ["name", "align"]).as_deref(), Some("align"));
        assert_eq!(nearest("indices", ["indices_of_topk"]).as_deref(), Some("indices_of_topk"));
        assert_eq!(nearest("a", ["align"]), None);
    }

    #[test]
    fn a_buffer_is_near_to_its_name_without_its_group() {
        let known = ["attention", "mlp", "attention.qkv"];
        assert_eq!(nearest("qkv", known).as_deref(), Some("attention.qkv"));
    }
}
