//! The reading side: one reader. It trusts nothing in the memory.

use crate::layout::{
    CLAIMED, CLASSES, MAGIC, MAX_MESSAGE, MessageHead, PAYLOAD_WORDS, RingMapping, WordSum, bytes,
};
use crate::message::moved;
use crate::{AllocationTotals, LostRecords, Message, WorkCost, WorkKind};
use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes as _;

/// Why an offered ring is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingOpenError {
    /// It could shrink under the reader, or the descriptor is not memory.
    NotSealed,
    /// Its length is not the requested ring's.
    Length {
        /// Actual length in bytes.
        bytes: u64,
    },
    /// It is from another version of gctrace, or not a ring.
    Version {
        /// Its first eight bytes.
        magic: [u8; 8],
    },
    /// The kernel refused to map it.
    Map,
}

impl fmt::Display for RingOpenError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSealed => formatter.write_str("it is not sealed memory"),
            Self::Length { bytes } => {
                write!(formatter, "{bytes} bytes are not the length of the requested ring")
            }
            Self::Version { magic } => {
                write!(formatter, "it starts with {:?}", String::from_utf8_lossy(magic))
            }
            Self::Map => formatter.write_str("it cannot be mapped"),
        }
    }
}

impl std::error::Error for RingOpenError {}

/// Result of draining a ring once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingRead {
    /// Number of valid messages that were delivered.
    pub messages: u64,
    /// Number of damaged messages: invalid ones, unfinished ones of a thread that died, and runs of slots with unknown
    /// content. Messages of kinds with counted losses are in [`RingConsumer::torn`] instead.
    pub damaged: u64,
    /// The next message is being written, or its writer is delayed: poll again.
    pub is_waiting: bool,
}

/// How long a started message may block those behind it. Its writer needs nanoseconds; one preempted
/// in between, milliseconds; one killed alone (by a signal handler that ends its thread) never
/// finishes.
const STUCK: Duration = Duration::from_secs(1);

/// Maximum length of a run of unfinished messages and of slots without one. A process that died leaves at most one
/// message per thread, of at most [`MAX_MESSAGE`] bytes; a longer run is invalid memory, and what follows is not read.
const LONGEST_GAP: u64 = 1000 + (MAX_MESSAGE / (PAYLOAD_WORDS * 8)) as u64;

/// Content at the start of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotState {
    /// A message.
    Whole(MessageHead),
    /// An unfinished message: it is being written, or its writer died.
    Claimed(MessageHead),
    /// Nothing known: the slot was reserved only, or the memory is invalid.
    Unknown,
}

/// The reading end of another process's ring.
pub struct RingConsumer {
    mapping: RingMapping,
    tail: u64,
    /// Since when slots before this one block others: all of them were reserved by then.
    blocked: Option<(u64, Instant)>,
    /// Words of a message, copied before they are looked at: the program could change them meanwhile.
    copied: Vec<u64>,
    torn: LostRecords,
    /// See [`RingConsumer::on_clock`].
    ahead_ns: i64,
}

