//! Growth of a process over time, as figures.

use crate::figure::{Basis, Location};
use serde::Serialize;

/// Growth of a process over time, after its warm-up: for each series, the last part that one straight line describes,
/// from the first training step after the warm-up on, if steps are known. A series has at most 64 samples, each the
/// lowest value of its time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeapTrend {
    /// Always inferred: the trend of samples.
    pub basis: Basis,
    /// Objects left by full collections, without frozen ones, since the last freeze, if one was seen;
    /// `null` for fewer than five samples.
    pub objects: Option<Trend>,
    /// Resident memory of the process, in bytes; `null` for fewer than five samples.
    pub resident: Option<Trend>,
    /// Memory allocated on devices by PyTorch, in bytes; `null` for fewer than five samples.
    pub device: Option<Trend>,
    /// Whether resident memory rises and the objects do not: it is native code's, the allocator's or a
    /// device's, or in few large objects. `null` unless resident memory rises and the trend of the
    /// objects is known, or `lines` explain half of it.
    pub outside_python: Option<bool>,
    /// If objects or resident memory rise, the lines of birth with a rising number of living objects, the fastest
    /// first, at most three: of a sample of all allocations of objects (`--alloc`, in-process).
    pub lines: Vec<GrowingLine>,
    /// Whether the end of its set-up is known, by training steps. Otherwise a rise may be of the set-up
    /// still, where that is most of the recording.
    pub has_set_up: bool,
    /// Resident memory at the last sample, in bytes; `null` if unknown.
    pub resident_bytes: Option<u64>,
    /// Memory that the process may use, in bytes: the smallest limit of its cgroups, or the machine's memory; `null`
    /// if unknown.
    pub memory_limit_bytes: Option<u64>,
    /// When its resident memory reaches the limit if it rises as before; `null` unless it rises and
    /// the limit is known, and if that takes more than ten times the time of the trend.
    pub reaches_limit: Option<ReachesLimit>,
    /// By how much the resident memory rose, its start included; `null` unless it rose to the end, by half of its
    /// last value and by 16 MiB.
    pub rise: Option<MemoryRise>,
}

impl HeapTrend {
    /// A rise that takes this long, in ns, is no set-up: services take minutes for theirs.
    const NO_SET_UP_NS: u64 = 600_000_000_000;

    /// The rising trends.
    fn rising(&self) -> impl Iterator<Item = Trend> {
        let all = [self.objects, self.resident, self.device];
        all.into_iter().flatten().filter(|trend| trend.rises)
    }

    /// Whether objects or memory rise.
    pub fn rises(&self) -> bool {
        self.rising().next().is_some()
    }

    /// The longest time of the rising trends or, if none rises, of any trend, in ns.
    pub fn duration_ns(&self) -> u64 {
        let all = [self.objects, self.resident, self.device];
        let longest =
            |trends: &mut dyn Iterator<Item = Trend>| trends.map(|trend| trend.duration_ns).max();
        longest(&mut self.rising()).or_else(|| longest(&mut all.into_iter().flatten())).unwrap_or(0)
    }

    /// Whether the rise may still be its set-up: no steps show the end of it, and it is no longer than set-up may be.
    pub fn may_be_set_up(&self) -> bool {
        !self.has_set_up && self.duration_ns() < Self::NO_SET_UP_NS
    }
}

/// How far the resident memory rose from its first reading to its last, readings at the exit left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemoryRise {
    /// The first reading, in bytes.
    pub from_bytes: u64,
    /// The last, in bytes.
    pub to_bytes: u64,
    /// Time between them, in ns.
    pub duration_ns: u64,
}

impl MemoryRise {
    /// The rise, in bytes.
    pub fn bytes(&self) -> u64 {
        crate::time::beyond(self.to_bytes, self.from_bytes)
    }
}

/// A line with an ever growing number of living objects.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GrowingLine {
    /// The line. Objects of types with free lists (list, dict, tuple, float) do not count: their memory may belong to
    /// an object of another line.
    pub location: Location,
    /// Objects alive that it allocated.
    pub objects: Trend,
    /// Their blocks, in bytes; without memory that they own elsewhere (arrays, items of lists). `null` if the blocks
    /// do not rise by more than chance.
    pub bytes: Option<Trend>,
}

/// How fast a figure changes: Theil-Sen slope with its 95 % interval, and Mann-Kendall test.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Trend {
    /// Number of samples that it rests on.
    pub samples: u64,
    /// Start of its time, in ns after the start of the process's recording: the end of the warm-up.
    pub since_ns: u64,
    /// Time from the first to the last of them, in ns.
    pub duration_ns: u64,
    /// Change per second; negative if it falls.
    pub per_s: f64,
    /// Lower end of the interval.
    pub at_least_per_s: f64,
    /// Upper end of the interval.
    pub at_most_per_s: f64,
    /// Two-sided p of no trend, 0 to 1, if the samples are independent.
    pub p_value: f64,
    /// Whether it rises: `p_value` is below 0.01, the interval above 0, also for each half of its samples (or four
    /// and more are on a straight line); the last third of its time rises at least half as fast; the rise is at least
    /// 1 % of the last value; its time is 30 s or more and at least half of the recording of the process (after the
    /// set-up, if known), and ends in the last third of it. Or it rises by half of its last value, however crooked,
    /// and the last third of its time takes a tenth of that.
    pub rises: bool,
    /// Whether it does not rise so, but fewer than 8 samples or less than 30 s are too few to say that it does not.
    pub is_unclear: bool,
    /// Whether it does not rise so, but the second half of the recording does, by more than chance, in both halves of
    /// that, and by 1 % or more: a cache that fills, or a leak that slows down.
    pub slows: bool,
}

impl Trend {
    /// Whether it is known not to rise.
    pub(crate) fn stands_still(&self) -> bool {
        !self.rises && !self.is_unclear && !self.slows && self.at_least_per_s <= 0.0
    }
}

/// When a limit is reached, from the last sample on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReachesLimit {
    /// Always predicted.
    pub basis: Basis,
    /// By the upper end of the slope's interval, in ns.
    pub at_least_ns: u64,
    /// By the slope, in ns.
    pub likely_ns: u64,
    /// By the lower end of the slope's interval, in ns.
    pub at_most_ns: u64,
}
