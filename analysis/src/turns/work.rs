//! Turns of threads that get work from other threads: the pool of a server or an executor, the consumer of a queue, a
//! thread for each request.
//!
//! Owns which places of a process are one pool. A turn goes from the return of a wait for work to the next wait: while
//! there is more work at once, nobody waits, and several pieces are one turn. The turn of a thread that is started for
//! one piece of work is its life.

use super::figures::{LoopReport, TurnFigures};

use super::{
    LEAST_TURNS, LoopContext, LoopSums, PlaceSums, PlacedSums, Spent, idle_times, names, within,
};
use crate::figure::Location;
use crate::stacks::{NodeId, StackTree};
use crate::time::{beyond, duration_ns};
use gctrace_event::{THREAD_CALL, WORK_CALL, starts_threads};
use gctrace_stats::{rate, ratio};
use std::collections::BTreeMap;

/// Files of queues, in which threads wait for others.
const QUEUES: [&str; 3] = ["/threading.py", "/queue.py", "/queues.py"];

/// A thread that lives for more than one part of this many of the time was not started for one piece of work.
const SHORT_LIVES: u64 = 4;

impl LoopSums {
    /// Threads that take work at the same line, those with most turns; `None` if there are none.
    pub(super) fn takers(&self, about: &LoopContext<'_>) -> Option<LoopReport> {
        self.work(WORK_CALL, about)
    }

    /// Threads that are started at the same line, each for one piece of work; `None` if there are none.
    pub(super) fn lives(&self, about: &LoopContext<'_>) -> Option<LoopReport> {
        let report = self.work(THREAD_CALL, about)?;
        let observed_ns =
            beyond(duration_ns(about.started_ns, about.ended_ns), report.since_start_ns);
        let total_ns = report.observed_ns;
        if total_ns / report.turns > observed_ns / SHORT_LIVES {
            return None;
        }
        Some(LoopReport {
            main_thread: false,
            observed_ns,
            turns_per_s: rate(report.turns, observed_ns),
            busy_ratio: ratio(total_ns, observed_ns),
            ..report
        })
    }

    fn work(&self, call: &str, about: &LoopContext<'_>) -> Option<LoopReport> {
        let mut by_line: BTreeMap<&Location, Vec<PlacedSums<'_>>> = BTreeMap::new();
        for (at, sums) in &self.places {
            let Some(node) = sums.node else { continue };
            let is_own = match call {
                THREAD_CALL => starts_threads(names(node, about.tree)),
                _ => sums.takes_most_time(about.ended_ns),
            };
            if at.1.call == call && is_own {
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
            let is_its = |turn: &&super::Turn| {
                turn.place == *place && (turn.tid == *tid || call == THREAD_CALL)
            };
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
