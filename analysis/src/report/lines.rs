//! The part of a report about Python lines and stacks that trigger collections.

use super::{Location, PauseTotal};
use gctrace_event::CalledKind;
use schemars::JsonSchema;
use serde::Serialize;

/// Where collections were triggered, measured: the Python stack of the collecting thread when the
/// pause started. An automatic collection is triggered by the line that happens to exceed the
/// threshold, so the more containers a line allocates, the more often it triggers one.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct LinesReport {
    /// Count and time of the pauses whose Python stack was recorded.
    pub with_stack: PauseTotal,
    /// Pauses without a stack, except at shutdown: stacks were not recorded, or no Python code was
    /// running.
    pub without_stack: PauseTotal,
    /// Pauses without a stack at interpreter shutdown, when no Python code runs.
    pub without_stack_at_shutdown: PauseTotal,
    /// Of the pauses with a stack: it was deeper than `--stack-depth`, so its outermost frames are
    /// unknown.
    pub stack_too_deep: PauseTotal,
    /// Of `stack_too_deep`: no recorded frame is in the program's own code.
    pub own_line_too_deep: PauseTotal,
    /// Of the pauses with a stack: the innermost frame could not be read.
    pub unreadable: PauseTotal,
    /// Pauses by the innermost line, the most time first: at most 50, for a single process 20.
    pub innermost: Vec<LineReport>,
    /// Number of distinct innermost lines, listed or not.
    pub innermost_total: u64,
    /// Pauses by own line, the most time first: the innermost line outside the standard library and
    /// installed packages, or the innermost line if there is none. At most as many as in
    /// `innermost`.
    pub own: Vec<LineReport>,
    /// Number of distinct own lines, listed or not.
    pub own_total: u64,
    /// Pauses by whole stack, the most time first: at most 20, for a single process 5.
    pub stacks: Vec<StackReport>,
    /// Number of distinct stacks, listed or not.
    pub stacks_total: u64,
    /// Lines that call `gc.collect()` or `PyGC_Collect`, own lines if the stack has one, the most
    /// time first, at most 5. Count and time of these calls only.
    pub explicit: Vec<LineTotal>,
    /// Own lines that trigger automatic full collections, at most 5. Count and time of these only.
    pub automatic_full: Vec<LineTotal>,
    /// Count and time of all automatic full collections with a stack.
    pub automatic_full_total: PauseTotal,
    /// Own lines that trigger other automatic collections, at most 5. Count and time of these only.
    pub automatic_partial: Vec<LineTotal>,
    /// Count and time of all other automatic collections with a stack.
    pub automatic_partial_total: PauseTotal,
    /// Training libraries in these stacks, the most specific first.
    pub libraries: Vec<LibraryReport>,
}

/// A function of the program that collections call. Its time is in no figure about pauses.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CalledReport {
    /// `finalizer` (`__del__`, a callback of a weak reference, a generator that is closed), within
    /// collections, or `callback` (a function in `gc.callbacks`), before and after them.
    #[schemars(with = "String")]
    pub kind: CalledKind,
    /// The function, at its first line; `null` if it is unknown, or of several that were not told
    /// apart.
    pub function: Option<Location>,
    /// Number of calls.
    pub calls: u64,
    /// Time of all calls, in ns.
    pub time_ns: u64,
    /// Longest time of its calls by one collection, in ns.
    pub longest_ns: u64,
}

/// A training library whose files are in stacks.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LibraryReport {
    /// The library.
    pub library: TrainingLibrary,
    /// Its own switch for planned collections, as the user writes it, `N` for the number of steps;
    /// `null` if it has none.
    pub switch: Option<&'static str>,
    /// Count and time of the pauses with a stack through it.
    pub pauses: PauseTotal,
}

/// Libraries that run training loops, the most specific first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TrainingLibrary {
    /// PyTorch's torchtitan.
    Torchtitan,
    /// NVIDIA's Megatron Bridge.
    MegatronBridge,
    /// NVIDIA's Megatron-LM: `megatron/training`.
    MegatronLm,
    /// NVIDIA's NeMo.
    Nemo,
    /// Ai2's OLMo-core.
    OlmoCore,
    /// PyTorch's TNT.
    Torchtnt,
    /// Lightning, under either of its names.
    Lightning,
    /// The Trainer of Hugging Face's Transformers.
    Transformers,
}

