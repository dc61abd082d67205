//! The part of a report about what to do next.

use super::Basis;
use schemars::JsonSchema;
use serde::Serialize;

/// One change to make, with its evidence, its risk and its predicted effect.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Advice {
    /// Stable identifier of the kind of advice, for programs.
    pub id: AdviceId,
    /// What to do, in one line.
    pub action: String,
    /// The evidence in this report, and why the change helps.
    pub why: String,
    /// Code to add or a command to run; `null` if there is none.
    pub code: Option<String>,
    /// What can go wrong; `null` if nothing is known.
    pub risk: Option<String>,
    /// What the change saves and costs.
    #[serde(flatten)]
    pub effect: AdviceEffect,
    /// Always predicted: the basis of both bounds.
    pub basis: Basis,
}

/// The predicted effect of a change, with its settings.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct AdviceEffect {
    /// Lower bound of the time saved, in ns; negative if the change may cost time. With GPU times of
    /// the run, by replay with the simulated collector's pauses; otherwise of the collector's time in the
    /// training phase of the process that `phases` is about, by simulation of the collector. `null`
    /// if the collector cannot be simulated.
    pub saves_at_least_ns: Option<i64>,
    /// The likely saving of the same time, in ns; `null` if the collector cannot be simulated.
    pub saves_likely_ns: Option<i64>,
    /// Upper bound of the time saved, in ns: of the same time as `saves_at_least_ns`, of the time of
    /// all pauses without it. `null` if the change saves no time.
    pub saves_at_most_ns: Option<u64>,
    /// What the change costs once, where it begins, in ns: the collection before a freeze. It is not in
    /// the saving. `null` if the collector cannot be simulated.
    pub costs_once_ns: Option<u64>,
    /// The longest pause that is left in training (at start-up with `off-while-loading`), in ns, by
    /// simulation; `null` if the collector cannot be simulated.
    pub longest_ns: Option<u64>,
    /// Garbage that waits longer for its collection, at most, in objects; `null` if unknown.
    pub memory_objects: Option<u64>,
    /// Their memory, in bytes: what collections gave back per object that they freed, or the objects' own
    /// blocks if these are more. `null` if unknown: the trace needs measured collections, the allocator's
    /// arenas, or examined garbage.
    pub memory_bytes: Option<u64>,
    /// Whether `memory_bytes` is only the objects' own blocks: what garbage owns beside them (buffers,
    /// arrays, tensors) was not measured, and the memory may be many times as much.
    pub memory_is_least: bool,
    /// The device memory that they hold, in bytes, judged by what pauses returned to PyTorch's
    /// allocator; `null` if that was not recorded.
    pub memory_device_bytes: Option<u64>,
    /// Length of the run with the change, from the first start to the last end over all ranks; `null`
    /// without GPU times.
    pub run: Option<PredictedLength>,
    /// Mean length of a training step with the change; `null` without GPU times, or if steps are
    /// unknown.
    pub step: Option<PredictedLength>,
    /// Error of the replay in the saving, `run` and `step`, in ns, in proportion to the changed pause
    /// time: two standard errors of the cost of all pauses, or the unexplained part of the steps with
    /// pauses if that is larger (`gpu.cause`). The ranges include it. `null` if unknown.
    pub replay_error_ns: Option<u64>,
    /// The exact settings to apply; `null` if the advice changes no setting or nothing was
    /// simulated.
    pub settings: Option<AdvisedSettings>,
}

impl AdviceEffect {
    /// Whether the range of the saving contains 0, or is wider than the likely saving where that is
    /// known: one recording does not show what the change does. False without a range.
    #[must_use]
    pub(crate) fn is_uncertain(&self) -> bool {
        let Some(least_ns) = self.saves_at_least_ns else {
            return false;
        };
        let width_ns = i128::from(self.saves_at_most_ns.unwrap_or(0)) - i128::from(least_ns);
        least_ns <= 0 || self.saves_likely_ns.is_some_and(|likely_ns| width_ns > likely_ns.into())
    }
}

/// A measured length and its predicted bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PredictedLength {
    /// Length in this recording, in ns.
    pub measured_ns: u64,
    /// Lower bound of the length with the change, in ns.
    pub at_least_ns: u64,
    /// Upper bound of the length with the change, in ns.
    pub at_most_ns: u64,
}

/// Settings of the collector that an advice is about; what is `null` or `false` stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct AdvisedSettings {
    /// Arguments of `gc.set_threshold()`, at the start of the program.
    pub thresholds: Option<[i32; 3]>,
    /// `gc.collect()` and `gc.freeze()` once, where training begins.
    pub freeze: bool,
    /// Whether to call `gc.disable()`: where training begins if collections follow steps, else at the start of
    /// the program.
    pub disable: bool,
    /// `gc.collect()` after each so many steps; `null` if steps are unknown.
    pub collect_every_steps: Option<u64>,
}

/// The kinds of advice, in no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AdviceId {
    /// No collection was recorded, so there is nothing to change.
    NoCollection,
    /// Record the collections of the run as well.
    RecordCollections,
    /// Leave the collector as it is.
    Leave,
    /// Remove the program's own calls of `gc.collect()`.
    ExplicitCalls,
    /// Call `gc.freeze()` once, after setup.
    Freeze,
    /// Call `gc.freeze()` once, in the process that forks workers, before it does.
    FreezeBeforeFork,
    /// Raise the first threshold.
    RaiseThreshold,
    /// Disable automatic collection and collect between steps.
    Planned,
    /// Disable automatic collection until everything is loaded, then freeze the heap and enable it.
    /// What it saves is saved once per start.
    OffWhileLoading,
    /// Disable automatic collection for good.
    Disable,
    /// Add memory: the heap is swapped out.
    SwappedOut,
    /// Record the reasons of the collections.
    RecordReasons,
    /// Change the program so that the few cycles that all garbage comes from do not arise.
    BreakCycles,
    /// Record which cycles the garbage is in: no setting is known to save time.
    FindCycles,
    /// Measure what settings save: one recording does not show it.
    Measure,
    /// Let training wait less for its data: more workers, or a faster line.
    FasterData,
    /// Run what holds the GIL elsewhere.
    FreeGil,
    /// Inspect `gc.garbage`.
    Uncollectable,
}
