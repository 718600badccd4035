//! Lists of layers as people write them.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

/// `layer 3` or `layers 2, 4, 6 to 10`.
pub fn layer_list(layers: &[usize]) -> String {
    let mut layers = layers.to_vec();
    layers.sort_unstable();
    layers.dedup();
    if let [one] = layers.as_slice() {
        return format!("layer {one}");
    }
    // Runs with a constant stride of 1 or 2 are written as ranges: models alternate.
    let mut parts: Vec<String> = Vec::new();
    let mut rest = layers.as_slice();
    while let [first, tail @ ..] = rest {
        let stride = tail.first().map_or(1, |next| next - first);
        let mut length = 1;
        let mut last = *first;
        while stride <= 2 && rest.get(length) == Some(&(last + stride)) {
            last += stride;
            length += 1;
        }
        if length >= 4 {
            let every = if stride == 2 { " (every other)" } else { "" };
            parts.push(format!("{first} to {last}{every}"));
        } else {
            length = 1;
            parts.push(first.to_string());
        }
        rest = rest.get(length..).unwrap_or(&[]);
    }
    format!("layers {}", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_listed_as_runs() {
        assert_eq!(layer_list(&[3]), "layer 3");
        assert_eq!(layer_list(&[2, 0, 1, 3, 4]), "layers 0 to 4");
        assert_eq!(layer_list(&[2, 4, 6, 8, 9]), "layers 2 to 8 (every other), 9");
        assert_eq!(layer_list(&[0, 5]), "layers 0, 5");
    }
}
