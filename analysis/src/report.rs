//! The report: what the analysis found, as data.
//!
//! Owns the types behind the schema `gctrace.report/2` (docs/report-schema.md). Names carry the
//! unit: `_ns` nanoseconds, `_per_s` per second, `_ratio` a share of 1; numbers without a suffix
//! are counts. Each object says in `basis` what its figures rest on; one without has the basis of
//! the object around it. Times of traces are on the clock of the trace (`CLOCK_MONOTONIC`).

mod allocations;
mod cause;
mod clocks;
mod counters;
mod cuda;
mod evidence;
mod gpu_bounds;
mod gpu_devices;
mod gpu_gaps;
mod gpu_work;
mod gpus;
mod launching;
mod lines;
mod pressure;
mod processes;
mod ranks;
mod recorded;
mod steps;
mod what_if;

pub use allocations::AllocatingLine;
pub use allocations::AllocationsReport;
pub use allocations::SizeClass;
pub use cause::CauseReport;
pub use cause::DeviceCost;
pub use cause::PauseCostParts;
pub use cause::PauseCostReport;
pub use cause::StepEvidenceReport;
pub use clocks::AlignedBy;
pub use clocks::ClockReport;
pub use clocks::NotMerged;
pub use clocks::RecognisedBy;
pub use counters::CounterReport;
pub use counters::CountersReport;
pub use cuda::CudaFunction;
pub use cuda::CudaReport;
pub use cuda::DeviceMemoryReport;
pub use evidence::Advice;
pub use evidence::CpuTime;
pub use evidence::ExplicitCallsReport;
pub use evidence::FreedNothingReport;
pub use evidence::GrowthPoint;
pub use evidence::GrowthReport;
pub use evidence::MissingData;
pub use evidence::OwnCost;
pub use evidence::PauseTotal;
pub use evidence::PausesReport;
pub use evidence::Prediction;
pub use evidence::ProbeReport;
pub use evidence::StopTheWorld;
pub use evidence::WorstPause;
pub use gpu_bounds::BoundsReport;
pub use gpu_bounds::ProcessBounds;
pub use gpu_bounds::RuleBounds;
pub use gpu_devices::DeviceId;
pub use gpu_devices::DeviceReport;
pub use gpu_devices::StreamIdle;
pub use gpu_devices::StreamReport;
pub use gpu_devices::TemporalBreakdown;
pub use gpu_gaps::DeviceGaps;
pub use gpu_gaps::GapReport;
pub use gpu_gaps::GapsReport;
pub use gpu_gaps::HostTime;
pub use gpu_work::GpuWorkReport;
pub use gpu_work::IgnoredWork;
pub use gpus::GpuFigure;
pub use gpus::GpuProcessReport;
pub use gpus::GpuReport;
pub use gpus::ThrottleShare;
pub use launching::DepthPoint;
pub use launching::DepthReport;
pub use launching::DeviceLaunching;
pub use launching::LatencyReport;
pub use launching::LaunchingReport;
pub use lines::LineReport;
pub use lines::LineTotal;
pub use lines::LinesReport;
pub use lines::Location;
pub use lines::StackReport;
pub use pressure::ArenasReport;
pub use pressure::PressureReport;
pub use processes::InterpreterReport;
pub use processes::ProcessReport;
pub use processes::SettingsReport;
pub use processes::TraceReport;
pub use ranks::CollectivesReport;
pub use ranks::PauseSource;
pub use ranks::RankPauses;
pub use ranks::RankReport;
pub use ranks::RankedJob;
pub use ranks::RanksReport;
pub use ranks::StepEffect;
pub use ranks::UnrelatedRank;
pub use ranks::UsefulBusy;
pub use recorded::RecordedReport;
pub use recorded::Sources;
pub use steps::ProcessSteps;
pub use steps::StepComparison;
pub use steps::StepDifference;
pub use steps::StepLengths;
pub use steps::StepReport;
pub use steps::StepsReport;
pub use what_if::Garbage;
pub use what_if::PredictedLength;
pub use what_if::PredictedRange;
pub use what_if::Saving;
pub use what_if::WhatIf;

use schemars::JsonSchema;
use serde::Serialize;

/// Name and version of the schema, the value of `schema` in a report.
pub const SCHEMA: &str = "gctrace.report/2";

/// What a figure rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Counted or timed.
    Measured,
    /// Follows from what was measured, with an assumption that the field names.
    Inferred,
    /// Says what would be; nobody has seen it.
    Predicted,
}

