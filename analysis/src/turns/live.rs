//! The loop of a process that still runs, for the live view and metrics.

use super::figures::{BACKGROUND, TurnCause, TurnPart};
use super::{LoopSums, PlaceSums, innermost_loop};
use crate::stacks::StackTree;
use gctrace_event::{LoopPlace, Turn, WORK_CALL};
use gctrace_stats::ratio;
use serde::Serialize;
use std::collections::BTreeMap;

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
    /// The loop so far: of the main thread, or else of the thread with most time in turns. Without a loop the pool.
    pub(crate) fn live(&self, pid: u32) -> Option<LoopFigures> {
        // Stacks are not kept: the place with most waits counts.
        let tree = StackTree::default();
        let loops = self.threads().into_values();
        let loops = loops.filter_map(|places| innermost_loop(&places, &tree));
        match loops.max_by_key(|((tid, _), sums)| (*tid == pid, sums.total_ns)) {
            Some(((tid, place), sums)) => {
                Some(self.figures(sums, |turn| turn.tid == *tid && turn.place == *place))
            }
            None => self.pool(),
        }
    }

    /// Threads that wait for work with the same stack, those with most time in turns, unless they are in the background.
    fn pool(&self) -> Option<LoopFigures> {
        let mut pools: BTreeMap<&LoopPlace, (f64, PlaceSums)> = BTreeMap::new();
        for ((_, place), sums) in self.places.iter().filter(|(at, _)| at.1.call == WORK_CALL) {
            let (threads, pool) = pools.entry(place).or_default();
            *threads += 1.0;
            pool.append(sums);
        }
        let (place, (threads, sums)) =
            pools.into_iter().max_by_key(|(_, (_, sums))| sums.total_ns)?;
        let busy = ratio(sums.total_ns, sums.time_ns())? * threads;
        (busy >= BACKGROUND).then(|| self.figures(&sums, |turn| turn.place == *place))
    }

    fn figures(&self, sums: &PlaceSums, is_its: impl Fn(&Turn) -> bool) -> LoopFigures {
        let last = self.long.iter().rev().find(|turn| is_its(turn));
        let last_long = last.and_then(|turn| {
            let parts = self.spent(turn, &[]).parts(std::iter::empty(), &StackTree::default());
            let TurnPart { cause, time_ns, .. } = parts.into_iter().next()?;
            Some(LastLongTurn { length_ns: turn.length_ns(), cause, cause_ns: time_ns })
        });
        LoopFigures {
            turns: sums.lengths.count(),
            turn_ns: sums.total_ns,
            p99_ns: sums.lengths.quantile_ns(0.99).map(|ns| ns.min(sums.longest_ns)),
            longest_ns: sums.longest_ns,
            last_long,
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_event::Turns;

    const MS: u64 = 1_000_000;

    fn turns(tid: u32, call: &str, total_ms: u64) -> Turns {
        Turns {
            tid,
            place: LoopPlace { call: call.to_owned(), argument: 5 },
            turns: 10,
            total_ns: total_ms * MS,
            longest_ns: 30 * MS,
            waited_ns: (1000 - total_ms) * MS,
            lengths: vec![(600, 10)],
            ..Turns::default()
        }
    }

    /// The threads of a pool together; a loop comes before it, and threads in the background are none.
    #[test]
    fn a_process_without_a_loop_has_its_pool() {
        let mut sums = LoopSums::default();
        sums.add(&turns(8, WORK_CALL, 1), None);
        assert_eq!(sums.live(7), None);
        sums.add(&turns(9, WORK_CALL, 200), None);
        let pool = sums.live(7).expect("a pool");
        assert_eq!((pool.turns, pool.turn_ns), (20, 201 * MS));
        sums.add(&turns(7, "epoll_wait", 100), None);
        assert_eq!(sums.live(7).map(|of| of.turns), Some(10));
    }
}
