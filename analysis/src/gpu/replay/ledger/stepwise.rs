//! Idle time by cause of each training step.

use super::split;
use crate::gpu::idle::IdleCause;
use crate::gpu::steps::busiest_thread;
use crate::gpu::timeline::Timeline;
use crate::time::{add_to, duration_ns};
use std::collections::BTreeMap;

/// Idle time in ns by cause of each step of the thread with the most steps, in their order.
pub(crate) type StepIdle = Vec<BTreeMap<IdleCause, u64>>;

/// Gives the parts of a device's gaps to the steps that they are in.
#[derive(Debug, Default)]
pub(super) struct GapsInSteps {
    /// Start and end of each gap.
    gaps: Vec<(u64, u64)>,
    /// Start and end of each step; they do not overlap.
    steps: Vec<(u64, u64)>,
    idle: StepIdle,
    /// Parts of gaps that are partly within steps, or in several, by gap.
    crossing: BTreeMap<usize, BTreeMap<IdleCause, u64>>,
}

impl GapsInSteps {
    /// `gaps`: start and end of each, in order.
    pub(super) fn of(timeline: &Timeline, gaps: Vec<(u64, u64)>) -> Self {
        let Some(thread) = busiest_thread(timeline) else {
            return Self::default();
        };
        let steps = timeline.steps.iter().filter(|step| step.thread == thread);
        let steps: Vec<(u64, u64)> = steps.map(|step| (step.start_ns, step.end_ns)).collect();
        let idle = vec![BTreeMap::new(); steps.len()];
        Self { gaps, steps, idle, crossing: BTreeMap::new() }
    }

    /// A part of a gap has a cause.
    pub(super) fn add(&mut self, gap: usize, cause: IdleCause, time_ns: u64) {
        let Some((start_ns, end_ns)) = self.gaps.get(gap).copied() else {
            return;
        };
        let first = self.first(start_ns);
        match self.steps.get(first) {
            None => {}
            Some((from_ns, _)) if end_ns <= *from_ns => {}
            Some((from_ns, until_ns)) if *from_ns <= start_ns && end_ns <= *until_ns => {
                add_to(self.idle[first].entry(cause).or_default(), time_ns);
            }
            Some(_) => {
                let parts = self.crossing.entry(gap).or_default();
                add_to(parts.entry(cause).or_default(), time_ns);
            }
        }
    }

    /// The first step that does not end before a time.
    fn first(&self, at_ns: u64) -> usize {
        self.steps.partition_point(|(_, until_ns)| *until_ns <= at_ns)
    }

    /// Where in a gap each of its parts was is unknown: a step has the share of each that it has of
    /// the gap. The sum of a step is its idle time.
    pub(super) fn finish(mut self) -> StepIdle {
        for (gap, parts) in std::mem::take(&mut self.crossing) {
            let (start_ns, end_ns) = self.gaps[gap];
            let weights: Vec<u64> = parts.values().copied().collect();
            for at in self.first(start_ns)..self.steps.len() {
                let (from_ns, until_ns) = self.steps[at];
                if from_ns >= end_ns {
                    break;
                }
                let within_ns = duration_ns(from_ns.max(start_ns), until_ns.min(end_ns));
                for (cause, part_ns) in parts.keys().zip(split(within_ns, &weights)) {
                    add_to(self.idle[at].entry(*cause).or_default(), part_ns);
                }
            }
        }
        self.idle
    }
}
