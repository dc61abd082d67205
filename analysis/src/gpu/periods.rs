//! Training steps of a process without marks of them, by launches that recur.
//!
//! Owns when launches are periodic: a kernel of the busiest stream, the anchor, recurs after a
//! constant number of kernels. A wrong period would be worse than none, so periods that are parts
//! of longer ones (the layers of a model) are refused.

use super::timeline::{
    CallIndex, NameIndex, Op, StepSource, StepSpan, StreamIndex, ThreadIndex, Timeline,
};
use gctrace_event::GpuOpKind;
use std::collections::{BTreeMap, HashMap};

/// Fewer occurrences than this do not show a period.
const FEWEST: usize = 20;
/// Fewer kernels than this are no training step.
const SHORTEST: usize = 4;
/// Kernel names that are tried, the rarest first.
const TRIED: usize = 64;
/// At least this many of ten periods have the same number of kernels, and these contain this part
/// of all kernels from the first anchor to the last.
const REGULAR_OF_TEN: usize = 9;

/// The steps of a timeline by its launches; empty if they are not periodic.
pub(super) fn steps(timeline: &Timeline) -> Vec<StepSpan> {
    let Some(stream) = busiest(timeline) else { return Vec::new() };
    let Some(calls) = anchor(timeline, stream) else { return Vec::new() };
    let calls = calls.iter().map(|call| &timeline.calls[*call]);
    let mut threads: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for call in calls {
        threads.entry(call.thread).or_default().push((call.start_ns, None));
    }
    // Steps are of one thread: a program with threads that take turns launches no step on any.
    let (Some((thread, mut marks)), None) = (threads.pop_first(), threads.pop_first()) else {
        return Vec::new();
    };
    marks.sort_unstable();
    marks.dedup();
    steps_between(StepSource::PeriodicLaunches, thread, &marks)
}

/// Steps from each mark to the next; marks are in order, each with the CPU time of the thread then.
pub(super) fn steps_between(
    source: StepSource,
    thread: ThreadIndex,
    marks: &[(u64, Option<u64>)],
) -> Vec<StepSpan> {
    let steps = (0..).zip(marks.windows(2)).map(|(number, pair)| {
        let ((start_ns, start_cpu_ns), (end_ns, end_cpu_ns)) = (pair[0], pair[1]);
        let cpu_ns = match (start_cpu_ns, end_cpu_ns) {
            (Some(start), Some(end)) => end.checked_sub(start),
            _ => None,
        };
        StepSpan { start_ns, end_ns, thread, cpu_ns, number, source }
    });
    steps.collect()
}

/// The stream with the most kernels; the first if there are several.
fn busiest(timeline: &Timeline) -> Option<StreamIndex> {
    let mut counts: BTreeMap<StreamIndex, usize> = BTreeMap::new();
    for op in timeline.ops.iter().filter(|op| op.kind == GpuOpKind::Kernel) {
        *counts.entry(op.stream).or_default() += 1;
    }
    let most = counts.into_iter().rev().max_by_key(|(_, count)| *count);
    most.map(|(stream, _)| stream)
}

/// The calls that launched the rarest kernel that recurs regularly.
fn anchor(timeline: &Timeline, stream: StreamIndex) -> Option<Vec<CallIndex>> {
    let kernels = || {
        let is_own = |op: &&Op| op.stream == stream && op.kind == GpuOpKind::Kernel;
        timeline.ops.iter().filter(is_own).enumerate()
    };
    let mut counts: HashMap<NameIndex, usize> = HashMap::new();
    for (_, op) in kernels() {
        *counts.entry(op.name).or_default() += 1;
    }
    let mut rarest: Vec<(usize, NameIndex)> = counts
        .into_iter()
        .filter_map(|(name, count)| if count >= FEWEST { Some((count, name)) } else { None })
        .collect();
    rarest.sort_unstable();
    rarest.truncate(TRIED);
    let mut places: HashMap<NameIndex, Vec<(usize, Option<CallIndex>)>> =
        rarest.iter().map(|(_, name)| (*name, Vec::new())).collect();
    for (place, op) in kernels() {
        if let Some(places) = places.get_mut(&op.name) {
            places.push((place, op.call));
        }
    }
    let found = rarest.iter().find_map(|(_, name)| {
        let places = places.get(name)?;
        let numbers: Vec<usize> = places.iter().map(|(place, _)| *place).collect();
        if is_regular(&numbers) { Some(places) } else { None }
    })?;
    found.iter().map(|(_, call)| *call).collect()
}

/// Whether the distances of places in order are all but constant, and the others no sign of a
/// longer period.
fn is_regular(places: &[usize]) -> bool {
    let distances: Vec<usize> = places.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let Some(usual) = gctrace_stats::median_high(&mut distances.clone()) else { return false };
    let regular = distances.iter().filter(|distance| **distance == usual).count();
    let all: usize = distances.iter().sum();
    usual >= SHORTEST
        && regular * 10 >= distances.len() * REGULAR_OF_TEN
        && regular * usual * 10 >= all * REGULAR_OF_TEN
        && !is_part_of_longer(&distances, usual)
}

/// Whether unusual distances themselves recur, at least three times, after the same number of
/// usual ones.
fn is_part_of_longer(distances: &[usize], usual: usize) -> bool {
    let unusual = distances.iter().enumerate();
    let unusual: Vec<usize> =
        unusual.filter_map(|(at, of)| if *of == usual { None } else { Some(at) }).collect();
    let mut between = unusual.windows(2).map(|pair| pair[1] - pair[0]);
    let first = between.next();
    unusual.len() >= 3 && between.all(|distance| Some(distance) == first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(distances: impl IntoIterator<Item = usize>) -> Vec<usize> {
        let mut place = 0;
        let add = |distance| {
            place += distance;
            place
        };
        std::iter::once(0).chain(distances.into_iter().map(add)).collect()
    }

    #[test]
    fn a_constant_distance_is_regular_and_so_are_few_others() {
        assert!(is_regular(&places([50; 30])));
        // A validation now and then.
        let validated = (0..40).map(|step| if [11, 17].contains(&step) { 70 } else { 50 });
        assert!(is_regular(&places(validated)));
    }

    #[test]
    fn other_distances_are_not() {
        assert!(!is_regular(&[]));
        assert!(!is_regular(&places([1; 30])), "one kernel is no step");
        assert!(!is_regular(&places((0..40).map(|step| 50 + step % 3))));
        // Twelve layers: their backward passes and the optimizer are in the last distance.
        let layers = |last| (0..120).map(move |layer| if layer % 12 == 11 { last } else { 9 });
        assert!(!is_regular(&places(layers(300))), "most kernels are elsewhere");
        assert!(!is_regular(&places(layers(12))), "the layers are part of a step");
    }
}
