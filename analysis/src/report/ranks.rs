//! The part of a report about ranks of distributed jobs: which ranks waited for which, and what
//! the pauses of each cost the others.

use super::Basis;
use schemars::JsonSchema;
use serde::Serialize;
use strum::VariantArray;

/// Ranks of distributed jobs, if the traces contain GPU times of at least two ranks. Ranks belong
/// to one job if they ran the same collectives, matched by communicator and sequence number if the
/// profiler recorded these (PyTorch 2.12 and later), otherwise by kernel and order.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RanksReport {
    /// Always inferred: clocks of different traces are aligned by the ends of collectives, which
    /// are assumed to be simultaneous on all ranks.
    pub basis: Basis,
    /// Jobs with at least two ranks in the traces.
    pub jobs: Vec<RankedJob>,
    /// Ranks whose collectives match those of no other rank in the traces.
    pub unrelated: Vec<UnrelatedRank>,
}

/// A rank that belongs to no job with other ranks.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct UnrelatedRank {
    /// Index of its trace in `traces`, from 0.
    pub trace: u64,
    /// Number of the rank in its job, from 0.
    pub rank: u32,
}

/// A job and the waits of its ranks for each other.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RankedJob {
    /// The ranks of the job that are in the traces, ascending; if `traces_left_out` is not 0, those
    /// of the described traces.
    pub ranks: Vec<RankReport>,
    /// How the figures of the ranks are distributed, over all of them; empty for fewer than eight.
    pub spread: Vec<RankSpread>,
    /// How many collectives could be matched.
    pub collectives: CollectivesReport,
    /// What the pauses of each rank cost all ranks; `null` if no rank paused.
    pub pauses: Option<RankPauses>,
    /// What the ranks waited for each other by communicator, in kinds, the longest first; at most
    /// 16. Inferred. If `traces_left_out` is not 0, empty for jobs without a described trace.
    pub communicators: Vec<CommunicatorKind>,
}

/// Communicators of one kind: those of as many ranks in the traces, at the same distance from each
/// other. Groups of one dimension of the job's parallelism are one kind, for example the
/// tensor-parallel ones: neighbors.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CommunicatorKind {
    /// Number of ranks of each communicator that are in the traces. `null` in the last of 16, which
    /// has all other kinds.
    pub size: Option<u64>,
    /// Distance from the number of each rank to that of the next; `null` if it differs.
    pub stride: Option<u32>,
    /// Number of these communicators.
    pub communicators: u64,
    /// The waits of all of them.
    pub waits: CollectiveWaits,
    /// The communicators whose ranks waited longest, at most 16.
    pub longest: Vec<CommunicatorReport>,
}

/// One communicator. Without names, collectives of the same ranks are of one.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CommunicatorReport {
    /// PyTorch's name of the process group; `null` if the profiler did not record it.
    pub name: Option<String>,
    /// Number of its ranks that are in the traces.
    pub ranks: u64,
    /// The lowest of its ranks.
    pub first_rank: u32,
    /// The highest of its ranks.
    pub last_rank: u32,
    /// What its ranks waited for each other.
    pub waits: CollectiveWaits,
}

/// What ranks waited for each other in the collectives, sends and receives of some communicators.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CollectiveWaits {
    /// Number of matched collectives, and of sends with their receives.
    pub collectives: u64,
    /// Time in them before their last rank had started, summed over the ranks, in ns: the part of
    /// `peer_wait_ns` that these communicators have.
    pub wait_ns: u64,
    /// How much less of it there would be without any pauses, in ns, by replay of all ranks; also
    /// of pauses of ranks of other communicators, if those made a rank of this one late. Negative if
    /// there would be more: some pauses delay those that would have waited. `null` if no rank
    /// paused.
    pub for_pauses_ns: Option<i64>,
    /// The same without the pauses of each of `pauses.sources`, in their order: one row of the
    /// victim matrix by communicator. Rows need not add up to `for_pauses_ns`: if two ranks pause at
    /// the same time, removing the pauses of one of them alone changes little.
    pub for_sources_ns: Vec<i64>,
}

/// How the kernels of collectives were matched across ranks.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub struct CollectivesReport {
    /// Collectives found on at least two ranks.
    pub matched: u64,
    /// Of these, collectives found on all ranks of the job that are in the traces.
    pub on_all_ranks: u64,
    /// Kernels of collectives found on one rank only.
    pub kernels_unmatched: u64,
    /// Of these, kernels from the time when not all ranks were recorded.
    pub kernels_unmatched_outside: u64,
    /// Kernels that may be of one collective with kernels of other ranks, or not: the profiler
    /// named no communicator, and groups of ranks that run the same program in step end together,
    /// too. They are in no other figure.
    pub kernels_ambiguous: u64,
    /// Kernels that send to or receive from single ranks.
    pub point_to_point: u64,
    /// Of these, kernels whose other side was found.
    pub point_to_point_matched: u64,
    /// Matched collectives for which no rank counts as last, because the last two ranks started
    /// closer together than the error of the clocks.
    pub last_undecided: u64,
}

