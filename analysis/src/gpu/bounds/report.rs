//! From bounds of pauses to the report.

use super::activity::CallActivity;
use super::{BoundsContext, PauseBounds, bounds};
use crate::accumulate::process::ProcessState;
use crate::accumulate::trace_state::TraceState;
use crate::gpu::kept::KeptTimeline;
use crate::gpu::timeline::{GpuPart, Timeline};
use crate::report::{
    Basis, BoundsLimit, BoundsReport, BoundsRule, PauseTotal, ProcessBounds, RuleBounds,
};
use crate::time::add_to;
use gctrace_event::ProcessOrigin;
use std::collections::HashSet;
use strum::VariantArray as _;

/// `None` where no process has bounds.
pub(crate) fn report(
    traces: &[TraceState],
    processes: &[ProcessState],
    timelines: &[KeptTimeline],
) -> Option<BoundsReport> {
    let mut all: Vec<PauseBounds> = Vec::new();
    let mut bounded = Vec::new();
    let attached = attached(processes);
    // With GPU times there are no bounds; without, no timeline is packed.
    let has_calls = |timeline: &&KeptTimeline| {
        !timeline.has_gpu_times() && timeline.gpu_part != Some(GpuPart::Elsewhere)
    };
    for timeline in timelines.iter().filter(has_calls) {
        let timeline = timeline.whole();
        let timeline = timeline.as_ref();
        let circumstances = circumstances(traces, timeline, &attached);
        let Some(pauses) = bounds(timeline, circumstances).filter(|bound| !bound.is_empty()) else {
            continue;
        };
        let sum = BoundsSum::of(pauses.iter());
        bounded.push(ProcessBounds {
            trace: timeline.trace,
            pid: timeline.pid,
            rank: timeline.rank,
            pauses: sum.pauses,
            at_least_ns: sum.at_least_ns,
            at_most_ns: sum.at_most_ns,
            limited_by: limit(timeline, circumstances),
        });
        all.extend(pauses);
    }
    if bounded.is_empty() {
        return None;
    }
    bounded
        .sort_by_key(|process| (std::cmp::Reverse(process.at_most_ns), process.trace, process.pid));
    let sum = BoundsSum::of(all.iter());
    Some(BoundsReport {
        basis: Basis::Inferred,
        pauses: sum.pauses,
        at_least_ns: sum.at_least_ns,
        at_most_ns: sum.at_most_ns,
        rules: BoundsRule::VARIANTS.iter().filter_map(|rule| of_rule(*rule, &all)).collect(),
        processes: bounded,
    })
}

/// Processes, by trace and id, that were not recorded from their start.
fn attached(processes: &[ProcessState]) -> HashSet<(usize, u32)> {
    let attached = processes.iter().filter(|process| {
        let described = process.sums.described.as_ref();
        described.is_none_or(|process| process.origin == ProcessOrigin::Attached)
    });
    attached.map(|process| (process.trace, process.sums.pid)).collect()
}

fn circumstances(
    traces: &[TraceState],
    timeline: &Timeline,
    attached: &HashSet<(usize, u32)>,
) -> BoundsContext {
    let trace = traces.get(timeline.process_trace);
    let end = trace.and_then(|trace| trace.end.as_ref());
    let process = (timeline.process_trace, timeline.pid);
    BoundsContext {
        events_lost: end.is_none_or(|end| end.lost.values().any(|lost| *lost > 0)),
        from_start: timeline.is_ours && !attached.contains(&process),
        several_devices: trace.is_some_and(|trace| trace.cuda.devices_of(timeline.pid) > 1),
    }
}

fn of_rule(rule: BoundsRule, all: &[PauseBounds]) -> Option<RuleBounds> {
    let sum = BoundsSum::of(all.iter().filter(|pause| pause.rule == rule));
    (sum.pauses.count > 0).then_some(RuleBounds {
        rule,
        pauses: sum.pauses,
        at_least_ns: sum.at_least_ns,
        at_most_ns: sum.at_most_ns,
    })
}

fn limit(timeline: &Timeline, circumstances: BoundsContext) -> Option<BoundsLimit> {
    match () {
        () if !CallActivity::of(timeline).has_launches => Some(BoundsLimit::NoLaunches),
        () if circumstances.events_lost => Some(BoundsLimit::EventsLost),
        () if circumstances.several_devices => Some(BoundsLimit::SeveralDevices),
        () => None,
    }
}

#[derive(Default)]
struct BoundsSum {
    pauses: PauseTotal,
    at_least_ns: u64,
    at_most_ns: u64,
}

impl BoundsSum {
    fn of<'a>(pauses: impl Iterator<Item = &'a PauseBounds>) -> Self {
        pauses.fold(Self::default(), |mut sum, pause| {
            sum.pauses.add(pause.length_ns);
            add_to(&mut sum.at_least_ns, pause.at_least_ns);
            add_to(&mut sum.at_most_ns, pause.at_most_ns);
            sum
        })
    }
}
