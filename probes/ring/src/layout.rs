//! The shared memory: a page of counters, the table of allocations by size class, the slots.
//!
//! Everything in it is atomic: one process writes while the other reads.

use crate::message::DECLARED;
use std::sync::atomic::AtomicU64;

/// First eight bytes: the version of this layout and of how values are packed, `I`, and a hash (FNV-1a) of the
/// declarations of the messages.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"GCTI\0\0\0\0") | (hash(&DECLARED) as u64) << 32;

const fn hash(texts: &[&str]) -> u32 {
    let (mut hash, mut rest) = (0x811c_9dc5_u32, texts);
    while let Some((text, others)) = rest.split_first() {
        let mut bytes = text.as_bytes();
        while let Some((byte, others)) = bytes.split_first() {
            hash = (hash ^ *byte as u32).wrapping_mul(0x0100_0193);
            bytes = others;
        }
        rest = others;
    }
    hash
}

/// Slots of a process's Python ring: 1 MiB. At 100,000 collections a second (two messages each, of a slot each) and
/// a reader that polls every 40 ms, 8,000 are in use.
pub const PYTHON_RECORDS: usize = 1 << 14;

/// Slots of its GPU ring, created when CUDA is initialized: 16 MiB. CUPTI delivers whole buffers,
/// of some ten thousand records, at once.
pub const GPU_RECORDS: usize = 1 << 18;

/// Maximum size of a ring: 1 GiB.
pub(crate) const MAX_RECORDS: u32 = 1 << 24;

/// Size of the header: a page of its own.
pub(crate) const HEADER_BYTES: usize = 4096;
/// Size of the allocation counters: one page.
pub(crate) const ALLOCATIONS_BYTES: usize = 4096;
/// Size of one slot, including its sequence number.
pub(crate) const SLOT_BYTES: usize = 64;
/// Number of payload words per slot.
pub(crate) const PAYLOAD_WORDS: usize = 7;
/// Maximum length of a message, in bytes: a table of a thousand layers takes half as much.
pub(crate) const MAX_MESSAGE: usize = 128 << 10;
/// Set in the sequence number of the first slot of a message that is being written.
pub(crate) const CLAIMED: u64 = 1 << 63;

/// First payload word of a message. Its bytes follow, over as many slots as they need.
///
/// The sum guards against a writer that was stopped so long that the reader gave its slots to others. Its late words
/// land in a newer message. Only the first slot of that message has a sequence number to reveal this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageHead {
    /// Number of the kind of message.
    pub(crate) number: u8,
    /// Length of its fields, in bytes.
    pub(crate) length: usize,
    /// 32 bits of the sum of its words.
    pub(crate) sum: u32,
}

impl MessageHead {
    pub(crate) fn word(self) -> u64 {
        u64::from(self.number) | (self.length as u64) << 8 | u64::from(self.sum) << 32
    }

    pub(crate) fn of(word: u64) -> Self {
        let length = (word >> 8) as usize & 0xff_ffff;
        Self { number: word as u8, length, sum: (word >> 32) as u32 }
    }

    /// Number of words of its fields.
    pub(crate) fn words(self) -> usize {
        self.length.div_ceil(8)
    }

    /// Number of slots that it takes.
    pub(crate) fn slots(self) -> u64 {
        (8 + self.length).div_ceil(PAYLOAD_WORDS * 8) as u64
    }
}

/// Sum of the words of a message and of its place: like FxHash (rustc-hash), at three instructions a word.
#[derive(Clone, Copy)]
pub(crate) struct WordSum(u64);

impl WordSum {
    /// The sum of a message at the slot of this number, still without words. Words written for another place have
    /// another sum.
    #[inline]
    pub(crate) fn of(number: u64) -> Self {
        Self(number)
    }

    #[inline]
    pub(crate) fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    /// Its upper bits: all words change them.
    pub(crate) fn folded(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Maximum length of the reason for switching recording off, in bytes.
pub(crate) const REASON_BYTES: usize = 128;

/// Size of the memory for this many records, in bytes.
pub(crate) const fn bytes(records: usize) -> usize {
    HEADER_BYTES + ALLOCATIONS_BYTES + records * SLOT_BYTES
}

/// Kinds of messages that can be lost, as reported to the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LostKind {
    /// Collections.
    Pauses,
    /// Names, lines of code, states.
    Descriptions,
    /// Kernels, copies, fills, synchronizations.
    GpuWork,
    /// CUDA calls.
    Calls,
    /// Marks of training steps.
    Steps,
    /// The garbage of collections.
    Garbage,
    /// Turns of loops.
    Turns,
    /// Collections of forked children that could not create a ring. Counted in the ring that announces the children
    /// ([`PythonMessage::Fork`](crate::PythonMessage::Fork)).
    WithoutRing,
}

impl LostKind {
    /// All kinds, in the order of their counts in the ring.
    pub const ALL: [Self; 8] = [
        Self::Pauses,
        Self::Descriptions,
        Self::GpuWork,
        Self::Calls,
        Self::Steps,
        Self::Garbage,
        Self::Turns,
        Self::WithoutRing,
    ];
}

/// Numbers of messages that were lost, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostRecords(pub(crate) [u64; LostKind::ALL.len()]);

impl LostRecords {
    /// Number of messages of this kind lost since the ring was created.
    #[must_use]
    pub fn of(&self, kind: LostKind) -> u64 {
        self.0[kind as usize]
    }

