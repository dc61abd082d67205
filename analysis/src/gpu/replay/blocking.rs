//! What blocking calls wait for.
//!
//! A synchronizing call waits for the last operation of its stream (device, event) that was
//! enqueued before, even if it was already done: without the preceding pause the call may have to
//! wait. A copy waits for itself if copies of its kind do; other calls only if the measured times
//! show that they waited.

use super::layout::ReplayLayout;
use super::network::NONE;
use super::network::NetworkBuilder;
use super::streams::StreamQueue;
use super::waits;
use crate::gpu::calls::CallEffect;
use crate::gpu::timeline::Call;
use crate::gpu::timeline::Timeline;
use crate::time::stats;
use std::collections::HashMap;

/// A waiting call returns this long after what it waited for, if no call of the trace shows it;
/// never more than measured. Typical of the driver's polling.
const RETURN_NS: i64 = 5_000;
/// A shorter call did not wait.
const WAITED_NS: u64 = 20_000;

/// Links the ends of blocking calls to what they waited for.
pub(super) fn learn(
    timeline: &Timeline,
    layout: &ReplayLayout,
    queues: &[StreamQueue],
    builder: &mut NetworkBuilder,
) {
    let evidence = BlockingEvidence::collect(timeline, queues);
    for (index, call) in (0u32..).zip(&timeline.calls) {
        let Some((_, end)) = layout.call(index) else {
            continue;
        };
        let chain = layout.chains.get(call.thread as usize);
        if !call.timed || chain.is_none_or(|chain| chain.polls) {
            continue;
        }
        for target in evidence.targets(index, call) {
            if let (Some((_, done)), true) = (layout.op(target), evidence.ended(target, call)) {
                builder.edge(done, end, evidence.return_ns);
            }
        }
    }
}

/// The evidence of waiting in a trace.
struct BlockingEvidence<'a> {
    timeline: &'a Timeline,
    queues: &'a [StreamQueue],
    /// For each call the last operation that it enqueued, or [`NONE`].
    own: Vec<u32>,
    /// Names of copies that are done when their call returns.
    copies_wait: HashMap<u32, bool>,
    /// Functions for memory that return once the device is idle.
    memory_waits: HashMap<u32, bool>,
    /// Median of the time from the end of an operation to the return of the call that waited.
    return_ns: i64,
}

/// How often something was true, and how often false.
#[derive(Default, Clone, Copy)]
struct BlockingVotes {
    yes: usize,
    no: usize,
}

impl BlockingVotes {
    /// At least nine of ten.
    fn clear(self) -> bool {
        self.yes > 0 && self.no * 9 <= self.yes
    }
}

impl<'a> BlockingEvidence<'a> {
    fn collect(timeline: &'a Timeline, queues: &'a [StreamQueue]) -> Self {
        let mut own = vec![NONE; timeline.calls.len()];
        for (index, op) in (0u32..).zip(&timeline.ops) {
            if let Some(slot) = own.get_mut(op.call as usize) {
                *slot = index;
            }
        }
        let mut evidence = Self {
            timeline,
            queues,
            own,
            copies_wait: HashMap::new(),
            memory_waits: HashMap::new(),
            return_ns: RETURN_NS,
        };
        evidence.copies_wait = evidence.of_copies();
        evidence.memory_waits = evidence.of_memory();
        evidence.return_ns = evidence.returns();
        evidence
    }

    fn returns(&self) -> i64 {
        let mut delays = Vec::new();
        for (index, call) in (0u32..).zip(&self.timeline.calls) {
            let targets = match call.timed && call.duration_ns() >= WAITED_NS {
                true => self.targets(index, call),
                false => Vec::new(),
            };
            let ends = targets
                .iter()
                .filter(|target| self.waited_for(**target, call))
                .filter_map(|target| self.timeline.ops.get(*target as usize))
                .map(|op| op.end_ns);
            delays.extend(ends.max().map(|end| call.end_ns - end));
        }
        let median = stats::median_high(&mut delays);
        median.map_or(RETURN_NS, u64::cast_signed)
    }

