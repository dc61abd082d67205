//! What decided the end of each gap, from back to front: the chain of waits before the operation
//! that ends it. A chain is contiguous, so that it covers the gap once.

use super::IdleLabel;
use super::activity::HostSegment;
use super::delays::DelayCauses;
use crate::gpu::idle::IdleCause;
use crate::gpu::replay::layout::NodeKind;
use crate::gpu::replay::network::{NetworkWait, Rank};
use crate::gpu::timeline::{Call, CallIndex, OpIndex};
use crate::spans::index::Index;
use crate::time::{beyond, difference, duration_ns, later, signed};
use gctrace_event::GpuOpKind;

/// An operation that starts more than this after everything known allowed it waited for something
/// that the trace does not contain: `consecutive_kernel_delay` of HTA is the same.
const BLOCKED_NS: i64 = 30_000;
/// How far before a gap the cause of it may lie: 50 ms, longer than a queue of 1,024 kernels of 40 µs.
const FARTHEST_NS: i64 = 50_000_000;

/// By place in the network: where the search for a cause before it ended, if it was searched.
pub(super) type MetBefore = Vec<Option<Rank>>;

/// A part of a gap.
#[derive(Clone, Copy, Debug)]
pub(super) struct GapPart {
    pub(super) cause: IdleCause,
    pub(super) label: IdleLabel,
    pub(super) length_ns: u64,
}

/// The parts of all gaps that are not final.
#[derive(Debug)]
pub(super) struct WalkedGaps {
    pub(super) parts: Vec<GapPart>,
    /// By gap: the end of its parts, and the place of the node that its chain has reached; `None` if
    /// it ends.
    ends: Vec<(u32, Option<Rank>)>,
}

impl WalkedGaps {
    pub(super) fn new(gaps: usize) -> Self {
        Self { parts: Vec::new(), ends: Vec::with_capacity(gaps) }
    }

    /// The parts up to here are of the next gap.
    pub(super) fn end_gap(&mut self, before: Option<usize>) {
        let until = Index::<GapPart>::new(self.parts.len()).at() as u32;
        self.ends.push((until, before.map(Rank::new)));
    }

    /// The parts of a gap with a cause.
    pub(super) fn parts_of(&self, gap: usize, cause: IdleCause) -> impl Iterator<Item = &GapPart> {
        let before = gap.checked_sub(1).map(|before| self.ends[before].0);
        let range = before.unwrap_or_default() as usize..self.ends[gap].0 as usize;
        self.parts[range].iter().filter(move |part| part.cause == cause)
    }

    /// The place of the node that the chain before a gap has reached; `None` if it ends.
    pub(super) fn before(&self, gap: usize) -> Option<usize> {
        self.ends[gap].1.map(Rank::at)
    }
}

impl DelayCauses<'_> {
    /// Walks back from the operation that ends a gap of `length_ns`, along the chain of waits before
    /// it. Calls `each` with parts that sum to the length; returns the place of the node that the chain
    /// has reached, `None` if it ends.
    pub(super) fn walk(
        &self,
        ender: OpIndex,
        length_ns: u64,
        mut each: impl FnMut(GapPart),
    ) -> Option<usize> {
        let mut at = self.network.place(self.layout.op(ender).0);
        let mut left_ns = self.network.measured_at(at);
        let start_ns = difference(left_ns, signed(length_ns));
        let mut unknown_ns = length_ns;
        while left_ns > start_ns
            && let Some(wait) = self.network.decisive(at)
        {
            self.parts(at, &wait, |part| {
                let (from_ns, to_ns) = (part.from_ns.max(start_ns), part.to_ns.min(left_ns));
                let length_ns = difference(to_ns, from_ns).max(0).unsigned_abs();
                if length_ns > 0 {
                    unknown_ns = beyond(unknown_ns, length_ns);
                    let WaitPart { cause, label, .. } = part;
                    each(GapPart { cause, label, length_ns });
                }
            });
            left_ns = left_ns.min(self.network.measured_at(wait.from).max(start_ns));
            at = wait.from;
        }
        if unknown_ns > 0 {
            // The chain begins with something that waited for nothing.
            let (cause, label) = (IdleCause::Unknown, IdleLabel::default());
            each(GapPart { cause, label, length_ns: unknown_ns });
        }
        if left_ns <= start_ns { Some(at) } else { None }
    }

    /// Where the chain from a place last met a cause; `None` for causes without a place, and if the
    /// meeting was long before. `met`: of the cause, remembers results.
    pub(super) fn before(
        &self,
        start: Option<usize>,
        cause: IdleCause,
        met: &mut MetBefore,
    ) -> Option<IdleLabel> {
        let in_calls = [IdleCause::Allocation, IdleCause::Synchronization, IdleCause::Copy];
        let between = [IdleCause::Files, IdleCause::Data, IdleCause::RankWait];
        let on_host = cause == IdleCause::HostFunction;
        if !in_calls.contains(&cause) && !between.contains(&cause) && !on_host {
            return None;
        }
        let label_at = |at: usize| {
            let may_be = match self.kind(at) {
                NodeKind::CallEnd(call) => self.timeline.calls[call].kind.idle_cause() == cause,
                NodeKind::CallStart(_) => between.contains(&cause),
                NodeKind::OpEnd(_) => on_host,
                _ => false,
            };
            let mut label = None;
            if may_be && let Some(wait) = self.network.decisive(at) {
                self.parts(at, &wait, |part| {
                    if part.cause == cause {
                        label.get_or_insert(part.label);
                    }
                });
            }
            label
        };
        let start = start?;
        met.resize(self.network.len(), None);
        let (mut at, mut passed) = (start, Vec::new());
        let ended = loop {
            if let Some(known) = met[at] {
                break known.at();
            }
            passed.push(at);
            if label_at(at).is_some() {
                break at;
            }
            let Some(wait) = self.network.decisive(at) else { break at };
            at = wait.from;
        };
        passed.into_iter().for_each(|at| met[at] = Some(Rank::new(ended)));
        let label = label_at(ended)?;
        let (from_ns, to_ns) = (self.network.measured_at(ended), self.network.measured_at(start));
        if difference(to_ns, from_ns) <= FARTHEST_NS { Some(label) } else { None }
    }

    /// Calls `each` with the parts of one wait.
    fn parts(&self, at: usize, wait: &NetworkWait, mut each: impl FnMut(WaitPart)) {
        let (from_ns, to_ns) = (self.network.measured_at(wait.from), self.network.measured_at(at));
        let none = IdleLabel::default();
        let mut one = |cause, label| each(WaitPart { cause, label, from_ns, to_ns });
        match (self.kind(wait.from), self.kind(at)) {
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
                let ready_ns = later(from_ns, usual_ns);
                let launched_ns = later(ready_ns, self.layout.loading_ns(call)).min(to_ns);
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
                    IdleCause::Copy if matches!(self.kind(wait.from), NodeKind::CallStart(_)) => {
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
