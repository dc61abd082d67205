//! The log of long pauses.

use super::LONG_PAUSES;
use super::locations::LocationTable;
use super::recorder_cost::WallClock;
use super::snapshot::LongPause;
use crate::pauses::known_generation;
use crate::stacks::StackLines;
use gctrace_event::Pause;
use std::collections::VecDeque;

/// The last long pauses, by start.
#[derive(Debug)]
pub(super) struct LongPauses {
    /// Least length of a kept pause.
    pub(super) from_ns: u64,
    entries: VecDeque<LongPauseEntry>,
}

#[derive(Debug)]
struct LongPauseEntry {
    pause: Pause,
    rank: Option<u32>,
    place: Option<StackLines>,
}

impl LongPauses {
    /// Keeps pauses of this length and longer.
    pub(super) fn new(from_ns: u64) -> Self {
        Self { from_ns, entries: VecDeque::new() }
    }

    /// Adds a pause of a process with this rank.
    pub(super) fn add(&mut self, pause: &Pause, rank: Option<u32>, place: Option<StackLines>) {
        if pause.duration_ns() < self.from_ns {
            return;
        }
        let later = |entry: &LongPauseEntry| entry.pause.start_ns <= pause.start_ns;
        let mut at = self.entries.partition_point(later);
        if self.entries.len() >= LONG_PAUSES {
            if at == 0 {
                return;
            }
            self.entries.pop_front();
            at -= 1;
        }
        self.entries.insert(at, LongPauseEntry { pause: pause.clone(), rank, place });
    }

    /// The long pauses, oldest first.
    pub(super) fn figures(&self, places: &LocationTable, clock: WallClock) -> Vec<LongPause> {
        let entries = self.entries.iter().map(|entry| {
            let (pause, names) = (&entry.pause, entry.place.map(|place| places.names(place)));
            let (line, below) = names.unzip();
            LongPause {
                pid: pause.pid,
                tid: pause.tid,
                rank: entry.rank,
                start_ns: pause.start_ns,
                start_unix_ns: clock.unix_ns(pause.start_ns),
                duration_ns: pause.duration_ns(),
                generation: known_generation(pause),
                reason: pause.reason,
                collected: pause.collected,
                uncollectable: pause.uncollectable,
                line,
                below: below.flatten(),
                unfinished: pause.unfinished,
            }
        });
        entries.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_event::{GcReason, TraceHeader};

    fn pause(start_ns: u64, duration_ns: u64) -> Pause {
        Pause {
            pid: 1,
            tid: 1,
            start_ns,
            end_ns: start_ns + duration_ns,
            generation: 2,
            reason: GcReason::Manual,
            ..Pause::default()
        }
    }

    #[test]
    fn the_last_are_kept_in_order() {
        let mut log = LongPauses::new(10);
        let last = LONG_PAUSES as u64 * 3;
        for n in 0..last {
            // Two with the same timestamp are out of order, and each third is short.
            log.add(&pause((n ^ 1) * 100, 8 + n % 3), Some(5), None);
        }
        log.add(&pause(0, 1000), None, None);
        let clock = WallClock::new(&TraceHeader::default());
        let figures = log.figures(&LocationTable::default(), clock);
        assert_eq!(figures.len(), LONG_PAUSES);
        assert!(figures.is_sorted_by_key(|pause| pause.start_ns));
        assert!(figures.iter().all(|pause| pause.duration_ns == 10));
        // 200 of every third of 600: all but one, removed to make room.
        assert!(figures[0].start_ns < 700, "{}", figures[0].start_ns);
        assert_eq!(figures[0].rank, Some(5));
    }
}
