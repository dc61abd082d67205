//! `--mode both`: joins the two records of a pause that both sources saw.
//!
//! Pure. Owns how long a record waits for the other one, how many pauses only one source has, and the processes with
//! different clocks in the two sources after all. [`overlap_ns`] decides whether two records can be of one pause; a
//! source has at most one record of each pause.

use crate::record::losses::CollectionLosses;
use gctrace_event::{EventSource, Pause, UnpairedPauses, overlap_ns};
use std::collections::{BTreeMap, HashMap, HashSet};

/// How far beyond the end of a pause the other source must have been read before the pause is
/// written without it. Both records are written within microseconds, unless the thread is stopped or starved in
/// between; a record that is being written holds up later records in a ring of the library for 1 s
/// (`gctrace_ring::RingConsumer`).
const PATIENCE_NS: u64 = 2_000_000_000;

/// Most records that wait, of some 400 bytes each; if there are more, the older half is written.
const MOST_WAITING: usize = 1 << 16;

/// Up to when each source was read, in ns of CLOCK_MONOTONIC: every record written before then is
/// known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadUntil {
    pub probes_ns: u64,
    pub injected_ns: u64,
}

/// How many pauses were written as seen by both sources and by only one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceTotals {
    pub both: u64,
    pub only_probes: u64,
    pub only_injected: u64,
    /// Of the pauses from one source: the other's record came after they were written.
    pub late: u64,
    /// Pauses of the library that are left out: its process has another clock than the probes.
    pub other_clock: u64,
}

/// Pauses waiting for their other record.
#[derive(Default)]
pub(crate) struct PauseMerger {
    /// By process and thread.
    waiting: HashMap<(u32, u32), ThreadPauses>,
    /// Pauses written without the other record.
    alone: UnpairedPauses,
    counts: SourceTotals,
    losses: CollectionLosses,
    clocks: ClockCheck,
}

/// Whether the sources have one clock in a process: with the first pair they have. Until then pauses of the library wait
/// for as many of the probes, of the same threads and generations, as there are: they are the same pauses at other times.
#[derive(Default)]
struct ClockCheck {
    one: HashSet<u32>,
    /// Numbers of pauses of the probes in other processes, by process, thread and generation.
    probed: HashMap<(u32, u32, u8), u64>,
    /// Pauses of the library that are left out, by process.
    other: BTreeMap<u32, u64>,
}

impl ClockCheck {
    fn see(&mut self, pause: &Pause) {
        if is_probed(pause) && !self.one.contains(&pause.pid) {
            *self.probed.entry((pause.pid, pause.tid, pause.generation)).or_default() += 1;
        }
    }

    fn joined(&mut self, pid: u32) {
        if self.one.insert(pid) {
            self.probed.retain(|(of, ..), _| *of != pid);
        }
    }

    /// Whether a pause of the library is probably recorded by the probes with another time.
    fn is_of_other(&self, pause: &Pause) -> bool {
        let kind = (pause.pid, pause.tid, pause.generation);
        !is_probed(pause) && matches!(self.probed.get(&kind), Some(count) if *count > 0)
    }

    /// The same for a pause that waits no longer; each pause of the probes stands for one.
    fn leave_out(&mut self, pause: &Pause) -> bool {
        let is_left_out = self.is_of_other(pause);
        if is_left_out {
            let kind = (pause.pid, pause.tid, pause.generation);
            self.probed.entry(kind).and_modify(|count| *count -= 1);
            *self.other.entry(pause.pid).or_default() += 1;
        }
        is_left_out
    }
}

#[derive(Default)]
struct ThreadPauses {
    probed: UnmatchedPauses,
    injected: UnmatchedPauses,
}

/// Pauses of one source by their start. The second number of the key keeps apart pauses with the same start, possible
/// in damaged data.
#[derive(Default)]
struct UnmatchedPauses(BTreeMap<(u64, u32), Pause>);

impl PauseMerger {
    /// Takes a pause of either source; returns the merged one if its other record is waiting.
    pub(crate) fn take(&mut self, pause: &Pause) -> Option<Pause> {
        if is_probed(pause) {
            self.losses.probed(pause.pid);
        }
        self.clocks.see(pause);
        let thread = self.waiting.entry((pause.pid, pause.tid)).or_default();
        let (same_source, other) = if is_probed(pause) {
            (&mut thread.probed, &mut thread.injected)
        } else {
            (&mut thread.injected, &mut thread.probed)
        };
        if let Some(half) = other.take_overlapping(pause) {
            self.counts.both += 1;
            self.clocks.joined(pause.pid);
            return Some(if is_probed(pause) {
                joined(pause.clone(), &half)
            } else {
                joined(half, pause)
            });
        }
        if !self.alone.take_other(pause) {
            same_source.add(pause.clone());
            return None;
        }
        self.counts.late += 1;
        self.clocks.joined(pause.pid);
        if is_probed(pause) {
            self.losses.came_late(pause.pid);
        }
        None
    }

