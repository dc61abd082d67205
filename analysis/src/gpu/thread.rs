//! The threads of a timeline.

use super::index::Index;

/// Place of a thread in the `threads` of its timeline.
pub type ThreadIndex = Index<Thread>;

/// A thread of the process that appears in its records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Thread id as the trace states it: in gctrace's, the kernel's on the host.
    pub tid: u32,
    /// Name of the thread; `None` if unknown.
    pub name: Option<String>,
}
