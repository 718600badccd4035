//! Any text as a spec: a plan that its verifier accepts, or errors that stand inside the text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use scratchpool_planner::plan::analyze;
use scratchpool_planner::toml_spec;

fuzz_target!(|text: &str| {
    // A configuration would be read from wherever the text says.
    if text.contains("config") {
        return;
    }
    let read = toml_spec::read(text, "/nowhere".as_ref());
    for error in &read.errors {
        assert!(error.span.start <= error.span.end && error.span.end as usize <= text.len());
        assert!(!error.message().is_empty());
    }
    let (plan, errors) = analyze(&read.spec);
    for error in &errors {
        assert!(!error.message().is_empty());
    }
    if let (Some(plan), true) = (plan, errors.is_empty()) {
        assert!(plan.layout.verify(&plan.interference).is_empty());
    }
});
