//! Pushes pauses into a ring and drains it. `cargo bench -p gctrace-ring --bench ring`

#![expect(clippy::unwrap_used, reason = "without memory there is nothing to measure")]

use criterion::{Criterion, Throughput};
use gctrace_ring::{
    PYTHON_RECORDS, PythonMessage, RingConsumer, RingPause, RingProducer, RingReason, TimeInterval,
};
use std::hint::black_box;
use std::os::fd::AsFd as _;

fn main() {
    let (producer, descriptor) = RingProducer::create(PYTHON_RECORDS).unwrap();
    let mut consumer = RingConsumer::open(descriptor.as_fd(), PYTHON_RECORDS).unwrap();
    let records: Vec<PythonMessage> = (0..PYTHON_RECORDS as u64).map(pause).collect();
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("ring");
    group.throughput(Throughput::Elements(PYTHON_RECORDS as u64));
    group.bench_function("push and read", |bencher| {
        bencher.iter(|| {
            for record in &records {
                producer.push(record);
            }
            consumer.read(false, |record: PythonMessage| {
                let _ = black_box(record);
            })
        });
    });
    group.finish();
    criterion.final_summary();
}

fn pause(n: u64) -> PythonMessage {
    PythonMessage::Pause(RingPause {
        interval: TimeInterval { start_ns: n * 1_000_000, end_ns: n * 1_000_000 + 12_345 },
        tid: 100,
        generation: 0,
        interpreter: 0,
        collected: Some(n as u32),
        uncollectable: Some(0),
        frame: 1,
        reason: RingReason::Automatic,
        oldest_objects: None,
        freed_bytes: Some(n),
        cpu_ns: Some(12_300),
    })
}
