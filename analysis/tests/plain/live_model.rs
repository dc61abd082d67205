//! Figures of the live view against a naive model of the same records.

use crate::live_feed;

use gctrace_analysis::live::{PAUSE_CLASSES_NS, ProcessFigures, SnapshotRequest};
use gctrace_event::{GcReason, Pause, Record};
use live_feed::{LONG, SECOND, at, backward, fed, only, op};
use proptest::prelude::*;
use std::collections::BTreeSet;
use test_kit::reports::{MS, START, pause, process};

/// A pause of the model: start and length in ms, process, generation, reason.
type Drawn = (u64, u64, u32, u8, u8);

fn drawn(pause_ms: std::ops::Range<u64>) -> impl Strategy<Value = Vec<Drawn>> {
    let one = (0u64..70_000, pause_ms, 1u32..4, 0u8..4, 0u8..4);
    prop::collection::vec(one, 0..80)
}

fn record((start, length, pid, generation, reason): Drawn) -> Pause {
    let reasons = [GcReason::Automatic, GcReason::Manual, GcReason::Shutdown, GcReason::Unknown];
    Pause {
        generation: match generation {
            3 => Pause::UNKNOWN_GENERATION,
            known => known,
        },
        reason: reasons[usize::from(reason)],
        ..pause(pid, start, start + length)
    }
}

/// Time of pauses within an interval, summed, in ms.
fn clipped(pauses: &[Drawn], from: u64, until: u64) -> u64 {
    let within =
        |(start, length, ..): &Drawn| (start + length).min(until).saturating_sub(*start.max(&from));
    pauses.iter().map(within).sum()
}

/// Milliseconds in which any pause ran.
fn timestamps(pauses: &[Drawn]) -> BTreeSet<u64> {
    let all = pauses.iter();
    all.flat_map(|(start, length, ..)| *start..start + length).collect()
}

fn same_process(figures: &ProcessFigures, pauses: &[Drawn], from: u64, until: u64) {
    for generation in 0..4u8 {
        let of = pauses.iter().filter(|pause| pause.3 == generation);
        let lengths: Vec<u64> = of.map(|pause| pause.1 * MS).collect();
        let place = usize::from(generation);
        let collections = &figures.collections;
        assert_eq!(collections.pauses[place], lengths.len() as u64);
        assert_eq!(collections.pause_ns[place], lengths.iter().sum::<u64>());
        let mut bound = 0;
        for (class, count) in collections.histogram[place].iter().enumerate() {
            let upper = PAUSE_CLASSES_NS.get(class).copied().unwrap_or(u64::MAX);
            let within = |ns: &&u64| **ns <= upper && (**ns > bound || class == 0);
            assert_eq!(*count, lengths.iter().filter(within).count() as u64);
            bound = upper;
        }
        let ended =
            |pause: &&Drawn| pause.3 == generation && (from..until).contains(&(pause.0 + pause.1));
        let ended = pauses.iter().filter(ended).count();
        assert_eq!(figures.interval_pauses[place], ended as u64);
    }
    assert_eq!(figures.interval_pause_ns, clipped(pauses, from, until) * MS);
    let timestamps = timestamps(pauses);
    assert_eq!(figures.paused_ns, timestamps.len() as u64 * MS);
    let within = timestamps.range(from..until).count();
    assert_eq!(figures.interval_paused_ns, within as u64 * MS);
    assert_eq!(figures.history_ns.len(), 60);
    for (back, ns) in figures.history_ns.iter().rev().enumerate() {
        let end = until - back as u64 * 1000;
        assert_eq!(*ns, clipped(pauses, end - 1000, end) * MS, "{back} s back");
    }
    let longest = pauses.iter().map(|pause| pause.1 * MS).max();
    assert_eq!(figures.worst.map(|worst| worst.duration_ns), longest);
    let last = pauses.iter().map(|pause| START + (pause.0 + pause.1) * MS).max();
    assert_eq!(figures.last.map(|last| last.end_ns), last);
}

