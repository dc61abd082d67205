//! The delays of a model that each cause is part of: removing a cause takes them off.

use super::IdleLabel;
use super::activity::{HostActivity, HostSegment};
use super::places::CallPlaces;
use super::removals::{CausedDelay, Removals};
use crate::gpu::idle::IdleCause;
use crate::gpu::replay::layout::{CallChain, NodeKind, ReplayLayout};
use crate::gpu::replay::network::{LIMIT_NS, Network, NetworkNodeId, NetworkWait};
use crate::gpu::replay::pauses::AppliedChange;
use crate::gpu::timeline::{Call, CallIndex, NameIndex, Op, OpIndex, ThreadIndex, Timeline};
use crate::spans::index::Index;
use crate::time::{duration_ns, later, signed};
use gctrace_event::GpuOpKind;
use std::collections::HashMap;

/// A call that need not wait takes at most this long: enqueueing a copy or asking for a stream's
/// state takes 1 to 3 µs.
const UNBLOCKED_NS: i64 = 3_000;
/// From the end of a copy to a wait for it by the same function: 1 to 5 µs in PyTorch.
const SAME_FUNCTION_NS: u64 = 20_000;
/// Takes an edge out of the network: no other one can be that early.
pub(super) const CUT_NS: i64 = -4 * LIMIT_NS;

/// Everything that is known of a timeline's delays.
pub(super) struct DelayCauses<'a> {
    pub(super) timeline: &'a Timeline,
    pub(super) layout: &'a ReplayLayout<'a>,
    pub(super) network: &'a Network,
    /// In the network's order.
    pub(super) nodes: Vec<NetworkNodeId>,
    pub(super) activity: &'a HostActivity,
    /// All pauses removed.
    pub(super) pauses: &'a AppliedChange,
    /// The lines that calls were made at, by samples.
    pub(super) lines: CallPlaces,
    /// By the call that started it: the name of the copy.
    pub(super) copied: HashMap<CallIndex, NameIndex>,
    /// Functions of the host without times, by the operation after each.
    pub(super) unseen: HashMap<OpIndex, CallIndex>,
}

