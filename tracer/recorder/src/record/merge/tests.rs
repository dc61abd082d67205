use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn pause(tid: u32, start_ns: u64, end_ns: u64, source: EventSource) -> Pause {
    Pause {
        pid: 1,
        tid,
        start_ns,
        end_ns,
        generation: 2,
        interpreter: Some(0),
        collected: (source == EventSource::Injected).then_some(7),
        source,
        ..Pause::default()
    }
}

/// Of process 1 a pair was seen before.
fn merger() -> PauseMerger {
    let mut merge = PauseMerger::default();
    merge.clocks.joined(1);
    merge
}

fn read(ns: u64) -> ReadUntil {
    ReadUntil { probes_ns: ns, injected_ns: ns }
}

/// A true pause, which of the sources see it, and how long after its end each writes its record.
#[derive(Clone, Debug)]
struct TrueCollection {
    tid: u32,
    gap_ns: u64,
    length_ns: u64,
    /// By how much the callbacks see more (or, negative, less) than the probes.
    wider_ns: i64,
    /// A finalizer has a subinterpreter collect in the middle of it.
    nested: bool,
    probed_after_ns: Option<u64>,
    injected_after_ns: Option<u64>,
}

/// `most_ns`: the longest time that a thread is stopped between the two records.
fn truth(most_ns: u64) -> impl Strategy<Value = TrueCollection> {
    let times = (0..3_u32, 100..500 * MS, 100..100 * MS, -40..40_i64);
    let written = move || proptest::option::weighted(0.8, 0..most_ns);
    let seen = (any::<bool>(), written(), written());
    (times, seen).prop_map(
        |((tid, gap_ns, length_ns, wider_ns), (nested, probed_after_ns, injected_after_ns))| {
            TrueCollection {
                tid,
                gap_ns,
                length_ns,
                wider_ns,
                nested,
                probed_after_ns,
                injected_after_ns,
            }
        },
    )
}

/// A source's records by when they are written, which is the order in which they are read.
#[derive(Default)]
struct Written(BTreeMap<(u64, usize), Pause>);

impl Written {
    fn add(&mut self, at_ns: u64, pause: Pause) {
        self.0.insert((at_ns, self.0.len()), pause);
    }

    /// Reads what was written before, at most so many records; the number that is left.
    fn read(&mut self, until_ns: u64, most: usize, merge: &mut PauseMerger) -> (Vec<Pause>, usize) {
        let ready = self.0.range(..(until_ns, 0)).count();
        let mut written = Vec::new();
        for _ in 0..ready.min(most) {
            let first = self.0.pop_first().map(|(_, pause)| pause);
            written.extend(first.and_then(|pause| merge.take(&pause)));
        }
        (written, ready.saturating_sub(most))
    }
}

/// A turn of the recording: how long after the one before, and how many records of each source it
/// reads at most.
type Turn = (u64, usize, usize);

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let most = || prop_oneof![Just(0_usize), 1..4_usize, Just(usize::MAX)];
    vec((MS..2000 * MS, most(), most()), 0..40)
}

struct Outcome {
    expected: SourceTotals,
    merge: PauseMerger,
    written: Vec<Pause>,
}

