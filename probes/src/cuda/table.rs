//! The functions that are probed: name, layer, what they do, where their arguments are, which ends.
//!
//! Signatures are those of NVIDIA's public headers `cuda.h`, `cuda_runtime_api.h` (12.x and 13.x) and `nccl.h`
//! (2.x), by the x86-64 calling convention; those of torch from its sources (2.9).

/// Whose function it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layer {
    /// libcuda.
    Driver,
    /// libcudart. cuBLAS, NCCL and others carry a copy of it within, so that only the driver sees their calls.
    Runtime,
    /// libnccl.
    Nccl,
    /// torch's libc10.
    TorchMemory,
    /// torch's libtorch_cpu.
    TorchAutograd,
}

/// What a function does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Puts a kernel or a graph into a stream.
    Launch,
    /// Waits for the GPU.
    Synchronize,
    /// Copies memory.
    Copy,
    /// Fills memory.
    Set,
    /// Allocates or maps memory of a device, or memory of the host that devices reach.
    Allocate,
    /// Frees or unmaps it.
    Free,
    /// Records an event in a stream, or lets a stream wait for one.
    Event,
    /// A collective operation of several processes, or a message between two.
    Collective,
    /// One backward pass.
    Step,
    /// Tells what torch's caching allocator holds.
    Memory,
}

/// Which ends are probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ends {
    /// The entry.
    Entry,
    /// Entry and return; the return by exchanging the return address, which no C++ exception may pass.
    Both,
    /// Entry and the function's own return instructions. A call that is left by an exception has no end.
    Instructions,
}

/// Where the stream is; arguments are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    /// There is none.
    None,
    /// In a register.
    Argument(u8),
    /// So many words above the stack pointer at the entry.
    Stack(u8),
    /// In the launch configuration that the first argument points to.
    Configuration,
}

/// Where the number of bytes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bytes {
    /// Nowhere.
    None,
    /// An argument.
    Argument(u8),
    /// An argument, times two to the power of the second number.
    Elements(u8, u8),
    /// An argument, times the size of the `ncclDataType_t` in the next.
    Nccl(u8),
    /// An argument times the next.
    Rows(u8),
}

/// Where the grid is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Grid {
    /// Nowhere.
    None,
    /// The second to fourth argument.
    Arguments,
    /// A `dim3` by value behind the first argument.
    Dim3,
    /// In the launch configuration that the first argument points to.
    Configuration,
}

/// A function that is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Function {
    /// Its symbol, or how that begins.
    pub name: &'static str,
    /// The symbol only begins like this (C++: the types of its arguments follow).
    pub is_prefix: bool,
    /// Whose it is.
    pub layer: Layer,
    /// What it does.
    pub kind: Kind,
    /// Which ends are probed.
    pub ends: Ends,
    /// Where the stream is.
    pub stream: Stream,
    /// Where the number of bytes is.
    pub bytes: Bytes,
    /// Where the grid is.
    pub grid: Grid,
}

impl Function {
    /// What traces and reports call it.
    #[must_use]
    pub fn shown(&self) -> &'static str {
        match self.layer {
            Layer::TorchMemory => "c10::reportMemoryUsageToProfiler",
            Layer::TorchAutograd => "torch::autograd::Engine::execute",
            Layer::Driver | Layer::Runtime | Layer::Nccl => self.name,
        }
    }

    /// Probed at the entry only, although it calls functions of the layer below that are probed too.
    #[must_use]
    pub fn encloses(&self) -> bool {
        self.layer == Layer::Runtime && self.ends == Ends::Entry
    }
}

const fn call(
    layer: Layer,
    name: &'static str,
    kind: Kind,
    ends: Ends,
    stream: Stream,
    bytes: Bytes,
) -> Function {
    Function {
        name,
        is_prefix: false,
        layer,
        kind,
        ends,
        stream,
        bytes,
        grid: Grid::None,
    }
}

const fn driver(name: &'static str, kind: Kind, stream: Stream, bytes: Bytes) -> Function {
    call(Layer::Driver, name, kind, Ends::Both, stream, bytes)
}

