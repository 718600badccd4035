//! Any text as an expression: a value, or an error that stands inside the text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use scratchpool_planner::expr::Expr;
use scratchpool_planner::spec::{Span, Value};

fuzz_target!(|text: &str| {
    let place = |start: usize, end: usize| {
        assert!(start <= end && end <= text.len());
        Span::new(u32::try_from(start).unwrap_or(u32::MAX), u32::try_from(end).unwrap_or(u32::MAX))
    };
    if let Ok(expr) = Expr::parse(text, &place) {
        let _ = expr.eval(&|name| (name.len() < 9).then_some(Value::Int(12)));
    }
});
