//! The probes for the functions found in a library. Pure.

use crate::args::CudaMode;
use gctrace_ebpf::{CallKind, CallProbe};
use gctrace_probes::cuda::{CudaPoint, CudaPoints, ProbedEnds, ProbedFunction};

/// The probes for the functions found in a library that this mode records.
pub(super) fn probes(found: &CudaPoints, mode: CudaMode) -> Vec<CallProbe> {
    let wanted = |kind: CallKind| match kind {
        CallKind::Launch => mode != CudaMode::Sync,
        // With many streams there are as many of these as launches; only `all` needs them.
        CallKind::Event => mode == CudaMode::All,
        _ => true,
    };
    found
        .points
        .iter()
        .filter_map(|point| Some((point, super::function(point.function)?)))
        .filter(|(_, function)| wanted(function.kind))
        .map(|(point, function)| probe(point, function))
        .collect()
}

fn probe(point: &CudaPoint, function: &ProbedFunction) -> CallProbe {
    CallProbe {
        function: point.function,
        kind: function.kind,
        entry: point.file_offset,
        on_return: function.ends == ProbedEnds::Both,
        returns: point.returns.clone(),
        encloses: function.encloses(),
        stream: function.stream,
        bytes: function.bytes,
        grid: function.grid,
    }
}
