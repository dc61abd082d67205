//! Maps the starts and ends of a timeline to nodes of the network.

use super::ReplayJob;
use super::network::{EdgeIndex, LIMIT_NS, NetworkBuilder, NetworkNodeId, TieOrder};
use crate::gpu::calls::CallEffect;
use crate::gpu::timeline::{Call, CallIndex, Op, OpIndex, Timeline};
use crate::spans::index::Index;
use crate::time::timestamp;
use gctrace_event::GpuOpKind;
use std::collections::{BTreeMap, HashMap};

/// Nodes of one timeline, and its threads' calls in order.
#[derive(Debug)]
pub(super) struct ReplayLayout<'a> {
    timeline: &'a Timeline,
    /// Add to a time of the timeline to get the network's clock.
    shift: i128,
    /// Nanoseconds from the timeline's clock to the job's.
    offset_ns: i64,
    /// The node before everything else; the calls' nodes follow, then the operations'.
    pub(super) origin: NetworkNodeId,
    /// The calls of each thread.
    pub(super) chains: Vec<CallChain>,
    /// Per thread: time between two calls after which it was quiet for unusually long.
    pub(super) quiet_ns: Vec<u64>,
    /// Per operation: whether it is a member of a collective.
    pub(super) meets: Vec<bool>,
    /// Typical time of launches of each kind of operation on a free stream, in ns.
    pub(super) launch_ns: ByKind<i64>,
    /// Launch calls that themselves took long, with that time: the first use of a kernel.
    pub(super) loading: HashMap<CallIndex, i64>,
}

/// A node, by what it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeKind {
    CallStart(CallIndex),
    CallEnd(CallIndex),
    OpStart(OpIndex),
    OpEnd(OpIndex),
    /// The origin, or where ranks meet.
    Other,
}

/// One of each kind of operation.
pub(super) type ByKind<T> = [T; GpuOpKind::ALL.len()];

/// The calls of one thread in order.
#[derive(Debug, Default)]
pub(super) struct CallChain {
    pub(super) calls: Vec<CallIndex>,
    /// The first of the edges into the start of each call from the end of the call before on the
    /// thread, one after the other. `None` if it only polls.
    pub(super) first_edge: Option<EdgeIndex>,
    /// By place of a call for which the thread waited for another one: what handed over to it. Empty
    /// if it only polls.
    pub(super) hand_overs: BTreeMap<usize, HandOver>,
    /// Whether it only polls events: its calls are unrelated to work and stay where they are.
    pub(super) polls: bool,
    /// Whether it runs Python, so that it needs the GIL.
    pub(super) python: bool,
}

/// The end of another thread's call that a call waited for.
#[derive(Debug, Clone, Copy)]
pub(super) struct HandOver {
    pub(super) source: CallIndex,
    /// From the end of the source to the start of the call.
    pub(super) edge: EdgeIndex,
}

impl CallChain {
    /// The call before a place.
    pub(super) fn before(&self, place: usize) -> Option<CallIndex> {
        Some(self.calls[place.checked_sub(1)?])
    }

    /// The edge into the start of the call at a place, from the end of the call before.
    pub(super) fn edge_before(&self, place: usize) -> Option<EdgeIndex> {
        let first = self.first_edge.filter(|_| place < self.calls.len())?;
        Some(EdgeIndex::new(first.at() + place))
    }

    /// The hand-over to the call at a place.
    pub(super) fn hand_over(&self, place: usize) -> Option<HandOver> {
        self.hand_overs.get(&place).copied()
    }
}

/// The earliest time of anything in the job, on its common clock; 0 if there is nothing.
pub(super) fn base(job: &ReplayJob<'_>) -> i128 {
    let timelines = job.timelines.iter().zip(&job.offsets_ns);
    let firsts = timelines.filter_map(|(timeline, offset_ns)| {
        Some(i128::from(timeline.first_ns()?) + i128::from(*offset_ns))
    });
    firsts.min().unwrap_or_default()
}

impl<'a> ReplayLayout<'a> {
    /// Makes a node of every start and end.
    pub(super) fn new(
        job: &ReplayJob<'a>,
        at: usize,
        base: i128,
        builder: &mut NetworkBuilder,
    ) -> Self {
        let (timeline, offset_ns) = (job.timelines[at], job.offsets_ns[at]);
        let shift = i128::from(offset_ns) - base;
        let first_ns = timeline.origin_ns();
        let layout = Self {
            timeline,
            shift,
            offset_ns,
            origin: builder.node(on_network(first_ns, shift), TieOrder::Origin),
            chains: chains(timeline),
            quiet_ns: Vec::new(),
            meets: vec![false; timeline.ops.len()],
            launch_ns: [0; GpuOpKind::ALL.len()],
            loading: HashMap::new(),
        };
        builder.reserve(2 * (timeline.calls.len() + timeline.ops.len()));
        let calls = timeline.calls.iter().map(Call::span);
        let calls = calls.map(|span| (span, TieOrder::CallBegin, TieOrder::CallEnd));
        let ops = timeline.ops.iter().map(Op::span);
        let ops = ops.map(|span| (span, TieOrder::OpBegin, TieOrder::OpEnd));
        for ((start_ns, end_ns), begin, end) in calls.chain(ops) {
            debug_assert!(start_ns <= end_ns, "the reader reads starts and lengths");
            builder.node(layout.on_network(start_ns), begin);
            builder.node(layout.on_network(end_ns), end);
        }
        layout
    }

