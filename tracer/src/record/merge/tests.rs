use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

fn pause(tid: u32, start_ns: u64, end_ns: u64, source: EventSource) -> Pause {
    Pause {
        pid: 1,
        tid,
        start_ns,
        end_ns,
        generation: 2,
        collected: (source == EventSource::Injected).then_some(7),
        source,
        ..Pause::default()
    }
}

/// A true pause, and which of the sources see it.
#[derive(Clone, Debug)]
struct TrueCollection {
    tid: u32,
    gap_ns: u64,
    length_ns: u64,
    /// By how much the callbacks see more (or, negative, less) than the probes.
    wider_ns: i64,
    probed: bool,
    injected: bool,
    /// Rounds later that the library's half is read.
    late: usize,
}

fn truth() -> impl Strategy<Value = TrueCollection> {
    let times = (0..3_u32, 100..1000_u64, 100..1000_u64, -40..40_i64);
    let seen = (any::<bool>(), any::<bool>(), 0..10_usize);
    (times, seen).prop_map(|((tid, gap_ns, length_ns, wider_ns), (probed, injected, late))| {
        TrueCollection { tid, gap_ns, length_ns, wider_ns, probed, injected, late }
    })
}

proptest! {
    #[test]
    fn every_pause_of_either_source_is_written_exactly_once(truths in vec(truth(), 0..60)) {
        let mut expected = SourceTotals::default();
        let mut rounds: Vec<Vec<Pause>> = vec![Vec::new(); truths.len() + 10];
        let mut at_ns = 1000;
        for (round, one) in truths.iter().enumerate() {
            at_ns += one.gap_ns;
            let end_ns = at_ns + one.length_ns;
            if one.probed {
                rounds[round].push(pause(one.tid, at_ns, end_ns, EventSource::Probes));
            }
            if one.injected {
                let begin = at_ns.saturating_add_signed(-one.wider_ns);
                let end = end_ns.saturating_add_signed(one.wider_ns);
                rounds[round + one.late].push(pause(one.tid, begin, end, EventSource::Injected));
            }
            at_ns = end_ns;
            match (one.probed, one.injected) {
                (true, true) => expected.both += 1,
                (true, false) => expected.only_probes += 1,
                (false, true) => expected.only_injected += 1,
                (false, false) => {}
            }
        }
        let mut merge = PauseMerger::default();
        let mut written = Vec::new();
        for pauses in rounds {
            written.extend(pauses.iter().filter_map(|pause| merge.take(pause)));
            written.extend(merge.next_round());
        }
        written.extend(merge.finish());
        prop_assert_eq!(merge.counts(), expected);
        let total = expected.both + expected.only_probes + expected.only_injected;
        prop_assert_eq!(written.len() as u64, total);
        let both = written.iter().filter(|pause| matches!(pause.source, EventSource::Both { .. }));
        prop_assert_eq!(both.clone().count() as u64, expected.both);
        for pause in both {
            let EventSource::Both { start_ns, end_ns } = pause.source else { unreachable!() };
            prop_assert!(start_ns.abs_diff(pause.start_ns) <= 40);
            prop_assert!(end_ns.abs_diff(pause.end_ns) <= 40);
            prop_assert_eq!(pause.collected, Some(7));
        }
    }
}

#[test]
fn half_a_pause_waits_for_a_bounded_time() {
    let mut merge = PauseMerger::default();
    assert_eq!(merge.take(&pause(1, 10, 20, EventSource::Probes)), None);
    let waited = (0..100).find(|_| !merge.next_round().is_empty());
    assert_eq!(waited, Some(ROUNDS as usize));
    assert_eq!(merge.counts().only_probes, 1);
    assert!(merge.finish().is_empty());
}

#[test]
fn pauses_of_other_threads_and_times_are_not_merged() {
    let mut merge = PauseMerger::default();
    assert_eq!(merge.take(&pause(1, 10, 20, EventSource::Probes)), None);
    assert_eq!(merge.take(&pause(2, 10, 20, EventSource::Injected)), None);
    assert_eq!(merge.take(&pause(1, 21, 30, EventSource::Injected)), None);
    assert_eq!(merge.take(&pause(1, 12, 15, EventSource::Probes)), None);
    assert_eq!(merge.finish().len(), 4);
}
