//! Turns of threads that take work from other threads: the pool of a server or an executor, the consumer of a queue.
//!
//! Owns which places of a process are one pool. A turn goes from the return of a wait for work to the next wait: while
//! there is more work at once, nobody waits, and several pieces are one turn.

use super::figures::{LoopReport, TurnFigures};
use super::{LEAST_TURNS, LoopContext, LoopSums, PlaceSums, PlacedSums, Spent, idle_times, within};
use crate::figure::Location;
use crate::stacks::{NodeId, StackTree};
use gctrace_event::WORK_CALL;
use std::collections::BTreeMap;

/// Files of queues, in which threads wait for others.
const QUEUES: [&str; 3] = ["/threading.py", "/queue.py", "/queues.py"];

impl LoopSums {
    /// Threads that take work at the same line, those with most turns; `None` if there are none.
    pub(super) fn work(&self, about: &LoopContext<'_>) -> Option<LoopReport> {
        let mut by_line: BTreeMap<&Location, Vec<PlacedSums<'_>>> = BTreeMap::new();
        for (at, sums) in &self.places {
            let Some(node) = sums.node else { continue };
            if at.1.call == WORK_CALL && sums.takes_most_time(about.ended_ns) {
                by_line.entry(taker(node, about.tree)).or_default().push((at, sums));
            }
        }
        let turns = |places: &Vec<PlacedSums<'_>>| -> u64 {
            places.iter().map(|(_, sums)| sums.lengths.count()).sum()
        };
        let places = by_line.into_values().max_by_key(turns)?;
        let most = places.iter().max_by_key(|(_, sums)| sums.total_ns)?;
        if turns(&places) < LEAST_TURNS {
            return None;
        }
        let mut all = PlaceSums::default();
        let mut long = Vec::new();
        for ((tid, place), sums) in &places {
            all.append(sums);
            let idle = idle_times(*tid, sums.node, about);
            let is_its = |turn: &&super::Turn| turn.tid == *tid && turn.place == *place;
            let turns = self.long.iter().filter(is_its);
            long.extend(turns.map(|turn| self.spent(turn, within(&idle, turn))));
        }
        long.sort_by_key(|spent: &Spent<'_>| spent.turn.start_ns);
        let mut report = self.loop_report((most.0.0, &most.0.1), &all, long, about);
        report.threads = places.len();
        report.line = all.node.map(|node| taker(node, about.tree).clone());
        // What arrives is taken by the first thread that is free.
        report.figures = report.figures.without_arrivals();
        report.without_collections = report.without_collections.map(TurnFigures::without_arrivals);
        Some(report)
    }
}

/// The line that takes work with this stack: the program's own, or else the one that asks the queue.
fn taker(node: NodeId, tree: &StackTree) -> &Location {
    let own = tree.own_line(node);
    if !own.library {
        return own;
    }
    for frame in tree.frames(node) {
        if !QUEUES.iter().any(|file| frame.file.ends_with(file)) {
            return frame;
        }
    }
    own
}
