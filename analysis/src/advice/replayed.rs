//! Remedies, and the cost of all pauses, by replay of a run with GPU times.
//!
//! The simulated collector's pauses ([`remedy::changed_pauses`]) are replayed, so that a pause hidden
//! behind GPU work saves nothing.

use super::{PricedRun, recorded_run};
use crate::analysis::Analysis;
use crate::gpu::kept::KeptTimeline;
use crate::gpu::replay::{InsertedPause, JoinedSkeletons, PauseLength, ReplayChange, main_steps};
use crate::gpu::replays::{JobReplays, RunLength};
use crate::phases::JudgedRun;
use crate::remedy;
use crate::remedy::ChangedPauses;
use crate::report::{
    AdviceEffect, AdviceId, CauseReport, GpuCost, GpuWorkReport, PauseTotal, PredictedLength,
    ProcessReport,
};
use crate::spans::PauseSpan;
use crate::spans::index::Index;
use crate::time::stats::ratio;
use crate::time::{after, duration, signed, times};
use gctrace_event::GcReason;
use std::collections::{HashMap, HashSet};

/// What a replay of all timelines with GPU times is asked for.
#[derive(Debug, Default)]
pub(crate) struct AskedChanges {
    without_any: AskedChange,
    remedies: Vec<(AdviceId, [AskedChange; 3])>,
    /// All pauses that a setting affects, and the longest.
    pauses: PauseTotal,
    longest_ns: u64,
    /// Time of other pauses, at interpreter shutdown, by trace and process, in ns.
    at_shutdown_ns: HashMap<(usize, u32), u64>,
}

/// A change of pauses, in all timelines.
#[derive(Debug, Default)]
struct AskedChange {
    replay: ReplayChange,
    /// Pause time removed, and added, in ns.
    removed_ns: u64,
    added_ns: u64,
}

/// A run by replay.
#[derive(Debug, Default)]
pub(crate) struct ReplayedRun {
    /// `None` without GPU times, and if all pauses are at interpreter shutdown.
    pub(crate) cost: Option<GpuCost>,
    /// The savings of the remedies that were asked for.
    pub(super) effects: HashMap<AdviceId, AdviceEffect>,
}

impl AskedChanges {
    /// `timelines`: with GPU times, as they are replayed. `priced`: the remedies of the judged run.
    pub(crate) fn of(
        analysis: &Analysis,
        timelines: &[&KeptTimeline],
        processes: &[ProcessReport],
        priced: Option<&PricedRun>,
    ) -> Self {
        // Of several with one id, the one that was stopped longest, which comes first.
        let mut by_id: HashMap<(usize, u32), &ProcessReport> = HashMap::new();
        for process in processes {
            by_id.entry((process.trace, process.pid)).or_insert(process);
        }
        // Nothing waits for a GPU before training.
        let mut remedies = priced.map_or_else(Vec::new, |priced| priced.remedies.clone());
        remedies.retain(|remedy| remedy.id != AdviceId::OffWhileLoading);
        let mut asked = Self {
            remedies: remedies.iter().map(|remedy| (remedy.id, Default::default())).collect(),
            ..Self::default()
        };
        for (at, timeline) in (0..).zip(timelines) {
            for (pause, span) in Index::enumerate(&timeline.pauses) {
                if span.reason != GcReason::Shutdown {
                    asked.pauses.add(span.duration_ns());
                    asked.longest_ns = asked.longest_ns.max(span.duration_ns());
                    asked.without_any.set(at, pause.at(), span, 0);
                } else {
                    let process = (timeline.trace, timeline.pid);
                    let shutdown_ns = asked.at_shutdown_ns.entry(process).or_default();
                    *shutdown_ns = after(*shutdown_ns, span.duration_ns());
                }
            }
            let process = by_id.get(&(timeline.process_trace, timeline.pid));
            let run = process
                .and_then(|process| JudgedRun::of_process(analysis, timeline, process, Vec::new()));
            let changed = run.and_then(|run| {
                let steps = main_steps(timeline);
                let starts: Vec<(u64, u64)> =
                    steps.iter().map(|step| (step.number, step.start_ns)).collect();
                let recorded = recorded_run(analysis, &run);
                let changed = remedy::changed_pauses(&recorded, &remedies, &starts)?;
                Some((changed, steps.first().map(|step| step.thread)))
            });
            let Some((changed, thread)) = changed else {
                continue;
            };
            for ((_, sides), changed) in asked.remedies.iter_mut().zip(changed) {
                for (side, ChangedPauses { lengths, added }) in sides.iter_mut().zip(changed) {
                    for (pause, length_ns) in lengths {
                        if let Some(span) = timeline.pauses.get(pause) {
                            side.set(at, pause, span, length_ns);
                        }
                    }
                    for (at_ns, length_ns) in added {
                        if let Some(thread) = thread {
                            let timeline = at;
                            let pause = InsertedPause { timeline, thread, at_ns, length_ns };
                            side.replay.inserted.push(pause);
                            side.added_ns = after(side.added_ns, length_ns);
                        }
                    }
                }
            }
        }
        asked
    }