impl TrainingLibrary {
    /// Its name, as its authors write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Torchtitan => "torchtitan",
            Self::MegatronBridge => "Megatron Bridge",
            Self::MegatronLm => "Megatron-LM",
            Self::Nemo => "NeMo",
            Self::OlmoCore => "OLMo-core",
            Self::Torchtnt => "torchtnt",
            Self::Lightning => "Lightning",
            Self::Transformers => "Transformers' Trainer",
        }
    }

    /// Its own switch: `Training.gc_freq` of torchtitan's job configuration (000204a),
    /// `--manual-gc` of Megatron-LM's arguments (core 0.15), `TrainingConfig` of Megatron Bridge,
    /// `GarbageCollectionCallback` of NeMo (2.0, pull request 10261), OLMo-core's
    /// `GarbageCollectorCallback` (2.x), `torchtnt.framework.callbacks.GarbageCollector` (0.2).
    /// Lightning (2.x) and Transformers (4.x, 5.x) have none.
    #[must_use]
    pub fn switch(self) -> Option<&'static str> {
        Some(match self {
            Self::Torchtitan => "--training.gc_freq N",
            Self::MegatronBridge => "train.manual_gc=true train.manual_gc_interval=N",
            Self::MegatronLm => "--manual-gc --manual-gc-interval N",
            Self::Nemo => "GarbageCollectionCallback(gc_interval_train=N, gc_interval_val=N)",
            Self::OlmoCore => "GarbageCollectorCallback(gc_interval=N)",
            Self::Torchtnt => "GarbageCollector(step_interval=N)",
            Self::Lightning | Self::Transformers => return None,
        })
    }

    /// Whether the switch collects generation 1 only, so that what survives two collections is
    /// never freed.
    #[must_use]
    pub fn skips_full_collections(self) -> bool {
        matches!(self, Self::Torchtitan | Self::OlmoCore | Self::Torchtnt)
    }
}

/// Count and time of the pauses that one line triggered.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LineTotal {
    /// The line that these pauses have in common.
    pub location: Location,
    /// Count and time of the pauses with this line.
    pub pauses: PauseTotal,
}

/// All pauses that one line triggered.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LineReport {
    /// The line that these pauses have in common.
    pub location: Location,
    /// Count and time of the pauses with this line.
    pub pauses: PauseTotal,
    /// Share of the time of all pauses, including those without a stack, 0 to 1.
    pub time_ratio: f64,
    /// Longest of these pauses, in ns.
    pub max_ns: u64,
    /// Pauses by generation: 0, 1, 2, unknown.
    pub by_generation: [PauseTotal; 4],
    /// Pauses by reason: automatic, manual, shutdown, unknown.
    pub by_reason: [PauseTotal; 4],
    /// Lines that occur with it, the most time first, at most 3. In `innermost`: the own lines from
    /// which a library line was reached. In `own`: the library lines that were being executed.
    /// Empty if both are the same line.
    pub with: Vec<LineTotal>,
    /// Number of distinct lines in `with`, listed or not.
    pub with_total: u64,
    /// In `own`, if the line executes an import: the imported module, empty if only the import
    /// system itself was running; `null` for other lines.
    pub imports: Option<String>,
}

/// All pauses that one stack triggered.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StackReport {
    /// Frames of the stack, innermost first, without those of the import system (`importlib`). If
    /// it was deeper than `--stack-depth`, the last is `[outer frames not recorded]`.
    pub frames: Vec<Location>,
    /// Count and time of the pauses that started with exactly this stack.
    pub pauses: PauseTotal,
    /// Share of the time of all pauses, including those without a stack, 0 to 1.
    pub time_ratio: f64,
    /// Longest of these pauses, in ns.
    pub max_ns: u64,
    /// Pauses by generation: 0, 1, 2, unknown.
    pub by_generation: [PauseTotal; 4],
}
