//! Table of the probed functions: name, layer, kind of call, argument positions, probed ends.
//!
//! Signatures are from NVIDIA's public headers `cuda.h`, `cuda_runtime_api.h` (12.x and 13.x) and
//! `nccl.h` (2.x), in the x86-64 calling convention; torch's are from its sources (2.9).

use super::CudaLibrary;
use gctrace_abi::{BytesArgument, CallKind, GridArgument, StreamArgument};
use gctrace_event::CudaLayer;

/// The probed ends of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProbedEnds {
    /// The entry only.
    Entry,
    /// Entry and return; the return by replacing the return address. No C++ exception may unwind through it.
    Both,
    /// Entry and the function's own return instructions. A call left by an exception has no end.
    Instructions,
}

/// A function that gctrace probes: its symbol, its kind and where its arguments are passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProbedFunction {
    /// Its symbol, or the prefix of it.
    pub name: &'static str,
    /// `symbol` is a prefix (C++: the argument types follow).
    pub is_prefix: bool,
    /// The layer that the function belongs to, whichever file contains it.
    pub layer: CudaLibrary,
    /// What the function does; its calls are recorded under this kind.
    pub kind: CallKind,
    /// Its probed ends.
    pub ends: ProbedEnds,
    /// Where the stream is passed, if the function takes one.
    pub stream: StreamArgument,
    /// Where the number of bytes is passed.
    pub bytes: BytesArgument,
    /// Where the grid dimensions are passed.
    pub grid: GridArgument,
}

impl ProbedFunction {
    /// Its name in traces and reports.
    pub fn shown(&self) -> &'static str {
        match self.layer {
            CudaLibrary::TorchMemory => "c10::reportMemoryUsageToProfiler",
            CudaLibrary::TorchAutograd => "torch::autograd::Engine::execute",
            CudaLibrary::Cuda(_) => self.name,
        }
    }

    /// Probed at the entry only, although it calls probed functions of the layer below.
    pub fn encloses(&self) -> bool {
        self.layer == CudaLibrary::Cuda(Runtime) && self.ends == ProbedEnds::Entry
    }
}

const fn call(
    layer: CudaLibrary,
    name: &'static str,
    kind: CallKind,
    ends: ProbedEnds,
    stream: StreamArgument,
    bytes: BytesArgument,
) -> ProbedFunction {
    ProbedFunction {
        name,
        is_prefix: false,
        layer,
        kind,
        ends,
        stream,
        bytes,
        grid: GridArgument::None,
    }
}

const fn driver(
    name: &'static str,
    kind: CallKind,
    stream: StreamArgument,
    bytes: BytesArgument,
) -> ProbedFunction {
    call(CudaLibrary::Cuda(Driver), name, kind, ProbedEnds::Both, stream, bytes)
}

const fn runtime(
    name: &'static str,
    kind: CallKind,
    stream: StreamArgument,
    bytes: BytesArgument,
) -> ProbedFunction {
    call(CudaLibrary::Cuda(Runtime), name, kind, ProbedEnds::Both, stream, bytes)
}

const fn collective(
    name: &'static str,
    stream: StreamArgument,
    bytes: BytesArgument,
) -> ProbedFunction {
    call(
        CudaLibrary::Cuda(CudaLayer::Nccl),
        name,
        CallKind::Collective,
        ProbedEnds::Both,
        stream,
        bytes,
    )
}

const fn event(layer: CudaLayer, name: &'static str, stream: StreamArgument) -> ProbedFunction {
    call(
        CudaLibrary::Cuda(layer),
        name,
        CallKind::Event,
        ProbedEnds::Entry,
        stream,
        BytesArgument::None,
    )
}

const fn launch(
    layer: CudaLayer,
    name: &'static str,
    stream: StreamArgument,
    grid: GridArgument,
) -> ProbedFunction {
    let function = call(
        CudaLibrary::Cuda(layer),
        name,
        CallKind::Launch,
        ProbedEnds::Entry,
        stream,
        BytesArgument::None,
    );
    ProbedFunction { grid, ..function }
}

