//! Performance counters of pauses and processes.

use super::kind::{Phase, declare};
use bitcode::{Decode, Encode};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use strum::{AsRefStr, IntoStaticStr, VariantArray};

/// The performance counters that gctrace can record, in the order of display. Their names are as in `perf list`, on the
/// command line, in traces and in reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Encode, Decode)]
#[serde(into = "&'static str")]
#[derive(AsRefStr, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Counter {
    /// CPU cycles.
    Cycles,
    /// Retired instructions.
    Instructions,
    /// Last-level cache misses as the kernel's generic event counts them.
    CacheMisses,
    /// Loads that missed the last-level cache.
    #[strum(serialize = "LLC-load-misses")]
    LlcLoadMisses,
    /// Loads that missed the data TLB.
    #[strum(serialize = "dTLB-load-misses")]
    DtlbLoadMisses,
    /// Mispredicted branches.
    BranchMisses,
    /// Page faults, minor and major.
    PageFaults,
    /// Page faults that waited for a disk.
    MajorFaults,
    /// Context switches, voluntary or not.
    ContextSwitches,
    /// Moves to another CPU.
    CpuMigrations,
    /// Time on a CPU, in nanoseconds.
    TaskClock,
    /// The kernel's per-CPU clock, in nanoseconds: counts as hardware counters do, on any machine.
    CpuClock,
}

impl Counter {
    /// All counters.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The counter with this name (exact case); `None` for any other.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.iter().copied().find(|counter| counter.as_ref().as_bytes() == name)
    }
}

/// Values of counters over an interval; counters that did not count are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Counters {
    values: [Option<u64>; Counter::ALL.len()],
    /// Hardware counters were multiplexed; their values are scaled by enabled / running time.
    pub scaled: bool,
    /// Values of per-CPU counters were dropped because they would be wrong: the thread migrated to
    /// another CPU unseen, or a reading was interrupted. For a whole process, its totals lack such
    /// intervals and are too low. A migration that was seen does no harm.
    pub migrated: bool,
}

impl Counters {
    /// The value of a counter, if it was counted.
    #[must_use]
    pub fn get(&self, counter: Counter) -> Option<u64> {
        self.values.get(counter as usize).copied().flatten()
    }

    /// Sets the value of a counter.
    pub fn set(&mut self, counter: Counter, value: u64) {
        if let Some(place) = self.values.get_mut(counter as usize) {
            *place = Some(value);
        }
    }

    /// The counters that were counted and their values, in the order of [`Counter::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        Counter::ALL.iter().filter_map(|counter| Some((*counter, self.get(*counter)?)))
    }

    /// Whether no counter has a value and no mark is set.
    pub(crate) fn is_unset(&self) -> bool {
        *self == Self::default()
    }

    /// Whether no counter has a value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

/// By their names in `perf list`, with the marks that are set.
impl Serialize for Counters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(None)?;
        for (counter, value) in self.iter() {
            members.serialize_entry(counter.as_ref(), &value)?;
        }
        for (mark, is_set) in [("scaled", self.scaled), ("migrated", self.migrated)] {
            if is_set {
                members.serialize_entry(mark, &true)?;
            }
        }
        members.end()
    }
}

/// Counters of a whole process, all threads, from `since_ns` to `at_ns`. Written when the process
/// ends and when the recording does; the last one counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
pub struct ProcessCounters {
    /// Process id in the host's initial pid namespace.
    #[serde(skip)]
    pub pid: u32,
    /// When they started to count, in ns of CLOCK_MONOTONIC.
    pub since_ns: u64,
    /// When they were read, in ns of CLOCK_MONOTONIC.
    #[serde(skip)]
    pub at_ns: u64,
    /// Values accumulated from `since_ns` to `at_ns`, over all threads.
    #[serde(skip_serializing_if = "Counters::is_unset")]
    pub counters: Counters,
}

declare! {
    ProcessCounters: Phase::Meta, "gctrace_counters", "counters",
    pid: pid, at: at_ns, by: "--counters";
    fn check(&self) -> Result<(), &'static str> {
        if self.since_ns > self.at_ns {
            return Err("counters were read before they started");
        }
        Ok(())
    }
}
