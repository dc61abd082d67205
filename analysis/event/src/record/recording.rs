//! The recording itself: its settings, the source of its events, the processes that it examined, and its end.

use super::kind::{Phase, declare};
use super::{RecordedTotals, Segment};
use bitcode::{Decode, Encode};
use gctrace_units::{Count, Ns, add_to, duration_ns, sum};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use strum::AsRefStr;

/// The source of a recording's collections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[serde(rename_all = "lowercase")]
#[derive(AsRefStr)]
#[strum(serialize_all = "lowercase")]
pub enum RecordingMode {
    /// The kernel's probes; also of traces from before there was a choice.
    #[default]
    Ebpf,
    /// The injected library, in-process.
    Inject,
    /// Both.
    Both,
    /// A word of a later gctrace.
    #[serde(untagged)]
    #[strum(transparent)]
    Other(String),
}

/// The first line of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[serde(default)]
pub struct TraceHeader {
    /// Format name and version; readers accept [`crate::FORMAT`] only.
    pub format: String,
    /// Version of gctrace that recorded it.
    pub gctrace: String,
    /// The command, or empty when attached to a process.
    pub command: Vec<String>,
    /// The process attached to with `-p`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attached_pid: Option<u32>,
    /// Host name of the machine, as in `uname -n`; empty if unknown.
    pub host: String,
    /// Kernel release, as in `uname -r`.
    pub kernel: String,
    /// Logical CPUs that gctrace could use (affinity mask and cgroup quota considered);
    /// `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "known_count")]
    pub cpus: Option<u32>,
    /// Commit that is checked out in the command's working directory, as a hexadecimal hash;
    /// `None` outside of Git repositories, when attached, and if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git_commit: Option<String>,
    /// Whether tracked files of that working directory differ from the index of the repository;
    /// `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git_modified: Option<bool>,
    /// Rank of the whole recording, if gctrace's environment contains it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Start of the recording, in ns of CLOCK_MONOTONIC.
    pub started_ns: u64,
    /// The same time as Unix time, in ns.
    pub started_unix_ns: u64,
    /// Pauses shorter than this were counted but not written.
    pub min_pause_ns: u64,
    /// Whether the children of recorded processes were recorded as well.
    pub follow: bool,
    /// Maximum number of frames recorded per stack; 0 if stacks were not recorded.
    pub stack_depth: u32,
    /// The CUDA calls that were recorded (`--cuda`): `all`, `launches`, `sync` or `off`; absent in older traces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cuda: Option<String>,
    /// The Python function that marks training steps by its calls (`--step-function`), as given; `None` without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_function: Option<String>,
    /// Samples a second of CPU time of each thread (`--sample`); `None` without samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample_hz: Option<u32>,
    /// How it was recorded (`--mode`, as decided).
    pub mode: RecordingMode,
    /// Names of the counters that were recorded ([`crate::Counter`]).
    pub counters: Vec<String>,
    /// Requested counters that could not be opened, by name, with the reason.
    pub counters_missing: BTreeMap<String, String>,
    /// The part of the recording that this trace is (`--keep`); `None`: all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segment: Option<Segment>,
}

/// A count that older traces state as 0 if it is unknown.
fn known_count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let count = u32::deserialize(deserializer)?;
    Ok(if count > 0 { Some(count) } else { None })
}

/// The cost of one kind of probe.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
#[serde(default)]
pub struct ProbeCost {
    /// Name of the probe, for example `collector, entry and return`.
    pub probe: String,
    /// Times it was hit in recorded processes; if its name ends in `not recorded`, in other processes of the machine.
    pub hits: u64,
    /// Likely CPU time per hit, of the thread that hit it: measured as the programs ran and on this machine at the end
    /// of the recording; `None` if that failed. For stops of a program: their length.
    pub ns_per_hit: Option<f64>,
    /// The range that contains it, least and most: code outside of ours is measured with warm and with cold caches.
    /// `None` if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns_per_hit_range: Option<[f64; 2]>,
}

impl Eq for ProbeCost {}

/// The cost of a hit, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HitCost {
    /// If caches are warm.
    pub least_ns: f64,
    /// The likely cost.
    pub likely_ns: f64,
    /// If caches are cold.
    pub most_ns: f64,
}

impl HitCost {
    /// A cost that is measured, all of it.
    #[must_use]
    pub fn exactly(ns: f64) -> Self {
        Self { least_ns: ns, likely_ns: ns, most_ns: ns }
    }

    /// Between a least and a most cost; likely is their geometric mean.
    #[must_use]
    pub fn between(least_ns: f64, most_ns: f64) -> Self {
        let most_ns = most_ns.max(least_ns);
        Self { least_ns, likely_ns: (least_ns * most_ns).sqrt(), most_ns }
    }

