//! The report: the findings of the analysis, as data. Owns the types behind the schema
//! `gctrace.report/3` (docs/report-schema.md). Names end in the unit: `_ns` nanoseconds,
//! `_per_s` per second, `_ratio` a share of 1; numbers without such an ending are counts.
//! `basis` states what the figures of an object rest on; an object without it has the basis of
//! the enclosing object. Timestamps are on the clock of the trace (`CLOCK_MONOTONIC`).

mod advice;
mod by_cause;
mod condense;
mod evidence;
mod findings;
mod phases;
mod processes;

// Everything that a feature declares `pub` is a part of the report.
pub use crate::allocations::*;
pub use crate::called::*;
pub use crate::cleanup::figures::*;
pub use crate::counters::*;
pub use crate::cpu::main_thread::*;
pub use crate::cpu::meanwhile::*;
pub use crate::cpu::off_cpu::*;
pub use crate::cpu::*;
pub use crate::cuda::*;
pub use crate::figure::*;
pub use crate::freeze::*;
pub use crate::garbage::report::*;
pub use crate::garbage::shape::*;
pub use crate::gpu::bounds::report::*;
pub use crate::gpu::breakdown::*;
pub use crate::gpu::cause::*;
pub use crate::gpu::cost::*;
pub use crate::gpu::devices::*;
pub use crate::gpu::idle::*;
pub use crate::gpu::launching::*;
pub use crate::gpu::merge::{
    AlignedBy, ClockReport, MergeNote, NotMerged, NotMergedReason, RecognizedBy,
};
pub use crate::gpu::ranks::communicators::*;
pub use crate::gpu::ranks::spread::*;
pub use crate::gpu::ranks::summary::{CollectivesReport, RankedJob, RanksReport, UnrelatedRank};
pub use crate::gpu::ranks::victims::*;
pub use crate::gpu::ranks::waits::*;
pub use crate::gpu::replay::StepEvidenceReport;
pub use crate::gpu::replays::NotReplayed;
pub use crate::gpu::steps::comparison::*;
pub use crate::gpu::steps::*;
pub use crate::gpu::summary::*;
pub use crate::gpu::timeline::IgnoredWork;
pub use crate::gpu_samples::*;
pub use crate::growth::*;
pub use crate::layers::*;
pub use crate::leak_watch::*;
pub use crate::memory::*;
pub use crate::paths::TrainingLibrary;
pub use crate::pauses::{CpuTime, PausesReport, StopTheWorld};
pub use crate::pressure::*;
pub use crate::settings::*;
pub use crate::spans::StepSource;
pub use crate::stacks::ranking::*;
pub use crate::turns::figures::*;
pub use crate::turns::others::*;
pub use advice::*;
pub use by_cause::*;
pub use condense::*;
pub use evidence::*;
pub use findings::*;
pub use phases::*;
pub use processes::*;

use gctrace_event::GcReason;
use serde::Serialize;
use std::fmt;

/// Name and version of the schema, the value of `schema` in a report.
pub const SCHEMA: &str = "gctrace.report/3";