const fn runtime(name: &'static str, kind: Kind, stream: Stream, bytes: Bytes) -> Function {
    call(Layer::Runtime, name, kind, Ends::Both, stream, bytes)
}

const fn collective(name: &'static str, stream: Stream, bytes: Bytes) -> Function {
    call(
        Layer::Nccl,
        name,
        Kind::Collective,
        Ends::Both,
        stream,
        bytes,
    )
}

const fn event(layer: Layer, name: &'static str, stream: Stream) -> Function {
    call(layer, name, Kind::Event, Ends::Entry, stream, Bytes::None)
}

const fn launch(layer: Layer, name: &'static str, stream: Stream, grid: Grid) -> Function {
    let function = call(layer, name, Kind::Launch, Ends::Entry, stream, Bytes::None);
    Function { grid, ..function }
}

use Bytes::Argument as Count;
use Bytes::Elements;
use Bytes::None as NoBytes;
use Kind::Allocate;
use Kind::Copy as Transfer;
use Kind::Free;
use Kind::Set;
use Kind::Synchronize;
use Layer::Driver;
use Layer::Runtime;
use Stream::Argument as In;
use Stream::None as NoStream;
use Stream::Stack;

/// Every function that is probed. Its index is its number in the BPF programs.
pub const TABLE: &[Function] = &[
    // launches
    launch(Driver, "cuLaunchKernel", Stack(3), Grid::Arguments),
    launch(
        Driver,
        "cuLaunchKernelEx",
        Stream::Configuration,
        Grid::Configuration,
    ),
    launch(
        Driver,
        "cuLaunchCooperativeKernel",
        Stack(3),
        Grid::Arguments,
    ),
    launch(Driver, "cuGraphLaunch", In(2), Grid::None),
    launch(Runtime, "cudaLaunchKernel", Stack(2), Grid::Dim3),
    launch(
        Runtime,
        "cudaLaunchKernelExC",
        Stream::Configuration,
        Grid::Configuration,
    ),
    launch(Runtime, "cudaLaunchCooperativeKernel", Stack(2), Grid::Dim3),
    launch(Runtime, "cudaGraphLaunch", In(2), Grid::None),
    // synchronisation
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
    runtime("cudaMemcpy2DAsync", Transfer, Stack(2), Bytes::Rows(5)),
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
    // NCCL: the calls put work into a stream and return; within a group, ncclGroupEnd does
    collective("ncclAllReduce", Stack(1), Bytes::Nccl(3)),
    collective("ncclReduceScatter", Stack(1), Bytes::Nccl(3)),
    collective("ncclBroadcast", Stack(1), Bytes::Nccl(3)),
    collective("ncclBcast", In(6), Bytes::Nccl(2)),
    collective("ncclReduce", Stack(2), Bytes::Nccl(3)),
    collective("ncclAllGather", In(6), Bytes::Nccl(3)),
    collective("ncclSend", In(6), Bytes::Nccl(2)),
    collective("ncclRecv", In(6), Bytes::Nccl(2)),
    collective("ncclGroupEnd", NoStream, NoBytes),
    // torch
    Function {
        is_prefix: true,
        ..call(
            Layer::TorchMemory,
            "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE",
            Kind::Memory,
            Ends::Entry,
            NoStream,
            NoBytes,
        )
    },
    Function {
        is_prefix: true,
        ..call(
            Layer::TorchAutograd,
            "_ZN5torch8autograd6Engine7execute",
            Kind::Step,
            Ends::Instructions,
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
        for function in TABLE
            .iter()
            .filter(|function| function.kind == Kind::Launch)
        {
            assert_ne!(function.stream, Stream::None, "{}", function.name);
            assert_eq!(function.ends, Ends::Entry, "{}", function.name);
        }
    }

    /// C++ exceptions pass through torch's functions, and a replaced return address ends the program then.
    #[test]
    fn return_addresses_are_exchanged_in_c_functions_only() {
        for function in TABLE.iter().filter(|function| function.ends == Ends::Both) {
            let is_c = matches!(function.layer, Layer::Driver | Layer::Runtime | Layer::Nccl);
            assert!(is_c, "{}", function.name);
        }
    }
}
