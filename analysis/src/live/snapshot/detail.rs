//! Figures of one process in detail.

use super::{CodeLine, GarbageDetail};
use crate::report::{PauseTotal, StepSource};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

/// Figures that a snapshot contains for the selected process only: trigger lines, steps and a
/// timeline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ProcessDetail {
    /// Process id of the selected process on the host.
    pub pid: u32,
    /// Lines that triggered collections, by pause time, descending, at most 20.
    pub lines: Vec<LineFigures>,
    /// Pauses of all other lines and of unknown ones. Of more than a thousand lines, those with the
    /// least time are added here and counted anew.
    pub other_lines: PauseTotal,
    /// What its collections free; absent if none was examined (`--garbage`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub garbage: Option<GarbageDetail>,
    /// The most recent steps, oldest first, at most 60.
    pub steps: Vec<StepFigures>,
    /// What delimits the steps: `backward pass` (start to start), or the name of the profiler's
    /// annotation; empty without steps.
    #[serde(serialize_with = "basis")]
    #[schemars(with = "String")]
    pub step_basis: Option<StepSource>,
    /// Timeline of the last seconds, oldest first, in cells of `cell_ns`; the last one ends at
    /// `timeline_end_ns`.
    pub timeline: Vec<TimelineCell>,
    /// Length of a cell, in ns.
    pub cell_ns: u64,
    /// End of the last cell, in ns.
    pub timeline_end_ns: u64,
}

fn basis<S: Serializer>(source: &Option<StepSource>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(source.map_or("", StepSource::basis))
}

/// A line that triggered collections, itself or through a library that it called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LineFigures {
    /// The innermost line outside the standard library and installed packages, or the innermost
    /// line if there is none.
    pub line: CodeLine,
    /// The library line with the most pause time that was reached from it; absent if the
    /// collections started in `line` itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub below: Option<CodeLine>,
    /// Number and time of the pauses that started in `line` or below it.
    pub pauses: PauseTotal,
}

/// One training step and the pauses in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StepFigures {
    /// Start of the step, in ns.
    pub start_ns: u64,
    /// Length of the step, in ns.
    pub duration_ns: u64,
    /// Pauses of the process: the number that started within the step (at least 1 if any ran), and
    /// the time in which at least one ran.
    pub pauses: PauseTotal,
}

/// A short interval of one process and its GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TimelineCell {
    /// Time in which at least one pause ran, in ns.
    pub gc_ns: u64,
    /// Time in which any operation of the process ran on its first GPU (CUPTI), in ns; absent if
    /// that is not recorded or not received yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_busy_ns: Option<u64>,
    /// Utilization of its GPU in percent, from the last NVML sample; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_utilization_percent: Option<u32>,
}
