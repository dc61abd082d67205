//! Functions found in a library -> probes. Pure.

use crate::args::CudaMode;
use gctrace_ebpf::BytesPlace;
use gctrace_ebpf::CallKind;
use gctrace_ebpf::CallProbe;
use gctrace_ebpf::GridPlace;
use gctrace_ebpf::StreamPlace;
use gctrace_probes::cuda::Bytes;
use gctrace_probes::cuda::CudaPoint;
use gctrace_probes::cuda::CudaPoints;
use gctrace_probes::cuda::Ends;
use gctrace_probes::cuda::Function;
use gctrace_probes::cuda::Grid;
use gctrace_probes::cuda::Kind;
use gctrace_probes::cuda::Stream;

/// The probes that this mode wants.
pub(super) fn probes(found: &CudaPoints, mode: CudaMode) -> Vec<CallProbe> {
    let wanted = |kind: Kind| match kind {
        Kind::Launch => mode != CudaMode::Sync,
        // As many as launches where streams are many; only who wants every launch needs them.
        Kind::Event => mode == CudaMode::All,
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

fn probe(point: &CudaPoint, function: &Function) -> CallProbe {
    CallProbe {
        function: point.function,
        kind: kind(function.kind),
        entry: point.file_offset,
        on_return: function.ends == Ends::Both,
        returns: point.returns.clone(),
        encloses: function.encloses(),
        stream: match function.stream {
            Stream::None => StreamPlace::None,
            Stream::Argument(number) => StreamPlace::Argument(number),
            Stream::Stack(word) => StreamPlace::Stack(word),
            Stream::Configuration => StreamPlace::Configuration,
        },
        bytes: match function.bytes {
            Bytes::None => BytesPlace::None,
            Bytes::Argument(number) => BytesPlace::Argument(number),
            Bytes::Elements(argument, shift) => BytesPlace::Elements { argument, shift },
            Bytes::Nccl(argument) => BytesPlace::NcclElements(argument),
            Bytes::Rows(argument) => BytesPlace::Rows(argument),
        },
        grid: match function.grid {
            Grid::None => GridPlace::None,
            Grid::Arguments => GridPlace::Arguments,
            Grid::Dim3 => GridPlace::Dim3,
            Grid::Configuration => GridPlace::Configuration,
        },
    }
}

fn kind(kind: Kind) -> CallKind {
    match kind {
        Kind::Launch => CallKind::CALL_LAUNCH,
        Kind::Synchronize => CallKind::CALL_SYNCHRONIZE,
        Kind::Copy => CallKind::CALL_COPY,
        Kind::Set => CallKind::CALL_SET,
        Kind::Allocate => CallKind::CALL_ALLOCATE,
        Kind::Free => CallKind::CALL_FREE,
        Kind::Event => CallKind::CALL_EVENT,
        Kind::Collective => CallKind::CALL_COLLECTIVE,
        Kind::Step => CallKind::CALL_STEP,
        Kind::Memory => CallKind::CALL_MEMORY,
    }
}
