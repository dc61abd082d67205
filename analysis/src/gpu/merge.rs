//! Merges traces of the PyTorch profiler with gctrace's of the same process.
//!
//! Finds the timelines of one process. `join.rs` merges two of them, `time/offset.rs` finds their clock offset.

mod join;
mod thread_times;

use super::kept::KeptTimeline;
use super::timeline::{GpuPart, ProcessTimeline};
use crate::figure::{Basis, serialized_as_text};
use crate::spans::FirstToLast;
use serde::Serialize;
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

serialized_as_text!(NotMergedReason, MergeNote);

/// Why a trace of the PyTorch profiler was not merged with one of gctrace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotMergedReason {
    /// Its timestamps cannot be converted to wall-clock time.
    NoWallClock,
    /// gctrace's trace of the process contains GPU work, too.
    GpuWorkInBoth,
    /// No gctrace trace overlaps it in time.
    NoOverlap,
    /// This number of gctrace's processes could be the same one.
    Ambiguous(usize),
}

impl fmt::Display for NotMergedReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoWallClock => formatter.write_str(
                "its timestamps cannot be converted to wall-clock time (no \
                 \"baseTimeNanoseconds\"), so the gctrace trace of the same time cannot be found",
            ),
            Self::GpuWorkInBoth => formatter.write_str(
                "gctrace's trace of this process contains GPU work, too; both are counted",
            ),
            Self::NoOverlap => formatter.write_str("no gctrace trace overlaps it in time"),
            Self::Ambiguous(candidates) => write!(
                formatter,
                "{candidates} processes of gctrace's traces could be this one: neither process id \
                 nor rank identifies it"
            ),
        }
    }
}

/// A remark on a merge of two traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeNote {
    /// This thread of the profiler is assumed to be the main thread, although the ids differ.
    AssumedMainThread(u32),
    /// This thread of gctrace was not found in the profiler's trace.
    SeparateThread(u32),
    /// There was no collection while the profiler ran.
    NoCollection,
}

impl fmt::Display for MergeNote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AssumedMainThread(tid) => write!(
                formatter,
                "The main thread's id is not in the profiler's trace; thread {tid}, which launches \
                 the most, is assumed to be the main thread."
            ),
            Self::SeparateThread(tid) => write!(
                formatter,
                "Thread {tid} of gctrace's trace was not found in the profiler's, whose thread ids \
                 are of another namespace: its collections are attributed to a separate thread."
            ),
            Self::NoCollection => formatter.write_str(
                "gctrace recorded no collection while the profiler ran, so no cost to the GPU can \
                 be reported for that time.",
            ),
        }
    }
}

/// A trace of the PyTorch profiler that was merged with gctrace's trace of the same process. The
/// report treats them as one: operations, calls and steps are the profiler's, pauses are gctrace's.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClockReport {
    /// Basis of `offset_ns`: measured if the same calls or collections were found in both traces,
    /// inferred if it rests on the wall clocks.
    pub basis: Basis,
    /// Index in `traces` of the profiler's trace.
    pub trace: usize,
    /// Index in `traces` of gctrace's trace.
    pub gc_trace: usize,
    /// Process id on the host, from gctrace's trace.
    pub pid: u32,
    /// Process id in the profiler's trace; differs from `pid` in a pid namespace.
    pub profiler_pid: u32,
    /// How the two traces were matched to one process.
    pub recognized_by: RecognizedBy,
    /// What the clock offset was computed from.
    pub aligned_by: AlignedBy,
    /// Clock offset in ns: added to a timestamp of gctrace's trace it gives the profiler's.
    pub offset_ns: i64,
    /// `offset_ns` minus the offset of the wall clocks, in ns.
    pub beyond_wall_clock_ns: i64,
    /// Error of the offset, in ns: median absolute deviation of the matches. `null` if aligned by
    /// the wall clocks alone.
    pub error_ns: Option<u64>,
    /// The sources of error that `error_ns` covers and omits, as text.
    pub error_basis: String,
    /// Number of matched calls or collections that the offset rests on.
    pub matches: u64,
    /// Pauses of gctrace's trace within the time that the profiler covers.
    pub pauses: u64,
    /// Pauses of gctrace's trace outside that time; they are in no figure of GPU work.
    pub pauses_outside: u64,
    /// Collections in both traces; the report counts them once, as gctrace's.
    pub pauses_in_both: u64,
    /// Collections only in the profiler's trace; they are included.
    pub pauses_of_profiler_only: u64,
    /// Remarks on the merge, one sentence each.
    pub notes: Vec<MergeNote>,
}

