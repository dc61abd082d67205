//! Processes, their interpreters and settings, their threads' names and their ends.

use super::kind::{Phase, declare};
use super::{FrameId, UnseenCollections};
use bitcode::{Decode, Encode};
use serde::{Deserialize, Serialize};
use strum::AsRefStr;

/// The kind of collector of an interpreter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[serde(rename_all = "kebab-case")]
#[derive(AsRefStr)]
#[strum(serialize_all = "kebab-case")]
pub enum CollectorKind {
    /// Three generations: 3.8 - 3.13, 3.14.5 and later.
    Generational,
    /// Incremental, with young and old: 3.14.0 - 3.14.4.
    Incremental,
    /// The collector of free-threaded builds.
    FreeThreaded,
    /// A word of another gctrace; empty if the trace does not state it.
    #[serde(untagged)]
    #[strum(transparent)]
    Other(String),
}

impl Default for CollectorKind {
    fn default() -> Self {
        Self::Other(String::new())
    }
}

/// The interpreter of a process, as far as it was resolved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[serde(default)]
pub struct Interpreter {
    /// File that contains the collector (an executable or a libpython), as seen in the process's
    /// mount namespace.
    pub file: String,
    /// For example `3.11.7`; as exact as could be found out.
    pub version: String,
    /// Build without the global interpreter lock.
    pub free_threaded: bool,
    /// Kind of collector; it decides which collections are full.
    pub collector: CollectorKind,
    /// Search strategy that found the collector, for example `symbol table` or `code analysis`.
    pub found_by: String,
    /// Build id of the file in hexadecimal, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
}

/// How recording of a process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[serde(rename_all = "lowercase")]
pub enum ProcessOrigin {
    /// gctrace started it; nothing was missed.
    Launched,
    /// Forked or spawned by a recorded process; nothing was missed.
    Child,
    /// It was already running; its history before `since_ns` is unknown.
    #[default]
    Attached,
}

/// A recorded process. Written again, whole, whenever something in it changed (after an exec, for
/// example); the last one counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct Process {
    /// Process id in the host's initial pid namespace.
    #[serde(skip)]
    pub pid: u32,
    /// Process id inside its own pid namespace, when that is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_pid: Option<u32>,
    /// Process id of its parent on the host; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// How its recording started, and so whether anything before `since_ns` was missed.
    pub origin: ProcessOrigin,
    /// From when on its pauses are complete.
    #[serde(skip)]
    pub since_ns: u64,
    /// Command line, one element per argument.
    #[serde(default)]
    pub command: Vec<String>,
    /// Global rank in a distributed job, if the environment contains it (`RANK`, `SLURM_PROCID`,
    /// ...).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Its interpreter; `None` where it runs no Python (a launcher's shell).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interpreter: Option<Interpreter>,
    /// Version of PyTorch, as in `torch.__version__`; `None` if it was not loaded or is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torch: Option<String>,
    /// Memory that it may use, in bytes: the smallest limit of its cgroups, or the memory of the
    /// machine; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<u64>,
    /// Its collections that the library could not see; `None` with probes (they see them), and as long as no
    /// interpreter of it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unseen: Option<UnseenCollections>,
}

declare! { Process: Phase::Meta, "gctrace_process", "a process", pid: pid, at: since_ns }

/// The collector's settings of one interpreter, read when first seen and whenever they changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct GcSettings {
    /// Process id in the host's initial pid namespace.
    #[serde(skip)]
    pub pid: u32,
    /// When they were read, in ns of CLOCK_MONOTONIC.
    #[serde(skip)]
    pub at_ns: u64,
    /// `gc.isenabled()`: whether automatic collection is on; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// `gc.get_threshold()`, youngest generation first; 0 there turns automatic collection off.
    pub thresholds: [i32; 3],
    /// The line that set them; `None` if it is unknown, or if none did.
    #[serde(skip)]
    pub stack: Option<FrameId>,
}

declare! {
    GcSettings: Phase::Meta, "gctrace_settings", "settings",
    pid: pid, at: at_ns, stack: stack
}

/// When and how a recorded process ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct ProcessExit {
    /// Process id in the host's initial pid namespace.
    #[serde(skip)]
    pub pid: u32,
    /// When its last thread ended, in ns of CLOCK_MONOTONIC.
    #[serde(skip)]
    pub at_ns: u64,
    /// Exit code; `None` if a signal killed it or if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// Number of the signal that killed it; `None` if it exited or if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
}

declare! {
    ProcessExit: Phase::Instant("gctrace"), "gctrace_process_exit", "an exit",
    pid: pid, at: at_ns
}

/// The name of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
pub struct ThreadName {
    /// Process id on the host.
    #[serde(skip)]
    pub pid: u32,
    /// Kernel thread id.
    #[serde(skip)]
    pub tid: u32,
    /// Name, for example `MainThread` or the kernel's `comm`.
    pub name: String,
}

declare! { ThreadName: Phase::Meta, "thread_name", "the name of a thread", pid: pid, tid: tid }
