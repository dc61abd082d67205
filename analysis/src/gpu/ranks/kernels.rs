//! The NCCL kernels of a timeline: the collective of each, as far as one rank shows it.
//!
//! Knows the names that NCCL and PyTorch use; nothing about other ranks.

use crate::gpu::calls::CallEffect;
use crate::gpu::timeline::{
    Communicator, NameIndex, Op, OpIndex, StreamIndex, StringTable, ThreadIndex, Timeline,
    TransferPeer,
};
use crate::spans::index::{Index, SmallNumber};
use crate::time::signed;
use gctrace_event::GpuOpKind;
use std::collections::HashMap;

/// Prefix of PyTorch's annotations around NCCL calls: `nccl:all_reduce`.
pub(super) const ANNOTATION: &str = "nccl:";

/// Prefix of the names of NCCL's kernels: `ncclDevKernel_AllReduce_Sum_f32_RING_LL`.
pub(super) const KERNEL: &str = "nccl";

/// Number of annotations before a call that are considered; PyTorch nests two (`nccl:coalesced`
/// around `nccl:all_reduce`).
const NESTED_ANNOTATIONS: usize = 4;

/// A kernel of a collective, on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CollectiveKernel {
    /// The operation of the timeline.
    pub(super) op: OpIndex,
    /// Start on the timeline's clock.
    pub(super) start_ns: i64,
    /// End on the timeline's clock.
    pub(super) end_ns: i64,
    /// The operation of the collective.
    pub(super) label: CollectiveLabel,
    /// Kernels of one chain run one after the other for one communicator.
    pub(super) chain: usize,
    /// The communicator, if the profiler recorded it.
    pub(super) group: Option<NameIndex>,
    /// Sequence number and communicator, if the profiler recorded them.
    pub(super) key: Option<CollectiveKey>,
}

/// The operation of a collective: the same on all its ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CollectiveLabel {
    /// Name of its kernel.
    pub(super) name: NameIndex,
    /// The operation that the program called; `None` if its launch was not recorded.
    pub(super) operation: Option<NameIndex>,
}

impl CollectiveLabel {
    /// Whether both can belong to one collective.
    pub(super) fn agrees(self, other: Self) -> bool {
        let is_unknown = self.operation.is_none() || other.operation.is_none();
        self.name == other.name && (is_unknown || self.operation == other.operation)
    }
}

/// Names a collective in all ranks, as the profiler does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CollectiveKey {
    group: NameIndex,
    sequence: SmallNumber,
    name: NameIndex,
    /// Index among the kernels with equal other fields.
    nth: u32,
}

/// A kernel that sends to or receives from one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TransferKernel {
    /// The operation of the timeline.
    pub(super) op: OpIndex,
    /// Start on the timeline's clock.
    pub(super) start_ns: i64,
    /// End on the timeline's clock.
    pub(super) end_ns: i64,
    /// The two ranks; `None` if unknown.
    pub(super) channel: Option<TransferChannel>,
    /// Whether it sends.
    pub(super) sends: bool,
}

/// The sending and the receiving rank: kernels of one channel run in the same order on both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TransferChannel {
    group: Option<NameIndex>,
    from: u32,
    to: u32,
}

/// All kernels of NCCL of one timeline.
#[derive(Clone, Debug, Default)]
pub(super) struct CollectiveKernels {
    /// Kernels of collectives, by end.
    pub(super) collective: Vec<CollectiveKernel>,
    /// Kernels that send to or receive from single ranks, by start.
    pub(super) transfers: Vec<TransferKernel>,
    /// Number of chains of kernels.
    pub(super) chains: usize,
}

impl CollectiveKernels {
    /// The kernels of a timeline. `names` is common to all timelines.
    pub(super) fn of(timeline: &Timeline, names: &mut StringTable) -> Self {
        let annotations = CollectiveAnnotations::of(timeline);
        let mut is_nccl: HashMap<NameIndex, bool> = HashMap::new();
        let mut chains: HashMap<(Option<NameIndex>, Option<StreamIndex>), usize> = HashMap::new();
        let mut seen: HashMap<CollectiveKey, u32> = HashMap::new();
        let mut kernels = Self::default();
        for (at, op) in Index::enumerate(&timeline.ops) {
            let known = is_nccl.entry(op.name);
            let is_nccl = *known.or_insert_with(|| timeline.op_name(op).starts_with(KERNEL));
            if op.kind != GpuOpKind::Kernel || !is_nccl {
                continue;
            }
            let name = timeline.op_name(op);
            let operation = operation(timeline, &annotations, op);
            let known = op.group.map(|group| Communicator::parse(timeline.names.text(group)));
            let group = known.map(|known| names.intern(known.identity));
            if is_point_to_point(operation.as_deref(), name) {
                let peer = known.and_then(|known| known.peer);
                let peer = transfer(timeline, &annotations, op, group, peer);
                kernels.transfers.push(TransferKernel {
                    op: at,
                    start_ns: signed(op.start_ns),
                    end_ns: signed(op.end_ns),
                    channel: peer.map(|(_, channel)| channel),
                    sends: matches!(peer, Some((true, _))),
                });
                continue;
            }
            let chain = (group, if group.is_none() { Some(op.stream) } else { None });
            let next = chains.len();
            let label = CollectiveLabel {
                name: names.intern(name),
                operation: operation.map(|operation| names.intern(&operation)),
            };
            kernels.collective.push(CollectiveKernel {
                op: at,
                start_ns: signed(op.start_ns),
                end_ns: signed(op.end_ns),
                label,
                chain: *chains.entry(chain).or_insert(next),
                group,
                key: key(op, group, label.name, &mut seen),
            });
        }
        kernels.chains = chains.len();
        kernels.collective.sort_by_key(|kernel| kernel.end_ns);
        kernels
    }
}