/// Everything found in one or more traces.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Report {
    /// Always `gctrace.report/2`.
    pub schema: String,
    /// Version of gctrace that made the report.
    pub gctrace: String,
    /// The answer in one sentence.
    pub verdict: Verdict,
    /// What to do next, the most useful first.
    pub advice: Vec<Advice>,
    /// All traces together.
    pub totals: Totals,
    /// One entry per trace, in the order given.
    pub traces: Vec<TraceReport>,
    /// Processes that ran the collector, the most paused first.
    pub processes: Vec<ProcessReport>,
    /// Pauses by generation, ascending.
    pub by_generation: Vec<PauseGroup>,
    /// Pauses by reason.
    pub by_reason: Vec<PauseGroup>,
    /// The longest pauses, longest first, at most ten.
    pub worst: Vec<WorstPause>,
    /// Python lines and stacks that trigger collections; absent where no pause has a stack.
    pub lines: Option<LinesReport>,
    /// Allocation pressure of all processes that ran the collector, where recorded.
    pub pressure: Option<PressureReport>,
    /// Performance counters of all processes that ran the collector, where recorded.
    pub counters: Option<CountersReport>,
    /// What ran on the GPUs and what pauses cost it, where a trace holds operations with the GPU's times.
    pub gpu: Option<GpuWorkReport>,
    /// What pauses cost the GPUs at least and at most, of processes whose calls of CUDA were recorded but not
    /// the GPU's own times.
    pub gpu_bounds: Option<BoundsReport>,
    /// What other settings of the collector would do, of processes that worked on a GPU, made calls to one or
    /// took training steps. Empty where there is no pause of theirs that they would change.
    pub what_if: Vec<WhatIf>,
    /// Training steps, where a trace holds annotations of the profiler's steps or backward passes.
    pub steps: Option<StepsReport>,
    /// How the GPUs did, by trace and index, as far as NVML was asked.
    pub gpus: Vec<GpuReport>,
    /// Calls of CUDA and NCCL, torch's device memory, backward passes, where recorded.
    pub cuda: Option<CudaReport>,
    /// Collections that freed no object.
    pub freed_nothing: FreedNothingReport,
    /// Collections that the program asked for.
    pub explicit_calls: ExplicitCallsReport,
    /// What recording cost the program.
    pub own_cost: OwnCost,
    /// What is not in the figures.
    pub missing: MissingData,
    /// What these traces cannot tell.
    pub not_covered: Vec<String>,
}

/// How much of a problem the collector is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// No collection was recorded.
    None,
    /// Collections ran, but for how long the program did is not in the traces; or the traces cannot
    /// tell whether any ran.
    Unknown,
    /// Under 1 % of the time, and no pause of 100 ms.
    Negligible,
    /// Under 1 % of the time, but with pauses of 100 ms or more.
    RareLongPauses,
    /// 1 % to 5 % of the time.
    Noticeable,
    /// 5 % of the time or more.
    Heavy,
}

/// The answer in one sentence.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Verdict {
    /// How much of a problem the collector is.
    pub level: Level,
    /// For people.
    pub sentence: String,
    /// The basis of the share of time in it.
    pub basis: Basis,
}

/// All traces together.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Totals {
    /// Of counts and times: measured, unless some process's end had to be guessed.
    pub basis: Basis,
    /// All pauses.
    pub pauses: PausesReport,
    /// Time during which processes were recorded, added over those that ran the collector.
    pub observed_ns: u64,
    /// Time during which the collector ran: overlapping pauses of one process once, processes
    /// added, pauses left out by `--min-pause` included.
    pub paused_ns: u64,
    /// Time during which a process's Python code stood still. The same as `paused_ns`, but in
    /// free-threaded builds the time that the other threads were stopped.
    pub stopped_ns: u64,
    /// `stopped_ns` / `observed_ns`; absent where nothing was observed.
    pub stopped_ratio: Option<f64>,
    /// The largest such share among the processes.
    pub worst_process_ratio: Option<f64>,
    /// Processes that ran the collector.
    pub processes: u64,
    /// Those of them that are in all sums but not in the list of processes: of each trace the first 10,000 are listed.
    pub processes_not_listed: u64,
    /// Recorded processes in which no Python was found.
    pub processes_without_python: u64,
    /// Recorded Python processes that never ran the collector.
    pub processes_without_pauses: u64,
}

/// Pauses that have something in common.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PauseGroup {
    /// Generation (`0`, `1`, `2`, `unknown`) or reason (`automatic`, `manual`, `shutdown`,
    /// `unknown`).
    pub name: String,
    /// Their share of the time of all pauses.
    pub time_ratio: f64,
    /// The pauses.
    pub pauses: PausesReport,
}
