//! From bounds of pauses to the report.

use super::activity::CallActivity;
use super::{BoundsContext, PauseBounds, bounds};
use crate::figure::{Basis, PauseTotal, serialized_as_text};
use crate::gpu::kept::KeptTimeline;
use crate::gpu::timeline::{GpuPart, Timeline};
use crate::time::add_to;
use serde::Serialize;
use std::fmt;
use strum::VariantArray;

serialized_as_text!(BoundsLimit);

/// Why the pauses of a process cannot be classified by rules: the end of the sentence "Pauses cannot
/// be classified where". In the order of the sentences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BoundsLimit {
    /// Events were lost, or may have been.
    EventsLost,
    /// Launches were not recorded.
    NoLaunches,
    /// The process used several devices.
    SeveralDevices,
}

impl fmt::Display for BoundsLimit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::EventsLost => "events were lost, or may have been",
            Self::NoLaunches => "launches were not recorded (--cuda sync)",
            Self::SeveralDevices => "the process used several devices",
        })
    }
}

/// Lower and upper bounds of how much the pauses delayed GPU work, for processes that launch work and have no GPU
/// times in their trace.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BoundsReport {
    /// Always inferred from calls on the CPU. The lower bound assumes that the thread would have
    /// continued at once without the pause: a wait for data or for another process that the pause
    /// hid is not detected.
    pub basis: Basis,
    /// Pauses of these processes; overlapping pauses count once.
    pub pauses: PauseTotal,
    /// Lower bound of the delay, in ns, summed over processes.
    pub at_least_ns: u64,
    /// Upper bound of the delay, in ns, summed over processes.
    pub at_most_ns: u64,
    /// The bounds by rule, for rules that apply to at least one pause. They add up to the totals.
    pub rules: Vec<RuleBounds>,
    /// The bounds by process, the largest `at_most_ns` first. They add up to the totals.
    pub processes: Vec<ProcessBounds>,
}

// Rules are in the order of the report.
/// Why a pause has the bounds it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, VariantArray)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum BoundsRule {
    /// A synchronizing call had returned and nothing was launched until the pause ended; the delay
    /// is the length of the pause, minus at most 20 us.
    GpuWasEmpty,
    /// The next synchronizing call still waited more than 20 us for earlier work, or the launching
    /// thread waited for the GPU during the whole pause; no delay.
    GpuStayedBusy,
    /// The next synchronizing call returned at once, so the GPU became idle at an unknown time.
    GpuFoundEmpty,
    /// Before the first launch, after the last, or at interpreter shutdown; no delay.
    NoGpuWork,
    /// On a thread that launches nothing. The delay is at most the time since the last call of a launching thread, as
    /// that needs the GIL.
    OtherThread,
    /// None of these; the delay is between 0 and the length of the pause.
    Unknown,
}

/// The pauses that one rule applies to.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RuleBounds {
    /// The rule that applies to these pauses and gives the bounds.
    pub rule: BoundsRule,
    /// Count and time of the pauses that the rule applies to.
    pub pauses: PauseTotal,
    /// Lower bound of the delay, in ns.
    pub at_least_ns: u64,
    /// Upper bound of the delay, in ns.
    pub at_most_ns: u64,
}

/// The bounds of one process, summed over its pauses.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessBounds {
    /// Index of its trace in `traces`, from 0.
    pub trace: usize,
    /// Process id: on the host if gctrace recorded the process, otherwise as the trace states it.
    pub pid: u32,
    /// Rank in a distributed job; `null` if unknown.
    pub rank: Option<u32>,
    /// Count and time of its pauses; overlapping time counts once.
    pub pauses: PauseTotal,
    /// Lower bound of the delay, in ns.
    pub at_least_ns: u64,
    /// Upper bound of the delay, in ns.
    pub at_most_ns: u64,
    /// Why all pauses of the process have the rule `unknown`: launches were not recorded, events
    /// were lost or may have been (a trace without its last line), or the process used several
    /// devices. `null` if the rules could be applied.
    pub limited_by: Option<BoundsLimit>,
}

/// `None` where no process has bounds. `context`: what the trace of a timeline contains.
pub(crate) fn report(
    timelines: &[KeptTimeline],
    context: impl Fn(&Timeline) -> BoundsContext,
) -> Option<BoundsReport> {
    let mut all: Vec<PauseBounds> = Vec::new();
    let mut bounded = Vec::new();
    // With GPU times there are no bounds; without, no timeline is packed.
    let has_calls = |timeline: &&KeptTimeline| {
        !timeline.has_gpu_times() && timeline.gpu_part != Some(GpuPart::Elsewhere)
    };
    for timeline in timelines.iter().filter(has_calls) {
        let timeline = timeline.whole();
        let timeline = timeline.as_ref();
        let circumstances = context(timeline);
        let Some(pauses) = bounds(timeline, circumstances) else { continue };
        if pauses.is_empty() {
            continue;
        }
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

fn of_rule(rule: BoundsRule, all: &[PauseBounds]) -> Option<RuleBounds> {
    let sum = BoundsSum::of(all.iter().filter(|pause| pause.rule == rule));
    if sum.pauses.count == 0 {
        return None;
    }
    Some(RuleBounds {
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
