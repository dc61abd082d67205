//! Reads a trace: JSON to records. `cargo bench -p gctrace-event --bench read`

#![expect(clippy::unwrap_used, reason = "the trace is made here")]

use criterion::{Criterion, Throughput};
use gctrace_event::read::{EventReader, TraceInput, TraceReader};
use gctrace_event::{GpuOp, GpuOpKind, Record};
use test_kit::records;

const RECORDS: u64 = 20_000;
const STACKS: u32 = 100;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("read");
    let frames = (1..=STACKS).map(|id| records::frame(id, None));
    let pauses = (0..RECORDS).zip((1..=STACKS).cycle());
    let pauses = pauses.map(|(n, stack)| records::pause_in(n, stack));
    let gpu_work = (0..RECORDS).map(kernel);
    for (name, content) in
        [("pauses", frames.chain(pauses).collect::<Vec<_>>()), ("GPU work", gpu_work.collect())]
    {
        let end = records::end("the command ended");
        let text: &'static [u8] = records::written(&records::header(), &content, &end).leak();
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function(name, |bencher| bencher.iter(|| items_in(text)));
    }
    group.finish();
    criterion.final_summary();
}

/// Number of items that the reader returns.
fn items_in(text: &'static [u8]) -> u64 {
    let input = TraceInput::new("trace.json", text).unwrap();
    let mut reader = TraceReader::new(EventReader::new(input));
    let mut items = 0;
    while reader.next_item().unwrap().is_some() {
        items += 1;
    }
    items
}

/// The n-th kernel of a stream, one each 10 µs.
fn kernel(n: u64) -> Record {
    let start_ns = 1_000_000_000 + n * 10_000;
    Record::GpuOp(GpuOp {
        pid: Some(100),
        stream: 7,
        correlation: Some(n + 1),
        kind: GpuOpKind::Kernel,
        name: "ampere_sgemm_128x64_tn".to_owned(),
        start_ns,
        end_ns: start_ns + 8_000,
        ..GpuOp::default()
    })
}
