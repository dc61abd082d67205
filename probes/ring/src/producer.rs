//! The writing side: any thread, no locks. System calls are made only at the start and a few times in all, when the
//! ring has more in it than ever before. Also whether this process created the ring or is a fork of its creator.

use crate::layout::{
    CLAIMED, MAGIC, MAX_MESSAGE, MessageHead, PAYLOAD_WORDS, REASON_BYTES, RingMapping, WordSum,
    bytes, class_of,
};
use crate::message::Pack;
use crate::quietly::quietly;
use crate::{LostKind, LostRecords, Message, WorkKind};
use std::io::Write as _;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{fmt, io};

/// Slots with allocated memory at the start: a page, and from then on twice as many each time. Allocating all of a ring
/// of 1 MiB takes 0.3 ms: wasted in a forked child that records nothing.
const FIRST: u64 = 64;

/// The result of a system call.
fn succeeded(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The writing end of a ring, in the process that created it; any thread may push to it.
pub struct RingProducer<M> {
    pub(crate) mapping: RingMapping,
    /// Number of slots with allocated memory, from the first on; `u64::MAX`: all of them.
    allocated: AtomicU64,
    /// No more are allocated.
    is_settled: AtomicBool,
    carries: PhantomData<fn(&M)>,
}

/// Bytes of a message that fit into its first slot, behind its head.
const FIRST_BYTES: usize = (PAYLOAD_WORDS - 1) * 8;

/// A power of two: a place in it is found without a comparison.
const PACKED_BYTES: usize = FIRST_BYTES.next_power_of_two();

/// The length of any message, and its bytes if it fits into one slot.
struct FirstBytes {
    /// A whole word is written at any of the places. A longer message is written over itself.
    bytes: [u8; PACKED_BYTES + 8],
    length: usize,
}

impl Pack for FirstBytes {
    #[inline]
    fn word(&mut self, word: u64, count: usize) {
        let place = self.length % PACKED_BYTES;
        self.bytes[place..place + 8].copy_from_slice(&word.to_le_bytes());
        self.length += count;
    }
}

/// Writes the bytes of a message into its slots.
struct SlotWords<'a> {
    mapping: &'a RingMapping,
    /// Of the first slot.
    number: u64,
    /// Place of the next byte, in bytes from the head.
    at: usize,
    word: u64,
    sum: WordSum,
}

impl<'a> SlotWords<'a> {
    fn new(mapping: &'a RingMapping, number: u64) -> Self {
        Self { mapping, number, at: 8, word: 0, sum: WordSum::of(number) }
    }

    /// Writes the word at this place, in words from the head.
    fn write_word(&mut self, place: usize) {
        let slot = self.mapping.slot(self.number.wrapping_add((place / PAYLOAD_WORDS) as u64));
        slot.words[place % PAYLOAD_WORDS].store(self.word, Ordering::Relaxed);
        self.sum.add(self.word);
    }

    fn finish(mut self) -> WordSum {
        if !self.at.is_multiple_of(8) {
            self.write_word(self.at / 8);
        }
        self.sum
    }
}

impl Pack for SlotWords<'_> {
    #[inline]
    fn word(&mut self, word: u64, count: usize) {
        let (place, shift) = (self.at / 8, self.at as u32 % 8 * 8);
        self.word |= word << shift;
        self.at += count;
        if self.at / 8 > place {
            self.write_word(place);
            self.word = word.checked_shr(u64::BITS - shift).unwrap_or(0);
        }
    }
}

