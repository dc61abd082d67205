//! Maps the starts and ends of a timeline to nodes of the network.

use super::ReplayJob;
use super::network::{EdgeIndex, LIMIT_NS, NetworkBuilder, NetworkNodeId, TieOrder};
use crate::gpu::calls::CallEffect;
use crate::gpu::timeline::{Call, CallIndex, Op, OpIndex, StreamIndex, Timeline};
use crate::spans::index::Index;
use crate::time::timestamp;
use gctrace_event::GpuOpKind;
use std::collections::HashMap;

/// Nodes of one timeline, and its threads' calls in order.
#[derive(Debug)]
pub(super) struct ReplayLayout {
    /// Add to a time of the timeline to get the network's clock.
    shift: i128,
    /// Nanoseconds from the timeline's clock to the job's.
    offset_ns: i64,
    /// The node before everything else; the calls' nodes follow, then the operations'.
    pub(super) origin: NetworkNodeId,
    /// Measured starts and ends, on the clock of the timeline.
    pub(super) calls: Vec<(u64, u64)>,
    pub(super) ops: Vec<(u64, u64)>,
    /// The calls of each thread.
    pub(super) chains: Vec<CallChain>,
    /// Per thread: time between two calls after which it was quiet for unusually long.
    pub(super) quiet_ns: Vec<u64>,
    /// Per operation: its stream.
    streams: Vec<StreamIndex>,
    /// Per stream: its device; `None` if unknown.
    devices: Vec<Option<u32>>,
    /// The functions of the host among the operations, in order.
    functions: Vec<OpIndex>,
    /// Per operation: whether it is a member of a collective.
    pub(super) meets: Vec<bool>,
    /// Typical time of launches of each kind of operation on a free stream, in ns.
    pub(super) launch_ns: ByKind<i64>,
    /// Launch calls that themselves took long, with that time: the first use of a kernel.
    pub(super) loading: HashMap<CallIndex, i64>,
}

/// One of each kind of operation.
pub(super) type ByKind<T> = [T; GpuOpKind::ALL.len()];

/// The calls of one thread in order.
#[derive(Debug, Default)]
pub(super) struct CallChain {
    pub(super) calls: Vec<CallIndex>,
    /// Per call: the edge into its start from the end of the call before on the thread. Empty if it
    /// only polls.
    pub(super) into_start: Vec<EdgeIndex>,
    /// Per call: what handed over to it, if the thread waited for another one. Empty if it only
    /// polls.
    pub(super) hand_overs: Vec<Option<HandOver>>,
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

// There is one per call.
const _: () = assert!(size_of::<Option<HandOver>>() == 8);

impl CallChain {
    /// The call before a place.
    pub(super) fn before(&self, place: usize) -> Option<CallIndex> {
        Some(self.calls[place.checked_sub(1)?])
    }

    /// The hand-over to the call at a place.
    pub(super) fn hand_over(&self, place: usize) -> Option<HandOver> {
        *self.hand_overs.get(place)?
    }
}

/// The functions of the host among the operations.
fn functions(timeline: &Timeline) -> Vec<OpIndex> {
    let ops = Index::enumerate(&timeline.ops);
    ops.filter(|(_, op)| op.kind == GpuOpKind::HostFunction).map(|(at, _)| at).collect()
}

/// The earliest time of anything in the job, on its common clock; 0 if there is nothing.
pub(super) fn base(job: &ReplayJob<'_>) -> i128 {
    let timelines = job.timelines.iter().zip(&job.offsets_ns);
    let firsts = timelines.filter_map(|(timeline, offset_ns)| {
        Some(i128::from(timeline.first_ns()?) + i128::from(*offset_ns))
    });
    firsts.min().unwrap_or_default()
}

impl ReplayLayout {
    /// Makes a node of every start and end.
    pub(super) fn new(
        job: &ReplayJob<'_>,
        at: usize,
        base: i128,
        builder: &mut NetworkBuilder,
    ) -> Self {
        let (timeline, offset_ns) = (job.timelines[at], job.offsets_ns[at]);
        let shift = i128::from(offset_ns) - base;
        let first_ns = timeline.origin_ns();
        let layout = Self {
            shift,
            offset_ns,
            origin: builder.node(on_network(first_ns, shift), TieOrder::Origin),
            calls: timeline.calls.iter().map(Call::span).collect(),
            ops: timeline.ops.iter().map(Op::span).collect(),
            chains: chains(timeline),
            quiet_ns: Vec::new(),
            streams: timeline.ops.iter().map(|op| op.stream).collect(),
            devices: timeline.streams.iter().map(|stream| stream.device).collect(),
            functions: functions(timeline),
            meets: vec![false; timeline.ops.len()],
            launch_ns: [0; GpuOpKind::ALL.len()],
            loading: HashMap::new(),
        };
        for (spans, begin, end) in [
            (&layout.calls, TieOrder::CallBegin, TieOrder::CallEnd),
            (&layout.ops, TieOrder::OpBegin, TieOrder::OpEnd),
        ] {
            for (start_ns, end_ns) in spans {
                debug_assert!(start_ns <= end_ns, "the reader reads starts and lengths");
                builder.node(layout.on_network(*start_ns), begin);
                builder.node(layout.on_network(*end_ns), end);
            }
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
        debug_assert!(call.at() < self.calls.len());
        self.nodes(call.at())
    }

    /// The nodes of an operation's start and end.
    pub(super) fn op(&self, op: OpIndex) -> (NetworkNodeId, NetworkNodeId) {
        debug_assert!(op.at() < self.ops.len());
        self.nodes(self.calls.len() + op.at())
    }

    fn nodes(&self, place: usize) -> (NetworkNodeId, NetworkNodeId) {
        let start = self.origin.at() + 1 + 2 * place;
        (Index::new(start), Index::new(start + 1))
    }

    /// How long a launch call itself took beyond others, in ns; 0 if it returned soon.
    pub(super) fn loading_ns(&self, call: CallIndex) -> i64 {
        gctrace_units::met(self.loading.get(&call))
    }

    /// Start and end of a call on the clock of the timeline.
    pub(super) fn call_span(&self, call: CallIndex) -> (u64, u64) {
        self.calls[call.at()]
    }

    /// Start and end of an operation on the clock of the timeline.
    pub(super) fn op_span(&self, op: OpIndex) -> (u64, u64) {
        self.ops[op.at()]
    }

    /// The device that an operation keeps busy; `None` if unknown, and of a function of the host.
    pub(super) fn device(&self, op: OpIndex) -> Option<u32> {
        if self.functions.binary_search(&op).is_ok() {
            return None;
        }
        self.devices[self.streams[op.at()].at()]
    }

    /// All operations in order.
    pub(super) fn all_ops(&self) -> impl Iterator<Item = OpIndex> + use<> {
        (0..self.ops.len()).map(OpIndex::new)
    }

    /// The operations of each stream in order.
    pub(super) fn ops_by_stream(&self) -> Vec<Vec<OpIndex>> {
        let mut streams = vec![Vec::new(); self.devices.len()];
        for op in self.all_ops() {
            streams[self.streams[op.at()].at()].push(op);
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
    chains
}
