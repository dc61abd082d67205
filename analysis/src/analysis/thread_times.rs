//! What threads did: samples of what they executed, and for what they were off the CPU.

use super::Analysis;
use crate::accumulate::meanwhile::{Meanwhile, ThreadSpan};
use crate::accumulate::off_cpu::is_for_data;
use crate::accumulate::stacks::NodeId;
use crate::words::samples::waiting;
use gctrace_event::{Annotation, CpuSamples, HostCode, HostCodeKind, OffCpu, OffCpuReason};
use std::collections::BTreeMap;

/// The most times of processes that may be workers, of one trace: 40 MB. What comes later is not joined.
const SPANS_KEPT: usize = 1_000_000;

/// What threads of a trace did while others may have waited for them, by the index of the process.
#[derive(Debug, Default)]
pub(super) struct TraceTimes {
    /// When main threads waited for data, and for the GIL: start and end, in ns.
    waits: BTreeMap<(usize, WaitFor), Vec<(u64, u64)>>,
    /// Samples, but those of main threads without a recorded parent; of processes with one also times of
    /// the main thread off the CPU.
    spans: BTreeMap<usize, Vec<ThreadSpan>>,
    kept: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WaitFor {
    Data,
    Gil,
}

impl TraceTimes {
    fn has_room(&mut self) -> bool {
        self.kept += 1;
        self.kept <= SPANS_KEPT
    }
}

impl Analysis {
    pub(super) fn add_samples(&mut self, samples: &CpuSamples) {
        let frames = &self.current.frames;
        let node = samples.stack.and_then(|at| frames.resolve(at, &mut self.stacks));
        let index = self.index_at(samples.pid, samples.at_ns);
        let process = &mut self.processes[index];
        process.see_at_work(samples.at_ns, samples.until_ns);
        process.cpu.add(samples, node);
        if samples.tid == samples.pid {
            process.main_thread.add_samples(samples, node);
        }
        let may_be_waited_for = samples.tid != samples.pid || process.sums.parent().is_some();
        if may_be_waited_for && self.current.times.has_room() {
            let span = ThreadSpan::of_samples(samples, node);
            self.current.times.spans.entry(index).or_default().push(span);
        }
        if !samples.in_pause && self.current.gpu.knows_thread(samples.pid, samples.tid) {
            let name = self.code_name(node);
            self.current.gpu.add_samples(samples, name.as_deref().unwrap_or("outside of Python"));
        }
    }

    pub(super) fn add_off_cpu(&mut self, off: &OffCpu) {
        let frames = &self.current.frames;
        let node = off.stack.and_then(|at| frames.resolve(at, &mut self.stacks));
        let for_data = node.is_some_and(|node| is_for_data(off.reason, self.stacks.frames(node)));
        let index = self.index_at(off.pid, off.at_ns);
        let process = &mut self.processes[index];
        process.see_at_work(off.at_ns, off.end_ns());
        let is_main = off.tid == off.pid;
        if is_main {
            process.main_thread.add_off_cpu(off, node, for_data);
        }
        let waits_for = match off.reason {
            _ if for_data => Some(WaitFor::Data),
            OffCpuReason::Gil => Some(WaitFor::Gil),
            _ => None,
        };
        let may_be_worker = process.sums.parent().is_some();
        for (start_ns, end_ns) in off.spans().filter(|_| is_main) {
            let times = &mut self.current.times;
            if let Some(waits_for) = waits_for
                && times.has_room()
            {
                times.waits.entry((index, waits_for)).or_default().push((start_ns, end_ns));
            }
            if may_be_worker && times.has_room() {
                let span = ThreadSpan::off_cpu(off, (start_ns, end_ns), node);
                times.spans.entry(index).or_default().push(span);
            }
        }
        self.place_in_timeline(off, node, for_data);
    }

    /// Names what a thread that makes CUDA calls waited for between them.
    fn place_in_timeline(&mut self, off: &OffCpu, node: Option<NodeId>, for_data: bool) {
        if !self.current.gpu.knows_thread(off.pid, off.tid) {
            return;
        }
        let name = match off.reason {
            _ if for_data => "waiting for data (DataLoader or a queue)".to_owned(),
            OffCpuReason::Disk => "waiting for files on the disk".to_owned(),
            reason => waiting(reason, false),
        };
        let code = self.code_name(node);
        for (start_ns, end_ns) in off.spans() {
            let (pid, tid) = (off.pid, off.tid);
            let name = name.clone();
            self.current.gpu.add_annotation(&Annotation { pid, tid, name, start_ns, end_ns });
            if let Some(name) = code.clone() {
                let kind = HostCodeKind::Function;
                let (pid, tid) = (Some(pid), Some(tid));
                self.current.gpu.add_code(&HostCode { pid, tid, kind, name, start_ns, end_ns });
            }
        }
    }

    /// The line of a stack, as the profiler writes the place of a function.
    fn code_name(&self, node: Option<NodeId>) -> Option<String> {
        let line = self.stacks.own_or_innermost_line(node?);
        Some(format!("{}({}): {}", line.file, line.line?, line.function))
    }

    /// Finds what others did while main threads waited for them.
    pub(super) fn join_waits(&mut self, times: TraceTimes) {
        let TraceTimes { waits, spans, .. } = times;
        for ((waiting, waits_for), waits) in waits {
            let pid = self.processes[waiting].sums.pid;
            let mut meanwhile = Meanwhile::of(waits);
            match waits_for {
                WaitFor::Data => {
                    let parent = |index: usize| self.processes[index].sums.parent();
                    let workers = spans.iter().filter(|(index, _)| parent(**index) == Some(pid));
                    workers.for_each(|(_, spans)| meanwhile.add(spans));
                    self.processes[waiting].main_thread.workers = Some(meanwhile);
                }
                WaitFor::Gil => {
                    let own = spans.get(&waiting).into_iter().flatten();
                    let mut threads: BTreeMap<u32, Vec<&ThreadSpan>> = BTreeMap::new();
                    for span in own.filter(|span| span.tid != pid) {
                        threads.entry(span.tid).or_default().push(span);
                    }
                    threads.into_values().for_each(|spans| meanwhile.add(spans));
                    self.processes[waiting].main_thread.gil = Some(meanwhile);
                }
            }
        }
    }
}
