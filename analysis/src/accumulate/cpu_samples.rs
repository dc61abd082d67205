//! What the threads of one process executed, by samples.

use super::stacks::{MovedNodes, NodeId, StackTree};
use crate::report::{CpuFile, CpuLine, CpuReport, Location};
use crate::time::add_to;
use gctrace_event::CpuSamples;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Stacks, files and threads kept; samples of others count as unknown, or in the totals alone.
const KEPT: usize = 100_000;
/// Lines and files in a report.
const LISTED: usize = 20;

/// Sums of samples.
#[derive(Clone, Debug, Default)]
pub(crate) struct CpuSums {
    samples: u64,
    in_pauses: u64,
    by_stack: BTreeMap<Option<NodeId>, u64>,
    by_file: BTreeMap<Option<String>, u64>,
    by_thread: BTreeMap<u32, u64>,
}

impl CpuSums {
    /// Adds samples; `node`: their stack, if it is known.
    pub(crate) fn add(&mut self, samples: &CpuSamples, node: Option<NodeId>) {
        add_to(&mut self.samples, samples.count);
        if samples.in_pause {
            add_to(&mut self.in_pauses, samples.count);
        }
        count(&mut self.by_stack, node, samples.count);
        count(&mut self.by_file, samples.file.clone(), samples.count);
        if self.by_thread.len() < KEPT || self.by_thread.contains_key(&samples.tid) {
            add_to(self.by_thread.entry(samples.tid).or_default(), samples.count);
        }
    }

    /// Whether there are none with a Python frame.
    pub(crate) fn is_empty(&self) -> bool {
        self.stacks().next().is_none()
    }

    /// Samples by stack, of those with one.
    pub(crate) fn stacks(&self) -> impl Iterator<Item = (NodeId, u64)> + use<'_> {
        self.by_stack.iter().filter_map(|(node, samples)| Some(((*node)?, *samples)))
    }

    /// Names the stacks as in a tree that their own was added to.
    pub(crate) fn renumber(&mut self, places: &MovedNodes) {
        for (node, samples) in std::mem::take(&mut self.by_stack) {
            let node = node.and_then(|node| places.of(node));
            add_to(self.by_stack.entry(node).or_default(), samples);
        }
    }

    /// Lines and files with the most samples of this process of this trace, `hertz` a second; `None` of a trace
    /// without a rate.
    pub(crate) fn report(
        &self,
        (trace, pid): (usize, u32),
        observed_ns: u64,
        tree: &StackTree,
        hertz: u32,
    ) -> Option<CpuReport> {
        let hertz = u64::from(hertz);
        if hertz == 0 {
            return None;
        }
        let mut by_line: BTreeMap<Option<&Location>, u64> = BTreeMap::new();
        for (node, samples) in &self.by_stack {
            let line = node.map(|node| tree.own_or_innermost_line(node));
            add_to(by_line.entry(line).or_default(), *samples);
        }
        let mut lines: Vec<CpuLine> = by_line
            .into_iter()
            .map(|(line, samples)| CpuLine { line: line.cloned(), samples })
            .collect();
        lines.sort_by_key(|line| Reverse(line.samples));
        lines.truncate(LISTED);
        let mut files: Vec<CpuFile> = self
            .by_file
            .iter()
            .map(|(file, samples)| CpuFile { file: file.clone(), samples: *samples })
            .collect();
        files.sort_by_key(|file| Reverse(file.samples));
        files.truncate(LISTED);
        Some(CpuReport {
            trace,
            pid,
            observed_ns,
            hertz,
            samples: self.samples,
            in_pauses: self.in_pauses,
            threads: self.by_thread.len() as u64,
            busiest_thread: self.by_thread.values().copied().max().unwrap_or(0),
            lines,
            files,
            main_thread: None,
        })
    }
}

/// Adds to the samples of a key, or to those of an unknown one if there are too many.
fn count<K: Ord + Default>(sums: &mut BTreeMap<K, u64>, key: K, samples: u64) {
    let fits = sums.len() < KEPT || sums.contains_key(&key);
    add_to(sums.entry(if fits { key } else { K::default() }).or_default(), samples);
}
