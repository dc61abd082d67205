//! Merges traces of the PyTorch profiler with gctrace's of the same process.
//!
//! Owns which timelines belong to one process. `join.rs` merges two of them, `time/offset.rs` finds
//! their clock offset.

mod join;
mod thread_times;

use super::kept::KeptTimeline;
use super::timeline::{GpuPart, ProcessTimeline};
use crate::report::{ClockReport, NotMerged, NotMergedReason, RecognizedBy};
use crate::spans::FirstToLast;
use std::borrow::Cow;
use std::collections::HashSet;

/// Timelines, no two of which are known to be of the same process at the same time.
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
#[must_use]
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
    all.filter(|(_, timeline)| is(timeline)).map(|(at, _)| at).collect()
}

/// The timelines without those used up, the joined ones in place of what they were made of.
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
        |index: &&usize| span(&timelines[**index]).is_some_and(|span| overlap(span, window));
    let candidates: Vec<usize> = recorded.iter().filter(same_time).copied().collect();
    let rivals = profiles.iter().filter(|(at, _)| {
        let other = &timelines[*at];
        (other.trace, other.pid) != (profiled.trace, profiled.pid)
    });
    let alone = !rivals.filter_map(|(_, other)| *other).any(|other| overlap(other, window));
    choose(timelines, &candidates, profiled, alone)
}

/// Selects the timeline of the same process among those that overlap in time.
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
