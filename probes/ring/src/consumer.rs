//! The reading side: one reader, which trusts nothing in the memory.

use crate::AllocationTotals;
use crate::Lost;
use crate::Malformed;
use crate::Record;
use crate::allocations::CLASSES;
use crate::layout::MAGIC;
use crate::layout::MOST_RECORDS;
use crate::layout::Mapping;
use crate::layout::bytes;
use std::fmt;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

/// Why a ring that was offered is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// It could shrink under the reader, or the descriptor is no memory at all.
    NotSealed,
    /// Its length is not that of a ring.
    Length {
        /// In bytes.
        bytes: u64,
    },
    /// It is of another version of gctrace, or no ring.
    Version {
        /// Its first eight bytes.
        magic: [u8; 8],
    },
    /// The kernel does not map it.
    Map,
}

impl fmt::Display for OpenError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSealed => formatter.write_str("it is not sealed memory"),
            Self::Length { bytes } => {
                write!(formatter, "{bytes} bytes are not the length of a ring")
            }
            Self::Version { magic } => {
                write!(
                    formatter,
                    "it begins with {:?}",
                    String::from_utf8_lossy(magic)
                )
            }
            Self::Map => formatter.write_str("it cannot be mapped"),
        }
    }
}

impl std::error::Error for OpenError {}

/// What one look at a ring found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// Records handed out.
    pub records: u64,
    /// Records that make no sense, or were begun by a process that died within.
    pub damaged: u64,
    /// The next record is being written, or its writer is held up: look again.
    pub is_waiting: bool,
}

/// A ring of another process.
pub struct Consumer {
    mapping: Mapping,
    tail: u64,
}

impl Consumer {
    /// Maps the ring behind a descriptor, which may be closed afterwards.
    ///
    /// # Errors
    /// [`OpenError`] if it is not a ring that can be read safely.
    pub fn open(descriptor: BorrowedFd<'_>) -> Result<Self, OpenError> {
        let raw = descriptor.as_raw_fd();
        // SAFETY: a system call on an open descriptor.
        let seals = unsafe { libc::fcntl(raw, libc::F_GET_SEALS) };
        if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
            return Err(OpenError::NotSealed);
        }
        let records = records(raw)?;
        let mapping = Mapping::new(raw, records).ok_or(OpenError::Map)?;
        let magic = mapping.header().magic.load(Ordering::Acquire);
        if magic != MAGIC {
            return Err(OpenError::Version {
                magic: magic.to_le_bytes(),
            });
        }
        Ok(Self { mapping, tail: 0 })
    }

    /// Hands out what was written since the last look, in the order of reservation, at most one ringful.
    /// `dead`: the process that wrote has ended, so that what it began to write stays unfinished.
    pub fn read(&mut self, dead: bool, mut take: impl FnMut(Result<Record, Malformed>)) -> Read {
        let header = self.mapping.header();
        let head = header.head.load(Ordering::Acquire);
        let pending = head
            .wrapping_sub(self.tail)
            .min(self.mapping.records as u64);
        let mut read = Read::default();
        for _ in 0..pending {
            let slot = self.mapping.slot(self.tail);
            if slot.sequence.load(Ordering::Acquire) == self.tail.wrapping_add(1) {
                let words = slot
                    .words
                    .each_ref()
                    .map(|word| word.load(Ordering::Relaxed));
                let record = Record::decode(words);
                read.records += u64::from(record.is_ok());
                read.damaged += u64::from(record.is_err());
                take(record);
            } else if dead {
                read.damaged += 1;
            } else {
                read.is_waiting = true;
                break;
            }
            self.tail = self.tail.wrapping_add(1);
        }
        // Release: the slots were read before they are given back.
        header.tail.store(self.tail, Ordering::Release);
        read
    }

    /// Records that found the ring full, since the begin.
    #[must_use]
    pub fn lost(&self) -> Lost {
        let lost = &self.mapping.header().lost;
        Lost(lost.each_ref().map(|lost| lost.load(Ordering::Relaxed)))
    }

    /// Allocations by size class since the moment returned with them (CLOCK_MONOTONIC ns), and frees; `None`
    /// where they are not counted.
    #[must_use]
    pub fn allocations(&self) -> Option<(u64, [AllocationTotals; CLASSES], u64)> {
        let table = self.mapping.allocations();
        let since_ns = table.since_ns.load(Ordering::Relaxed);
        let totals = std::array::from_fn(|class| AllocationTotals {
            count: table
                .count
                .get(class)
                .map_or(0, |count| count.load(Ordering::Relaxed)),
            bytes: table
                .bytes
                .get(class)
                .map_or(0, |bytes| bytes.load(Ordering::Relaxed)),
        });
        (since_ns > 0).then(|| (since_ns, totals, table.frees.load(Ordering::Relaxed)))
    }
}

/// How many records the memory has room for, by its length, which cannot shrink.
fn records(descriptor: i32) -> Result<usize, OpenError> {
    // SAFETY: an all-zero stat is valid, and the call fills it.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open and the memory is large enough.
    if unsafe { libc::fstat(descriptor, &raw mut status) } != 0 {
        return Err(OpenError::Map);
    }
    let length = u64::try_from(status.st_size).unwrap_or(0);
    let mut sizes = (0..=MOST_RECORDS.ilog2()).map(|power| 1_usize << power);
    let fitting = sizes.find(|records| bytes(*records) as u64 == length);
    fitting.ok_or(OpenError::Length { bytes: length })
}
