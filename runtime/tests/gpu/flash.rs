//! Flash's declared pool: every read sees its own layer's value, and every wait is needed for it.

use std::collections::BTreeSet;

use scratchpool::tables::StepInLayer;
use scratchpool::{Backing, Error, Host};

use crate::flash_pool::{FlashScratch, flash_scratch};
use crate::lab::{Gpu, HostLab, Lab, Muted, gpu, mute, say, setting};

/// The row counts of successive passes: they grow, shrink, vanish and fill the arena.
const ROWS: [usize; 8] = [16, 8, 16, 4, 16, 0, 1, 8192];

/// How long a delayed step waits before it starts, in microseconds.
const DELAY: u64 = 60;

/// The steps that write or read, each to be delayed in turn.
const STEPS: [&str; 6] =
    ["index_q", "index_topk", "compress", "q_proj", "global_topk", "attention"];

/// Every step at work, none delayed.
pub(crate) const PLAIN: Habit<'_> = Habit { delayed: Delayed::None, lazy: false };

/// Every step at work, one delayed.
const fn late(step: &str) -> Habit<'_> {
    Habit { delayed: Delayed::Step(step), lazy: false }
}

/// Which step waits [`DELAY`] before it starts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Delayed<'a> {
    None,
    Step(&'a str),
    /// Another one in each layer, or none.
    Any,
}

/// What is done at each step besides its own work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habit<'a> {
    pub(crate) delayed: Delayed<'a>,
    /// Whether parts of a layer launch nothing now and then, or are not asked for.
    pub(crate) lazy: bool,
}

/// What a layer does, by the bits of a number.
#[derive(Clone, Copy)]
struct Mood<'a> {
    delayed: Option<&'a str>,
    /// Which of indexer, compressor, queries and map are idle.
    idle: [bool; 4],
    /// Whether an idle step is not even entered.
    absent: bool,
}

impl<'a> Mood<'a> {
    fn of(habit: Habit<'a>, tag: u32) -> Self {
        let bits = tag.wrapping_mul(0x9e37_79b9).rotate_left(13).wrapping_mul(0x85eb_ca6b) >> 16;
        let delayed = match habit.delayed {
            Delayed::None => None,
            Delayed::Step(step) => Some(step),
            Delayed::Any => STEPS.get(bits as usize % 8).copied(),
        };
        let idle = [4, 5, 6, 7].map(|bit| habit.lazy && bits >> bit & 1 == 1);
        Self { delayed, idle, absent: bits >> 8 & 1 == 1 }
    }
}