    fn of_copies(&self) -> HashMap<u32, bool> {
        let mut votes: HashMap<u32, BlockingVotes> = HashMap::new();
        for (call, own) in self.timeline.calls.iter().zip(&self.own) {
            let Some(op) = self.timeline.ops.get(*own as usize) else {
                continue;
            };
            if call.kind == CallEffect::Copy && call.timed {
                let votes = votes.entry(op.name).or_default();
                match op.end_ns <= call.end_ns {
                    true => votes.yes += 1,
                    false => votes.no += 1,
                }
            }
        }
        let clear = votes.into_iter().map(|(name, votes)| (name, votes.clear()));
        clear.collect()
    }

    /// A function waits for the device if it was seen to wait, and never returned before the last
    /// enqueued operation had ended.
    fn of_memory(&self) -> HashMap<u32, bool> {
        let mut votes: HashMap<u32, (BlockingVotes, bool)> = HashMap::new();
        for call in &self.timeline.calls {
            if call.kind != CallEffect::Memory || !call.timed {
                continue;
            }
            let (votes, waited) = votes.entry(call.function).or_default();
            for target in self.before(call) {
                match self.ended(target, call) {
                    true => votes.yes += 1,
                    false => votes.no += 1,
                }
                *waited |= self.waited_for(target, call);
            }
        }
        let waits = votes
            .into_iter()
            .map(|(function, (votes, waited))| (function, waited && votes.clear()));
        waits.collect()
    }

    /// For each stream the last operation enqueued before a call.
    fn before(&self, call: &Call) -> impl Iterator<Item = u32> {
        let start_ns = call.start_ns;
        self.queues
            .iter()
            .filter_map(move |queue| queue.last_before(start_ns))
    }

    /// Whether an operation had ended when a call returned.
    fn ended(&self, op: u32, call: &Call) -> bool {
        let op = self.timeline.ops.get(op as usize);
        op.is_some_and(|op| op.end_ns <= call.end_ns)
    }

    /// Whether a call seems to have waited for an operation.
    fn waited_for(&self, op: u32, call: &Call) -> bool {
        let op = self.timeline.ops.get(op as usize);
        op.is_some_and(|op| {
            (call.start_ns..=call.end_ns).contains(&op.end_ns)
                && call.duration_ns() >= WAITED_NS
                && call.end_ns - op.end_ns <= WAITED_NS
        })
    }

    fn targets(&self, index: u32, call: &Call) -> Vec<u32> {
        match call.kind {
            CallEffect::Copy => self.of_copy(index, call),
            CallEffect::EventSynchronize => match self.of_event(index) {
                Some(op) => vec![op],
                None => self.of_stream(call),
            },
            CallEffect::StreamSynchronize => self.of_stream(call),
            CallEffect::DeviceSynchronize => self.before(call).collect(),
            CallEffect::Memory => match self.memory_waits.get(&call.function) {
                Some(true) => self.before(call).collect(),
                _ => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    fn of_copy(&self, index: u32, call: &Call) -> Vec<u32> {
        let own = self.own.get(index as usize).copied().unwrap_or(NONE);
        let name = self.timeline.ops.get(own as usize).map(|op| op.name);
        let kind_waits = name.and_then(|name| self.copies_wait.get(&name)) == Some(&true);
        if kind_waits || self.waited_for(own, call) {
            return vec![own];
        }
        // A copy from memory that is not pinned may wait for its stream before it is queued.
        let queue = self.queues.get(call.stream as usize);
        let before = queue.and_then(|queue| queue.last_before(call.start_ns));
        before
            .into_iter()
            .filter(|before| self.waited_for(*before, call))
            .collect()
    }

    fn of_event(&self, call: u32) -> Option<u32> {
        let waits = &self.timeline.waits;
        let at = waits.partition_point(|wait| wait.call < call);
        let wait = waits.get(at).filter(|wait| wait.call == call)?;
        waits::event_op(wait, self.timeline, self.queues)
    }

    /// The last operation of the call's stream; where that is unknown, of the last operations of
    /// all streams the one that ended last before the call returned.
    fn of_stream(&self, call: &Call) -> Vec<u32> {
        if let Some(queue) = self.queues.get(call.stream as usize) {
            return queue.last_before(call.start_ns).into_iter().collect();
        }
        let possible = self.before(call).filter(|op| self.ended(*op, call));
        let end = |op: &u32| self.timeline.ops.get(*op as usize).map(|op| op.end_ns);
        possible.max_by_key(end).into_iter().collect()
    }
}
