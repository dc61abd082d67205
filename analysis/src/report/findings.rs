//! Findings of a report that are serialized as sentences, for people.

use super::{Basis, PerStep, StepComparison};
use std::fmt;

serialized_as_text!(NotCovered, NotMergedReason, MergeNote, BoundsLimit, NoErrorBar);
serialized_as_text!(NoComparison, MainCycles);

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

impl fmt::Display for NotCovered {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::CostBeyondBounds => {
                "What the pauses cost the GPU: these traces contain CUDA calls but no GPU times, so \
                 only bounds can be given."
            }
            Self::CostBySamples => {
                "What the pauses cost the GPU: these traces contain only NVML samples. Each covers \
                 1/6 s or more, too long to show a gap as short as a pause."
            }
            Self::CostWithoutWork => {
                "What the pauses cost the GPU: these traces contain no GPU work, so a pause may \
                 have been hidden behind queued kernels or have left the GPU idle."
            }
            Self::CostOfOthersWork => {
                "What the pauses cost the GPU: these traces contain pauses and GPU work, but of \
                 different processes or traces, so a pause may have been hidden behind queued \
                 kernels or have left the GPU idle."
            }
            Self::Collections => {
                "Garbage collection: these traces contain GPU work but no collections. The PyTorch \
                 profiler records collections only if configured to, so their absence does not \
                 mean that none ran."
            }
            Self::CostToOtherProcesses => {
                "The cost of a pause to other processes that wait for it, such as ranks of a \
                 distributed job in a collective."
            }
            Self::Lines => {
                "Which Python lines trigger the collections: these traces contain no stacks \
                 (--stack-depth 0, an older gctrace, or another tool)."
            }
        })
    }
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

impl fmt::Display for NotMergedReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoWallClock => formatter.write_str(
                "its timestamps cannot be converted to wall-clock time (no \
                 \"baseTimeNanoseconds\"), so the gctrace trace of the same time cannot be found",
            ),
            Self::GpuWorkInBoth => formatter.write_str(
                "gctrace's trace of this process contains GPU work, too; both are counted",
            ),
            Self::NoOverlap => formatter.write_str("no gctrace trace overlaps it in time"),
            Self::Ambiguous(candidates) => write!(
                formatter,
                "{candidates} processes of gctrace's traces could be this one: neither process id \
                 nor rank identifies it"
            ),
        }
    }
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

impl fmt::Display for MergeNote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AssumedMainThread(tid) => write!(
                formatter,
                "The main thread's id is not in the profiler's trace; thread {tid}, which launches \
                 the most, is assumed to be the main thread."
            ),
            Self::SeparateThread(tid) => write!(
                formatter,
                "Thread {tid} of gctrace's trace was not found in the profiler's, whose thread ids \
                 are of another namespace: its collections are attributed to a separate thread."
            ),
            Self::NoCollection => formatter.write_str(
                "gctrace recorded no collection while the profiler ran, so no cost to the GPU can \
                 be reported for that time.",
            ),
        }
    }
}

/// Why the cost of pauses has no error bar: the trace shows only so many steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoErrorBar {
    /// Steps in the trace.
    pub steps: usize,
}

impl fmt::Display for NoErrorBar {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.steps {
            0 => formatter.write_str("the trace shows no steps"),
            1 => formatter.write_str("the trace shows only one step"),
            some => write!(formatter, "the trace shows only {some} steps"),
        }
    }
}

/// Why the pauses of a process cannot be classified by rules: the end of the sentence "Pauses cannot
/// be classified where". In the order of the sentences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BoundsLimit {
    /// Events were lost, or may have been.
    EventsLost,
    /// Launches were not recorded.
    NoLaunches,
    /// The process used several devices.
    SeveralDevices,
}

impl fmt::Display for BoundsLimit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::EventsLost => "events were lost, or may have been",
            Self::NoLaunches => "launches were not recorded (--cuda sync)",
            Self::SeveralDevices => "the process used several devices",
        })
    }
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
    /// The finding in words, with the lines that the cycles are from.
    pub sentence: String,
}

impl fmt::Display for MainCycles {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.sentence)
    }
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
    FewSteps {
        /// Steps with one.
        with: u64,
        /// Steps without one.
        without: u64,
    },
    /// Too few steps without a full collection follow one with a full collection.
    FewAfterFull {
        /// Steps that follow one.
        after: u64,
        /// Other steps without one.
        others: u64,
    },
}

impl fmt::Display for NoComparison {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = match *self {
            Self::UnknownCollections => {
                return formatter.write_str("whether the collector ran is not in the trace");
            }
            Self::FewSteps { with, without } => {
                [(with, "step", "with a full collection"), (without, "step", "without")]
            }
            Self::FewAfterFull { after, others } => {
                [(after, "step", "after a full collection"), (others, "other step", "without one")]
            }
        };
        let few = counts.iter().filter(|(count, ..)| *count < StepComparison::FEWEST as u64);
        let few: Vec<String> = few
            .map(|(count, what, kind)| match count {
                0 => format!("no {what} {kind}"),
                1 => format!("only 1 {what} {kind}"),
                _ => format!("only {count} {what}s {kind}"),
            })
            .collect();
        formatter.write_str(&few.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_name_the_counts_that_are_too_small() {
        for (why, sentence) in [
            (NoComparison::FewSteps { with: 1, without: 7 }, "only 1 step with a full collection"),
            (
                NoComparison::FewAfterFull { after: 1, others: 7 },
                "only 1 step after a full collection",
            ),
            (NoComparison::UnknownCollections, "whether the collector ran is not in the trace"),
            (
                NoComparison::FewSteps { with: 0, without: 2 },
                "no step with a full collection, only 2 steps without",
            ),
        ] {
            assert_eq!(why.to_string(), sentence);
        }
    }
}
