//! The training steps of each process, one by one: what pictures of a job are made of.

/// The steps of one process, of its thread with the most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepRow {
    /// Number of the trace, from 0, in the order in which they were read.
    pub trace: usize,
    /// Process id; 0 if the trace does not contain it.
    pub pid: u32,
    /// Rank in a distributed job; `None` if unknown.
    pub rank: Option<u32>,
    /// Name of the host; `None` if the trace does not contain it.
    pub host: Option<String>,
    /// In order of time.
    pub steps: Vec<StepCell>,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepCell {
    /// Its number in the trace (`ProfilerStep#n`), otherwise counted from 0.
    pub number: u64,
    /// Length, in ns.
    pub duration_ns: u64,
    /// Time of collections within it, in ns; `None` if the trace would not show collections.
    pub gc_ns: Option<u64>,
}