/// How two traces were matched to one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RecognizedBy {
    /// Same process id, overlapping in time.
    ProcessId,
    /// The profiler's process id is the process's id in its own namespace; overlapping in time.
    NamespaceProcessId,
    /// Same rank, overlapping in time.
    Rank,
    /// The only two traces that overlap in time.
    Time,
}

/// What a clock offset was computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AlignedBy {
    /// CUDA calls in both traces.
    Calls,
    /// Collections in both traces.
    Pauses,
    /// The wall-clock time that each trace states for its timestamps.
    WallClock,
}

impl AlignedBy {
    /// The sources of error that the error of the clock offset covers and omits.
    pub(crate) fn error_basis(self) -> &'static str {
        match self {
            Self::Calls => {
                "median absolute deviation of the start differences of calls in both traces; a \
                 constant delay between the two tools, some microseconds, cannot be detected"
            }
            Self::Pauses => {
                "median absolute deviation of the midpoint differences of collections in both \
                 traces; a constant delay between the two tools, some microseconds, cannot be \
                 detected"
            }
            Self::WallClock => {
                "not measured: the traces share no calls and no collections that could be matched. \
                 The profiler's conversion to wall-clock time is off by some microseconds; if the \
                 wall clock was set between the starts of gctrace and the profiler, the offset is \
                 wrong by that amount"
            }
        }
    }
}

/// A trace of the PyTorch profiler that could not be merged with one of gctrace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NotMerged {
    /// Index in `traces` of the profiler's trace.
    pub trace: usize,
    /// Process id as the profiler's trace states it; 0 if it contains none.
    pub pid: u32,
    /// Why it was not merged, as text.
    pub why: NotMergedReason,
}

/// Timelines: no two are known to be of the same process at the same time.
#[derive(Clone, Debug)]
pub struct MergedTimelines<'a> {
    /// The timelines, merged where two are of one process; trace by trace.
    pub timelines: Cow<'a, [KeptTimeline]>,
    /// The merges, with their clock offsets.
    pub clocks: Vec<ClockReport>,
    /// Timelines that may belong to one process and were not merged.
    pub not_merged: Vec<NotMerged>,
    /// Collections of the profiler's that gctrace has too: trace, process and start.
    pub repeated: HashSet<(usize, u32, u64)>,
}

/// First and last time of anything on a timeline, as Unix time in ns.
type Window = Option<(i128, i128)>;

/// Merges the timelines of each process. `spans`: by index of the trace.
pub fn merge<'a>(timelines: &'a [KeptTimeline], spans: &[FirstToLast]) -> MergedTimelines<'a> {
    let mut merged = MergedTimelines {
        timelines: Cow::Borrowed(timelines),
        clocks: Vec::new(),
        not_merged: Vec::new(),
        repeated: HashSet::new(),
    };
    let recorded: Vec<usize> =
        indices(timelines, |timeline| timeline.is_ours && timeline.gpu_part != Some(GpuPart::Kept));
    let profiles = indices(timelines, |timeline| {
        !timeline.is_ours && (timeline.has_gpu_times() || !timeline.pauses.is_empty())
    });
    if recorded.is_empty() {
        return merged;
    }
    let window = |at: usize| timelines[at].unix(timelines[at].window()?);
    let profiles: Vec<(usize, Window)> = profiles.into_iter().map(|at| (at, window(at))).collect();
    let mut joined: Vec<(usize, KeptTimeline)> = Vec::new();
    let mut used = HashSet::new();
    for (at, window) in &profiles {
        let profiled = &timelines[*at];
        match partner(timelines, spans, &recorded, &profiles, (profiled, *window)) {
            MergePartner::Found(index, recognized_by) => {
                let mut whole = timelines[index].whole().into_owned();
                whole.unpack();
                let pair = join::join(&whole, &profiled.whole(), recognized_by);
                let starts = pair.repeated.into_iter();
                let repeated = starts.map(|start_ns| (profiled.trace, profiled.pid, start_ns));
                merged.repeated.extend(repeated);
                used.insert(index);
                joined.push((*at, pair.timeline.into()));
                merged.clocks.push(pair.clock);
            }
            MergePartner::None(why) => {
                merged.not_merged.push(NotMerged { trace: profiled.trace, pid: profiled.pid, why })
            }
        }
    }
    if !joined.is_empty() {
        merged.timelines = Cow::Owned(with(timelines, &used, joined));
    }
    merged
}

