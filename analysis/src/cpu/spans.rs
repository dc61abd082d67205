//! What threads did over time, of all processes of one trace.

use crate::stacks::{MovedNodes, NodeId};
use gctrace_event::{CpuSamples, OffCpu, OffCpuReason};
use std::collections::BTreeMap;

/// The most that is kept of a trace, and of all traces together: 60 MB, five hours of a process with some 50
/// records a second. What comes later is left out.
const KEPT: usize = 1_000_000;

/// A time of a thread: samples at one place, or a time off the CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadSpan {
    pub(crate) tid: u32,
    start_ns: u64,
    end_ns: u64,
    pub(crate) did: ThreadDid,
    pub(crate) node: Option<NodeId>,
    pub(crate) in_pause: bool,
}

/// What a thread did.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ThreadDid {
    /// It executed something: number of samples.
    Run(u64),
    /// It was off the CPU; `for_data`: waiting for another thread or process to make data.
    Wait { reason: OffCpuReason, for_data: bool },
}

impl ThreadSpan {
    pub(crate) fn of_samples(samples: &CpuSamples, node: Option<NodeId>) -> Self {
        Self {
            tid: samples.tid,
            start_ns: samples.at_ns,
            // The last sample is at its end.
            end_ns: crate::time::after(samples.until_ns, 1),
            did: ThreadDid::Run(samples.count),
            node,
            in_pause: samples.in_pause,
        }
    }

    pub(crate) fn off_cpu(
        off: &OffCpu,
        (start_ns, end_ns): (u64, u64),
        node: Option<NodeId>,
        for_data: bool,
    ) -> Self {
        let did = ThreadDid::Wait { reason: off.reason, for_data };
        Self { tid: off.tid, start_ns, end_ns, did, node, in_pause: off.in_pause }
    }

    /// Start and end.
    pub(crate) fn span(&self) -> (u64, u64) {
        (self.start_ns, self.end_ns)
    }

    /// Its samples; 0 of a time off the CPU.
    pub(crate) fn samples(&self) -> f64 {
        match self.did {
            ThreadDid::Run(samples) => samples as f64,
            ThreadDid::Wait { .. } => 0.0,
        }
    }

    /// The part of it within an interval, 0 to 1, with its start and end; `None` if it is outside.
    pub(crate) fn within(&self, (from_ns, to_ns): (u64, u64)) -> Option<(f64, (u64, u64))> {
        let (start_ns, end_ns) = (self.start_ns.max(from_ns), self.end_ns.min(to_ns));
        let part = |length_ns: u64| length_ns as f64 / (self.end_ns - self.start_ns) as f64;
        if start_ns < end_ns { Some((part(end_ns - start_ns), (start_ns, end_ns))) } else { None }
    }
}

/// The same for waits of threads other than the main one; they may be idle: 14 MB.
const OTHERS_KEPT: usize = 250_000;

/// What the threads of a trace did, by the index of the process.
#[derive(Debug, Default)]
pub(crate) struct TraceSpans {
    processes: BTreeMap<usize, Vec<ThreadSpan>>,
    /// Waits of threads other than the main one.
    others: BTreeMap<usize, Vec<ThreadSpan>>,
    kept: usize,
    others_kept: usize,
    /// Whether times off the CPU were recorded.
    pub(crate) has_waits: bool,
}

impl TraceSpans {
    pub(crate) fn add(&mut self, process: usize, span: ThreadSpan) {
        if self.kept < KEPT {
            self.kept += 1;
            self.has_waits |= matches!(span.did, ThreadDid::Wait { .. });
            self.processes.entry(process).or_default().push(span);
        }
    }

    /// Adds a wait of another thread than the main one.
    pub(crate) fn add_other(&mut self, process: usize, span: ThreadSpan) {
        if self.others_kept < OTHERS_KEPT {
            self.others_kept += 1;
            self.others.entry(process).or_default().push(span);
        }
    }

    /// The waits of a process's threads other than the main one.
    pub(crate) fn others(&self, process: usize) -> &[ThreadSpan] {
        if let Some(spans) = self.others.get(&process) { spans } else { &[] }
    }

    /// What the threads of a process executed, and the waits of its main thread.
    pub(crate) fn of(&self, process: usize) -> &[ThreadSpan] {
        if let Some(spans) = self.processes.get(&process) { spans } else { &[] }
    }

    /// Adds a trace to earlier ones, as long as there is room for all of it. So it makes no difference whether traces
    /// are read one after the other or at the same time.
    pub(crate) fn push_to(self, all: &mut Vec<Self>) {
        let kept: usize = all.iter().map(|trace| trace.kept).sum();
        let others: usize = all.iter().map(|trace| trace.others_kept).sum();
        let fits = kept + self.kept <= KEPT && others + self.others_kept <= OTHERS_KEPT;
        all.push(if fits { self } else { Self::default() });
    }

    /// The same with other numbers of processes and stacks.
    pub(crate) fn moved(mut self, processes: usize, nodes: &MovedNodes) -> Self {
        for span in self.processes.values_mut().chain(self.others.values_mut()).flatten() {
            span.node = nodes.moved(span.node);
        }
        let moved = |of: BTreeMap<usize, Vec<ThreadSpan>>| {
            of.into_iter().map(|(index, spans)| (index + processes, spans)).collect()
        };
        Self { processes: moved(self.processes), others: moved(self.others), ..self }
    }
}
