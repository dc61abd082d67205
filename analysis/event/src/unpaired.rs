//! Two records of one pause: how they are matched, and pauses with one record seen so far.
//!
//! With `--mode both`, the probes and the injected library record the same collections, each at its
//! own pace. Pure.

use crate::{EventSource, Pause};
use std::collections::BTreeMap;

/// Nanoseconds of overlap of two records of different sources, if they can be of one pause: the same process, thread
/// and interpreter. A thread that collects does not start another collection of the same interpreter, so no two pauses
/// of one source overlap then.
#[must_use]
pub fn overlap_ns(one: &Pause, other: &Pause) -> Option<u64> {
    if (one.pid, one.tid) != (other.pid, other.tid) {
        return None;
    }
    PauseInterval::of(one).overlap_ns(&PauseInterval::of(other))
}

/// Pauses that one source recorded and the other had not yet: remembered, so that the other's record is recognized when
/// it comes.
#[derive(Debug, Default)]
pub struct UnpairedPauses {
    by_end: BTreeMap<PauseKey, PauseInterval>,
}

/// Whether the probes saw it; process, thread and end. These distinguish all pauses of a source.
type PauseKey = (bool, u32, u32, u64);

#[derive(Clone, Copy, Debug)]
struct PauseInterval {
    start_ns: u64,
    end_ns: u64,
    interpreter: Option<i64>,
}

impl UnpairedPauses {
    /// Most pauses remembered, 30 MB; beyond that the older half is forgotten. A second at the
    /// highest rate measured has some 13,000 (`gc.collect(0)` in a loop).
    pub const MOST: usize = 1 << 18;

    /// Remembers a pause that one source recorded alone.
    pub fn add(&mut self, pause: &Pause) {
        if self.by_end.len() >= Self::MOST {
            self.forget_older_half();
        }
        let key = (is_probed(pause), pause.pid, pause.tid, pause.end_ns);
        self.by_end.insert(key, PauseInterval::of(pause));
    }

    /// Forgets the remembered pause that is the other source's record of `pause`. Returns whether
    /// there was one.
    pub fn take_other(&mut self, pause: &Pause) -> bool {
        let interval = PauseInterval::of(pause);
        let key = |end_ns| (!is_probed(pause), pause.pid, pause.tid, end_ns);
        let later = self.by_end.range(key(pause.start_ns)..=key(u64::MAX));
        let begun = later.take_while(|(_, other)| other.start_ns <= interval.end_ns);
        let fitting = begun.filter_map(|(key, other)| Some((other.overlap_ns(&interval)?, *key)));
        match fitting.max() {
            Some((_, key)) => self.by_end.remove(&key).is_some(),
            None => false,
        }
    }

    fn forget_older_half(&mut self) {
        let mut ends: Vec<u64> = self.by_end.keys().map(|(.., end_ns)| *end_ns).collect();
        let middle = ends.len() / 2;
        let (_, newest_forgotten_ns, _) = ends.select_nth_unstable(middle);
        let newest_forgotten_ns = *newest_forgotten_ns;
        self.by_end.retain(|(.., end_ns), _| *end_ns > newest_forgotten_ns);
    }
}

impl PauseInterval {
    fn of(pause: &Pause) -> Self {
        Self { start_ns: pause.start_ns, end_ns: pause.end_ns, interpreter: pause.interpreter }
    }

    /// `None`: they do not even touch, or are of different interpreters.
    fn overlap_ns(&self, other: &Self) -> Option<u64> {
        if let (Some(one), Some(other)) = (self.interpreter, other.interpreter)
            && one != other
        {
            return None;
        }
        let end_ns = self.end_ns.min(other.end_ns);
        end_ns.checked_sub(self.start_ns.max(other.start_ns))
    }
}

fn is_probed(pause: &Pause) -> bool {
    pause.source == EventSource::Probes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pause(source: EventSource, interpreter: Option<i64>, start_ns: u64, end_ns: u64) -> Pause {
        Pause { pid: 1, tid: 1, start_ns, end_ns, interpreter, source, ..Pause::default() }
    }

    #[test]
    fn the_other_record_is_recognized_once() {
        let mut unpaired = UnpairedPauses::default();
        unpaired.add(&pause(EventSource::Probes, Some(0), 10, 20));
        unpaired.add(&pause(EventSource::Probes, Some(0), 40, 50));
        // Between both; of the same source; of another thread; of another interpreter.
        assert!(!unpaired.take_other(&pause(EventSource::Injected, Some(0), 21, 39)));
        assert!(!unpaired.take_other(&pause(EventSource::Probes, Some(0), 10, 20)));
        let elsewhere = Pause { tid: 2, ..pause(EventSource::Injected, Some(0), 10, 20) };
        assert!(!unpaired.take_other(&elsewhere));
        assert!(!unpaired.take_other(&pause(EventSource::Injected, Some(3), 10, 20)));
        assert!(unpaired.take_other(&pause(EventSource::Injected, None, 9, 21)));
        assert!(!unpaired.take_other(&pause(EventSource::Injected, Some(0), 9, 21)));
        assert!(unpaired.take_other(&pause(EventSource::Injected, Some(0), 39, 51)));
    }

    /// A subinterpreter collects in a finalizer that a collection of the main one runs.
    #[test]
    fn nested_pauses_are_kept_apart_by_their_interpreters() {
        let mut unpaired = UnpairedPauses::default();
        unpaired.add(&pause(EventSource::Injected, Some(1), 30, 40));
        unpaired.add(&pause(EventSource::Injected, Some(0), 10, 90));
        assert!(unpaired.take_other(&pause(EventSource::Probes, Some(0), 11, 89)));
        assert!(unpaired.take_other(&pause(EventSource::Probes, Some(1), 31, 39)));
        assert!(unpaired.by_end.is_empty());
    }

    #[test]
    fn memory_is_bounded_and_the_latest_are_kept() {
        let mut unpaired = UnpairedPauses::default();
        let at = |number: u64| number * 10;
        let many = UnpairedPauses::MOST as u64 * 3;
        for number in 0..many {
            let end_ns = at(number) + 5;
            unpaired.add(&pause(EventSource::Probes, None, at(number), end_ns));
            assert!(unpaired.by_end.len() <= UnpairedPauses::MOST);
        }
        let last = at(many - UnpairedPauses::MOST as u64 / 2);
        assert!(unpaired.take_other(&pause(EventSource::Injected, None, last, last + 5)));
        assert!(!unpaired.take_other(&pause(EventSource::Injected, None, 0, 5)));
    }
}
