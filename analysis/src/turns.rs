//! Turns of loops: what a thread did between two waits for input at the same place.
//!
//! Owns the sums of each such place, and which of them is the loop of its process. `turns/figures.rs` has the report,
//! `turns/lengths.rs` the distribution, `turns/spent.rs` what a long turn was spent on, `turns/others.rs`
//! waits for other processes, `turns/advice.rs` what to change, `turns/live.rs` the figures of the live view.

pub(crate) mod advice;
pub(crate) mod figures;
mod lengths;
pub(crate) mod live;
pub(crate) mod others;
mod spent;

use crate::cpu::spans::ThreadSpan;
use crate::stacks::{MovedNodes, NodeId, StackTree};
use crate::time::{add_to, beyond, duration_ns, overlap_ns, sum};
use figures::{LoopReport, TurnFigures, TurnReport};
use gctrace_event::{LoopPlace, OffCpu, OffCpuReason, Pause, Turn, Turns};
use gctrace_stats::rate;
use gctrace_units::LONG_PAUSE_NS;
use lengths::Lengths;
use others::WaitFor;
use spent::Spent;
use std::collections::BTreeMap;

/// Places of a process where threads wait; more are not summed up.
const PLACES: usize = 256;
/// Long turns kept of a process, 150 bytes each, and long pauses. Later ones are left out of what turns would be
/// without collections.
const KEPT: usize = 10_000;
/// Turns that make a loop.
const LEAST_TURNS: u64 = 20;
/// A place where this part of a thread's waits are may be its loop.
const SHARE_OF_WAITS: u64 = 10;
/// A loop takes at least this part of the time from its first turn to the end of its process, in turns and waits.
/// Otherwise it is a part of something else: a request's connection, a child whose output is read.
const LEAST_SHARE: f64 = 0.5;
/// Turns listed.
const LISTED: usize = 10;

/// The loops of one process.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoopSums {
    places: BTreeMap<(u32, LoopPlace), PlaceSums>,
    long: Vec<Turn>,
    /// Long pauses, by end.
    pauses: Vec<PausedThread>,
    waits_for: Vec<WaitFor>,
}

/// A long pause of a thread.
#[derive(Clone, Copy, Debug)]
struct PausedThread {
    tid: u32,
    start_ns: u64,
    end_ns: u64,
}

/// The thread and the place, with its turns.
type PlacedSums<'a> = (&'a (u32, LoopPlace), &'a PlaceSums);

/// The turns at one place.
#[derive(Clone, Debug, Default)]
struct PlaceSums {
    lengths: Lengths,
    total_ns: u64,
    longest_ns: u64,
    waits: u64,
    waited_ns: u64,
    longest_busy_ns: u64,
    sees_looks: bool,
    node: Option<NodeId>,
    /// Its first turn, or up to a second before.
    since_ns: Option<u64>,
}

/// The process of loops.
pub(crate) struct LoopContext<'a> {
    pub(crate) trace: usize,
    pub(crate) pid: u32,
    /// Start of its trace, and end of its recording.
    pub(crate) started_ns: u64,
    pub(crate) ended_ns: u64,
    pub(crate) tree: &'a StackTree,
    /// What its threads executed, and waited for.
    pub(crate) spans: [&'a [ThreadSpan]; 2],
}

impl LoopSums {
    pub(crate) fn add(&mut self, turns: &Turns, node: Option<NodeId>) {
        let key = (turns.tid, turns.place.clone());
        if self.places.len() >= PLACES && !self.places.contains_key(&key) {
            return;
        }
        let sums = self.places.entry(key).or_default();
        sums.lengths.add(&turns.lengths);
        add_to(&mut sums.total_ns, turns.total_ns);
        sums.longest_ns = sums.longest_ns.max(turns.longest_ns);
        add_to(&mut sums.waits, turns.waits);
        add_to(&mut sums.waited_ns, turns.waited_ns);
        sums.longest_busy_ns = sums.longest_busy_ns.max(turns.longest_busy_ns);
        sums.sees_looks |= turns.sees_looks;
        sums.node = node.or(sums.node);
        sums.since_ns = sums.since_ns.or(Some(turns.at_ns));
    }

    pub(crate) fn add_turn(&mut self, turn: Turn) {
        if self.long.len() < KEPT {
            self.long.push(turn);
        }
    }

    pub(crate) fn add_pause(&mut self, pause: &Pause) {
        if pause.duration_ns() >= LONG_PAUSE_NS && self.pauses.len() < KEPT {
            let Pause { tid, start_ns, end_ns, .. } = *pause;
            let at = self.pauses.partition_point(|before| before.end_ns <= end_ns);
            self.pauses.insert(at, PausedThread { tid, start_ns, end_ns });
        }
    }

    /// Adds times off the CPU until another process woke the thread. Who waits for the end of a process waits for all
    /// that it does, its collections least.
    pub(crate) fn add_waits(&mut self, off: &OffCpu) {
        let Some(by_pid) = off.woken_by.filter(|_| off.reason != OffCpuReason::Process) else {
            return;
        };
        let room = KEPT.saturating_sub(self.waits_for.len());
        let waits = off.spans().map(|(start_ns, end_ns)| WaitFor { by_pid, start_ns, end_ns });
        self.waits_for.extend(waits.take(room));
    }

    pub(crate) fn renumber(&mut self, nodes: &MovedNodes) {
        for sums in self.places.values_mut() {
            sums.node = sums.node.and_then(|node| nodes.of(node));
        }
    }

