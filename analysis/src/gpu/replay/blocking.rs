//! What blocking calls wait for.
//!
//! A synchronizing call waits for the last operation of its stream (device, event) that was
//! enqueued before, even if it was already done: without the preceding pause the call may have to
//! wait. A copy waits for itself if copies of its kind do; other calls only if the measured times
//! show that they waited.

use super::layout::ReplayLayout;
use super::network::NetworkBuilder;
use super::streams::StreamQueue;
use super::waits;
use crate::gpu::calls::CallEffect;
use crate::gpu::timeline::{Call, CallIndex, NameIndex, OpIndex, Timeline};
use crate::spans::index::Index;
use crate::time::signed;
use std::collections::HashMap;

/// Time from the end of the awaited work to the return of the call, if no call of the trace shows it; never more than
/// measured. Typical of the driver's polling.
const RETURN_NS: i64 = 5_000;
/// A shorter call did not wait.
const WAITED_NS: u64 = 20_000;

/// Links the ends of blocking calls to the work they waited for.
pub(super) fn learn(
    timeline: &Timeline,
    layout: &ReplayLayout<'_>,
    queues: &[StreamQueue],
    builder: &mut NetworkBuilder,
) {
    let evidence = BlockingEvidence::collect(timeline, queues);
    for (index, call) in Index::enumerate(&timeline.calls) {
        if !call.timed || layout.chains[call.thread.at()].polls {
            continue;
        }
        let (_, end) = layout.call(index);
        for target in evidence.targets(index, call) {
            if evidence.ended(target, call) {
                builder.edge(layout.op(target).1, end, evidence.return_ns);
            }
        }
    }
}

/// The evidence of waiting in a trace.
struct BlockingEvidence<'a> {
    timeline: &'a Timeline,
    queues: &'a [StreamQueue],
    /// For each call the last operation that it enqueued.
    enqueued: Vec<Option<OpIndex>>,
    /// Names of copies that are done when their call returns.
    copies_wait: HashMap<NameIndex, bool>,
    /// Functions for memory that return once the device is idle.
    memory_waits: HashMap<NameIndex, bool>,
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
        let mut enqueued = vec![None; timeline.calls.len()];
        for (index, op) in Index::enumerate(&timeline.ops) {
            if let Some(call) = op.call {
                enqueued[call.at()] = Some(index);
            }
        }
        let mut evidence = Self {
            timeline,
            queues,
            enqueued,
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
        let calls = Index::enumerate(&self.timeline.calls);
        let delays = calls.filter_map(|(index, call)| {
            if !call.timed || call.duration_ns() < WAITED_NS {
                return None;
            }
            let targets = self.targets(index, call).into_iter();
            let waited_for = targets.filter(|target| self.waited_for(*target, call));
            let end_ns = waited_for.map(|op| self.timeline.ops[op].end_ns).max()?;
            Some(call.end_ns - end_ns)
        });
        let median = gctrace_stats::median_high(&mut delays.collect::<Vec<u64>>());
        if let Some(median_ns) = median { signed(median_ns) } else { RETURN_NS }
    }

    fn of_copies(&self) -> HashMap<NameIndex, bool> {
        let mut votes: HashMap<NameIndex, BlockingVotes> = HashMap::new();
        for (call, enqueued) in self.timeline.calls.iter().zip(&self.enqueued) {
            if let Some(enqueued) = *enqueued
                && call.kind == CallEffect::Copy
                && call.timed
            {
                let op = &self.timeline.ops[enqueued];
                let votes = votes.entry(op.name).or_default();
                if op.end_ns <= call.end_ns { votes.yes += 1 } else { votes.no += 1 }
            }
        }
        let clear = votes.into_iter().map(|(name, votes)| (name, votes.clear()));
        clear.collect()
    }

    /// A function waits for the device if it was seen to wait, and never returned before the last
    /// enqueued operation had ended.
    fn of_memory(&self) -> HashMap<NameIndex, bool> {
        let mut votes: HashMap<NameIndex, (BlockingVotes, bool)> = HashMap::new();
        for call in &self.timeline.calls {
            if call.kind != CallEffect::Memory || !call.timed {
                continue;
            }
            let (votes, waited) = votes.entry(call.function).or_default();
            for target in self.before(call) {
                if self.ended(target, call) {
                    votes.yes += 1
                } else {
                    votes.no += 1
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
    fn before(&self, call: &Call) -> impl Iterator<Item = OpIndex> {
        let start_ns = call.start_ns;
        self.queues.iter().filter_map(move |queue| queue.last_before(start_ns))
    }

    /// Whether an operation had ended when a call returned.
    fn ended(&self, op: OpIndex, call: &Call) -> bool {
        self.timeline.ops[op].end_ns <= call.end_ns
    }

    /// Whether a call seems to have waited for an operation.
    fn waited_for(&self, op: OpIndex, call: &Call) -> bool {
        let end_ns = self.timeline.ops[op].end_ns;
        (call.start_ns..=call.end_ns).contains(&end_ns)
            && call.duration_ns() >= WAITED_NS
            && call.end_ns - end_ns <= WAITED_NS
    }

    fn targets(&self, index: CallIndex, call: &Call) -> Vec<OpIndex> {
        match call.kind {
            CallEffect::Copy => self.of_copy(index, call),
            CallEffect::EventSynchronize => match self.of_event(index) {
                Some(op) => vec![op],
                None => self.of_stream(call),
            },
            CallEffect::StreamSynchronize => self.of_stream(call),
            CallEffect::DeviceSynchronize => self.before(call).collect(),
            CallEffect::Memory if self.memory_waits.get(&call.function) == Some(&true) => {
                self.before(call).collect()
            }
            _ => Vec::new(),
        }
    }

    fn of_copy(&self, index: CallIndex, call: &Call) -> Vec<OpIndex> {
        if let Some(enqueued) = self.enqueued[index.at()]
            && (self.copies_wait.get(&self.timeline.ops[enqueued].name) == Some(&true)
                || self.waited_for(enqueued, call))
        {
            return vec![enqueued];
        }
        // A copy from memory that is not pinned may wait for its stream before it is queued:
        // https://docs.nvidia.com/cuda/cuda-driver-api/api-sync-behavior.html
        let Some(stream) = call.stream else { return Vec::new() };
        match self.queues[stream.at()].last_before(call.start_ns) {
            Some(before) if self.waited_for(before, call) => vec![before],
            _ => Vec::new(),
        }
    }

    fn of_event(&self, call: CallIndex) -> Option<OpIndex> {
        let waits = &self.timeline.waits;
        let at = waits.partition_point(|wait| wait.call < call);
        let wait = waits.get(at)?;
        if wait.call != call {
            return None;
        }
        waits::event_op(wait, self.timeline, self.queues)
    }

    /// The last operation of the call's stream. If the stream is unknown, the operation that ended last before the
    /// call returned, among the last operations of all streams.
    fn of_stream(&self, call: &Call) -> Vec<OpIndex> {
        let last = match call.stream {
            Some(stream) => self.queues[stream.at()].last_before(call.start_ns),
            None => {
                let ended = self.before(call).filter(|op| self.ended(*op, call));
                ended.max_by_key(|op| self.timeline.ops[*op].end_ns)
            }
        };
        last.into_iter().collect()
    }
}
