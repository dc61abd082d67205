//! The replay against the truth: on the simulated GPU every second run of the same work goes without
//! collections, or without waiting for results. The table for docs/evidence.md is
//!
//! ```text
//! cargo test -p gctrace-analysis --test plain replay_simgpu:: -- --nocapture | grep '^|'
//! ```

#![expect(clippy::panic, reason = "helpers of tests, outside of #[test]")]

use crate::simgpu;

use gctrace_analysis::report::{IdleCause, Report};
use simgpu::figure::{Figure, Verdict};
use simgpu::trial::{BaselineRun, Outcome, Trial};
use simgpu::{RunForm, SimulatedRun};
use std::sync::{Mutex, PoisonError};

/// Three with collections, three without.
const RUNS: usize = 6;
/// Number of repetitions of a case if its runs are inconclusive or show an error; all its runs
/// count.
const TRIES: usize = 4;

/// A small part of what makes a rank late: 72 ms and more in a run.
const DISTURBED_NS: i64 = 20_000_000;

/// One case at a time: they measure.
static MACHINE: Mutex<()> = Mutex::new(());

/// Plays and judges a case.
/// `cause`: what every second run goes without, if it is not pauses. `late`: what makes the second
/// rank late in the others.
fn case(name: &str, ranks: usize, cause: Option<IdleCause>, late: Option<IdleCause>) {
    let forms = [("with waits", RunForm::WithWaits), ("plain", RunForm::Plain)];
    let mut trials = forms.map(|_| Trial::of(cause));
    let mut outcomes = Vec::new();
    let mut calm = 0;
    // To the end: the analysis needs CPU time as well.
    let alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    for tries in 1..=TRIES {
        let played = match simgpu::play(name, RUNS, ranks) {
            Ok(played) => played,
            Err(reason) => return println!("\nskipped replay_simgpu_{name}: {reason}"),
        };
        if let Some(late) = late {
            calm += names_the_late_rank(&played, late);
        }
        let (played, without) = (&played, &played.without());
        std::thread::scope(|both| {
            for (trial, (_, form)) in trials.iter_mut().zip(forms) {
                both.spawn(move || trial.add(&played.with(form), without));
            }
        });
        outcomes = trials.iter().map(Trial::judge).collect();
        let right = |outcome: &Outcome| outcome.verdict() == Verdict::Right;
        let hopeless = |outcome: &Outcome| outcome.calm.is_hopeless(tries, TRIES);
        if outcomes.iter().any(hopeless) || outcomes.iter().all(right) {
            break;
        }
    }
    drop(alone);
    if late.is_some() && calm == 0 {
        println!("skipped replay_simgpu_{name}: the machine is too busy to make but one rank late");
    }
    for (outcome, (trace, _)) in outcomes.iter().zip(forms) {
        row(name, trace, outcome);
    }
    if !trials.iter().all(Trial::knows_waits) {
        println!(
            "replay_simgpu_{name}: this kernel does not count how long threads wait for a processor, \
             so no run is left out for that"
        );
    }
    for (outcome, (trace, _)) in outcomes.iter().zip(forms) {
        check(name, trace, outcome);
    }
}

/// Fails if the report on a run does not state that the first rank waited for the second, and why. Returns
/// the number of runs that count: no rank was late for want of a processor.
fn names_the_late_rank(played: &SimulatedRun, cause: IdleCause) -> usize {
    let reports = played.reports().into_iter();
    let calm = reports.filter(|(_, waited_ns)| waited_ns.unwrap_or(0) <= DISTURBED_NS);
    let calm: Vec<Report> = calm.map(|(report, _)| report).collect();
    for report in &calm {
        let ledgers = report.gpu.iter().flat_map(|gpu| &gpu.idle);
        let first =
            ledgers.clone().find(|ledger| ledger.id.rank == Some(0)).map(|one| &one.rank_waits);
        let wait =
            first.and_then(|waits| waits.first()).map(|wait| (wait.rank, wait.late.as_ref()));
        let Some((1, Some(late))) = wait else { panic!("{first:?}") };
        assert_eq!(late.cause, Some(cause), "{late:?}");
    }
    calm.len()
}

/// Fails if a figure is wrong; prints a note if that is undecided.
fn check(name: &str, trace: &str, outcome: &Outcome) {
    let reason = match outcome.verdict() {
        Verdict::Right => return,
        Verdict::Wrong => panic!("{name}, {trace}: {}: {outcome:?}", off(outcome)),
        Verdict::Open if outcome.calm.is_enough() => off(outcome),
        Verdict::Open => waited(&outcome.calm),
    };
    println!("skipped replay_simgpu_{name}, {trace}: the machine is too busy: {reason}");
}

fn off(outcome: &Outcome) -> String {
    let of = [("length", &outcome.length), ("idle time", &outcome.idle)].map(|(what, figure)| {
        format!(
            "{what} {} ms off, {} allowed, chance explains {}, waiting for processors {}",
            ms(figure.error),
            ms(figure.bound()),
            ms(figure.noise),
            ms(figure.waited),
        )
    });
    of.join("; ")
}

fn waited(calm: &BaselineRun) -> String {
    let [with, without] = calm.waited.map(ms);
    let [calm_with, calm_without] = calm.runs;
    format!(
        "threads waited {with} ms for a processor in runs with collections and {without} in those without \
         (medians), {} allowed, so that {calm_with} and {calm_without} of {} runs are left",
        ms(calm.allowed),
        calm.of,
    )
}

/// | case | trace | pauses | overlap | length: real | predicted | error | noise | idle: the same |
fn row(name: &str, trace: &str, outcome: &Outcome) {
    let figure = |figure: &Figure| {
        let parts = [figure.real, figure.predicted, figure.error, figure.noise];
        parts.map(ms).join(" | ")
    };
    // The line of the test program has been started already.
    println!(
        "\n| {name} | {trace} | {} | {} | {} | {} |",
        ms(outcome.pauses),
        ms(outcome.overlap),
        figure(&outcome.length),
        figure(&outcome.idle)
    );
}

fn ms(nanoseconds: i64) -> String {
    format!("{:.2}", nanoseconds as f64 / 1e6)
}

macro_rules! cases {
    ($($name:ident $ranks:literal;)*) => {$(
        #[test]
        fn $name() {
            case(stringify!($name), $ranks, None, None);
        }
    )*};
}

cases! {
    shallow 1;
    deep 1;
    saturated 1;
    streams 1;
    nonblocking 1;
    full_queue 1;
    deferred 1;
    legacy_stream 1;
    two_behind 1;
    second_thread 1;
    loader_thread 1;
    waiting_for_data 1;
    graphs 1;
    native_thread 1;
    training 1;
    automatic 1;
    both_ranks_collect 2;
    ranks_collect_together 2;
}

/// The delay of a rank is all that odd runs go without.
#[test]
fn one_rank_collects() {
    case("one_rank_collects", 2, None, Some(IdleCause::Gc));
}

#[test]
fn one_rank_loads_slowly() {
    case("one_rank_loads_slowly", 2, Some(IdleCause::Data), Some(IdleCause::Data));
}

macro_rules! remedies {
    ($($name:ident $cause:ident;)*) => {$(
        #[test]
        fn $name() {
            case(stringify!($name), 1, Some(IdleCause::$cause), None);
        }
    )*};
}

// Every second run has the remedy: it saves what the idle ledger says.
remedies! {
    item Synchronization;
    blocking_copy Copy;
    emptied_cache Allocation;
    host_functions HostFunction;
    slow_loader Data;
    checkpoints Files;
    launched_singly Host;
}
