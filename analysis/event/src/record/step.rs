//! Marks of training steps.
//!
//! Owns how a mark is named in a trace: as the PyTorch profiler names its annotations, so that its
//! own traces have steps from them too.

use super::kind::{Phase, declare};
use bitcode::{Decode, Encode};
use serde::Serialize;
use std::borrow::Cow;

/// The marker of a training step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
pub enum NamedMarker {
    /// A call of the function that the user named (`--step-function`): its name as given.
    Function(String),
    /// The end of a step of a torch optimizer: its class, for example `SGD`.
    Optimizer(String),
    /// A backward pass: the outermost call of `torch::autograd::Engine::execute` of a thread.
    #[default]
    Backward,
    /// The next batch of a torch `DataLoader`: the class of the iterator.
    DataLoader(String),
}

const FUNCTION: &str = "step function ";
const OPTIMIZER: (&str, &str) = ("Optimizer.step#", ".step");
const BACKWARD: &str = "backward";
const DATA_LOADER: (&str, &str) = ("enumerate(DataLoader)#", ".__next__");

impl NamedMarker {
    /// Name of the mark's annotation: `step function train_step`, `Optimizer.step#SGD.step`,
    /// `backward`, `enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__`.
    #[must_use]
    pub fn annotation(&self) -> Cow<'static, str> {
        let around = |class: &str, (before, after)| Cow::Owned(format!("{before}{class}{after}"));
        match self {
            Self::Function(name) => around(name, (FUNCTION, "")),
            Self::Optimizer(class) => around(class, OPTIMIZER),
            Self::Backward => Cow::Borrowed(BACKWARD),
            Self::DataLoader(class) => around(class, DATA_LOADER),
        }
    }

    /// The marker with this name ([`NamedMarker::annotation`]); `None` for any other.
    #[must_use]
    pub fn from_annotation(name: &str) -> Option<Self> {
        let between = |(before, after): (&str, &str)| {
            let class = name.strip_prefix(before)?.strip_suffix(after)?;
            Some(class.to_owned())
        };
        if name == BACKWARD {
            return Some(Self::Backward);
        }
        between(OPTIMIZER)
            .map(Self::Optimizer)
            .or_else(|| between(DATA_LOADER).map(Self::DataLoader))
            .or_else(|| between((FUNCTION, "")).map(Self::Function))
    }
}

/// A mark of a training step: a step lasts from one mark ([`StepMark::at_ns`]) to the next of the
/// same marker and thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
pub struct StepMark {
    /// Process id in the host's initial pid namespace; in other tools' traces as written there.
    #[serde(skip)]
    pub pid: u32,
    /// Kernel id of the thread.
    #[serde(skip)]
    pub tid: u32,
    /// The marker of the step.
    #[serde(skip)]
    pub marker: NamedMarker,
    /// Start of the call, in ns of the trace's clock (gctrace's: CLOCK_MONOTONIC).
    #[serde(skip)]
    pub start_ns: u64,
    /// Its end, never before `start_ns`; equal to the start if only the mark itself was recorded,
    /// as in-process, or if the end of a backward pass was not seen.
    #[serde(skip)]
    pub end_ns: u64,
    /// CPU time that the thread has used until the mark ([`StepMark::at_ns`]), in ns; with kernel probes as of the
    /// kernel's last tick (10 ms at most) or switch. `None` if unknown, as in older traces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<u64>,
}

declare! {
    StepMark: Phase::Slice, "user_annotation", "a mark of a step",
    pid: pid, tid: tid, at: start_ns, end: end_ns, by: "--cuda" "--step-function";
    fn title(&self) -> (&str, Cow<'_, str>) {
        ("user_annotation", self.marker.annotation())
    }
}

impl StepMark {
    /// The time of the mark: an optimizer's step is marked by its end, any other call by its start.
    #[must_use]
    pub fn at_ns(&self) -> u64 {
        match self.marker {
            NamedMarker::Optimizer(_) => self.end_ns,
            NamedMarker::Function(_) | NamedMarker::Backward | NamedMarker::DataLoader(_) => {
                self.start_ns
            }
        }
    }
}
