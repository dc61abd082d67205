//! Merges two timelines of one process.
//!
//! Owns the source of each part: operations, calls, annotations and steps are the profiler's,
//! pauses are gctrace's, on the profiler's clock.

use super::thread_times::{MatchedThread, TimelinePair};
use super::{AlignedBy, ClockReport, MergeNote, RecognizedBy};
use crate::figure::Basis;
use crate::gpu::timeline::{StepSpan, ThreadIndex, Timeline};
use crate::spans::index::Index;
use crate::spans::{PauseSpan, StepSource};
use crate::time::intervals::Intervals;
use crate::time::offset::{ClockOffset, MATCH_NS};
use crate::time::{after, beyond, difference};
use std::collections::HashMap;

/// The result of merging two timelines.
pub(super) struct MergedTimeline {
    pub(super) timeline: Timeline,
    pub(super) clock: ClockReport,
    /// Starts of the profiler's pauses that are gctrace's too.
    pub(super) repeated: Vec<u64>,
}

/// Merges timelines that overlap by their wall clocks.
#[expect(clippy::expect_used, reason = "`merge.rs` has compared their times")]
pub(super) fn join(
    recorded: &Timeline,
    profiled: &Timeline,
    recognized_by: RecognizedBy,
) -> MergedTimeline {
    let pair = TimelinePair { recorded, profiled };
    let unix_offset_ns = |timeline: &Timeline| {
        let known = timeline.unix_offset_ns;
        known.expect("invariant: both have a wall clock")
    };
    let by_wall_clock = difference(unix_offset_ns(recorded), unix_offset_ns(profiled));
    let (aligned_by, offset) = align(pair, by_wall_clock);
    let mut clock = clock(pair, recognized_by, aligned_by, offset);
    clock.beyond_wall_clock_ns = difference(offset.offset_ns, by_wall_clock);
    let mut joint = TimelineMerge {
        timeline: profiled.clone(),
        threads: HashMap::new(),
        guessed: Vec::new(),
        repeated: Vec::new(),
        pair,
        offset_ns: offset.offset_ns,
        window: profiled.window().expect("invariant: it has times"),
    };
    joint.timeline.pid = recorded.pid;
    joint.timeline.process_trace = recorded.process_trace;
    joint.timeline.namespace_pid = recorded.namespace_pid;
    joint.timeline.rank = profiled.rank.or(recorded.rank);
    joint.timeline.world_size = profiled.world_size.or(recorded.world_size);
    joint.timeline.is_ours = true;
    joint.take_pauses(&mut clock);
    joint.take_steps();
    joint.note_guesses(&mut clock);
    MergedTimeline { timeline: joint.timeline, clock, repeated: joint.repeated }
}

fn align(pair: TimelinePair<'_>, guess_ns: i64) -> (AlignedBy, ClockOffset) {
    if let Some(offset) = pair.by_calls(guess_ns) {
        (AlignedBy::Calls, offset)
    } else if let Some(offset) = pair.by_pauses(guess_ns) {
        (AlignedBy::Pauses, offset)
    } else {
        (AlignedBy::WallClock, ClockOffset { offset_ns: guess_ns, error_ns: 0, matches: 0 })
    }
}

fn clock(
    pair: TimelinePair<'_>,
    recognized_by: RecognizedBy,
    aligned_by: AlignedBy,
    offset: ClockOffset,
) -> ClockReport {
    let measured = aligned_by != AlignedBy::WallClock;
    ClockReport {
        basis: if measured { Basis::Measured } else { Basis::Inferred },
        trace: pair.profiled.trace,
        gc_trace: pair.recorded.trace,
        pid: pair.recorded.pid,
        profiler_pid: pair.profiled.pid,
        recognized_by,
        aligned_by,
        offset_ns: offset.offset_ns,
        beyond_wall_clock_ns: 0,
        error_ns: if measured { Some(offset.error_ns) } else { None },
        error_basis: aligned_by.error_basis().to_owned(),
        matches: offset.matches,
        pauses: 0,
        pauses_outside: 0,
        pauses_in_both: 0,
        pauses_of_profiler_only: 0,
        notes: Vec::new(),
    }
}

/// A timeline that is being made of two.
struct TimelineMerge<'a> {
    timeline: Timeline,
    /// By index of gctrace's thread, the index of the same thread here.
    threads: HashMap<ThreadIndex, ThreadIndex>,
    /// Thread ids that were not found in the profiler's trace.
    guessed: Vec<MergeNote>,
    /// Starts of the profiler's pauses that are gctrace's too.
    repeated: Vec<u64>,
    pair: TimelinePair<'a>,
    offset_ns: i64,
    /// First and last time of the profiler's.
    window: (u64, u64),
}