/// Runs passes without waiting between them; returns how many words were wrong.
pub(crate) fn run<D: Lab>(
    device: &D,
    backing: Backing,
    max_num_tokens: usize,
    passes: impl IntoIterator<Item = usize>,
    habit: Habit<'_>,
) -> Result<u64, Error> {
    let dims = flash_scratch::Dims { max_num_tokens };
    let mut pool = FlashScratch::allocate_with(device, dims, backing)?;
    let mut tag = 0_u32;
    for rows in passes {
        let mut pass = pool.begin(rows)?;
        for index in 0..flash_scratch::SCHEDULE.layers.len() {
            tag = tag.wrapping_add(16);
            forward(device, &mut pass.layer(index)?, tag, Mood::of(habit, tag))?;
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
    mood: Mood<'_>,
) -> Result<(), Error> {
    let delay = |stream: &D::Stream, step: &str| match mood.delayed {
        Some(delayed) if delayed == step => device.delay(stream, DELAY),
        _ => Ok(()),
    };
    let [no_index, no_compressor, no_queries, no_map] = mood.idle;
    let asked = |idle: bool| !(idle && mood.absent);
    layer.fork()?;
    if asked(no_index)
        && let Some(mut step) = layer.index_q()?
        && !no_index
    {
        delay(step.stream(), "index_q")?;
        let out = step.buffers();
        device.fill(out.index_values, tag + 1)?;
        device.fill(out.index_scales, tag + 2)?;
        device.fill(out.index_weights, tag + 3)?;
    }
    if asked(no_index)
        && let Some(mut step) = layer.index_topk()?
        && !no_index
    {
        delay(step.stream(), "index_topk")?;
        let read = step.buffers();
        device.check(read.index_values, tag + 1)?;
        device.check(read.index_scales, tag + 2)?;
        device.check(read.index_weights, tag + 3)?;
    }
    if asked(no_compressor)
        && let Some(mut step) = layer.compress()?
        && !no_compressor
    {
        // Producer and consumer in one: late to write, and late to read.
        delay(step.stream(), "compress")?;
        let stream = step.stream();
        let mut kv = step.buffers().compressor_kv;
        device.fill(kv.reborrow(), tag + 4)?;
        delay(stream, "compress")?;
        device.check(kv.as_view(), tag + 4)?;
    }
    let mut step = layer.q_proj()?;
    if !no_queries {
        delay(step.stream(), "q_proj")?;
        device.fill(step.buffers().q, tag)?;
    }
    drop(step);
    layer.join()?;
    if asked(no_map)
        && let Some(mut step) = layer.global_topk()?
        && !no_map
    {
        delay(step.stream(), "global_topk")?;
        let out = step.buffers();
        device.fill(out.topk_indices, tag + 5)?;
        device.fill(out.topk_lens, tag + 6)?;
    }
    let mut step = layer.attention()?;
    if no_queries && no_map {
        return Ok(());
    }
    delay(step.stream(), "attention")?;
    let read = step.buffers();
    if !no_queries {
        device.check(read.q, tag)?;
    }
    if let (Some(indices), Some(lens), false) = (read.topk_indices, read.topk_lens, no_map) {
        device.check(indices, tag + 5)?;
        device.check(lens, tag + 6)?;
    }
    Ok(())
}

/// The waits that are issued, as told to [`Muted`]. The pool needs each of them: the examples' tests ask
/// the planner.
fn needed() -> Vec<(String, (&'static str, usize))> {
    let schedule = &flash_scratch::SCHEDULE;
    let name = |step: usize| schedule.steps[step].name;
    let waits = schedule.kinds.iter().flat_map(|kind| {
        let waits = |(step, here): (usize, &'static StepInLayer)| {
            here.waits.iter().map(move |wait| (name(step), name(usize::from(wait.step))))
        };
        kind.steps.iter().enumerate().flat_map(waits).collect::<Vec<_>>()
    });
    let distinct: BTreeSet<_> = waits.collect();
    assert_eq!(distinct.len(), 4, "{distinct:?}");
    distinct
        .into_iter()
        .map(|(step, after)| (format!("{step} after {after}"), mute(schedule, step, after)))
        .collect()
}

#[test]
fn every_read_sees_its_own_layers_value_on_the_host() {
    for (backing, seeds) in [(Backing::Arena, 12), (Backing::PerCall, 4)] {
        for seed in 0..seeds {
            let lab = HostLab::new(Host::random(seed));
            assert_eq!(run(&lab, backing, 16, [1, 0, 2], PLAIN).unwrap(), 0, "seed {seed}");
        }
    }
}

#[test]
fn what_is_left_out_around_idle_steps_is_not_missed_on_the_host() {
    for seed in 0..30 {
        let lab = HostLab::new(Host::random(seed));
        let habit = Habit { delayed: Delayed::None, lazy: true };
        assert_eq!(run(&lab, Backing::Arena, 16, [1, 0, 2, 1], habit).unwrap(), 0, "seed {seed}");
    }
}

#[test]
fn without_any_one_of_the_needed_waits_some_read_is_wrong_on_the_host() {
    for (wait, muted) in needed() {
        let seen = (0..40).any(|seed| {
            let lab = Muted::new(HostLab::new(Host::random(seed)), Some(muted));
            run(&lab, Backing::Arena, 16, [1, 1], PLAIN).unwrap() > 0
        });
        assert!(seen, "no order of 40 noticed the missing wait: {wait}");
    }
}

#[test]
fn every_read_sees_its_own_layers_value_on_the_gpu() {
    let Some(turn) = gpu("every read sees its own layer's value") else { return };
    let passes = setting("SCRATCHPOOL_GPU_PASSES", 400);
    let wrong =
        run(&turn.gpu, Backing::Arena, 8192, ROWS.into_iter().cycle().take(passes), PLAIN).unwrap();
    say(&format!("RESULT flash, {passes} passes of 43 layers, rows {ROWS:?}: {wrong} wrong words"));
    assert_eq!(wrong, 0);
}

#[test]
fn every_read_sees_its_own_layers_value_with_any_step_delayed_on_the_gpu() {
    let Some(turn) = gpu("every read sees its own layer's value, steps delayed") else { return };
    let passes = setting("SCRATCHPOOL_GPU_DELAYED", 64);
    for step in STEPS {
        let rows = ROWS.into_iter().cycle().take(passes);
        let wrong = run(&turn.gpu, Backing::Arena, 8192, rows, late(step)).unwrap();
        say(&format!("RESULT flash, {passes} passes, `{step}` delayed: {wrong} wrong words"));
        assert_eq!(wrong, 0, "{step} delayed");
    }
}

#[test]
fn what_is_left_out_around_idle_steps_is_not_missed_on_the_gpu() {
    let Some(turn) = gpu("what is left out around idle steps is not missed") else { return };
    let passes = 4 * setting("SCRATCHPOOL_GPU_DELAYED", 64);
    let habit = Habit { delayed: Delayed::Any, lazy: true };
    let rows = ROWS.into_iter().cycle().take(passes);
    let wrong = run(&turn.gpu, Backing::Arena, 8192, rows, habit).unwrap();
    say(&format!("RESULT flash, {passes} passes, idle and delayed steps: {wrong} wrong words"));
    assert_eq!(wrong, 0);
}

#[test]
fn every_read_sees_its_own_layers_value_without_a_pool_on_the_gpu() {
    let Some(turn) = gpu("every read sees its own layer's value without a pool") else { return };
    let passes = setting("SCRATCHPOOL_GPU_DELAYED", 64);
    let rows = ROWS.into_iter().cycle().take(passes);
    let wrong = run(&turn.gpu, Backing::PerCall, 8192, rows, PLAIN).unwrap();
    say(&format!("RESULT flash, {passes} passes, an allocation a live range: {wrong} wrong words"));
    assert_eq!(wrong, 0);
}

#[test]
fn without_any_one_of_the_needed_waits_some_read_is_wrong_on_the_gpu() {
    let Some(turn) = gpu("without a needed wait some read is wrong") else { return };
    let passes = || std::iter::repeat_n(64, 24);
    let found = |gpu: &Gpu, muted, step| {
        let lab = Muted::new(gpu.clone(), muted);
        run(&lab, Backing::Arena, 64, passes(), late(step)).unwrap()
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
    let wrong = run(&turn.gpu, Backing::Arena, 16, [16, 1, 0, 4], PLAIN).unwrap();
    assert_eq!(wrong, 0);
}
