//! Events of recorded processes that the BPF programs report.

use crate::wire::FileKey;
use gctrace_event::{CpuSamples, Garbage, LoopPlace, OffCpu, Pause, Turn};

/// An event in a recorded process.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all events are pauses, the largest; boxing each would cost more than it saves"
)]
pub enum KernelEvent {
    /// The collector ran.
    Pause(PauseEvent),
    /// A process was forked, changed its program, or exited.
    Process(ProcessEvent),
    /// A stack is seen for the first time.
    Stack(StackEvent),
    /// A code object is seen for the first time.
    Code(CodeEvent),
    /// A sampled allocation in a window.
    Allocation(AllocationEvent),
    /// A sample of a thread's execution.
    Sample(SampleEvent),
    /// A thread's time off the CPU, and the reason.
    OffCpu(OffCpuEvent),
    /// A thread waits at the same place again and again.
    Loop(LoopKey),
    /// A long turn of a loop.
    Turn(Turn),
    /// A type is seen in garbage for the first time.
    Type(TypeEvent),
    /// The garbage of a collection was examined.
    Garbage(GarbageEvent),
}

/// Identifies a stack within one recording.
pub type StackId = u64;

/// The Python stack of a thread, sent before the first event that refers to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackEvent {
    /// Process id in the initial pid namespace.
    pub pid: u32,
    /// Id of the stack in later events; never 0.
    pub id: StackId,
    /// Index of the layout, returned by [`crate::BpfSession::add_layout`], of its interpreter.
    pub layout: u32,
    /// Its frames, innermost first, up to the depth given by [`crate::SessionConfig::stack_depth`].
    pub frames: Vec<CapturedFrame>,
    /// Whether there are more outer frames than that depth.
    pub truncated: bool,
    /// Whether there are more outer frames, and the next one could not be read.
    pub unreadable: bool,
}

/// One Python frame as the kernel captured it: not yet a function, file and line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CapturedFrame {
    /// The code object it executes, described by a [`CodeEvent`].
    pub code: CodeId,
    /// Byte offset of the instruction within the code; `None` before the first one.
    pub offset: Option<u32>,
}

/// Identity of a code object in a process; an address alone may be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CodeId {
    /// Address of the code object in the memory of the process.
    pub address: u64,
    /// Distinguishes objects that reused an address.
    pub identity: u32,
}

/// Data to resolve the lines of a code object, read while it was certainly alive. Members in memory
/// that was not resident are empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeEvent {
    /// Process id in the initial pid namespace.
    pub pid: u32,
    /// The code object that this event describes, as frames refer to it.
    pub code: CodeId,
    /// Index of the layout, returned by [`crate::BpfSession::add_layout`], of its interpreter.
    pub layout: u32,
    /// `co_firstlineno`: the line table counts from it.
    pub first_line: i32,
    /// First bytes of the `str` object of its file name, header included.
    pub file_name: Vec<u8>,
    /// First bytes of the `str` object of its name.
    pub function_name: Vec<u8>,
    /// First bytes of its line table.
    pub line_table: Vec<u8>,
    /// Length of the whole line table in bytes, if it could be read.
    pub line_table_length: Option<u64>,
}

/// A sampled allocation in an allocation window; only its stack is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationEvent {
    /// Process id in the initial pid namespace.
    pub pid: u32,
    /// Id of the allocating thread's stack, as in [`StackEvent::id`].
    pub stack: StackId,
}

/// What a thread was executing when the clock of its CPU ticked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleEvent {
    /// The sample. Its file and [`CpuSamples::stack`] are left for the code that resolves them.
    pub samples: CpuSamples,
    /// Its Python stack, as in [`StackEvent::id`]; `None` if it has none, as native threads do, or if it was
    /// lost.
    pub stack: Option<StackId>,
    /// Address of the instruction; `None` in the kernel.
    pub instruction: Option<u64>,
}

/// A time of a thread off the CPU, of a millisecond or longer (`OFF_CPU_NS` of `bpf/sampled_thread.bpf.h`); or of no length,
/// with the reason [`Driver`](gctrace_event::OffCpuReason::Driver), where it launched a function of the host
/// (`cuLaunchHostFunc`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffCpuEvent {
    /// The time, as the only one of a record. [`OffCpu::stack`] is left for the code that resolves frames.
    pub off: OffCpu,
    /// Its Python stack, as in [`StackEvent::id`]; `None` if it has none, if it was preempted, and if taking it
    /// would have exceeded the budget.
    pub stack: Option<StackId>,
}

/// A thread that waited already when its process began to be recorded. Its wait, if it is a millisecond or longer
/// from then on, is an [`OffCpuEvent`] that starts at `start_ns` and has no stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlierWait {
    /// Process id in the initial pid namespace.
    pub pid: u32,
    /// Kernel id of the thread.
    pub tid: u32,
    /// When it was found waiting, in ns of CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// Its `pthread_self()`; `None`: unknown.
    pub thread_id: Option<u64>,
}

/// The loop of a thread.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LoopKey {
    /// Process id in the initial pid namespace.
    pub pid: u32,
    /// Kernel id of the thread.
    pub tid: u32,
    /// Number of the system call that it waits in, on this machine.
    pub system_call: i32,
    /// The call and its first argument.
    pub place: LoopPlace,
}

/// Identity of a type in a process; an address alone may be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeId {
    /// Address of the type in the memory of the process.
    pub address: u64,
    /// Distinguishes types that reused an address; 0: its event was lost.
    pub identity: u32,
}

