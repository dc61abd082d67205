//! Pauses in figures: sums, single ones, lines.

use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// Upper bounds of the classes of pause times in nanoseconds: 1 - 2.5 - 5 steps from 10 us to 10 s. What is
/// longer is in one class more.
pub const PAUSE_CLASSES_NS: [u64; 19] = [
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// Number of pauses by [`PAUSE_CLASSES_NS`]; the last is of those longer than all bounds.
pub type Histogram = [u64; PAUSE_CLASSES_NS.len() + 1];

/// Generations 0, 1, 2 and, last, those whose generation the source could not tell.
pub const GENERATIONS: usize = 4;

/// Collections, counted since the begin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CollectionCounts {
    /// How many, by generation ([`GENERATIONS`]).
    pub pauses: [u64; GENERATIONS],
    /// Their time together, by generation.
    pub pause_ns: [u64; GENERATIONS],
    /// Number and time by generation and reason (`automatic`, `manual`, `shutdown`, `unknown`).
    pub by_reason: BTreeMap<&'static str, [CountAndTime; GENERATIONS]>,
    /// How long they were, by generation.
    pub histogram: [Histogram; GENERATIONS],
    /// Objects freed, as far as known.
    pub collected: u64,
    /// Objects found unreachable and not freed, as far as known.
    pub uncollectable: u64,
    /// Pauses that tell how many objects they freed.
    pub with_collected: u64,
    /// Longest pause.
    pub longest_ns: u64,
}

/// A number of pauses and their time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CountAndTime {
    /// How many.
    pub count: u64,
    /// Together.
    pub time_ns: u64,
}

/// A pause in short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PauseFigures {
    /// Its end.
    pub ended_ns: u64,
    /// Length.
    pub duration_ns: u64,
    /// Generation 0 to 2, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u8>,
}

/// A long pause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LongPause {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Rank of the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Begin.
    pub start_ns: u64,
    /// The same moment in nanoseconds since 1970.
    pub start_unix_ns: u64,
    /// Length.
    pub duration_ns: u64,
    /// Generation 0 to 2, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u8>,
    /// Why it ran: `automatic`, `manual`, `shutdown` or `unknown`.
    pub reason: &'static str,
    /// Objects freed, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collected: Option<u64>,
    /// Objects found unreachable and not freed, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncollectable: Option<u64>,
    /// Where the program was, where known: its innermost line that is neither of the standard library nor of
    /// an installed package; where all are, the innermost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<CodeLine>,
    /// The library line that was running below `line`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub below: Option<CodeLine>,
    /// The thread or process ended inside it.
    pub unfinished: bool,
}

/// A line of Python.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct CodeLine {
    /// Function, qualified where the interpreter tells it.
    pub function: String,
    /// File, as the interpreter names it.
    pub file: String,
    /// Line number, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}