    /// Both sources were read that far: releases pauses with an overdue other record.
    pub(crate) fn release(&mut self, read: ReadUntil) -> Vec<Pause> {
        let mut released = self.release_if(|pause, clocks| {
            let other_ns = if is_probed(pause) { read.injected_ns } else { read.probes_ns };
            gctrace_units::duration_ns(pause.end_ns, other_ns) >= PATIENCE_NS
                && !clocks.is_of_other(pause)
        });
        let waiting = self.waiting.values().flat_map(ThreadPauses::all);
        let mut ends: Vec<u64> = waiting.map(|pause| pause.end_ns).collect();
        if ends.len() > MOST_WAITING {
            let middle = ends.len() / 2;
            let (_, newest_ns, _) = ends.select_nth_unstable(middle);
            let newest_ns = *newest_ns;
            released.extend(self.release_if(|pause, _| pause.end_ns <= newest_ns));
        }
        released
    }

    /// No more pauses will come: releases all waiting ones.
    pub(crate) fn finish(&mut self) -> Vec<Pause> {
        self.release_if(|_, _| true)
    }

    /// By process the number of pauses of the library that are left out, since its clock is another one.
    pub(crate) fn of_other_clocks(&self) -> &BTreeMap<u32, u64> {
        &self.clocks.other
    }

    /// In the order of their starts.
    fn release_if(&mut self, which: impl Fn(&Pause, &ClockCheck) -> bool) -> Vec<Pause> {
        let mut released = Vec::new();
        let clocks = &self.clocks;
        self.waiting.retain(|_, thread| {
            for unmatched in [&mut thread.probed, &mut thread.injected] {
                unmatched.0.retain(|_, pause| {
                    let goes = which(pause, clocks);
                    if goes {
                        released.push(pause.clone());
                    }
                    !goes
                });
            }
            thread.all().next().is_some()
        });
        released.retain(|pause| {
            let is_left_out = self.clocks.leave_out(pause);
            self.counts.other_clock += u64::from(is_left_out);
            !is_left_out
        });
        released.sort_by_key(|pause| pause.start_ns);
        for pause in &released {
            self.alone.add(pause);
            if is_probed(pause) {
                self.counts.only_probes += 1;
            } else {
                self.counts.only_injected += 1;
                self.losses.injected_alone(pause.pid);
            }
        }
        released
    }

    /// Totals of the pauses released so far; waiting pauses are not counted.
    pub(crate) fn counts(&self) -> SourceTotals {
        self.counts
    }

    /// The library lost records of collections of a process.
    pub(crate) fn lost_in_process(&mut self, pid: u32, count: u64) {
        self.losses.lost_in_process(pid, count);
    }

    /// Number of collections that no source recorded. `lost_by_probes`: by process, the number that
    /// the probes did not record.
    pub(crate) fn lost_by_both(&self, lost_by_probes: &HashMap<u32, u64>) -> u64 {
        let mut waiting = HashMap::new();
        for ((pid, _), thread) in &self.waiting {
            *waiting.entry(*pid).or_default() += thread.injected.0.len() as u64;
        }
        self.losses.by_both(lost_by_probes, &waiting)
    }
}

impl ThreadPauses {
    fn all(&self) -> impl Iterator<Item = &Pause> {
        self.probed.0.values().chain(self.injected.0.values())
    }
}

impl UnmatchedPauses {
    fn add(&mut self, pause: Pause) {
        let begin = pause.start_ns;
        let last = self.0.range((begin, 0)..=(begin, u32::MAX)).next_back();
        let number = if let Some(((_, number), _)) = last { number + 1 } else { 0 };
        self.0.insert((begin, number), pause);
    }

    /// Takes the pause with the longest overlap with `pause`.
    fn take_overlapping(&mut self, pause: &Pause) -> Option<Pause> {
        let begun = self.0.range(..=(pause.end_ns, u32::MAX)).rev();
        // Pauses of other interpreters may be nested, three deep.
        let fitting = begun
            .take_while(|(_, other)| other.end_ns >= pause.start_ns)
            .filter_map(|(key, other)| Some((overlap_ns(other, pause)?, *key)));
        let (_, key) = fitting.max()?;
        self.0.remove(&key)
    }
}

fn is_probed(pause: &Pause) -> bool {
    pause.source == EventSource::Probes
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
        cpu_ns: probed.cpu_ns.or(injected.cpu_ns),
        freed_bytes: injected.freed_bytes,
        source: EventSource::Both { start_ns: injected.start_ns, end_ns: injected.end_ns },
        ..probed
    }
}

#[cfg(test)]
mod tests;