/// The report of `gctrace analyze` over one or more traces. Names end in the unit: `_ns`
/// nanoseconds, `_per_s` per second, `_ratio` a share of 1, `_bytes` bytes; a number without such
/// an ending is a count. `null` means unknown or not recorded, never 0.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// Name and version of this schema: always `gctrace.report/3`.
    pub schema: String,
    /// Version of gctrace that made the report.
    pub gctrace: String,
    /// The one-sentence answer: how much of a problem the collector is.
    pub verdict: Verdict,
    /// Changes to make, in the order to try them, each with its predicted effect.
    pub advice: Vec<Advice>,
    /// Number of separate runs in the traces, as far as their times are known: traces of one run overlap in time.
    /// Several runs have no common verdict.
    pub runs: u64,
    /// Sums over all traces, including processes that `processes` does not list.
    pub totals: Totals,
    /// One entry per trace, in the order of the command line; other members refer to a trace by its
    /// index here.
    pub traces: Vec<TraceReport>,
    /// Traces that `traces` and all other lists leave out: 0 unless there are more than 128. The
    /// sums, groups and distributions of the report include them.
    pub traces_left_out: u64,
    /// Processes that ran the collector, by time stopped, descending; at most 10,000 per trace.
    pub processes: Vec<ProcessReport>,
    /// What the threads of sampled processes executed (`--sample`), the most samples first, whether they ran the
    /// collector or not.
    pub cpu: Vec<CpuReport>,
    /// The loops of processes, that of a service first: event loops, workers that wait for requests.
    pub loops: Vec<LoopReport>,
    /// Waits of processes for collections of other processes, by both, the most time first.
    pub waits_for_processes: Vec<ProcessWaitReport>,
    /// Pauses by the generation collected, ascending; generations without pauses are omitted.
    pub by_generation: Vec<PauseGroup>,
    /// Pauses by the reason of the collection.
    pub by_reason: Vec<PauseGroup>,
    /// The longest pauses, longest first, at most ten.
    pub worst: Vec<WorstPause>,
    /// Python lines and stacks that trigger collections; `null` if no pause has a stack.
    pub lines: Option<LinesReport>,
    /// Allocation pressure, summed over all processes that ran the collector; `null` if it was not
    /// recorded.
    pub pressure: Option<PressureReport>,
    /// Performance counters of all processes that ran the collector; `null` if none were recorded.
    pub counters: Option<CountersReport>,
    /// What ran on the GPUs and what the pauses cost; `null` unless a trace contains operations
    /// with GPU times.
    pub gpu: Option<GpuWorkReport>,
    /// Lower and upper bounds of what pauses cost the GPUs, for processes with CUDA calls recorded without GPU times;
    /// `null` if there are none.
    pub gpu_bounds: Option<BoundsReport>,
    /// Start-up, training and exit of the process that the verdict is about; `null` if no process
    /// collected, and for free-threaded builds.
    pub phases: Option<PhasesReport>,
    /// Training steps; `null` unless a trace contains profiler steps or backward passes.
    pub steps: Option<StepsReport>,
    /// NVML samples, by trace and GPU index; empty if NVML was not polled.
    pub gpus: Vec<GpuReport>,
    /// CUDA and NCCL calls, device memory of PyTorch, backward passes; `null` if they were not
    /// recorded.
    pub cuda: Option<CudaReport>,
    /// Collections that freed no object, by kind, and their share of the time of all pauses.
    pub freed_nothing: FreedNothingReport,
    /// Collections that the program requested by `gc.collect()` or `PyGC_Collect`.
    pub explicit_calls: ExplicitCallsReport,
    /// What the collector frees, over all processes with examined collections; `null` without
    /// `--garbage`.
    pub garbage: Option<GarbageReport>,
    /// What recording cost the program, in time, inferred from the hits of the probes.
    pub overhead: OverheadReport,
    /// What the figures do not include.
    pub missing: MissingData,
    /// What these traces cannot show, one sentence each.
    pub not_covered: Vec<NotCovered>,
    /// What the pauses cost the run, for verdict and advice; `None` without GPU times, or without
    /// pauses.
    #[serde(skip)]
    pub gpu_cost: Option<GpuCost>,
    /// Training in parts, for comparisons with other runs; `None` for several runs, and if no process collected or
    /// took steps.
    #[serde(skip)]
    pub series: Option<TrainingSeries>,
}

/// The first of these loops, unless the program has training steps: those are its unit. Threads in the background are none.
pub(crate) fn service_loop<'a>(
    loops: &'a [LoopReport],
    phases: Option<&PhasesReport>,
) -> Option<&'a LoopReport> {
    match phases {
        Some(phases) if phases.steps.is_some() => None,
        _ => loops.first().filter(|of| !of.is_in_background()),
    }
}

impl Report {
    /// The loop of a service: the first one of a program without training steps.
    #[must_use]
    pub fn service_loop(&self) -> Option<&LoopReport> {
        service_loop(&self.loops, self.phases.as_ref())
    }

    /// The loops whose turns its users notice: the service's, others that wait for several inputs, and threads of the
    /// service's process that share its work. Beside a service, who asks and waits for the answer is none.
    pub fn service_loops(&self) -> impl Iterator<Item = &LoopReport> {
        let first = self.service_loop();
        let is_noticed = move |of: &&LoopReport| {
            let is_same = first.is_some_and(|first| (first.trace, first.pid) == (of.trace, of.pid));
            of.waits_for_many() || is_same && of.is_of_several()
        };
        let others = self.loops.iter().skip(1).filter(|of| !of.is_in_background());
        first.into_iter().chain(others.filter(move |of| first.is_some() && is_noticed(of)))
    }

    /// The process that the verdict is about; for free-threaded builds, the one stopped longest; `None` if none
    /// collected.
    pub fn judged_process(&self) -> Option<&ProcessReport> {
        if let Some(phases) = &self.phases {
            let id = (phases.trace, phases.pid);
            let judged = self.processes.iter().find(|process| (process.trace, process.pid) == id);
            if judged.is_some() {
                return judged;
            }
        }
        self.processes.first()
    }

