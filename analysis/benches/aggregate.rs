//! Aggregates records into a report, and into the live view. `cargo bench -p gctrace-analysis
//! --bench aggregate`

#[path = "../tests/plain/training/mod.rs"]
mod training;

use criterion::measurement::WallTime;
use criterion::{BatchSize, BenchmarkGroup, Criterion, Throughput};
use gctrace_analysis::live::{Live, SnapshotRequest};
use gctrace_event::{Pause, Record, TraceHeader};
use test_kit::reports;
use test_kit::reports::START;

const PAUSES: u64 = 50_000;
const PAUSES_PER_SECOND: u64 = 10_000;
const SECOND: u64 = 1_000_000_000;
/// Start of the pauses; each is shorter.
const FIRST_NS: u64 = START + SECOND;
const LAST_NS: u64 = FIRST_NS + PAUSES * (SECOND / PAUSES_PER_SECOND);

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("aggregate");
    group.sample_size(20);
    for processes in [1, 1_000] {
        pauses(&mut group, processes);
    }
    let run = training::run(training::PROGRAM, training::DEFAULT);
    group.throughput(Throughput::Elements(run.records.len() as u64));
    group.bench_function("report with replay", |bencher| {
        bencher.iter(|| training::analyzed(&run));
    });
    group.finish();
    criterion.final_summary();
}

fn pauses(group: &mut BenchmarkGroup<'_, WallTime>, processes: u32) {
    let records: Vec<Record> = (1..=processes)
        .map(|pid| reports::process(pid, 0, "generational"))
        .chain((0..PAUSES).map(|n| pause(n, processes)))
        .collect();
    group.throughput(Throughput::Elements(records.len() as u64));
    group.bench_function(format!("report, {processes} processes"), |bencher| {
        let all = || records.clone();
        bencher.iter_batched(all, |all| reports::report(all, None), BatchSize::PerIteration);
    });
    group.bench_function(format!("live, {processes} processes"), |bencher| {
        bencher.iter(|| live(&records));
    });
    group.throughput(Throughput::Elements(u64::from(processes)));
    group.bench_function(format!("snapshot, {processes} processes"), |bencher| {
        let live = live(&records);
        let request = SnapshotRequest { now_ns: LAST_NS, interval_ns: SECOND, detail: Some(1) };
        bencher.iter(|| live.snapshot(&request));
    });
}

fn live(records: &[Record]) -> Live {
    let mut live = Live::new(TraceHeader::default(), 10_000_000);
    for record in records {
        live.record(record);
    }
    live
}

/// They last up to 5 ms, so that several run at a time, and arrive in the order of their ends.
fn pause(n: u64, processes: u32) -> Record {
    let end_ns = FIRST_NS + n * (SECOND / PAUSES_PER_SECOND);
    let pid = 1 + n as u32 % processes;
    Record::Pause(Pause {
        start_ns: end_ns - 20_000 - n * 7_919 % 5_000_000,
        end_ns,
        generation: (n % 3) as u8,
        ..reports::pause(pid, 0, 0)
    })
}
