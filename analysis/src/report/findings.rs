//! Findings of a report that are serialized as sentences, for people.

use crate::figure::serialized_as_text;
use std::fmt;

serialized_as_text!(NotCovered);

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
