//! Tries the planner against every order of execution of many schedules, and prints what came of it.
//!
//! ```text
//! cargo run --release -p scratchpool-prover --bin prove -- [--stride N] [--random N] [--threads N]
//! ```
//!
//! With a stride of N, of each family every N-th schedule is judged; 1, the default, leaves nothing out. Exits with 1 if
//! anything disagrees, after printing the smallest schedule that shows it. The tests in `tests/prove.rs` are the same
//! with a large stride.
//!
//! A family is every schedule of its bounds (see [`FAMILIES`]). *Orders* are orders of execution of three passes,
//! *states* the sets of ended steps that stand for them. *Sampled* schedules have more than 50,000 states: of those 400
//! random orders were executed, on the planner's layout. The last row executes what is issued instead of what is
//! declared: whole, without each single wait, and without the waits of each declared `after`.
//!
//! What the command printed without options, on one core of a machine busy with other work (orders saturate at 128 bits,
//! which is 3.4e38):
//!
//! ```text
//! family                                  specs       orders       states   accepted    refused  sampled  dis.  seconds
//! two steps, every edge                   25920       321480       271530       5648      20272        0     0      1.4
//! three steps                            349600     25144790      6335360      69185     280415        0     0     23.3
//! three steps, launch kinds              820800    993733630     25573240      85810     734990        0     0     88.0
//! two steps, two layers                  427680       1.1e11     10943760     186860     240820        0     0     31.3
//! three steps, two layers               1795500       4.1e10     61739930     296386    1499114        0     0    379.4
//! two steps, three layers                201600     80870580      2900520     123370      78230        0     0     19.9
//! four steps                             926640       3.5e11     59311785     142408     784232        0     0     76.2
//! random schedules                         8000       3.4e38     17124018       4487       3513      200     0     11.2
//! issued waits of random schedules         2000       3.4e38      9852226       1084        916        0     0      6.6
//! all                                   4557740       3.4e38    194052369     915238    3642502      200     0      0.0
//! ```

use std::process::ExitCode;
use std::time::Instant;

use scratchpool_planner::plan::plan;
use scratchpool_prover::PASSES;
use scratchpool_prover::declared::Declared;
use scratchpool_prover::family::{FAMILIES, Tally};
use scratchpool_prover::judge::{Judged, Outcome, judge, judge_within};
use scratchpool_prover::machine::explore_within;
use scratchpool_prover::program::Program;
use scratchpool_prover::random::{declared, shrink};
use scratchpool_prover::waits::{self, Waits};

fn main() -> ExitCode {
    let mut options = (1_usize, 8_000_usize, 1_usize);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    for pair in arguments.chunks(2) {
        let (Some(key), Some(Ok(value))) = (pair.first(), pair.get(1).map(|word| word.parse()))
        else {
            eprintln!("usage: prove [--stride N] [--random N] [--threads N]");
            return ExitCode::from(2);
        };
        match key.as_str() {
            "--stride" => options.0 = usize::max(value, 1),
            "--random" => options.1 = value,
            "--threads" => options.2 = usize::max(value, 1),
            _ => {
                eprintln!("unknown option {key}");
                return ExitCode::from(2);
            }
        }
    }
    let (stride, random, threads) = options;
    println!(
        "{:<34} {:>10} {:>12} {:>12} {:>10} {:>10} {:>8} {:>5} {:>8}",
        "family", "specs", "orders", "states", "accepted", "refused", "sampled", "dis.", "seconds"
    );
    let mut total = Tally::default();
    for family in FAMILIES {
        let tally =
            timed(family.name, || spread(threads, |thread| family.judge(thread, stride * threads)));
        total.join(tally);
    }
    total.join(timed("random schedules", || {
        spread(threads, |thread| by_seed(thread, random, threads, &random_judge))
    }));
    total.join(timed("issued waits of random schedules", || {
        spread(threads, |thread| by_seed(thread, random / 4, threads, &issued))
    }));
    print("all", &total, 0.0);
    let Some((declared, words)) =
        total.disagreements.iter().min_by_key(|(declared, _)| declared.toml().len())
    else {
        return ExitCode::SUCCESS;
    };
    let small = shrink(declared, &|each| judge(each).is_err() || issued(each).is_err());
    let small_words = judge(&small).and_then(|_| issued(&small)).err().unwrap_or_default();
    println!("\n{words}\n\nsmaller:\n{}\n{small_words}", small.toml());
    ExitCode::FAILURE
}

/// States of one random schedule before its orders are sampled.
const MOST_STATES: usize = 50_000;

fn random_judge(declared: &Declared) -> Result<Judged, String> {
    judge_within(declared, MOST_STATES)
}

/// What became of a schedule's waits; a refused one has none to judge, and one of very many states is left out.
fn issued(declared: &Declared) -> Result<Judged, String> {
    let refused = Judged { outcome: Outcome::Refused, orders: 0, states: 0, complete: true };
    let Ok(plan) = plan(&declared.spec()) else { return Ok(refused) };
    let few = explore_within(&Program::new(declared, PASSES), MOST_STATES / 10, 0);
    if !few.complete {
        return Ok(refused);
    }
    let Waits { orders, states, .. } = waits::check(declared, &plan)?;
    Ok(Judged { outcome: Outcome::Accepted, orders, states, complete: true })
}

fn by_seed(
    thread: usize,
    count: usize,
    threads: usize,
    judge: &dyn Fn(&Declared) -> Result<Judged, String>,
) -> Tally {
    let mut tally = Tally::default();
    for seed in (thread..count).step_by(threads) {
        let declared = declared(seed as u64);
        tally.add(&declared, judge(&declared));
    }
    tally
}

/// Runs one share of the work on each thread.
fn spread(threads: usize, share: impl Fn(usize) -> Tally + Sync) -> Tally {
    let mut total = Tally::default();
    std::thread::scope(|scope| {
        let share = &share;
        let handles: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || share(thread))).collect();
        for handle in handles {
            match handle.join() {
                Ok(tally) => total.join(tally),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    total
}

fn timed(name: &str, work: impl FnOnce() -> Tally) -> Tally {
    let start = Instant::now();
    let tally = work();
    print(name, &tally, start.elapsed().as_secs_f64());
    tally
}

fn print(name: &str, tally: &Tally, seconds: f64) {
    let Tally { specs, orders, states, accepted, refused, sampled, .. } = tally;
    // Orders are too many to be read digit by digit.
    let orders = match orders.checked_ilog10() {
        Some(exponent) if exponent >= 9 => {
            let digits = orders / 10_u128.pow(exponent - 1);
            format!("{}.{}e{exponent}", digits / 10, digits % 10)
        }
        _ => orders.to_string(),
    };
    let wrong = specs - accepted - refused;
    println!(
        "{name:<34} {specs:>10} {orders:>12} {states:>12} {accepted:>10} {refused:>10} {sampled:>8} {wrong:>5} {seconds:>8.1}"
    );
}
