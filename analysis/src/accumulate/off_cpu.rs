//! Times off the CPU by what was waited for, and where.

use super::stacks::{MovedNodes, NodeId, StackTree};
use crate::report::{Location, OffCpuLine};
use crate::time::{add_to, sum};
use gctrace_event::OffCpuReason;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Places kept; what comes later counts as of an unknown line.
pub(super) const KEPT: usize = 100_000;
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
        sum(self.0.values().map(|(_, ns)| *ns))
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