impl CollectiveKernels {
    /// Indices of the kernels without a key, by chain.
    pub(super) fn by_chain(&self) -> Vec<Vec<usize>> {
        let mut chains = vec![Vec::new(); self.chains];
        for (at, kernel) in self.collective.iter().enumerate() {
            if kernel.key.is_none() {
                chains[kernel.chain].push(at);
            }
        }
        chains
    }
}

fn key(
    op: &Op,
    group: Option<NameIndex>,
    name: NameIndex,
    seen: &mut HashMap<CollectiveKey, u32>,
) -> Option<CollectiveKey> {
    let first = CollectiveKey { group: group?, sequence: op.sequence?, name, nth: 0 };
    let count = seen.entry(first).or_insert(0);
    let key = CollectiveKey { nth: *count, ..first };
    *count += 1;
    Some(key)
}

/// The operation that the program called, in lower case: `allreduce`. From the NCCL call that
/// launched the kernel, or from PyTorch's annotation around the launch.
///
/// The kernel's name is not enough: before version 2.19 NCCL ran operations without a kernel of
/// their own in `ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t` (NCCL 2.17, src/enqueue.cc,
/// `ncclKernelGeneric`).
fn operation(
    timeline: &Timeline,
    annotations: &CollectiveAnnotations<'_>,
    op: &Op,
) -> Option<String> {
    let call = timeline.call(op)?;
    let called = timeline.names.text(call.function).strip_prefix("nccl");
    let asked = match (call.kind, called) {
        (CallEffect::Collective, Some(function)) if !function.starts_with("Group") => function,
        _ => annotations.around(call.thread, call.start_ns)?,
    };
    let word = asked.split_whitespace().next()?;
    Some(word.replace('_', "").to_lowercase())
}

fn is_point_to_point(operation: Option<&str>, name: &str) -> bool {
    match operation {
        Some("coalesced") | None => name.contains("SendRecv"),
        Some(operation) => operation.starts_with("send") || operation.starts_with("recv"),
    }
}

/// Whether a kernel sends, and its channel; `None` if the trace does not state its peer. `peer`: as
/// the profiler recorded it.
///
/// Otherwise PyTorch's annotation names both as ranks of their communicator: `nccl:send 0->1`,
/// `nccl:recv 1<-0` (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp). If the communicator is
/// unknown, that is used only where it is the rank of the job.
fn transfer(
    timeline: &Timeline,
    annotations: &CollectiveAnnotations<'_>,
    op: &Op,
    group: Option<NameIndex>,
    peer: Option<TransferPeer>,
) -> Option<(bool, TransferChannel)> {
    let rank = timeline.rank?;
    let channel = |from, to| TransferChannel { group, from, to };
    match peer {
        Some(TransferPeer::To(to)) => return Some((true, channel(rank, to))),
        Some(TransferPeer::From(from)) => return Some((false, channel(from, rank))),
        None => {}
    }
    let call = timeline.call(op)?;
    let (what, between) = annotations.around(call.thread, call.start_ns)?.split_once(' ')?;
    let sends = what == "send";
    let (caller, other) = between.split_once(if sends { "->" } else { "<-" })?;
    let (caller, other): (u32, u32) = (caller.parse().ok()?, other.parse().ok()?);
    let known = group.is_some() || caller == rank;
    let (from, to) = if sends { (caller, other) } else { (other, caller) };
    if known { Some((sends, channel(from, to))) } else { None }
}

/// Torch's annotations of NCCL, by thread.
struct CollectiveAnnotations<'a> {
    by_thread: HashMap<ThreadIndex, Vec<(u64, u64, &'a str)>>,
}

impl<'a> CollectiveAnnotations<'a> {
    fn of(timeline: &'a Timeline) -> Self {
        let mut by_thread: HashMap<ThreadIndex, Vec<(u64, u64, &str)>> = HashMap::new();
        for span in &timeline.annotations {
            if let Some(name) = timeline.names.text(span.name).strip_prefix(ANNOTATION) {
                let spans = by_thread.entry(span.thread).or_default();
                spans.push((span.start_ns, span.end_ns, name));
            }
        }
        Self { by_thread }
    }

    /// The innermost around a time of a thread.
    fn around(&self, thread: ThreadIndex, at_ns: u64) -> Option<&'a str> {
        let spans = self.by_thread.get(&thread)?;
        let begun = spans.partition_point(|(start_ns, ..)| *start_ns <= at_ns);
        let mut begun = spans.iter().take(begun).rev().take(NESTED_ANNOTATIONS);
        let (.., name) = begun.find(|(_, end_ns, _)| *end_ns >= at_ns)?;
        Some(name)
    }
}
