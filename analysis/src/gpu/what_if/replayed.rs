//! The effect of a plan on a run, by replay of its jobs.

use super::ProgramModel;
use super::RunLength;
use super::collect_every::mean_step_ns;
use crate::gpu::ranks;
use crate::gpu::replay::InsertedPause;
use crate::gpu::replay::PauseLength;
use crate::gpu::replay::ReplayChange;
use crate::gpu::replay::ReplayJob;
use crate::gpu::replay::ReplayModel;
use crate::gpu::replay::ReplaySchedule;
use crate::gpu::timeline::Timeline;
use crate::time::duration;
use crate::time::timestamp;
use std::collections::HashMap;
use std::collections::HashSet;

/// A job with its learned model.
#[derive(Debug)]
pub struct LearnedJob {
    /// The model learned from the recorded run, which is replayed for each plan.
    pub model: ReplayModel,
    /// Add to a time of the timeline of the same index to get the job's common clock.
    pub offsets_ns: Vec<i64>,
    /// For each of its timelines, the index among the programs.
    pub programs: Vec<usize>,
}

/// The jobs of some programs. Programs in none of them are unchanged.
#[derive(Debug)]
pub struct JobReplays<'a> {
    /// The programs that plans are about.
    pub programs: &'a [ProgramModel<'a>],
    /// The jobs that are replayed, each with a model of its own.
    pub jobs: Vec<LearnedJob>,
    /// Error of the replay's cost of all pauses, as a share of their length; `None` if unknown.
    pub error_ratio: Option<f64>,
}

impl JobReplays<'_> {
    /// The run with these changes; their timelines are indices among the programs. Without any, as
    /// it was measured.
    #[must_use]
    pub fn run(&self, plan: &ReplayChange) -> RunLength {
        let runs = self.jobs.iter().map(|job| self.run_of(job, plan));
        let all: Vec<RunLength> = runs.collect();
        let steps: Vec<u64> = all.iter().filter_map(|run| run.step_ns).collect();
        RunLength {
            // Jobs that have nothing to do with each other: the longest.
            length_ns: all.iter().map(|run| run.length_ns).fold(0, u64::max),
            step_ns: mean(&steps),
        }
    }

    /// Error of the time saved by a change; `None` if unknown. `saved_pause_ns`: the pause time
    /// that it removes.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an error bar needs no more than 52 bits; casts of floats saturate"
    )]
    pub(super) fn error_ns(&self, saved_pause_ns: u64) -> Option<u64> {
        self.error_ratio
            .map(|ratio| (ratio.max(0.0) * saved_pause_ns as f64) as u64)
    }

    fn run_of(&self, job: &LearnedJob, plan: &ReplayChange) -> RunLength {
        let schedule = job.model.replay(&change(&job.programs, plan));
        let (mut start_ns, mut end_ns, mut steps) = (u64::MAX, 0, Vec::new());
        for (at, (program, offset_ns)) in job.programs.iter().zip(&job.offsets_ns).enumerate() {
            let program = &self.programs[*program];
            if let Some(first_ns) = program.timeline.first_ns() {
                let first_ns = i128::from(first_ns) + i128::from(*offset_ns);
                start_ns = start_ns.min(timestamp(first_ns));
            }
            end_ns = end_ns.max(schedule.end_ns(at));
            steps.extend(step_ns(program, &schedule, at));
        }
        RunLength {
            length_ns: duration(start_ns, end_ns),
            step_ns: mean(&steps),
        }
    }
}

/// Mean step of a program in a schedule.
fn step_ns(program: &ProgramModel<'_>, schedule: &ReplaySchedule, at: usize) -> Option<u64> {
    mean_step_ns(program)?;
    let steps = program.steps();
    let (first, last) = (steps.first()?, steps.last()?);
    let start_ns = schedule.timestamp(at, first.thread, first.start_ns);
    let end_ns = schedule.timestamp(at, last.thread, last.end_ns);
    Some(duration(start_ns, end_ns) / steps.len() as u64)
}

fn mean(values: &[u64]) -> Option<u64> {
    let sum: u128 = values.iter().map(|value| u128::from(*value)).sum();
    let mean = sum.checked_div(values.len() as u128)?;
    u64::try_from(mean).ok()
}

/// The part of a plan that is about a job's timelines.
fn change(programs: &[usize], plan: &ReplayChange) -> ReplayChange {
    let places: HashMap<usize, u32> = programs.iter().copied().zip(0..).collect();
    let timeline = |program: u32| places.get(&(program as usize)).copied();
    let lengths = plan.lengths.iter().filter_map(|new| {
        Some(PauseLength {
            timeline: timeline(new.timeline)?,
            ..*new
        })
    });
    let inserted = plan.inserted.iter().filter_map(|new| {
        Some(InsertedPause {
            timeline: timeline(new.timeline)?,
            ..*new
        })
    });
    ReplayChange {
        lengths: lengths.collect(),
        inserted: inserted.collect(),
    }
}

/// The jobs of some programs, each with the indices of its programs: ranks of one job together,
/// every other program alone.
pub(super) fn jobs<'a>(programs: &[ProgramModel<'a>]) -> Vec<(ReplayJob<'a>, Vec<usize>)> {
    let timelines: Vec<&'a Timeline> = programs.iter().map(|own| own.timeline).collect();
    let found = ranks::jobs(&timelines).jobs;
    let of_ranks = found.iter().map(|job| {
        let members = job.members.iter().map(|member| member.timeline);
        (job.job(&timelines), members.collect::<Vec<usize>>())
    });
    let mut jobs: Vec<(ReplayJob<'a>, Vec<usize>)> = of_ranks.collect();
    let in_a_job: HashSet<usize> = jobs.iter().flat_map(|(_, own)| own).copied().collect();
    let alone: Vec<(ReplayJob<'a>, Vec<usize>)> = timelines
        .iter()
        .enumerate()
        .filter(|(index, _)| !in_a_job.contains(index))
        .map(|(index, timeline)| (ReplayJob::single(timeline), vec![index]))
        .collect();
    jobs.extend(alone);
    jobs
}
