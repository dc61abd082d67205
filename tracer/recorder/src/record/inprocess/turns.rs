//! Turns of loops, as the library counts them. It sees each wait and each look, but not why a thread leaves the CPU.

use gctrace_event::{LoopPlace, Turn, Turns};
use gctrace_ring::{RingLoop, RingTurn, RingTurns};

/// Without a stack: a thread waits without the interpreter's lock, and its frames are not read then.
pub(super) fn turns(pid: u32, counted: RingTurns) -> Turns {
    let lengths = counted.lengths.iter().map(|of| (of.bucket.into(), of.turns.into()));
    Turns {
        pid,
        tid: counted.place.tid,
        at_ns: counted.interval.start_ns,
        until_ns: counted.interval.end_ns.max(counted.interval.start_ns),
        place: place(counted.place),
        turns: counted.turns,
        total_ns: counted.total_ns,
        longest_ns: counted.longest_ns,
        waits: counted.waits,
        waited_ns: counted.waited_ns,
        longest_busy_ns: counted.longest_busy_ns,
        lengths: lengths.collect(),
        sees_looks: true,
        stack: None,
    }
}

pub(super) fn turn(pid: u32, long: &RingTurn) -> Turn {
    Turn {
        pid,
        tid: long.place.tid,
        start_ns: long.interval.start_ns,
        end_ns: long.interval.end_ns.max(long.interval.start_ns),
        place: place(long.place),
        in_pauses_ns: long.in_pauses_ns,
        waits: Vec::new(),
        cpu_ns: long.cpu_ns,
    }
}

fn place(of: RingLoop) -> LoopPlace {
    LoopPlace { call: of.call.name().to_owned(), argument: of.argument }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_ring::{RingLengthCount, TimeInterval, WaitCall};

    #[test]
    fn what_the_library_counts_is_written() {
        let place = RingLoop { tid: 8, call: WaitCall::Ppoll, argument: 9 };
        let interval = TimeInterval { start_ns: 40, end_ns: 90 };
        let long = RingTurn { place, interval, in_pauses_ns: 5, cpu_ns: Some(6) };
        let long = turn(7, &long);
        assert_eq!((long.pid, long.tid, long.start_ns, long.end_ns), (7, 8, 40, 90));
        assert_eq!((long.place.call.as_str(), long.place.argument), ("ppoll", 9));
        assert_eq!((long.in_pauses_ns, long.cpu_ns), (5, Some(6)));
        let counted = turns(
            7,
            RingTurns {
                place,
                // of a damaged ring
                interval: TimeInterval { start_ns: 40, end_ns: 30 },
                turns: 3,
                total_ns: 30,
                longest_ns: 20,
                waits: 2,
                waited_ns: 10,
                longest_busy_ns: 25,
                lengths: vec![RingLengthCount { bucket: 1, turns: 3 }],
            },
        );
        assert_eq!((counted.pid, counted.tid, counted.at_ns, counted.until_ns), (7, 8, 40, 40));
        assert_eq!((counted.turns, counted.total_ns, counted.longest_ns), (3, 30, 20));
        assert_eq!((counted.waits, counted.waited_ns, counted.longest_busy_ns), (2, 10, 25));
        assert_eq!((counted.lengths, counted.sees_looks), (vec![(1, 3)], true));
    }
}
