//! Why a heap could not be taken.

use gctrace_probes::ResolveError;
use gctrace_probes::proc_status::{ProcessError, with_rights};
use nix::errno::Errno;

/// Why a heap could not be taken. The program is unharmed and runs.
#[derive(Debug, thiserror::Error)]
pub enum HeapError {
    /// It has exited.
    #[error("there is no process {pid}, or it has exited; list processes with: ps -ef")]
    Gone {
        /// Process id.
        pid: u32,
    },
    /// `/proc` could not be read.
    #[error(transparent)]
    Process(ProcessError),
    /// One of its files could not be examined, or its version is not supported.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// It has no interpreter.
    #[error(
        "process {pid} runs no CPython that gctrace knows; see what was examined with: gctrace doctor --python {pid}"
    )]
    NotPython {
        /// Process id.
        pid: u32,
    },
    /// Its interpreter is not initialized yet, or finalized.
    #[error("process {pid} has no Python interpreter now: it is starting or ending; try again")]
    NoInterpreter {
        /// Process id.
        pid: u32,
    },
    /// There is no interpreter with this id.
    #[error("process {pid} has no interpreter {interpreter}; it has: {}", text(known))]
    NoSuchInterpreter {
        /// Process id.
        pid: u32,
        /// The requested id.
        interpreter: i64,
        /// Ids of its interpreters.
        known: Vec<i64>,
    },
    /// A free-threaded build.
    #[error(
        "process {pid} runs a free-threaded CPython {version}: its objects are on no list that could be read from outside. Take the heap under a build with the GIL"
    )]
    FreeThreaded {
        /// Process id.
        pid: u32,
        /// Its version.
        version: String,
    },
    /// No layout for this version.
    #[error(
        "the layout of objects of CPython {version} (process {pid}) is unknown; gctrace reads heaps of 3.8 to 3.15 with the GIL"
    )]
    Version {
        /// Process id.
        pid: u32,
        /// Its version.
        version: String,
    },
    /// This process may not trace it.
    #[error(
        "process {pid} may not be stopped and read ({errno}); {}",
        with_rights("the same command with sudo")
    )]
    Forbidden {
        /// Process id.
        pid: u32,
        /// The kernel's answer to PTRACE_SEIZE or process_vm_readv.
        errno: Errno,
    },
    /// Another process traces it, and there can be only one.
    #[error(
        "process {pid} is being traced by {name} (pid {tracer}), and only one process can; end that first: kill {tracer}"
    )]
    Traced {
        /// Process id.
        pid: u32,
        /// The tracer.
        tracer: u32,
        /// Its name.
        name: String,
    },
    /// A thread did not stop.
    #[error("thread {tid} of process {pid} did not stop in time; try again")]
    NotStopped {
        /// Process id.
        pid: u32,
        /// Thread id.
        tid: i32,
    },
    /// It was always within a collection, or its lists of objects were inconsistent.
    #[error(
        "process {pid} was stopped {tries} times, and {why} each time; it runs on unharmed. Try again, when it collects less often"
    )]
    Busy {
        /// Process id.
        pid: u32,
        /// How often it was stopped.
        tries: u32,
        /// The obstacle at the last try.
        why: &'static str,
    },
    /// It has more objects than can be listed while it is stopped.
    #[error(
        "process {pid} has too many objects to be copied within the {limit_ms} ms that it may be stopped; it runs on unharmed. At the end of a full collection it waits by itself: gctrace heap --at-full N -- COMMAND"
    )]
    TooManyObjects {
        /// Process id.
        pid: u32,
        /// How long it was stopped at most, in ms.
        limit_ms: u128,
    },
    /// Its objects lead to more memory than it uses, or than this machine has left.
    #[error(
        "the objects of process {pid} lead to more than {} MiB of memory: more than it has or than this machine has left (see: grep -E 'VmRSS|VmSwap' /proc/{pid}/status; free -m)",
        limit >> 20
    )]
    TooLarge {
        /// Process id.
        pid: u32,
        /// Most bytes that are copied.
        limit: u64,
    },
    /// More references, or reads, than its memory can hold.
    #[error(
        "the objects of process {pid} lead to more than its memory can hold: they are not what CPython keeps there. See how much memory it has: grep -E 'VmRSS|VmSwap' /proc/{pid}/status"
    )]
    Implausible {
        /// Process id.
        pid: u32,
    },
    /// This process may have no more memory.
    #[error("there is too little memory for the heap of process {pid}; see: ulimit -v; free -m")]
    NoMemory {
        /// Process id.
        pid: u32,
    },
    /// The watchdog that limits the stop could not be started.
    #[error("cannot start the process that limits how long {pid} is stopped: {source}")]
    Watchdog {
        /// Process id.
        pid: u32,
        /// The system's error.
        source: std::io::Error,
    },
    /// The thread that traces could not be started.
    #[error("cannot start a thread: {source}; see: ulimit -u")]
    Thread {
        /// The system's error.
        source: std::io::Error,
    },
}

impl From<ProcessError> for HeapError {
    fn from(error: ProcessError) -> Self {
        match error {
            ProcessError::Gone { pid } => Self::Gone { pid },
            error => Self::Process(error),
        }
    }
}

fn text(ids: &[i64]) -> String {
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    ids.join(", ")
}