    /// First the one without any pause that a setting affects, then each remedy for the better, as
    /// likely, and for the worse.
    pub(crate) fn changes(&self) -> Vec<&ReplayChange> {
        let sides = self.remedies.iter().flat_map(|(_, sides)| sides);
        std::iter::once(&self.without_any).chain(sides).map(|change| &change.replay).collect()
    }

    /// `replays`: of the same timelines, with [`Self::changes`]. `work`: how well they match.
    pub(crate) fn outcome(
        &self,
        replays: &JobReplays,
        work: Option<&GpuWorkReport>,
    ) -> ReplayedRun {
        let jobs = replays.jobs();
        if jobs.is_empty() || self.pauses.count == 0 {
            return ReplayedRun::default();
        }
        let run = |change| RunLength::of(&jobs, JoinedSkeletons::FIRST_CHANGE + change);
        let measured = RunLength::of(&jobs, JoinedSkeletons::MEASURED);
        let baseline =
            Baseline { measured, error_ratio: work.and_then(|work| self.error_ratio(work)) };
        let effects = self.remedies.iter().enumerate().map(|(at, (id, sides))| {
            let of = |side: usize| (&sides[side], run(1 + 3 * at + side));
            (*id, baseline.effect([of(0), of(1), of(2)]))
        });
        ReplayedRun {
            effects: effects.collect(),
            cost: Some(GpuCost {
                run_ns: measured.length_ns,
                cost_ns: duration(run(0).length_ns, measured.length_ns),
                error_ns: baseline.error_ns(self.pauses.time_ns),
                pauses: self.pauses,
                longest_ns: self.longest_ns,
            }),
        }
    }

    /// Error of the cost of all pauses, as a share of their length: two standard errors, or the
    /// unexplained part of the steps with pauses if that is larger; of the process or job with the
    /// largest error. For ranks that wait for each other only the job as a whole is used: replayed
    /// alone, one rank's steps keep the effect of the others' pauses.
    fn error_ratio(&self, work: &GpuWorkReport) -> Option<f64> {
        let jobs = || work.ranks.iter().flat_map(|ranks| &ranks.jobs);
        let ranks = jobs().flat_map(|job| &job.ranks);
        let ranks: HashSet<(u64, u32)> = ranks.map(|rank| (rank.trace, rank.pid)).collect();
        let in_job = |cause: &&CauseReport| ranks.contains(&(cause.trace as u64, cause.pid));
        let of_jobs = jobs().filter_map(|job| {
            let pauses = job.pauses.as_ref()?;
            let twice_ns = times(pauses.all_standard_error_ns?, 2);
            ratio(twice_ns, pauses.all.paused_ns)
        });
        let alone = work.cause.iter().filter(|cause| !in_job(cause));
        let each = alone.filter_map(|cause| {
            let twice_ns = times(cause.standard_error_ns?, 2);
            let unexplained = cause.steps.and_then(|steps| steps.unexplained_ns);
            let larger_ns = Some(twice_ns).max(unexplained.map(i64::unsigned_abs))?;
            let shutdown_ns = self.at_shutdown_ns.get(&(cause.trace, cause.pid)).copied();
            let paused_ns = cause.pauses.time_ns.saturating_sub(shutdown_ns.unwrap_or(0));
            ratio(larger_ns, paused_ns)
        });
        each.chain(of_jobs).max_by(f64::total_cmp)
    }
}

