//! Samples of executing threads.

use super::FrameId;
use super::kind::{LONGEST_NS, Phase, declare};
use bitcode::{Decode, Encode};
use serde::{Deserialize, Serialize};

/// Samples of one thread in a row that found it at the same place, within a second
/// ([`TraceHeader::sample_hz`](super::TraceHeader::sample_hz) times a second of CPU time).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct CpuSamples {
    /// Process id in the host's initial pid namespace.
    #[serde(skip)]
    pub pid: u32,
    /// Kernel id of the thread.
    #[serde(skip)]
    pub tid: u32,
    /// The first of them, in ns of CLOCK_MONOTONIC.
    #[serde(skip)]
    pub at_ns: u64,
    /// The last of them; the first if there is one.
    pub until_ns: u64,
    /// Number of samples, at least 1.
    pub count: u64,
    /// Name of the file with the executed code, without its folder, or `[kernel]` in system calls and page faults;
    /// `None` if unknown, for example for generated code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Whether it was in a collection.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_pause: bool,
    /// The innermost Python frame; `None` without one, in native threads for example.
    #[serde(skip)]
    pub stack: Option<FrameId>,
}

impl CpuSamples {
    /// `file` of samples in system calls and faults.
    pub const KERNEL: &'static str = "[kernel]";
}

declare! {
    CpuSamples: Phase::Meta, "gctrace_samples", "samples",
    pid: pid, tid: tid, at: at_ns, end: until_ns, stack: stack, spaced: Samples, by: "--sample";
    fn check(&self) -> Result<(), &'static str> {
        if self.count == 0 || !(self.at_ns..=LONGEST_NS).contains(&self.until_ns) {
            return Err("samples of a thread end before they start, or are none");
        }
        Ok(())
    }
}
