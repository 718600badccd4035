//! What the planner says of the waits of a real model's pool, and what the schedule issues.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use scratchpool_examples::deepseek::flash_scratch;
use scratchpool_planner::plan::plan;
use scratchpool_planner::toml_spec;

#[test]
fn the_report_marks_four_waits_and_the_schedule_issues_just_those() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("specs");
    let text = std::fs::read_to_string(folder.join("deepseek-v4-flash.toml")).unwrap();
    let spec = toml_spec::read(&text, &folder).whole().unwrap();
    let waits = plan(&spec).unwrap().explain().waits();
    let needed: Vec<_> = waits
        .iter()
        .filter(|wait| !wait.needed_for.is_empty())
        .map(|wait| (wait.step.as_str(), wait.after.as_str()))
        .collect();
    let schedule = &flash_scratch::SCHEDULE;
    let mut issued = Vec::new();
    for kind in schedule.kinds {
        for (row, here) in schedule.steps.iter().zip(kind.steps) {
            for wait in here.waits {
                issued.push((row.name, schedule.steps.get(usize::from(wait.step)).unwrap().name));
            }
        }
    }
    assert_eq!(issued.len(), 4, "{issued:?}");
    assert!(issued.iter().all(|wait| needed.contains(wait)), "{needed:?} {issued:?}");
    assert_eq!(needed.len(), 4, "{needed:?}");
}
