//! Work on a GPU: operations with their true times, and what made streams and threads wait for each other.
//!
//! Their source is CUPTI, by way of gctrace's injected library or of the PyTorch profiler.

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GpuOpKind {
    /// Runs a kernel.
    Kernel,
    /// Copies memory.
    Memcpy,
    /// Fills memory.
    Memset,
}

impl GpuOpKind {
    /// `cat` of it, the PyTorch profiler's.
    #[must_use]
    pub fn category(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Memcpy => "gpu_memcpy",
            Self::Memset => "gpu_memset",
        }
    }

    /// The kind of that category.
    #[must_use]
    pub fn from_category(category: &[u8]) -> Option<Self> {
        [Self::Kernel, Self::Memcpy, Self::Memset]
            .into_iter()
            .find(|kind| kind.category().as_bytes() == category)
    }
}

/// An operation as a GPU ran it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuOp {
    /// Process, where the trace says it; the PyTorch profiler's has the device in its place, and the
    /// process is that of the call of the same correlation id.
    pub pid: Option<u32>,
    /// Index of the device.
    pub device: u32,
    /// Number of the stream.
    pub stream: u64,
    /// What it does.
    pub kind: GpuOpKind,
    /// Name of the kernel, or what is copied where.
    pub name: String,
    /// When it began on the GPU.
    pub start_ns: u64,
    /// When it ended; never before `start_ns`.
    pub end_ns: u64,
    /// Names the call that asked for it ([`super::CudaCall::correlation`]).
    pub correlation: Option<u64>,
    /// How many bytes it is about.
    pub bytes: Option<u64>,
    /// Of NCCL's kernels where the profiler says it: the communicator and the collective.
    pub collective: Option<Box<Collective>>,
}

/// What the PyTorch profiler (2.4 and later) says of an NCCL kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collective {
    /// `Collective name`, for example `allreduce`.
    pub name: String,
    /// `Process Group Name`.
    pub group: Option<String>,
    /// `Seq`: which operation of its group it is, the same in all ranks.
    pub sequence: Option<u64>,
    /// `Group size`: ranks that take part.
    pub size: Option<u32>,
}

/// What a synchronising call waited for (`cat` `cuda_sync`; torch's profiler writes them where
/// `enable_cuda_sync_events` is set).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuSync {
    /// Process, where the trace says it.
    pub pid: Option<u32>,
    /// What kind of wait.
    pub kind: GpuSyncKind,
    /// Index of the device, where known.
    pub device: Option<u32>,
    /// The stream that waits, or is waited for; `None` where the wait is for a whole context.
    pub stream: Option<u64>,
    /// When the wait began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// Names the call.
    pub correlation: Option<u64>,
    /// The stream into which the event was recorded that is waited for.
    pub event_stream: Option<u64>,
    /// Names the call that recorded the event.
    pub event_correlation: Option<u64>,
}

/// Who waits for what in a [`GpuSync`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GpuSyncKind {
    /// The calling thread, for an event.
    Event,
    /// A stream, for an event.
    StreamWaitEvent,
    /// The calling thread, for all of a stream.
    Stream,
    /// The calling thread, for all streams of a context.
    Context,
}

impl GpuSyncKind {
    /// `name` and `cuda_sync_kind` of it, the PyTorch profiler's.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Event => "Event Sync",
            Self::StreamWaitEvent => "Stream Wait Event",
            Self::Stream => "Stream Sync",
            Self::Context => "Context Sync",
        }
    }

    /// The kind of that name.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        [
            Self::Event,
            Self::StreamWaitEvent,
            Self::Stream,
            Self::Context,
        ]
        .into_iter()
        .find(|kind| kind.name().as_bytes() == name)
    }
}

/// A stretch of time that the program, or a library in it, gave a name (`cat` `user_annotation`):
/// `ProfilerStep#12`, `Optimizer.step#SGD.step`, `nccl:all_reduce`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// Begin.
    pub start_ns: u64,
    /// End; never before `start_ns`.
    pub end_ns: u64,
}
