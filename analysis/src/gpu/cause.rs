//! The report's entry about what pauses cost a process.

use super::device::DeviceTimeline;
use super::replay::{
    AttributionBudget, PauseAttribution, PauseCost, ReplayChange, ReplayJob, ReplayModel,
    ReplaySchedule, StepEvidence, attribute,
};
use super::timeline::{PauseIndex, Timeline};
use crate::report::{
    Basis, CauseReport, DeviceCost, NoErrorBar, PauseCostParts, PauseCostReport, PauseTotal,
    StepEvidenceReport,
};
use crate::spans::PauseSpan;
use crate::time::intervals::Intervals;
use crate::time::{duration, since, sum};
use gctrace_event::Pause;
use std::collections::HashMap;

/// Pauses in the report.
const LONGEST: usize = 20;

/// What the pauses of a process cost that worked on a GPU, by a model of it alone. `None` without
/// pauses, or without operations and calls.
pub(crate) fn of_process(timeline: &Timeline, model: &ReplayModel) -> Option<CauseReport> {
    if timeline.pauses.is_empty() {
        return None;
    }
    let start_ns = timeline.first_ns()?;
    let job = ReplayJob::single(timeline);
    let without = model.replay(&ReplayChange::without_all(&job));
    let attribution = attribute(&job, model, AttributionBudget::for_model(model));
    let span_ns = duration(start_ns, attribution.end_ns);
    let cost_ns = attribution.cost_ns;
    let steps = StepEvidence::collect(timeline, 0, &without);
    Some(CauseReport {
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
            None => Some(NoErrorBar { steps: timeline.steps.len() }),
        },
        devices: devices(timeline, &without),
        replayed_alone: attribution.pauses.len() as u64,
        parts: parts(&attribution.pauses),
        longest: longest(timeline, &attribution, start_ns),
    })
}

fn effort(pauses: &[PauseSpan]) -> PauseTotal {
    PauseTotal {
        count: pauses.len() as u64,
        time_ns: sum(pauses.iter().map(PauseSpan::duration_ns)),
    }
}

fn devices(timeline: &Timeline, without: &ReplaySchedule) -> Vec<DeviceCost> {
    let pauses: Intervals = timeline.pauses.iter().map(PauseSpan::span).collect();
    let of_device = |work: &DeviceTimeline<'_>| {
        let (mut idle_ns, mut overlap_ns) = (0, 0);
        for gap in work.gaps() {
            idle_ns += gap.duration_ns();
            overlap_ns += pauses.length_within(gap.start_ns, gap.end_ns);
        }
        let idle_without_ns = without.idle_ns(0, work.device);
        DeviceCost {
            device: work.device,
            idle_ns,
            idle_without_ns,
            idle_cost_ns: since(idle_ns, idle_without_ns),
            overlap_ns,
        }
    };
    let works = DeviceTimeline::of(timeline);
    works.iter().map(of_device).collect()
}

fn parts(pauses: &[PauseCost]) -> PauseCostParts {
    PauseCostParts {
        exposed_ns: sum(pauses.iter().map(|pause| pause.exposed_ns)),
        deferred_ns: sum(pauses.iter().map(|pause| pause.deferred_ns)),
        hidden_ns: sum(pauses.iter().map(|pause| pause.hidden_ns)),
    }
}

fn longest(
    timeline: &Timeline,
    attribution: &PauseAttribution,
    start_ns: u64,
) -> Vec<PauseCostReport> {
    let shares = attribution.shares.iter();
    let shares: HashMap<PauseIndex, u64> =
        shares.map(|share| (share.pause.pause, share.share_ns)).collect();
    let of_pause = |cost: &PauseCost| {
        let span = &timeline.pauses[cost.pause.pause];
        PauseCostReport {
            start_ns: span.start_ns,
            after_start_ns: since(span.start_ns, start_ns),
            tid: timeline.threads[span.thread].tid,
            length_ns: cost.length_ns,
            generation: match span.generation {
                Pause::UNKNOWN_GENERATION => None,
                generation => Some(generation),
            },
            cost_ns: cost.cost_ns,
            parts: parts(std::slice::from_ref(cost)),
            share_ns: shares[&cost.pause.pause],
        }
    };
    let longest = attribution.pauses.iter().take(LONGEST);
    longest.map(of_pause).collect()
}
