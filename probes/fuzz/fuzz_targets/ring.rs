//! Any bytes as the memory that a traced program shares with gctrace: the reader terminates,
//! delivers at most a ringful, and what it accepts as a record is one that it would write itself.

#![no_main]

use gctrace_ring::{RingConsumer, RingRecord};
use libfuzzer_sys::fuzz_target;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;

/// Slots of the ring, and their offset (probes/ring/src/layout.rs).
const RECORDS: usize = 16;
const SLOTS: usize = 2 * 4096;

/// Sealed memory of a ring's length.
fn memory() -> File {
    // SAFETY: a name that ends with zero; the descriptor is new and has no other owner.
    unsafe {
        let raw = libc::memfd_create(c"fuzz".as_ptr(), libc::MFD_ALLOW_SEALING);
        assert!(raw >= 0);
        let file = File::from_raw_fd(raw);
        assert_eq!(libc::ftruncate(raw, (SLOTS + RECORDS * 64) as i64), 0);
        assert_eq!(libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK), 0);
        file
    }
}

fuzz_target!(|bytes: &[u8]| {
    let file = memory();
    let (header, slots) = bytes.split_at(bytes.len().min(512));
    file.write_all_at(header, 0).unwrap();
    file.write_all_at(b"GCTRINGD", 0).unwrap();
    let slots = slots.get(..RECORDS * 64).unwrap_or(slots);
    file.write_all_at(slots, SLOTS as u64).unwrap();
    // Likely sequence numbers; otherwise hardly any slot would be read.
    for (slot, flag) in slots.chunks(64).enumerate() {
        if flag.first().is_some_and(|byte| byte % 4 != 0) {
            let sequence = (slot as u64 + 1).to_le_bytes();
            file.write_all_at(&sequence, (SLOTS + slot * 64) as u64).unwrap();
        }
    }
    let mut consumer = RingConsumer::open(file.as_fd(), RECORDS).unwrap();
    for is_dead in [false, true, true] {
        let mut taken = 0;
        consumer.read(is_dead, |record| {
            taken += 1;
            if let Ok(record) = record {
                assert_eq!(RingRecord::decode(record.encode()), Ok(record));
            }
        });
        assert!(taken <= RECORDS);
    }
    let _ = consumer.allocations();
    let _ = (consumer.lost().total(), consumer.costs(), consumer.allocation_ns());
});