use BytesArgument::{Argument as Count, Elements, None as NoBytes};
use CallKind::{Allocate, Copy as Transfer, Free, Set, Synchronize};
use CudaLayer::{Driver, Runtime};

use StreamArgument::{Argument as In, None as NoStream};

/// Has the host run a function; the runtime's function of this kind calls it.
pub const HOST_FUNCTION: &str = "cuLaunchHostFunc";

/// All probed functions. A function's index is its id in the BPF programs.
pub const TABLE: &[ProbedFunction] = &[
    // launches
    launch(Driver, "cuLaunchKernel", In(9), GridArgument::Arguments),
    launch(Driver, "cuLaunchKernelEx", StreamArgument::Configuration, GridArgument::Configuration),
    launch(Driver, "cuLaunchCooperativeKernel", In(9), GridArgument::Arguments),
    launch(Driver, "cuGraphLaunch", In(2), GridArgument::None),
    // a function of the host; the stream waits for it
    launch(Driver, HOST_FUNCTION, In(1), GridArgument::None),
    launch(Runtime, "cudaLaunchKernel", In(8), GridArgument::Dim3),
    launch(
        Runtime,
        "cudaLaunchKernelExC",
        StreamArgument::Configuration,
        GridArgument::Configuration,
    ),
    launch(Runtime, "cudaLaunchCooperativeKernel", In(8), GridArgument::Dim3),
    launch(Runtime, "cudaGraphLaunch", In(2), GridArgument::None),
    // synchronization
    driver("cuStreamSynchronize", Synchronize, In(1), NoBytes),
    driver("cuEventSynchronize", Synchronize, NoStream, NoBytes),
    driver("cuCtxSynchronize", Synchronize, NoStream, NoBytes),
    runtime("cudaStreamSynchronize", Synchronize, In(1), NoBytes),
    runtime("cudaEventSynchronize", Synchronize, NoStream, NoBytes),
    runtime("cudaDeviceSynchronize", Synchronize, NoStream, NoBytes),
    event(Driver, "cuStreamWaitEvent", In(1)),
    event(Driver, "cuEventRecord", In(2)),
    event(Driver, "cuEventRecordWithFlags", In(2)),
    event(Runtime, "cudaStreamWaitEvent", In(1)),
    event(Runtime, "cudaEventRecord", In(2)),
    event(Runtime, "cudaEventRecordWithFlags", In(2)),
    // copies
    driver("cuMemcpy", Transfer, NoStream, Count(3)),
    driver("cuMemcpyHtoD_v2", Transfer, NoStream, Count(3)),
    driver("cuMemcpyDtoH_v2", Transfer, NoStream, Count(3)),
    driver("cuMemcpyDtoD_v2", Transfer, NoStream, Count(3)),
    driver("cuMemcpyAsync", Transfer, In(4), Count(3)),
    driver("cuMemcpyHtoDAsync_v2", Transfer, In(4), Count(3)),
    driver("cuMemcpyDtoHAsync_v2", Transfer, In(4), Count(3)),
    driver("cuMemcpyDtoDAsync_v2", Transfer, In(4), Count(3)),
    driver("cuMemcpyPeerAsync", Transfer, In(6), Count(5)),
    driver("cuMemcpy2DAsync_v2", Transfer, In(2), NoBytes),
    driver("cuMemcpy3DAsync_v2", Transfer, In(2), NoBytes),
    runtime("cudaMemcpy", Transfer, NoStream, Count(3)),
    runtime("cudaMemcpyAsync", Transfer, In(5), Count(3)),
    runtime("cudaMemcpyPeerAsync", Transfer, In(6), Count(5)),
    runtime("cudaMemcpy2DAsync", Transfer, In(8), BytesArgument::Rows(5)),
    // fills
    driver("cuMemsetD8_v2", Set, NoStream, Count(3)),
    driver("cuMemsetD32_v2", Set, NoStream, Elements(3, 2)),
    driver("cuMemsetD8Async", Set, In(4), Count(3)),
    driver("cuMemsetD16Async", Set, In(4), Elements(3, 1)),
    driver("cuMemsetD32Async", Set, In(4), Elements(3, 2)),
    runtime("cudaMemset", Set, NoStream, Count(3)),
    runtime("cudaMemsetAsync", Set, In(4), Count(3)),
    // memory
    driver("cuMemAlloc_v2", Allocate, NoStream, Count(2)),
    driver("cuMemAllocManaged", Allocate, NoStream, Count(2)),
    driver("cuMemAllocAsync", Allocate, In(3), Count(2)),
    driver("cuMemAllocHost_v2", Allocate, NoStream, Count(2)),
    driver("cuMemHostAlloc", Allocate, NoStream, Count(2)),
    driver("cuMemCreate", Allocate, NoStream, Count(2)),
    driver("cuMemMap", Allocate, NoStream, Count(2)),
    driver("cuMemUnmap", Free, NoStream, Count(2)),
    driver("cuMemRelease", Free, NoStream, NoBytes),
    driver("cuMemFree_v2", Free, NoStream, NoBytes),
    driver("cuMemFreeAsync", Free, In(2), NoBytes),
    driver("cuMemFreeHost", Free, NoStream, NoBytes),
    runtime("cudaMalloc", Allocate, NoStream, Count(2)),
    runtime("cudaMallocManaged", Allocate, NoStream, Count(2)),
    runtime("cudaMallocAsync", Allocate, In(3), Count(2)),
    runtime("cudaMallocHost", Allocate, NoStream, Count(2)),
    runtime("cudaHostAlloc", Allocate, NoStream, Count(2)),
    runtime("cudaFree", Free, NoStream, NoBytes),
    runtime("cudaFreeAsync", Free, In(2), NoBytes),
    runtime("cudaFreeHost", Free, NoStream, NoBytes),
    // NCCL: the calls enqueue work in a stream and return; within a group, ncclGroupEnd does
    collective("ncclAllReduce", In(7), BytesArgument::Nccl(3)),
    collective("ncclReduceScatter", In(7), BytesArgument::Nccl(3)),
    collective("ncclBroadcast", In(7), BytesArgument::Nccl(3)),
    collective("ncclBcast", In(6), BytesArgument::Nccl(2)),
    collective("ncclReduce", In(8), BytesArgument::Nccl(3)),
    collective("ncclAllGather", In(6), BytesArgument::Nccl(3)),
    collective("ncclSend", In(6), BytesArgument::Nccl(2)),
    collective("ncclRecv", In(6), BytesArgument::Nccl(2)),
    collective("ncclGroupEnd", NoStream, NoBytes),
    // torch
    ProbedFunction {
        is_prefix: true,
        ..call(
            CudaLibrary::TorchMemory,
            "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE",
            CallKind::Memory,
            ProbedEnds::Entry,
            NoStream,
            NoBytes,
        )
    },
    ProbedFunction {
        is_prefix: true,
        ..call(
            CudaLibrary::TorchAutograd,
            "_ZN5torch8autograd6Engine7execute",
            CallKind::Step,
            ProbedEnds::Instructions,
            NoStream,
            NoBytes,
        )
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_function_is_there_once() {
        let names: HashSet<_> = TABLE.iter().map(|function| function.name).collect();
        assert_eq!(names.len(), TABLE.len());
    }

    #[test]
    fn launches_have_a_stream_and_only_their_entry_is_probed() {
        for function in TABLE.iter().filter(|function| function.kind == CallKind::Launch) {
            assert_ne!(function.stream, StreamArgument::None, "{}", function.name);
            assert_eq!(function.ends, ProbedEnds::Entry, "{}", function.name);
        }
    }

    /// C++ exceptions unwind through torch's functions; a replaced return address would then abort
    /// the program.
    #[test]
    fn return_addresses_are_replaced_in_c_functions_only() {
        for function in TABLE.iter().filter(|function| function.ends == ProbedEnds::Both) {
            let is_c = matches!(function.layer, CudaLibrary::Cuda(_));
            assert!(is_c, "{}", function.name);
        }
    }
}
