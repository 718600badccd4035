//! The waits that are issued, by executing what is issued: enough, none implied, and needed where it is said.
//!
//! The prover's claim, the planner's reduction, and its report of what needs each wait are three things; this module
//! holds the second and the third to executions of the *issued calls*, not of the spec:
//!
//! - **enough**: with all waits of the issue plan, exactly those steps can run at once that can under the declaration;
//! - **none implied**: with one of them left out, wherever it stands, more steps can;
//! - **needed for the pool**: with the waits of one declared `after` left out, some order corrupts the planner's layout
//!   exactly if the report names a pair of buffers for it.

use scratchpool_planner::plan::Plan;

use super::PASSES;
use super::declared::Declared;
use super::issue::{Site, calls, program, sites};
use super::judge::layout_of;
use super::machine::{Reach, explore};
use super::memory::corruption;
use super::program::Program;

/// What was executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Waits of an issue plan, by layer, step and event.
    pub issued: usize,
    /// Declared `after` entries, with the issued waits of which the pool stands or falls.
    pub needed: usize,
    /// Declared `after` entries whose issued waits only the user's own data may need.
    pub not_needed: usize,
    /// Orders of execution; saturating.
    pub orders: u128,
    /// States that stand for them.
    pub states: usize,
}

/// Holds an accepted plan to the three claims.
///
/// # Errors
/// The claim that does not hold, in words.
pub fn check(declared: &Declared, plan: &Plan) -> Result<Waits, String> {
    let meant = Program::new(declared, PASSES);
    let wanted = explore(&meant);
    let layout = layout_of(plan);
    let explainer = plan.explain();
    let issue_plan = explainer.issue_plan();
    let sites = sites(&issue_plan);
    let mut waits = Waits { issued: sites.len(), ..Waits::default() };
    let mut explore_without = |without: &dyn Fn(&Site) -> bool| -> (Program, Reach) {
        let (calls, steps) = calls(declared, &issue_plan, PASSES, without);
        let program = program(meant.streams, meant.buffers, &calls, steps);
        let reach = explore(&program);
        waits.orders = waits.orders.saturating_add(reach.orders);
        waits.states += reach.states;
        (program, reach)
    };
    let (issued, reach) = explore_without(&|_| false);
    if issued.nodes.len() != meant.nodes.len() || !reach.same_order(&wanted) {
        return Err("what is issued is not ordered as declared".to_owned());
    }
    if let Some(found) = corruption(&issued, &reach, &layout) {
        return Err(format!("what is issued corrupts:\n{}", found.words(declared, &issued)));
    }
    for site in &sites {
        let (_, weaker) = explore_without(&|each| each == site);
        if weaker.same_order(&reach) {
            return Err(format!("{site:?} is implied by the rest"));
        }
    }
    let mut reported = Vec::new();
    for report in explainer.waits() {
        let of = |site: &Site| {
            declared.steps[site.step].name == report.step
                && site.after(declared, &issue_plan) == report.after
        };
        let layers = sites.iter().filter(|site| of(site)).map(|site| site.layer);
        let layers: Vec<usize> = layers.collect();
        // Of two equal entries, one is issued; the report then says so of one.
        let again = reported.contains(&(report.step.clone(), report.after.clone()));
        reported.push((report.step.clone(), report.after.clone()));
        if report.layers != layers && !(again && report.layers.is_empty()) {
            return Err(format!("issued in layers {layers:?}: {report:?}"));
        }
        if report.layers.is_empty() {
            if !report.needed_for.is_empty() {
                return Err(format!("needed, and never issued: {report:?}"));
            }
            continue;
        }
        let (weaker, reach) = explore_without(&of);
        let found = corruption(&weaker, &reach, &layout);
        match (&found, report.needed_for.is_empty()) {
            (Some(_), false) => waits.needed += 1,
            (None, true) => waits.not_needed += 1,
            (None, false) => return Err(format!("no order shows why it is needed: {report:?}")),
            (Some(found), true) => {
                let words = found.words(declared, &weaker);
                return Err(format!("not said to be needed: {report:?}\n{words}"));
            }
        }
    }
    Ok(waits)
}
