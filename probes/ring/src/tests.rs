//! The ring between threads, in memory that Miri can check for undefined behavior. `tests/plain/ring.rs` has the same
//! between processes, which Miri cannot run.

use crate::layout::{CLAIMED, MessageHead, RingMapping};
use crate::{
    LostKind, Message, PythonMessage, RingConsumer, RingCycleEdge, RingProducer, WorkKind,
};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

mod messages;

fn ring<M: Message>(records: usize) -> (RingProducer<M>, RingConsumer) {
    let [producer, consumer] = RingMapping::twice(records);
    let producer = RingProducer::over(producer);
    let consumer = RingConsumer::over(consumer).expect("a ring");
    (producer, consumer)
}

/// Every word of it follows from two numbers.
fn record(thread: u32, number: u64) -> PythonMessage {
    PythonMessage::PauseStart {
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
            passed += read.messages + read.damaged;
            std::thread::yield_now();
        }
    });
    let mut next = [0; THREADS as usize];
    for read in found {
        let PythonMessage::PauseStart { at_ns, tid, .. } = read else { panic!("{read:?}") };
        assert_eq!(read, record(tid, at_ns));
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
    let (producer, consumer) = ring::<PythonMessage>(1);
    for ns in [3, 4] {
        producer.spend(WorkKind::Collection, ns);
    }
    producer.spend(WorkKind::Fork, 5);
    producer.spend_often(WorkKind::Turn, 3, 4);
    let costs = consumer.costs().map(|cost| (cost.count, cost.ns));
    assert_eq!(costs, [(0, 0), (2, 7), (0, 0), (1, 5), (0, 0), (0, 0), (3, 4)]);
    assert_eq!(consumer.allocation_ns(), None);
}

#[test]
fn forks_are_announced_only_where_they_are_read() {
    let (producer, consumer) = ring::<PythonMessage>(1);
    let takes = |takes| {
        consumer.take_forks(takes);
        producer.takes_forks()
    };
    assert!(!producer.takes_forks());
    assert_eq!([takes(true), takes(false)], [true, false]);
}

#[test]
fn losses_are_counted_by_every_thread() {
    let (producer, consumer) = ring::<PythonMessage>(1);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..10).for_each(|_| producer.lose(LostKind::Calls, 2)));
        }
    });
    assert_eq!(consumer.lost().of(LostKind::Calls), 40);
}

/// A message of this many slots.
fn long(slots: usize, value: u32) -> PythonMessage {
    // Two bytes an edge, three for the rest: a head of 8, then 56 a slot.
    let edges = vec![RingCycleEdge { kind: value % 100, name: value % 7 }; slots * 28 - 8];
    PythonMessage::Cycle { id: 1, edges }
}

#[test]
fn messages_of_several_slots_are_read_whole_and_in_order() {
    const EACH: u32 = 12;
    let (producer, mut consumer) = ring(16);
    let mut found = Vec::new();
    std::thread::scope(|scope| {
        for thread in 0..2_u32 {
            let producer = &producer;
            scope.spawn(move || {
                for number in 0..EACH {
                    let message = long(1 + number as usize % 4, number * 2 + thread);
                    while !producer.push(&message) {
                        std::thread::yield_now();
                    }
                }
            });
        }
        while found.len() < 2 * EACH as usize {
            let read = consumer.read(false, |message: PythonMessage| found.push(message));
            assert_eq!(read.damaged + consumer.torn().total(), 0);
            std::thread::yield_now();
        }
    });
    for number in 0..EACH {
        for thread in 0..2 {
            assert!(found.contains(&long(1 + number as usize % 4, number * 2 + thread)));
        }
    }
}

#[test]
fn a_long_message_leaves_room_for_pauses() {
    let (producer, mut consumer) = ring(16);
    assert!(!producer.push(&long(13, 1)), "three quarters are twelve");
    assert!(producer.push(&long(12, 1)) && !producer.push(&long(2, 1)));
    for number in 0..4 {
        assert!(producer.push(&record(1, number)));
    }
    assert_eq!(producer.lost().of(LostKind::Descriptions), 2);
    let read = consumer.read(false, |_: PythonMessage| ());
    assert_eq!((read.messages, read.damaged), (5, 0));
}

/// A thread that stops within a message: `claimed` once its length is known.
fn stop_within(producer: &RingProducer<PythonMessage>, slots: usize, claimed: bool) -> u64 {
    let head = MessageHead { number: 13, length: slots * 56 - 8, sum: 0 };
    let number = producer.reserve(head).expect("room");
    if claimed {
        let slot = producer.mapping.slot(number);
        slot.words[0].store(head.word(), Ordering::Relaxed);
        slot.sequence.store((number + 1) | CLAIMED, Ordering::Release);
    }
    number
}

