//! What pauses of one rank cost the others: the job replayed without them.

use super::RankJob;
use super::communicators::{Communicators, ShorterWaits};
use crate::figure::Basis;
use crate::gpu::replay::{JoinedReplay, JoinedSkeletons};
use crate::gpu::timeline::Timeline;
use crate::spans::PauseSpan;
use crate::time::{later, since, sum};
use serde::Serialize;

/// What the pauses of each rank cost each rank, by replay of all ranks together.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RankPauses {
    /// Always inferred: the schedule is rebuilt without pauses; order and the duration of each
    /// collective after its last rank has started are unchanged.
    pub basis: Basis,
    /// The ranks, in the order of `earlier_ns`; if `traces_left_out` is not 0, only ranks of the described traces.
    pub victims: Vec<u32>,
    /// The ranks with pauses, the highest cost first.
    pub sources: Vec<PauseSource>,
    /// All pauses of all ranks removed.
    pub all: PauseSource,
    /// Standard error of `all.job_earlier_ns`, in ns: the largest over the ranks, from their steps
    /// (as in `gpu.cause`). `null` if no rank has five steps.
    pub all_standard_error_ns: Option<u64>,
}

/// The effect of removing the pauses of some ranks.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PauseSource {
    /// The ranks without their pauses: one, or several together.
    pub ranks: Vec<u32>,
    /// Number of pauses that are removed, over these ranks.
    pub pauses: u64,
    /// Time of these pauses, in ns.
    pub paused_ns: u64,
    /// How much earlier each rank of `victims` would end, in ns: one row of the victim matrix.
    pub earlier_ns: Vec<i64>,
    /// Sum of `earlier_ns` over all ranks: GPU time of the whole job that the pauses cost, in ns.
    pub total_ns: i64,
    /// `total_ns` divided by what the pauses cost their own ranks; `null` if that is 0.
    pub amplification_ratio: Option<f64>,
    /// How much earlier the whole job would end, in ns.
    pub job_earlier_ns: i64,
    /// The effect on the mean step; `null` if the traces contain no steps.
    pub steps: Option<StepEffect>,
}

/// Mean time of a step: from the start of a rank's first step until everything launched in its
/// steps has finished, summed over the ranks, divided by the number of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepEffect {
    /// Number of steps of all ranks.
    pub steps: u64,
    /// Mean time as measured, in ns.
    pub mean_ns: u64,
    /// Mean time without the pauses, in ns.
    pub mean_without_ns: u64,
}

/// Number of ranks with pauses removed one by one, the ranks with the most pause time. All others' pauses are removed
/// together, so that a job of many ranks needs only some replays.
const SINGLE: usize = 16;

/// The victim matrix of a job, by rank and by communicator, `None` where nothing paused.
pub(super) fn pauses(
    ranks: &RankJob,
    communicators: &Communicators,
    job: &JoinedSkeletons<'_>,
) -> Option<(RankPauses, ShorterWaits)> {
    let mut paused: Vec<(u64, usize)> = (0..job.ranks())
        .filter(|at| job.pauses(*at).count > 0)
        .map(|at| (job.pauses(at).time_ns, at))
        .collect();
    if paused.is_empty() {
        return None;
    }
    paused.sort_by_key(|(paused_ns, at)| (std::cmp::Reverse(*paused_ns), *at));
    let paused: Vec<usize> = paused.into_iter().map(|(_, at)| at).collect();
    let (single, others) = paused.split_at(paused.len().min(SINGLE));
    let outcome = |replay: &JoinedReplay<'_>| ReplayOutcome::of(job, communicators, replay);
    let measured = outcome(&job.replay(|_| JoinedSkeletons::MEASURED));
    let without = |members: &[usize]| {
        let mut scenarios = vec![JoinedSkeletons::MEASURED; job.ranks()];
        for at in members {
            scenarios[*at] = JoinedSkeletons::WITHOUT_PAUSES;
        }
        job.replay(|at| scenarios[at])
    };
    let source = |members: &[usize], replay: &JoinedReplay<'_>| {
        let outcome = outcome(replay);
        let row = source(ranks, job, members, &measured, &outcome);
        (row, measured.shorter_waits_ns(&outcome))
    };
    let mut sources: Vec<(PauseSource, Vec<i64>)> = Vec::new();
    for members in single.chunks(1).chain([others]) {
        if !members.is_empty() {
            sources.push(source(members, &without(members)));
        }
    }
    sources.sort_by_key(|(source, _)| std::cmp::Reverse(source.total_ns));
    let (sources, sources_ns) = sources.into_iter().unzip();
    let without_all = without(&paused);
    let errors = (0..job.ranks()).filter_map(|at| without_all.step_evidence(at));
    let (all, all_ns) = source(&paused, &without_all);
    let pauses = RankPauses {
        basis: Basis::Inferred,
        victims: ranks.members.iter().map(|member| member.rank).collect(),
        sources,
        all,
        // Without enough steps it is unknown.
        all_standard_error_ns: errors.map(|steps| steps.standard_error_ns).max(),
    };
    let waits = ShorterWaits { sources_ns, all_ns };
    Some((pauses, waits))
}

