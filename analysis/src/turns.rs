//! Turns of loops: what a thread did between two waits for input at the same place.
//!
//! Owns the sums of each such place, and which of them is the loop of its process. `turns/figures.rs` has the report,
//! `turns/lengths.rs` the distribution, `turns/spent.rs` what a long turn was spent on, `turns/others.rs`
//! waits for other processes, `turns/work.rs` pools of threads, `turns/held.rs` the verdict on a loop, `turns/advice.rs`
//! what to change, `turns/live.rs` the figures of the live view.

pub(crate) mod advice;
pub(crate) mod figures;
pub mod held;
mod lengths;
pub(crate) mod live;
pub(crate) mod others;
mod spent;
mod work;

use crate::cpu::spans::{ThreadDid, ThreadSpan};
use crate::stacks::{MovedNodes, NodeId, StackTree};
use crate::time::{add_to, beyond, duration_ns, overlap_ns, sum};
use figures::{BACKGROUND, LoopReport, TurnFigures, TurnReport};
use gctrace_event::{
    GcReason, LoopPlace, OffCpu, OffCpuReason, Pause, THREAD_CALL, Turn, Turns, WORK_CALL,
    takes_work,
};
use gctrace_stats::{rate, ratio};
use gctrace_units::LONG_PAUSE_NS;
use lengths::Lengths;
use others::WaitFor;
use spent::{IdleTime, Spent};
use std::collections::BTreeMap;

