//! One process as the predictions see it: its timeline, its collector, what its garbage weighs.

use crate::gpu::pause_span::PauseSpan;
use crate::gpu::timeline::NONE;
use crate::gpu::timeline::StepSpan;
use crate::gpu::timeline::Timeline;
use gctrace_event::GcReason;
use gctrace_event::Pause;

/// A process and facts that are not in its timeline.
#[derive(Clone, Copy, Debug)]
pub struct ProgramModel<'a> {
    /// Recorded pauses, steps, calls and operations of the process.
    pub timeline: &'a Timeline,
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
    pub(super) fn pauses(&self) -> impl Iterator<Item = (u32, &PauseSpan)> {
        let pauses = (0..).zip(&self.timeline.pauses);
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
        let mut counts = vec![0usize; self.timeline.threads.len()];
        for step in &self.timeline.steps {
            if let Some(count) = counts.get_mut(step.thread as usize) {
                *count += 1;
            }
        }
        let most = (0u32..).zip(&counts).max_by_key(|(_, count)| **count);
        let thread = most.map_or(NONE, |(thread, _)| thread);
        let steps = self.timeline.steps.iter();
        steps.filter(|own| own.thread == thread).copied().collect()
    }

    /// End of setup: the end of the first step, or a tenth of the run if steps are unknown.
    pub(super) fn warm_ns(&self) -> u64 {
        match self.steps().as_slice() {
            [first, _, ..] => first.end_ns,
            _ => {
                let (start_ns, end_ns) = self.span_ns;
                start_ns.saturating_add(end_ns.saturating_sub(start_ns) / 10)
            }
        }
    }

    /// Objects that garbage collections started by themselves freed.
    pub(super) fn freed_objects(&self) -> u64 {
        let own = self.pauses();
        let freed = own
            .filter(|(_, pause)| self.automatic(pause).or(true))
            .filter_map(|(_, pause)| known(pause.collected));
        freed.fold(0, u64::saturating_add)
    }
}

/// A number that may be missing.
pub(super) fn known(count: u32) -> Option<u64> {
    (count != NONE).then_some(u64::from(count))
}

/// Objects that a full collection traversed: those left and those freed.
pub(super) fn traversed(pause: &PauseSpan) -> Option<u64> {
    let left = known(pause.objects)?;
    Some(left.saturating_add(known(pause.collected).unwrap_or(0)))
}