/// The part of a replay that is compared.
struct ReplayOutcome {
    /// When each rank ends.
    ends_ns: Vec<u64>,
    steps: u64,
    /// Mean time of a step.
    step_ns: Option<u64>,
    /// How long the members of each communicator waited.
    waits_ns: Vec<u64>,
}

impl ReplayOutcome {
    fn of(
        job: &JoinedSkeletons<'_>,
        communicators: &Communicators,
        replay: &JoinedReplay<'_>,
    ) -> Self {
        let ranks = 0..job.ranks();
        let steps = sum(ranks.clone().map(|at| job.steps(at)));
        let spans = ranks.clone().filter_map(|at| replay.stepping_ns(at));
        Self {
            ends_ns: ranks.map(|at| replay.end_ns(at)).collect(),
            steps,
            step_ns: sum(spans).checked_div(steps),
            waits_ns: communicators.sums(replay.waits_ns()),
        }
    }

    fn makespan_end_ns(&self) -> u64 {
        self.ends_ns.iter().copied().fold(0, u64::max)
    }

    /// By communicator.
    fn shorter_waits_ns(&self, without: &Self) -> Vec<i64> {
        let waits = self.waits_ns.iter().zip(&without.waits_ns);
        let shorter = waits.map(|(own_ns, without_ns)| since(*own_ns, *without_ns));
        shorter.collect()
    }
}

/// The row of some members, with their pauses removed in `without`.
fn source(
    ranks: &RankJob,
    job: &JoinedSkeletons<'_>,
    members: &[usize],
    measured: &ReplayOutcome,
    without: &ReplayOutcome,
) -> PauseSource {
    let ends = measured.ends_ns.iter().zip(&without.ends_ns);
    let earlier_ns: Vec<i64> =
        ends.map(|(measured_ns, without_ns)| since(*measured_ns, *without_ns)).collect();
    let total_ns = earlier_ns.iter().copied().fold(0, later);
    let own_ns = members.iter().map(|at| earlier_ns[*at]).fold(0, later);
    let pauses = || members.iter().map(|at| job.pauses(*at));
    let numbers = members.iter().map(|at| ranks.members[*at].rank);
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    PauseSource {
        ranks: numbers,
        pauses: sum(pauses().map(|pause| pause.count)),
        paused_ns: sum(pauses().map(|pause| pause.time_ns)),
        total_ns,
        amplification_ratio: ratio(total_ns, own_ns),
        job_earlier_ns: since(measured.makespan_end_ns(), without.makespan_end_ns()),
        steps: match (measured.step_ns, without.step_ns) {
            (Some(mean_ns), Some(mean_without_ns)) => {
                Some(StepEffect { steps: measured.steps, mean_ns, mean_without_ns })
            }
            _ => None,
        },
        earlier_ns,
    }
}

/// Time in the pauses of a timeline, added.
pub(super) fn paused_ns(timeline: &Timeline) -> u64 {
    sum(timeline.pauses.iter().map(PauseSpan::duration_ns))
}

fn ratio(total_ns: i64, own_ns: i64) -> Option<f64> {
    if own_ns > 0 { Some(total_ns as f64 / own_ns as f64) } else { None }
}