/// Places of a process where threads wait; more are not summed up.
const PLACES: usize = 256;
/// Long turns kept of a process, 150 bytes each: the longest; and long pauses. Others are left out of what turns would
/// be without collections.
const KEPT: usize = 10_000;
/// Turns that make a loop.
pub(crate) const LEAST_TURNS: u64 = 20;
/// A place where this part of a thread's waits are may be its loop.
const SHARE_OF_WAITS: u64 = 10;
/// A loop takes at least this part of the time from its first turn to the end of its process, in turns and waits.
/// Otherwise it is a part of something else: a request's connection, a child whose output is read.
const LEAST_SHARE: f64 = 0.5;
/// Who waits in `poll` less than once in as many looks has no loop there.
const LOOKS_A_WAIT: u64 = 20;
/// Loops of a process in the report, beside its pool.
const LOOPS: usize = 3;
/// Turns in the report, and turns that are searched for causes.
const LISTED: usize = 10;
const EXAMINED: usize = 100;
/// A turn, or its cause, of this part of the length of another one is as long.
const AS_LONG_RATIO: f64 = 0.8;

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
    /// Its first wait, or later: a turn that has not ended is in no count.
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
        self.places.entry(key).or_default().append(&PlaceSums::of(turns, node));
    }

    pub(crate) fn add_turn(&mut self, turn: Turn) {
        self.long.push(turn);
        if self.long.len() >= 2 * KEPT {
            self.long.sort_by_key(|turn| std::cmp::Reverse(turn.length_ns()));
            self.long.truncate(KEPT);
        }
    }

    pub(crate) fn add_pause(&mut self, pause: &Pause) {
        // Nobody waits in a turn when the interpreter ends.
        let is_in_turn = pause.reason != GcReason::Shutdown;
        if is_in_turn && pause.duration_ns() >= LONG_PAUSE_NS && self.pauses.len() < KEPT {
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

    /// The loops of the process, its pool and the threads that it starts for work, as far as it has them.
    pub(crate) fn reports(&self, about: &LoopContext<'_>) -> impl Iterator<Item = LoopReport> {
        self.inputs(about).into_iter().chain(self.takers(about)).chain(self.started(about))
    }

    /// The loop of the process: of its main thread, or else of the thread that spent most time in turns; then loops of
    /// other threads that wait for several inputs, unless they are in the background. None if no thread spends its time
    /// in one.
    fn inputs(&self, about: &LoopContext<'_>) -> Vec<LoopReport> {
        let mut loops: Vec<PlacedSums<'_>> = self
            .threads()
            .into_values()
            .filter_map(|places| innermost_loop(&places, about.tree))
            .filter(|(_, sums)| sums.is_loop(about.ended_ns))
            .collect();
        loops.sort_by_key(|((tid, _), sums)| std::cmp::Reverse((*tid == about.pid, sums.total_ns)));
        let is_service = |((_, place), sums): &PlacedSums<'_>| {
            let busy = ratio(sums.total_ns, sums.time_ns());
            gctrace_event::waits_for_many(&place.call) && busy >= Some(BACKGROUND)
        };
        let mut beside = loops.split_off(loops.len().min(1));
        beside.retain(is_service);
        let all = loops.into_iter().chain(beside).take(LOOPS);
        all.map(|of| self.input(of, about)).collect()
    }

    fn input(&self, ((tid, place), sums): PlacedSums<'_>, about: &LoopContext<'_>) -> LoopReport {
        let of_loop = |turn: &&Turn| turn.tid == *tid && turn.place == *place;
        let idle = idle_times(*tid, sums.node, about);
        let mut long: Vec<Spent<'_>> = self
            .long
            .iter()
            .filter(of_loop)
            .map(|turn| self.spent(turn, within(&idle, turn)))
            .collect();
        long.sort_by_key(|spent| spent.turn.start_ns);
        self.loop_report((*tid, place), sums, long, about)
    }

    /// Places where threads wait for input.
    fn threads(&self) -> BTreeMap<u32, Vec<PlacedSums<'_>>> {
        let mut threads: BTreeMap<u32, Vec<_>> = BTreeMap::new();
        let waits = |place: &LoopPlace| place.call != WORK_CALL && place.call != THREAD_CALL;
        for place in self.places.iter().filter(|(at, _)| waits(&at.1)) {
            threads.entry(place.0.0).or_default().push(place);
        }
        threads
    }

    fn loop_report(
        &self,
        (tid, place): (u32, &LoopPlace),
        sums: &PlaceSums,
        mut long: Vec<Spent<'_>>,
        about: &LoopContext<'_>,
    ) -> LoopReport {
        let mut turns = sums.lengths.clone();
        let mut without = sums.lengths.clone();
        let (mut longest_ns, mut longest_without_ns) = (sums.longest_ns, 0);
        let (mut idle_ns, mut collected_ns, mut collected) = (0, 0, 0);
        for turn in &long {
            let (recorded_ns, length_ns) = (turn.turn.length_ns(), turn.length_ns());
            let collections_ns = turn.collections_ns();
            turns.change(recorded_ns, length_ns);
            without.change(recorded_ns, beyond(length_ns, collections_ns));
            longest_without_ns = longest_without_ns.max(beyond(length_ns, collections_ns));
            add_to(&mut idle_ns, beyond(recorded_ns, length_ns));
            add_to(&mut collected_ns, collections_ns);
            collected += u64::from(collections_ns > 0);
        }
        if idle_ns > 0 {
            let known_ns = long.iter().map(Spent::length_ns).max().unwrap_or(0);
            longest_ns = turns.longest_ns(known_ns);
        }
        let arrivals = self.arrivals(turns.clone(), tid, &long, sums.since_ns.unwrap_or(0));
        let time_ns = sums.time_ns();
        let without = (collected > 0 || arrivals.count() > turns.count()).then(|| {
            let longest_ns = without.longest_ns(longest_without_ns);
            TurnFigures::of(&without, &without, longest_ns, beyond(time_ns, collected_ns))
        });
        long.sort_by_key(|turn| std::cmp::Reverse(turn.length_ns()));
        let mut listed: Vec<&Spent<'_>> = long.iter().take(EXAMINED).collect();
        let is_as_long =
            |turn: &&Spent<'_>| turn.length_ns() as f64 >= AS_LONG_RATIO * longest_ns as f64;
        let as_long = listed.split_off(listed.len().min(LISTED)).into_iter();
        let as_long = as_long.take_while(is_as_long).map(|turn| turn.report(about)).collect();
        LoopReport {
            trace: about.trace,
            pid: about.pid,
            tid,
            main_thread: tid == about.pid,
            threads: 1,
            call: place.call.clone(),
            line: sums.node.map(|node| about.tree.own_line(node).clone()),
            since_start_ns: duration_ns(about.started_ns, sums.since_ns.unwrap_or(0)),
            observed_ns: time_ns,
            turns: sums.lengths.count(),
            turns_per_s: rate(sums.lengths.count(), time_ns),
            sees_looks: sums.sees_looks,
            busy_ratio: ratio(beyond(sums.total_ns, idle_ns), time_ns),
            busy_periods: sums.waits,
            longest_busy_ns: sums.longest_busy_ns,
            figures: TurnFigures::of(&turns, &arrivals, longest_ns, time_ns),
            without_collections: without,
            collected_turns: collected,
            longest: listed.into_iter().map(|turn| turn.report(about)).collect(),
            as_long,
        }
    }

    /// The long turns of a loop: start on the clock of the trace, length, and time in collections, in ns, in order of time.
    pub(crate) fn long_turns(&self, of: &LoopReport) -> Vec<[u64; 3]> {
        let is_its =
            |turn: &&Turn| turn.place.call == of.call && (turn.tid == of.tid || of.is_of_several());
        let drawn =
            self.long.iter().filter(is_its).map(|turn| {
                [turn.start_ns, turn.length_ns(), self.spent(turn, &[]).collections_ns()]
            });
        let mut drawn: Vec<[u64; 3]> = drawn.collect();
        drawn.sort_unstable();
        drawn
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
    fn spent<'a>(&self, turn: &'a Turn, idle: &[IdleTime]) -> Spent<'a> {
        let span = (turn.start_ns, turn.end_ns);
        Spent::of(turn, self.collected_ns(span, Some(turn.tid)), idle)
    }

    /// Times in which an arrival waits for their end: turns, with collections of other threads before they begin or
    /// between them. `long`: long turns of this thread by start.
    fn arrivals(&self, mut turns: Lengths, tid: u32, long: &[Spent<'_>], since_ns: u64) -> Lengths {
        let others = self.pauses.iter().filter(|pause| pause.tid != tid);
        for pause in others.filter(|pause| pause.start_ns >= since_ns) {
            let next = long.partition_point(|long| long.turn.start_ns <= pause.start_ns);
            let before = next.checked_sub(1).and_then(|before| long.get(before));
            let is_in_turn = before.is_some_and(|before| before.turn.end_ns > pause.start_ns);
            let next = long.get(next).filter(|next| next.turn.start_ns < pause.end_ns);
            if let Some(next) = next.filter(|_| !is_in_turn) {
                let length_ns = next.length_ns();
                let earlier_ns = duration_ns(pause.start_ns, next.turn.start_ns);
                turns.change(length_ns, sum([length_ns, earlier_ns]));
            } else if !is_in_turn {
                turns.add_one(duration_ns(pause.start_ns, pause.end_ns));
            }
        }
        turns
    }
}