    /// Number of messages of all kinds lost since the ring was created.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, lost| sum.saturating_add(*lost))
    }
}

/// The library's work in a program, by cause, for its cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// An interpreter started.
    Start,
    /// A collection.
    Collection,
    /// A mark of a training step.
    Step,
    /// The process was forked from another.
    Fork,
    /// Garbage or live objects were examined.
    Garbage,
    /// CPython's two calls of the library at a collection, timed with warm caches.
    Calls,
    /// A turn of a loop ended, timed with warm caches.
    Turn,
}

impl WorkKind {
    /// All kinds, in the order of their costs in the ring.
    pub const ALL: [Self; 7] = [
        Self::Start,
        Self::Collection,
        Self::Step,
        Self::Fork,
        Self::Garbage,
        Self::Calls,
        Self::Turn,
    ];
}

/// CPU time that the library took from the threads of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkCost {
    /// How often.
    pub count: u64,
    /// In total, in ns.
    pub ns: u64,
}

/// As [`WorkCost`], in the ring.
#[repr(C)]
pub(crate) struct CostCounter {
    pub(crate) count: AtomicU64,
    pub(crate) ns: AtomicU64,
}

/// At the start of the memory. Producers and consumer write different cache lines of it.
#[repr(C)]
pub(crate) struct RingHeader {
    pub(crate) magic: AtomicU64,
    /// Number of slots: a power of two.
    pub(crate) records: AtomicU64,
    _read_only: [AtomicU64; 6],
    /// Number of slots reserved since the start.
    pub(crate) head: AtomicU64,
    _producers: [AtomicU64; 7],
    /// Number of slots read and freed.
    pub(crate) tail: AtomicU64,
    /// 1: the reader takes announcements of forked children ([`PythonMessage::Fork`](crate::PythonMessage::Fork)).
    pub(crate) takes_forks: AtomicU64,
    _consumer: [AtomicU64; 6],
    pub(crate) lost: [AtomicU64; LostKind::ALL.len()],
    /// When the library switched recording off (CLOCK_MONOTONIC); 0: it did not.
    pub(crate) off_since_ns: AtomicU64,
    /// Why: UTF-8, then zeroes.
    pub(crate) off_reason: [AtomicU64; REASON_BYTES / 8],
    /// In the order of [`WorkKind::ALL`].
    pub(crate) costs: [CostCounter; WorkKind::ALL.len()],
    /// Time that counting an allocation and its free takes, in ps; 0: unknown.
    pub(crate) allocation_ps: AtomicU64,
}

/// Number and bytes of allocations, by size class.
#[repr(C)]
pub(crate) struct AllocationTable {
    pub(crate) count: [AtomicU64; CLASSES],
    pub(crate) bytes: [AtomicU64; CLASSES],
    /// Start of counting (CLOCK_MONOTONIC); 0: not counted.
    pub(crate) since_ns: AtomicU64,
    pub(crate) frees: AtomicU64,
}

/// A part of a message. `sequence` is written in the first slot of a message only: the slot's number, counted from 1,
/// with [`CLAIMED`] while it is being written. The slots behind it keep smaller numbers of earlier rounds, so that the
/// middle of a message never looks like a start.
#[repr(C, align(64))]
pub(crate) struct RingSlot {
    pub(crate) sequence: AtomicU64,
    pub(crate) words: [AtomicU64; PAYLOAD_WORDS],
}

const _: () = assert!(size_of::<RingHeader>() <= HEADER_BYTES);
const _: () = assert!(size_of::<AllocationTable>() <= ALLOCATIONS_BYTES);
const _: () = assert!(size_of::<RingSlot>() == SLOT_BYTES);
const _: () = assert!(PYTHON_RECORDS.is_power_of_two() && GPU_RECORDS.is_power_of_two());

/// The mapped memory. Unmapped when dropped.
pub(crate) struct RingMapping {
    base: *mut u8,
    /// 0: unmapped by another.
    bytes: usize,
    pub(crate) records: usize,
}

// SAFETY: the memory is shared with another process anyway: all access to it is atomic.
unsafe impl Send for RingMapping {}
// SAFETY: as above.
unsafe impl Sync for RingMapping {}

