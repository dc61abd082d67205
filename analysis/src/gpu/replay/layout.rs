//! Maps the starts and ends of a timeline to nodes of the network.

use super::ReplayJob;
use super::network::LIMIT_NS;
use super::network::NONE;
use super::network::NetworkBuilder;
use super::network::TieOrder;
use crate::gpu::calls::CallEffect;
use crate::gpu::timeline::Timeline;

/// Nodes of one timeline, and its threads' calls in order.
#[derive(Debug, Default)]
pub(super) struct ReplayLayout {
    /// Add to a time of the timeline to get the network's clock.
    shift: i128,
    /// Nanoseconds from the clock of the timeline to that of the job.
    pub(super) offset_ns: i64,
    first_call: u32,
    first_op: u32,
    /// The node before everything else.
    pub(super) origin: u32,
    /// Measured starts and ends, on the clock of the timeline.
    pub(super) calls: Vec<(u64, u64)>,
    pub(super) ops: Vec<(u64, u64)>,
    /// The calls of each thread.
    pub(super) chains: Vec<CallChain>,
    /// Per thread: from which time between two calls on it was quiet for unusually long.
    pub(super) quiet_ns: Vec<u64>,
    /// Per operation: its device, [`NONE`] where unknown.
    pub(super) devices: Vec<u32>,
    /// Which operations members of a collective are.
    pub(super) meets: Vec<bool>,
}

/// The calls of one thread in order.
#[derive(Debug, Default, Clone)]
pub(super) struct CallChain {
    /// The calls, as indices in the timeline.
    pub(super) calls: Vec<u32>,
    /// Per call: the edge into its start from the end of the call before on the thread.
    pub(super) own: Vec<u32>,
    /// For each call: the edge to its start from another thread's call, [`NONE`] if none.
    pub(super) switch: Vec<u32>,
    /// For each call: index of that other call, [`NONE`] if none.
    pub(super) source: Vec<u32>,
    /// Whether it only polls events: its calls are unrelated to work and stay where they are.
    pub(super) polls: bool,
    /// Whether it runs Python, so that it needs the GIL.
    pub(super) python: bool,
}

/// The earliest time of anything in the job, on its common clock.
pub(super) fn base(job: &ReplayJob<'_>) -> i128 {
    let first = |at: usize, timeline: &Timeline| {
        let ops = timeline.ops.iter().map(|op| op.start_ns);
        let calls = timeline.calls.iter().map(|call| call.start_ns);
        let first = ops.chain(calls).min()?;
        Some(i128::from(first) + i128::from(job.offset_ns(at)))
    };
    let timelines = job.timelines.iter().enumerate();
    let firsts = timelines.filter_map(|(at, timeline)| first(at, timeline));
    firsts.min().unwrap_or(0)
}

impl ReplayLayout {
    /// Makes a node of every start and end.
    pub(super) fn new(
        job: &ReplayJob<'_>,
        at: usize,
        base: i128,
        builder: &mut NetworkBuilder,
    ) -> Self {
        let Some(timeline) = job.timelines.get(at) else {
            return Self::default();
        };
        let offset_ns = job.offset_ns(at);
        let mut layout = Self {
            shift: i128::from(offset_ns) - base,
            offset_ns,
            calls: spans(
                timeline
                    .calls
                    .iter()
                    .map(|call| (call.start_ns, call.end_ns)),
            ),
            ops: spans(timeline.ops.iter().map(|op| (op.start_ns, op.end_ns))),
            chains: chains(timeline),
            devices: timeline
                .ops
                .iter()
                .map(|op| timeline.device(op).unwrap_or(NONE))
                .collect(),
            meets: vec![false; timeline.ops.len()],
            ..Self::default()
        };
        let collectives = job
            .collectives
            .iter()
            .flat_map(|collective| &collective.members);
        for member in collectives.filter(|member| member.timeline as usize == at) {
            if let Some(meets) = layout.meets.get_mut(member.op as usize) {
                *meets = true;
            }
        }
        layout.make_nodes(builder);
        layout
    }

    fn make_nodes(&mut self, builder: &mut NetworkBuilder) {
        let all = self.calls.iter().chain(&self.ops);
        let first = all.map(|(start, _)| *start).min().unwrap_or(0);
        self.origin = builder.node(self.on_network(first), TieOrder::Origin);
        self.first_call = self.origin.saturating_add(1);
        for (start, end) in &self.calls {
            builder.node(self.on_network(*start), TieOrder::CallBegin);
            builder.node(self.on_network(*end), TieOrder::CallEnd);
        }
        let count = u32::try_from(self.calls.len()).unwrap_or(NONE);
        self.first_op = self.first_call.saturating_add(count.saturating_mul(2));
        for (start, end) in &self.ops {
            builder.node(self.on_network(*start), TieOrder::OpBegin);
            builder.node(self.on_network(*end), TieOrder::OpEnd);
        }
    }

    /// A time of the timeline on the network's clock.
    pub(super) fn on_network(&self, at_ns: u64) -> i64 {
        let time = i128::from(at_ns) + self.shift;
        let limit = i128::from(LIMIT_NS);
        i64::try_from(time.clamp(-limit, limit)).unwrap_or(0)
    }

    /// The network's origin on the job's common clock.
    pub(super) fn base(&self) -> i128 {
        i128::from(self.offset_ns) - self.shift
    }

    /// The nodes of a call's start and end.
    pub(super) fn call(&self, call: u32) -> Option<(u32, u32)> {
        self.calls.get(call as usize)?;
        let start = self.first_call + 2 * call;
        Some((start, start + 1))
    }

    /// The nodes of an operation's start and end.
    pub(super) fn op(&self, op: u32) -> Option<(u32, u32)> {
        self.ops.get(op as usize)?;
        let start = self.first_op + 2 * op;
        Some((start, start + 1))
    }

    /// Start and end of a call on the clock of the timeline.
    pub(super) fn call_span(&self, call: u32) -> Option<(u64, u64)> {
        self.calls.get(call as usize).copied()
    }

    /// Start and end of an operation on the clock of the timeline.
    pub(super) fn op_span(&self, op: u32) -> Option<(u64, u64)> {
        self.ops.get(op as usize).copied()
    }
}

/// Ends before their starts are taken as their starts.
fn spans(spans: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    spans.map(|(start, end)| (start, end.max(start))).collect()
}

fn chains(timeline: &Timeline) -> Vec<CallChain> {
    let mut chains = vec![CallChain::default(); timeline.threads.len()];
    let mut works = vec![false; timeline.threads.len()];
    for (index, call) in (0..).zip(&timeline.calls) {
        let thread = call.thread as usize;
        if let (Some(chain), Some(works)) = (chains.get_mut(thread), works.get_mut(thread)) {
            chain.calls.push(index);
            *works |= call.kind != CallEffect::Query;
        }
    }
    for (index, ((chain, works), thread)) in
        (0..).zip(chains.iter_mut().zip(works).zip(&timeline.threads))
    {
        let starts = |call: &u32| timeline.calls.get(*call as usize).map(|call| call.start_ns);
        chain.calls.sort_by_key(starts);
        chain.polls = !works;
        chain.own = vec![NONE; chain.calls.len()];
        chain.switch = vec![NONE; chain.calls.len()];
        chain.source = vec![NONE; chain.calls.len()];
        chain.python = thread.tid == timeline.pid
            || timeline.namespace_pid == Some(thread.tid)
            || timeline.pauses.iter().any(|pause| pause.thread == index)
            || timeline.steps.iter().any(|step| step.thread == index)
    }
    chains
}