impl<M: Message> RingProducer<M> {
    /// Creates a ring of this many slots (a power of two), and the descriptor for gctrace, to be
    /// closed once [`offer`](crate::offer)ed. System calls only: may be called between fork and
    /// exec. `None` if the kernel refuses, for lack of memory, for example.
    #[must_use]
    pub fn create(records: usize) -> Option<(Self, OwnedFd)> {
        if !records.is_power_of_two() {
            return None;
        }
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // Not the function of that name in glibc (since 2.27): a library that needs it ends a program with an older
        // glibc.
        // SAFETY: a name of ours, ended by zero.
        let descriptor =
            unsafe { libc::syscall(libc::SYS_memfd_create, c"gctrace-ring".as_ptr(), flags) };
        let descriptor = RawFd::try_from(descriptor).ok().filter(|fd| *fd >= 0)?;
        // SAFETY: just created, with no other owner.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let length = libc::off_t::try_from(bytes(records)).ok()?;
        let raw = descriptor.as_raw_fd();
        // SAFETY: a system call on a descriptor of ours.
        quietly(|| succeeded(unsafe { libc::ftruncate(raw, length) })).ok()?;
        // gctrace maps memory that the program can change: if the program could shorten it too,
        // reading it would raise SIGBUS in gctrace.
        // https://man7.org/linux/man-pages/man2/memfd_create.2.html
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
        // SAFETY: as above.
        succeeded(unsafe { libc::fcntl(raw, libc::F_ADD_SEALS, seals) }).ok()?;
        let mapping = RingMapping::new(raw, records)?;
        let first = (records as u64).min(FIRST);
        let allocated = if mapping.allocate(0, first) {
            if first == records as u64 { u64::MAX } else { first }
        } else {
            // Kernels before 5.14: all of it now.
            // SAFETY: as above.
            quietly(|| succeeded(unsafe { libc::fallocate(raw, 0, 0, length) })).ok()?;
            u64::MAX
        };
        let producer = Self::over(mapping);
        producer.allocated.store(allocated, Ordering::Relaxed);
        Some((producer, descriptor))
    }

