//! Changes of the collector's settings as changes of pauses.
//!
//! Owns the length of each pause and the added pauses, as changes of a replay with the timelines of
//! all programs. Each change has a pessimistic and an optimistic version; its effect on the run is
//! not computed here.

use super::program::{Assumption, Certainty, ProgramModel, known, part_of, traversed};
use crate::gpu::replay::{InsertedPause, PauseLength, ReplayChange};
use crate::gpu::timeline::PauseIndex;
use crate::report::AdviceId;
use crate::spans::PauseSpan;
use crate::time::{after, later, scaled, signed, sum};

/// Pause time removed minus pause time added, in ns.
pub(super) fn saved_pause_ns(change: &ReplayChange, programs: &[ProgramModel<'_>]) -> i64 {
    differences(change, programs).fold(0, later)
}

/// Pause time removed plus pause time added, in ns.
pub(super) fn changed_pause_ns(change: &ReplayChange, programs: &[ProgramModel<'_>]) -> u64 {
    sum(differences(change, programs).map(i64::unsigned_abs))
}

/// Whether no pause becomes longer and none is added.
pub(super) fn only_shortens(change: &ReplayChange, programs: &[ProgramModel<'_>]) -> bool {
    differences(change, programs).all(|less_ns| less_ns >= 0)
}

/// For each pause by how much it becomes shorter; negative: longer, or new.
fn differences(change: &ReplayChange, programs: &[ProgramModel<'_>]) -> impl Iterator<Item = i64> {
    let changed = change.lengths.iter().map(move |new| {
        let timeline = programs[new.timeline as usize].timeline;
        let measured_ns = timeline.pauses[new.pause].duration_ns();
        signed(measured_ns) - signed(new.length_ns)
    });
    let added = change.inserted.iter();
    changed.chain(added.map(move |new| -signed(new.length_ns)))
}

/// Removes the pauses for which `predicate` is true.
fn without(
    programs: &[ProgramModel<'_>],
    predicate: impl Fn(&ProgramModel<'_>, &PauseSpan) -> bool,
) -> ReplayChange {
    let mut plan = ReplayChange::default();
    for (index, program) in (0..).zip(programs) {
        let removed = program.pauses().filter(|(_, pause)| predicate(program, pause));
        plan.remove(index, removed.map(|(pause, _)| pause));
    }
    plan
}

/// `gc.disable()`: removes all automatic collections, on the optimistic side also collections of
/// unknown reason.
#[must_use]
pub fn disable(programs: &[ProgramModel<'_>], side: Assumption) -> ReplayChange {
    let unsure = side == Assumption::Optimistic;
    without(programs, |program, pause| program.automatic(pause).or(unsure))
}

/// No collection at all while the program runs.
#[must_use]
pub fn without_any(programs: &[ProgramModel<'_>]) -> ReplayChange {
    without(programs, |_, _| true)
}

/// The program does not ask for collections.
#[must_use]
pub fn without_explicit(programs: &[ProgramModel<'_>], side: Assumption) -> ReplayChange {
    let unsure = side == Assumption::Pessimistic;
    without(programs, |program, pause| !program.automatic(pause).or(unsure))
}

/// `gc.freeze()` after setup: later full collections do not traverse the objects that existed then.
/// All together take what a simulated collector takes (`remedy.rs`), which may run more of them.
/// Where it cannot be simulated, the length of each is assumed to be proportional to the objects
/// that it traverses.
#[must_use]
pub fn freeze(programs: &[ProgramModel<'_>], side: Assumption) -> ReplayChange {
    let mut plan = ReplayChange::default();
    for (index, program) in (0..).zip(programs) {
        let warm_ns = program.warm_ns();
        let frozen = frozen(program, warm_ns, side);
        let parts = program.simulated(AdviceId::Freeze, side);
        let later = program.pauses().filter(|(_, pause)| pause.start_ns >= warm_ns);
        for (pause, span) in later {
            if !program.full(span).or(side == Assumption::Optimistic) {
                continue;
            }
            let length_ns = match (parts, traversed(span), side) {
                (Some(parts), _, _) => part_of(span.duration_ns(), parts.full),
                (None, Some(traversed), _) => {
                    let left = frozen.map_or(traversed, |frozen| traversed - frozen.min(traversed));
                    scaled(span.duration_ns(), left, traversed)
                }
                (None, None, Assumption::Pessimistic) => continue,
                (None, None, Assumption::Optimistic) => 0,
            };
            plan.lengths.push(PauseLength { timeline: index, pause, length_ns });
        }
    }
    plan
}

/// Objects in the heap at that time: pessimistic, those that the last collection before left;
/// optimistic, those that the next one left too.
fn frozen(program: &ProgramModel<'_>, at_ns: u64, side: Assumption) -> Option<u64> {
    let counts = program.pauses().filter_map(|(_, pause)| {
        let objects = known(pause.objects)?;
        Some((pause, objects))
    });
    let (before, after): (Vec<_>, Vec<_>) = counts.partition(|(pause, _)| pause.end_ns <= at_ns);
    let last = before.last().map(|(_, objects)| *objects);
    let next = after
        .iter()
        .find(|(pause, _)| program.full(pause) != Certainty::No)
        .map(|(_, objects)| *objects);
    match side {
        Assumption::Pessimistic => last,
        Assumption::Optimistic => last.max(next),
    }
}

/// Factor by which threshold 0 is raised.
pub const RAISED: usize = 10;

/// Threshold 0 ten times as high. Ten collections of younger generations become one, and full ones
/// fewer, with the time that a simulated collector takes (`remedy.rs`): for the better on the
/// optimistic side, for the worse on the pessimistic one.
///
/// Where the collector is not simulated (unknown generations, free-threaded builds), pessimistic:
/// each collection of younger generations takes as long as the ten it replaces, and full ones stay;
/// optimistic: as long as one of them, and full ones become less frequent as far as threshold 2
/// delayed them, rather than CPython's rule that a quarter of the heap has to be new.
#[must_use]
pub fn thresholds(programs: &[ProgramModel<'_>], side: Assumption) -> ReplayChange {
    let mut plan = ReplayChange::default();
    for (index, program) in (0..).zip(programs) {
        let automatic: Vec<(PauseIndex, &PauseSpan)> = program
            .pauses()
            .filter(|(_, pause)| program.automatic(pause).or(side == Assumption::Optimistic))
            .collect();
        let (full, partial): (Vec<_>, Vec<_>) =
            automatic.iter().copied().partition(|(_, pause)| program.full(pause) == Certainty::Yes);
        let parts = program.simulated(AdviceId::RaiseThreshold, side);
        for group in partial.chunks(RAISED) {
            let sum_ns = sum(group.iter().map(|(_, pause)| pause.duration_ns()));
            let length_ns = match (&parts, side) {
                (Some(parts), _) => part_of(sum_ns, parts.partial),
                (None, Assumption::Pessimistic) => sum_ns,
                // Too few: the threshold would not have been passed before the end.
                (None, Assumption::Optimistic) if group.len() < RAISED => 0,
                (None, Assumption::Optimistic) => sum_ns / RAISED as u64,
            };
            merge(&mut plan, index, group, length_ns);
        }
        match (parts, side) {
            (Some(parts), _) => {
                for group in full.chunks(becoming_one(parts.full)) {
                    let sum_ns = sum(group.iter().map(|(_, pause)| pause.duration_ns()));
                    merge(&mut plan, index, group, part_of(sum_ns, parts.full));
                }
            }
            (None, Assumption::Pessimistic) => {}
            (None, Assumption::Optimistic) => {
                let rarer = rarer(program, &automatic);
                for group in full.chunks(rarer) {
                    let length_ns = match group {
                        [.., (_, last)] if group.len() == rarer => last.duration_ns(),
                        _ => 0,
                    };
                    merge(&mut plan, index, group, length_ns);
                }
            }
        }
    }
    plan
}

/// How many full collections become one if all take that part of their time: 1 to [`RAISED`].
fn becoming_one(part: f64) -> usize {
    (1..RAISED).find(|count| part * (*count as f64) >= 0.75).unwrap_or(RAISED)
}

/// Instead of several pauses one, at the time of the last.
fn merge(
    plan: &mut ReplayChange,
    timeline: u32,
    group: &[(PauseIndex, &PauseSpan)],
    length_ns: u64,
) {
    if let Some(((pause, _), before)) = group.split_last() {
        plan.remove(timeline, before.iter().map(|(pause, _)| *pause));
        plan.lengths.push(PauseLength { timeline, pause: *pause, length_ns });
    }
}

/// How many full collections become one: ten if each ran as soon as threshold 2 allowed, one if ten
/// times as many collections of the middle generation ran in between already.
fn rarer(program: &ProgramModel<'_>, automatic: &[(PauseIndex, &PauseSpan)]) -> usize {
    if program.free_threaded {
        return RAISED;
    }
    let count = |generation| {
        let automatic = automatic.iter();
        automatic.filter(|(_, pause)| pause.generation == generation).count()
    };
    let between = (count(1) / count(2).max(1)).max(1);
    (RAISED * program.middle_per_full() as usize / between).clamp(1, RAISED)
}

/// The length of a full collection at a given time, by those before and after it.
#[derive(Debug)]
pub struct FullLengths {
    /// Start and length of each pause, by start, for each program.
    by_program: Vec<Vec<(u64, u64)>>,
    /// Shortest and longest of all.
    all: (u64, u64),
}

impl FullLengths {
    /// `None` where no such collection was recorded.
    #[must_use]
    pub fn of(programs: &[ProgramModel<'_>]) -> Option<Self> {
        let by_program: Vec<Vec<(u64, u64)>> = programs
            .iter()
            .map(|program| {
                let full =
                    program.pauses().filter(|(_, pause)| program.full(pause) == Certainty::Yes);
                full.map(|(_, pause)| (pause.start_ns, pause.duration_ns())).collect()
            })
            .collect();
        let lengths = || by_program.iter().flatten().map(|(_, length_ns)| *length_ns);
        let all = (lengths().min()?, lengths().max()?);
        Some(Self { by_program, all })
    }

    /// Shorter and longer of the neighbors; for a program without any, shortest and longest of the
    /// others.
    #[must_use]
    pub fn at(&self, program: usize, at_ns: u64) -> (u64, u64) {
        let pauses = &self.by_program[program];
        let next = pauses.partition_point(|(timestamp_ns, _)| *timestamp_ns <= at_ns);
        let after = pauses.get(next);
        let before = next.checked_sub(1).and_then(|last| pauses.get(last));
        match (before.or(after), after.or(before)) {
            (Some((_, one)), Some((_, other))) => (*one.min(other), *one.max(other)),
            _ => self.all,
        }
    }

    /// Shortest and longest full collection of all programs, in ns.
    #[must_use]
    pub fn range(&self) -> (u64, u64) {
        self.all
    }
}

/// No automatic collections, and a full one at the start of every step whose number is divisible by
/// `every`, on all ranks: as long as the recorded ones around it, at worst with the time to free the
/// garbage that waited. The first step of a recording has none.
#[must_use]
pub fn planned(
    programs: &[ProgramModel<'_>],
    lengths: &FullLengths,
    every: u64,
    side: Assumption,
) -> ReplayChange {
    let mut plan = disable(programs, side);
    for (index, program) in (0..).zip(programs) {
        let freeing_ns = program.freeing_ns(every);
        for step in program.steps().iter().skip(1) {
            if !step.number.is_multiple_of(every.max(1)) {
                continue;
            }
            let (shorter_ns, longer_ns) = lengths.at(index as usize, step.start_ns);
            plan.inserted.push(InsertedPause {
                timeline: index,
                thread: step.thread,
                at_ns: step.start_ns,
                length_ns: side.of([shorter_ns, after(longer_ns, freeing_ns)]),
            });
        }
    }
    plan
}
