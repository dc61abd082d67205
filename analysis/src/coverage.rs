//! What the traces cannot show about the cost of pauses.

use crate::accumulate::process::ProcessState;
use crate::analysis::Analysis;
use crate::gpu::kept::KeptTimeline;
use crate::report::NotCovered;

impl Analysis {
    /// Whether the traces would contain collections if any ran: the PyTorch profiler records them
    /// only if configured to.
    fn covers_collections(&self) -> bool {
        self.all.count() > 0 || self.traces.iter().any(|trace| trace.header.is_some())
    }

    /// What the traces cannot show. `timelines`: merged, one per process. `processes`: number of processes that ran
    /// the collector. `has_calls`: whether CUDA calls were recorded.
    pub(crate) fn not_covered(
        &self,
        timelines: &[KeptTimeline],
        processes: usize,
        has_calls: bool,
    ) -> Vec<NotCovered> {
        let others = if processes > 1 { Some(NotCovered::CostToOtherProcesses) } else { None };
        let stacks = |process: &ProcessState| !process.stacks.is_empty();
        let no_lines = processes > 0 && !self.processes.iter().any(stacks);
        let lines = if no_lines { Some(NotCovered::Lines) } else { None };
        let all = [self.no_cost(timelines, has_calls), others, lines];
        all.into_iter().flatten().collect()
    }

    /// Why the cost of pauses for the GPU is unknown; `None` if it is known.
    fn no_cost(&self, timelines: &[KeptTimeline], has_calls: bool) -> Option<NotCovered> {
        let mut working = timelines.iter().filter(|timeline| timeline.has_gpu_times());
        match (working.clone().count(), self.covers_collections()) {
            (0, _) if has_calls => Some(NotCovered::CostBeyondBounds),
            (0, _) if self.traces.iter().any(|trace| trace.gpus.has_samples()) => {
                Some(NotCovered::CostBySamples)
            }
            (0, _) => Some(NotCovered::CostWithoutWork),
            (_, false) => Some(NotCovered::Collections),
            _ if self.all.count() > 0 && working.all(|working| working.pauses.is_empty()) => {
                Some(NotCovered::CostOfOthersWork)
            }
            _ => None,
        }
    }
}