    /// That many of it.
    #[must_use]
    pub fn times(self, ratio: f64) -> Self {
        Self {
            least_ns: self.least_ns * ratio,
            likely_ns: self.likely_ns * ratio,
            most_ns: self.most_ns * ratio,
        }
    }

    /// The cost of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            least_ns: self.least_ns + other.least_ns,
            likely_ns: self.likely_ns + other.likely_ns,
            most_ns: self.most_ns + other.most_ns,
        }
    }
}

impl ProbeCost {
    /// The cost of a kind of probe; `None`: it could not be measured.
    #[must_use]
    pub fn new(probe: &str, hits: u64, each: Option<HitCost>) -> Self {
        let range = each.filter(|each| each.least_ns < each.most_ns);
        Self {
            probe: probe.to_owned(),
            hits,
            ns_per_hit: each.map(|each| each.likely_ns),
            ns_per_hit_range: range.map(|each| [each.least_ns, each.most_ns]),
        }
    }

    /// The cost of a hit, if it is known and a number.
    #[must_use]
    pub fn each(&self) -> Option<HitCost> {
        let likely_ns = self.ns_per_hit?;
        let [least_ns, most_ns] = self.ns_per_hit_range.unwrap_or([likely_ns; 2]);
        let all = [least_ns, likely_ns, most_ns];
        let is_sound = all.iter().all(|ns| ns.is_finite() && *ns >= 0.0) && all.is_sorted();
        if is_sound { Some(HitCost { least_ns, likely_ns, most_ns }) } else { None }
    }

    /// Times of stopped programs before they had their probes: no CPU time.
    pub const STOPPED: &str = "program stopped";

    /// The probes on the collector, hit in other processes that run the same interpreter file.
    pub const COLLECTOR_ELSEWHERE: &str = "collector, in processes that are not recorded";
    /// The probes on CUDA calls, hit in other processes that use the same libraries.
    pub const CUDA_ELSEWHERE: &str = "CUDA calls in processes not recorded";

    /// The probe on the end of code objects, hit in such processes: at the end of a program mostly.
    pub const CODE_ELSEWHERE: &str = "code objects freed in processes not recorded";

    /// Whether its cost fell on other processes of the machine, and not on recorded ones.
    #[must_use]
    pub fn is_elsewhere(&self) -> bool {
        [Self::COLLECTOR_ELSEWHERE, Self::CUDA_ELSEWHERE, Self::CODE_ELSEWHERE]
            .contains(&self.probe.as_str())
    }
}

/// Pauses shorter than `--min-pause`, or times off the CPU, that were counted but not written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[serde(default)]
pub struct OmittedPauses {
    /// Number of them.
    pub count: Count,
    /// Sum of their lengths, in ns.
    pub total_ns: Ns,
}

impl OmittedPauses {
    /// That many, with the sum of their lengths in ns.
    #[must_use]
    pub fn of(count: u64, total_ns: u64) -> Self {
        Self { count: Count(count), total_ns: Ns(total_ns) }
    }

    /// Adds others.
    pub fn add(&mut self, other: Self) {
        self.count += other.count;
        self.total_ns += other.total_ns;
    }

