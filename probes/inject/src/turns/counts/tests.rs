use super::*;

/// A wait may take as long, in ns.
const LONG: u64 = 60_000_000_000;
const NO_TIME: CollectedTime = CollectedTime { ns: 0, cpu_ns: 0 };

fn begun() -> Box<LoopCounts> {
    // SAFETY: numbers, for which zeroes are valid.
    let mut counts = Box::new(unsafe { std::mem::zeroed::<LoopCounts>() });
    counts.begin(7, NO_TIME, 1_000);
    counts
}

fn taken(counts: &mut LoopCounts) -> (Counts, Vec<(u16, u32)>) {
    let mut lengths = Vec::new();
    (counts.take(|bucket, turns| lengths.push((bucket, turns))), lengths)
}

/// A turn of this length after a wait. `cpu_ns`: of the thread when it ends.
fn turn(counts: &mut LoopCounts, at_ns: u64, length_ns: u64, cpu_ns: u64) -> Option<LongTurn> {
    counts.returns(at_ns, NO_TIME);
    counts.waits(at_ns + length_ns, LONG, NO_TIME, || cpu_ns)
}

#[test]
fn a_turn_is_from_the_return_to_the_next_wait_or_look() {
    let mut counts = begun();
    assert_eq!(counts.waits(1_000_000, LONG, NO_TIME, || 0), None);
    counts.returns(2_000_000, NO_TIME);
    assert_eq!(counts.waits(2_000_640, LONG, NO_TIME, || 0), None);
    // There was input: it has not left the CPU.
    counts.returns(2_001_000, NO_TIME);
    assert_eq!(counts.waits(2_010_640, 0, NO_TIME, || 0), None);
    assert_eq!(counts.waits(2_011_280, LONG, NO_TIME, || 0), None);
    counts.returns(3_011_280, NO_TIME);
    let (found, lengths) = taken(&mut counts);
    assert_eq!((found.turns, found.total_ns, found.longest_ns), (3, 11_280, 10_000));
    assert_eq!((found.waits, found.waited_ns, found.longest_busy_ns), (2, 2_000_000, 11_280));
    let expected = [(640, 2), (10_000, 1)].map(|(ns, turns)| (length_bucket(ns) as u16, turns));
    assert_eq!(lengths, expected);
    let (found, lengths) = taken(&mut counts);
    assert_eq!((found.turns, found.longest_ns, lengths.len()), (0, 10_000, 0));
}

#[test]
fn a_signal_does_not_end_a_wait() {
    let mut counts = begun();
    counts.waits(1_000_000, 8_000_000, NO_TIME, || 0);
    counts.interrupted(2_000_000);
    // Python's handler ran for 5 ms.
    counts.waits(7_000_000, 2_000_000, NO_TIME, || 0);
    counts.returns(9_000_000, NO_TIME);
    counts.waits(9_500_000, 2_000_000, NO_TIME, || 0);
    let found = taken(&mut counts).0;
    assert_eq!((found.turns, found.total_ns), (1, 500_000));
    assert_eq!((found.waits, found.waited_ns), (1, 8_000_000));
    // The time is over when the handler returns: Python waits no more.
    counts.interrupted(10_000_000);
    counts.waits(12_000_000, LONG, NO_TIME, || 0);
    counts.interrupted(13_000_000);
    counts.waits(14_000_000, 0, NO_TIME, || 0);
    let found = taken(&mut counts).0;
    assert_eq!((found.turns, found.total_ns), (2, 3_000_000));
    assert_eq!((found.waits, found.waited_ns), (2, 1_500_000));
}

#[test]
fn long_turns_are_sent_with_their_parts() {
    let mut counts = begun();
    counts.waits(1_000, LONG, NO_TIME, || 0);
    assert_eq!(turn(&mut counts, 100_000, 90_000, 0), None);
    counts.returns(11_000_000, NO_TIME);
    let collected = CollectedTime { ns: 5_000_000, cpu_ns: 4_000_000 };
    let cpu_ns = 1_000 + 90_000 + 4_000_000 + 3_000_000;
    let long = counts.waits(21_000_000, 0, collected, || cpu_ns).unwrap();
    assert_eq!((long.start_ns, long.end_ns), (11_000_000, 21_000_000));
    assert_eq!((long.in_pauses_ns, long.cpu_ns), (5_000_000, Some(3_000_000)));
    // Under a filter the clock is not read.
    assert_eq!(counts.waits(23_000_000, LONG, collected, || 0).unwrap().cpu_ns, None);
    assert_eq!(turn(&mut counts, 40_000_000, 2_000_000, 9_000_000).unwrap().cpu_ns, None);
    assert_eq!(taken(&mut counts).0.readings, 3);
}

#[test]
fn the_longest_turns_of_each_second_are_sent() {
    let mut counts = begun();
    counts.waits(1_000, LONG, NO_TIME, || 0);
    let mut long = |at_ms: u64, length_ns| turn(&mut counts, at_ms * 1_000_000, length_ns, 0);
    // 500 a second for 10 seconds, of 1.2 to 1.7 ms.
    let of = |number: u64| 1_200_000 + number % 50 * 10_000;
    let sent = (1..5_000).filter(|number| long(*number * 2, of(*number)).is_some()).count();
    assert!((300..320).contains(&sent), "{sent}");
    // One that is far longer hides no other one.
    assert!(long(10_000, 800_000_000).is_some());
    assert!(long(10_900, 50_000_000).is_some());
    let again = (0..500).filter(|number| long(11_000 + number * 2, of(*number)).is_some()).count();
    assert!((5..30).contains(&again), "{again}");
    counts.returns(30_000_000_000, NO_TIME);
    let collected = CollectedTime { ns: 1_000_000, cpu_ns: 0 };
    assert!(counts.waits(30_001_100_000, LONG, collected, || 0).is_some());
}