    /// The phase that the verdict is about; `None` where it is about all of the processes' time.
    pub fn judged_phase(&self) -> Option<&PhaseReport> {
        self.phases.as_ref().map(|phases| match phases.judged {
            JudgedPhase::StartUp => &phases.start_up,
            JudgedPhase::Training => &phases.training,
        })
    }

    /// The collections that the verdict is about, by cause.
    pub(crate) fn judged_causes(&self) -> ByCause {
        if let Some(phase) = self.judged_phase() { phase.causes } else { self.by_likely_cause() }
    }

    /// The pauses of this reason; `None` if there are none.
    pub fn pauses_of(&self, reason: GcReason) -> Option<&PausesReport> {
        let mut groups = self.by_reason.iter();
        let group = groups.find(|group| group.name == GroupName::Reason(reason));
        group.map(|group| &group.pauses)
    }
}

/// How much of a problem the collector is. The share is `totals.stopped_ratio` without the pauses
/// at interpreter shutdown; with GPU times it is the cost by replay as a share of the run, and
/// `rare-long-pauses` also needs a cost of 100 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// No collection was recorded.
    None,
    /// The observed time is unknown; or the traces would not show collections if there were any.
    Unknown,
    /// Without GPU times: the part of the run that is judged has no known steps and is shorter than
    /// 100 ms, or its share of 1 % or more is of one or two pauses under 100 ms.
    TooShort,
    /// Under 1 % of the time, and no pause of 100 ms or more.
    Negligible,
    /// Under 1 % of the time, but with pauses of 100 ms or more.
    RareLongPauses,
    /// 1 % to 5 % of the time.
    Noticeable,
    /// 5 % of the time or more.
    Heavy,
}

/// The one-sentence answer to how much of a problem the collector is.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Verdict {
    /// How much of a problem the collector is, for programs.
    pub level: Level,
    /// The answer as text, for people; its wording may change.
    pub sentence: String,
    /// Basis of the share of time in the sentence.
    pub basis: Basis,
}

/// Counts and times, summed over the processes of all traces.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Totals {
    /// Basis of counts and times: inferred if the end of a process was taken from its last event,
    /// otherwise measured.
    pub basis: Basis,
    /// Statistics of all pauses of all processes.
    pub pauses: PausesReport,
    /// Recorded time of processes that ran the collector, in ns, summed over processes.
    pub observed_ns: u64,
    /// Time with the collector running, in ns: overlapping pauses of one process count once, processes are summed,
    /// pauses omitted by `--min-pause` are included.
    pub paused_ns: u64,
    /// Time that Python code could not run, in ns, summed over processes. Equals `paused_ns`, except in free-threaded
    /// builds: there it is the stop-the-world time.
    pub stopped_ns: u64,
    /// `stopped_ns` / `observed_ns`; `null` if nothing was observed.
    pub stopped_ratio: Option<f64>,
    /// The largest `stopped_ratio` of a process.
    pub worst_process_ratio: Option<f64>,
    /// Number of processes that ran the collector.
    pub processes: u64,
    /// Number of these processes in all sums but not in `processes`, as it lists the first 10,000 of each trace.
    pub processes_not_listed: u64,
    /// Number of recorded processes without a Python interpreter.
    pub processes_without_python: u64,
    /// Number of recorded Python processes that never ran the collector.
    pub processes_without_pauses: u64,
    /// Memory shared with their parent that forked processes copied; `null` if none was examined.
    pub copied: Option<CopiedMemory>,
}

/// Memory of forked processes that was their parent's, until a process wrote to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CopiedMemory {
    /// Number of examined forked processes: the first 16.
    pub processes: u64,
    /// Number of these processes that ran a collection.
    pub collecting: u64,
    /// Memory that they copied, in bytes, up to the last look at each.
    pub bytes: u64,
    /// The most of one of them, in bytes.
    pub most_bytes: u64,
}

/// The common trait of the pauses of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupName {
    /// The generation collected, 0 to 2; `None` if unknown.
    Generation(Option<u8>),
    /// The reason of the collection.
    Reason(GcReason),
}

impl fmt::Display for GroupName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Generation(Some(generation)) => generation.fmt(formatter),
            Self::Generation(None) => formatter.write_str("unknown"),
            Self::Reason(reason) => formatter.write_str(reason.as_ref()),
        }
    }
}

serialized_as_text!(GroupName);

/// Pauses of one generation or one reason.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PauseGroup {
    /// Generation (`0`, `1`, `2`, `unknown`) or reason (`automatic`, `manual`, `shutdown`,
    /// `unknown`).
    pub name: GroupName,
    /// Share of this group in the time of all pauses, 0 to 1.
    pub time_ratio: f64,
    /// Statistics of the pauses in this group, over all traces.
    pub pauses: PausesReport,
}