/// The names of a type, read while it was alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeEvent {
    /// Process id in the initial pid namespace.
    pub pid: u32,
    /// The type that this event describes.
    pub id: TypeId,
    /// Index of the layout, returned by [`crate::BpfSession::add_layout`], of its interpreter.
    pub layout: u32,
    /// `tp_name` without its terminator, cut after 127 bytes; empty if it could not be read.
    pub name: Vec<u8>,
    /// First bytes of the `str` object of its qualified name, header included; empty for types that
    /// are not heap types, and if it could not be read.
    pub qualname: Vec<u8>,
    /// The same of its `__module__`.
    pub module: Vec<u8>,
    /// The code of its first method, described by a [`CodeEvent`], if it has methods in Python.
    pub method: Option<CodeId>,
}

/// The objects that a collection is about to free, sent before its [`PauseEvent`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GarbageEvent {
    /// The garbage. [`Garbage::kinds`] is left for the code that resolves frames, the interpreter for its pause.
    pub garbage: Garbage,
    /// Index of the layout, returned by [`crate::BpfSession::add_layout`], of its interpreter.
    pub layout: u32,
    /// The objects by kind; fewer than [`Garbage::objects`] if there were more kinds than fit.
    pub kinds: Vec<CapturedKind>,
}

/// Objects of one type and, if they belong to code, of one place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedKind {
    /// Their type, described by a [`TypeEvent`].
    pub type_id: TypeId,
    /// Their owner, if they have one.
    pub owner: Option<KindOwner>,
    /// Number of objects.
    pub objects: u64,
    /// Their own memory in bytes: fixed part and items, and the tables of lists and dicts; not the
    /// collector's header. `None` if unknown.
    pub bytes: Option<u64>,
}

/// The owner of a kind's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KindOwner {
    /// Code and, if they execute it, the instruction.
    Code(CapturedFrame),
    /// A class: they are that class, or cells with it.
    Class(TypeId),
}

/// A pause with the data read along with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseEvent {
    /// The pause. Its generation is unknown if the end of its process cut it short and the function
    /// chooses the generation itself (3.13 and later, automatic).
    pub pause: Pause,
    /// `gc.get_threshold()` at the end, if it could be read.
    pub thresholds: Option<[i32; 3]>,
    /// `gc.isenabled()` at the end, if it could be read.
    pub enabled: Option<bool>,
    /// Forked during its parent's pause: the start is the fork.
    pub forked: bool,
    /// The stack when the pause started; [`Pause::stack`] is left for the code that resolves
    /// frames.
    pub stack: Option<StackId>,
    /// `gc.get_count()` at the start, if it could be read.
    pub counts: Option<[u32; 3]>,
}

/// Whether a process was stopped until its probes are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopState {
    /// It is stopped and waits for [`crate::StoppedProcesses::release`].
    Stopped {
        /// Its parent was already stopped before.
        parent_was_stopped: bool,
    },
    /// Stopping was not necessary.
    NotNeeded,
    /// It should be stopped, but is running.
    Refused(NotStopped),
}

/// Why a process was not stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotStopped {
    /// It runs as another user, and this gctrace may not resume that user's processes.
    OtherUser,
    /// The recording is ending, or the rings were not polled for a while
    /// ([`crate::BpfSession::may_stop_until`]).
    NotNow,
    /// It would be noticed: by a debugger, a shell with job control, sudo.
    Seen,
    /// Too many are stopped, or the signal failed.
    Failed,
}

/// Kind of library, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LibraryKind {
    /// A libpython.
    Python,
    /// One of CUDA, NCCL or torch.
    Cuda,
}

/// A lifecycle event of a process. Timestamps are nanoseconds of CLOCK_MONOTONIC.
#[derive(Clone, Debug)]
pub enum ProcessEvent {
    /// A recorded process has a new child, recorded from its first instruction on.
    Fork {
        /// Process id of the child.
        pid: u32,
        /// Process id of the parent.
        parent: u32,
        /// Whether it was stopped, as the first process beside the only probed one ([`crate::BpfSession::probe_only`]).
        stop: StopState,
        /// Time of the fork.
        at_ns: u64,
    },
    /// A recorded process runs another program (exec).
    Exec {
        /// Process id.
        pid: u32,
        /// The executable.
        file: FileKey,
        /// Whether it is stopped.
        stop: StopState,
        /// The executable need not be examined: it was marked as known, or certainly contains no
        /// collector.
        known: bool,
        /// A thread other than the main one executed it, and is the main thread now.
        by_thread: bool,
        /// Time of the exec.
        at_ns: u64,
    },
    /// A process reached the entry point of its program: its libraries are mapped.
    ProgramEntry {
        /// Process id.
        pid: u32,
        /// Whether it is stopped.
        stop: StopState,
        /// Time of the event.
        at_ns: u64,
    },
    /// A recorded process is about to map a libpython, or an unknown file named like a CUDA, NCCL
    /// or torch library.
    Library {
        /// Process id.
        pid: u32,
        /// The library file.
        file: FileKey,
        /// Kind of library, by its name.
        kind: LibraryKind,
        /// Whether the file was marked as known before.
        known: bool,
        /// Whether it is stopped, once the mapping exists.
        stop: StopState,
        /// Time of the event.
        at_ns: u64,
    },
    /// A recorded process runs a program that gctrace's user may not inspect: it is no longer
    /// recorded.
    Foreign {
        /// Process id.
        pid: u32,
        /// Time of the exec.
        at_ns: u64,
    },
    /// The last thread of a recorded process exited.
    Exit {
        /// Process id.
        pid: u32,
        /// Status as wait(2) reports it.
        status: i32,
        /// Time of the exit.
        at_ns: u64,
    },
}