/// Where a thread waited for the next piece of work: with the stack of its loop (`own`), which may wait for other
/// descriptors too, or for the lock of a queue, the standard library's `queue.Queue` or `multiprocessing`'s, unless a
/// handler does: more frames lead to it than to the loop. In order of time.
fn idle_times(tid: u32, own: Option<NodeId>, about: &LoopContext<'_>) -> Vec<IdleTime> {
    let depth = |node| {
        let frames = names(node, about.tree);
        frames.filter(|(file, _)| !work::QUEUES.iter().any(|queue| file.ends_with(queue))).count()
    };
    let own_depth = own.map_or(0, depth);
    let mut known: BTreeMap<NodeId, bool> = BTreeMap::new();
    let mut idle = Vec::new();
    for span in about.spans.into_iter().flatten().filter(|span| span.tid == tid) {
        let (ThreadDid::Wait { reason, .. }, Some(node)) = (span.did, span.node) else {
            continue;
        };
        let is_idle = match reason {
            OffCpuReason::Poll => own == Some(node),
            OffCpuReason::Lock => *known
                .entry(node)
                .or_insert_with(|| takes_work(names(node, about.tree)) && depth(node) <= own_depth),
            _ => false,
        };
        if is_idle {
            idle.push(IdleTime { reason, span: span.span() });
        }
    }
    idle.sort_by_key(|idle| idle.span);
    idle
}

/// The files and functions of a stack, from the innermost frame on.
fn names(node: NodeId, tree: &StackTree) -> impl Iterator<Item = (&str, &str)> {
    tree.frames(node).map(|frame| (frame.file.as_str(), frame.function.as_str()))
}

/// The ones within a turn, of times in order.
fn within<'a>(idle: &'a [IdleTime], turn: &Turn) -> &'a [IdleTime] {
    let first = idle.partition_point(|idle| idle.span.1 <= turn.start_ns);
    let last = idle.partition_point(|idle| idle.span.0 < turn.end_ns);
    gctrace_units::part(idle, first..last)
}

/// Of the places where a thread waits often, the one that the fewest frames lead to: a loop calls what waits elsewhere.
fn innermost_loop<'a>(places: &[PlacedSums<'a>], tree: &StackTree) -> Option<PlacedSums<'a>> {
    let places = || places.iter().filter(|(at, sums)| !sums.only_looks(&at.1));
    let most = places().map(|(_, sums)| sums.lengths.count()).max()?;
    let often = places().filter(|(_, sums)| sums.lengths.count() >= most / SHARE_OF_WAITS);
    let depth = |sums: &PlaceSums| sums.node.map_or(usize::MAX, |node| tree.frames(node).count());
    let first = often.min_by_key(|(_, sums)| (depth(sums), std::cmp::Reverse(sums.waited_ns)))?;
    Some(*first)
}

