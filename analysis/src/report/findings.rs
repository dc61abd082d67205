//! Findings of a report, each serialized as the sentence that the caller makes of it.

use super::{Basis, PerStep};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use std::borrow::Cow;
use std::ops::Deref;

/// A finding and its sentence, as which it is serialized. The analysis has no prose: the sentence
/// is empty until the caller fills it in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Worded<F> {
    /// The finding as data; not serialized.
    #[serde(skip)]
    pub finding: F,
    /// The finding as text, for people.
    pub sentence: String,
}

impl<F> From<F> for Worded<F> {
    fn from(finding: F) -> Self {
        Self { finding, sentence: String::new() }
    }
}

impl<F> Deref for Worded<F> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.sentence
    }
}

impl<F> JsonSchema for Worded<F> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        String::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}

/// Causes of idle GPUs that traces cannot show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotCovered {
    /// The cost for the GPU beyond bounds: there are CUDA calls, but no GPU times.
    CostBeyondBounds,
    /// The cost for the GPU: there are only NVML samples.
    CostBySamples,
    /// The cost for the GPU: there is no GPU work.
    CostWithoutWork,
    /// The cost for the GPU: pauses and GPU work are of different processes or traces.
    CostOfOthersWork,
    /// Collections: there is GPU work only.
    Collections,
    /// The cost of a pause to other processes that wait for it.
    CostToOtherProcesses,
    /// The Python lines that trigger collections: there are no stacks.
    Lines,
}

/// Why a trace of the PyTorch profiler was not merged with one of gctrace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotMergedReason {
    /// Its timestamps cannot be converted to wall-clock time.
    NoWallClock,
    /// gctrace's trace of the process contains GPU work, too.
    GpuWorkInBoth,
    /// No gctrace trace overlaps it in time.
    NoOverlap,
    /// This number of gctrace's processes could be the same one.
    Ambiguous(usize),
}

/// A remark on a merge of two traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeNote {
    /// This thread of the profiler is assumed to be the main thread, although the ids differ.
    AssumedMainThread(u32),
    /// This thread of gctrace was not found in the profiler's trace.
    SeparateThread(u32),
    /// There was no collection while the profiler ran.
    NoCollection,
}

/// Why the pauses of a process cannot be classified by rules. In the order of the sentences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BoundsLimit {
    /// Events were lost, or may have been.
    EventsLost,
    /// Launches were not recorded.
    NoLaunches,
    /// The process used several devices.
    SeveralDevices,
}

/// The few cycles that most garbage comes from: of training where steps are known, otherwise of the
/// whole recording.
#[derive(Clone, Debug, PartialEq)]
pub struct MainCycles {
    /// Their indexes in `cycles`, those with the most objects first.
    pub cycles: Vec<usize>,
    /// Share of the garbage that is in them or held by them, 0 to 1.
    pub ratio: f64,
    /// Their number per training step; `None` if steps are unknown.
    pub per_step: Option<PerStep>,
    /// Their number per second; `None` if unknown.
    pub per_s: Option<f64>,
    /// What the figures per second rest on.
    pub basis: Basis,
}

impl MainCycles {
    /// From this share on nothing else is worth a collection: the rest is within what finalizers and
    /// rare events leave.
    const ALL: f64 = 0.95;

    /// Whether nothing would be left to collect without them.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.ratio >= Self::ALL
    }
}

/// Why two kinds of steps are not compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoComparison {
    /// The trace would not show collections.
    UnknownCollections,
    /// Too few steps with or without a full collection.
    FewSteps,
    /// Too few steps without a full collection follow one with a full collection.
    FewAfterFull,
}
