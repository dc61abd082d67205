//! Samples and times off the CPU of threads, within given intervals.

use super::off_cpu::OffCpuPlaces;
use super::spans::{ThreadDid, ThreadSpan};
use crate::figure::Location;
use crate::stacks::{NodeId, StackTree};
use crate::time::add_to;
use std::collections::BTreeMap;

/// Sums of samples and of times off the CPU.
#[derive(Clone, Debug, Default)]
pub(super) struct ThreadActivity {
    /// Samples by stack, outside of collections. A record that is partly in the interval counts in part.
    pub(super) ran: BTreeMap<Option<NodeId>, f64>,
    pub(super) ran_in_pauses: f64,
    /// Outside of collections.
    pub(super) off_cpu: OffCpuPlaces,
    pub(super) off_cpu_in_pauses_ns: u64,
}

impl ThreadActivity {
    /// Adds a span of a thread: its samples, or its time off the CPU.
    pub(super) fn add(&mut self, span: &ThreadSpan, samples: f64, time_ns: u64) {
        match span.did {
            ThreadDid::Run(_) if span.in_pause => self.ran_in_pauses += samples,
            ThreadDid::Run(_) => *self.ran.entry(span.node).or_default() += samples,
            ThreadDid::Wait { .. } if span.in_pause => {
                add_to(&mut self.off_cpu_in_pauses_ns, time_ns);
            }
            ThreadDid::Wait { reason, for_data } => {
                self.off_cpu.add((reason, for_data), span.node, 1, time_ns);
            }
        }
    }

    /// Adds the sums of other threads.
    pub(super) fn merge(&mut self, other: &Self) {
        for (node, samples) in &other.ran {
            *self.ran.entry(*node).or_default() += samples;
        }
        self.ran_in_pauses += other.ran_in_pauses;
        self.off_cpu.merge(&other.off_cpu);
        add_to(&mut self.off_cpu_in_pauses_ns, other.off_cpu_in_pauses_ns);
    }

    /// Samples outside of collections, by line; `None` without a Python stack.
    pub(super) fn lines(&self, tree: &StackTree) -> impl Iterator<Item = (Option<Location>, f64)> {
        let mut lines: BTreeMap<Option<&Location>, f64> = BTreeMap::new();
        for (node, samples) in &self.ran {
            *lines.entry(node.map(|node| tree.own_line(node))).or_default() += samples;
        }
        lines.into_iter().map(|(line, samples)| (line.cloned(), samples))
    }
}
