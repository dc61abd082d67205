//! The loop of a process that still runs, for the live view and metrics.

use super::figures::{TurnCause, TurnPart};
use super::{LoopSums, innermost_loop};
use crate::stacks::StackTree;
use serde::Serialize;

/// Turns of the loop of a process, since it was first seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoopFigures {
    /// Number of turns.
    pub turns: u64,
    /// Their time, in ns.
    pub turn_ns: u64,
    /// 99 % of them are not longer, in ns; absent without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
    /// The longest, in ns.
    pub longest_ns: u64,
    /// The last long turn; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_long: Option<LastLongTurn>,
}

/// A turn that was long, compared to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LastLongTurn {
    /// Its length, in ns.
    pub length_ns: u64,
    /// What most of it was spent on.
    pub cause: TurnCause,
    /// Its time, in ns.
    pub cause_ns: u64,
}

impl LoopSums {
    /// The loop so far: of the main thread, or else of the thread with most time in turns.
    pub(crate) fn live(&self, pid: u32) -> Option<LoopFigures> {
        // Stacks are not kept: the place with most waits counts.
        let tree = StackTree::default();
        let loops = self.threads().into_values();
        let loops = loops.filter_map(|places| innermost_loop(&places, &tree));
        let ((tid, place), sums) =
            loops.max_by_key(|((tid, _), sums)| (*tid == pid, sums.total_ns))?;
        let long = self.long.iter().rev();
        let last = long.into_iter().find(|turn| turn.tid == *tid && turn.place == *place);
        let last_long = last.and_then(|turn| {
            let parts = self.spent(turn, &[]).parts(std::iter::empty(), &tree);
            let TurnPart { cause, time_ns, .. } = parts.into_iter().next()?;
            Some(LastLongTurn { length_ns: turn.length_ns(), cause, cause_ns: time_ns })
        });
        Some(LoopFigures {
            turns: sums.lengths.count(),
            turn_ns: sums.total_ns,
            p99_ns: sums.lengths.quantile_ns(0.99).map(|ns| ns.min(sums.longest_ns)),
            longest_ns: sums.longest_ns,
            last_long,
        })
    }

    /// Forgets what only reports need: a live view runs without end.
    pub(crate) fn trim(&mut self) {
        /// Turns and pauses that stay: more than any figure of it needs.
        const KEPT: usize = 64;
        let beyond = |length: usize| ..length.saturating_sub(KEPT);
        self.long.drain(beyond(self.long.len()));
        self.pauses.drain(beyond(self.pauses.len()));
        self.waits_for.clear();
    }
}
