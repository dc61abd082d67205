//! Figures of pauses: sums, single pauses, lines. [`PauseFigures`] and [`LongPause`] are views of a
//! [`gctrace_event::Pause`], as [`crate::report::WorstPause`] is; here unknown members are absent,
//! there they are `null`.

use crate::figure::{LabeledValue, Value, word};
pub use crate::pauses::{GENERATIONS, PauseOutcomes};
use crate::report::PauseTotal;
use gctrace_event::GcReason;
use serde::Serialize;
use std::collections::BTreeMap;

/// Upper bounds of the classes of pause times in ns: 1 - 2.5 - 5 steps from 10 µs to 10 s. One more
/// class counts longer pauses.
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

/// Number of pauses by [`PAUSE_CLASSES_NS`]; the last class counts pauses above all bounds.
pub type Histogram = [u64; PAUSE_CLASSES_NS.len() + 1];

/// Names of the generations, in the order of [`GENERATIONS`].
pub const GENERATION_NAMES: [&str; GENERATIONS] = ["0", "1", "2", "unknown"];

/// Counts of collections since the start of the recording. Arrays are by generation: 0, 1, 2,
/// unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CollectionCounts {
    /// Number of pauses by generation: 0, 1, 2, unknown.
    pub pauses: [u64; GENERATIONS],
    /// Sum of their lengths in ns, by generation.
    pub pause_ns: [u64; GENERATIONS],
    /// Number and time by reason (`automatic`, `manual`, `shutdown`, `unknown`) and generation.
    #[cfg_attr(feature = "schema", schemars(with = "BTreeMap<String, [PauseTotal; GENERATIONS]>"))]
    pub by_reason: BTreeMap<GcReason, [PauseTotal; GENERATIONS]>,
    /// Histogram of their lengths, by generation. The classes end at 10, 25, 50, 100, 250, 500 µs,
    /// 1, 2.5, 5, 10, 25, 50, 100, 250, 500 ms, 1, 2.5, 5 and 10 s; the last one counts longer
    /// pauses.
    pub histogram: [Histogram; GENERATIONS],
    /// Objects that they freed, and the longest pause.
    #[serde(flatten)]
    pub outcomes: PauseOutcomes,
}

impl CollectionCounts {
    /// Pauses by generation and reason. `rate()` misses the first increase of a counter that appears
    /// with it, so series of the usual reason always exist, for three generations.
    pub(crate) fn by_reason(&self, value: fn(&PauseTotal) -> u64) -> Vec<LabeledValue<'_>> {
        let mut reasons = self.by_reason.clone();
        // The reason of most collections.
        reasons.entry(GcReason::Automatic).or_default();
        let mut values = Vec::new();
        for (reason, generations) in reasons {
            for (name, pauses) in GENERATION_NAMES.into_iter().zip(generations) {
                if name != "unknown" || pauses.count > 0 {
                    let labels = vec![word("generation", name), word("reason", reason.into())];
                    values.push((labels, Value::Whole(value(&pauses))));
                }
            }
        }
        values
    }
}

/// End, length and generation of one pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PauseFigures {
    /// End of the pause, in ns.
    pub end_ns: u64,
    /// Length of the pause, in ns.
    pub duration_ns: u64,
    /// Generation, 0 to 2; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u8>,
}

/// One pause of at least `long_pause_ns`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LongPause {
    /// Process id of the collecting process on the host.
    pub pid: u32,
    /// Kernel id of the collecting thread on the host.
    pub tid: u32,
    /// Rank of the process; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Start of the pause, in ns.
    pub start_ns: u64,
    /// Start of the pause, in ns of Unix time.
    pub start_unix_ns: u64,
    /// Length of the pause, in ns.
    pub duration_ns: u64,
    /// Generation, 0 to 2; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u8>,
    /// Why the collection ran: `automatic`, `manual` (`gc.collect()`), `shutdown` or `unknown`.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub reason: GcReason,
    /// Objects found unreachable and freed; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collected: Option<u64>,
    /// Unreachable objects that could not be freed; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncollectable: Option<u64>,
    /// The trigger line: the innermost line outside the standard library and installed packages, or
    /// the innermost line if there is none; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<CodeLine>,
    /// The library line that was being executed, reached from `line`; absent if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub below: Option<CodeLine>,
    /// Whether the thread or process ended during the pause.
    pub unfinished: bool,
}

/// A line of Python code, identified by function, file and line number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CodeLine {
    /// Name of the function, qualified if the interpreter has it (CPython 3.11 and later).
    pub function: String,
    /// File, as the interpreter names it (`co_filename`).
    pub file: String,
    /// Line number within the file; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}
