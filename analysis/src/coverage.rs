//! What traces can tell about the cost of pauses for GPUs, and what they cannot.

use crate::analysis::Analysis;

impl Analysis {
    /// Whether the traces would tell of collections, had there been any: the PyTorch profiler records
    /// them only where asked.
    fn tells_collections(&self) -> bool {
        self.all.count() > 0 || self.traces.iter().any(|trace| trace.header.is_some())
    }

    /// What stands between pauses and their cost for the GPU, if anything.
    pub(crate) fn no_cost(&self, has_calls: bool) -> Option<String> {
        let mut working = self.timelines.iter().filter(|own| own.has_gpu_times());
        let why = match (working.clone().count(), self.tells_collections()) {
            (0, _) if has_calls => "calls to the GPU but not when it did the work",
            (0, _) => "no GPU work",
            (_, false) => {
                return Some(
                    "Garbage collection: these traces hold what the GPU did but no collections. The \
                     PyTorch profiler records them only where asked, so none in its trace does not \
                     mean that none ran."
                        .to_owned(),
                );
            }
            _ if self.all.count() > 0 && working.all(|own| own.pauses.is_empty()) => {
                "pauses and GPU work, but of different processes or traces"
            }
            _ => return None,
        };
        Some(format!(
            "What the pauses cost the GPU: these traces hold {why}, so a pause may have been hidden \
             behind queued kernels or have left the GPU idle."
        ))
    }
}
