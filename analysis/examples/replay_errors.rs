//! How well the replay undoes pauses in real traces: pauses are put into a trace, a model is
//! learned from the trace so changed, and the pause is removed again.
//!
//! `cargo run --release -p gctrace-analysis --example replay_errors -- TRACES`

use gctrace_analysis::Analysis;
use gctrace_analysis::gpu::replay::Change;
use gctrace_analysis::gpu::replay::InsertedPause;
use gctrace_analysis::gpu::replay::Job;
use gctrace_analysis::gpu::replay::Model;
use gctrace_analysis::gpu::timeline::Timeline;
use gctrace_event::read::TraceReader;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for file in std::env::args().skip(1) {
        let mut analysis = Analysis::default();
        analysis.begin_trace(&file);
        let mut reader = TraceReader::open(Path::new(&file))?;
        while let Some(item) = reader.next_item()? {
            analysis.add(item);
        }
        analysis.end_trace(reader.finish(), None);
        for timeline in analysis.timelines() {
            one(&file, timeline);
        }
    }
    Ok(())
}

fn one(file: &str, timeline: &Timeline) {
    let job = Job::single(timeline);
    let began = std::time::Instant::now();
    let model = Model::learn(&job);
    let learned = began.elapsed();
    let same = model.replay(&Change::default());
    let wrong = timeline
        .ops
        .iter()
        .enumerate()
        .filter(|(at, op)| same.op(0, *at) != (op.begin_ns, op.end_ns))
        .count();
    println!(
        "{file}: pid {} ops {} calls {} threads {} moments {} learned in {learned:?} wrong {wrong}",
        timeline.pid,
        timeline.ops.len(),
        timeline.calls.len(),
        timeline.threads.len(),
        model.moments()
    );
    let Some((first, last)) = timeline.gpu_span() else {
        return;
    };
    for thread in 0..timeline.threads.len() as u32 {
        let end = same.end_ns(0);
        let mut out = Vec::new();
        for n in 1..10 {
            let at_ns = first + (last - first) / 10 * n;
            let change = Change {
                inserted: vec![InsertedPause {
                    timeline: 0,
                    thread,
                    at_ns,
                    length_ns: 20_000_000,
                }],
                ..Change::default()
            };
            out.push((model.replay(&change).end_ns(0) - end) as f64 / 1e6);
        }
        println!(
            "  thread {thread} tid {}: {out:?}",
            timeline.threads[thread as usize].tid
        );
    }
}