impl DelayCauses<'_> {
    /// What the node at a place of the network is.
    pub(super) fn kind(&self, place: usize) -> NodeKind {
        self.layout.kind(self.nodes[place])
    }

    /// All delays with a cause that can be removed.
    pub(super) fn removals(&self) -> Removals {
        let mut removals = Removals::default();
        for (thread, chain) in (0..).map(ThreadIndex::new).zip(&self.layout.chains) {
            if !chain.polls {
                self.of_thread(thread, chain, &mut removals);
            }
        }
        let copies = self.copies_with_wait();
        for (index, call) in Index::enumerate(&self.timeline.calls) {
            if call.timed && !self.layout.chains[call.thread.at()].polls {
                let part_of = copies.get(&index).copied().unwrap_or(index);
                self.of_call(index, part_of, &mut removals);
            }
        }
        for (op, content) in Index::enumerate(&self.timeline.ops) {
            if content.kind == GpuOpKind::HostFunction {
                self.of_function(op, content, &mut removals);
            }
        }
        for (op, call) in
            Index::enumerate(&self.timeline.ops).filter_map(|(at, op)| Some((at, op.call?)))
        {
            let start = self.network.place(self.layout.op(op).0);
            for wait in self.network.waits(start) {
                if self.kind(wait.from) == NodeKind::CallStart(call) {
                    let until_ns = self.timeline.ops[op].start_ns;
                    self.overhead(call, until_ns, &wait, &mut removals);
                    // Of several operations of a call, some may start before it: clocks disagree.
                    let in_launch_ns = self.layout.loading_ns(call).min(wait.delay_ns);
                    if in_launch_ns > 0 {
                        let (cause, label) = (IdleCause::LaunchCall, self.label_of(call));
                        let by_ns = -in_launch_ns;
                        removals.add(CausedDelay { cause, label, edge: wait.edge, by_ns });
                    }
                }
            }
        }
        removals.finish()
    }

    /// The time in a function of the host; its stream waits for it.
    fn of_function(&self, index: OpIndex, op: &Op, removals: &mut Removals) {
        let (start, end) = self.layout.op(index);
        let start = self.network.place(start);
        for wait in self.network.waits(self.network.place(end)) {
            if wait.from == start && wait.delay_ns > 0 {
                let (cause, label) = (IdleCause::HostFunction, self.launch_label(op));
                removals.add(CausedDelay { cause, label, edge: wait.edge, by_ns: -wait.delay_ns });
            }
        }
    }

    /// The call that enqueued an operation, as its place.
    pub(super) fn launch_label(&self, op: &Op) -> IdleLabel {
        if let Some(call) = op.call { self.label_of(call) } else { IdleLabel::default() }
    }

    /// The times between calls.
    fn of_thread(&self, thread: ThreadIndex, chain: &CallChain, removals: &mut Removals) {
        let first_ns = self.timeline.origin_ns();
        for (place, call) in chain.calls.iter().enumerate() {
            let (to_ns, _) = self.layout.call_span(*call);
            let before = chain.before(place);
            let from_ns =
                if let Some(of) = before { self.layout.call_span(of).1 } else { first_ns };
            if let Some(edge) = chain.edge_before(place) {
                let paused_ns = self.paused_ns(edge);
                self.of_gap(
                    thread,
                    (from_ns, to_ns),
                    self.network.edge_place(edge),
                    paused_ns,
                    removals,
                );
            }
            if let Some(hand_over) = chain.hand_over(place) {
                let (_, from_ns) = self.layout.call_span(hand_over.source);
                let (edge, paused_ns) = (hand_over.edge, self.paused_ns(hand_over.edge));
                self.of_gap(
                    thread,
                    (from_ns, to_ns),
                    self.network.edge_place(edge),
                    paused_ns,
                    removals,
                );
            }
        }
    }

    /// The pauses' part of a delay.
    fn paused_ns(&self, edge: crate::gpu::replay::network::EdgeIndex) -> i64 {
        let parts = self.pauses.parts.get(&edge).into_iter().flatten();
        parts.map(|part| part.by_ns).fold(0, later).saturating_neg()
    }

    fn of_gap(
        &self,
        thread: ThreadIndex,
        (from_ns, to_ns): (u64, u64),
        edge: Option<usize>,
        paused_ns: i64,
        removals: &mut Removals,
    ) {
        let Some(edge) = edge else { return };
        let mut left_ns = self.network.delay_at(edge).max(0);
        let mut take = |cause, label, length_ns: i64| {
            let taken_ns = length_ns.clamp(0, left_ns);
            left_ns -= taken_ns;
            if taken_ns > 0 {
                removals.add(CausedDelay { cause, label, edge, by_ns: -taken_ns });
            }
        };
        take(IdleCause::Gc, IdleLabel::default(), paused_ns);
        if from_ns >= to_ns {
            return;
        }
        self.activity.within(thread, from_ns, to_ns, |segment| {
            let HostSegment { start_ns, end_ns, cause, label } = segment;
            if !matches!(cause, IdleCause::Gc | IdleCause::Host) {
                take(cause, label, signed(end_ns - start_ns));
            }
        });
        self.activity.within(thread, from_ns, to_ns, |segment| {
            if segment.cause == IdleCause::Host {
                take(IdleCause::Host, segment.label, signed(segment.end_ns - segment.start_ns));
            }
        });
        // The remainder of a clock's rounding is the host's.
        take(IdleCause::Host, IdleLabel::default(), i64::MAX);
    }

    /// What the profiler did in a call until a time, of a delay from its start on; returns the rest of the
    /// delay.
    fn overhead(
        &self,
        call: CallIndex,
        until_ns: u64,
        wait: &NetworkWait,
        removals: &mut Removals,
    ) -> i64 {
        let mut left_ns = wait.delay_ns;
        let Call { thread, start_ns, .. } = self.timeline.calls[call];
        self.activity.overhead(thread, start_ns, until_ns, |segment| {
            let by_ns = signed(segment.end_ns - segment.start_ns).min(left_ns.max(0));
            left_ns -= by_ns;
            let HostSegment { cause, label, .. } = segment;
            removals.add(CausedDelay { cause, label, edge: wait.edge, by_ns: -by_ns });
        });
        left_ns
    }

    /// Synchronizations right after a blocking copy that wait for nothing else, with the copy. PyTorch waits for
    /// each copy to or from pageable memory although it blocks: without the copy's own wait this one would take as
    /// long. Where the copy did not block, this is its wait.
    fn copies_with_wait(&self) -> HashMap<CallIndex, CallIndex> {
        let copies = Index::enumerate(&self.timeline.ops)
            .filter(|(_, op)| self.timeline.op_name(op).contains("Pageable"));
        let pageable: HashMap<CallIndex, OpIndex> =
            copies.filter_map(|(at, op)| Some((op.call?, at))).collect();
        let pairs = self.layout.chains.iter().flat_map(|chain| chain.calls.windows(2));
        let pairs = pairs.filter_map(|pair| {
            let [before, call] = <[CallIndex; 2]>::try_from(pair).ok()?;
            let (copy, wait) = (&self.timeline.calls[before], &self.timeline.calls[call]);
            let kinds = (copy.kind.idle_cause(), wait.kind.idle_cause());
            let is_pair = copy.timed
                && kinds == (IdleCause::Copy, IdleCause::Synchronization)
                && duration_ns(copy.end_ns, wait.start_ns) <= SAME_FUNCTION_NS;
            if !is_pair {
                return None;
            }
            let (own_end, waited) = (self.end_of(before), self.end_of(call));
            let blocked = if self.waits_for_ops(own_end) { Some(own_end) } else { None };
            let done = pageable.get(&before).map(|op| self.network.place(self.layout.op(*op).1));
            let copied_ns = [blocked, done].into_iter().flatten();
            let copied_ns = copied_ns.map(|at| self.network.measured_at(at)).max()?;
            let had_ended = |end: &NetworkWait| self.network.measured_at(end.from) <= copied_ns;
            if self.ops_of(waited).all(|end| had_ended(&end)) { Some((call, before)) } else { None }
        });
        pairs.collect()
    }

    /// The place of a call's end.
    fn end_of(&self, call: CallIndex) -> usize {
        self.network.place(self.layout.call(call).1)
    }

    /// The time in a call: its own, and its waits. It has the cause of the call that it is part of.
    fn of_call(&self, call: CallIndex, part_of: CallIndex, removals: &mut Removals) {
        let cause = self.timeline.calls[part_of].kind.idle_cause();
        let label = self.label_of(part_of);
        let end = self.end_of(call);
        let end_ns = self.timeline.calls[call].end_ns;
        for wait in self.network.waits(end) {
            let delay_ns = match self.kind(wait.from) {
                NodeKind::CallStart(_) => self.overhead(call, end_ns, &wait, removals),
                _ => wait.delay_ns,
            };
            let by_ns = match self.kind(wait.from) {
                NodeKind::CallStart(_) => match cause {
                    IdleCause::Synchronization | IdleCause::Copy => {
                        if cause == IdleCause::Copy && !self.waits_for_ops(end) {
                            // It enqueued a copy, as a launch does.
                            self.host(wait.edge, delay_ns, label, removals);
                            continue;
                        }
                        (UNBLOCKED_NS - delay_ns).min(0)
                    }
                    _ => {
                        let loading_ns = self.layout.loading_ns(call).min(delay_ns.max(0));
                        if loading_ns > 0 {
                            let (cause, by_ns) = (IdleCause::LaunchCall, -loading_ns);
                            removals.add(CausedDelay { cause, label, edge: wait.edge, by_ns });
                        }
                        loading_ns - delay_ns.max(0)
                    }
                },
                NodeKind::OpEnd(_) if cause != IdleCause::Host => CUT_NS,
                _ => continue,
            };
            if by_ns < 0 {
                removals.add(CausedDelay { cause, label, edge: wait.edge, by_ns });
            }
        }
    }

    fn host(&self, edge: usize, delay_ns: i64, label: IdleLabel, removals: &mut Removals) {
        if delay_ns > 0 {
            removals.add(CausedDelay { cause: IdleCause::Host, label, edge, by_ns: -delay_ns });
        }
    }

    /// The operations that a call waits for to end, by the place of its end.
    fn ops_of(&self, end: usize) -> impl Iterator<Item = NetworkWait> {
        let waits = self.network.waits(end);
        waits.filter(|wait| matches!(self.kind(wait.from), NodeKind::OpEnd(_)))
    }

    fn waits_for_ops(&self, end: usize) -> bool {
        self.ops_of(end).next().is_some()
    }

    /// The function of a call, or the copy that it started, and the code around it.
    pub(super) fn label_of(&self, index: CallIndex) -> IdleLabel {
        let call = &self.timeline.calls[index];
        let function = match self.copied.get(&index) {
            Some(copied) if call.kind.idle_cause() == IdleCause::Copy => *copied,
            _ => call.function,
        };
        let around = self.activity.label(call.thread, call.start_ns);
        let python = around.python.or_else(|| self.lines.line(index, call));
        IdleLabel { function: Some(function), python, ..around }
    }
}
