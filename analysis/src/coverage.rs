//! What the traces cannot show about the cost of pauses.

use crate::accumulate::process::ProcessState;
use crate::analysis::Analysis;
use crate::gpu::timeline::Timeline;

impl Analysis {
    /// Whether the traces would contain collections if any ran: the PyTorch profiler records them
    /// only if configured to.
    fn covers_collections(&self) -> bool {
        self.all.count() > 0 || self.traces.iter().any(|trace| trace.header.is_some())
    }

    /// What the traces cannot show. `timelines`: merged, one per process. `processes`: number of
    /// those that ran the collector. `has_calls`: whether CUDA calls were recorded.
    pub(crate) fn not_covered(
        &self,
        timelines: &[Timeline],
        processes: usize,
        has_calls: bool,
    ) -> Vec<String> {
        let mut list: Vec<String> = self.no_cost(timelines, has_calls).into_iter().collect();
        if processes > 1 {
            list.push(
                "The cost of a pause to other processes that wait for it, such as ranks of a \
                 distributed job in a collective."
                    .to_owned(),
            );
        }
        let stacks = |process: &ProcessState| !process.stacks.is_empty();
        if processes > 0 && !self.processes.iter().any(stacks) {
            list.push(
                "Which Python lines trigger the collections: these traces contain no stacks \
                 (--stack-depth 0, an older gctrace, or another tool)."
                    .to_owned(),
            );
        }
        list
    }

    /// Why the cost of pauses for the GPU is unknown; `None` if it is known.
    fn no_cost(&self, timelines: &[Timeline], has_calls: bool) -> Option<String> {
        let mut working = timelines.iter().filter(|own| own.has_gpu_times());
        let why = match (working.clone().count(), self.covers_collections()) {
            (0, _) if has_calls => {
                return Some(
                    "What the pauses cost the GPU: these traces contain CUDA calls but no GPU \
                     times, so only bounds can be given."
                        .to_owned(),
                );
            }
            (0, _) if self.traces.iter().any(|trace| trace.gpus.has_samples()) => {
                return Some(
                    "What the pauses cost the GPU: these traces contain only NVML samples. Each \
                     covers 1/6 s or more, too long to show a gap as short as a pause."
                        .to_owned(),
                );
            }
            (0, _) => "no GPU work",
            (_, false) => {
                return Some(
                    "Garbage collection: these traces contain GPU work but no collections. The \
                     PyTorch profiler records collections only if configured to, so their absence \
                     does not mean that none ran."
                        .to_owned(),
                );
            }
            _ if self.all.count() > 0 && working.all(|own| own.pauses.is_empty()) => {
                "pauses and GPU work, but of different processes or traces"
            }
            _ => return None,
        };
        Some(format!(
            "What the pauses cost the GPU: these traces contain {why}, so a pause may have been \
             hidden behind queued kernels or have left the GPU idle."
        ))
    }
}
