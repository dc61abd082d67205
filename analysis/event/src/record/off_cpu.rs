//! Times off the CPU.

use super::FrameId;
use super::kind::{LONGEST_NS, Phase, declare};
use bitcode::{Decode, Encode};
use serde::{Deserialize, Serialize};
use strum::{Display, VariantArray};

/// Consecutive times of one thread off the CPU, each of a millisecond or longer, at the same place and for the same
/// reason; all within a second, or a single one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct OffCpu {
    /// Process id in the host's initial pid namespace.
    #[serde(skip)]
    pub pid: u32,
    /// Kernel id of the thread.
    #[serde(skip)]
    pub tid: u32,
    /// When the first of them starts, in ns of CLOCK_MONOTONIC.
    #[serde(skip)]
    pub at_ns: u64,
    /// The reason of its wait.
    pub reason: OffCpuReason,
    /// Start, in ns after `ts`, and length in ns of each; in order, disjoint. A length of 0, with `driver`, is no time off
    /// the CPU: the thread launched a function of the host there (`cuLaunchHostFunc`).
    pub times: Vec<(u64, u64)>,
    /// The process whose thread woke it, if that is another one: it waited for that process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub woken_by: Option<u32>,
    /// Whether it was in a collection.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_pause: bool,
    /// The innermost Python frame; `None` without one, in native threads for example, and of a thread that
    /// was preempted.
    #[serde(skip)]
    pub stack: Option<FrameId>,
}

impl OffCpu {
    /// Start and end of each time, in ns of CLOCK_MONOTONIC.
    pub fn spans(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.times.iter().map(|(after_ns, length_ns)| {
            let start_ns = gctrace_units::after(self.at_ns, *after_ns);
            (start_ns, gctrace_units::after(start_ns, *length_ns))
        })
    }

    /// The end of the last time, in ns of CLOCK_MONOTONIC; the start if there is none.
    #[must_use]
    pub fn end_ns(&self) -> u64 {
        if let Some((_, end_ns)) = self.spans().last() { end_ns } else { self.at_ns }
    }
}

declare! {
    OffCpu: Phase::Meta, "gctrace_off_cpu", "a time off the CPU",
    pid: pid, tid: tid, at: at_ns, stack: stack, by: "--sample";
    fn span_ns(&self) -> Option<(u64, u64)> {
        Some((self.at_ns, self.end_ns()))
    }
    fn check(&self) -> Result<(), &'static str> {
        let mut before_ns = 0;
        for (after_ns, length_ns) in &self.times {
            match after_ns.checked_add(*length_ns) {
                Some(end_ns @ ..=LONGEST_NS) if *after_ns >= before_ns => before_ns = end_ns,
                _ => return Err("times of a thread off the CPU overlap"),
            }
        }
        Ok(())
    }
}

/// The reason of a thread's wait off the CPU: by its system call, or by the kernel's account of it.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    Encode,
    Decode,
)]
#[serde(rename_all = "snake_case")]
#[derive(Display, VariantArray)]
pub enum OffCpuReason {
    /// The lock of its interpreter: another thread executes Python code.
    #[strum(to_string = "the GIL")]
    Gil,
    /// Another lock, a condition or a semaphore (futex).
    #[strum(to_string = "a lock")]
    Lock,
    /// Files, sockets or pipes to be ready (poll, select, epoll).
    #[strum(to_string = "input (poll)")]
    Poll,
    /// To read from or to write to a pipe or a socket.
    #[strum(to_string = "a pipe or socket")]
    Pipe,
    /// A time to pass.
    #[strum(to_string = "a sleep")]
    Sleep,
    /// Another process to start or to end.
    #[strum(to_string = "another process")]
    Process,
    /// A block device.
    #[strum(to_string = "the disk")]
    Disk,
    /// A page of its memory.
    #[strum(to_string = "a page fault")]
    PageFault,
    /// A device's driver (ioctl).
    #[strum(to_string = "a device's driver")]
    Driver,
    /// Nothing: another thread had its CPU.
    #[strum(to_string = "a CPU")]
    Cpu,
    /// To be continued: by a signal or a debugger.
    #[strum(to_string = "being continued")]
    Stopped,
    /// Something else, or of a newer version.
    #[default]
    #[serde(other)]
    #[strum(to_string = "something else")]
    Other,
}

impl OffCpuReason {
    /// All, in the order of their numbers.
    pub const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;
}
