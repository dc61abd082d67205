//! The part of a recording in a trace, if the recording keeps its last part only (`--keep`).
//!
//! Owns the exact totals of everything recorded before a segment: they stay when it is deleted.

use super::kind::{Phase, declare};
use super::{OmittedPauses, Pause};
use bitcode::{Decode, Encode};
use gctrace_units::{Count, Ns};
use serde::{Deserialize, Serialize};

/// The place of a segment in its recording, in its header. A segment is a trace of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[serde(default)]
pub struct Segment {
    /// Its number, from 1.
    pub number: u64,
    /// Start of the recording, in ns of CLOCK_MONOTONIC.
    pub recording_started_ns: u64,
    /// The same time as Unix time, in ns.
    pub recording_started_unix_ns: u64,
    /// Times off the CPU shorter than this were counted but not written, in ns.
    #[serde(skip_serializing_if = "is_zero")]
    pub min_wait_ns: u64,
    /// All that was recorded before it.
    pub before: RecordedTotals,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Exact totals of a part of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[serde(default)]
pub struct RecordedTotals {
    /// Pauses by generation, ascending, pauses of unknown generation last; generations without pauses are left out.
    /// Pauses that were only counted are in them.
    pub generations: Vec<GenerationTotal>,
    /// The pauses that were only counted: no segment ever had them.
    pub omitted: OmittedPauses,
    /// Times off the CPU, including times that were only counted.
    #[serde(skip_serializing_if = "OmittedPauses::is_none")]
    pub waits: OmittedPauses,
    /// The times off the CPU that were only counted.
    #[serde(skip_serializing_if = "OmittedPauses::is_none")]
    pub omitted_waits: OmittedPauses,
    /// Operations on GPUs, and their time there, including operations that were only counted.
    #[serde(skip_serializing_if = "OmittedPauses::is_none")]
    pub operations: OmittedPauses,
    /// Calls of CUDA and NCCL, and the time of threads in them, including calls that were only counted.
    #[serde(skip_serializing_if = "OmittedPauses::is_none")]
    pub calls: OmittedPauses,
    /// Events lost, in all places.
    pub lost: u64,
    /// Pauses, steps and turns above their limits that no folder has (`--on-pause`, `--on-step-slower`, `--on-turn`).
    #[serde(skip_serializing_if = "NotKept::is_none")]
    pub not_kept: NotKept,
}

/// Pauses and steps that were to be kept for good, and are not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[serde(default)]
pub struct NotKept {
    /// Number of them.
    pub count: u64,
    /// The longest, in ns.
    pub longest_ns: u64,
    /// The end of that, in ns of CLOCK_MONOTONIC.
    pub longest_at_ns: u64,
}

impl NotKept {
    /// There are none.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// GPU work of a process that a recorder only counted: operations that started and ended in an interval, and
/// calls. All of its GPU work that is neither in such an interval nor lost is in the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[serde(default)]
pub struct OmittedGpuWork {
    /// Process id in the host's initial pid namespace.
    #[serde(skip)]
    pub pid: u32,
    /// The first start of any of it, in ns of CLOCK_MONOTONIC.
    #[serde(skip)]
    pub since_ns: u64,
    /// The last end of any of it, in ns of CLOCK_MONOTONIC; not before `since_ns`.
    pub until_ns: u64,
    /// Operations, and their time on the GPU: of several at once each counts.
    pub operations: OmittedPauses,
    /// Calls of CUDA and NCCL, and the time of threads in them, as far as it was recorded.
    pub calls: OmittedPauses,
}

declare! {
    OmittedGpuWork: Phase::Meta, "gctrace_omitted_gpu_work", "omitted GPU work",
    pid: pid, at: since_ns, end: until_ns, by: "--per-day"
}

impl OmittedGpuWork {
    /// Adds other work, of the same process or of any; sums saturate.
    pub fn add(&mut self, more: &Self) {
        if self.operations.is_none() && self.calls.is_none() {
            self.since_ns = more.since_ns;
        }
        self.since_ns = self.since_ns.min(more.since_ns);
        self.until_ns = self.until_ns.max(more.until_ns);
        self.operations.add(more.operations);
        self.calls.add(more.calls);
    }
}

/// The pauses of one generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[serde(default)]
pub struct GenerationTotal {
    /// Generation, as of a pause; 255 if it is unknown.
    pub generation: u8,
    /// Number of pauses.
    pub count: Count,
    /// Sum of their lengths, in ns.
    pub total_ns: Ns,
    /// The longest, in ns.
    pub longest_ns: Ns,
    /// Objects freed, as far as that is known.
    pub collected: Count,
    /// Objects found unreachable but not freed, as far as that is known.
    pub uncollectable: Count,
}

impl RecordedTotals {
    /// Adds a pause that was written or counted.
    pub fn add(&mut self, pause: &Pause) {
        let length = Ns(pause.duration_ns());
        self.add_generation(&GenerationTotal {
            generation: pause.generation,
            count: Count(1),
            total_ns: length,
            longest_ns: length,
            collected: Count(pause.collected.unwrap_or(0)),
            uncollectable: Count(pause.uncollectable.unwrap_or(0)),
        });
    }

    /// Adds a pause that was only counted.
    pub fn add_omitted(&mut self, pause: &Pause) {
        self.add(pause);
        self.omitted.add(OmittedPauses::of(1, pause.duration_ns()));
    }

    fn add_generation(&mut self, more: &GenerationTotal) {
        let found = self.generations.binary_search_by_key(&more.generation, |of| of.generation);
        let place = found.unwrap_or_else(|place| {
            let none =
                GenerationTotal { generation: more.generation, ..GenerationTotal::default() };
            self.generations.insert(place, none);
            place
        });
        let Some(sum) = self.generations.get_mut(place) else { return };
        sum.count += more.count;
        sum.total_ns += more.total_ns;
        sum.longest_ns = sum.longest_ns.max(more.longest_ns);
        sum.collected += more.collected;
        sum.uncollectable += more.uncollectable;
    }

    /// Number of pauses.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.generations.iter().map(|of| of.count).sum::<Count>().0
    }

    /// Sum of the lengths of all pauses, in ns.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.generations.iter().map(|of| of.total_ns).sum::<Ns>().0
    }

    /// The longest pause, in ns; `None` without any.
    #[must_use]
    pub fn longest_ns(&self) -> Option<u64> {
        self.generations.iter().map(|of| of.longest_ns.0).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_by_generation_and_saturate() {
        let pause = |generation, end_ns| Pause {
            generation,
            end_ns,
            collected: Some(3),
            ..Pause::default()
        };
        let mut totals = RecordedTotals::default();
        for (generation, ns) in [(2, 50), (Pause::UNKNOWN_GENERATION, 7), (0, 10), (2, 20)] {
            totals.add(&pause(generation, ns));
        }
        totals.add_omitted(&pause(0, 5));
        let seen: Vec<_> =
            totals.generations.iter().map(|of| (of.generation, of.count.0)).collect();
        assert_eq!(seen, [(0, 2), (2, 2), (Pause::UNKNOWN_GENERATION, 1)]);
        assert_eq!((totals.count(), totals.total_ns()), (5, 92));
        assert_eq!(totals.longest_ns(), Some(50));
        assert_eq!(totals.omitted, OmittedPauses::of(1, 5));
        assert_eq!(totals.generations[1].collected, Count(6));
        totals.add(&pause(0, u64::MAX));
        assert_eq!(totals.total_ns(), u64::MAX);
        assert_eq!(RecordedTotals::default().longest_ns(), None);
    }
}
