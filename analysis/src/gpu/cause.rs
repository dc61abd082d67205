//! The report's entry about what pauses cost a process.

use super::pause_span::PauseSpan;
use super::replay::AttributionBudget;
use super::replay::PauseAttribution;
use super::replay::PauseCost;
use super::replay::ReplayChange;
use super::replay::ReplayJob;
use super::replay::ReplayModel;
use super::replay::ReplaySchedule;
use super::replay::StepEvidence;
use super::replay::attribute;
use super::timeline::Timeline;
use crate::report::Basis;
use crate::report::CauseReport;
use crate::report::DeviceCost;
use crate::report::PauseCostParts;
use crate::report::PauseCostReport;
use crate::report::PauseTotal;
use crate::report::StepEvidenceReport;
use gctrace_event::Pause;
use std::collections::HashMap;

/// Pauses in the report.
const LONGEST: usize = 20;

/// One for each process that worked on a GPU and collected.
pub(crate) fn report(timelines: &[&Timeline]) -> Vec<CauseReport> {
    let collected = timelines
        .iter()
        .filter(|timeline| !timeline.pauses.is_empty());
    collected.map(|timeline| of_process(timeline)).collect()
}

fn of_process(timeline: &Timeline) -> CauseReport {
    let job = ReplayJob::single(timeline);
    let model = ReplayModel::learn(&job);
    let without = model.replay(&ReplayChange::without_all(&job));
    let attribution = attribute(&job, &model, AttributionBudget::for_model(&model));
    let start_ns = start_ns(timeline);
    let span_ns = attribution.end_ns.saturating_sub(start_ns);
    let cost_ns = attribution.cost_ns;
    let steps = StepEvidence::collect(timeline, 0, &without);
    CauseReport {
        basis: Basis::Inferred,
        trace: timeline.trace,
        pid: timeline.pid,
        rank: timeline.rank,
        span_ns,
        pauses: effort(&timeline.pauses),
        cost_ns,
        cost_ratio: match span_ns {
            0 => 0.0,
            span_ns => cost_ns as f64 / span_ns as f64,
        },
        standard_error_ns: steps.map(|steps| steps.standard_error_ns),
        steps: steps.map(|steps| StepEvidenceReport {
            count: steps.steps,
            with_pauses: steps.with_pauses,
            median_without_ns: steps.median_without_ns,
            unexplained_ns: steps.unexplained_ns,
        }),
        no_error_bar: match steps {
            Some(_) => None,
            None => Some(timeline.steps.len().into()),
        },
        devices: devices(timeline, &without),
        replayed_alone: attribution.pauses.len() as u64,
        parts: parts(&attribution.pauses),
        longest: longest(timeline, &attribution, start_ns),
    }
}

fn effort(pauses: &[PauseSpan]) -> PauseTotal {
    PauseTotal {
        count: pauses.len() as u64,
        time_ns: pauses
            .iter()
            .map(PauseSpan::duration_ns)
            .fold(0, u64::saturating_add),
    }
}

/// The first call or operation.
fn start_ns(timeline: &Timeline) -> u64 {
    let calls = timeline.calls.first().map(|call| call.start_ns);
    let ops = timeline.ops.first().map(|op| op.start_ns);
    calls.into_iter().chain(ops).min().unwrap_or(0)
}

fn devices(timeline: &Timeline, without: &ReplaySchedule) -> Vec<DeviceCost> {
    let mut devices: Vec<u32> = timeline
        .streams
        .iter()
        .map(|stream| stream.device)
        .collect();
    devices.sort_unstable();
    devices.dedup();
    let pauses = union(
        timeline
            .pauses
            .iter()
            .map(|pause| (pause.start_ns, pause.end_ns)),
    );
    let of_device = |device: u32| {
        let ops = timeline
            .ops
            .iter()
            .filter(|op| timeline.device(op) == Some(device));
        let busy = union(ops.map(|op| (op.start_ns, op.end_ns)));
        let idle: Vec<(u64, u64)> = busy
            .windows(2)
            .filter_map(|pair| Some((pair.first()?.1, pair.last()?.0)))
            .collect();
        let idle_ns = idle.iter().map(|(start, end)| end - start).sum();
        let idle_without_ns = without.idle_ns(0, device);
        let difference = i128::from(idle_ns) - i128::from(idle_without_ns);
        DeviceCost {
            device,
            idle_ns,
            idle_without_ns,
            idle_cost_ns: i64::try_from(difference).unwrap_or(0),
            overlap_ns: overlap_ns(&idle, &pauses),
        }
    };
    devices.into_iter().map(of_device).collect()
}

/// Disjoint intervals in order, touching ones merged.
fn union(intervals: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut intervals: Vec<(u64, u64)> = intervals.filter(|(start, end)| start <= end).collect();
    intervals.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::with_capacity(intervals.len());
    for (start, end) in intervals {
        match merged.last_mut() {
            Some((_, last)) if start <= *last => *last = end.max(*last),
            _ => merged.push((start, end)),
        }
    }
    merged
}

/// What two unions have in common.
fn overlap_ns(one: &[(u64, u64)], other: &[(u64, u64)]) -> u64 {
    let (mut one, mut other) = (one.iter().peekable(), other.iter().peekable());
    let mut common = 0;
    while let (Some((a_begin, a_end)), Some((b_begin, b_end))) = (one.peek(), other.peek()) {
        common += a_end.min(b_end).saturating_sub(*a_begin.max(b_begin));
        match a_end <= b_end {
            true => one.next(),
            false => other.next(),
        };
    }
    common
}

fn parts(pauses: &[PauseCost]) -> PauseCostParts {
    pauses
        .iter()
        .fold(PauseCostParts::default(), |sum, pause| PauseCostParts {
            exposed_ns: sum.exposed_ns.saturating_add(pause.exposed_ns),
            deferred_ns: sum.deferred_ns.saturating_add(pause.deferred_ns),
            hidden_ns: sum.hidden_ns.saturating_add(pause.hidden_ns),
        })
}

fn longest(
    timeline: &Timeline,
    attribution: &PauseAttribution,
    start_ns: u64,
) -> Vec<PauseCostReport> {
    let shares = attribution.shares.iter();
    let shares: HashMap<u32, u64> = shares
        .map(|share| (share.pause.pause, share.share_ns))
        .collect();
    let of_pause = |cost: &PauseCost| {
        let span = timeline.pauses.get(cost.pause.pause as usize)?;
        let thread = timeline.threads.get(span.thread as usize);
        let after_start = i128::from(span.start_ns) - i128::from(start_ns);
        Some(PauseCostReport {
            after_start_ns: i64::try_from(after_start).unwrap_or(i64::MAX),
            tid: thread.map_or(0, |thread| thread.tid),
            length_ns: cost.length_ns,
            generation: match span.generation {
                Pause::UNKNOWN_GENERATION => None,
                generation => Some(generation),
            },
            cost_ns: cost.cost_ns,
            parts: parts(std::slice::from_ref(cost)),
            share_ns: shares.get(&cost.pause.pause).copied().unwrap_or(0),
        })
    };
    let longest = attribution.pauses.iter().take(LONGEST);
    longest.filter_map(of_pause).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_of_unions() {
        let one = union([(0, 10), (5, 12), (20, 30)].into_iter());
        assert_eq!(one, vec![(0, 12), (20, 30)]);
        assert_eq!(overlap_ns(&one, &[(10, 25), (28, 40)]), 2 + 5 + 2);
        assert_eq!(overlap_ns(&one, &[]), 0);
    }
}