impl RingConsumer {
    /// Maps the ring of `records` slots behind a descriptor. The descriptor may be closed afterwards. The size is the
    /// requested one, not a number in the memory: a sparse file of 1 GiB costs its owner nothing.
    ///
    /// # Errors
    /// [`RingOpenError`] if it is not a ring of this size that can be read safely.
    pub fn open(descriptor: BorrowedFd<'_>, records: usize) -> Result<Self, RingOpenError> {
        let raw = descriptor.as_raw_fd();
        // SAFETY: a system call on an open descriptor.
        let seals = unsafe { libc::fcntl(raw, libc::F_GET_SEALS) };
        if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
            return Err(RingOpenError::NotSealed);
        }
        if !records.is_power_of_two() || length(raw)? != bytes(records) as u64 {
            return Err(RingOpenError::Length { bytes: length(raw)? });
        }
        Self::over(RingMapping::new(raw, records).ok_or(RingOpenError::Map)?)
    }

    /// Reads the ring in this memory, from its start.
    pub(crate) fn over(mapping: RingMapping) -> Result<Self, RingOpenError> {
        let magic = mapping.header().magic.load(Ordering::Acquire);
        if magic != MAGIC {
            return Err(RingOpenError::Version { magic: magic.to_le_bytes() });
        }
        Ok(Self {
            mapping,
            tail: 0,
            blocked: None,
            copied: Vec::new(),
            torn: LostRecords::default(),
            ahead_ns: 0,
        })
    }

    /// Returns all timestamps on a clock that is `ahead_ns` behind the process's.
    #[must_use]
    pub fn on_clock(self, ahead_ns: i64) -> Self {
        Self { ahead_ns, ..self }
    }

    /// Delivers the messages written since the last call, in the order of reservation, at most one ringful. `dead`: the
    /// writing process has exited, so messages that it started stay unfinished.
    pub fn read<M: Message>(&mut self, dead: bool, mut take: impl FnMut(M)) -> RingRead {
        let head = self.mapping.header().head.load(Ordering::Acquire);
        // The program can write any number there: no more than a ring's worth is believed.
        let pending = head.wrapping_sub(self.tail).min(self.mapping.records as u64);
        let end = self.tail.wrapping_add(pending);
        let mut read = RingRead::default();
        let mut gap = 0;
        let mut is_orphaned = false;
        // Slots before it are not waited for.
        let mut given_up = if dead { end } else { self.tail };
        while self.tail != end {
            let state = self.state(self.tail, end);
            if !matches!(state, SlotState::Whole(_)) && !is_before(self.tail, given_up) {
                let Some(stuck) = self.stuck_until(state, end) else {
                    read.is_waiting = true;
                    break;
                };
                given_up = stuck;
            }
            let slots = match state {
                SlotState::Whole(message) => {
                    gap = 0;
                    match self.copy::<M>(message) {
                        Some(copied) => {
                            read.messages += 1;
                            take(copied);
                            is_orphaned = false;
                            message.slots()
                        }
                        None => {
                            self.tear::<M>(message, &mut read);
                            is_orphaned = true;
                            self.until_next(message, end)
                        }
                    }
                }
                SlotState::Claimed(message) => {
                    self.tear::<M>(message, &mut read);
                    is_orphaned = false;
                    gap += 1;
                    self.until_next(message, end)
                }
                SlotState::Unknown => {
                    read.damaged += u64::from(!is_orphaned);
                    is_orphaned = true;
                    gap += 1;
                    1
                }
            };
            self.tail = if gap < LONGEST_GAP { self.tail.wrapping_add(slots) } else { end };
        }
        // Release: the slots were read before they are freed.
        let given_back = &self.mapping.header().tail;
        given_back.store(self.tail, Ordering::Release);
        read
    }

    /// The state of the slot with this number.
    fn state(&self, number: u64, end: u64) -> SlotState {
        let slot = self.mapping.slot(number);
        let sequence = slot.sequence.load(Ordering::Acquire);
        let head = MessageHead::of(slot.words[0].load(Ordering::Relaxed));
        let own = number.wrapping_add(1);
        if head.length > MAX_MESSAGE || head.slots() > end.wrapping_sub(number) {
            SlotState::Unknown
        } else if sequence == own {
            SlotState::Whole(head)
        } else if sequence == own | CLAIMED {
            SlotState::Claimed(head)
        } else {
            SlotState::Unknown
        }
    }

    /// The message that starts at the next slot; `None` if it is invalid, or not whole after all.
    fn copy<M: Message>(&mut self, head: MessageHead) -> Option<M> {
        self.copied.clear();
        let mut sum = WordSum::of(self.tail);
        // The head's place is before them.
        let mut from = 1;
        for at in 0..head.slots() {
            let slot = self.mapping.slot(self.tail.wrapping_add(at));
            let left = head.words() - self.copied.len();
            for word in slot.words.iter().skip(std::mem::take(&mut from)).take(left) {
                let word = word.load(Ordering::Relaxed);
                sum.add(word);
                self.copied.push(word.to_le());
            }
        }
        let bytes = self.copied.as_bytes().get(..head.length)?;
        if sum.folded() != head.sum {
            return None;
        }
        M::unpack(head.number, bytes, self.ahead_ns)
    }

    /// Number of slots from an invalid message to the next. Its length may be from a late writer, and its slots may
    /// hold another message.
    fn until_next(&self, message: MessageHead, end: u64) -> u64 {
        let is_start =
            |at: &u64| self.state(self.tail.wrapping_add(*at), end) != SlotState::Unknown;
        (1..message.slots()).find(is_start).unwrap_or(message.slots())
    }

    /// Counts a message that will never be whole.
    fn tear<M: Message>(&mut self, message: MessageHead, read: &mut RingRead) {
        match M::lost_kind(message.number) {
            Some(kind) => self.torn.0[kind as usize] += 1,
            None => read.damaged += 1,
        }
    }

    /// The end of the unfinished slots that have blocked a finished message for too long. Without a finished message,
    /// as in a stopped process, nothing is blocked.
    fn stuck_until(&mut self, state: SlotState, end: u64) -> Option<u64> {
        let (until, since) = match self.blocked {
            Some((until, since)) if is_before(self.tail, until) => (until, since),
            _ => *self.blocked.insert((end, Instant::now())),
        };
        if since.elapsed() < STUCK {
            return None;
        }
        let behind = self.tail.wrapping_add(match state {
            SlotState::Claimed(message) => message.slots(),
            _ => 1,
        });
        let scanned = end.wrapping_sub(behind).min(LONGEST_GAP);
        let mut numbers = (0..scanned).map(|at| behind.wrapping_add(at));
        let whole = numbers.find(|at| matches!(self.state(*at, end), SlotState::Whole(_)))?;
        Some(if is_before(whole, until) { whole } else { until })
    }

    /// Messages that were lost because they were invalid, or their writer died within, by kind; the kind is as the
    /// memory states it.
    #[must_use]
    pub fn torn(&self) -> LostRecords {
        self.torn
    }

    /// Number of messages that found the ring full, since the start.
    #[must_use]
    pub fn lost(&self) -> LostRecords {
        let lost = &self.mapping.header().lost;
        LostRecords(lost.each_ref().map(|lost| lost.load(Ordering::Relaxed)))
    }

    /// Declares whether children that are forked from the process may announce themselves by
    /// [`PythonMessage::Fork`](crate::PythonMessage::Fork).
    pub fn take_forks(&self, takes: bool) {
        let header = self.mapping.header();
        header.takes_forks.store(u64::from(takes), Ordering::Relaxed);
    }

    /// Time that the library took from the program so far, in the order of [`WorkKind::ALL`].
    #[must_use]
    pub fn costs(&self) -> [WorkCost; WorkKind::ALL.len()] {
        let costs = &self.mapping.header().costs;
        costs.each_ref().map(|cost| WorkCost {
            count: cost.count.load(Ordering::Relaxed),
            ns: cost.ns.load(Ordering::Relaxed),
        })
    }

    /// Time that counting an allocation and its free takes, in ns; `None` if unknown.
    #[must_use]
    pub fn allocation_ns(&self) -> Option<f64> {
        let ps = self.mapping.header().allocation_ps.load(Ordering::Relaxed);
        if ps > 0 { Some(ps as f64 / 1e3) } else { None }
    }

    /// When the library switched recording off in the process (CLOCK_MONOTONIC ns), and why; `None`
    /// if it did not.
    #[must_use]
    pub fn switched_off(&self) -> Option<(u64, String)> {
        let header = self.mapping.header();
        let since_ns = header.off_since_ns.load(Ordering::Acquire);
        let words = header.off_reason.iter();
        let bytes = words.flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
        let reason: Vec<_> = bytes.take_while(|byte| *byte != 0).collect();
        let reason = String::from_utf8_lossy(&reason).into_owned();
        if since_ns > 0 { Some((moved(since_ns, self.ahead_ns), reason)) } else { None }
    }

    /// Allocations by size class since the timestamp returned with them (CLOCK_MONOTONIC ns), and
    /// frees; `None` if they are not counted.
    #[must_use]
    pub fn allocations(&self) -> Option<(u64, [AllocationTotals; CLASSES], u64)> {
        let table = self.mapping.allocations();
        let since_ns = table.since_ns.load(Ordering::Relaxed);
        let totals = std::array::from_fn(|class| AllocationTotals {
            count: table.count[class].load(Ordering::Relaxed),
            bytes: table.bytes[class].load(Ordering::Relaxed),
        });
        let since_ns = moved(since_ns, self.ahead_ns);
        if since_ns == 0 {
            return None;
        }
        Some((since_ns, totals, table.frees.load(Ordering::Relaxed)))
    }
}

/// Whether a slot is before another; they are less than half of all numbers apart.
fn is_before(number: u64, other: u64) -> bool {
    other.wrapping_sub(number).cast_signed() > 0
}

/// Length of the memory in bytes; sealed, so it cannot shrink.
fn length(descriptor: i32) -> Result<u64, RingOpenError> {
    // SAFETY: an all-zero stat is valid, and the call fills it.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open and the memory is large enough.
    if unsafe { libc::fstat(descriptor, &raw mut status) } != 0 {
        return Err(RingOpenError::Map);
    }
    u64::try_from(status.st_size).map_err(|_| RingOpenError::Map)
}
