//! Any bytes as the memory that a traced program shares with gctrace: the reader terminates,
//! delivers at most a ringful, and what it accepts as a message is one that it would write itself.

#![no_main]

use gctrace_ring::{GpuMessage, Message, PythonMessage, RingConsumer, RingProducer};
use libfuzzer_sys::fuzz_target;
use std::fmt::Debug;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

/// Slots of the ring, and their offset (probes/ring/src/layout.rs).
const RECORDS: usize = 16;
const SLOTS: usize = 2 * 4096;

fuzz_target!(|bytes: &[u8]| {
    match bytes.split_first() {
        Some((0..128, bytes)) => read::<PythonMessage>(bytes),
        Some((_, bytes)) => read::<GpuMessage>(bytes),
        None => {}
    }
});

fn read<M: Message + Debug + PartialEq>(bytes: &[u8]) {
    // And some that are none.
    let kinds = M::NUMBERS.len() as u8 + 3;
    let (_, memory) = RingProducer::<M>::create(RECORDS).unwrap();
    let file = File::from(memory.try_clone().unwrap());
    let (header, slots) = bytes.split_at(bytes.len().min(512));
    // Behind the version.
    file.write_all_at(header.get(8..).unwrap_or_default(), 8).unwrap();
    let slots = slots.get(..RECORDS * 64).unwrap_or(slots);
    file.write_all_at(slots, SLOTS as u64).unwrap();
    // Likely sequence numbers and heads; otherwise hardly any message would be read.
    for (slot, flag) in slots.chunks(64).enumerate() {
        let at = (SLOTS + slot * 64) as u64;
        let [first, second, ..] = *flag else { continue };
        let claimed = u64::from(first % 8 == 1) << 63;
        if first % 4 != 0 {
            file.write_all_at(&(slot as u64 + 1 | claimed).to_le_bytes(), at).unwrap();
            file.write_all_at(&[second % kinds, first, 0, 0], at + 8).unwrap();
        }
    }
    // What the bytes are, without the sum that they hardly have.
    if let Some((number, fields)) = slots.split_first() {
        if let Some(message) = M::unpack(number % kinds, fields, 0) {
            comes_back(&message);
        }
    }
    let mut consumer = RingConsumer::open(memory.as_fd(), RECORDS).unwrap();
    for is_dead in [false, true, true] {
        let mut taken = 0;
        consumer.read(is_dead, |message: M| {
            taken += 1;
            comes_back(&message);
        });
        assert!(taken <= RECORDS);
    }
    let _ = consumer.allocations();
    let _ = (
        consumer.lost().total(),
        consumer.torn().total(),
        consumer.costs(),
        consumer.allocation_ns(),
    );
}

fn comes_back<M: Message + Debug + PartialEq>(message: &M) {
    let (producer, memory) = RingProducer::create(4 * RECORDS).unwrap();
    let mut consumer = RingConsumer::open(memory.as_fd(), 4 * RECORDS).unwrap();
    if producer.push(message) {
        let mut count = 0;
        consumer.read(true, |read: M| {
            assert_eq!(&read, message);
            count += 1;
        });
        assert_eq!(count, 1);
    }
}
