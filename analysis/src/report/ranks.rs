//! The part of a report about ranks of distributed jobs: who waited for whom, and whose pauses cost
//! whom how much.

use super::Basis;
use schemars::JsonSchema;
use serde::Serialize;

/// Ranks of distributed jobs, where the traces hold operations of at least two ranks with the GPUs'
/// times. Ranks are of one job if they ran the same collectives, matched by communicator and number
/// where the profiler says these, else by kernel and order.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RanksReport {
    /// Inferred: clocks of different traces are aligned by the ends of collectives, which are
    /// taken to be the same moment on all ranks.
    pub basis: Basis,
    /// Jobs with at least two ranks in the traces.
    pub jobs: Vec<RankedJob>,
    /// Ranks whose collectives match those of no other rank in the traces.
    pub unrelated: Vec<UnrelatedRank>,
}

/// A rank of no job with others.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct UnrelatedRank {
    /// Index in `traces`.
    pub trace: u64,
    /// Its rank.
    pub rank: u32,
}

/// A job and what its ranks waited for each other.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RankedJob {
    /// By rank.
    pub ranks: Vec<RankReport>,
    /// Collectives, and how many could be matched.
    pub collectives: CollectivesReport,
    /// What pauses of each rank cost all; absent where no rank paused.
    pub pauses: Option<RankPauses>,
}

/// How the kernels of collectives were matched.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub struct CollectivesReport {
    /// Collectives found on at least two ranks.
    pub matched: u64,
    /// Of these, on all ranks of the job that are in the traces.
    pub on_all_ranks: u64,
    /// Kernels of collectives that were found on one rank only.
    pub kernels_unmatched: u64,
    /// Of these, kernels from the time when not all ranks were recorded.
    pub kernels_unmatched_outside: u64,
    /// Kernels that send to or receive from single ranks: not matched.
    pub point_to_point: u64,
    /// Matched collectives in which the last rank came later than the one before it by less than
    /// the error of the clocks: nobody is said to be last.
    pub last_undecided: u64,
}

/// One rank of a job.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RankReport {
    /// Its rank.
    pub rank: u32,
    /// Index in `traces`.
    pub trace: u64,
    /// Process id; 0 where the trace does not tell.
    pub pid: u32,
    /// Nanoseconds to add to its times to get those of the first rank; 0 for that rank and for those
    /// of the same trace.
    pub clock_offset_ns: i64,
    /// Remaining error of the offset: median distance of the ends of its collectives from those of
    /// the ranks before. Absent where the clock is the same.
    pub clock_error_ns: Option<u64>,
    /// Number of collectives that gave the offset.
    pub clock_collectives: u64,
    /// Other offsets fit about as well and the trace tells nothing else: all figures that compare
    /// this rank with others may be wrong.
    pub clock_ambiguous: bool,
    /// Its pauses.
    pub pauses: u64,
    /// Their time.
    pub paused_ns: u64,
    /// Matched collectives that it took part in.
    pub collectives: u64,
    /// Time in these before the last rank had begun: it waited for its peers.
    pub peer_wait_ns: u64,
    /// Time in these from then on.
    pub transfer_ns: u64,
    /// Collectives in which it was the last to begin.
    pub last: u64,
    /// Of these, with a pause of its own since the collective before.
    pub last_after_pause: u64,
    /// By device.
    pub devices: Vec<UsefulBusy>,
}

/// How long a device did something useful.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct UsefulBusy {
    /// Index of the device.
    pub device: u32,
    /// Time in which any operation of the process ran on it.
    pub busy_ns: u64,
    /// The same without the time in which only collectives ran that waited for peers.
    pub useful_busy_ns: u64,
}

/// What pauses of each rank cost each other rank, by replay of all ranks together.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RankPauses {
    /// Inferred: the schedule is rebuilt without pauses, keeping the order of everything and the time
    /// each collective takes once its last rank has begun.
    pub basis: Basis,
    /// The ranks by number, in the order of `earlier_ns`.
    pub victims: Vec<u32>,
    /// The ranks with pauses, that with the costliest first.
    pub sources: Vec<PauseSource>,
    /// All pauses of all ranks removed.
    pub all: PauseSource,
    /// Standard error of `all.job_earlier_ns`: the largest that the steps of a rank say (as in
    /// `gpu.cause`). Absent where no rank has five steps.
    pub all_standard_error_ns: Option<u64>,
}

/// Pauses removed, and how much earlier everybody would have ended.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PauseSource {
    /// The ranks whose pauses are removed: one, or several together.
    pub ranks: Vec<u32>,
    /// How many pauses.
    pub pauses: u64,
    /// Their time.
    pub paused_ns: u64,
    /// By how much each rank of `victims` ends earlier. One row of the victim matrix.
    pub earlier_ns: Vec<i64>,
    /// Their sum: GPU time of the whole job that the pauses cost.
    pub total_ns: i64,
    /// `total_ns` over what the pauses cost the ranks that made them; absent where that is nothing.
    pub amplification_ratio: Option<f64>,
    /// By how much the whole job ends earlier.
    pub job_earlier_ns: i64,
    /// The effect on steps, where the traces have any.
    pub steps: Option<StepEffect>,
}

/// Mean time of a step: from the begin of a rank's first step until all is done that was asked for
/// in its steps, added over the ranks, over the number of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StepEffect {
    /// Steps of all ranks.
    pub steps: u64,
    /// Mean length as measured.
    pub mean_ns: u64,
    /// Mean length without the pauses.
    pub mean_without_ns: u64,
}
