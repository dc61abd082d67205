//! More about one process.

use super::CodeLine;
use super::CountAndTime;
use schemars::JsonSchema;
use serde::Serialize;

/// More about one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ProcessDetail {
    /// Which.
    pub pid: u32,
    /// Lines that collections began in, most time first; the first [`crate::live::LINES`].
    pub lines: Vec<LineFigures>,
    /// Time and number of pauses of other lines, and of those without a known line. Lines that came up little
    /// among a thousand others are put here and begin anew.
    pub other_lines: CountAndTime,
    /// The last steps, oldest first; the last [`crate::live::STEPS`].
    pub steps: Vec<StepFigures>,
    /// What a step is, in words: `backward pass` (begin to begin), or the name of the profiler's annotation.
    pub step_basis: String,
    /// Timeline of the last seconds, oldest first: [`TimelineCell`]s of `cell_ns` each, the last of which ends
    /// at `timeline_until_ns`.
    pub timeline: Vec<TimelineCell>,
    /// Length of a cell.
    pub cell_ns: u64,
    /// End of the last cell.
    pub timeline_until_ns: u64,
}

/// A line of the program that collections began in, or below which they did in a library.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LineFigures {
    /// Which: the innermost line that is neither of the standard library nor of an installed package; where
    /// all are, the innermost.
    pub line: CodeLine,
    /// The library line below it that most of the time was spent under; absent where it is `line` itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub below: Option<CodeLine>,
    /// Pauses that began there.
    pub pauses: CountAndTime,
}

/// A step of training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StepFigures {
    /// Begin.
    pub start_ns: u64,
    /// Length.
    pub duration_ns: u64,
    /// Pauses of the process: how many began within it (one at least where any ran), and the time in which at
    /// least one ran.
    pub pauses: CountAndTime,
}

/// A short stretch of time of one process and its GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TimelineCell {
    /// Time in which at least one pause ran.
    pub gc_ns: u64,
    /// Time in which any operation of the process ran on its first GPU (CUPTI); `None` where that is not
    /// recorded, or not told yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_busy_ns: Option<u64>,
    /// Utilization of the GPU that it uses, as NVML last said, in percent, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_utilization_percent: Option<u32>,
}