    /// The loop of the process: of its main thread, or else of the thread that spent most time in turns. `None` if no
    /// thread spends its time in one.
    pub(crate) fn report(&self, about: &LoopContext<'_>) -> Option<LoopReport> {
        let mut loops: Vec<PlacedSums<'_>> = self
            .threads()
            .into_values()
            .filter_map(|places| innermost_loop(&places, about.tree))
            .filter(|(_, sums)| sums.is_loop(about.ended_ns))
            .collect();
        loops.sort_by_key(|((tid, _), sums)| (*tid == about.pid, sums.total_ns));
        let ((tid, place), sums) = loops.pop()?;
        let long: Vec<&Turn> =
            self.long.iter().filter(|turn| turn.tid == *tid && turn.place == *place).collect();
        Some(self.loop_report((*tid, place), sums, &long, about))
    }

    fn threads(&self) -> BTreeMap<u32, Vec<PlacedSums<'_>>> {
        let mut threads: BTreeMap<u32, Vec<_>> = BTreeMap::new();
        for place in &self.places {
            threads.entry(place.0.0).or_default().push(place);
        }
        threads
    }

    fn loop_report(
        &self,
        (tid, place): (u32, &LoopPlace),
        sums: &PlaceSums,
        long: &[&Turn],
        about: &LoopContext<'_>,
    ) -> LoopReport {
        let time_ns = sums.time_ns();
        let mut without = sums.lengths.clone();
        let mut spent: Vec<Spent<'_>> = long.iter().map(|turn| self.spent(turn)).collect();
        let (mut collected, mut longest_ns, mut less_ns) = (0, 0, 0);
        for turn in &spent {
            let collections_ns = turn.collections_ns();
            let length_ns = turn.turn.length_ns();
            let shorter_ns = beyond(length_ns, collections_ns);
            without.shorten(length_ns, shorter_ns);
            longest_ns = longest_ns.max(shorter_ns);
            add_to(&mut less_ns, collections_ns);
            collected += u64::from(collections_ns > 0);
        }
        spent.sort_by_key(|turn| std::cmp::Reverse(turn.turn.length_ns()));
        let listed = spent.iter().take(LISTED);
        let listed: Vec<TurnReport> = listed.map(|turn| turn.report(about)).collect();
        let without = (collected > 0).then(|| {
            let longest_ns = without.longest_ns(longest_ns);
            TurnFigures::of(&without, longest_ns, beyond(time_ns, less_ns))
        });
        LoopReport {
            trace: about.trace,
            pid: about.pid,
            tid,
            main_thread: tid == about.pid,
            call: place.call.clone(),
            line: sums.node.map(|node| about.tree.own_line(node).clone()),
            observed_ns: time_ns,
            turns: sums.lengths.count(),
            turns_per_s: rate(sums.lengths.count(), time_ns),
            sees_looks: sums.sees_looks,
            busy_ratio: gctrace_stats::ratio(sums.total_ns, time_ns),
            busy_periods: sums.waits,
            longest_busy_ns: sums.longest_busy_ns,
            figures: TurnFigures::of(&sums.lengths, sums.longest_ns, time_ns),
            without_collections: without,
            collected_turns: collected,
            longest: listed,
        }
    }

    /// Time of a span in long pauses, in ns, at most the span; `except`: of threads other than this one.
    fn collected_ns(&self, span: (u64, u64), except: Option<u32>) -> u64 {
        let first = self.pauses.partition_point(|pause| pause.end_ns <= span.0);
        let during = self.pauses.iter().skip(first).take_while(|pause| pause.start_ns < span.1);
        let of_others = during.filter(|pause| Some(pause.tid) != except);
        let all = of_others.map(|pause| overlap_ns(span, (pause.start_ns, pause.end_ns)));
        sum(all).min(duration_ns(span.0, span.1))
    }

    /// What a turn was spent on.
    fn spent<'a>(&self, turn: &'a Turn) -> Spent<'a> {
        let span = (turn.start_ns, turn.end_ns);
        Spent::of(turn, self.collected_ns(span, Some(turn.tid)))
    }
}

/// Of the places where a thread waits often, the one that the fewest frames lead to: a loop calls what waits elsewhere.
fn innermost_loop<'a>(places: &[PlacedSums<'a>], tree: &StackTree) -> Option<PlacedSums<'a>> {
    let most = places.iter().map(|(_, sums)| sums.lengths.count()).max()?;
    let often = places.iter().filter(|(_, sums)| sums.lengths.count() >= most / SHARE_OF_WAITS);
    let depth = |sums: &PlaceSums| sums.node.map_or(usize::MAX, |node| tree.frames(node).count());
    let first = often.min_by_key(|(_, sums)| (depth(sums), std::cmp::Reverse(sums.waited_ns)))?;
    Some(*first)
}

impl PlaceSums {
    /// Time in turns and waits, in ns.
    fn time_ns(&self) -> u64 {
        sum([self.total_ns, self.waited_ns])
    }

    fn is_loop(&self, ended_ns: u64) -> bool {
        let observed_ns = self.since_ns.map_or(0, |since_ns| duration_ns(since_ns, ended_ns));
        let time_ns = self.time_ns();
        self.lengths.count() >= LEAST_TURNS && time_ns as f64 >= LEAST_SHARE * observed_ns as f64
    }
}

impl Spent<'_> {
    fn report(&self, about: &LoopContext<'_>) -> TurnReport {
        let [executed, others] = about.spans;
        TurnReport {
            since_start_ns: duration_ns(about.started_ns, self.turn.start_ns),
            length_ns: self.turn.length_ns(),
            parts: self.parts(executed.iter().chain(others), about.tree),
        }
    }
}
