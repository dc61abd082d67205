//! The part of a report about Python lines and stacks that trigger collections.

use super::PauseTotal;
use schemars::JsonSchema;
use serde::Serialize;

/// Where collections were triggered: the Python stack of the collecting thread when its pause
/// began. Measured. A line that triggers an automatic collection is the one that happened to pass
/// the threshold; the more container objects a line makes, the more often that is.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct LinesReport {
    /// Pauses with a stack.
    pub with_stack: PauseTotal,
    /// Pauses without one, but for those at shutdown: stacks were not recorded, or no Python code
    /// was running.
    pub without_stack: PauseTotal,
    /// Pauses at the end of the interpreter without a stack: no Python code runs any more.
    pub without_stack_at_shutdown: PauseTotal,
    /// Of those with a stack: longer than was recorded (`--stack-depth`), so their outermost
    /// frames are not known.
    pub stack_too_deep: PauseTotal,
    /// Of `stack_too_deep`: no recorded frame is a line of the program itself.
    pub own_line_too_deep: PauseTotal,
    /// Of those with a stack: the innermost frame could not be read.
    pub unreadable: PauseTotal,
    /// By the line that was being executed, the costliest first: at most 50, of one process 20.
    pub innermost: Vec<LineReport>,
    /// Distinct lines, listed or not.
    pub innermost_total: u64,
    /// By the innermost line that is neither of the standard library nor of an installed package,
    /// that is, one that can be changed; where a stack has none, its innermost line. As many as
    /// `innermost`.
    pub own: Vec<LineReport>,
    /// Distinct own lines, listed or not.
    pub own_total: u64,
    /// By whole stack, the costliest first: at most 20, of one process 5.
    pub stacks: Vec<StackReport>,
    /// Distinct stacks, listed or not.
    pub stacks_total: u64,
    /// Lines that call `gc.collect()` or `PyGC_Collect`, own where the stack has one, the
    /// costliest first, at most 5: count and time of these calls alone.
    pub explicit: Vec<LineTotal>,
    /// Own lines that trigger automatic collections of the whole heap, at most 5: count and time
    /// of these alone.
    pub automatic_full: Vec<LineTotal>,
    /// The same for other automatic collections.
    pub automatic_partial: Vec<LineTotal>,
}

/// A place in Python code.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct Location {
    /// File (`co_filename`); empty for frames that are not known.
    pub file: String,
    /// Qualified name of the function where the interpreter has one (3.11 and later), else its
    /// name. `[outer frames not recorded]` and `[frame not readable]` are no functions.
    pub function: String,
    /// Line, where known.
    pub line: Option<u32>,
    /// Of the standard library or an installed package, by its path.
    pub library: bool,
}

/// Count and time of some pauses that one line triggered.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LineTotal {
    /// The line.
    pub location: Location,
    /// The pauses.
    pub pauses: PauseTotal,
}

/// All pauses that one line triggered.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LineReport {
    /// The line.
    pub location: Location,
    /// Its pauses.
    pub pauses: PauseTotal,
    /// Their share of the time of all pauses, those without a stack included.
    pub time_ratio: f64,
    /// The longest.
    pub max_ns: u64,
    /// By generation: 0, 1, 2, unknown.
    pub by_generation: [PauseTotal; 4],
    /// By reason: automatic, manual, shutdown, unknown.
    pub by_reason: [PauseTotal; 4],
    /// The line at the other end, the costliest first, at most 3. In `innermost`: the own lines
    /// from which a library line was reached. In `own`: the library lines that were being
    /// executed. Nothing where both are the same line.
    pub with: Vec<LineTotal>,
    /// Distinct lines in `with`, listed or not.
    pub with_total: u64,
}

/// All pauses that one stack triggered.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StackReport {
    /// From the innermost frame to the outermost.
    pub frames: Vec<Location>,
    /// Its pauses.
    pub pauses: PauseTotal,
    /// Their share of the time of all pauses, those without a stack included.
    pub time_ratio: f64,
    /// The longest.
    pub max_ns: u64,
    /// By generation: 0, 1, 2, unknown.
    pub by_generation: [PauseTotal; 4],
}
