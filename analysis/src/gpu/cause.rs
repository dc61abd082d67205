//! The report's entry about what pauses cost a process.

use super::device::DeviceTimeline;
use super::replay::{
    AttributionBudget, PauseAttribution, PauseCost, ReplayChange, ReplayJob, ReplayModel,
    ReplaySchedule, StepEvidenceReport, attribute,
};
use super::timeline::{PauseIndex, Timeline};
use crate::figure::{Basis, PauseTotal, serialized_as_text};
use crate::spans::PauseSpan;
use crate::time::intervals::Intervals;
use crate::time::{duration_ns, since, sum};
use gctrace_event::Pause;
use serde::Serialize;
use std::collections::HashMap;
use std::fmt;

serialized_as_text!(NoErrorBar);

/// Why the cost of pauses has no error bar: the trace shows only this many steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoErrorBar {
    /// Steps in the trace.
    pub steps: usize,
}

impl fmt::Display for NoErrorBar {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.steps {
            0 => formatter.write_str("the trace shows no steps"),
            1 => formatter.write_str("the trace shows only one step"),
            some => write!(formatter, "the trace shows only {some} steps"),
        }
    }
}

/// What the pauses of one process cost it and its GPUs. The schedule of calls and operations is
/// rebuilt from the trace and replayed without the pauses; the cost is how much earlier the work
/// would have finished.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CauseReport {
    /// Always inferred: the replay assumes that everything but the pauses is unchanged.
    pub basis: Basis,
    /// Index of its trace in `traces`, from 0.
    pub trace: usize,
    /// Process id: on the host if gctrace recorded the process, otherwise as the trace states it.
    pub pid: u32,
    /// Rank in a distributed job; `null` if unknown.
    pub rank: Option<u32>,
    /// Measured: time from the first call or operation to the end of the last, in ns.
    pub span_ns: u64,
    /// Measured: all pauses of the process.
    pub pauses: PauseTotal,
    /// How much earlier the last operation or call would have ended without any pause, in ns.
    pub cost_ns: u64,
    /// `cost_ns` as a share of `span_ns`; 0 if the span is empty.
    pub cost_ratio: f64,
    /// Standard error of `cost_ns` against a second run without pauses, in ns. Two runs differ as much as the lengths
    /// of steps without pauses differ from the prediction by the other steps. `null` if there are too few steps (see
    /// `no_error_bar`).
    pub standard_error_ns: Option<u64>,
    /// The steps that the standard error rests on; `null` if there are none.
    pub steps: Option<StepEvidenceReport>,
    /// Why `standard_error_ns` is `null`, as text.
    pub no_error_bar: Option<NoErrorBar>,
    /// What the pauses cost each device of the process.
    pub devices: Vec<DeviceCost>,
    /// Number of pauses that were replayed one by one, the longest; the others were removed in
    /// groups.
    pub replayed_alone: u64,
    /// Parts of the cost, summed over the pauses that were replayed one by one.
    pub parts: PauseCostParts,
    /// The longest pauses, longest first, at most 20.
    pub longest: Vec<PauseCostReport>,
}

/// What the pauses cost one device.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceCost {
    /// Index of the device in the process.
    pub device: u32,
    /// Measured: idle time between the first and the last operation, in ns.
    pub idle_ns: u64,
    /// Idle time without any pause, by replay, in ns.
    pub idle_without_ns: u64,
    /// Idle time that the pauses caused: `idle_ns` - `idle_without_ns`. Negative if the device
    /// would have been idle longer.
    pub idle_cost_ns: i64,
    /// Measured: idle time that coincides with a pause, in ns. Overlap is not cause: it omits later delays by a pause
    /// and includes time that would have been idle anyway.
    pub overlap_ns: u64,
}

/// The parts of the cost of pauses. `exposed_ns` + `deferred_ns` is the cost.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PauseCostParts {
    /// Paid at once: additional idle time of the device, in ns, from the start of the pause to the
    /// first operation launched after it.
    pub exposed_ns: u64,
    /// Paid later, in ns: the pause drained the queue that would have hidden a later wait.
    pub deferred_ns: u64,
    /// The part of the pause that cost nothing, in ns; 0 if the cost exceeds the length.
    pub hidden_ns: u64,
}

/// What one pause cost, by replay without it, and its share in the cost of all pauses.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PauseCostReport {
    /// Measured: start of the pause, in ns on the clock of the trace.
    pub start_ns: u64,
    /// Measured: start of the pause, in ns after the first call or operation of the process;
    /// negative if before it.
    pub after_start_ns: i64,
    /// Measured: thread id of the collecting thread.
    pub tid: u32,
    /// Measured: length of the pause, in ns.
    pub length_ns: u64,
    /// Measured: generation collected, 0 to 2 (full collection); `null` if unknown.
    pub generation: Option<u8>,
    /// How much earlier the work would have finished without this pause alone, in ns: exposed +
    /// deferred. Plus hidden it is the length, unless the pause cost more.
    pub cost_ns: u64,
    /// The exposed and deferred parts of the cost, and the part of the pause that cost nothing.
    pub parts: PauseCostParts,
    /// Share of this pause in the cost of all, in ns: how much earlier the work would have finished
    /// without it, with all earlier pauses already removed. The shares of all pauses of the process
    /// add up to its `cost_ns`.
    pub share_ns: u64,
}

/// Pauses in the report.
const LONGEST: usize = 20;

/// Cost of the pauses of a process that worked on a GPU, by a model of it alone. `None` without pauses, or without
/// operations and calls.
pub(crate) fn of_process(timeline: &Timeline, model: &ReplayModel<'_>) -> Option<CauseReport> {
    if timeline.pauses.is_empty() {
        return None;
    }
    let start_ns = timeline.first_ns()?;
    let job = ReplayJob::single(timeline);
    let without = model.replay(&ReplayChange::without_all(&job));
    let attribution = attribute(&job, model, AttributionBudget::for_model(model));
    let span_ns = duration_ns(start_ns, attribution.end_ns);
    let cost_ns = attribution.cost_ns;
    let steps = StepEvidenceReport::collect(timeline, 0, &without);
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
        steps,
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

fn devices(timeline: &Timeline, without: &ReplaySchedule<'_>) -> Vec<DeviceCost> {
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
