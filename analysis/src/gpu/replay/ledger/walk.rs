//! What decided the end of each gap, from back to front: the chain of waits before the operation
//! that ends it. A chain is contiguous, so that it covers the gap once.

use super::activity::HostSegment;
use super::delays::DelayCauses;
use super::{IdleLabel, NodeKind};
use crate::gpu::idle::IdleCause;
use crate::gpu::replay::network::NetworkWait;
use crate::gpu::timeline::{Call, CallIndex, OpIndex};
use crate::time::{difference, duration_ns, later, signed, sum};
use gctrace_event::GpuOpKind;
use std::collections::HashMap;

/// An operation that starts more than this after everything known allowed it waited for something
/// that the trace does not contain: `consecutive_kernel_delay` of HTA is the same.
const BLOCKED_NS: i64 = 30_000;
/// How far before a gap the cause of it may lie: 50 ms, longer than a queue of 1,024 kernels of 40 µs.
const FARTHEST_NS: i64 = 50_000_000;

/// By cause and place in the network: when the chain before that place met the cause last, and where.
pub(super) type MetBefore = HashMap<(IdleCause, usize), Option<(i64, IdleLabel)>>;

/// A part of a gap.
#[derive(Clone, Copy, Debug)]
pub(super) struct GapPart {
    pub(super) cause: IdleCause,
    pub(super) label: IdleLabel,
    pub(super) length_ns: u64,
}

/// A gap as the chain of waits before it has it: the parts sum to its length.
#[derive(Debug, Default)]
pub(super) struct WalkedGap {
    pub(super) parts: Vec<GapPart>,
    /// Place of the node that the chain has reached; `None` if it ends.
    before: Option<usize>,
}