#[test]
fn a_message_of_a_thread_that_died_is_one_loss() {
    let (producer, mut consumer) = ring(16);
    for claimed in [true, false] {
        // Over what earlier rounds left there.
        for _ in 0..3 {
            stop_within(&producer, 3, claimed);
            assert!(producer.push(&long(2, 4)));
            let mut found = Vec::new();
            let read = consumer.read(true, |message: PythonMessage| found.push(message));
            assert_eq!(found, [long(2, 4)]);
            assert_eq!(read.damaged, u64::from(!claimed));
        }
    }
    assert_eq!(consumer.torn().of(LostKind::Descriptions), 3);
    assert_eq!(consumer.torn().total(), 3);
}

/// One that was stopped so long that its slots were given to others.
#[test]
fn a_late_writer_is_noticed() {
    let (producer, mut consumer) = ring(16);
    let late = stop_within(&producer, 3, false);
    assert_eq!(consumer.read(true, |_: PythonMessage| ()).damaged, 1);
    for round in 0..5 {
        assert!(producer.push(&long(3, round)));
        if round == 4 {
            producer.mapping.slot(late + 1).words[3].store(7, Ordering::Relaxed);
        }
        let read = consumer.read(false, |_: PythonMessage| ());
        assert_eq!(read.messages, u64::from(round < 4), "{round}");
    }
    assert_eq!(consumer.torn().total(), 1);
    assert!(producer.push(&long(3, 1)));
    assert_eq!(consumer.read(false, |_: PythonMessage| ()).messages, 1);
}

#[test]
fn slots_without_a_message_are_waited_for_together() {
    let (producer, mut consumer) = ring(256);
    stop_within(&producer, 100, false);
    assert!(producer.push(&record(1, 1)));
    let begun = Instant::now();
    let (mut messages, mut damaged) = (0, 0);
    while messages == 0 && begun.elapsed() < Duration::from_secs(60) {
        let read = consumer.read(false, |_: PythonMessage| ());
        (messages, damaged) = (messages + read.messages, damaged + read.damaged);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!((messages, damaged), (1, 1), "one loss, and one wait");
}

/// A late writer overwrites the first slot of a newer message. Its length is not that of what follows.
#[test]
fn the_length_of_an_invalid_message_is_not_believed() {
    let is_pause = MessageHead { number: 6, length: 20, sum: 5 };
    let is_long = MessageHead { number: 6, length: 130, sum: 5 };
    for (message, late) in [(record(1, 0), is_long), (long(3, 1), is_pause)] {
        for flag in [0, CLAIMED] {
            let (producer, mut consumer) = ring(16);
            assert!(producer.push(&message));
            assert!((1..4).all(|number| producer.push(&record(1, number))));
            let slot = producer.mapping.slot(0);
            slot.words[0].store(late.word(), Ordering::Relaxed);
            slot.sequence.fetch_or(flag, Ordering::Relaxed);
            let read = consumer.read(true, |_: PythonMessage| ());
            let is_short = late == is_pause && flag != 0;
            assert_eq!((read.messages, read.damaged), (3, u64::from(is_short)));
            assert_eq!(consumer.torn().of(LostKind::Pauses), 1);
        }
    }
}

/// What was written for one place is not taken for what belongs to another.
#[test]
fn a_late_message_is_not_taken_for_a_newer_one() {
    let (producer, mut consumer) = ring(4);
    let copied = |from: u64| {
        producer.mapping.slot(from).words.each_ref().map(|word| word.load(Ordering::Relaxed))
    };
    assert!(producer.push(&record(1, 7)));
    let late = copied(0);
    for number in 0..4 {
        assert!(number == 3 || producer.push(&record(1, number)));
        consumer.read(false, |_: PythonMessage| ());
    }
    assert!(producer.push(&record(1, 8)));
    for (word, late) in producer.mapping.slot(0).words.iter().zip(late) {
        word.store(late, Ordering::Relaxed);
    }
    assert_eq!(consumer.read(false, |_: PythonMessage| ()).messages, 0);
}

/// A thread is delayed between its looks at where others write and where the reader is.
#[test]
fn an_empty_ring_refuses_nothing() {
    let (producer, mut consumer) = ring(4);
    for number in 0..9 {
        assert!(producer.push(&record(1, number)));
        consumer.read(false, |_: PythonMessage| ());
    }
    let head = MessageHead { number: 5, length: 20, sum: 0 };
    assert_eq!(producer.reserve_at(3, head), Some(9));
    assert!((0..3).all(|number| producer.push(&record(1, number))));
    assert_eq!(producer.reserve_at(3, head), None, "full");
}
