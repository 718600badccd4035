//! The eager region with its real kernels, on the host: what the GPU tests run on both devices.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use scratchpool::{Backing, Host};
use scratchpool_examples::layers::{Case, eager, padded};
use scratchpool_kernels::HostKernels;

#[test]
fn every_kind_of_layer_gives_what_float64_gives_in_any_order_and_without_a_pool() {
    // The window only, ratio 4, ratio 128, and ratio 4 again, which reuses the scratch of the others.
    let case = Case::new(5, 1..5);
    let ratios: Vec<_> = case.layers().collect();
    assert_eq!(ratios, [(1, 0), (2, 4), (3, 128), (4, 4)]);
    let wanted = eager(&Host::in_order(), &HostKernels, &case, Backing::Arena).unwrap();
    let off = wanted.verify(&case).unwrap();
    assert!(off > 0.0, "bf16 is not that exact: {off}");
    for backing in [Backing::PerCall, Backing::Sanitized] {
        let found = eager(&Host::in_order(), &HostKernels, &case, backing).unwrap();
        assert!(wanted == found, "{backing:?}: {:?}", wanted.compare(&found));
    }
    for seed in 0..2 {
        let found = eager(&Host::random(seed), &HostKernels, &case, Backing::Arena).unwrap();
        assert!(wanted == found, "seed {seed}: {:?}", wanted.compare(&found));
    }
}

#[test]
fn rows_of_padding_change_neither_other_rows_nor_caches() {
    let case = Case::new(6, 2..4);
    let wanted = eager(&Host::in_order(), &HostKernels, &case, Backing::Arena).unwrap();
    let found = padded(&Host::random(1), &HostKernels, &case).unwrap();
    assert!(wanted == found, "{:?}", wanted.compare(&found));
}

#[test]
fn the_checks_notice_another_models_results() {
    let (case, other) = (Case::new(7, 2..3), Case::new(8, 2..3));
    let [mine, its] = [&case, &other]
        .map(|case| eager(&Host::in_order(), &HostKernels, case, Backing::Arena).unwrap());
    assert_eq!(mine.compare(&mine), Ok(0.0));
    assert!(mine.compare(&its).is_err());
    assert!(mine.verify(&other).is_err());
}
