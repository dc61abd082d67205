//! The training phase of a run in parts that can be resampled.

use crate::gpu::kept::KeptTimeline;
use crate::gpu::steps::busiest_thread;
use crate::gpu::timeline::{ProcessTimeline, StepSpan};
use crate::pauses::generation_index;
use crate::phases::{JudgedRun, Phase};
use crate::report::{PauseTotal, TrainingPart, TrainingSeries};
use crate::spans::PauseSpan;
use crate::time::intervals::CoveredSpans;
use crate::time::{duration_ns, sum};
use gctrace_event::GcReason;
use std::num::NonZeroU64;

/// Steps of a part. Neighboring steps are alike; means of this many are nearly independent.
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
        let spans = match run.phases.steps {
            Some(_) => step_parts(timeline, run.phases.training_ns),
            None => time_parts(run.phases.training_ns),
        };
        let pauses = run.timeline.all_pauses();
        let of_training =
            pauses.clone().filter(|pause| run.phases.phase_of(pause) == Phase::Training);
        let parts = parts(&spans, of_training);
        if parts.is_empty() {
            return None;
        }
        Some(Self { training_by: run.phases.mark, parts, frozen: frozen(pauses) })
    }
}

/// The share of each part in these pauses; they come by start.
fn parts(spans: &[PartSpan], pauses: impl Iterator<Item = PauseSpan>) -> Vec<TrainingPart> {
    let mut parts: Vec<TrainingPart> = spans.iter().map(PartSpan::without_pauses).collect();
    let borders = spans.iter().map(|span| (span.start_ns, span.end_ns));
    let mut paused = CoveredSpans::new(borders.collect());
    for pause in pauses {
        paused.add(pause.span());
        let at = spans.partition_point(|span| span.end_ns <= pause.start_ns);
        if matches!(spans.get(at), Some(span) if span.start_ns <= pause.start_ns)
            && let Some(part) = parts.get_mut(at)
        {
            part.add(&pause);
        }
    }
    for (part, paused_ns) in parts.iter_mut().zip(paused.finish()) {
        // Between the steps of a part there may be gaps; collections in gaps count as well.
        part.paused_ns = paused_ns.min(part.duration_ns);
    }
    parts
}

impl TrainingPart {
    fn add(&mut self, pause: &PauseSpan) {
        if let Some(sum) = self.by_generation.get_mut(generation_index(pause.generation)) {
            sum.add(pause.duration_ns());
        }
        let cpu_ns = pause.cpu_ns.map(NonZeroU64::get);
        self.paused_cpu_ns = self.paused_cpu_ns.zip(cpu_ns).map(|(all, cpu_ns)| sum([all, cpu_ns]));
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
    fn without_pauses(&self) -> TrainingPart {
        TrainingPart {
            steps: self.steps,
            duration_ns: self.duration_ns,
            cpu_ns: self.cpu_ns,
            paused_ns: 0,
            paused_cpu_ns: Some(0),
            by_generation: [PauseTotal::default(); 4],
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

fn frozen(pauses: impl Iterator<Item = PauseSpan>) -> Option<bool> {
    let full = pauses.filter(|pause| pause.generation == 2 && pause.reason != GcReason::Shutdown);
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
