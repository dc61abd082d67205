//! The training phase of a run in parts that can be resampled.

use crate::gpu::kept::KeptTimeline;
use crate::gpu::steps::busiest_thread;
use crate::gpu::timeline::{ProcessTimeline, StepSpan};
use crate::pauses::generation_index;
use crate::phases::{JudgedRun, Phase};
use crate::report::{PauseTotal, TrainingPart, TrainingSeries};
use crate::spans::PauseSpan;
use crate::time::intervals::Intervals;
use crate::time::{duration_ns, sum};
use gctrace_event::GcReason;
use std::num::NonZeroU64;

/// Steps of a part. Neighboring steps are alike; means of so many are nearly independent.
const STEPS: usize = 25;
/// With fewer steps than for this number of parts, the parts are shorter.
const FEWEST_PARTS: usize = 10;
/// With more steps than for this number of parts, the parts are longer.
const MOST_PARTS: usize = 256;
/// Parts of equal length if no steps are known.
const TIME_PARTS: u64 = 32;

impl TrainingSeries {
    /// `None` if training has no length.
    pub(crate) fn of(run: &JudgedRun<'_>, timelines: &[KeptTimeline]) -> Option<Self> {
        let mut timelines = timelines.iter();
        let timeline = timelines.find(|timeline| {
            timeline.process_trace == run.process.trace && timeline.pid == run.process.pid
        })?;
        let pauses: Vec<&PauseSpan> = run
            .pauses
            .iter()
            .filter(|pause| run.phases.phase_of(pause) == Phase::Training)
            .collect();
        let paused = Intervals::from_iter(pauses.iter().map(|pause| pause.span()));
        let spans = match run.phases.steps {
            Some(_) => step_parts(timeline, run.phases.training_ns),
            None => time_parts(run.phases.training_ns),
        };
        let parts: Vec<TrainingPart> =
            spans.iter().map(|span| span.part(&pauses, &paused)).collect();
        (!parts.is_empty()).then(|| Self {
            training_by: run.phases.mark,
            parts,
            frozen: frozen(&run.pauses),
        })
    }
}

/// Where a part is, and how long its steps take.
struct PartSpan {
    steps: u64,
    duration_ns: u64,
    cpu_ns: Option<u64>,
    start_ns: u64,
    end_ns: u64,
}

impl PartSpan {
    /// `pauses`: of training, by start.
    fn part(&self, pauses: &[&PauseSpan], paused: &Intervals) -> TrainingPart {
        let mut by_generation = [PauseTotal::default(); 4];
        let mut paused_cpu_ns = Some(0u64);
        let first = pauses.partition_point(|pause| pause.start_ns < self.start_ns);
        let pauses = pauses.iter().skip(first);
        for pause in pauses.take_while(|pause| pause.start_ns < self.end_ns) {
            if let Some(sum) = by_generation.get_mut(generation_index(pause.generation)) {
                sum.add(pause.duration_ns());
            }
            let cpu_ns = pause.cpu_ns.map(NonZeroU64::get);
            paused_cpu_ns =
                paused_cpu_ns.zip(cpu_ns).map(|(sum, cpu_ns)| crate::time::sum([sum, cpu_ns]));
        }
        let paused_ns = paused.length_within(self.start_ns, self.end_ns);
        TrainingPart {
            steps: self.steps,
            duration_ns: self.duration_ns,
            cpu_ns: self.cpu_ns,
            // Between the steps of a part there may be gaps, in which collections count as well.
            paused_ns: paused_ns.min(self.duration_ns),
            paused_cpu_ns,
            by_generation,
        }
    }
}

fn step_parts(timeline: &ProcessTimeline, (start_ns, end_ns): (u64, u64)) -> Vec<PartSpan> {
    let thread = busiest_thread(timeline);
    let steps = timeline.steps.iter().filter(|step| {
        Some(step.thread) == thread && step.start_ns >= start_ns && step.end_ns <= end_ns
    });
    let steps: Vec<&StepSpan> = steps.collect();
    let shortest = (steps.len() / FEWEST_PARTS).clamp(1, STEPS);
    let each = shortest.max(steps.len().div_ceil(MOST_PARTS));
    let part = |steps: &[&StepSpan]| {
        let [first, last] = [steps.first()?, steps.last()?];
        let lengths = steps.iter().map(|step| duration_ns(step.start_ns, step.end_ns));
        let cpu_ns: Option<Vec<u64>> = steps.iter().map(|step| step.cpu_ns).collect();
        Some(PartSpan {
            steps: steps.len() as u64,
            duration_ns: sum(lengths),
            cpu_ns: cpu_ns.map(sum),
            start_ns: first.start_ns,
            end_ns: last.end_ns,
        })
    };
    steps.chunks_exact(each).filter_map(part).collect()
}

fn time_parts((start_ns, end_ns): (u64, u64)) -> Vec<PartSpan> {
    let each_ns = duration_ns(start_ns, end_ns) / TIME_PARTS;
    let part = |index: u64| {
        let from_ns = start_ns + index * each_ns;
        PartSpan {
            steps: 0,
            duration_ns: each_ns,
            cpu_ns: None,
            start_ns: from_ns,
            end_ns: from_ns + each_ns,
        }
    };
    let number = if each_ns > 0 { TIME_PARTS } else { 0 };
    (0..number).map(part).collect()
}

fn frozen(pauses: &[PauseSpan]) -> Option<bool> {
    let full =
        pauses.iter().filter(|pause| pause.generation == 2 && pause.reason != GcReason::Shutdown);
    let left = full.map(|pause| Some((pause.objects?.get(), pause.collected?.get())));
    let left: Option<Vec<(u32, u32)>> = left.collect();
    let left = left.filter(|left| left.len() > 1)?;
    let is_drop = |pair: &[(u32, u32)]| match pair {
        [(before, _), (after, freed)] => {
            u64::from(*after) + u64::from(*freed) < u64::from(*before) / 2
        }
        _ => false,
    };
    Some(left.windows(2).any(is_drop))
}
