//! The longest pauses.

use crate::stacks::NodeId;
use gctrace_event::Pause;

/// Number of pauses that are kept.
const KEPT: usize = 10;

/// A pause and the process it happened in.
#[derive(Debug, Clone)]
pub(crate) struct WorstPauseEntry {
    pub(crate) trace: usize,
    /// Unless it is not listed.
    pub(crate) process: Option<usize>,
    pub(crate) pause: Pause,
    /// Name of the thread, once the whole trace is read.
    pub(crate) thread: Option<String>,
    /// Its stack, once the whole trace is read.
    pub(crate) node: Option<NodeId>,
}

/// The ten longest pauses, longest first; the earlier first if they are equal.
#[derive(Debug, Default)]
pub(crate) struct WorstPauses {
    pub(crate) entries: Vec<WorstPauseEntry>,
}

impl WorstPauses {
    pub(crate) fn add(&mut self, trace: usize, process: Option<usize>, pause: &Pause) {
        let length = pause.duration_ns();
        let full = self.entries.len() >= KEPT;
        if full && matches!(self.entries.last(), Some(last) if last.pause.duration_ns() >= length) {
            return;
        }
        self.insert(WorstPauseEntry {
            trace,
            process,
            pause: pause.clone(),
            thread: None,
            node: None,
        });
    }

    /// Adds a pause that is later than all others in the order of reading.
    pub(crate) fn insert(&mut self, entry: WorstPauseEntry) {
        let length = entry.pause.duration_ns();
        let at = self.entries.partition_point(|other| other.pause.duration_ns() >= length);
        self.entries.insert(at, entry);
        self.entries.truncate(KEPT);
    }
}
