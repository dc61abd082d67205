//! `--mode both`: merges the pauses that both sources report.
//!
//! Pure. Owns the rule: same process, same thread, overlapping in time. A thread runs one
//! collection at a time, so pauses of one source never overlap each other, and at most one of the
//! other source fits best.

use gctrace_event::{EventSource, Pause};
use std::collections::{BTreeMap, HashMap};

/// Polls of all sources before a pause stops waiting for its other half. There are at least 25
/// polls per second; both halves are written within microseconds, unless the thread is stopped
/// between them.
const ROUNDS: u32 = 25;

/// How many pauses were reported by both sources and how many by only one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SourceTotals {
    pub both: u64,
    pub only_probes: u64,
    pub only_injected: u64,
}

/// Pauses waiting for their other half.
#[derive(Default)]
pub(crate) struct PauseMerger {
    /// By process and thread.
    waiting: HashMap<(u32, u32), ThreadPauses>,
    round: u32,
    counts: SourceTotals,
}

#[derive(Default)]
struct ThreadPauses {
    probed: UnmatchedPauses,
    injected: UnmatchedPauses,
}

/// Pauses of one source by their start, with the round in which they arrived. The second number of
/// the key keeps apart pauses with the same start, which damaged data may contain.
#[derive(Default)]
struct UnmatchedPauses(BTreeMap<(u64, u32), (Pause, u32)>);

impl PauseMerger {
    /// Takes a pause of either source; returns the merged one if its other half is waiting.
    pub(crate) fn take(&mut self, pause: &Pause) -> Option<Pause> {
        let thread = self.waiting.entry((pause.pid, pause.tid)).or_default();
        let (own, other) = match is_probed(pause) {
            true => (&mut thread.probed, &mut thread.injected),
            false => (&mut thread.injected, &mut thread.probed),
        };
        let Some(half) = other.take_overlapping(pause) else {
            own.add(pause.clone(), self.round);
            return None;
        };
        self.counts.both += 1;
        Some(if is_probed(pause) { joined(pause.clone(), &half) } else { joined(half, pause) })
    }

    /// All sources were read once more: releases pauses whose other half is overdue.
    pub(crate) fn next_round(&mut self) -> Vec<Pause> {
        self.round += 1;
        let now = self.round;
        self.release(|round| round + ROUNDS < now)
    }

    /// No more pauses will come: releases all that wait.
    pub(crate) fn finish(&mut self) -> Vec<Pause> {
        self.release(|_| true)
    }

    fn release(&mut self, which: impl Fn(u32) -> bool) -> Vec<Pause> {
        let mut released = Vec::new();
        let counts = &mut self.counts;
        self.waiting.retain(|_, thread| {
            counts.only_probes += thread.probed.release(&which, &mut released);
            counts.only_injected += thread.injected.release(&which, &mut released);
            !(thread.probed.0.is_empty() && thread.injected.0.is_empty())
        });
        released
    }

    /// Totals of the pauses released so far; those that still wait are not counted.
    pub(crate) fn counts(&self) -> SourceTotals {
        self.counts
    }
}

impl UnmatchedPauses {
    fn add(&mut self, pause: Pause, round: u32) {
        let begin = pause.start_ns;
        let last = self.0.range((begin, 0)..=(begin, u32::MAX)).next_back();
        let number = last.map_or(0, |((_, number), _)| number + 1);
        self.0.insert((begin, number), (pause, round));
    }

    /// Takes the pause with the longest overlap with `pause`.
    fn take_overlapping(&mut self, pause: &Pause) -> Option<Pause> {
        let begun = self.0.range(..=(pause.end_ns, u32::MAX)).rev();
        let fitting = begun
            .map(|(key, (other, _))| (overlap(other, pause), *key))
            .take_while(|(overlap, _)| *overlap >= 0);
        let (_, key) = fitting.max()?;
        Some(self.0.remove(&key)?.0)
    }

    /// Returns the number of released pauses.
    fn release(&mut self, which: impl Fn(u32) -> bool, released: &mut Vec<Pause>) -> u64 {
        let before = released.len();
        self.0.retain(|_, (pause, round)| {
            let goes = which(*round);
            if goes {
                released.push(pause.clone());
            }
            !goes
        });
        (released.len() - before) as u64
    }
}

fn is_probed(pause: &Pause) -> bool {
    pause.source == EventSource::Probes
}

/// Nanoseconds of overlap; negative: the time between the pauses.
fn overlap(one: &Pause, other: &Pause) -> i128 {
    let end = one.end_ns.min(other.end_ns);
    let begin = one.start_ns.max(other.start_ns);
    i128::from(end) - i128::from(begin)
}

/// The probes' pause, with the fields that only the library knows.
fn joined(probed: Pause, injected: &Pause) -> Pause {
    let generation = match probed.generation {
        Pause::UNKNOWN_GENERATION => injected.generation,
        known => known,
    };
    Pause {
        generation,
        collected: probed.collected.or(injected.collected),
        uncollectable: probed.uncollectable.or(injected.uncollectable),
        interpreter: probed.interpreter.or(injected.interpreter),
        stack: probed.stack.or(injected.stack),
        source: EventSource::Both { start_ns: injected.start_ns, end_ns: injected.end_ns },
        ..probed
    }
}

#[cfg(test)]
mod tests;
