//! GPU work: operations with GPU times, and the waits of streams and threads for each other.
//!
//! Their source is CUPTI, through gctrace's injected library or the PyTorch profiler.

use super::kind::{Phase, declare, shown};
use bitcode::{Decode, Encode};
use serde::Serialize;
use std::borrow::Cow;
use strum::{IntoStaticStr, VariantArray};

/// The kind of an operation of a stream.
#[derive(IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
pub enum GpuOpKind {
    /// Runs a kernel.
    #[default]
    Kernel,
    /// Copies memory.
    Memcpy,
    /// Sets memory.
    Memset,
    /// Has the host run a function (`cuLaunchHostFunc`) while the stream waits: the device does nothing.
    HostFunction,
}

impl GpuOpKind {
    /// All kinds.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Its `cat`, as in the PyTorch profiler; the profiler has no functions of the host.
    #[must_use]
    pub fn category(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Memcpy => "gpu_memcpy",
            Self::Memset => "gpu_memset",
            Self::HostFunction => "gpu_host_function",
        }
    }

    /// The kind with this category: [`GpuOpKind::category`], or the category of PyTorch 1.8 to 1.11; `None` for any
    /// other.
    #[must_use]
    pub fn from_category(category: &[u8]) -> Option<Self> {
        match category {
            b"Kernel" => return Some(Self::Kernel),
            b"Memcpy" => return Some(Self::Memcpy),
            b"Memset" => return Some(Self::Memset),
            _ => {}
        }
        Self::ALL.iter().copied().find(|kind| kind.category().as_bytes() == category)
    }
}

/// An operation as a GPU ran it, or as its stream waited for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
pub struct GpuOp {
    /// CUDA's index of the device in its process; NVML's ([`super::GpuDevice::index`]) may differ.
    pub device: u32,
    /// CUPTI's number of the stream. It is not the handle that calls pass.
    pub stream: u64,
    /// Whether it is a kernel, a memcpy, a memset or a function of the host.
    #[serde(skip)]
    pub kind: GpuOpKind,
    /// Name of the kernel, or direction of the copy.
    #[serde(skip)]
    pub name: String,
    /// When it started on the GPU, in ns of the trace's clock (gctrace's: CLOCK_MONOTONIC).
    #[serde(skip)]
    pub start_ns: u64,
    /// When it ended; never before `start_ns`.
    #[serde(skip)]
    pub end_ns: u64,
    /// Correlation id of the call that enqueued it ([`super::CudaCall::correlation`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation: Option<u64>,
    /// How many bytes it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Process id if the trace contains it; the PyTorch profiler has the device in its place, and
    /// the operation belongs to the process of the call with the same correlation id.
    #[serde(rename = "process", skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Communicator and collective of an NCCL kernel, if the profiler recorded them.
    #[serde(flatten)]
    pub collective: Option<Box<Collective>>,
}

declare! {
    GpuOp: Phase::Slice, "kernel", "a GPU operation",
    pid: pid, at: start_ns, end: end_ns, by: "--cuda";
    fn title(&self) -> (&str, Cow<'_, str>) {
        (self.kind.category(), Cow::Borrowed(&self.name))
    }
    fn line_ids(&self) -> (u32, u64) {
        (self.pid.unwrap_or(self.device), self.stream)
    }
}

