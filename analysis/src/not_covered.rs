//! What traces cannot tell, in sentences.

use crate::analysis::Analysis;
use crate::gpu::timeline::Timeline;
use crate::process::ProcessState;

/// `processes`: those that ran the collector.
pub(crate) fn not_covered(analysis: &Analysis, processes: usize) -> Vec<String> {
    let mut list: Vec<String> = gpu_cost(analysis).into_iter().collect();
    if processes > 1 {
        list.push(
            "What a pause of one process cost the others that wait for it, as ranks of a \
             distributed job do in a collective."
                .to_owned(),
        );
    }
    let stacks = |process: &ProcessState| !process.stacks.is_empty();
    if processes > 0 && !analysis.processes.iter().any(stacks) {
        list.push(
            "Which Python lines trigger the collections: these traces hold no stacks \
             (--stack-depth 0, an older gctrace, or another tool)."
                .to_owned(),
        );
    }
    list
}

/// Nothing where the traces hold operations with the GPU's own times.
fn gpu_cost(analysis: &Analysis) -> Option<String> {
    let timelines = &analysis.timelines;
    if timelines.iter().any(Timeline::has_gpu_times) {
        return None;
    }
    let has_calls = timelines.iter().any(|timeline| !timeline.calls.is_empty())
        || timelines.iter().any(|own| !own.counted_launches.is_empty());
    let has_samples = analysis.traces.iter().any(|trace| trace.gpus.has_samples());
    let why = match (has_calls, has_samples) {
        (true, _) => {
            "these traces hold calls to the GPU but not when it did the work, so no more than \
             bounds can be given."
        }
        (false, true) => {
            "these traces hold NVML's figures only. Each is taken over 1/6 s or more, in which a \
             gap as short as a pause cannot be seen, so nothing is claimed from them."
        }
        (false, false) => {
            "these traces hold no GPU work, so a pause may have been hidden behind queued kernels \
             or have left the GPU idle."
        }
    };
    Some(format!("What the pauses cost the GPU: {why}"))
}
