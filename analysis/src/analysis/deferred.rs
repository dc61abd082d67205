//! Collections of the PyTorch profiler's traces, kept until it is known whether a gctrace trace contains them too; it
//! may come later.
//!
//! Chooses the collections to defer, and counts each once in the end.

use super::Analysis;
use crate::gpu;
use crate::spans::FirstToLast;
use gctrace_event::Pause;
use std::collections::HashMap;

/// Largest number of deferred collections of one trace: 25 MB. The profiler's traces cover seconds;
/// other traces with more are not gctrace's as well.
const MOST: usize = 100_000;

/// Collections of one trace.
#[derive(Debug, Default)]
pub(super) struct DeferredCollections {
    trace: usize,
    /// With the index of their process.
    pauses: Vec<(usize, Pause)>,
    thread_names: HashMap<(u32, u32), String>,
}

impl DeferredCollections {
    /// Takes the pauses of the trace that ends, if there are any.
    pub(super) fn take(
        &mut self,
        trace: usize,
        thread_names: &HashMap<(u32, u32), String>,
    ) -> Option<Self> {
        let pauses = std::mem::take(&mut self.pauses);
        if pauses.is_empty() {
            return None;
        }
        Some(Self { trace, pauses, thread_names: thread_names.clone() })
    }

    /// The same in an analysis with this many more traces and processes before.
    pub(super) fn moved(mut self, traces: usize, processes: usize) -> Self {
        self.trace += traces;
        for (process, _) in &mut self.pauses {
            *process += processes;
        }
        self
    }
}

impl Analysis {
    /// Keeps a pause of another tool's trace, as it may be the second account of it, and returns any other.
    pub(super) fn defer(&mut self, process: usize, pause: Pause) -> Option<Pause> {
        let trace = self.traces.last_mut()?;
        let deferred = &mut self.current.deferred.pauses;
        // The profiler's collections have no stack, and stacks are looked up when their trace ends.
        if trace.header.is_some() || pause.stack.is_some() || deferred.len() >= MOST {
            return Some(pause);
        }
        trace.deferred = true;
        deferred.push((process, pause));
        None
    }

    /// Counts the collections that waited for the last trace, except for collections that gctrace recorded as well.
    /// To be called after the last [`Analysis::end_trace`].
    pub fn settle(&mut self) {
        let waiting = std::mem::take(&mut self.deferred);
        if waiting.is_empty() {
            return;
        }
        let repeated = gpu::merge::merge(&self.timelines, &self.spans()).repeated;
        for deferred in waiting {
            for (process, pause) in &deferred.pauses {
                if !repeated.contains(&(deferred.trace, pause.pid, pause.start_ns)) {
                    self.add_pause(*process, pause);
                }
            }
            for entry in &mut self.worst.entries {
                if entry.trace == deferred.trace {
                    let thread = (entry.pause.pid, entry.pause.tid);
                    entry.thread = deferred.thread_names.get(&thread).cloned();
                }
            }
        }
    }

    /// Whether no collections wait to be counted.
    pub(crate) fn is_settled(&self) -> bool {
        self.deferred.is_empty()
    }

    /// First and last time of each trace.
    pub(crate) fn spans(&self) -> Vec<FirstToLast> {
        self.traces.iter().map(|trace| trace.span).collect()
    }
}