/// The PyTorch profiler's (2.4 and later) description of an NCCL kernel. Kernels of several sends
/// and receives at once (`batch_isend_irecv`) have none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
pub struct Collective {
    /// Member `Collective name`, for example `allreduce`; empty if missing.
    #[serde(rename = "Collective name")]
    pub name: String,
    /// Member `Process Group Name`: the group with the ranks that take part; `None` if missing.
    #[serde(rename = "Process Group Name", skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// `Seq` (PyTorch 2.12 and later): number of the collective in its group, the same in all ranks. For a kernel that
    /// sends or receives it is the rank's own count.
    #[serde(rename = "Seq", skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    /// `Group size`: ranks that take part.
    #[serde(rename = "Group size", skip_serializing_if = "Option::is_none")]
    pub size: Option<u32>,
    /// `Process Group Ranks`: the ranks of the group, as a list; long lists are cut.
    #[serde(rename = "Process Group Ranks", skip_serializing_if = "Option::is_none")]
    pub ranks: Option<String>,
    /// `Src Rank`: the rank of the job that a receiving kernel receives from.
    #[serde(rename = "Src Rank", skip_serializing_if = "Option::is_none")]
    pub source: Option<u32>,
    /// `Dst Rank`: the rank of the job that a sending kernel sends to.
    #[serde(rename = "Dst Rank", skip_serializing_if = "Option::is_none")]
    pub destination: Option<u32>,
}

/// A wait of a synchronizing call (`cat` `cuda_sync`; PyTorch's profiler writes these if `enable_cuda_sync_events` is
/// set).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
pub struct GpuSync {
    /// The side that waited, and the cause.
    #[serde(rename = "cuda_sync_kind")]
    pub kind: GpuSyncKind,
    /// The stream that waits, or is waited for; `None` where the wait is for a whole context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<u64>,
    /// Start of the wait, in ns of the trace's clock (gctrace's: CLOCK_MONOTONIC).
    #[serde(skip)]
    pub start_ns: u64,
    /// End of the wait; never before `start_ns`.
    #[serde(skip)]
    pub end_ns: u64,
    /// Correlation id of the call ([`super::CudaCall::correlation`]); `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation: Option<u64>,
    /// Index of the device; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<u32>,
    /// The stream into which the awaited event was recorded.
    #[serde(rename = "wait_on_stream", skip_serializing_if = "Option::is_none")]
    pub event_stream: Option<u64>,
    /// Names the call that recorded the event.
    #[serde(rename = "wait_on_cuda_event_record_corr_id", skip_serializing_if = "Option::is_none")]
    pub event_correlation: Option<u64>,
    /// Process id, if the trace contains it.
    #[serde(rename = "process", skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

declare! {
    GpuSync: Phase::Slice, "cuda_sync", "a wait for a GPU",
    pid: pid, at: start_ns, end: end_ns, by: "--cuda";
    fn title(&self) -> (&str, Cow<'_, str>) {
        ("cuda_sync", Cow::Borrowed(self.kind.into()))
    }
    fn line_ids(&self) -> (u32, u64) {
        (shown(self.pid.or(self.device)), shown(self.stream))
    }
}

/// The waiting and the awaited side of a [`GpuSync`]. The names are the PyTorch profiler's, of `name` and
/// `cuda_sync_kind`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Encode, Decode,
)]
#[serde(into = "&'static str")]
#[derive(IntoStaticStr, VariantArray)]
pub enum GpuSyncKind {
    /// The calling thread, for an event.
    #[default]
    #[strum(serialize = "Event Sync")]
    Event,
    /// A stream, for an event.
    #[strum(serialize = "Stream Wait Event")]
    StreamWaitEvent,
    /// The calling thread, for all of a stream.
    #[strum(serialize = "Stream Sync")]
    Stream,
    /// The calling thread, for all streams of a context.
    #[strum(serialize = "Context Sync")]
    Context,
}

impl GpuSyncKind {
    /// The kind with this name; `None` for any other.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::VARIANTS.iter().copied().find(|kind| <&str>::from(kind).as_bytes() == name)
    }
}

/// An interval that the program, or a library in it, named (`cat` `user_annotation`):
/// `ProfilerStep#12`, `Optimizer.step#SGD.step`, `nccl:all_reduce`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
pub struct Annotation {
    /// Process id in the host's initial pid namespace; in other tools' traces as written there.
    #[serde(skip)]
    pub pid: u32,
    /// Kernel id of the thread that named the interval.
    #[serde(skip)]
    pub tid: u32,
    /// Name that the program or library gave the interval.
    #[serde(skip)]
    pub name: String,
    /// Start of the interval, in ns of the trace's clock (gctrace's: CLOCK_MONOTONIC).
    #[serde(skip)]
    pub start_ns: u64,
    /// End of the interval; never before `start_ns`.
    #[serde(skip)]
    pub end_ns: u64,
}