impl RingMapping {
    /// Maps `records` slots of the descriptor's memory, shared and writable; `None` if the kernel refuses.
    /// The memory must be at least `bytes(records)` long and must not be able to shrink.
    pub(crate) fn new(descriptor: i32, records: usize) -> Option<Self> {
        let bytes = bytes(records);
        // SAFETY: a new mapping, placed by the kernel; nothing else is touched.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                descriptor,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return None;
        }
        Some(Self { base: base.cast(), bytes, records })
    }

    /// Allocates the memory of the slots from `first` to before `until`, at the beginning the
    /// header's and the table's too; `false` if the kernel refuses, or is older than 5.14. `errno`
    /// stays as it was.
    pub(crate) fn allocate(&self, first: u64, until: u64) -> bool {
        let from = if first == 0 { 0 } else { bytes(first as usize) };
        let length = bytes(until as usize).min(self.bytes).saturating_sub(from);
        // SAFETY: within the mapping; the call writes nothing. `errno` is this thread's own.
        unsafe {
            let errno = *libc::__errno_location();
            let populated =
                libc::madvise(self.base.add(from).cast(), length, libc::MADV_POPULATE_WRITE) == 0;
            *libc::__errno_location() = errno;
            populated
        }
    }

    /// The same slots in memory of this process alone, twice: for tests under Miri, without shared files. The second
    /// has no length, so that dropping it unmaps nothing; it must not be used once the first is dropped.
    #[cfg(test)]
    pub(crate) fn twice(records: usize) -> [Self; 2] {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let bytes = bytes(records).next_multiple_of(4096);
        // SAFETY: a new mapping, placed by the kernel; nothing else is touched.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        [bytes, 0].map(|bytes| Self { base: base.cast(), bytes, records })
    }

    pub(crate) fn header(&self) -> &RingHeader {
        // SAFETY: the mapping is longer than a header, page-aligned, lives as long as `self`, and
        // any bytes are valid atomics.
        unsafe { &*self.base.cast::<RingHeader>() }
    }

    pub(crate) fn allocations(&self) -> &AllocationTable {
        // SAFETY: as for the header; its page follows the header's.
        unsafe { &*self.base.add(HEADER_BYTES).cast::<AllocationTable>() }
    }

    /// The slot with that number, counted from 0.
    pub(crate) fn slot(&self, number: u64) -> &RingSlot {
        let at = number as usize & (self.records - 1);
        // SAFETY: `at` is below `records`, and the mapping is long enough for all of them; slots are 64 bytes and start
        // at a page.
        unsafe { &*self.base.add(bytes(at)).cast::<RingSlot>() }
    }
}

impl Drop for RingMapping {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: made by `new`, unmapped once.
            unsafe { libc::munmap(self.base.cast(), self.bytes) };
        }
    }
}

/// Number of size classes: 32 of 16 bytes each, like pymalloc's for up to 512 bytes
/// (Objects/obmalloc.c, `ALIGNMENT`, since CPython 3.8), powers of two up to 512 MiB, and one for
/// everything larger.
pub const CLASSES: usize = 53;

const SMALL: usize = 32;

/// Totals of one size class, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocationTotals {
    /// Number of allocations, whether freed since or not.
    pub count: u64,
    /// Sum of the requested sizes, in bytes.
    pub bytes: u64,
}

/// The class of a size in bytes: 0 for 0 - 16, 1 for 17 - 32, ...
#[must_use]
#[inline]
pub fn class_of(size: usize) -> usize {
    if size <= SMALL * 16 {
        return size.saturating_sub(1) / 16;
    }
    // 513 - 1024 is class 32.
    let class = SMALL + (size - 1).ilog2() as usize - 9;
    if class < CLASSES { class } else { CLASSES - 1 }
}

/// The largest size of a class in bytes; `None` for the last class: it is unbounded.
#[must_use]
pub fn largest_of_class(class: usize) -> Option<u64> {
    match class {
        0..SMALL => Some((class as u64 + 1) * 16),
        _ if class < CLASSES - 1 => Some(1024 << (class - SMALL)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_in_the_smallest_fitting_class() {
        let edges = (0..40).flat_map(|bits| [(1_usize << bits) - 1, 1 << bits, (1 << bits) + 1]);
        for size in (0..5000).chain(edges) {
            let class = class_of(size);
            assert!(class < CLASSES);
            assert!(largest_of_class(class).is_none_or(|largest| size as u64 <= largest), "{size}");
            let below = class.checked_sub(1).and_then(largest_of_class);
            assert!(below.is_none_or(|largest| size as u64 > largest), "{size}");
        }
        assert_eq!(largest_of_class(CLASSES - 2), Some(512 << 20));
    }
}
