//! What blocking calls wait for.

use super::layout::Layout;
use super::network::Builder;
use super::network::NONE;
use super::streams::Queue;
use crate::gpu::calls::CallKind;
use crate::gpu::timeline::Call;
use crate::gpu::timeline::Timeline;

/// A call that waits returns so long after what it waited for, where the trace does not show it.
/// Typical of the driver's polling; never more than was measured.
const RETURN_NS: i64 = 5_000;

/// Links the ends of blocking calls to what they waited for.
pub(super) fn learn(timeline: &Timeline, layout: &Layout, queues: &[Queue], builder: &mut Builder) {
    let first_ops = own_ops(timeline);
    for (index, call) in (0u32..).zip(&timeline.calls) {
        let Some((_, end)) = layout.call(index) else {
            continue;
        };
        let polls = layout.chains.get(call.thread as usize);
        if !call.timed || polls.is_none_or(|chain| chain.polls) {
            continue;
        }
        for target in targets(index, call, &first_ops, timeline, queues) {
            let waited = timeline.ops.get(target as usize);
            if let Some((_, done)) = layout.op(target)
                && waited.is_some_and(|op| op.end_ns <= call.end_ns)
            {
                builder.edge(done, end, RETURN_NS);
            }
        }
    }
}

/// Per call the last operation that it asked for, or [`NONE`].
fn own_ops(timeline: &Timeline) -> Vec<u32> {
    let mut ops = vec![NONE; timeline.calls.len()];
    for (index, op) in (0u32..).zip(&timeline.ops) {
        if let Some(slot) = ops.get_mut(op.call as usize) {
            *slot = index;
        }
    }
    ops
}

fn targets(
    index: u32,
    call: &Call,
    own: &[u32],
    timeline: &Timeline,
    queues: &[Queue],
) -> Vec<u32> {
    let before = |queue: &Queue| queue.last_before(call.begin_ns);
    match call.kind {
        CallKind::Copy => own.get(index as usize).copied().into_iter().collect(),
        CallKind::StreamSynchronize | CallKind::EventSynchronize => {
            match queues.get(call.stream as usize) {
                Some(queue) => before(queue).into_iter().collect(),
                None => latest(queues.iter().filter_map(before), call, timeline),
            }
        }
        CallKind::DeviceSynchronize => queues.iter().filter_map(before).collect(),
        _ => Vec::new(),
    }
}

/// Of operations that a call might have waited for, the one that ended last before it returned.
fn latest(ops: impl Iterator<Item = u32>, call: &Call, timeline: &Timeline) -> Vec<u32> {
    let end = |op: &u32| timeline.ops.get(*op as usize).map(|op| op.end_ns);
    let possible = ops.filter(|op| end(op).is_some_and(|end| end <= call.end_ns));
    possible.max_by_key(end).into_iter().collect()
}
