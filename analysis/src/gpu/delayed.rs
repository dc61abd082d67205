//! Operations that a pause made late.
//!
//! Owns the rule: in a replay without pauses an operation starts earlier, by more than the one before
//! it on its stream does, and a pause ended while the stream had nothing to run.

use super::replay::{MAX_NODES, ReplayChange, ReplayJob, ReplayModel};
use super::timeline::{OpIndex, PauseIndex, StreamIndex, Timeline};
use crate::spans::index::Index;
use crate::time::{difference, signed};
use std::collections::HashMap;

/// Pauses examined for one operation: pauses of other threads may overlap the last.
const NEAR: usize = 8;

/// The last operation of a stream: its end, and how much earlier it starts without pauses, in ns.
#[derive(Clone, Copy, Default)]
struct LastOp {
    end_ns: u64,
    gained_ns: i64,
}

/// The operations that started late because of a pause, each with the last pause that caused it, by start of the
/// operation. Later operations on the stream are late, too, and left out. None for a timeline too large for a replay.
pub fn delayed(timeline: &Timeline) -> Vec<(PauseIndex, OpIndex)> {
    let nodes = 2 * (timeline.calls.len() + timeline.ops.len()) as u64 + 1;
    if timeline.pauses.is_empty() || timeline.ops.is_empty() || nodes > MAX_NODES {
        return Vec::new();
    }
    let job = ReplayJob::single(timeline);
    let replayed = ReplayModel::learn(&job).replay(&ReplayChange::without_all(&job));
    let mut streams: HashMap<StreamIndex, LastOp> = HashMap::new();
    let mut found = Vec::new();
    for (index, op) in Index::enumerate(&timeline.ops) {
        let (start_ns, _) = replayed.op(0, index);
        let gained_ns = difference(signed(op.start_ns), signed(start_ns));
        let last = streams.entry(op.stream).or_default();
        if gained_ns > last.gained_ns {
            let begun = timeline.pauses.partition_point(|pause| pause.start_ns <= op.start_ns);
            let near = (begun.saturating_sub(NEAR)..begun).rev();
            let ended_idle = |at: &usize| {
                let end_ns = timeline.pauses[*at].end_ns;
                end_ns <= op.start_ns && end_ns > last.end_ns
            };
            found.extend(near.into_iter().find(ended_idle).map(|at| (Index::new(at), index)));
        }
        *last = LastOp { end_ns: last.end_ns.max(op.end_ns), gained_ns };
    }
    found
}
