//! Steps by periodic launches, on real traces of the PyTorch profiler: its annotations, which are
//! removed, are the truth.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail by panicking")]

use gctrace_analysis::gpu::collect::{TimelineCollector, TimelineContext};
use gctrace_analysis::gpu::timeline::{StepSource, Timeline};
use gctrace_event::read::{DecodedItem, TraceReader};
use gctrace_event::{CudaCall, GpuOp, Record};
use std::collections::HashSet;
use std::path::PathBuf;

const TRACES: [&str; 4] = [
    "nccl_rank0.json.gz",
    "ns_resolution_rank0.json.gz",
    "sampled_rank0.json.gz",
    "sampled_rank1.json.gz",
];

/// The records of a trace.
fn records(name: &str) -> Vec<Record> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut reader = TraceReader::open(&folder.join("tests/data/kineto").join(name)).unwrap();
    let mut records = Vec::new();
    while let Some(item) = reader.next_item().unwrap() {
        if let DecodedItem::Record(record) = item {
            records.push(record);
        }
    }
    records
}

/// The timeline of the process with the most operations.
fn timeline(records: &[Record]) -> Timeline {
    let mut collector = TimelineCollector::default();
    for record in records {
        match record {
            Record::CudaCall(call) => collector.add_call(call),
            Record::GpuOp(op) => collector.add_op(op),
            Record::Annotation(annotation) => collector.add_annotation(annotation),
            Record::Step(step) => collector.add_step(step),
            _ => {}
        }
    }
    let timelines = collector.finish(&TimelineContext::default());
    let most = timelines.into_iter().max_by_key(|timeline| timeline.ops.len());
    most.expect("a process with operations")
}

fn without_marks(records: &[Record]) -> Vec<Record> {
    let kept = |record: &&Record| !matches!(record, Record::Annotation(_) | Record::Step(_));
    records.iter().filter(kept).cloned().collect()
}

#[test]
fn a_few_steps_are_no_period() {
    for name in TRACES {
        let all = records(name);
        let marked = timeline(&all).process.steps;
        assert!((2..=5).contains(&marked.len()), "{name}: {marked:?}");
        let found = timeline(&without_marks(&all)).process.steps;
        assert_eq!(found, [], "{name}");
    }
}

/// The calls and operations of the trace's second step, again and again.
fn repeated(name: &str, steps: u64) -> Vec<Record> {
    let all = records(name);
    let annotated = timeline(&all);
    let mut marks = annotated.steps.iter().map(|step| step.start_ns).skip(1);
    let (from_ns, to_ns) = (marks.next().unwrap(), marks.next());
    let to_ns = to_ns.unwrap_or(annotated.steps[1].end_ns);
    let period_ns = to_ns - from_ns;
    let calls = all.iter().filter_map(|record| match record {
        Record::CudaCall(call) => Some(call),
        _ => None,
    });
    let calls = calls.filter(|call| (from_ns..to_ns).contains(&call.start_ns));
    let calls: Vec<&CudaCall> = calls.filter(|call| call.correlation.is_some()).collect();
    let ids: HashSet<Option<u64>> = calls.iter().map(|call| call.correlation).collect();
    let of_step = |op: &&GpuOp| op.correlation.is_some() && ids.contains(&op.correlation);
    let ops = all.iter().filter_map(|record| match record {
        Record::GpuOp(op) => Some(op),
        _ => None,
    });
    let ops: Vec<&GpuOp> = ops.filter(of_step).collect();
    let mut records = Vec::new();
    for step in 0..steps {
        let later = |ns: u64| ns + step * period_ns;
        // Ids of a step are fewer than this.
        let other = |id: Option<u64>| id.map(|id| id + step * 1_000_000_000);
        records.extend(calls.iter().map(|call| {
            Record::CudaCall(CudaCall {
                start_ns: later(call.start_ns),
                end_ns: later(call.end_ns),
                correlation: other(call.correlation),
                ..(*call).clone()
            })
        }));
        records.extend(ops.iter().map(|op| {
            let moved = GpuOp {
                start_ns: later(op.start_ns),
                end_ns: later(op.end_ns),
                correlation: other(op.correlation),
                ..(*op).clone()
            };
            Record::GpuOp(moved)
        }));
    }
    records
}

#[test]
fn the_steps_of_real_models_are_found() {
    for name in TRACES {
        let found = timeline(&repeated(name, 40)).process.steps;
        assert!((39..=41).contains(&found.len()), "{name}: {}", found.len());
        let by = |step: &gctrace_analysis::gpu::timeline::StepSpan| step.source;
        assert!(found.iter().all(|step| by(step) == StepSource::PeriodicLaunches));
    }
}
