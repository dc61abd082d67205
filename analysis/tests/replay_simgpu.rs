//! The replay against the truth: on the simulated GPU every second run of the same work goes without
//! collections. The table for docs/measurements.md is
//!
//! ```text
//! cargo test -p gctrace-analysis --test replay_simgpu -- --nocapture | grep '^|'
//! ```

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests, outside of #[test]"
)]

mod simgpu;

use simgpu::Form;
use simgpu::trial;
use simgpu::trial::Figure;
use simgpu::trial::Outcome;
use std::sync::Mutex;
use std::sync::PoisonError;

/// Three with collections, three without.
const RUNS: usize = 6;
/// A case is played so often where chance may have decided; all its runs count.
const TRIES: usize = 4;

/// One case at a time: they measure.
static MACHINE: Mutex<()> = Mutex::new(());

/// Plays and judges a case.
fn case(name: &str, ranks: usize) {
    let forms = [("with waits", Form::WithWaits), ("plain", Form::Plain)];
    let mut runs = forms.map(|_| Vec::new());
    let mut outcomes = Vec::new();
    for _ in 0..TRIES {
        let alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
        let played = match simgpu::play(name, RUNS, ranks) {
            Ok(played) => played,
            Err(reason) => return println!("\nskipped replay_simgpu_{name}: {reason}"),
        };
        drop(alone);
        for (runs, (_, form)) in runs.iter_mut().zip(forms) {
            runs.extend(played.recorded(form));
        }
        outcomes = runs.iter().map(|runs| trial::judge(runs)).collect();
        let figures = outcomes.iter().flat_map(Outcome::figures);
        if figures.clone().all(Figure::can_be_judged) && figures.clone().all(Figure::is_right) {
            break;
        }
    }
    for (outcome, (trace, _)) in outcomes.iter().zip(forms) {
        row(name, trace, outcome);
    }
    outcomes
        .iter()
        .flat_map(Outcome::figures)
        .for_each(|figure| check(name, figure));
}

fn check(name: &str, figure: &Figure) {
    if !figure.can_be_judged() {
        println!(
            "skipped replay_simgpu_{name}: the machine is too busy: alike runs differ by {} ms, {} ms allowed",
            ms(figure.noise),
            ms(figure.bound())
        );
        return;
    }
    assert!(
        figure.is_right(),
        "{name}: {} ms off, {} allowed: {figure:?}",
        ms(figure.error),
        ms(figure.bound())
    );
}

/// | case | trace | pauses | overlap | length: real | predicted | error | noise | idle: the same |
fn row(name: &str, trace: &str, outcome: &Outcome) {
    let figure = |figure: &Figure| {
        let parts = [figure.real, figure.predicted, figure.error, figure.noise];
        parts.map(ms).join(" | ")
    };
    // The test program's own line is begun already.
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
            case(stringify!($name), $ranks);
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
    one_rank_collects 2;
    both_ranks_collect 2;
    ranks_collect_together 2;
}