/// Reads the sources in these turns, and then what is left of them.
fn merged(truths: &[TrueCollection], turns: &[Turn]) -> Outcome {
    let mut expected = SourceTotals::default();
    let (mut probed, mut injected) = (Written::default(), Written::default());
    let mut at_ns = 1000;
    for one in truths {
        at_ns += one.gap_ns;
        let end_ns = at_ns + one.length_ns;
        let inside = (at_ns + one.length_ns / 4, end_ns - one.length_ns / 4);
        for (interpreter, start_ns, end_ns) in [(0, at_ns, end_ns), (1, inside.0, inside.1)] {
            if interpreter == 1 && !one.nested {
                continue;
            }
            let of = |start_ns, end_ns, source| Pause {
                interpreter: Some(interpreter),
                ..pause(one.tid, start_ns, end_ns, source)
            };
            if let Some(after_ns) = one.probed_after_ns {
                probed.add(end_ns + after_ns, of(start_ns, end_ns, EventSource::Probes));
            }
            if let Some(after_ns) = one.injected_after_ns {
                let begin = start_ns.saturating_add_signed(-one.wider_ns);
                let end = end_ns.saturating_add_signed(one.wider_ns);
                injected.add(end_ns + after_ns, of(begin, end, EventSource::Injected));
            }
            match (one.probed_after_ns, one.injected_after_ns) {
                (Some(_), Some(_)) => expected.both += 1,
                (Some(_), None) => expected.only_probes += 1,
                (None, Some(_)) => expected.only_injected += 1,
                (None, None) => {}
            }
        }
        at_ns = end_ns;
    }
    let mut merge = merger();
    let mut written = Vec::new();
    let (mut now_ns, mut until) = (0, ReadUntil::default());
    let all = (u64::MAX / 2, usize::MAX, usize::MAX);
    for (after_ns, most_probed, most_injected) in turns.iter().chain([&all]) {
        now_ns += after_ns;
        let (joined, left) = probed.read(now_ns, *most_probed, &mut merge);
        written.extend(joined);
        if left == 0 {
            until.probes_ns = now_ns;
        }
        let (joined, left) = injected.read(now_ns, *most_injected, &mut merge);
        written.extend(joined);
        if left == 0 {
            until.injected_ns = now_ns;
        }
        written.extend(merge.release(until));
    }
    written.extend(merge.finish());
    Outcome { expected, merge, written }
}

/// No two of them are of one pause.
fn are_apart(written: &[Pause]) -> bool {
    let mut pairs = (0..written.len()).flat_map(|one| (0..one).map(move |other| (one, other)));
    pairs.all(|(one, other)| overlap_ns(&written[one], &written[other]).is_none())
}

proptest! {
    /// However far one source is read behind the other: every pause is written once, and joined if
    /// both sources saw it.
    #[test]
    fn any_order_of_reads_gives_the_truth(
        truths in vec(truth(PATIENCE_NS), 0..60),
        turns in turns(),
    ) {
        let Outcome { expected, merge, written } = merged(&truths, &turns);
        prop_assert_eq!(merge.counts(), expected);
        let total = expected.both + expected.only_probes + expected.only_injected;
        prop_assert_eq!(written.len() as u64, total);
        prop_assert!(are_apart(&written));
        let both = written.iter().filter(|pause| matches!(pause.source, EventSource::Both { .. }));
        prop_assert_eq!(both.clone().count() as u64, expected.both);
        for pause in both {
            let EventSource::Both { start_ns, end_ns } = pause.source else { unreachable!() };
            prop_assert!(start_ns.abs_diff(pause.start_ns) <= 40);
            prop_assert!(end_ns.abs_diff(pause.end_ns) <= 40);
            prop_assert_eq!(pause.collected, Some(7));
        }
    }

    /// A thread may be stopped for any time between the records of its two sources.
    #[test]
    fn a_record_that_comes_late_is_not_counted_again(
        truths in vec(truth(60 * PATIENCE_NS), 0..60),
        turns in turns(),
    ) {
        let Outcome { expected, merge, written } = merged(&truths, &turns);
        let SourceTotals { both, only_probes, only_injected, late, .. } = merge.counts();
        prop_assert_eq!(both + late, expected.both);
        let alone = expected.only_probes + expected.only_injected;
        prop_assert_eq!(only_probes + only_injected, alone + late);
        prop_assert_eq!(written.len() as u64, alone + expected.both);
        prop_assert!(are_apart(&written));
        // Each of the probes' records was lost, for what the library recorded alone: nothing is
        // missing.
        let lost_by_probes = HashMap::from([(1, expected.only_injected)]);
        prop_assert_eq!(merge.lost_by_both(&lost_by_probes), 0);
        let lost_by_probes = HashMap::from([(1, expected.only_injected + 5)]);
        prop_assert_eq!(merge.lost_by_both(&lost_by_probes), 5);
    }
}

