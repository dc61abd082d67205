//! Measures how well the replay removes pauses from real traces: a pause is inserted into a trace,
//! a model is learned from the changed trace, and the pause is removed again. Prints by trace,
//! thread and length the mean and the largest error of the cost, next to the overlap rule's (GPU
//! idle time during the pause).
//!
//! `cargo run --release -p gctrace-analysis --example replay_errors -- TRACES`

#[path = "../tests/plain/replay_model/inserted.rs"]
mod inserted;

use gctrace_analysis::gpu::timeline::{ThreadIndex, Timeline};
use inserted::{InsertionMethod, Outcome, Pause};
use std::path::Path;

const MS: u64 = 1_000_000;
/// Positions of a pause on each thread, evenly over the time in which the GPU worked.
const POSITIONS: u64 = 8;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!(
        "| trace | put in by | thread | pause | pauses | mean cost | mean error | largest | overlap rule: mean error | largest |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for file in std::env::args().skip(1) {
        let path = Path::new(&file);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        for timeline in inserted::read(path)? {
            for (way, word) in
                [(InsertionMethod::Replay, "replay"), (InsertionMethod::OneHost, "one host")]
            {
                for thread in threads(&timeline) {
                    for length_ns in [MS, 20 * MS, 100 * MS] {
                        line(&name, word, &timeline, thread, length_ns, way);
                    }
                }
            }
        }
    }
    Ok(())
}

/// Threads that make calls.
fn threads(timeline: &Timeline) -> Vec<ThreadIndex> {
    let mut threads: Vec<ThreadIndex> = timeline.calls.iter().map(|call| call.thread).collect();
    threads.sort_unstable();
    threads.dedup();
    threads
}

fn line(
    name: &str,
    word: &str,
    timeline: &Timeline,
    thread: ThreadIndex,
    length_ns: u64,
    way: InsertionMethod,
) {
    let Some((first, last)) = timeline.gpu_span() else {
        return;
    };
    let outcomes: Vec<Outcome> = (0..POSITIONS)
        .filter_map(|position| {
            let at_ns = first + (last - first) / (POSITIONS + 1) * (position + 1);
            let pause = Pause { thread, at_ns, length_ns };
            inserted::one(timeline, pause, way)
        })
        .collect();
    let count = outcomes.len().max(1);
    let mean = |of: fn(&Outcome) -> i64| {
        let sum: f64 = outcomes.iter().map(|outcome| of(outcome) as f64).sum();
        sum / count as f64 / 1e6
    };
    let largest = |of: fn(&Outcome) -> i64| outcomes.iter().map(of).max().unwrap_or(0) as f64 / 1e6;
    let replay = |outcome: &Outcome| (outcome.replayed_ns - outcome.cost_ns).abs();
    let overlap = |outcome: &Outcome| (outcome.overlap_ns - outcome.cost_ns).abs();
    println!(
        "| {name} | {word} | {} | {} ms | {} | {:.3} ms | {:.3} ms | {:.3} ms | {:.3} ms | {:.3} ms |",
        timeline.threads.get(thread.at()).map_or(0, |thread| thread.tid),
        length_ns / MS,
        outcomes.len(),
        mean(|outcome| outcome.cost_ns),
        mean(replay),
        largest(replay),
        mean(overlap),
        largest(overlap),
    );
}