    /// The difference to an earlier count.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self { count: self.count - before.count, total_ns: self.total_ns - before.total_ns }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Collections that were not lost: a recording in-process cannot see them, but the interpreter counts
/// them. Not of processes, and not of interpreters, that are not recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[serde(default)]
pub struct UnseenCollections {
    /// Number of collections of interpreters before the library's hook was in place.
    pub at_start: u64,
    /// Number of the last collections of interpreters: no callback is called for them.
    pub at_end: u64,
    /// Number of starts and ends of interpreters with collections that could not be counted; they are in neither of the
    /// others.
    pub uncounted: u64,
    /// CPU time that the ends of interpreters took, after the last function of `atexit`, in ns: their last
    /// collections and all else that is freed. 0 if unknown.
    #[serde(skip_serializing_if = "is_zero")]
    pub end_ns: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl UnseenCollections {
    /// Adds others; sums saturate.
    pub fn add(&mut self, other: Self) {
        for (sum, more) in [
            (&mut self.at_start, other.at_start),
            (&mut self.at_end, other.at_end),
            (&mut self.uncounted, other.uncounted),
            (&mut self.end_ns, other.end_ns),
        ] {
            add_to(sum, more);
        }
    }
}

/// The last line of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[serde(default)]
pub struct TraceEnd {
    /// End of the recording, in ns of CLOCK_MONOTONIC.
    pub ended_ns: u64,
    /// Why it ended, in words: `the command ended`, `interrupted`, `disk full`, ...
    pub why: String,
    /// Exit code of the command as a shell would show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Events lost, by where (`ring buffer full`, ...). Empty means that no event of an examined
    /// process was lost.
    pub lost: BTreeMap<String, u64>,
    /// Collections of all processes that the library could not see; `None` with probes (they see them), and in older
    /// traces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unseen: Option<UnseenCollections>,
    /// The examined processes; absent in older traces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<ExaminedProcesses>,
    /// Pauses under `--min-pause`; the trace does not contain them.
    pub omitted: OmittedPauses,
    /// Times off the CPU that the trace does not contain, of a recorder beyond `--per-day`.
    #[serde(skip_serializing_if = "OmittedPauses::is_none")]
    pub omitted_waits: OmittedPauses,
    /// Other records that the trace does not contain, of a recorder beyond `--per-day`, by name, with their time where
    /// they have one: `called` (calls of finalizers and callbacks of pauses that were only counted), `layers` (measured
    /// steps), `memory` (readings of device memory), `memory_calls` (CUDA calls about memory and failed CUDA calls),
    /// `backward` (backward passes in steps with other marks), `gpu_samples`, and `samples`, CPU samples that are in
    /// the `count` of a later record of their process, so that none is missing.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub omitted_others: BTreeMap<String, OmittedPauses>,
    /// Overhead of recording, one entry for each kind of probe.
    pub probes: Vec<ProbeCost>,
    /// In a segment: exact totals of the recording until then, including records that are in no segment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub totals: Option<RecordedTotals>,
    /// CPU time of the recorded programs while they were recorded; `None` if unknown, and in traces
    /// from before that was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<u64>,
}

declare! { TraceEnd: Phase::Meta, "gctrace_end", "the end of the recording", at: ended_ns }

impl TraceEnd {
    /// [`Self::why`] of a recording with a command that ended by itself.
    pub const COMMAND_ENDED: &str = "the command ended";

    /// Calls of finalizers and callbacks by collections that were only counted, and their time.
    pub const CALLED: &str = "called";
    /// Backward passes in steps with other marks, and their time.
    pub const BACKWARD: &str = "backward";
}

/// The processes of a recording by the result of their examination. A forked child without an exec of its own counts
/// like its parent.
///
/// If `other` is known and `unexamined` is empty, only the events that `lost` counts are missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[serde(default)]
pub struct ExaminedProcesses {
    /// Number of processes with a Python interpreter.
    pub python: u64,
    /// Examined processes without a Python interpreter; absent where such processes are not counted (recorded
    /// in-process: the library reports itself only where it finds Python).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other: Option<u64>,
    /// Processes that may have run Python without being recorded, or for longer than recorded, by
    /// reason: a predicate such as `ended before being examined`.
    pub unexamined: BTreeMap<String, u64>,
}

impl ExaminedProcesses {
    /// Processes that could have run Python unseen.
    #[must_use]
    pub fn unexamined(&self) -> u64 {
        sum(self.unexamined.values())
    }

    /// Every process that could have run Python was examined.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.other.is_some() && self.unexamined.is_empty()
    }
}

/// The source of an event. All timestamps are of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub enum EventSource {
    /// Probes on the functions themselves (eBPF), from outside. In traces of other tools: whatever that tool has.
    #[default]
    Probes,
    /// gctrace's library within the process: `gc.callbacks` for collections, CUPTI for calls.
    Injected,
    /// Both. The event has the probes' times.
    Both {
        /// Start as recorded in-process.
        start_ns: u64,
        /// End as recorded in-process; never before `start_ns`.
        end_ns: u64,
    },
}

/// As members of its event; none for probes, as in traces from before there was another source.
impl Serialize for EventSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(None)?;
        match *self {
            Self::Probes => {}
            Self::Injected => members.serialize_entry("source", "injected")?,
            Self::Both { start_ns, end_ns } => {
                members.serialize_entry("source", "both")?;
                members.serialize_entry("injected_ts", &us(start_ns))?;
                members.serialize_entry("injected_dur", &us(duration_ns(start_ns, end_ns)))?;
            }
        }
        members.end()
    }
}

/// Nanoseconds as microseconds with exactly three decimals.
fn us(ns: u64) -> Option<Box<RawValue>> {
    RawValue::from_string(format!("{}.{:03}", ns / 1000, ns % 1000)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_cpus_of_older_traces_are_unknown() {
        for (args, cpus) in [(r#"{"cpus":0}"#, None), ("{}", None), (r#"{"cpus":8}"#, Some(8))] {
            let header: TraceHeader = serde_json::from_str(args).unwrap();
            assert_eq!(header.cpus, cpus, "{args}");
        }
    }
}