/// One rank of a job: its clock, its pauses and its waits for other ranks.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct RankReport {
    /// Number of the rank in its job, from 0.
    pub rank: u32,
    /// Index of its trace in `traces`, from 0.
    pub trace: u64,
    /// Process id; 0 if the trace does not contain it.
    pub pid: u32,
    /// Clock offset in ns: added to its timestamps it gives those of the first rank; 0 for that
    /// rank and for ranks of the same trace.
    pub clock_offset_ns: i64,
    /// Error of the offset, in ns: median distance of the ends of its collectives from those of the
    /// ranks before. `null` if the clock is the same.
    pub clock_error_ns: Option<u64>,
    /// Number of collectives that the offset was computed from.
    pub clock_collectives: u64,
    /// Whether other offsets fit about as well: all figures that compare this rank with others may
    /// then be wrong.
    pub clock_ambiguous: bool,
    /// Number of its pauses; if two traces were merged, those within the profiler's time.
    pub pauses: u64,
    /// Time of its pauses, in ns.
    pub paused_ns: u64,
    /// Number of matched collectives, sends and receives that it took part in.
    pub collectives: u64,
    /// Time in these collectives before the last rank had started, in ns: waiting for other ranks.
    pub peer_wait_ns: u64,
    /// Time in these collectives after the last rank had started, in ns.
    pub transfer_ns: u64,
    /// Number of collectives in which it was the last rank to start.
    pub last: u64,
    /// Of these, collectives before which one of its own pauses ended since the previous
    /// collective.
    pub last_after_pause: u64,
    /// Busy time by device, with and without waiting for other ranks.
    pub devices: Vec<UsefulBusy>,
}

/// A figure of each rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, VariantArray)]
#[serde(rename_all = "kebab-case")]
pub enum RankFigure {
    /// `paused_ns` of the rank.
    Paused,
    /// `peer_wait_ns` of the rank.
    PeerWait,
    /// `transfer_ns` of the rank.
    Transfer,
    /// `useful_busy_ns`, summed over the devices of the rank.
    UsefulBusy,
}

impl RankFigure {
    /// The figure of a rank, in ns.
    #[must_use]
    pub fn of(self, rank: &RankReport) -> u64 {
        match self {
            Self::Paused => rank.paused_ns,
            Self::PeerWait => rank.peer_wait_ns,
            Self::Transfer => rank.transfer_ns,
            Self::UsefulBusy => rank.devices.iter().map(|one| one.useful_busy_ns).sum(),
        }
    }
}

/// The distribution of a figure over the ranks of a job. Percentiles are by nearest rank.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RankSpread {
    /// The figure.
    pub figure: RankFigure,
    /// Smallest value, in ns.
    pub min_ns: u64,
    /// 5th percentile, in ns.
    pub p5_ns: u64,
    /// Median, in ns.
    pub p50_ns: u64,
    /// 95th percentile, in ns.
    pub p95_ns: u64,
    /// Greatest value, in ns.
    pub max_ns: u64,
    /// Ranks that stand out from the others, the farthest from the median first, at most 16.
    pub outliers: Vec<RankOutlier>,
    /// Number of further outliers, which `outliers` leaves out.
    pub outliers_left_out: u64,
    /// Hosts whose mean stands out from those of the other hosts, the farthest first, at most 16;
    /// empty if fewer than eight hosts are known.
    pub hosts: Vec<HostOutlier>,
}

/// A rank whose figure differs from those of the others by more than their spread explains.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RankOutlier {
    /// Number of the rank in its job, from 0.
    pub rank: u32,
    /// Index of its trace in `traces`, from 0.
    pub trace: u64,
    /// Its host; `null` if unknown.
    pub host: Option<String>,
    /// The figure, in ns.
    pub value_ns: u64,
    /// Modified z-score: the distance from the median, divided by the median absolute deviation of
    /// all ranks and multiplied by 0.6745. Outliers have more than 3.5 or less than -3.5 (Iglewicz
    /// and Hoaglin 1993).
    pub z: f64,
}

/// A host whose ranks differ from those of the other hosts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HostOutlier {
    /// Name of the host.
    pub host: String,
    /// Number of its ranks in the traces.
    pub ranks: u64,
    /// Mean of the figure over them, in ns.
    pub mean_ns: u64,
    /// Modified z-score among the means of all hosts.
    pub z: f64,
}

/// Busy time of one device, with and without waiting for other ranks.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct UsefulBusy {
    /// Index of the device in the process.
    pub device: u32,
    /// Time in which any operation of the process ran on it, in ns.
    pub busy_ns: u64,
    /// `busy_ns` without the time in which only collectives ran that waited for other ranks, in ns.
    pub useful_busy_ns: u64,
}

/// What the pauses of each rank cost each rank, by replay of all ranks together.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RankPauses {
    /// Always inferred: the schedule is rebuilt without pauses; order and the duration of each
    /// collective after its last rank has started are unchanged.
    pub basis: Basis,
    /// The ranks, in the order of `earlier_ns`; if `traces_left_out` is not 0, those of the described
    /// traces.
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
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PauseSource {
    /// The ranks whose pauses are removed: one, or several together.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StepEffect {
    /// Number of steps of all ranks.
    pub steps: u64,
    /// Mean time as measured, in ns.
    pub mean_ns: u64,
    /// Mean time without the pauses, in ns.
    pub mean_without_ns: u64,
}