/// Polls are not time, and time is not what was read: 22,030 pauses once became 24,162, because the
/// rings of 40 processes at a time were read seconds later than the probes'.
#[test]
fn a_pause_waits_until_the_other_source_was_read() {
    let mut merge = merger();
    assert_eq!(merge.take(&pause(1, 10, 20, EventSource::Probes)), None);
    for turn in 1..10_000 {
        let until = ReadUntil { probes_ns: turn * 300 * MS, injected_ns: 20 + PATIENCE_NS - 1 };
        assert_eq!(merge.release(until), []);
    }
    let joined = merge.take(&pause(1, 9, 21, EventSource::Injected));
    assert!(joined.is_some());
    assert_eq!(merge.take(&pause(1, 30, 40, EventSource::Probes)), None);
    assert_eq!(merge.release(read(40 + PATIENCE_NS)).len(), 1);
    assert_eq!(merge.finish(), []);
    let counts = merge.counts();
    assert_eq!((counts.both, counts.only_probes, counts.late), (1, 1, 0));
}

#[test]
fn memory_is_bounded_and_nothing_is_counted_twice() {
    let mut merge = merger();
    let many = 2 * MOST_WAITING as u64;
    let of = |number: u64, source| pause(1, number * 100, number * 100 + 50, source);
    let mut released = 0;
    for number in 0..many {
        assert_eq!(merge.take(&of(number, EventSource::Probes)), None);
        if number % 10_000 == 0 {
            released += merge.release(ReadUntil::default()).len();
            let waiting = merge.waiting.values().flat_map(ThreadPauses::all);
            assert!(waiting.count() <= MOST_WAITING);
        }
    }
    assert!(released > 0);
    let joined = (0..many).filter_map(|number| merge.take(&of(number, EventSource::Injected)));
    let joined = joined.count();
    assert_eq!(joined + released, many as usize);
    assert_eq!(merge.finish(), []);
    let counts = merge.counts();
    assert_eq!((counts.both, counts.late), (joined as u64, released as u64));
}

#[test]
fn pauses_of_other_threads_and_times_are_not_merged() {
    let mut merge = merger();
    assert_eq!(merge.take(&pause(1, 10, 20, EventSource::Probes)), None);
    assert_eq!(merge.take(&pause(2, 10, 20, EventSource::Injected)), None);
    assert_eq!(merge.take(&pause(1, 21, 30, EventSource::Injected)), None);
    assert_eq!(merge.take(&pause(1, 12, 15, EventSource::Probes)), None);
    assert_eq!(merge.finish().len(), 4);
}

/// One of them a day ahead, or behind, of what the other one reads off its clock.
#[test]
fn pauses_on_another_clock_are_not_counted_twice() {
    for (ahead_ns, behind_ns) in [(86_400_000 * MS, 0), (0, 86_400_000 * MS)] {
        let mut merge = PauseMerger::default();
        let (mut written, mut kept) = (Vec::new(), 0);
        for number in 0..50u64 {
            let at_ns = behind_ns + (number + 1) * 10 * MS;
            let injected_ns = at_ns + ahead_ns - behind_ns;
            let probed = pause(1, at_ns, at_ns + MS, EventSource::Probes);
            // The library is there from the third one on, and one of its threads is not probed.
            let injected = pause(1, injected_ns, injected_ns + MS, EventSource::Injected);
            let other = Pause { tid: 2, ..injected.clone() };
            for one in [Some(probed), Some(injected).filter(|_| number > 2), Some(other)] {
                written.extend(one.and_then(|one| merge.take(&one)));
            }
            kept += 2;
            written.extend(merge.release(read(at_ns + number * PATIENCE_NS)));
        }
        written.extend(merge.finish());
        assert_eq!(written.len(), kept);
        let counts = merge.counts();
        assert_eq!((counts.both, counts.only_probes, counts.only_injected), (0, 50, 50));
        assert_eq!((counts.other_clock, merge.of_other_clocks()), (47, &BTreeMap::from([(1, 47)])));
    }
}