impl PlaceSums {
    fn of(turns: &Turns, node: Option<NodeId>) -> Self {
        let mut lengths = Lengths::default();
        lengths.add(&turns.lengths);
        // The first counts of a place are of up to a second.
        let counted_ns = sum([turns.total_ns, turns.waited_ns]);
        let since_ns = beyond(turns.until_ns, counted_ns).max(turns.at_ns);
        Self {
            lengths,
            total_ns: turns.total_ns,
            longest_ns: turns.longest_ns,
            waits: turns.waits,
            waited_ns: turns.waited_ns,
            longest_busy_ns: turns.longest_busy_ns,
            sees_looks: turns.sees_looks,
            node,
            since_ns: Some(since_ns),
        }
    }

    /// Adds later turns, or another thread's at such a place.
    fn append(&mut self, other: &Self) {
        self.lengths.append(&other.lengths);
        add_to(&mut self.total_ns, other.total_ns);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        add_to(&mut self.waits, other.waits);
        add_to(&mut self.waited_ns, other.waited_ns);
        self.longest_busy_ns = self.longest_busy_ns.max(other.longest_busy_ns);
        self.sees_looks |= other.sees_looks;
        self.node = other.node.or(self.node);
        self.since_ns = match (self.since_ns, other.since_ns) {
            (Some(own), Some(others)) => Some(own.min(others)),
            (own, others) => own.or(others),
        };
    }

    /// Time in turns and waits, in ns.
    fn time_ns(&self) -> u64 {
        sum([self.total_ns, self.waited_ns])
    }

    /// Whether something else waits: libzmq looks at its own descriptor whenever it sends.
    fn only_looks(&self, place: &LoopPlace) -> bool {
        place.call == "poll" && self.waits < self.lengths.count() / LOOKS_A_WAIT
    }

    fn is_loop(&self, ended_ns: u64) -> bool {
        self.lengths.count() >= LEAST_TURNS && self.takes_most_time(ended_ns)
    }

    fn takes_most_time(&self, ended_ns: u64) -> bool {
        let observed_ns = self.since_ns.map_or(0, |since_ns| duration_ns(since_ns, ended_ns));
        self.time_ns() as f64 >= LEAST_SHARE * observed_ns as f64
    }
}

impl Spent<'_> {
    fn report(&self, about: &LoopContext<'_>) -> TurnReport {
        let [executed, others] = about.spans;
        TurnReport {
            since_start_ns: duration_ns(about.started_ns, self.turn.start_ns),
            length_ns: self.length_ns(),
            parts: self.parts(executed.iter().chain(others), about.tree),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn turn(start_ms: u64, end_ms: u64) -> Turn {
        Turn { start_ns: start_ms * MS, end_ns: end_ms * MS, tid: 1, ..Turn::default() }
    }

    /// Collections of another thread: one before a turn, one in it, one while the loop waits, one before the loop.
    #[test]
    fn arrivals_wait_for_collections_between_turns() {
        let turns = [turn(130, 160), turn(300, 340)];
        let mut sums = LoopSums::default();
        for (start_ms, end_ms) in [(5, 50), (100, 150), (310, 330), (500, 560)] {
            let pause =
                Pause { tid: 2, start_ns: start_ms * MS, end_ns: end_ms * MS, ..Pause::default() };
            sums.add_pause(&pause);
        }
        let long: Vec<Spent<'_>> = turns.iter().map(|turn| sums.spent(turn, &[])).collect();
        let mut lengths = Lengths::default();
        for turn in &long {
            lengths.add_one(turn.length_ns());
        }
        let found = sums.arrivals(lengths, 1, &long, 60 * MS);
        let mut expected = Lengths::default();
        for length_ms in [60, 40, 60] {
            expected.add_one(length_ms * MS);
        }
        assert_eq!(found, expected);
    }

    #[test]
    fn who_only_looks_has_no_loop() {
        let place = |call: &str| LoopPlace { call: call.to_owned(), argument: 4 };
        let mut sums = PlaceSums { waits: 3, ..PlaceSums::default() };
        sums.lengths.add(&[(100, 80)]);
        assert!(sums.only_looks(&place("poll")));
        assert!(!sums.only_looks(&place("epoll_wait")));
        sums.waits = 4;
        assert!(!sums.only_looks(&place("poll")));
    }

    #[test]
    fn the_longest_turns_are_kept() {
        let mut sums = LoopSums::default();
        for number in 0..3 * KEPT as u64 {
            sums.add_turn(turn(number, number + 1 + number % 1_000));
        }
        assert!(sums.long.len() < 2 * KEPT);
        let longest = sums.long.iter().filter(|turn| turn.length_ns() == 1_000 * MS);
        assert_eq!(longest.count(), 30);
    }
}
