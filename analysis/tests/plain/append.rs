//! Traces read into analyses of their own and appended give the report of one analysis that read
//! them one after another.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use gctrace_analysis::Analysis;
use gctrace_event::read::{DecodedItem, TraceCompletion, TraceProperty, TraceReader};
use gctrace_event::{
    Allocations, CudaCall, CudaLayer, Frame, GcReason, GpuOp, Pause, Record, ThreadName,
};
use proptest::prelude::*;
use std::num::NonZeroUsize;
use std::path::Path;
use test_kit::reports;
use test_kit::reports::{MS, START, end, header, pause, process};

/// Reads one trace.
type Trace<'a> = Box<dyn Fn(&mut Analysis) + 'a>;

/// All that a report and the exports show.
fn shown(mut analysis: Analysis) -> String {
    analysis.settle();
    let stacks = analysis.stacks().map(|process| {
        let mut stacks: Vec<String> = process
            .stacks()
            .map(|stack| format!("{:?} {:?}", stack.frames(), stack.pauses()))
            .collect();
        stacks.sort_unstable();
        (process.trace(), process.pid(), process.rank(), stacks)
    });
    let stacks: Vec<_> = stacks.collect();
    serde_json::to_string_pretty(&(analysis.report(), stacks)).unwrap()
}