fn indices(timelines: &[KeptTimeline], is: impl Fn(&KeptTimeline) -> bool) -> Vec<usize> {
    let all = timelines.iter().enumerate();
    all.filter_map(|(at, timeline)| if is(timeline) { Some(at) } else { None }).collect()
}

/// The timelines without the used ones, with the joined ones in place of their parts.
fn with(
    timelines: &[KeptTimeline],
    used: &HashSet<usize>,
    joined: Vec<(usize, KeptTimeline)>,
) -> Vec<KeptTimeline> {
    let mut joined = joined.into_iter().peekable();
    let mut list = Vec::new();
    for (at, timeline) in timelines.iter().enumerate() {
        match joined.next_if(|(index, _)| *index == at) {
            Some((_, joined)) => list.push(joined),
            None if used.contains(&at) => {}
            None => list.push(timeline.clone()),
        }
    }
    list
}

/// The gctrace timeline that a profiler's timeline belongs to.
enum MergePartner {
    Found(usize, RecognizedBy),
    None(NotMergedReason),
}

fn partner(
    timelines: &[KeptTimeline],
    spans: &[FirstToLast],
    recorded: &[usize],
    profiles: &[(usize, Window)],
    (profiled, window): (&KeptTimeline, Window),
) -> MergePartner {
    let Some(window) = window else {
        return MergePartner::None(NotMergedReason::NoWallClock);
    };
    let span = |timeline: &KeptTimeline| timeline.unix(spans.get(timeline.trace).copied()??);
    let same_time =
        |index: &&usize| matches!(span(&timelines[**index]), Some(span) if overlap(span, window));
    let candidates: Vec<usize> = recorded.iter().filter(same_time).copied().collect();
    let rivals = profiles.iter().filter(|(at, _)| {
        let other = &timelines[*at];
        (other.trace, other.pid) != (profiled.trace, profiled.pid)
    });
    let alone = !rivals.filter_map(|(_, other)| *other).any(|other| overlap(other, window));
    choose(timelines, &candidates, profiled, alone)
}

/// Selects the timeline of the same process among the timelines that overlap in time.
fn choose(
    timelines: &[KeptTimeline],
    candidates: &[usize],
    profiled: &KeptTimeline,
    alone: bool,
) -> MergePartner {
    let only = |is: &dyn Fn(&KeptTimeline) -> bool| {
        let fits = |at: &&usize| is(&timelines[**at]);
        let mut fitting = candidates.iter().filter(fits);
        match (fitting.next(), fitting.next()) {
            (Some(at), None) => Some(*at),
            _ => None,
        }
    };
    let rank_fits = |timeline: &KeptTimeline| {
        timeline.rank.is_none() || profiled.rank.is_none() || timeline.rank == profiled.rank
    };
    let namespace = |timeline: &KeptTimeline| {
        timeline.namespace_pid == Some(profiled.pid) && rank_fits(timeline)
    };
    let pid = |timeline: &KeptTimeline| timeline.pid == profiled.pid && rank_fits(timeline);
    let rank = |timeline: &KeptTimeline| timeline.rank.is_some() && timeline.rank == profiled.rank;
    let found = [
        (only(&namespace), RecognizedBy::NamespaceProcessId),
        (only(&pid), RecognizedBy::ProcessId),
        (only(&rank), RecognizedBy::Rank),
        (only(&|_| alone && candidates.len() == 1), RecognizedBy::Time),
    ];
    let found = found.into_iter().find_map(|(at, by)| Some((at?, by)));
    match found {
        Some((at, _)) if timelines[at].has_gpu_times() => {
            MergePartner::None(NotMergedReason::GpuWorkInBoth)
        }
        Some((at, by)) => MergePartner::Found(at, by),
        None if candidates.is_empty() => MergePartner::None(NotMergedReason::NoOverlap),
        None => MergePartner::None(NotMergedReason::Ambiguous(candidates.len())),
    }
}

fn overlap(one: (i128, i128), other: (i128, i128)) -> bool {
    one.0 <= other.1 && other.0 <= one.1
}

impl ProcessTimeline {
    /// An interval of its time as Unix time in ns; `None` if unknown.
    fn unix(&self, (start_ns, end_ns): (u64, u64)) -> Option<(i128, i128)> {
        let offset = i128::from(self.unix_offset_ns?);
        Some((i128::from(start_ns) + offset, i128::from(end_ns) + offset))
    }
}
