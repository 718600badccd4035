//! Flash's declared pool: every read sees its own layer's value, and every wait is needed for it.

use std::path::Path;

use scratchpool::{Backing, Error, Host};
use scratchpool_examples::deepseek::{FlashScratch, flash_scratch};
use scratchpool_planner::plan::plan;
use scratchpool_planner::sync::WaitReport;
use scratchpool_planner::toml_spec;

use crate::lab::{Gpu, HostLab, Lab, Muted, gpu, mute, say, setting};

/// The row counts of successive passes: they grow, shrink, vanish and fill the arena.
const ROWS: [usize; 8] = [16, 8, 16, 4, 16, 0, 1, 8192];

/// How long a delayed step waits before it starts, in microseconds.
const DELAY: u64 = 60;

/// The steps that write or read, each to be delayed in turn.
const STEPS: [&str; 6] =
    ["index_q", "index_topk", "compress", "q_proj", "global_topk", "attention"];

/// Runs passes without waiting between them; returns how many words were wrong.
pub(crate) fn run<D: Lab>(
    device: &D,
    backing: Backing,
    max_num_tokens: usize,
    passes: impl IntoIterator<Item = usize>,
    delayed: Option<&str>,
) -> Result<u64, Error> {
    let dims = flash_scratch::Dims { max_num_tokens };
    let mut pool = FlashScratch::allocate_with(device, dims, backing)?;
    let mut tag = 0_u32;
    for rows in passes {
        let mut pass = pool.begin(rows)?;
        for index in 0..flash_scratch::SCHEDULE.layers.len() {
            tag = tag.wrapping_add(16);
            forward(device, &mut pass.layer(index)?, tag, delayed)?;
        }
        pass.finish()?;
    }
    device.wrong()
}

/// One layer.
fn forward<D: Lab>(
    device: &D,
    layer: &mut flash_scratch::Layer<'_, D>,
    tag: u32,
    delayed: Option<&str>,
) -> Result<(), Error> {
    let delay = |stream: &D::Stream, step: &str| match delayed {
        Some(delayed) if delayed == step => device.spin(stream, DELAY),
        _ => Ok(()),
    };
    layer.fork()?;
    if let Some(mut step) = layer.index_q()? {
        delay(step.stream(), "index_q")?;
        let out = step.buffers();
        device.fill(out.index_values, tag + 1)?;
        device.fill(out.index_scales, tag + 2)?;
        device.fill(out.index_weights, tag + 3)?;
    }
    if let Some(mut step) = layer.index_topk()? {
        delay(step.stream(), "index_topk")?;
        let read = step.buffers();
        device.check(read.index_values, tag + 1)?;
        device.check(read.index_scales, tag + 2)?;
        device.check(read.index_weights, tag + 3)?;
    }
    if let Some(mut step) = layer.compress()? {
        // Producer and consumer in one: late to write, and late to read.
        delay(step.stream(), "compress")?;
        let stream = step.stream();
        let mut kv = step.buffers().compressor_kv;
        device.fill(kv.reborrow(), tag + 4)?;
        delay(stream, "compress")?;
        device.check(kv.as_view(), tag + 4)?;
    }
    let mut step = layer.q_proj()?;
    delay(step.stream(), "q_proj")?;
    device.fill(step.buffers().q, tag)?;
    drop(step);
    layer.join()?;
    if let Some(mut step) = layer.global_topk()? {
        delay(step.stream(), "global_topk")?;
        let out = step.buffers();
        device.fill(out.topk_indices, tag + 5)?;
        device.fill(out.topk_lens, tag + 6)?;
    }
    let mut step = layer.attention()?;
    delay(step.stream(), "attention")?;
    let read = step.buffers();
    device.check(read.q, tag)?;
    if let (Some(indices), Some(lens)) = (read.topk_indices, read.topk_lens) {
        device.check(indices, tag + 5)?;
        device.check(lens, tag + 6)?;
    }
    Ok(())
}

/// What the planner says of each wait, from the TOML spelling of the same pool.
fn waits() -> Vec<WaitReport> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("specs");
    // The binary may run on another machine, from the root of a copy of the repository.
    let folder = if built.is_dir() { built } else { Path::new("examples/specs").into() };
    let text = std::fs::read_to_string(folder.join("deepseek-v4-flash.toml")).unwrap();
    let spec = toml_spec::read(&text, &folder).whole().unwrap();
    plan(&spec).unwrap().explain().waits()
}

