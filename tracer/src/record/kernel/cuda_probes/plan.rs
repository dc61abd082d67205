//! Translates functions found in a library into probes. Pure.

use crate::args::CudaMode;
use gctrace_ebpf::BytesLocation;
use gctrace_ebpf::CallKind;
use gctrace_ebpf::CallProbe;
use gctrace_ebpf::GridLocation;
use gctrace_ebpf::StreamLocation;
use gctrace_probes::cuda::BytesArgument;
use gctrace_probes::cuda::CudaPoint;
use gctrace_probes::cuda::CudaPoints;
use gctrace_probes::cuda::FunctionKind;
use gctrace_probes::cuda::GridArgument;
use gctrace_probes::cuda::ProbedEnds;
use gctrace_probes::cuda::ProbedFunction;
use gctrace_probes::cuda::StreamArgument;

/// The probes for the functions found in a library that this mode records.
pub(super) fn probes(found: &CudaPoints, mode: CudaMode) -> Vec<CallProbe> {
    let wanted = |kind: FunctionKind| match kind {
        FunctionKind::Launch => mode != CudaMode::Sync,
        // With many streams there are as many of these as launches; only `all` needs them.
        FunctionKind::Event => mode == CudaMode::All,
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
        kind: kind(function.kind),
        entry: point.file_offset,
        on_return: function.ends == ProbedEnds::Both,
        returns: point.returns.clone(),
        encloses: function.encloses(),
        stream: match function.stream {
            StreamArgument::None => StreamLocation::None,
            StreamArgument::Argument(number) => StreamLocation::Argument(number),
            StreamArgument::Stack(word) => StreamLocation::Stack(word),
            StreamArgument::Configuration => StreamLocation::Configuration,
        },
        bytes: match function.bytes {
            BytesArgument::None => BytesLocation::None,
            BytesArgument::Argument(number) => BytesLocation::Argument(number),
            BytesArgument::Elements(argument, shift) => BytesLocation::Elements { argument, shift },
            BytesArgument::Nccl(argument) => BytesLocation::NcclElements(argument),
            BytesArgument::Rows(argument) => BytesLocation::Rows(argument),
        },
        grid: match function.grid {
            GridArgument::None => GridLocation::None,
            GridArgument::Arguments => GridLocation::Arguments,
            GridArgument::Dim3 => GridLocation::Dim3,
            GridArgument::Configuration => GridLocation::Configuration,
        },
    }
}

fn kind(kind: FunctionKind) -> CallKind {
    match kind {
        FunctionKind::Launch => CallKind::CALL_LAUNCH,
        FunctionKind::Synchronize => CallKind::CALL_SYNCHRONIZE,
        FunctionKind::Copy => CallKind::CALL_COPY,
        FunctionKind::Set => CallKind::CALL_SET,
        FunctionKind::Allocate => CallKind::CALL_ALLOCATE,
        FunctionKind::Free => CallKind::CALL_FREE,
        FunctionKind::Event => CallKind::CALL_EVENT,
        FunctionKind::Collective => CallKind::CALL_COLLECTIVE,
        FunctionKind::Step => CallKind::CALL_STEP,
        FunctionKind::Memory => CallKind::CALL_MEMORY,
    }
}
