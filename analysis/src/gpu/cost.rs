//! What all pauses cost a run with GPU times: its replay without them, with the error of that replay.
//!
//! A pause that is hidden behind GPU work costs nothing.

use super::kept::KeptTimeline;
use super::replay::{JoinedSkeletons, PauseLength, ReplayChange};
use super::replays::{JobReplays, run_length_ns};
use super::summary::GpuWorkReport;
use crate::figure::PauseTotal;
use crate::spans::index::Index;
use crate::time::{after, beyond, duration_ns, times};
use gctrace_event::GcReason;
use gctrace_stats::ratio;
use std::collections::{HashMap, HashSet};

/// What the pauses of processes with GPU times cost, by replay. Pauses at interpreter shutdown are
/// not included.
#[derive(Clone, Copy, Debug)]
pub struct GpuCost {
    /// Length of the run, in ns.
    pub run_ns: u64,
    /// How much longer the run was because of them, in ns.
    pub cost_ns: u64,
    /// Error of the cost in ns; `None` if unknown.
    pub error_ns: Option<u64>,
    /// Count and time of the pauses.
    pub pauses: PauseTotal,
    /// The longest of them, in ns.
    pub longest_ns: u64,
}

impl GpuCost {
    /// The cost as a share of the run.
    pub fn ratio(&self) -> f64 {
        ratio(self.cost_ns, self.run_ns).unwrap_or(0.0)
    }
}

/// A run without the pauses that settings affect, to replay.
#[derive(Debug, Default)]
pub(crate) struct WithoutPauses {
    change: ReplayChange,
    /// These pauses, and the longest.
    pauses: PauseTotal,
    longest_ns: u64,
    /// Time of other pauses, at interpreter shutdown, by trace and process, in ns.
    at_shutdown_ns: HashMap<(usize, u32), u64>,
}

impl WithoutPauses {
    /// `timelines`: with GPU times, as they are replayed.
    pub(crate) fn of(timelines: &[&KeptTimeline]) -> Self {
        let mut without = Self::default();
        for (at, timeline) in (0..).zip(timelines) {
            for (pause, span) in Index::enumerate(&timeline.pauses) {
                if span.reason == GcReason::Shutdown {
                    let process = (timeline.trace, timeline.pid);
                    let shutdown_ns = without.at_shutdown_ns.entry(process).or_default();
                    *shutdown_ns = after(*shutdown_ns, span.duration_ns());
                    continue;
                }
                without.pauses.add(span.duration_ns());
                without.longest_ns = without.longest_ns.max(span.duration_ns());
                without.change.lengths.push(PauseLength { timeline: at, pause, length_ns: 0 });
            }
        }
        without
    }

    /// What to replay.
    pub(crate) fn change(&self) -> &ReplayChange {
        &self.change
    }

    /// `replays`: of the same timelines, with [`Self::change`]. `work`: how well they match. `None` without GPU
    /// times, and if all pauses are at interpreter shutdown.
    pub(crate) fn cost(
        &self,
        replays: &JobReplays,
        work: Option<&GpuWorkReport>,
    ) -> Option<GpuCost> {
        let jobs = replays.jobs();
        if jobs.is_empty() || self.pauses.count == 0 {
            return None;
        }
        let run_ns = run_length_ns(&jobs, JoinedSkeletons::MEASURED);
        let without_ns = run_length_ns(&jobs, JoinedSkeletons::FIRST_CHANGE);
        let error_ratio = work.and_then(|work| self.error_ratio(work));
        Some(GpuCost {
            run_ns,
            cost_ns: duration_ns(without_ns, run_ns),
            error_ns: error_ratio.map(|part| (part.max(0.0) * self.pauses.time_ns as f64) as u64),
            pauses: self.pauses,
            longest_ns: self.longest_ns,
        })
    }

    /// Error of the cost of all pauses, as a share of their length: two standard errors, or the
    /// unexplained part of the steps with pauses if that is larger; of the process or job with the
    /// largest error. For ranks that wait for each other only the job as a whole is used: replayed
    /// alone, one rank's steps keep the effect of the others' pauses.
    fn error_ratio(&self, work: &GpuWorkReport) -> Option<f64> {
        let jobs = || work.ranks.iter().flat_map(|ranks| &ranks.jobs);
        let ranks = jobs().flat_map(|job| &job.ranks);
        let ranks: HashSet<(u64, u32)> = ranks.map(|rank| (rank.trace, rank.pid)).collect();
        let of_jobs = jobs().filter_map(|job| {
            let pauses = job.pauses.as_ref()?;
            let twice_ns = times(pauses.all_standard_error_ns?, 2);
            ratio(twice_ns, pauses.all.paused_ns)
        });
        let alone = work.cause.iter().filter_map(|cause| {
            if ranks.contains(&(cause.trace as u64, cause.pid)) {
                return None;
            }
            let twice_ns = times(cause.standard_error_ns?, 2);
            let unexplained = cause.steps.and_then(|steps| steps.unexplained_ns);
            let larger_ns = Some(twice_ns).max(unexplained.map(i64::unsigned_abs))?;
            let shutdown_ns =
                gctrace_units::met(self.at_shutdown_ns.get(&(cause.trace, cause.pid)));
            let paused_ns = beyond(cause.pauses.time_ns, shutdown_ns);
            ratio(larger_ns, paused_ns)
        });
        alone.chain(of_jobs).max_by(f64::total_cmp)
    }
}
