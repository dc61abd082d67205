//! Figures about gctrace itself: lost records, overhead, and notes for the user; and the times of the
//! recording as wall-clock time.

use super::locations::first_bytes;
use super::snapshot::{Notice, RecorderCost, ppm};
use crate::time::{after, beyond};
use gctrace_event::TraceHeader;
use std::collections::VecDeque;

/// Number of readings of gctrace's CPU time that are kept: a minute at one per second.
const READINGS: usize = 64;
/// Notes that are kept.
const NOTES: usize = 50;
/// Maximum length of a note, in bytes.
const NOTE_BYTES: usize = 1_024;

/// The latest figures of the recorder, and its CPU time over the last minute.
#[derive(Debug, Default)]
pub(super) struct LiveCost {
    last: RecorderCost,
    /// When, and its CPU time up to then.
    readings: VecDeque<(u64, u64)>,
}

impl LiveCost {
    pub(super) fn set(&mut self, at_ns: u64, recorder: RecorderCost) {
        let cpu_ns = recorder.cpu_ns;
        self.last = recorder;
        let Some(cpu_ns) = cpu_ns else {
            return;
        };
        let is_later = |(before_ns, before): &(u64, u64)| at_ns > *before_ns && cpu_ns >= *before;
        if !self.readings.back().is_none_or(is_later) {
            self.readings.clear();
        }
        if self.readings.len() >= READINGS {
            self.readings.pop_front();
        }
        self.readings.push_back((at_ns, cpu_ns));
    }

    /// CPU time over an interval: from the last reading back to the one nearest to its length, or
    /// to the previous one.
    pub(super) fn figures(&self, interval_ns: u64) -> RecorderCost {
        let mut figures = self.last.clone();
        figures.cpu_ppm = self.cpu_ppm(interval_ns);
        figures
    }

    fn cpu_ppm(&self, interval_ns: u64) -> Option<u64> {
        let (at_ns, cpu_ns) = self.readings.back()?;
        let start_ns = beyond(*at_ns, interval_ns);
        let before = self.readings.iter().rev().skip(1);
        let (from_ns, from) = before.min_by_key(|(other_ns, _)| other_ns.abs_diff(start_ns))?;
        ppm(cpu_ns - from, at_ns - from_ns)
    }
}

/// The latest notes.
#[derive(Debug, Default)]
pub(super) struct LiveNotes(VecDeque<Notice>);

impl LiveNotes {
    pub(super) fn add(&mut self, at_ns: u64, pid: Option<u32>, message: &str) {
        if self.0.len() >= NOTES {
            self.0.pop_front();
        }
        self.0.push_back(Notice {
            at_ns,
            pid,
            message: first_bytes(message, NOTE_BYTES).to_owned(),
        });
    }

    /// The notes, oldest first.
    pub(super) fn figures(&self) -> Vec<Notice> {
        self.0.iter().cloned().collect()
    }
}

/// Start of the recording on both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct WallClock {
    started_ns: u64,
    started_unix_ns: u64,
}

impl WallClock {
    pub(super) fn new(header: &TraceHeader) -> Self {
        Self { started_ns: header.started_ns, started_unix_ns: header.started_unix_ns }
    }

    /// A time in nanoseconds since 1970; as the wall clock ran at the start.
    pub(super) fn unix_ns(self, at_ns: u64) -> u64 {
        match at_ns.checked_sub(self.started_ns) {
            Some(later_ns) => after(self.started_unix_ns, later_ns),
            None => beyond(self.started_unix_ns, self.started_ns - at_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_of_the_interval() {
        let second = 1_000_000_000;
        let mut cost = LiveCost::default();
        let recorder = |cpu_ns| RecorderCost { cpu_ns: Some(cpu_ns), ..RecorderCost::default() };
        assert_eq!(cost.figures(second).cpu_ppm, None);
        for (at, cpu_ns) in [(1, 0), (2, 500_000_000), (3, 510_000_000), (4, 530_000_000)] {
            cost.set(at * second, recorder(cpu_ns));
        }
        assert_eq!(cost.figures(second).cpu_ppm, Some(20_000));
        assert_eq!(cost.figures(2 * second).cpu_ppm, Some(15_000));
        assert_eq!(cost.figures(60 * second).cpu_ppm, Some(530_000_000 / 3_000));
        assert_eq!(cost.figures(second / 10).cpu_ppm, Some(20_000));
    }

    #[test]
    fn old_notes_go() {
        let mut notes = LiveNotes::default();
        for n in 0..1000 {
            notes.add(n, None, &"é".repeat(4000));
        }
        let kept = notes.figures();
        assert_eq!(kept.len(), NOTES);
        assert_eq!(kept[NOTES - 1].at_ns, 999);
        assert_eq!(kept[0].message.len(), NOTE_BYTES);
    }
}
