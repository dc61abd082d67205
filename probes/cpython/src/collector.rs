//! Where the collector's state is in memory.

use serde::{Deserialize, Serialize};

/// Offsets in bytes. Offsets of the collector's fields are relative to its state ([`GcBase`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectorLayout {
    /// In `PyThreadState`: pointer to its interpreter.
    pub tstate_interpreter: u32,
    /// In `_PyRuntime`: pointer to the newest interpreter.
    pub interpreters_head: u32,
    /// In `PyInterpreterState`: pointer to the next interpreter.
    pub interpreter_next: u32,
    /// In `_PyRuntime`: pointer, non-null from the start of finalization.
    pub finalizing: u32,
    /// In `PyInterpreterState`: 64-bit signed id. `None` in 3.8, where all share one collector.
    pub interpreter_id: Option<u32>,
    /// Where the collector's state is: in the runtime or in each interpreter.
    pub gc: GcBase,
    /// `int`: whether a collection is running.
    pub collecting: u32,
    /// The collector itself tests `collecting` and returns at once if it is set (3.13 and later):
    /// such calls are not collections.
    pub tests_collecting: bool,
    /// `int`: whether automatic collection is enabled.
    pub enabled: u32,
    /// `int`: the threshold of each generation.
    pub thresholds: [u32; 3],
    /// The collector is the incremental one of 3.14.0 - 3.14.4: its statistics miss some
    /// collections, and the third threshold is not used (`gc.get_threshold()` returns 0 for it).
    pub is_incremental: bool,
    /// A pointer into the state itself that exposes a patched build.
    pub generations_self_check: Option<SelfCheck>,
    /// Where the counters behind `gc.get_stats()` are.
    pub stats: StatsLayout,
    /// 64 bits: objects in the oldest generation after the last full collection.
    pub long_lived_total: Option<u32>,
    /// 64 bits: all tracked objects (3.14 and later; free-threaded builds leave it 0).
    pub heap_size: Option<u32>,
}

/// The structure that contains the collector's state, and the offset in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GcBase {
    /// At this offset in `_PyRuntime` (3.8).
    InRuntime(u32),
    /// At this offset in each `PyInterpreterState`.
    InInterpreter(u32),
}

/// The 64-bit word at `pointer` must be the address of `target`, both within the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelfCheck {
    /// Offset of the pointer in the collector's state.
    pub pointer: u32,
    /// Offset in the collector's state that the pointer must refer to.
    pub target: u32,
}

/// Where the statistics of the generations are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StatsLocation {
    /// At this offset in the state.
    Inline(u32),
    /// Behind the pointer at this offset in the state (3.15).
    Behind(u32),
}

/// The counters behind `gc.get_stats()`: three 64-bit numbers per generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatsLayout {
    /// Where the records of all generations start.
    pub place: StatsLocation,
    /// Each generation's records, relative to that start.
    pub generations: [GenerationStats; 3],
    /// Offset in a record: number of collections of the generation.
    pub collections: u32,
    /// Offset in a record: objects collected.
    pub collected: u32,
    /// Offset in a record: uncollectable objects.
    pub uncollectable: u32,
}

/// The records of one generation: record `i` is at `base + i * stride`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationStats {
    /// Offset of the first record from the start of the statistics ([`StatsLayout::place`]).
    pub base: u32,
    /// Size of a record in bytes.
    pub stride: u32,
    /// Number of records: 1, or the length of the ring. Counters accumulate from record to record.
    pub length: u32,
    /// Offset of the 8-bit index of the newest record, if there is a ring.
    pub index: Option<u32>,
}