/// The waits that the pool needs, as told to [`Muted`].
fn needed() -> Vec<(String, (&'static str, usize))> {
    let needed = waits().into_iter().filter(|wait| !wait.needed_for.is_empty());
    needed
        .map(|wait| {
            let muted = mute(&flash_scratch::SCHEDULE, &wait.step, &wait.after);
            (format!("{} after {}", wait.step, wait.after), muted)
        })
        .collect()
}

#[test]
fn the_report_marks_four_waits_and_the_schedule_issues_just_those() {
    let issued: usize = flash_scratch::SCHEDULE
        .kinds
        .iter()
        .map(|kind| kind.steps.iter().map(|step| step.waits.len()).sum::<usize>())
        .sum();
    let needed = needed();
    assert_eq!((needed.len(), issued), (4, 4), "{needed:?}");
}

#[test]
fn every_read_sees_its_own_layers_value_on_the_host() {
    for (backing, seeds) in [(Backing::Arena, 12), (Backing::PerCall, 4)] {
        for seed in 0..seeds {
            let lab = HostLab::new(Host::random(seed));
            assert_eq!(run(&lab, backing, 16, [1, 0, 2], None).unwrap(), 0, "seed {seed}");
        }
    }
}

#[test]
fn without_any_one_of_the_needed_waits_some_read_is_wrong_on_the_host() {
    for (wait, muted) in needed() {
        let seen = (0..40).any(|seed| {
            let lab = Muted::new(HostLab::new(Host::random(seed)), Some(muted));
            run(&lab, Backing::Arena, 16, [1, 1], None).unwrap() > 0
        });
        assert!(seen, "no order of 40 noticed the missing wait: {wait}");
    }
}

#[test]
fn every_read_sees_its_own_layers_value_on_the_gpu() {
    let Some(turn) = gpu("every read sees its own layer's value") else { return };
    let passes = setting("SCRATCHPOOL_GPU_PASSES", 400);
    let wrong =
        run(&turn.gpu, Backing::Arena, 8192, ROWS.into_iter().cycle().take(passes), None).unwrap();
    say(&format!("RESULT flash, {passes} passes of 43 layers, rows {ROWS:?}: {wrong} wrong words"));
    assert_eq!(wrong, 0);
}

#[test]
fn every_read_sees_its_own_layers_value_with_any_step_delayed_on_the_gpu() {
    let Some(turn) = gpu("every read sees its own layer's value, steps delayed") else { return };
    let passes = setting("SCRATCHPOOL_GPU_DELAYED", 64);
    for step in STEPS {
        let rows = ROWS.into_iter().cycle().take(passes);
        let wrong = run(&turn.gpu, Backing::Arena, 8192, rows, Some(step)).unwrap();
        say(&format!("RESULT flash, {passes} passes, `{step}` delayed: {wrong} wrong words"));
        assert_eq!(wrong, 0, "{step} delayed");
    }
}

#[test]
fn every_read_sees_its_own_layers_value_without_a_pool_on_the_gpu() {
    let Some(turn) = gpu("every read sees its own layer's value without a pool") else { return };
    let passes = setting("SCRATCHPOOL_GPU_DELAYED", 64);
    let rows = ROWS.into_iter().cycle().take(passes);
    let wrong = run(&turn.gpu, Backing::PerCall, 8192, rows, None).unwrap();
    say(&format!("RESULT flash, {passes} passes, an allocation a live range: {wrong} wrong words"));
    assert_eq!(wrong, 0);
}

#[test]
fn without_any_one_of_the_needed_waits_some_read_is_wrong_on_the_gpu() {
    let Some(turn) = gpu("without a needed wait some read is wrong") else { return };
    let passes = || std::iter::repeat_n(64, 24);
    let found = |gpu: &Gpu, muted, step| {
        let lab = Muted::new(gpu.clone(), muted);
        run(&lab, Backing::Arena, 64, passes(), Some(step)).unwrap()
    };
    let mut unnoticed = Vec::new();
    for (wait, muted) in needed() {
        let by_step = STEPS.map(|step| (step, found(&turn.gpu, Some(muted), step)));
        say(&format!("RESULT without `{wait}`: wrong words by delayed step {by_step:?}"));
        if by_step.iter().all(|(_, wrong)| *wrong == 0) {
            unnoticed.push(wait);
        }
    }
    let sound = STEPS.map(|step| found(&turn.gpu, None, step));
    say(&format!("RESULT with all waits: wrong words by delayed step {sound:?}"));
    assert_eq!(sound, [0; 6]);
    assert!(unnoticed.is_empty(), "nothing noticed that these were missing: {unnoticed:?}");
}

#[test]
fn a_small_pass_for_the_memory_checkers_on_the_gpu() {
    let Some(turn) = gpu("a small pass for the memory checkers") else { return };
    let wrong = run(&turn.gpu, Backing::Arena, 16, [16, 1, 0, 4], None).unwrap();
    assert_eq!(wrong, 0);
}
