//! What the main thread of one process did: it executed something, or was off the CPU for something.

use super::meanwhile::Meanwhile;
use super::stacks::{MovedNodes, NodeId, StackTree};
use crate::report::{CpuLine, Location, MainThreadReport, OffCpuLine};
use crate::time::add_to;
use gctrace_event::{CpuSamples, OffCpu, OffCpuReason};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Places kept; what comes later counts as of an unknown line.
const KEPT: usize = 100_000;
/// Lines in a report.
pub(super) const LISTED: usize = 20;

/// What is waited for: the kernel's reason, and whether it is for data.
type WaitReason = (OffCpuReason, bool);

/// Times off the CPU by reason and stack: how many, and how long together in ns.
#[derive(Clone, Debug, Default)]
pub(super) struct OffCpuPlaces(BTreeMap<(WaitReason, Option<NodeId>), (u64, u64)>);

impl OffCpuPlaces {
    pub(super) fn add(&mut self, reason: WaitReason, node: Option<NodeId>, times: u64, ns: u64) {
        let known = self.0.contains_key(&(reason, node));
        let node = node.filter(|_| known || self.0.len() < KEPT);
        let (count, sum_ns) = self.0.entry((reason, node)).or_default();
        add_to(count, times);
        add_to(sum_ns, ns);
    }

    pub(super) fn renumber(&mut self, places: &MovedNodes) {
        for ((reason, node), (times, ns)) in std::mem::take(&mut self.0) {
            self.add(reason, node.and_then(|node| places.of(node)), times, ns);
        }
    }

    pub(super) fn sum_ns(&self) -> u64 {
        crate::time::sum(self.0.values().map(|(_, ns)| *ns))
    }

    /// The longest, by reason and line.
    pub(super) fn lines(&self, tree: &StackTree) -> Vec<OffCpuLine> {
        let mut lines: BTreeMap<(WaitReason, Option<&Location>), (u64, u64)> = BTreeMap::new();
        for ((reason, node), (times, ns)) in &self.0 {
            let line = node.map(|node| tree.own_or_innermost_line(node));
            let (count, sum_ns) = lines.entry((*reason, line)).or_default();
            add_to(count, *times);
            add_to(sum_ns, *ns);
        }
        let lines = lines.into_iter().map(|(((reason, for_data), line), (times, time_ns))| {
            OffCpuLine { reason, for_data, line: line.cloned(), times, time_ns }
        });
        let mut lines: Vec<OffCpuLine> = lines.collect();
        lines.sort_by_key(|line| Reverse(line.time_ns));
        lines.truncate(LISTED);
        lines
    }
}

/// Sums over the main thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct MainThread {
    samples: u64,
    /// Those in collections; the rest is in `by_stack`.
    samples_in_pauses: u64,
    by_stack: BTreeMap<Option<NodeId>, u64>,
    /// Outside of collections.
    off_cpu: OffCpuPlaces,
    off_cpu_in_pauses_ns: u64,
    /// What other threads did while it waited for the GIL; `None` if it did not.
    pub(crate) gil: Option<Meanwhile>,
    /// What its child processes did while it waited for data; `None` if it did not.
    pub(crate) workers: Option<Meanwhile>,
}

impl MainThread {
    pub(crate) fn add_samples(&mut self, samples: &CpuSamples, node: Option<NodeId>) {
        add_to(&mut self.samples, samples.count);
        if samples.in_pause {
            return add_to(&mut self.samples_in_pauses, samples.count);
        }
        let fits = self.by_stack.len() < KEPT || self.by_stack.contains_key(&node);
        let node = node.filter(|_| fits);
        add_to(self.by_stack.entry(node).or_default(), samples.count);
    }

    pub(crate) fn add_off_cpu(&mut self, off: &OffCpu, node: Option<NodeId>, for_data: bool) {
        let ns = crate::time::sum(off.times.iter().map(|(_, ns)| *ns));
        if off.in_pause {
            return add_to(&mut self.off_cpu_in_pauses_ns, ns);
        }
        self.off_cpu.add((off.reason, for_data), node, off.times.len() as u64, ns);
    }

    /// Names the stacks as in a tree that their own was added to.
    pub(crate) fn renumber(&mut self, places: &MovedNodes) {
        for (node, samples) in std::mem::take(&mut self.by_stack) {
            let node = node.and_then(|node| places.of(node));
            add_to(self.by_stack.entry(node).or_default(), samples);
        }
        self.off_cpu.renumber(places);
        for meanwhile in self.gil.iter_mut().chain(&mut self.workers) {
            meanwhile.renumber(places);
        }
    }

    /// `None` without times off the CPU: then nothing but samples is known.
    pub(crate) fn report(&self, tree: &StackTree, hertz: u64) -> Option<MainThreadReport> {
        let off_cpu_ns = self.off_cpu.sum_ns();
        if off_cpu_ns == 0 {
            return None;
        }
        let mut by_line: BTreeMap<Option<&Location>, u64> = BTreeMap::new();
        for (node, samples) in &self.by_stack {
            let line = node.map(|node| tree.own_or_innermost_line(node));
            add_to(by_line.entry(line).or_default(), *samples);
        }
        let lines = by_line.into_iter();
        let lines = lines.map(|(line, samples)| CpuLine { line: line.cloned(), samples });
        let mut lines: Vec<CpuLine> = lines.collect();
        lines.sort_by_key(|line| Reverse(line.samples));
        lines.truncate(LISTED);
        Some(MainThreadReport {
            samples: self.samples,
            samples_in_pauses: self.samples_in_pauses,
            lines,
            off_cpu_ns,
            off_cpu_in_pauses_ns: self.off_cpu_in_pauses_ns,
            off_cpu: self.off_cpu.lines(tree),
            gil: self.gil.as_ref().and_then(|gil| gil.report(tree, hertz)),
            workers: self.workers.as_ref().and_then(|workers| workers.report(tree, hertz)),
        })
    }
}

/// Whether a thread with these frames, innermost first, waits for what another thread or process makes:
/// in PyTorch's DataLoader, or in a queue, pipe, pool or future of the standard library.
pub(crate) fn is_for_data<'a>(
    reason: OffCpuReason,
    mut frames: impl Iterator<Item = &'a Location>,
) -> bool {
    const WAITS: [(&str, &[&str]); 6] = [
        ("torch/utils/data/dataloader.py", &[]),
        ("/queue.py", &["get"]),
        ("multiprocessing/queues.py", &["get"]),
        ("multiprocessing/pool.py", &["get", "next", "wait"]),
        ("multiprocessing/connection.py", &["recv", "recv_bytes", "poll", "wait"]),
        ("concurrent/futures/_base.py", &["result"]),
    ];
    let may_be = matches!(reason, OffCpuReason::Lock | OffCpuReason::Poll | OffCpuReason::Pipe);
    may_be
        && frames.any(|frame| {
            let function = frame.function.rsplit('.').next().unwrap_or_default();
            let of = |(file, functions): &(&str, &[&str])| {
                frame.file.ends_with(file)
                    && (functions.is_empty() || functions.contains(&function))
            };
            WAITS.iter().any(of)
        })
}
