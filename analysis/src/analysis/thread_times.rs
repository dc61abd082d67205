//! What threads did: samples of the code they executed, and causes of their time off the CPU.

use super::Analysis;
use crate::accumulate::process::ProcessState;
use crate::cpu::main_thread::MainThread;
use crate::cpu::off_cpu::is_for_data;
use crate::cpu::spans::ThreadSpan;
use crate::report::{LoopReport, MainThreadReport, ProcessWaitReport};
use crate::stacks::NodeId;
use crate::turns::LoopContext;
use crate::words::samples::waiting;
use gctrace_event::{CpuSamples, OffCpu, OffCpuReason};
use std::collections::HashMap;

impl Analysis {
    pub(super) fn add_samples(&mut self, samples: &CpuSamples) {
        let node = self.current.frames.known(samples.stack, &mut self.stacks);
        let index = self.index_at(samples.pid, samples.at_ns);
        let process = &mut self.processes[index];
        process.see_at_work(samples.at_ns, samples.until_ns);
        process.cpu.add(samples, node);
        self.current.spans_of_threads.add(index, ThreadSpan::of_samples(samples, node));
        if !samples.in_pause && self.current.gpu.knows_thread(samples.pid, samples.tid) {
            let name = self.code_name(node);
            self.current.gpu.add_samples(samples, name.as_deref().unwrap_or("outside of Python"));
        }
    }

    pub(super) fn add_off_cpu(&mut self, off: &OffCpu) {
        let node = self.current.frames.known(off.stack, &mut self.stacks);
        let for_data = node.is_some_and(|node| is_for_data(off.reason, self.stacks.frames(node)));
        let index = self.index_at(off.pid, off.at_ns);
        let process = &mut self.processes[index];
        process.see_at_work(off.at_ns, off.end_ns());
        process.loops.add_waits(off);
        // Without a length it was not off the CPU.
        for span in off.spans().filter(|(start_ns, end_ns)| start_ns < end_ns) {
            let span = ThreadSpan::off_cpu(off, span, node, for_data);
            // Other threads may idle: their waits count only where the main thread waits for them.
            if off.tid == off.pid {
                self.current.spans_of_threads.add(index, span);
            } else {
                self.current.spans_of_threads.add_other(index, span);
            }
        }
        self.place_in_timeline(off, node, for_data);
    }

    /// Names the cause of the waits of a thread between its CUDA calls.
    fn place_in_timeline(&mut self, off: &OffCpu, node: Option<NodeId>, for_data: bool) {
        if !self.current.gpu.knows_thread(off.pid, off.tid) {
            return;
        }
        let wait = match off.reason {
            _ if for_data => "waiting for data (DataLoader or a queue)".to_owned(),
            OffCpuReason::Disk => "waiting for files on the disk".to_owned(),
            reason => waiting(reason, false),
        };
        let place = self.code_name(node);
        self.current.gpu.add_off_cpu(off, &wait, place.as_deref());
    }

    /// The line of a stack, as the profiler writes the place of a function.
    fn code_name(&self, node: Option<NodeId>) -> Option<String> {
        let line = self.stacks.own_line(node?);
        Some(format!("{}({}): {}", line.file, line.line?, line.function))
    }

    /// The child processes of each, by trace and id.
    pub(crate) fn children(&self) -> HashMap<(usize, u32), Vec<usize>> {
        let mut children: HashMap<_, Vec<usize>> = HashMap::new();
        for (index, process) in self.processes.iter().enumerate() {
            if let Some(parent) = process.sums.parent() {
                children.entry((process.trace, parent)).or_default().push(index);
            }
        }
        children
    }

    /// What the main thread of a process did within an interval, and others, its children too, while it waited for
    /// them; `None` of a trace without times off the CPU.
    pub(crate) fn main_thread(
        &self,
        index: usize,
        children: &[usize],
        hertz: u32,
        within: (u64, u64),
    ) -> Option<MainThreadReport> {
        let process = self.processes.get(index)?;
        let spans = self.thread_spans.get(process.trace)?;
        if !spans.has_waits {
            return None;
        }
        let own = spans.of(index);
        let children = children.iter().map(|child| spans.of(*child));
        let pid = process.sums.pid;
        let main = MainThread::of(&self.stacks, own, pid, within);
        Some(main.report(&self.stacks, hertz.into(), (own, pid), spans.others(index), children))
    }

    /// Waits of processes for collections of others, the longest first.
    pub(crate) fn waits_for_processes(&self) -> Vec<ProcessWaitReport> {
        let mut by_id: HashMap<(usize, u32), &ProcessState> = HashMap::new();
        for process in &self.processes {
            by_id.insert((process.trace, process.sums.pid), process);
        }
        let mut waits: Vec<ProcessWaitReport> = Vec::new();
        for process in &self.processes {
            let id = (process.trace, process.sums.pid);
            let of = |pid| by_id.get(&(process.trace, pid)).map(|other| &other.loops);
            waits.extend(process.loops.waits_for_others(id, of));
        }
        waits.sort_by_key(|wait| std::cmp::Reverse(wait.in_collections_ns));
        waits
    }

    /// The long turns of a loop: start on the clock of its trace, length, and time in collections, in ns, in order of time.
    pub fn long_turns(&self, of: &LoopReport) -> Vec<[u64; 3]> {
        let is_its =
            |process: &&ProcessState| (process.trace, process.sums.pid) == (of.trace, of.pid);
        let process = self.processes.iter().find(is_its);
        if let Some(process) = process { process.loops.long_turns(of) } else { Vec::new() }
    }

    /// The loops of processes, in no order.
    pub(crate) fn loops(&self) -> Vec<LoopReport> {
        let mut loops = Vec::new();
        for (index, process) in self.processes.iter().enumerate() {
            let Some(trace) = self.traces.get(process.trace) else { continue };
            let ended_ns = trace.end.as_ref().map(|end| end.ended_ns);
            let (_, ended_ns, _) = process.observed(ended_ns, trace.last_ns());
            let spans = self.thread_spans.get(process.trace);
            loops.extend(process.loops.reports(&LoopContext {
                trace: process.trace,
                pid: process.sums.pid,
                started_ns: trace.started_ns(),
                ended_ns,
                tree: &self.stacks,
                spans: spans.map_or([&[], &[]], |spans| [spans.of(index), spans.others(index)]),
            }));
        }
        loops
    }
}