declare! {
    Annotation: Phase::Slice, "user_annotation", "an annotation",
    pid: pid, tid: tid, at: start_ns, end: end_ns;
    fn title(&self) -> (&str, Cow<'_, str>) {
        ("user_annotation", Cow::Borrowed(&self.name))
    }
}

impl Annotation {
    /// The number of a training step of the PyTorch profiler (`ProfilerStep#12`); `None` if it is
    /// no step.
    #[must_use]
    pub fn step_number(&self) -> Option<u64> {
        self.name.strip_prefix("ProfilerStep#")?.parse().ok()
    }
}

/// An interval of a thread in a Python function or in an operator, or held up by the profiler, as the PyTorch profiler
/// recorded it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
pub struct HostCode {
    /// Process id, as written in the trace; `None` of overhead, where the profiler writes -1.
    #[serde(skip)]
    pub pid: Option<u32>,
    /// Thread id, as written in the trace; `None` where `pid` is.
    #[serde(skip)]
    pub tid: Option<u32>,
    /// The kind of code that `name` names.
    #[serde(skip)]
    pub kind: HostCodeKind,
    /// Its name, as the profiler writes it.
    #[serde(skip)]
    pub name: String,
    /// Start of the interval, in ns of the trace's clock.
    #[serde(skip)]
    pub start_ns: u64,
    /// End of the interval; never before `start_ns`.
    #[serde(skip)]
    pub end_ns: u64,
}

declare! {
    HostCode: Phase::Slice, "cpu_op", "a function or an operator",
    pid: pid, tid: tid, at: start_ns, end: end_ns;
    fn title(&self) -> (&str, Cow<'_, str>) {
        (self.kind.category(), Cow::Borrowed(&self.name))
    }
    fn line_ids(&self) -> (u32, u64) {
        (shown(self.pid), shown(self.tid).into())
    }
}

/// The kind of code in an interval of [`HostCode`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
pub enum HostCodeKind {
    /// A Python function, by `file(line): function` ([`HostCode::python`]).
    #[default]
    Function,
    /// An operator of PyTorch or of a library, by `namespace::name`: `aten::copy_`.
    Operator,
    /// The profiler's own work in the program, such as `Buffer Flush` or `Instrumentation`.
    Overhead,
}

impl HostCodeKind {
    /// The category of such events in a trace of the profiler.
    #[must_use]
    pub fn category(self) -> &'static str {
        match self {
            Self::Function => "python_function",
            Self::Operator => "cpu_op",
            Self::Overhead => "overhead",
        }
    }
}

impl HostCode {
    /// File, line and function of `train.py(88): step`. The line is the one where the function is
    /// defined, as that is where a frame is when its function is called. `None` of anything else, such
    /// as functions in C.
    #[must_use]
    pub fn python(name: &str) -> Option<(&str, u32, &str)> {
        let (place, function) = name.split_once("): ")?;
        let (file, line) = place.rsplit_once('(')?;
        if file.is_empty() {
            return None;
        }
        let line = line.parse().ok()?;
        Some((file, line, function))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_names() {
        for (name, parts) in [
            ("train.py(88): step", Some(("train.py", 88, "step"))),
            ("/a (b)/c.py(1): <module>", Some(("/a (b)/c.py", 1, "<module>"))),
            ("<built-in method item of Tensor object at 0x7f0012>", None),
            ("nn.Module: Linear_0", None),
            ("(1): f", None),
            ("a.py(x): f", None),
            ("", None),
        ] {
            assert_eq!(HostCode::python(name), parts, "{name}");
        }
    }
}