    /// A new ring in memory that is all zeroes.
    pub(crate) fn over(mapping: RingMapping) -> Self {
        let header = mapping.header();
        let records = mapping.records as u64;
        header.records.store(records, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Self {
            mapping,
            allocated: AtomicU64::new(u64::MAX),
            is_settled: AtomicBool::new(false),
            carries: PhantomData,
        }
    }

    /// Allocates all of it now: from here on pushing makes no system call. If the kernel refuses, what finds no room is
    /// lost.
    pub fn settle(&self) {
        let allocated = self.allocated.load(Ordering::Relaxed);
        if allocated != u64::MAX {
            self.allocate(self.mapping.records as u64 - 1);
        }
        self.is_settled.store(true, Ordering::Relaxed);
    }

    /// Pushes a message into the ring; returns `false`, and counts it as lost ([`Message::lost_kind`]), if there is
    /// no room for it.
    pub fn push(&self, message: &M) -> bool {
        // Most messages have one slot: packed here, written there. For a longer message this only finds the length.
        let mut first = FirstBytes { bytes: [0; PACKED_BYTES + 8], length: 0 };
        message.pack(&mut first);
        let mut head = MessageHead { number: message.number(), length: first.length, sum: 0 };
        let Some(number) = self.reserve(head) else {
            if let Some(kind) = M::lost_kind(head.number) {
                self.lose(kind, 1);
            }
            return false;
        };
        let slot = self.mapping.slot(number);
        let [head_word, words @ ..] = &slot.words;
        head_word.store(head.word(), Ordering::Relaxed);
        // Publishes the length: should this thread die, the reader knows what to skip.
        let own = number.wrapping_add(1);
        slot.sequence.store(own | CLAIMED, Ordering::Release);
        let sum = if head.slots() == 1 {
            let mut sum = WordSum::of(number);
            for (to, bytes) in words.iter().zip(first.bytes.as_chunks().0).take(head.words()) {
                let word = u64::from_le_bytes(*bytes);
                to.store(word, Ordering::Relaxed);
                sum.add(word);
            }
            sum
        } else {
            let mut slots = SlotWords::new(&self.mapping, number);
            message.pack(&mut slots);
            slots.finish()
        };
        head.sum = sum.folded();
        head_word.store(head.word(), Ordering::Relaxed);
        // Publishes the words. As in Vyukov's bounded queue:
        // https://www.1024cores.net/home/lock-free-algorithms/queues/bounded-mpmc-queue
        slot.sequence.store(own, Ordering::Release);
        true
    }

    /// The number of the first of a message's slots. Messages of several leave a quarter of the ring to others, so
    /// that a table costs no collection.
    pub(crate) fn reserve(&self, message: MessageHead) -> Option<u64> {
        self.reserve_at(self.mapping.header().head.load(Ordering::Relaxed), message)
    }

    /// The same if `head` slots were reserved a moment ago.
    pub(crate) fn reserve_at(&self, mut head: u64, message: MessageHead) -> Option<u64> {
        let slots = message.slots();
        let records = self.mapping.records as u64;
        let room = if slots == 1 { records } else { records - records / 4 };
        if slots > room || message.length > MAX_MESSAGE {
            return None;
        }
        let header = self.mapping.header();
        loop {
            // Acquire: the reader has finished reading the slots before they are written again.
            let tail = header.tail.load(Ordering::Acquire);
            if head.wrapping_sub(tail) > room - slots {
                // Full, unless it was written and read meanwhile.
                let now = header.head.load(Ordering::Relaxed);
                if now == head {
                    return None;
                }
                head = now;
                continue;
            }
            let last = head.wrapping_add(slots - 1);
            if last >= self.allocated.load(Ordering::Relaxed)
                && (self.is_settled.load(Ordering::Relaxed) || !self.allocate(last))
            {
                return None;
            }
            // Not `fetch_add`: a number that was taken has to be written, and a thread that finds
            // the ring full could not give its number back. Relaxed: it publishes nothing.
            let taken = header.head.compare_exchange_weak(
                head,
                head.wrapping_add(slots),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match taken {
                Ok(_) => return Some(head),
                Err(now) => head = now,
            }
        }
    }

    /// Allocates memory up to the slot with this number, at least twice as much as before;
    /// `false` if the kernel has none: writing there would be a SIGBUS in the program. Threads may
    /// allocate the same.
    #[cold]
    fn allocate(&self, number: u64) -> bool {
        let records = self.mapping.records as u64;
        // Another thread may just have allocated the last.
        let first = self.allocated.load(Ordering::Relaxed).min(records);
        let until = (first * 2).max((number + 1).next_multiple_of(FIRST)).min(records);
        if first < until && !self.mapping.allocate(first, until) {
            return false;
        }
        let allocated = if until == records { u64::MAX } else { until };
        // The maximum: another thread may have allocated more meanwhile.
        self.allocated.fetch_max(allocated, Ordering::Relaxed);
        true
    }

    /// Counts messages that could not be pushed.
    pub fn lose(&self, kind: LostKind, count: u64) {
        self.mapping.header().lost[kind as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// Adds `ns` that the library took from the calling thread.
    pub fn spend(&self, kind: WorkKind, ns: u64) {
        self.spend_often(kind, 1, ns);
    }

    /// Adds `ns` that the library took from the calling thread, for work that it did `count` times.
    pub fn spend_often(&self, kind: WorkKind, count: u64, ns: u64) {
        let cost = &self.mapping.header().costs[kind as usize];
        cost.count.fetch_add(count, Ordering::Relaxed);
        cost.ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Whether the reader takes announcements of children that are forked from the process and have
    /// its memory ([`PythonMessage::Fork`](crate::PythonMessage::Fork)).
    #[must_use]
    pub fn takes_forks(&self) -> bool {
        self.mapping.header().takes_forks.load(Ordering::Relaxed) == 1
    }

    /// Declares that nothing more will be pushed since `now_ns` (CLOCK_MONOTONIC), and why; cut at
    /// 128 bytes. To be called once. Allocates nothing.
    pub fn switch_off(&self, now_ns: u64, reason: fmt::Arguments<'_>) {
        let header = self.mapping.header();
        let mut text = [0; REASON_BYTES];
        // An error means that it was cut.
        let _ = text.as_mut_slice().write_fmt(reason);
        for (word, bytes) in header.off_reason.iter().zip(text.as_chunks().0) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
        // Last: a reader that sees the time sees the whole reason.
        header.off_since_ns.store(now_ns, Ordering::Release);
    }

    /// Number of messages lost since the ring was created, by kind.
    #[must_use]
    pub fn lost(&self) -> LostRecords {
        LostRecords(self.mapping.header().lost.each_ref().map(|lost| lost.load(Ordering::Relaxed)))
    }

    /// Declares that allocations are counted from `now_ns` (CLOCK_MONOTONIC) on, and that counting
    /// one and its free takes `allocation_ps`. Those counted so far are dropped; until then
    /// [`RingConsumer::allocations`](crate::RingConsumer::allocations) returns `None`. No other thread
    /// counts meanwhile.
    pub fn count_allocations_since(&self, now_ns: u64, allocation_ps: u64) {
        let table = self.mapping.allocations();
        let counts = table.count.iter().chain(&table.bytes);
        for count in counts.chain([&table.frees]) {
            count.store(0, Ordering::Relaxed);
        }
        let header = self.mapping.header();
        header.allocation_ps.store(allocation_ps, Ordering::Relaxed);
        table.since_ns.store(now_ns, Ordering::Relaxed);
    }

    /// Counts an allocation. `alone`: no other thread can be counting at the same time, because the
    /// caller holds the interpreter's lock; then this costs two plain additions.
    #[inline]
    pub fn count_allocation(&self, size: usize, alone: bool) {
        let table = self.mapping.allocations();
        let class = class_of(size);
        add(&table.count[class], 1, alone);
        add(&table.bytes[class], size as u64, alone);
    }

    /// Counts a free; `alone` as in [`RingProducer::count_allocation`].
    #[inline]
    pub fn count_free(&self, alone: bool) {
        add(&self.mapping.allocations().frees, 1, alone);
    }
}

#[inline]
fn add(counter: &AtomicU64, value: u64, alone: bool) {
    if alone {
        let sum = counter.load(Ordering::Relaxed).wrapping_add(value);
        counter.store(sum, Ordering::Relaxed);
    } else {
        counter.fetch_add(value, Ordering::Relaxed);
    }
}

/// A mark that is wiped in forked children, however they were forked.
///
/// A shared mapping is inherited: a child would write into its parent's ring. Calling `getpid` for
/// each record would work, but is a system call; this is one load. `MADV_WIPEONFORK`: Linux 4.14.
pub struct OwnerMark(*const AtomicU64);

// SAFETY: points to memory that is never unmapped and only accessed atomically.
unsafe impl Send for OwnerMark {}
// SAFETY: as above.
unsafe impl Sync for OwnerMark {}

const PAGE: usize = 4096;
const MINE: u64 = 1;

impl OwnerMark {
    /// Marks this process. Never freed: a page for the life of the process. `None` if the kernel
    /// refuses.
    #[must_use]
    pub fn new() -> Option<Self> {
        // The kernel wipes private anonymous pages only:
        // https://man7.org/linux/man-pages/man2/madvise.2.html
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, placed by the kernel.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, rights, flags, -1, 0) };
        if page == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the page mapped above; only this function can access it.
        if unsafe { libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) } != 0 {
            // SAFETY: as above.
            unsafe { libc::munmap(page, PAGE) };
            return None;
        }
        let mark = Self(page.cast());
        mark.word().store(MINE, Ordering::Relaxed);
        Some(mark)
    }

    /// Whether this process created the mark.
    #[must_use]
    #[inline]
    pub fn is_mine(&self) -> bool {
        self.word().load(Ordering::Relaxed) == MINE
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: the page is never unmapped; zeroes and ones are valid.
        unsafe { &*self.0 }
    }
}