impl TimelineMerge<'_> {
    /// gctrace's pauses within the profiler's time, and the pauses that only the profiler has.
    fn take_pauses(&mut self, clock: &mut ClockReport) {
        let TimelinePair { recorded, profiled } = self.pair;
        let (first, last) = self.window;
        let mut pauses: Vec<PauseSpan> = Vec::new();
        for pause in &recorded.pauses {
            match (self.moved(pause.start_ns), self.moved(pause.end_ns)) {
                (Some(start_ns), Some(end_ns)) if end_ns >= first && start_ns <= last => {
                    let thread = self.thread(pause.thread);
                    pauses.push(PauseSpan { start_ns, end_ns, thread, ..*pause });
                }
                _ => clock.pauses_outside += 1,
            }
        }
        clock.pauses = pauses.len() as u64;
        let slack_ns = MATCH_NS.unsigned_abs();
        let known: Intervals = pauses.iter().map(|one| around(one, slack_ns)).collect();
        for pause in &profiled.pauses {
            let (start_ns, end_ns) = around(pause, 0);
            if known.length_within(start_ns, end_ns) > 0 {
                self.repeated.push(pause.start_ns)
            } else {
                clock.pauses_of_profiler_only += 1;
                // Frame ids refer to gctrace's trace.
                pauses.push(PauseSpan { stack: None, ..*pause });
            }
        }
        clock.pauses_in_both = self.repeated.len() as u64;
        pauses.sort_by_key(|pause| pause.start_ns);
        self.timeline.pauses = pauses;
    }

    /// The profiler's steps, or gctrace's if it has none or only inferred ones.
    fn take_steps(&mut self) {
        let TimelinePair { recorded, profiled } = self.pair;
        let inferred = |step: &StepSpan| step.source == StepSource::PeriodicLaunches;
        match profiled.steps.first() {
            Some(first) if recorded.steps.is_empty() || !inferred(first) => return,
            _ => self.timeline.steps.clear(),
        }
        let (first, last) = self.window;
        for step in &recorded.steps {
            let moved = (self.moved(step.start_ns), self.moved(step.end_ns));
            if let (Some(start_ns), Some(end_ns)) = moved
                && start_ns >= first
                && end_ns <= last
            {
                let thread = self.thread(step.thread);
                self.timeline.steps.push(StepSpan { start_ns, end_ns, thread, ..*step });
            }
        }
    }

    fn moved(&self, at_ns: u64) -> Option<u64> {
        at_ns.checked_add_signed(self.offset_ns)
    }

    /// The index here of a thread of gctrace's timeline.
    fn thread(&mut self, recorded: ThreadIndex) -> ThreadIndex {
        if let Some(known) = self.threads.get(&recorded) {
            return *known;
        }
        let found = match self.same(recorded) {
            Some(found) => found,
            None => self.coinciding_or_new(recorded),
        };
        self.threads.insert(recorded, found);
        found
    }

    /// The profiler's thread of the same id.
    fn same(&self, recorded: ThreadIndex) -> Option<ThreadIndex> {
        let who = self.pair.who(self.pair.recorded, recorded);
        if who == MatchedThread::Unknown {
            return None;
        }
        let mut threads = Index::all(&self.pair.profiled.threads);
        threads.find(|thread| self.pair.who(self.pair.profiled, *thread) == who)
    }

    /// A thread that does the same things at the same time. For a main thread, the thread with most of the steps,
    /// else of the calls; otherwise a thread unseen by the profiler.
    fn coinciding_or_new(&mut self, recorded: ThreadIndex) -> ThreadIndex {
        if !self.pair.same_ids()
            && let Some(found) = self.pair.coinciding(recorded, self.offset_ns)
        {
            return found;
        }
        let thread = self.pair.recorded.threads[recorded].clone();
        if self.pair.who(self.pair.recorded, recorded) == MatchedThread::Main
            && let Some(busiest) = self.busiest()
        {
            let tid = self.pair.profiled.threads[busiest].tid;
            self.guessed.push(MergeNote::AssumedMainThread(tid));
            return busiest;
        }
        if !self.pair.same_ids() {
            self.guessed.push(MergeNote::SeparateThread(thread.tid));
        }
        Index::push(&mut self.timeline.threads, thread)
    }

    /// The profiler's thread with most steps, else with most calls.
    fn busiest(&self) -> Option<ThreadIndex> {
        let profiled = self.pair.profiled;
        let steps = most(profiled.steps.iter().map(|step| step.thread));
        steps.or_else(|| most(profiled.calls.iter().map(|call| call.thread)))
    }

    fn note_guesses(&mut self, clock: &mut ClockReport) {
        let guessed = self.guessed.drain(..);
        let quiet = if clock.pauses == 0 { Some(MergeNote::NoCollection) } else { None };
        clock.notes = guessed.chain(quiet).collect();
    }
}

fn most(threads: impl Iterator<Item = ThreadIndex>) -> Option<ThreadIndex> {
    let mut counts: HashMap<ThreadIndex, usize> = HashMap::new();
    for thread in threads {
        *counts.entry(thread).or_default() += 1;
    }
    let most = counts.into_iter();
    most.max_by_key(|(thread, count)| (*count, std::cmp::Reverse(*thread)))
        .map(|(thread, _)| thread)
}

/// The time of a pause and how much probes may miss it by, on both sides; the end included.
fn around(pause: &PauseSpan, slack_ns: u64) -> (u64, u64) {
    // A pause may be at either end of all times.
    let start_ns = beyond(pause.start_ns, slack_ns);
    (start_ns, after(pause.end_ns, slack_ns + 1))
}
