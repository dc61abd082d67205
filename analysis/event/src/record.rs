//! The record types: everything that a recording can contain.
//!
//! Owns the meaning of each record, and the `args` of its event in `trace.json`; `line.rs` adds the
//! rest of the event, `read.rs` reads it. All timestamps are ns of `CLOCK_MONOTONIC`; process and
//! thread ids are from the host's initial pid namespace.

#![cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "what makes a line of a record"))]

mod allocations;
mod called;
mod counters;
mod cpu_samples;
mod cuda;
mod garbage;
mod gpu;
mod gpu_work;
mod kind;
mod layers;
mod off_cpu;
mod process;
mod recording;
mod segment;
mod step;
mod turns;

pub use allocations::*;
pub use called::*;
pub use counters::*;
pub use cpu_samples::*;
pub use cuda::*;
pub use garbage::*;
pub use gpu::*;
pub use gpu_work::*;
pub(crate) use kind::{Declared, LONGEST_NS, OfAnyKind};
pub use kind::{Head, Kind, Members, Phase, SpacedClass};
pub use layers::*;
pub use off_cpu::*;
pub use process::*;
pub use recording::*;
pub use segment::*;
pub use step::*;
pub use turns::*;

use bitcode::{Decode, Encode};
use kind::{declare, placed, read, records};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use strum::{AsRefStr, IntoStaticStr, VariantArray};

/// Why a collection ran, as far as its source knows.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    Encode,
    Decode,
)]
#[serde(rename_all = "lowercase")]
#[derive(AsRefStr, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum GcReason {
    /// A threshold was passed while allocating.
    Automatic,
    /// `gc.collect()` or the C function `PyGC_Collect`.
    Manual,
    /// The interpreter was finalizing.
    Shutdown,
    /// The source of the event does not know.
    #[default]
    Unknown,
}

impl GcReason {
    /// The reason of this name; [`GcReason::Unknown`] for any other.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Self {
        let mut all = Self::VARIANTS.iter().copied();
        all.find(|reason| reason.as_ref().as_bytes() == name).unwrap_or_default()
    }
}

/// One run of the collector, as seen from outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
pub struct Pause {
    /// Process id in the host's initial pid namespace; in other tools' traces as written there.
    #[serde(skip)]
    pub pid: u32,
    /// Kernel thread id of the collecting thread.
    #[serde(skip)]
    pub tid: u32,
    /// Entry of the collector, in ns of the trace's clock (gctrace's: CLOCK_MONOTONIC).
    #[serde(skip)]
    pub start_ns: u64,
    /// Return of the collector; never before `start_ns`.
    #[serde(skip)]
    pub end_ns: u64,
    /// Why the collection ran.
    pub reason: GcReason,
    /// Generation collected: 0 (youngest) to 2. In CPython 3.14.0 - 3.14.4: 0 young, 1 increment, 2
    /// full. Missing ([`Pause::UNKNOWN_GENERATION`]) if the source does not know.
    #[serde(skip_serializing_if = "is_unknown_generation")]
    pub generation: u8,
    /// Unreachable objects found and freed, where the source knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collected: Option<u64>,
    /// Objects found unreachable but not freed, where the source knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncollectable: Option<u64>,
    /// Interpreter id (0 is the main interpreter); `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interpreter: Option<i64>,
    /// CPU time of the collecting thread between start and end, in ns; `None` if the kernel's
    /// tracepoint did not show all its context switches, or, in-process, its clock could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<u64>,
    /// Free-threaded builds: time within the run with the other threads stopped, in ns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_the_world_ns: Option<u64>,
    /// Objects in the oldest generation when the pause ended (`long_lived_total`); exact after a
    /// full collection, otherwise the count left by the last one. In-process after full ones only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_objects: Option<u64>,
    /// All objects tracked when the pause ended (`heap_size`, 3.14 and later).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heap_objects: Option<u64>,
    /// `gc.get_count()[0]` at the start of the pause: net containers since the last collection
    /// (never counted below 0).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub young_count: Option<u64>,
    /// Decrease of the process's memory from the start of the pause to its end, in bytes, 0 if it increased: memory
    /// that the freed objects took and owned, as far as it was glibc's malloc's, or mapped. In-process, for as many
    /// collections as 0.2 % of the CPU time allow; by kernel probes, memory given back to the kernel, from 2 MiB on
    /// (less is within the error of its sum). `None` if it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freed_bytes: Option<u64>,
    /// The thread or process ended during the pause, or, in-process, the recording ended 2 s or more after the pause's
    /// start. The pause ends there.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unfinished: bool,
    /// Whether it was recorded in-process, out-of-process or both.
    #[serde(flatten)]
    pub source: EventSource,
    /// Performance counters of the collecting thread between start and end.
    #[serde(skip_serializing_if = "Counters::is_unset")]
    pub counters: Counters,
    /// The innermost Python frame of the collecting thread at the start of the pause. `None` if
    /// stacks were not recorded or there was no Python frame.
    #[serde(skip)]
    pub stack: Option<FrameId>,
}

declare! {
    Pause: Phase::Slice, "gc", "a collection",
    pid: pid, tid: tid, at: start_ns, end: end_ns, stack: stack;
    fn title(&self) -> (&str, Cow<'_, str>) {
        let name = match self.generation {
            Self::UNKNOWN_GENERATION => "gc".into(),
            0 => "gc gen0".into(),
            1 => "gc gen1".into(),
            2 => "gc gen2".into(),
            other => format!("gc gen{other}").into(),
        };
        ("gc", name)
    }
}

