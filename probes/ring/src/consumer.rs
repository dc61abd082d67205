//! The reading side: one reader, which trusts nothing in the memory.

use crate::layout::{CLASSES, MAGIC, PAYLOAD_WORDS, RingMapping, bytes};
use crate::record::moved;
use crate::{AllocationTotals, LostRecords, MalformedRecord, RingRecord, WorkCost, WorkKind};
use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

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
    /// Number of valid records that were delivered.
    pub records: u64,
    /// Number of records that are invalid, or that a thread started and died within.
    pub damaged: u64,
    /// The next record is being written, or its writer is delayed: poll again.
    pub is_waiting: bool,
}

/// How long a started record may block those behind it. Its writer needs nanoseconds; one preempted
/// in between, milliseconds; one killed alone (by a signal handler that ends its thread) never
/// finishes.
const STUCK: Duration = Duration::from_secs(1);

/// Maximum length of a run of started, unfinished records. A process that died leaves at most one
/// per thread; a longer run is invalid memory, and what follows is not read.
const LONGEST_GAP: u64 = 1000;

/// The reading end of another process's ring.
pub struct RingConsumer {
    mapping: RingMapping,
    tail: u64,
    /// The record that blocks others, and since when.
    stuck: Option<(u64, Instant)>,
    /// See [`RingConsumer::on_clock`].
    ahead_ns: i64,
}

impl RingConsumer {
    /// Maps the ring of `records` slots behind a descriptor, which may be closed afterwards. The
    /// size is the one this process was asked to create, not what the memory contains: a sparse
    /// file of 1 GiB costs its owner nothing.
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
        Ok(Self { mapping, tail: 0, stuck: None, ahead_ns: 0 })
    }

    /// All timestamps are returned as of a clock that is `ahead_ns` behind that of the process.
    #[must_use]
    pub fn on_clock(self, ahead_ns: i64) -> Self {
        Self { ahead_ns, ..self }
    }

    /// Delivers what was written since the last call, in the order of reservation, at most one
    /// ringful. `dead`: the writing process has exited, so records that it started stay unfinished.
    pub fn read(
        &mut self,
        dead: bool,
        mut take: impl FnMut(Result<RingRecord, MalformedRecord>),
    ) -> RingRead {
        let head = self.mapping.header().head.load(Ordering::Acquire);
        // The program can write any number there: no more than a ring's worth is believed.
        let pending = head.wrapping_sub(self.tail).min(self.mapping.records as u64);
        let end = self.tail.wrapping_add(pending);
        let mut read = RingRead::default();
        let mut gap = 0;
        while self.tail != end {
            if let Some(words) = self.words_at(self.tail) {
                let record = RingRecord::decode(words);
                let record = record.map(|record| record.on_clock(self.ahead_ns));
                read.records += u64::from(record.is_ok());
                read.damaged += u64::from(record.is_err());
                take(record);
                gap = 0;
            } else if dead || self.is_stuck(end) {
                read.damaged += 1;
                gap += 1;
                if gap >= LONGEST_GAP {
                    self.tail = end;
                    break;
                }
            } else {
                read.is_waiting = true;
                break;
            }
            self.tail = self.tail.wrapping_add(1);
        }
        // Release: the slots were read before they are freed.
        let given_back = &self.mapping.header().tail;
        given_back.store(self.tail, Ordering::Release);
        read
    }

    /// The record with that number; `None` if it is not finished.
    fn words_at(&self, number: u64) -> Option<[u64; PAYLOAD_WORDS]> {
        let slot = self.mapping.slot(number);
        let is_finished = slot.sequence.load(Ordering::Acquire) == number.wrapping_add(1);
        // Copied, then decoded: the program could change words between a check and their use.
        is_finished.then(|| slot.words.each_ref().map(|word| word.load(Ordering::Relaxed)))
    }

    /// Whether the next record has blocked a finished one for too long. If there is no finished
    /// one, as in a stopped process, nothing is blocked.
    fn is_stuck(&mut self, end: u64) -> bool {
        let number = self.tail;
        let since = match self.stuck {
            Some((stuck, since)) if stuck == number => since,
            _ => {
                self.stuck = Some((number, Instant::now()));
                return false;
            }
        };
        let behind = number.wrapping_add(1);
        let scanned = end.wrapping_sub(behind).min(LONGEST_GAP);
        since.elapsed() >= STUCK
            && (0..scanned).any(|at| self.words_at(behind.wrapping_add(at)).is_some())
    }

    /// Number of records that found the ring full, since the start.
    #[must_use]
    pub fn lost(&self) -> LostRecords {
        let lost = &self.mapping.header().lost;
        LostRecords(lost.each_ref().map(|lost| lost.load(Ordering::Relaxed)))
    }

    /// Declares whether children that are forked from the process may announce themselves by
    /// [`RingRecord::Fork`].
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
        (ps > 0).then(|| ps as f64 / 1e3)
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
        (since_ns > 0).then(|| (moved(since_ns, self.ahead_ns), reason))
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
        (since_ns > 0).then(|| (since_ns, totals, table.frees.load(Ordering::Relaxed)))
    }
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
