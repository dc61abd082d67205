//! Turns of threads that get work from other threads: the pool of a server or an executor, the consumer of a queue, a
//! thread for each request or connection.
//!
//! Owns which places of a process are one pool. A turn goes from the return of a wait for work to the next wait: while
//! there is more work at once, nobody waits, and several pieces are one turn. A thread that is started for one
//! piece of work has one turn, its life.

use super::figures::{LoopReport, TurnFigures};
use super::{
    LEAST_TURNS, LoopContext, LoopSums, PlaceSums, PlacedSums, Spent, idle_times, innermost_loop,
    names, within,
};
use crate::figure::Location;
use crate::stacks::{NodeId, StackTree};
use crate::time::{beyond, duration_ns};
use gctrace_event::{THREAD_CALL, WORK_CALL, starts_threads};
use gctrace_stats::{rate, ratio};
use std::collections::BTreeMap;

/// Files of queues, in which threads wait for others.
pub(super) const QUEUES: [&str; 3] = ["/threading.py", "/queue.py", "/queues.py"];

/// A thread that lives for more than one part of this many of the time was not started for one piece of work.
const SHORT_LIVES: u64 = 4;

impl LoopSums {
    /// Threads that take work at the same line, those with most turns; `None` if there are none.
    pub(super) fn takers(&self, about: &LoopContext<'_>) -> Option<LoopReport> {
        let places = self.places.iter();
        let places = places
            .filter(|(at, sums)| at.1.call == WORK_CALL && sums.takes_most_time(about.ended_ns));
        self.together(places, about)
    }

    /// Threads that are started at the same line, each for one request or for one connection; `None` if there are none.
    pub(super) fn started(&self, about: &LoopContext<'_>) -> Option<LoopReport> {
        let connections = self.connections(about);
        let lives = self.lives(about);
        // A thread that serves a connection waits for its requests.
        let turns = |of: &Option<LoopReport>| of.as_ref().map_or(0, |of| of.turns);
        if turns(&connections) > turns(&lives) { connections } else { lives }
    }

    /// Threads beside the main thread that read at the same line, and take no work from a queue.
    fn connections(&self, about: &LoopContext<'_>) -> Option<LoopReport> {
        let takes_work =
            |tid: u32| self.places.keys().any(|at| at.0 == tid && at.1.call == WORK_CALL);
        let threads = self.threads().into_iter();
        let threads = threads.filter(|(tid, _)| *tid != about.pid && !takes_work(*tid));
        let places = threads.filter_map(|(_, places)| innermost_loop(&places, about.tree));
        let reads = places.filter(|(at, _)| !gctrace_event::waits_for_many(&at.1.call));
        // One thread that reads is a loop of its own.
        self.together(reads, about).filter(|of| of.threads > 1)
    }

    /// Threads whose lives are a turn each.
    fn lives(&self, about: &LoopContext<'_>) -> Option<LoopReport> {
        let is_start = |node| starts_threads(names(node, about.tree));
        let places = self.places.iter();
        let places =
            places.filter(|(at, sums)| at.1.call == THREAD_CALL && sums.node.is_some_and(is_start));
        let report = self.together(places, about)?;
        let total_ns = report.observed_ns;
        let observed_ns = time_since(&report, about);
        if total_ns / report.turns > observed_ns / SHORT_LIVES {
            return None;
        }
        let busy_ratio = ratio(total_ns, observed_ns);
        Some(LoopReport { main_thread: false, observed_ns, busy_ratio, ..report })
    }

    /// The threads of these places that wait at the same line, those with most turns; `None` if there are none.
    fn together<'a>(
        &'a self,
        places: impl Iterator<Item = PlacedSums<'a>>,
        about: &LoopContext<'_>,
    ) -> Option<LoopReport> {
        let mut by_line: BTreeMap<&Location, Vec<PlacedSums<'_>>> = BTreeMap::new();
        for place in places {
            let Some(node) = place.1.node else { continue };
            by_line.entry(taker(node, about.tree)).or_default().push(place);
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
                turn.place == *place && (turn.tid == *tid || place.call == THREAD_CALL)
            };
            let turns = self.long.iter().filter(is_its);
            long.extend(turns.map(|turn| self.spent(turn, within(&idle, turn))));
        }
        long.sort_by_key(|spent: &Spent<'_>| spent.turn.start_ns);
        let mut report = self.loop_report((most.0.0, &most.0.1), &all, long, about);
        report.threads = places.len();
        report.line = all.node.map(|node| taker(node, about.tree).clone());
        report.turns_per_s = rate(report.turns, time_since(&report, about));
        // What arrives is taken by the first thread that is free.
        report.figures = report.figures.without_arrivals();
        report.without_collections = report.without_collections.map(TurnFigures::without_arrivals);
        Some(report)
    }
}

/// From the first wait to the end of the process, in ns.
fn time_since(of: &LoopReport, about: &LoopContext<'_>) -> u64 {
    beyond(duration_ns(about.started_ns, about.ended_ns), of.since_start_ns)
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