impl AskedChange {
    /// A new length of a pause.
    fn set(&mut self, timeline: u32, pause: usize, span: &PauseSpan, length_ns: u64) {
        let pause = Index::new(pause);
        self.replay.lengths.push(PauseLength { timeline, pause, length_ns });
        let measured_ns = span.duration_ns();
        self.removed_ns = after(self.removed_ns, measured_ns.saturating_sub(length_ns));
        self.added_ns = after(self.added_ns, length_ns.saturating_sub(measured_ns));
    }

    fn changed_ns(&self) -> u64 {
        after(self.removed_ns, self.added_ns)
    }

    /// The least and most that a length that was measured is with the change. Where pauses only become
    /// shorter, nothing becomes longer, and nothing shorter by more than they do.
    fn range(&self, measured_ns: u64, new_ns: u64, error_ns: u64) -> (u64, u64) {
        let (least_ns, most_ns) = (duration(error_ns, new_ns), after(new_ns, error_ns));
        if self.added_ns > 0 {
            return (least_ns, most_ns);
        }
        let shortest_ns = duration(self.removed_ns, measured_ns);
        (least_ns.max(shortest_ns).min(new_ns), most_ns.min(measured_ns).max(new_ns))
    }
}

/// The run as it was measured.
struct Baseline {
    measured: RunLength,
    /// Error of the replay's cost of all pauses, as a part of their time; `None` if unknown.
    error_ratio: Option<f64>,
}

impl Baseline {
    /// Error of what a change of so much pause time saves; `None` if unknown.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an error bar needs no more than 52 bits; casts of floats saturate"
    )]
    fn error_ns(&self, changed_ns: u64) -> Option<u64> {
        self.error_ratio.map(|part| (part.max(0.0) * changed_ns as f64) as u64)
    }

    /// What a change saves; for the better, as likely, for the worse.
    fn effect(&self, sides: [(&AskedChange, RunLength); 3]) -> AdviceEffect {
        let RunLength { length_ns: measured_ns, step_ns } = self.measured;
        let steps = step_ns.and_then(|step_ns| measured_ns.checked_div(step_ns));
        let steps = steps.map_or(1, |steps| steps.max(1));
        // Where it is unknown, nothing is added for it.
        let error_of = |change: &AskedChange| self.error_ns(change.changed_ns()).unwrap_or(0);
        let run = PredictedLength::around(
            measured_ns,
            sides
                .iter()
                .map(|(change, new)| change.range(measured_ns, new.length_ns, error_of(change))),
        );
        let step = step_ns.and_then(|step_ns| {
            let each: Option<Vec<(u64, u64)>> = sides
                .iter()
                .map(|(change, new)| {
                    Some(change.range(step_ns, new.step_ns?, error_of(change) / steps))
                })
                .collect();
            Some(PredictedLength::around(step_ns, each?.into_iter()))
        });
        let saved = |ns: u64| signed(measured_ns).saturating_sub(signed(ns));
        let [_, (_, likely), _] = sides;
        let error = sides.iter().filter_map(|(change, _)| self.error_ns(change.changed_ns())).max();
        AdviceEffect {
            saves_at_least_ns: Some(saved(run.at_most_ns)),
            saves_likely_ns: Some(saved(likely.length_ns)),
            saves_at_most_ns: Some(u64::try_from(saved(run.at_least_ns)).unwrap_or(0)),
            run: Some(run),
            step,
            replay_error_ns: error,
            ..AdviceEffect::default()
        }
    }
}

impl PredictedLength {
    fn around(measured_ns: u64, ranges: impl Iterator<Item = (u64, u64)>) -> Self {
        let empty = Self { measured_ns, at_least_ns: u64::MAX, at_most_ns: 0 };
        ranges.fold(empty, |all, (least_ns, most_ns)| Self {
            at_least_ns: all.at_least_ns.min(least_ns),
            at_most_ns: all.at_most_ns.max(most_ns),
            ..all
        })
    }
}
