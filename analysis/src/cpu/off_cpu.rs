//! Times off the CPU by cause of the wait, and place.

use crate::bounded::ranked;
use crate::figure::Location;
use crate::stacks::{NodeId, StackTree};
use crate::time::{add_to, sum};
use gctrace_event::OffCpuReason;
use serde::Serialize;
use std::collections::BTreeMap;

/// Time off the CPU at one Python line.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OffCpuLine {
    /// What the thread waited for, by its system call.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub reason: OffCpuReason,
    /// It waited for another thread or process to make data: in PyTorch's DataLoader, or in a queue, pipe, pool or
    /// future of the standard library.
    pub for_data: bool,
    /// The line; `null`: it has no Python stack, it was preempted, or the stack was not taken, as the
    /// waits were too many.
    pub line: Option<Location>,
    /// Number of times of a millisecond or longer.
    pub times: u64,
    /// Their length together, in ns.
    pub time_ns: u64,
}

/// Lines in a report.
pub(super) const LISTED: usize = 20;

/// Cause of a wait: the kernel's reason, and whether it is for data.
type WaitReason = (OffCpuReason, bool);

/// Times off the CPU by reason and stack: how many, and how long together in ns.
#[derive(Clone, Debug, Default)]
pub(super) struct OffCpuPlaces(BTreeMap<(WaitReason, Option<NodeId>), (u64, u64)>);

impl OffCpuPlaces {
    pub(super) fn add(&mut self, reason: WaitReason, node: Option<NodeId>, times: u64, ns: u64) {
        let (count, sum_ns) = self.0.entry((reason, node)).or_default();
        add_to(count, times);
        add_to(sum_ns, ns);
    }

    pub(super) fn merge(&mut self, others: &Self) {
        for ((reason, node), (times, ns)) in &others.0 {
            self.add(*reason, *node, *times, *ns);
        }
    }

    pub(super) fn sum_ns(&self) -> u64 {
        sum(self.0.values().map(|(_, ns)| *ns))
    }

    /// Times by stack, in ns.
    pub(super) fn by_stack(&self) -> impl Iterator<Item = (Option<NodeId>, u64)> + use<'_> {
        self.0.iter().map(|((_, node), (_, ns))| (*node, *ns))
    }

    /// The longest, by reason and line. For data the awaited object makes no difference: the reason with the longest
    /// time stands for all.
    pub(super) fn lines(&self, tree: &StackTree) -> Vec<OffCpuLine> {
        let parts = ranked(&self.0, usize::MAX, |(_, (_, ns))| *ns);
        let mut lines: BTreeMap<_, OffCpuLine> = BTreeMap::new();
        for (((reason, for_data), node), (times, ns)) in parts {
            let line = node.map(|node| tree.own_line(node));
            let by_reason = if *for_data { None } else { Some(*reason) };
            let of = lines.entry((by_reason, line)).or_insert_with(|| OffCpuLine {
                reason: *reason,
                for_data: *for_data,
                line: line.cloned(),
                times: 0,
                time_ns: 0,
            });
            add_to(&mut of.times, *times);
            add_to(&mut of.time_ns, *ns);
        }
        ranked(lines.into_values(), LISTED, |line| line.time_ns)
    }
}

/// Whether a thread with these frames, innermost first, waits for another thread or process to make data: in
/// PyTorch's DataLoader, or in a queue, pipe, pool or future of the standard library.
pub(crate) fn is_for_data<'a>(
    reason: OffCpuReason,
    frames: impl Iterator<Item = &'a Location>,
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
    // The thread that loads the data waits for something else; a forked worker has the frames of its parent.
    let mut frames =
        frames.take_while(|frame| !is_fetch(frame) && !frame.file.ends_with("/popen_fork.py"));
    may_be
        && frames.any(|frame| {
            let function = frame.function.rsplit('.').next().unwrap_or(&frame.function);
            let of = |(file, functions): &(&str, &[&str])| {
                frame.file.ends_with(file)
                    && (functions.is_empty() || functions.contains(&function))
            };
            WAITS.iter().any(of)
        })
}

/// Whether a thread waiting for a lock with these frames, innermost first, waits for a lock that the program or a
/// library takes. `threading` waits for threads, events and conditions; no thread has these.
pub(super) fn is_own_lock<'a>(mut frames: impl Iterator<Item = &'a Location>) -> bool {
    let Some(innermost) = frames.next() else { return false };
    !innermost.file.ends_with("/threading.py")
}

/// Whether this frame fetches samples of PyTorch's dataset, in a worker or, without any, in the trainer.
pub(super) fn is_fetch(frame: &Location) -> bool {
    frame.file.ends_with("torch/utils/data/_utils/fetch.py")
}
