//! How much of a program is read: memory, work and time.
//!
//! A program may have anything where its objects should be: lists in memory that it maps and never writes, a million
//! lists that share their items, a type of its own for each object. The limits follow from the program's memory: no
//! such program can fake that.

use gctrace_probes::process_memory;
use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Most words of one object that are read: 2^26 are 512 MiB.
pub(crate) const MOST_WORDS: u64 = 1 << 26;
/// Bytes that may be copied of files that a process has mapped and not read.
const OF_FILES: u64 = 16 << 20;
/// How often each byte of a process may be read in one pass. Real heaps: 1 to 3 times.
const READS: u64 = 16;
/// Bytes that a pass may read in any case.
const LEAST_READ: u64 = 64 << 20;

/// Limits of reading one process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes that are copied.
    pub(crate) copied: u64,
    /// Bytes that are read from the copy in one pass, each as often as it is read.
    pub(crate) read: u64,
    /// Objects, and references between them.
    pub(crate) objects: u64,
    pub(crate) references: u64,
    /// Bytes of memory for each list of those.
    pub(crate) memory: u64,
}

/// Why nothing more is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exceeded {
    /// More would have been copied than these bytes.
    Copied(u64),
    /// More would have been read, or found, than the process has memory for.
    Read,
    /// This process may have no more memory.
    Memory,
    /// The program has been stopped for as long as it may be.
    Time,
}

/// CPU time of this thread for reading while the program runs. On a busy machine a fifth of a second may pass without
/// any.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuBudget {
    end: Duration,
}

impl CpuBudget {
    /// So much from now on.
    pub(crate) fn of(limit: Duration) -> Self {
        Self { end: Self::now().saturating_add(limit) }
    }

    pub(crate) fn is_spent(self) -> bool {
        Self::now() >= self.end
    }

    /// CPU time of this thread so far.
    pub(crate) fn now() -> Duration {
        clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
    }
}

/// None at all.
impl Default for Limits {
    fn default() -> Self {
        Self {
            copied: u64::MAX,
            read: u64::MAX,
            objects: u64::MAX,
            references: u64::MAX,
            memory: u64::MAX,
        }
    }
}

impl Limits {
    /// The limits for a process as it is now.
    ///
    /// A block is copied for something in it that the program has written. So there are no more blocks than pages in
    /// memory or swapped out; some pages of files may be neither. Half of the machine's free memory is for the result
    /// of reading the copy.
    pub(crate) fn of_process(pid: u32, block: u64) -> Self {
        let used = process_memory::used_bytes(pid).unwrap_or(0);
        let left = process_memory::available_bytes().unwrap_or(u64::MAX);
        let of_process = gctrace_units::sum([used / PAGE * block, OF_FILES]);
        Self {
            copied: of_process.min(left / 2),
            read: gctrace_units::times(used, READS).max(LEAST_READ),
            // An object has at least a count and a type, a reference is a word; types and some keys
            // have two.
            objects: used / 16,
            references: used / 4,
            memory: left / 8,
        }
    }
}

/// The smallest page of any machine that CPython runs on.
const PAGE: u64 = 4096;