/// A pause with nothing known but its source.
impl Default for Pause {
    fn default() -> Self {
        Self {
            pid: 0,
            tid: 0,
            start_ns: 0,
            end_ns: 0,
            generation: Self::UNKNOWN_GENERATION,
            reason: GcReason::Unknown,
            collected: None,
            uncollectable: None,
            interpreter: None,
            cpu_ns: None,
            stop_the_world_ns: None,
            oldest_objects: None,
            heap_objects: None,
            freed_bytes: None,
            unfinished: false,
            stack: None,
            young_count: None,
            counters: Counters::default(),
            source: EventSource::Probes,
        }
    }
}

impl Pause {
    /// `generation` of pauses in traces of tools that do not record it (PyTorch's profiler).
    pub const UNKNOWN_GENERATION: u8 = u8::MAX;

    /// Length of the pause in nanoseconds.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        gctrace_units::duration_ns(self.start_ns, self.end_ns)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_unknown_generation(generation: &u8) -> bool {
    *generation == Pause::UNKNOWN_GENERATION
}

/// Names a [`Frame`] within one trace; counted from 1.
pub type FrameId = u32;

/// A Python frame as a node of the tree of all stacks of a trace: a stack is identified by its
/// innermost frame and stored once. Shared by all processes of the trace. A frame is written before
/// the first record that refers to it, and its parent before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct Frame {
    /// Number that identifies the frame within its trace.
    pub id: FrameId,
    /// The frame that called it; `None` for the outermost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<FrameId>,
    /// Qualified name of the function (CPython 3.11 and later), otherwise its name. `[outer frames not recorded]`
    /// stands for the frames beyond `--stack-depth`, `[frame not readable]` for a frame with an unreadable code object.
    pub function: String,
    /// `co_filename`; empty for the two special frames.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// Line that was being executed; `None` if the code object has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

declare! {
    Frame: Phase::Meta, "gctrace_frame", "a stack frame";
    fn stacks(&self) -> Vec<FrameId> {
        self.parent.into_iter().collect()
    }
}

impl Frame {
    /// `function` of the frame that stands for all frames beyond `--stack-depth`.
    pub const OUTER: &'static str = "[outer frames not recorded]";
    /// `function` of a frame with an unreadable code object.
    pub const UNREADABLE: &'static str = "[frame not readable]";
}

/// Something the reader of the trace should know: a degradation, a gap, an interpreter not found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct Note {
    /// The process concerned; `None` if the note is about the whole recording.
    #[serde(skip)]
    pub pid: Option<u32>,
    /// Time of the note, in ns of CLOCK_MONOTONIC.
    #[serde(skip)]
    pub at_ns: u64,
    /// The message for the user, in one sentence.
    pub message: String,
}

declare! {
    Note: Phase::Instant("gctrace"), "gctrace_note", "a note",
    pid: pid, at: at_ns
}

records! {
    named {
        /// A process appeared or changed.
        Process(Process),
        /// Settings of a process's collector.
        Settings(GcSettings),
        /// A Python frame that later records name.
        Frame(Frame),
        /// Allocation pressure of a process over an interval.
        Pressure(Pressure),
        /// Allocations seen in windows on the allocator.
        Allocations(Allocations),
        /// A kind of object that garbage consists of.
        ObjectKind(ObjectKind),
        /// A cycle that garbage consists of.
        CycleSignature(CycleSignature),
        /// The garbage of a collection.
        Garbage(Garbage),
        /// Calls of the program's own code by a collection.
        Called(Called),
        /// CPU samples of a thread.
        CpuSamples(CpuSamples),
        /// Times of a thread off the CPU.
        OffCpu(OffCpu),
        /// Counts of a loop's turns.
        Turns(Turns),
        /// PyTorch's memory by layer in one step.
        Layers(Layers),
        /// A GPU, as NVML describes it.
        GpuDevice(GpuDevice),
        /// One NVML sample of a GPU.
        GpuSample(GpuSample),
        /// Device memory freed during a pause.
        PauseMemory(PauseMemory),
        /// A call of `torch.cuda.empty_cache()`.
        EmptyCache(EmptyCache),
        /// Live objects, by line of birth.
        AliveLines(AliveLines),
        /// GPU work that was only counted.
        OmittedGpuWork(OmittedGpuWork),
    }
    by_hand {
        /// A run of the collector.
        Pause(Pause),
        /// The end of a process.
        ProcessExit(ProcessExit),
        /// The name of a thread.
        ThreadName(ThreadName),
        /// Counters of a whole process.
        Counters(ProcessCounters),
        /// Launches that were only counted.
        CudaLaunches(CudaLaunches),
        /// Memory of PyTorch's allocator on a device.
        DeviceMemory(DeviceMemory),
        /// A mark of a training step.
        Step(StepMark),
        /// A long turn of a loop.
        Turn(Turn),
        /// A wait of a synchronizing call.
        GpuSync(GpuSync),
        /// A note for the user.
        Note(Note),
        /// The last line of a recording that was ended in order.
        End(TraceEnd),
    }
    numbered {
        /// A call of CUDA or NCCL.
        CudaCall(CudaCall),
        /// An operation on a GPU.
        GpuOp(GpuOp),
        /// A named interval.
        Annotation(Annotation),
        /// A Python function or an operator.
        HostCode(HostCode),
    }
}