impl DelayCauses<'_> {
    /// Walks back from the operation that ends a gap of `length_ns`.
    pub(super) fn walk(&self, ender: OpIndex, length_ns: u64) -> WalkedGap {
        let mut walked = WalkedGap::default();
        let mut at = self.network.place(self.layout.op(ender).0);
        let mut left_ns = self.network.measured_at(at);
        let start_ns = difference(left_ns, signed(length_ns));
        while left_ns > start_ns
            && let Some(wait) = self.network.decisive(at)
        {
            self.parts(at, &wait, |part| {
                let (from_ns, to_ns) = (part.from_ns.max(start_ns), part.to_ns.min(left_ns));
                let length_ns = difference(to_ns, from_ns).max(0).unsigned_abs();
                if length_ns > 0 {
                    let WaitPart { cause, label, .. } = part;
                    walked.parts.push(GapPart { cause, label, length_ns });
                }
            });
            left_ns = left_ns.min(self.network.measured_at(wait.from).max(start_ns));
            at = wait.from;
        }
        walked.before = if left_ns <= start_ns { Some(at) } else { None };
        let known_ns = sum(walked.parts.iter().map(|part| part.length_ns));
        let length_ns = duration_ns(known_ns, length_ns);
        if length_ns > 0 {
            // The chain begins with something that waited for nothing.
            let (cause, label) = (IdleCause::Unknown, IdleLabel::default());
            walked.parts.push(GapPart { cause, label, length_ns });
        }
        walked
    }

    /// Where the chain last met a cause before a gap; `None` for causes without a place, and if the meeting was long
    /// before. `met` remembers results.
    pub(super) fn before(
        &self,
        gap: &WalkedGap,
        cause: IdleCause,
        met: &mut MetBefore,
    ) -> Option<IdleLabel> {
        let in_calls = [IdleCause::Allocation, IdleCause::Synchronization, IdleCause::Copy];
        let between = [IdleCause::Files, IdleCause::Data, IdleCause::RankWait];
        let on_host = cause == IdleCause::HostFunction;
        if !in_calls.contains(&cause) && !between.contains(&cause) && !on_host {
            return None;
        }
        let start = gap.before?;
        let (mut at, mut passed) = (start, Vec::new());
        let found = loop {
            if let Some(known) = met.get(&(cause, at)) {
                break *known;
            }
            passed.push(at);
            let Some(wait) = self.network.decisive(at) else { break None };
            let may_be = match self.kinds.at(at) {
                NodeKind::CallEnd(call) => self.timeline.calls[call].kind.idle_cause() == cause,
                NodeKind::CallStart(_) => between.contains(&cause),
                NodeKind::OpEnd(_) => on_host,
                _ => false,
            };
            let mut label = None;
            if may_be {
                self.parts(at, &wait, |part| {
                    if part.cause == cause {
                        label.get_or_insert(part.label);
                    }
                });
            }
            if let Some(label) = label {
                break Some((self.network.measured_at(at), label));
            }
            at = wait.from;
        };
        met.extend(passed.into_iter().map(|at| ((cause, at), found)));
        let (time_ns, label) = found?;
        let since_ns = difference(self.network.measured_at(start), time_ns);
        if since_ns <= FARTHEST_NS { Some(label) } else { None }
    }

    /// Calls `each` with the parts of one wait.
    fn parts(&self, at: usize, wait: &NetworkWait, mut each: impl FnMut(WaitPart)) {
        let (from_ns, to_ns) = (self.network.measured_at(wait.from), self.network.measured_at(at));
        let none = IdleLabel::default();
        let mut one = |cause, label| each(WaitPart { cause, label, from_ns, to_ns });
        match (self.kinds.at(wait.from), self.kinds.at(at)) {
            (NodeKind::CallStart(call), NodeKind::OpStart(op)) => {
                let until_ns = self.timeline.ops[op].start_ns;
                let from_ns = self.overhead_first(call, until_ns, (from_ns, to_ns), &mut each);
                let label = self.label_of(call);
                let kind = self.timeline.ops[op].kind;
                let mut one = |cause, label| each(WaitPart { cause, label, from_ns, to_ns });
                let usual_ns = self.layout.launch_ns[kind as usize].max(0);
                if to_ns - from_ns <= later(usual_ns, BLOCKED_NS) {
                    return one(IdleCause::LaunchLatency, label);
                }
                let ready_ns = from_ns + usual_ns;
                let launched_ns = (ready_ns + self.layout.loading_ns(call)).min(to_ns);
                if launched_ns < to_ns {
                    let (cause, label) = (IdleCause::Blocked, self.unseen_function(op));
                    each(WaitPart { cause, label, from_ns: launched_ns, to_ns });
                }
                if ready_ns < launched_ns {
                    let (cause, label) = (IdleCause::LaunchCall, self.label_of(call));
                    each(WaitPart { cause, label, from_ns: ready_ns, to_ns: launched_ns });
                }
                let label = self.label_of(call);
                let cause = IdleCause::LaunchLatency;
                each(WaitPart { cause, label, from_ns, to_ns: ready_ns });
            }
            (NodeKind::OpEnd(before) | NodeKind::OpStart(before), NodeKind::OpStart(index)) => {
                let (before, op) = (&self.timeline.ops[before], &self.timeline.ops[index]);
                match () {
                    () if before.stream != op.stream => one(IdleCause::OtherStream, none),
                    () if to_ns - from_ns <= BLOCKED_NS => one(IdleCause::BackToBack, none),
                    () if op.call.is_none() => one(IdleCause::Unknown, none),
                    () => one(IdleCause::Blocked, self.unseen_function(index)),
                }
            }
            (NodeKind::OpStart(op), NodeKind::OpEnd(_))
                if self.timeline.ops[op].kind == GpuOpKind::HostFunction =>
            {
                one(IdleCause::HostFunction, self.launch_label(&self.timeline.ops[op]))
            }
            // It ran on another device, or with other ranks.
            (NodeKind::OpStart(_) | NodeKind::Other, NodeKind::OpEnd(_)) => {
                one(IdleCause::OtherStream, none)
            }
            (from, NodeKind::CallEnd(call)) => {
                let from_ns = match from {
                    NodeKind::CallStart(_) => {
                        let until_ns = self.timeline.calls[call].end_ns;
                        self.overhead_first(call, until_ns, (from_ns, to_ns), &mut each)
                    }
                    _ => from_ns,
                };
                let cause = match self.timeline.calls[call].kind.idle_cause() {
                    IdleCause::Copy
                        if matches!(self.kinds.at(wait.from), NodeKind::CallStart(_)) =>
                    {
                        IdleCause::Host
                    }
                    cause => cause,
                };
                each(WaitPart { cause, label: self.label_of(call), from_ns, to_ns });
            }
            (_, NodeKind::CallStart(call)) => self.between_calls(call, from_ns, to_ns, each),
            (_, NodeKind::OpStart(_) | NodeKind::OpEnd(_) | NodeKind::Other) => {
                one(IdleCause::Unknown, none)
            }
        }
    }

    /// The call that launched the function of the host before an operation, if its times are unknown.
    fn unseen_function(&self, op: OpIndex) -> IdleLabel {
        let Some(call) = self.unseen.get(&op) else { return IdleLabel::default() };
        self.label_of(*call)
    }

    /// What the profiler did in a call until a time, as the first part of a wait; returns where the rest
    /// of the wait starts. When in the call the rest was does not matter.
    fn overhead_first(
        &self,
        call: CallIndex,
        until_ns: u64,
        (mut from_ns, to_ns): (i64, i64),
        each: &mut impl FnMut(WaitPart),
    ) -> i64 {
        let Call { thread, start_ns, .. } = self.timeline.calls[call];
        self.activity.overhead(thread, start_ns, until_ns, |segment| {
            let length_ns = signed(segment.end_ns - segment.start_ns);
            let end_ns = later(from_ns, length_ns).min(to_ns);
            let HostSegment { cause, label, .. } = segment;
            each(WaitPart { cause, label, from_ns, to_ns: end_ns });
            from_ns = end_ns;
        });
        from_ns
    }

    /// The time before a call on its thread.
    fn between_calls(
        &self,
        call: CallIndex,
        from_ns: i64,
        to_ns: i64,
        mut each: impl FnMut(WaitPart),
    ) {
        let (at_ns, _) = self.layout.call_span(call);
        let length_ns = difference(to_ns, from_ns).max(0).unsigned_abs();
        let thread = self.timeline.calls[call].thread;
        let shift_ns = difference(to_ns, signed(at_ns));
        let on_network = |time_ns: u64| later(signed(time_ns), shift_ns);
        self.activity.within(thread, duration_ns(length_ns, at_ns), at_ns, |segment| {
            each(WaitPart {
                cause: segment.cause,
                label: segment.label,
                from_ns: on_network(segment.start_ns),
                to_ns: on_network(segment.end_ns),
            });
        });
    }
}

/// A part of a wait with one cause, on the network's clock.
struct WaitPart {
    cause: IdleCause,
    label: IdleLabel,
    from_ns: i64,
    to_ns: i64,
}
