//! What other threads and processes did while a main thread waited for them.

use super::off_cpu::{LISTED, OffCpuPlaces};
use super::stacks::{MovedNodes, NodeId, StackTree};
use crate::report::{Location, MeanwhileLine, MeanwhileReport};
use crate::time::intervals::Intervals;
use crate::time::{add_to, sum};
use gctrace_event::{CpuSamples, OffCpu, OffCpuReason};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A time of a thread: samples at one place, or a time off the CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadSpan {
    pub(crate) tid: u32,
    start_ns: u64,
    end_ns: u64,
    /// Number of samples, or what it waited for.
    did: Did,
    node: Option<NodeId>,
    in_pause: bool,
}

#[derive(Clone, Copy, Debug)]
enum Did {
    Run(u64),
    Wait(OffCpuReason),
}

impl ThreadSpan {
    pub(crate) fn of_samples(samples: &CpuSamples, node: Option<NodeId>) -> Self {
        Self {
            tid: samples.tid,
            start_ns: samples.at_ns,
            // The last sample is at its end.
            end_ns: samples.until_ns.saturating_add(1),
            did: Did::Run(samples.count),
            node,
            in_pause: samples.in_pause,
        }
    }

    pub(crate) fn off_cpu(off: &OffCpu, span: (u64, u64), node: Option<NodeId>) -> Self {
        let (start_ns, end_ns) = span;
        Self {
            tid: off.tid,
            start_ns,
            end_ns,
            did: Did::Wait(off.reason),
            node,
            in_pause: off.in_pause,
        }
    }
}

/// Sums over the child processes, or the other threads of its own, within the times in which a main thread
/// waited.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meanwhile {
    waits: Intervals,
    others: u64,
    /// Samples by stack, of a record that is partly outside its share.
    ran: BTreeMap<Option<NodeId>, f64>,
    ran_in_pauses: f64,
    off_cpu: OffCpuPlaces,
    off_cpu_in_pauses_ns: u64,
}

impl Meanwhile {
    /// Of a process that waited in these intervals, in any order.
    pub(crate) fn of(waits: Vec<(u64, u64)>) -> Self {
        Self { waits: waits.into_iter().collect(), ..Self::default() }
    }

    /// Adds what one of them did.
    pub(crate) fn add<'a>(&mut self, spans: impl IntoIterator<Item = &'a ThreadSpan>) {
        let mut seen = false;
        for span in spans {
            let within_ns = self.waits.length_within(span.start_ns, span.end_ns);
            if within_ns == 0 {
                continue;
            }
            seen = true;
            match span.did {
                Did::Run(samples) => {
                    let part = within_ns as f64 / (span.end_ns - span.start_ns) as f64;
                    let samples = samples as f64 * part;
                    if span.in_pause {
                        self.ran_in_pauses += samples;
                    } else {
                        *self.ran.entry(span.node).or_default() += samples;
                    }
                }
                Did::Wait(_) if span.in_pause => add_to(&mut self.off_cpu_in_pauses_ns, within_ns),
                Did::Wait(reason) => {
                    self.off_cpu.add((reason, false), span.node, 1, within_ns);
                }
            }
        }
        self.others += u64::from(seen);
    }

    pub(super) fn renumber(&mut self, places: &MovedNodes) {
        for (node, samples) in std::mem::take(&mut self.ran) {
            *self.ran.entry(node.and_then(|node| places.of(node))).or_default() += samples;
        }
        self.off_cpu.renumber(places);
    }

    /// `None` if nothing was seen of any.
    pub(super) fn report(&self, tree: &StackTree, hertz: u64) -> Option<MeanwhileReport> {
        if self.others == 0 {
            return None;
        }
        let ns = |samples: f64| (samples * 1e9 / hertz.max(1) as f64) as u64;
        let mut by_line: BTreeMap<Option<&Location>, f64> = BTreeMap::new();
        for (node, samples) in &self.ran {
            let line = node.map(|node| tree.own_or_innermost_line(node));
            *by_line.entry(line).or_default() += samples;
        }
        let lines = by_line.into_iter();
        let lines =
            lines.map(|(line, samples)| MeanwhileLine { line: line.cloned(), cpu_ns: ns(samples) });
        let mut lines: Vec<MeanwhileLine> = lines.collect();
        lines.sort_by_key(|line| Reverse(line.cpu_ns));
        let cpu_ns = sum(lines.iter().map(|line| line.cpu_ns));
        lines.truncate(LISTED);
        Some(MeanwhileReport {
            others: self.others,
            waited_ns: self.waits.length_ns(),
            cpu_ns,
            lines,
            collecting_ns: ns(self.ran_in_pauses).saturating_add(self.off_cpu_in_pauses_ns),
            off_cpu_ns: self.off_cpu.sum_ns(),
            off_cpu: self.off_cpu.lines(tree),
        })
    }
}