/// Reads all one after another.
fn read(traces: &[Trace<'_>]) -> Analysis {
    let mut analysis = Analysis::default();
    for add in traces {
        add(&mut analysis);
    }
    analysis
}

/// Reads so many at a time, each lot separately, for a report by several threads.
fn in_lots(traces: &[Trace<'_>], of: usize) -> Analysis {
    let mut analysis = Analysis::default();
    analysis.set_threads(NonZeroUsize::new(3).unwrap());
    for lot in traces.chunks(of) {
        analysis.append(read(lot));
    }
    analysis
}

/// Reads the first `at` separately, and the last one after those before it were appended.
fn in_two(traces: &[Trace<'_>], at: usize) -> Analysis {
    let (first, second) = traces.split_at(at);
    let mut analysis = read(first);
    let Some((add, second)) = second.split_last() else {
        return analysis;
    };
    analysis.append(read(second));
    add(&mut analysis);
    analysis
}

/// Divides them after `at` traces, and into parts of one more.
fn check(traces: &[Trace<'_>], at: usize) {
    let whole = shown(read(traces));
    let lots = shown(in_lots(traces, at + 1));
    assert!(whole == lots, "by {}:\n{whole}\n{lots}", at + 1);
    let two = shown(in_two(traces, at));
    assert!(whole == two, "at {at}:\n{whole}\n{two}");
}

/// A recording, by gctrace or the profiler.
#[derive(Clone, Debug)]
struct Recording {
    ours: bool,
    ended: bool,
    readable: bool,
    rank: Option<u32>,
    /// The profiler's id of it.
    id: u8,
    records: Vec<Record>,
}

impl Recording {
    fn add(&self, name: &str, analysis: &mut Analysis) {
        if !self.readable {
            return analysis.leave_out(format!("{name}: no such file"));
        }
        analysis.begin_trace(name);
        if self.ours {
            let mut header = header();
            header.rank = self.rank;
            analysis.add(DecodedItem::Header(Box::new(header)));
        } else {
            let base_ns = header().started_unix_ns - START;
            analysis.add(DecodedItem::Property(TraceProperty::BaseTime(base_ns)));
            let id = self.id.to_string();
            analysis.add(DecodedItem::Property(TraceProperty::TraceId(id)));
            if let Some(rank) = self.rank {
                analysis.add(DecodedItem::Property(TraceProperty::Rank(rank)));
            }
            let pid = u32::from(self.id);
            let name = format!("python {pid}");
            analysis.add(DecodedItem::ProcessName { pid, name });
        }
        for record in &self.records {
            analysis.add(DecodedItem::Record(record.clone()));
        }
        if self.ours && self.ended {
            analysis.add(DecodedItem::Record(Record::End(end(2000))));
        }
        let damage = (!self.ended).then(|| format!("{name}: damaged"));
        analysis.end_trace(TraceCompletion::default(), damage);
    }
}

fn traces(recordings: &[Recording]) -> Vec<Trace<'_>> {
    let mut traces: Vec<Trace<'_>> = Vec::new();
    for (at, recording) in recordings.iter().enumerate() {
        let name = format!("{at}.json");
        traces.push(Box::new(move |analysis| recording.add(&name, analysis)));
    }
    traces
}

fn frame() -> impl Strategy<Value = Record> {
    let files = prop::sample::select(vec!["a.py", "/x/site-packages/torch/b.py", ""]);
    (1..8u32, prop::option::of(1..8u32), files, 0..3u32).prop_map(|(id, parent, file, line)| {
        Record::Frame(Frame {
            id,
            parent,
            function: "f".to_owned(),
            file: file.to_owned(),
            line: Some(line),
        })
    })
}

fn collection() -> impl Strategy<Value = Record> {
    let reasons = prop::sample::select(vec![
        GcReason::Automatic,
        GcReason::Manual,
        GcReason::Shutdown,
        GcReason::Unknown,
    ]);
    // Few times and lengths, so that the same collection is in several traces, and some are equal.
    let stack = prop::option::of(1..9u32);
    (1..4u32, 0..60u64, 0..5u64, 0..4u8, reasons, stack).prop_map(
        |(pid, from, length, generation, reason, stack)| {
            Record::Pause(Pause {
                generation,
                reason,
                stack,
                collected: (from % 3 > 0).then_some(from % 2),
                ..pause(pid, from * 30, from * 30 + length)
            })
        },
    )
}

fn work() -> impl Strategy<Value = Record> {
    (1..4u32, 0..100u64, 1..40u64, any::<bool>()).prop_map(|(pid, at, length, call)| {
        let start_ns = START + at * 10 * MS;
        let end_ns = start_ns + length * MS / 4;
        if call {
            Record::CudaCall(CudaCall {
                pid,
                tid: pid,
                layer: CudaLayer::Runtime,
                function: "cudaLaunchKernel".into(),
                start_ns,
                end_ns,
                correlation: Some(at),
                ..CudaCall::default()
            })
        } else {
            Record::GpuOp(GpuOp {
                pid: Some(pid),
                name: "ncclDevKernel_AllReduce".to_owned(),
                stream: 7,
                start_ns,
                end_ns,
                correlation: Some(at),
                ..GpuOp::default()
            })
        }
    })
}

fn other() -> impl Strategy<Value = Record> {
    (1..4u32, 1..9u32, 0..5u8).prop_map(|(pid, stack, kind)| match kind {
        0 => Record::Allocations(Allocations {
            pid,
            at_ns: START + MS,
            hits: 10,
            stacks: vec![(stack, 3), (stack + 1, 7)],
            ..Allocations::default()
        }),
        1 => Record::ThreadName(ThreadName { pid, tid: pid, name: format!("thread {stack}") }),
        _ => process(pid, 0, "generational"),
    })
}

fn recording() -> impl Strategy<Value = Recording> {
    let records = prop_oneof![
        3 => frame(),
        10 => collection(),
        4 => work(),
        2 => other(),
    ];
    let rank = prop::option::of(0..4u32);
    let records = prop::collection::vec(records, 0..60);
    let readable = prop::bool::weighted(0.9);
    (any::<bool>(), any::<bool>(), readable, rank, 0..6u8, records).prop_map(
        |(ours, ended, readable, rank, id, records)| Recording {
            ours,
            ended,
            readable,
            rank,
            id,
            records,
        },
    )
}

proptest! {
    // Three reports each.
    #[test]
    fn any_traces(recordings in prop::collection::vec(recording(), 0..6), at in 0..6usize) {
        check(&traces(&recordings), at.min(recordings.len()));
    }
}

/// Beyond what is kept as it is, lengths of pauses are counted in buckets.
#[test]
fn traces_with_many_pauses() {
    let recording = |first: u64, count: u64| Recording {
        ours: true,
        ended: true,
        readable: true,
        rank: None,
        id: 0,
        records: (first..first + count)
            .map(|at| {
                Record::Pause(Pause {
                    end_ns: START + at * MS + at * at % 900_001,
                    ..pause(1, at, at)
                })
            })
            .collect(),
    };
    let recordings =
        [recording(0, 3000), recording(3000, 1096), recording(5000, 5000), recording(10, 1)];
    check(&traces(&recordings), 1);
    check(&traces(&recordings), 3);
}

fn file(folder: &str, name: &str) -> Trace<'static> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(name);
    let name = name.to_owned();
    Box::new(move |analysis: &mut Analysis| {
        reports::read(analysis, &name, TraceReader::open(&path).unwrap()).unwrap();
    })
}

#[test]
fn real_profiles() {
    const REAL: &str = "tests/data/kineto";
    const SHORT: &str = "fuzz/seeds/read";
    let traces = [
        file(REAL, "sampled_rank0.json.gz"),
        file(SHORT, "kineto-torch-2.15-python-gc.json"),
        file(REAL, "sampled_rank1.json.gz"),
        file(SHORT, "kineto-torch-2.0-whole-microseconds.json"),
        file(SHORT, "kineto-torch-2.4-relative-times.json"),
        file(REAL, "sampled_rank0.json.gz"),
    ];
    check(&traces, 2);
}
