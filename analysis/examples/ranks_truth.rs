//! How many collectives are matched rightly if the profiler names fewer of them: the names and
//! numbers that it wrote are the truth, and are then taken away.
//!
//! `cargo run --release -p gctrace-analysis --example ranks_truth -- TRACES`, one for each rank, of
//! PyTorch 2.12 and later or of `scripts/bench/generate_ranks.py`.

use gctrace_analysis::Analysis;
use gctrace_analysis::gpu::ranks::jobs;
use gctrace_analysis::gpu::timeline::{Op, Timeline};
use gctrace_event::read::TraceReader;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::Path;
use test_kit::reports;

/// Communicator, sequence number, kernel.
type Key<'a> = (&'a str, u32, &'a str);

/// What the profiler wrote of a collective.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Naming {
    Numbers,
    Names,
    Nothing,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut analysis = Analysis::default();
    for file in std::env::args().skip(1) {
        reports::read(&mut analysis, &file, TraceReader::open(Path::new(&file))?)?;
    }
    let recorded = analysis.timelines().iter();
    let recorded = recorded.filter(|recorded| recorded.has_gpu_times());
    let recorded: Vec<Timeline> = recorded.map(|recorded| recorded.whole().into_owned()).collect();
    let mut ranks: BTreeMap<Key<'_>, BTreeSet<usize>> = BTreeMap::new();
    for (at, timeline) in recorded.iter().enumerate() {
        for key in timeline.ops.iter().filter_map(|op| key(timeline, op)) {
            ranks.entry(key).or_default().insert(at);
        }
    }
    ranks.retain(|_, ranks| ranks.len() > 1);
    println!("{} collectives of at least two ranks", ranks.len());
    println!("| written | jobs | right | without a rank | mixed | kernels ambiguous |");
    println!("|---|---|---|---|---|---|");
    for (naming, words) in [
        (Naming::Numbers, "names, numbers"),
        (Naming::Names, "names"),
        (Naming::Nothing, "nothing"),
    ] {
        let timelines: Vec<Timeline> =
            recorded.iter().map(|recorded| written(recorded, naming)).collect();
        let found = jobs(&timelines.iter().collect::<Vec<_>>());
        let (mut right, mut part, mut mixed) = (0, 0, 0);
        for job in &found.jobs {
            for collective in &job.collectives {
                let mut keys: BTreeSet<Option<Key<'_>>> = BTreeSet::new();
                let mut met: BTreeSet<usize> = BTreeSet::new();
                for member in &collective.members {
                    let at = job.members[member.timeline as usize].timeline;
                    keys.insert(key(&recorded[at], &recorded[at].ops[member.op]));
                    met.insert(at);
                }
                let truth = keys.first().copied().flatten();
                let truth = truth.and_then(|key| ranks.get(&key));
                if keys.len() != 1 {
                    mixed += 1;
                } else if truth == Some(&met) {
                    right += 1;
                } else {
                    part += 1;
                }
            }
        }
        let ambiguous: u64 = found.jobs.iter().map(|job| job.ambiguous).sum();
        let jobs = found.jobs.len();
        println!("| {words} | {jobs} | {right} | {part} | {mixed} | {ambiguous} |");
    }
    Ok(())
}

/// `None` of an operation that the profiler did not number.
fn key<'a>(timeline: &'a Timeline, op: &Op) -> Option<Key<'a>> {
    let group = timeline.names.text(op.group?);
    Some((group, op.sequence?.get(), timeline.op_name(op)))
}

fn written(timeline: &Timeline, naming: Naming) -> Timeline {
    let mut timeline = timeline.clone();
    for op in timeline.ops.iter_mut() {
        op.sequence = op.sequence.filter(|_| naming == Naming::Numbers);
        op.group = op.group.filter(|_| naming != Naming::Nothing);
    }
    timeline
}