    /// A time of the timeline on the network's clock.
    pub(super) fn on_network(&self, at_ns: u64) -> i64 {
        on_network(at_ns, self.shift)
    }

    /// A time of the network on the job's common clock.
    pub(super) fn on_clock(&self, time_ns: i64) -> u64 {
        timestamp(i128::from(time_ns) + i128::from(self.offset_ns) - self.shift)
    }

    /// A measured time of the timeline, later by `by_ns`, on the clock of the job.
    pub(super) fn moved(&self, at_ns: u64, by_ns: i64) -> u64 {
        timestamp(i128::from(at_ns) + i128::from(self.offset_ns) + i128::from(by_ns))
    }

    /// The nodes of a call's start and end.
    pub(super) fn call(&self, call: CallIndex) -> (NetworkNodeId, NetworkNodeId) {
        debug_assert!(call.at() < self.timeline.calls.len());
        self.nodes(call.at())
    }

    /// The nodes of an operation's start and end.
    pub(super) fn op(&self, op: OpIndex) -> (NetworkNodeId, NetworkNodeId) {
        debug_assert!(op.at() < self.timeline.ops.len());
        self.nodes(self.timeline.calls.len() + op.at())
    }

    fn nodes(&self, place: usize) -> (NetworkNodeId, NetworkNodeId) {
        let start = self.origin.at() + 1 + 2 * place;
        (Index::new(start), Index::new(start + 1))
    }

    /// The start or the end that a node is of.
    pub(super) fn kind(&self, node: NetworkNodeId) -> NodeKind {
        let Some(after) = node.at().checked_sub(self.origin.at() + 1) else {
            return NodeKind::Other;
        };
        let (place, is_end) = (after / 2, after % 2 == 1);
        match place.checked_sub(self.timeline.calls.len()) {
            None if is_end => NodeKind::CallEnd(Index::new(place)),
            None => NodeKind::CallStart(Index::new(place)),
            Some(op) if op >= self.timeline.ops.len() => NodeKind::Other,
            Some(op) if is_end => NodeKind::OpEnd(Index::new(op)),
            Some(op) => NodeKind::OpStart(Index::new(op)),
        }
    }

    /// How long a launch call itself took beyond others, in ns; 0 if it returned soon.
    pub(super) fn loading_ns(&self, call: CallIndex) -> i64 {
        gctrace_units::met(self.loading.get(&call))
    }

    /// Start and end of a call on the clock of the timeline.
    pub(super) fn call_span(&self, call: CallIndex) -> (u64, u64) {
        self.timeline.calls[call].span()
    }

    /// Start and end of an operation on the clock of the timeline.
    pub(super) fn op_span(&self, op: OpIndex) -> (u64, u64) {
        self.timeline.ops[op].span()
    }

    /// The device that an operation keeps busy; `None` if unknown, and of a function of the host.
    pub(super) fn device(&self, op: OpIndex) -> Option<u32> {
        let op = &self.timeline.ops[op];
        if op.kind == GpuOpKind::HostFunction { None } else { self.timeline.device(op) }
    }

    /// All operations in order.
    pub(super) fn all_ops(&self) -> impl Iterator<Item = OpIndex> + use<> {
        OpIndex::all(&self.timeline.ops)
    }

    /// The operations of each stream in order.
    pub(super) fn ops_by_stream(&self) -> Vec<Vec<OpIndex>> {
        let mut streams = vec![Vec::new(); self.timeline.streams.len()];
        for op in self.all_ops() {
            streams[self.timeline.ops[op].stream.at()].push(op);
        }
        streams
    }

    /// All calls of threads that do more than poll.
    pub(super) fn working_calls(&self) -> impl Iterator<Item = CallIndex> {
        let working = self.chains.iter().filter(|chain| !chain.polls);
        working.flat_map(|chain| &chain.calls).copied()
    }

    /// Index in the chain of the first call of a thread that starts at or after a time.
    pub(super) fn first_from(&self, chain: &CallChain, at_ns: u64) -> usize {
        let before = |call: &CallIndex| self.call_span(*call).0 < at_ns;
        chain.calls.partition_point(before)
    }
}

fn on_network(at_ns: u64, shift: i128) -> i64 {
    let limit = i128::from(LIMIT_NS);
    (i128::from(at_ns) + shift).clamp(-limit, limit) as i64
}

fn chains(timeline: &Timeline) -> Vec<CallChain> {
    debug_assert!(timeline.calls.is_sorted_by_key(|call| call.start_ns));
    let threads = Index::enumerate(&timeline.threads);
    let chains = threads.map(|(index, thread)| CallChain {
        polls: true,
        python: thread.tid == timeline.pid
            || timeline.namespace_pid == Some(thread.tid)
            || timeline.pauses.iter().any(|pause| pause.thread == index)
            || timeline.steps.iter().any(|step| step.thread == index),
        ..CallChain::default()
    });
    let mut chains: Vec<CallChain> = chains.collect();
    for (index, call) in Index::enumerate(&timeline.calls) {
        let chain = &mut chains[call.thread.at()];
        chain.calls.push(index);
        chain.polls &= call.kind == CallEffect::Query;
    }
    chains.iter_mut().for_each(|chain| chain.calls.shrink_to_fit());
    chains
}
