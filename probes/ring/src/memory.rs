//! The ring between threads, in memory that Miri can check for undefined behavior. `tests/plain/ring.rs` has the same
//! between processes, which Miri cannot run.

use crate::layout::RingMapping;
use crate::{LostKind, RingConsumer, RingProducer, RingRecord, WorkKind};
use std::mem::ManuallyDrop;

fn ring(records: usize) -> (RingProducer, ManuallyDrop<RingConsumer>) {
    let [producer, consumer] = RingMapping::twice(records);
    let producer = RingProducer::over(producer);
    let consumer = RingConsumer::over(consumer).expect("a ring");
    (producer, ManuallyDrop::new(consumer))
}

/// Every word of it follows from two numbers.
fn record(thread: u32, number: u64) -> RingRecord {
    RingRecord::PauseStart {
        at_ns: number,
        tid: thread,
        generation: (number % 3) as u8,
        interpreter: number as i64 ^ 7,
    }
}

#[test]
fn what_threads_push_is_read_whole_and_in_order() {
    const THREADS: u32 = 2;
    const EACH: u64 = 20;
    let (producer, mut consumer) = ring(4);
    producer.count_allocation(9, true);
    producer.count_allocations_since(5, 7_000);
    let mut found = Vec::new();
    let mut passed = 0;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let producer = &producer;
            scope.spawn(move || {
                for number in 0..EACH {
                    while !producer.push(&record(thread, number)) {
                        std::thread::yield_now();
                    }
                    producer.count_allocation(number as usize, false);
                }
            });
        }
        // Judged afterwards: writers whose reader is gone would never end.
        while passed < u64::from(THREADS) * EACH {
            let read = consumer.read(false, |record| found.push(record));
            passed += read.records + read.damaged;
            std::thread::yield_now();
        }
    });
    let mut next = [0; THREADS as usize];
    for read in found {
        let Ok(RingRecord::PauseStart { at_ns, tid, .. }) = read else { panic!("{read:?}") };
        assert_eq!(read, Ok(record(tid, at_ns)));
        assert!(at_ns >= next[tid as usize], "none twice");
        next[tid as usize] = at_ns + 1;
    }
    let (since_ns, totals, _) = consumer.allocations().expect("counted");
    let count: u64 = totals.iter().map(|class| class.count).sum();
    assert_eq!((since_ns, count), (5, u64::from(THREADS) * EACH));
    assert_eq!(consumer.allocation_ns(), Some(7.0));
}

#[test]
fn costs_are_added_by_kind() {
    let (producer, consumer) = ring(1);
    for ns in [3, 4] {
        producer.spend(WorkKind::Collection, ns);
    }
    producer.spend(WorkKind::Fork, 5);
    let costs = consumer.costs().map(|cost| (cost.count, cost.ns));
    assert_eq!(costs, [(0, 0), (2, 7), (0, 0), (1, 5), (0, 0), (0, 0)]);
    assert_eq!(consumer.allocation_ns(), None);
}

#[test]
fn forks_are_announced_only_where_they_are_read() {
    let (producer, consumer) = ring(1);
    let takes = |takes| {
        consumer.take_forks(takes);
        producer.takes_forks()
    };
    assert!(!producer.takes_forks());
    assert_eq!([takes(true), takes(false)], [true, false]);
}

#[test]
fn losses_are_counted_by_every_thread() {
    let (producer, consumer) = ring(1);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..10).for_each(|_| producer.lose(LostKind::Calls, 2)));
        }
    });
    assert_eq!(consumer.lost().of(LostKind::Calls), 40);
}