proptest! {

    /// Pauses arrive in the order of their ends, each at most a second late.
    #[test]
    fn figures_equal_the_naive_ones(
        pauses in drawn(0..20_000),
        late in prop::collection::vec(0u64..1000, 80),
        until in 605u64..701,
        interval in 1u64..600,
    ) {
        let mut order: Vec<_> = pauses.iter().zip(late).collect();
        order.sort_by_key(|((start, length, ..), late)| start + length + late);
        // Pauses that end after the next second are unknown yet.
        let (until, interval) = (until * 100, interval * 100);
        let known = order.into_iter().map(|(pause, _)| *pause).filter(|pause| pause.0 + pause.1 < until + 1000);
        let known: Vec<Drawn> = known.collect();
        let mut live = fed((1..4).map(|pid| process(pid, 0, "generational")));
        for pause in &known {
            live.record(&Record::Pause(record(*pause)));
        }
        let snapshot = at(&live, until, interval);
        prop_assert_eq!(snapshot.interval_ns, interval * MS);
        prop_assert_eq!(snapshot.interval_end_ns, START + until * MS);
        for figures in &snapshot.processes {
            let pauses: Vec<Drawn> = known.iter().copied().filter(|pause| pause.2 == figures.pid).collect();
            same_process(figures, &pauses, until - interval, until);
        }
        let all: u64 = known.iter().map(|pause| pause.1 * MS).sum();
        prop_assert_eq!(snapshot.totals.collections.pause_ns.iter().sum::<u64>(), all);
        prop_assert_eq!(snapshot.totals.interval_pause_ns, clipped(&known, until - interval, until) * MS);
        let reasons = snapshot.totals.collections.by_reason.values().flatten();
        prop_assert_eq!(reasons.map(|sum| sum.count).sum::<u64>(), known.len() as u64);
        let mut long: Vec<u64> = known.iter().filter(|pause| pause.1 * MS >= LONG).map(|pause| pause.0).collect();
        long.sort_unstable();
        let kept: Vec<u64> = snapshot.long_pauses.iter().map(|pause| (pause.start_ns - START) / MS).collect();
        prop_assert_eq!(kept, long);
    }

    /// GPU operations arrive up to three seconds late, in any order.
    #[test]
    fn gpu_times_equal_the_naive_ones(
        pauses in prop::collection::vec((0u64..20_000, 0u64..900), 0..40),
        ops in prop::collection::vec((0u64..20_000, 1u64..900, 0u64..3000), 1..60),
        interval in 1u64..100,
    ) {
        let mut records: Vec<(u64, Record)> = Vec::new();
        for (start, length) in &pauses {
            records.push((start + length, Record::Pause(pause(1, *start, start + length))));
        }
        for (start, length, late) in &ops {
            records.push((start + length + late, op(1, *start, start + length)));
        }
        records.sort_by_key(|(reported, _)| *reported);
        let mut live = fed([process(1, 0, "generational")]);
        for (_, record) in &records {
            live.record(record);
        }
        let busy: BTreeSet<u64> = ops.iter().flat_map(|(start, length, _)| *start..start + length).collect();
        let paused: BTreeSet<u64> = pauses.iter().flat_map(|(start, length)| *start..start + length).collect();
        let (first, last) = (*busy.first().unwrap(), *busy.last().unwrap() + 1);
        let idle: BTreeSet<u64> = &(first..last).collect() - &busy;
        let snapshot = at(&live, 25_000, interval * 100);
        let gpu = only(&snapshot).gpus[0].busy.unwrap();
        prop_assert_eq!(gpu.total_busy_ns, busy.len() as u64 * MS);
        prop_assert_eq!(gpu.total_idle_ns, idle.len() as u64 * MS);
        prop_assert_eq!(gpu.total_idle_in_gc_ns, idle.intersection(&paused).count() as u64 * MS);
        let until = last / 100 * 100;
        let from = until.saturating_sub(interval * 100).max(first / 100 * 100);
        prop_assert_eq!((gpu.window_end_ns, gpu.window_ns), (START + until * MS, (until - from) * MS));
        let window: BTreeSet<u64> = (from..until).collect();
        prop_assert_eq!(gpu.busy_ns, busy.intersection(&window).count() as u64 * MS);
        let idle = &window - &busy;
        prop_assert_eq!(gpu.idle_ns, idle.len() as u64 * MS);
        prop_assert_eq!(gpu.idle_in_gc_ns, idle.intersection(&paused).count() as u64 * MS);
    }

    /// A backward pass is reported at its end, pauses within it before.
    #[test]
    fn steps_equal_the_naive_ones(
        starts in prop::collection::btree_set(0u64..30_000, 2..100),
        pauses in prop::collection::vec((0u64..30_000, 0u64..900, 0u64..1000), 0..60),
    ) {
        let starts: Vec<u64> = starts.into_iter().collect();
        let mut records: Vec<(u64, Record)> = Vec::new();
        for pair in starts.windows(2) {
            let end = pair[0] + (pair[1] - pair[0]) / 2;
            records.push((end, backward(1, pair[0], end)));
        }
        let last = *starts.last().unwrap();
        records.push((last, backward(1, last, last)));
        for (start, length, late) in &pauses {
            records.push((start + length + late, Record::Pause(pause(1, *start, start + length))));
        }
        records.sort_by_key(|(reported, _)| *reported);
        let mut live = fed([process(1, 0, "generational")]);
        for (_, record) in &records {
            live.record(record);
        }
        let request = SnapshotRequest { now_ns: START + 40 * SECOND, interval_ns: SECOND, detail: Some(1) };
        let detail = live.snapshot(&request).detail.unwrap();
        let expected: Vec<(u64, u64)> = starts.windows(2).map(|pair| (pair[0], pair[1])).collect();
        let expected = &expected[expected.len().saturating_sub(60)..];
        prop_assert_eq!(detail.steps.len(), expected.len());
        let paused: BTreeSet<u64> = pauses.iter().flat_map(|(start, length, _)| *start..start + length).collect();
        for (step, (start, end)) in detail.steps.iter().zip(expected) {
            prop_assert_eq!((step.start_ns, step.duration_ns), (START + start * MS, (end - start) * MS));
            let time = paused.range(start..end).count() as u64;
            let begun = pauses.iter().filter(|pause| (*start..*end).contains(&pause.0)).count() as u64;
            prop_assert_eq!(step.pauses.time_ns, time * MS);
            prop_assert_eq!(step.pauses.count, begun.max(u64::from(time > 0)));
        }
    }
}
