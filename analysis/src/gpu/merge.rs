//! Merges traces of the PyTorch profiler with gctrace's of the same process.
//!
//! Owns which timelines belong to one process. `join.rs` merges two of them, `time/offset.rs` finds
//! their clock offset.

mod join;
mod thread_times;

use super::kept::KeptTimeline;
use super::timeline::ProcessTimeline;
use crate::report::{ClockReport, NotMerged, NotMergedReason, RecognizedBy};
use std::borrow::Cow;
use std::collections::HashSet;

/// Timelines of which no two are known to be of the same process at the same time.
#[derive(Clone, Debug)]
pub struct MergedTimelines<'a> {
    /// The timelines, with those of one process merged; trace by trace.
    pub timelines: Cow<'a, [KeptTimeline]>,
    /// The merges, with their clock offsets.
    pub clocks: Vec<ClockReport>,
    /// Timelines that may belong to one process and were not merged.
    pub not_merged: Vec<NotMerged>,
    /// Collections of the profiler's that gctrace has too: trace, process and start.
    pub repeated: HashSet<(usize, u32, u64)>,
}

/// First and last time of a trace, on its clock.
type Span = Option<(u64, u64)>;
/// First and last time of anything on a timeline, as Unix time in ns.
type Window = Option<(i128, i128)>;

/// Merges the timelines of each process. `spans`: by index of the trace.
#[must_use]
pub fn merge<'a>(timelines: &'a [KeptTimeline], spans: &[Span]) -> MergedTimelines<'a> {
    let mut merged = MergedTimelines {
        timelines: Cow::Borrowed(timelines),
        clocks: Vec::new(),
        not_merged: Vec::new(),
        repeated: HashSet::new(),
    };
    let ours: Vec<usize> = indices(timelines, |timeline| timeline.is_ours);
    let theirs = indices(timelines, |timeline| {
        !timeline.is_ours && (timeline.has_gpu_times() || !timeline.pauses.is_empty())
    });
    if ours.is_empty() {
        return merged;
    }
    let window = |at: usize| timelines[at].unix(timelines[at].window()?);
    let theirs: Vec<(usize, Window)> = theirs.into_iter().map(|at| (at, window(at))).collect();
    let mut joined: Vec<(usize, KeptTimeline)> = Vec::new();
    let mut used = HashSet::new();
    for (at, window) in &theirs {
        let theirs_ = &timelines[*at];
        match partner(timelines, spans, &ours, &theirs, (theirs_, *window)) {
            MergePartner::Found(index, recognized_by) => {
                let mut whole = timelines[index].whole().into_owned();
                whole.unpack();
                let pair = join::join(&whole, &theirs_.whole(), recognized_by);
                let starts = pair.repeated.into_iter();
                let repeated = starts.map(|start_ns| (theirs_.trace, theirs_.pid, start_ns));
                merged.repeated.extend(repeated);
                used.insert(index);
                joined.push((*at, pair.timeline.into()));
                merged.clocks.push(pair.clock);
            }
            MergePartner::None(why) => {
                merged.not_merged.push(NotMerged { trace: theirs_.trace, pid: theirs_.pid, why })
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
    spans: &[Span],
    ours: &[usize],
    theirs: &[(usize, Window)],
    (their, window): (&KeptTimeline, Window),
) -> MergePartner {
    let Some(window) = window else {
        return MergePartner::None(NotMergedReason::NoWallClock);
    };
    let span = |own: &KeptTimeline| own.unix(spans.get(own.trace).copied()??);
    let same_time =
        |own: &&usize| span(&timelines[**own]).is_some_and(|span| overlap(span, window));
    let candidates: Vec<usize> = ours.iter().filter(same_time).copied().collect();
    let rivals = theirs.iter().filter(|(at, _)| {
        let other = &timelines[*at];
        (other.trace, other.pid) != (their.trace, their.pid)
    });
    let alone = !rivals.filter_map(|(_, other)| *other).any(|other| overlap(other, window));
    choose(timelines, &candidates, their, alone)
}

/// Selects the timeline of the same process among those that overlap in time.
fn choose(
    timelines: &[KeptTimeline],
    candidates: &[usize],
    their: &KeptTimeline,
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
    let rank_fits =
        |own: &KeptTimeline| own.rank.is_none() || their.rank.is_none() || own.rank == their.rank;
    let namespace = |own: &KeptTimeline| own.namespace_pid == Some(their.pid) && rank_fits(own);
    let pid = |own: &KeptTimeline| own.pid == their.pid && rank_fits(own);
    let rank = |own: &KeptTimeline| own.rank.is_some() && own.rank == their.rank;
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
