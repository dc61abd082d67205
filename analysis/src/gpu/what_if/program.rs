//! One process as the predictions see it: its timeline, its collector, what its garbage weighs.

use crate::gpu::replay::main_steps;
use crate::gpu::timeline::{PauseIndex, ProcessTimeline, StepSpan};
use crate::remedy;
use crate::remedy::{RecordedRun, SimulatedParts};
use crate::report::AdviceId;
use crate::spans::PauseSpan;
use crate::spans::index::{Index, SmallNumber};
use crate::time::{after, duration, scaled, sum};
use gctrace_event::{GcReason, Pause};

/// A process and facts that are not in its timeline.
#[derive(Clone, Copy, Debug)]
pub struct ProgramModel<'a> {
    /// Recorded pauses and steps of the process.
    pub timeline: &'a ProcessTimeline,
    /// First and last time at which it was recorded, on the timeline's clock.
    pub span_ns: (u64, u64),
    /// Whether it is a free-threaded build, in which each collection traverses the whole heap.
    pub free_threaded: bool,
    /// `gc.get_threshold()` of the process: thresholds of generations 0, 1 and 2.
    pub thresholds: [i32; 3],
    /// Device memory freed during pauses, in bytes.
    pub device_freed_bytes: u64,
    /// Largest amount that torch's allocator reserved from the driver, in bytes.
    pub device_reserved_bytes: u64,
    /// Memory of pymalloc arenas per object of the heap, in bytes; `None` if unknown.
    pub bytes_per_object: Option<u64>,
}

/// How a plan treats what the recording leaves unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assumption {
    /// The version that saves the least time.
    Pessimistic,
    /// The version that saves the most time.
    Optimistic,
}

impl Assumption {
    /// Of a figure for the better and one for the worse.
    pub(super) fn of<T>(self, [better, worse]: [T; 2]) -> T {
        match self {
            Self::Optimistic => better,
            Self::Pessimistic => worse,
        }
    }
}

/// A property that the trace may leave open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Certainty {
    Yes,
    No,
    Unsure,
}

impl Certainty {
    /// Whether it is `Yes`; `unsure` decides for `Unsure`.
    pub(super) fn or(self, unsure: bool) -> bool {
        match self {
            Self::Yes => true,
            Self::No => false,
            Self::Unsure => unsure,
        }
    }
}

impl ProgramModel<'_> {
    /// Pauses with their index, except those at interpreter shutdown, which no setting affects.
    pub(super) fn pauses(&self) -> impl Iterator<Item = (PauseIndex, &PauseSpan)> {
        let pauses = Index::enumerate(&self.timeline.pauses);
        pauses.filter(|(_, pause)| pause.reason != GcReason::Shutdown)
    }

    /// Whether the collection was automatic.
    pub(super) fn automatic(&self, pause: &PauseSpan) -> Certainty {
        match pause.reason {
            GcReason::Automatic => Certainty::Yes,
            GcReason::Unknown => Certainty::Unsure,
            GcReason::Manual | GcReason::Shutdown => Certainty::No,
        }
    }

    /// Whether the collection was full.
    pub(super) fn full(&self, pause: &PauseSpan) -> Certainty {
        match pause.generation {
            _ if self.free_threaded => Certainty::Yes,
            2 => Certainty::Yes,
            Pause::UNKNOWN_GENERATION => Certainty::Unsure,
            _ => Certainty::No,
        }
    }

    /// The steps of the thread that has most.
    pub(super) fn steps(&self) -> Vec<StepSpan> {
        main_steps(self.timeline)
    }

    /// How long it was recorded.
    pub(super) fn recorded_ns(&self) -> u64 {
        let (start_ns, end_ns) = self.span_ns;
        duration(start_ns, end_ns)
    }

    /// End of setup: the end of the first step, or a tenth of the run if steps are unknown.
    pub(super) fn warm_ns(&self) -> u64 {
        match self.steps().as_slice() {
            [first, _, ..] => first.end_ns,
            _ => after(self.span_ns.0, self.recorded_ns() / 10),
        }
    }

    /// The run after setup, for the simulated collector; `None` if it cannot be simulated.
    fn recorded_run(&self) -> Option<RecordedRun<'_>> {
        (!self.free_threaded).then(|| RecordedRun {
            few_cycles: false,
            start_ns: None,
            forked: false,
            ended: false,
            pauses: &self.timeline.pauses,
            training_ns: (self.warm_ns(), self.span_ns.1),
            steps: None,
            thresholds: self.thresholds,
            start_thresholds: self.thresholds,
            enabled: None,
        })
    }

    /// What collections take under another setting, as a simulated collector predicts it. `None` if
    /// it cannot be simulated.
    pub(super) fn simulated(&self, remedy: AdviceId, side: Assumption) -> Option<SimulatedParts> {
        let parts = remedy::simulated_parts(&self.recorded_run()?, remedy)?;
        Some(side.of(parts))
    }

    /// Time to free the garbage of some steps in one planned collection, at most, in ns; 0 if
    /// nothing is known of it.
    pub(super) fn freeing_ns(&self, steps: u64) -> u64 {
        let each_ns = self.recorded_run().and_then(|run| remedy::freeing_ns(&run));
        let all = mean_step_ns(self).map_or(1, |step_ns| self.recorded_ns() / step_ns);
        let garbage = scaled(self.freed_objects(), steps, all.max(1));
        part_of(garbage, each_ns.unwrap_or(0.0))
    }

    /// Objects that garbage collections started by themselves freed.
    pub(super) fn freed_objects(&self) -> u64 {
        let pauses = self.pauses();
        let automatic = pauses.filter(|(_, pause)| self.automatic(pause).or(true));
        sum(automatic.filter_map(|(_, pause)| known(pause.collected)))
    }

    /// The collections of the middle generation after which CPython considers a full one: one more
    /// than threshold 2.
    pub(super) fn middle_per_full(&self) -> u64 {
        let [_, _, old] = self.thresholds;
        u64::from(old.max(0).unsigned_abs()) + 1
    }
}

/// From the start of the first step to the end of the last, by the number of steps.
pub(super) fn mean_step_ns(program: &ProgramModel<'_>) -> Option<u64> {
    let steps = program.steps();
    let (first, last) = (steps.first()?, steps.last()?);
    let count = steps.len() as u64;
    (count > 1).then(|| (duration(first.start_ns, last.end_ns) / count).max(1))
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a prediction needs no more than 52 bits; casts of floats saturate"
)]
pub(super) fn part_of(whole: u64, part: f64) -> u64 {
    (whole as f64 * part) as u64
}

/// A number that may be missing.
pub(super) fn known(count: Option<SmallNumber>) -> Option<u64> {
    count.map(|count| u64::from(count.get()))
}

/// Objects that a full collection traversed: those left and those freed, if known.
pub(super) fn traversed(pause: &PauseSpan) -> Option<u64> {
    let left = known(pause.objects)?;
    Some(left + known(pause.collected).unwrap_or_default())
}
