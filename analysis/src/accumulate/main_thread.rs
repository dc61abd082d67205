//! What the main thread of one process did: it executed something, or was off the CPU for something.

use super::meanwhile::Meanwhile;
use super::off_cpu::{KEPT, LISTED, OffCpuPlaces};
use super::stacks::{MovedNodes, NodeId, StackTree};
use crate::report::{CpuLine, Location, MainThreadReport};
use crate::time::add_to;
use gctrace_event::{CpuSamples, OffCpu};
use std::cmp::Reverse;
use std::collections::BTreeMap;

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
