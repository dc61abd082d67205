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
use simgpu::trial::Outcome;
use std::sync::Mutex;
use std::sync::PoisonError;

/// Five with collections, five without.
const RUNS: usize = 10;

/// One case at a time: they measure.
static MACHINE: Mutex<()> = Mutex::new(());

fn case(name: &str, ranks: usize) {
    let alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let played = match simgpu::play(name, RUNS, ranks) {
        Ok(played) => played,
        Err(reason) => return println!("\nskipped replay_simgpu_{name}: {reason}"),
    };
    drop(alone);
    for (trace, form) in [("with waits", Form::WithWaits), ("plain", Form::Plain)] {
        let outcome = simgpu::trial::judge(&played.recorded(form));
        row(name, trace, &outcome);
        if outcome.noise > outcome.bound() {
            println!(
                "\nskipped replay_simgpu_{name}: the machine is too busy: runs without collections differ by {} ms, {} ms allowed",
                ms(outcome.noise),
                ms(outcome.bound())
            );
            continue;
        }
        assert!(
            outcome.error.abs() <= outcome.bound(),
            "{name}, trace {trace}: {} ms off, {} allowed: {outcome:?}",
            ms(outcome.error),
            ms(outcome.bound())
        );
    }
}

fn row(name: &str, trace: &str, outcome: &Outcome) {
    // The test program's own line is begun already.
    println!(
        "\n| {name} | {trace} | {} | {} | {} | {} | {} | {} |",
        ms(outcome.pauses),
        ms(outcome.real),
        ms(outcome.predicted),
        ms(outcome.error),
        ms(outcome.overlap),
        ms(outcome.noise)
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
    graphs 1;
    native_thread 1;
    training 1;
    automatic 1;
    one_rank_collects 2;
    both_ranks_collect 2;
    ranks_collect_together 2;
}
