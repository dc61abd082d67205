//! The log of long pauses.

use super::LONG_PAUSES;
use super::clock::WallClock;
use super::places::Place;
use super::places::Places;
use super::snapshot::LongPause;
use gctrace_event::Pause;
use std::collections::VecDeque;

/// The last long pauses, by begin.
#[derive(Debug)]
pub(super) struct LongPauses {
    from_ns: u64,
    entries: VecDeque<Entry>,
}

#[derive(Debug)]
struct Entry {
    pause: LongPause,
    place: Option<Place>,
}

impl LongPauses {
    /// Keeps pauses of this length and longer.
    pub(super) fn new(from_ns: u64) -> Self {
        Self {
            from_ns,
            entries: VecDeque::new(),
        }
    }

    /// From which length on a pause is kept.
    pub(super) fn limit_ns(&self) -> u64 {
        self.from_ns
    }

    /// Takes a pause of a process with this rank.
    pub(super) fn add(&mut self, pause: &Pause, rank: Option<u32>, place: Option<Place>) {
        if pause.duration_ns() < self.from_ns {
            return;
        }
        let later = |entry: &Entry| entry.pause.begin_ns <= pause.begin_ns;
        let mut at = self.entries.partition_point(later);
        if self.entries.len() >= LONG_PAUSES {
            if at == 0 {
                return;
            }
            self.entries.pop_front();
            at -= 1;
        }
        self.entries.insert(
            at,
            Entry {
                pause: entry(pause, rank),
                place,
            },
        );
    }

    /// Oldest first.
    pub(super) fn figures(&self, places: &Places, clock: WallClock) -> Vec<LongPause> {
        let entries = self.entries.iter().map(|entry| {
            let names = entry.place.map(|place| places.names(place));
            let (line, below) = names.unwrap_or_default();
            LongPause {
                begin_unix_ns: clock.unix_ns(entry.pause.begin_ns),
                line,
                below,
                ..entry.pause.clone()
            }
        });
        entries.collect()
    }
}

fn entry(pause: &Pause, rank: Option<u32>) -> LongPause {
    LongPause {
        pid: pause.pid,
        tid: pause.tid,
        rank,
        begin_ns: pause.begin_ns,
        duration_ns: pause.duration_ns(),
        generation: (pause.generation != Pause::UNKNOWN_GENERATION).then_some(pause.generation),
        reason: pause.reason.as_str(),
        collected: pause.collected,
        uncollectable: pause.uncollectable,
        unfinished: pause.unfinished,
        ..LongPause::default()
    }
}
