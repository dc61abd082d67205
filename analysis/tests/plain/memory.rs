//! What is advised where memory piles up.

use gctrace_analysis::report::{AdviceId, Report};
use gctrace_analysis::words::memory::resident_in_short;
use gctrace_event::{GcReason, GcSettings, Pause, Pressure, Process, Record};
use test_kit::reports::{MS, START, end, pause, process, report};

const S: u64 = 1_000 * MS;
const MIB: u64 = 1 << 20;

/// A process of some seconds with a reading of its memory each second.
fn program(seconds: u64, resident: impl Fn(u64) -> u64) -> Vec<Record> {
    let readings = (0..seconds).map(|second| {
        let at_ns = START + second * S;
        let resident_bytes = Some(resident(second) * MIB);
        Record::Pressure(Pressure {
            pid: 1,
            since_ns: at_ns,
            at_ns,
            resident_bytes,
            ..Pressure::default()
        })
    });
    std::iter::once(process(1, 0, "generational")).chain(readings).collect()
}

fn settings(enabled: bool, young: i32) -> Record {
    let thresholds = [young, 10, 10];
    Record::Settings(GcSettings {
        pid: 1,
        at_ns: START + MS,
        enabled: Some(enabled),
        thresholds,
        stack: None,
    })
}

/// Collections of 1 ms, so many each second.
fn collections(seconds: u64, each: u64, generation: u8, reason: GcReason) -> Vec<Record> {
    let one = |index| {
        let start_ns = START + index * S / each + 5 * MS;
        let (end_ns, collected) = (start_ns + MS, Some(0));
        let oldest_objects = (generation == 2).then_some(1_000);
        let of = pause(1, 0, 1);
        Record::Pause(Pause {
            start_ns,
            end_ns,
            generation,
            reason,
            collected,
            oldest_objects,
            ..of
        })
    };
    (0..seconds * each).map(one).collect()
}

fn advised(records: Vec<Record>, seconds: u64) -> Vec<(AdviceId, Option<u64>)> {
    let report: Report = report(records, Some(end(seconds * 1_000)));
    let advice = report.advice.into_iter();
    advice
        .map(|one| (one.id, one.effect.gives_back_at_most_bytes.map(|bytes| bytes / MIB)))
        .collect()
}

/// `first` is the first advice, with what it gives back in MiB.
fn assert_first(records: Vec<Record>, seconds: u64, first: (AdviceId, Option<u64>)) {
    let advised = advised(records, seconds);
    assert_eq!(advised.first(), Some(&first), "{advised:?}");
    assert!(advised.iter().all(|(id, _)| *id != AdviceId::Disable), "{advised:?}");
}

const RISE: fn(u64) -> u64 = |second| 20 + 50 * second;

#[test]
fn garbage_that_no_collection_frees_is_said() {
    let few = collections(1, 2, 0, GcReason::Automatic);
    let collects = (AdviceId::CollectSometimes, Some(450));
    let program = || program(10, RISE);
    assert_first([program(), few.clone(), vec![settings(false, 700)]].concat(), 10, collects);
    assert_first([program(), few.clone(), vec![settings(true, 0)]].concat(), 10, collects);
    assert_first([program(), few, vec![settings(true, 700)]].concat(), 10, collects);
    let promoting = collections(10, 50, 0, GcReason::Manual);
    assert_first([program(), promoting, vec![settings(true, 700)]].concat(), 10, collects);
    let raised = collections(10, 5, 0, GcReason::Automatic);
    assert_first([program(), raised, vec![settings(true, 10_000)]].concat(), 10, collects);
}

#[test]
fn what_full_collections_leave_is_no_garbage() {
    for records in [
        [program(10, RISE), collections(10, 1, 2, GcReason::Automatic)],
        [program(10, RISE), collections(10, 5, 0, GcReason::Automatic)],
        // Its start, and nothing after it.
        [program(10, |second| 20 + 100 * second.min(2)), collections(1, 2, 0, GcReason::Automatic)],
        [program(10, |_| 200), collections(1, 2, 0, GcReason::Automatic)],
    ] {
        let advised = advised(records.concat(), 10);
        assert!(advised.iter().all(|(_, bytes)| bytes.is_none()), "{advised:?}");
    }
}

#[test]
fn growth_of_half_a_minute_leads_to_its_holder() {
    let young = || collections(40, 5, 0, GcReason::Automatic);
    let two_rates: fn(u64) -> u64 = |second| 20 + 5 * second + 5 * second.saturating_sub(16);
    assert_first([program(40, two_rates), young()].concat(), 40, (AdviceId::FindHolders, None));
    let flat: [fn(u64) -> u64; 3] = [
        |second| 100 + second % 3,
        // Warm for a third of it; full and empty again.
        |second| 20 + 10 * second.min(14),
        |second| 20 + 10 * (second % 9),
    ];
    for resident in flat {
        let advised = advised([program(40, resident), young()].concat(), 40);
        assert!(advised.iter().all(|(id, _)| *id != AdviceId::FindHolders), "{advised:?}");
    }
}

/// Of a recording too short to call it growth.
#[test]
fn a_short_rise_leads_to_the_heap() {
    let young = || collections(20, 2, 2, GcReason::Automatic);
    let find = |records: Vec<Record>| {
        advised(records, 20).iter().any(|(id, _)| *id == AdviceId::FindHolders)
    };
    assert!(find([program(20, |second| 50 + 45 * second), young()].concat()));
    // It rises little, for less than half of what is there, or at first only.
    let none: [fn(u64) -> u64; 3] =
        [|second| 50 + second, |second| 900 + 10 * second, |second| 20 + 90 * second.min(8)];
    for resident in none {
        assert!(!find([program(20, resident), young()].concat()));
    }
}

#[test]
fn ranks_collect_at_the_same_step() {
    let of = |ranks: u32| {
        let with_rank = |pid, rank| match process(pid, 0, "generational") {
            Record::Process(of) => Record::Process(Process { rank, ..of }),
            other => other,
        };
        let mut records: Vec<Record> =
            (1..=ranks).map(|pid| with_rank(pid, (ranks > 1).then_some(pid))).collect();
        for pid in 1..=ranks {
            let pauses = collections(10, 20, 0, GcReason::Automatic).into_iter();
            records.extend(pauses.map(|record| match record {
                Record::Pause(of) => Record::Pause(Pause { pid, tid: pid, ..of }),
                other => other,
            }));
        }
        advised(records, 10).into_iter().map(|(id, _)| id).collect::<Vec<_>>()
    };
    assert!(of(2).contains(&AdviceId::Planned), "{:?}", of(2));
    assert!(!of(1).contains(&AdviceId::Planned), "{:?}", of(1));
}

#[test]
fn forked_processes_copy_what_they_share() {
    let forked = |collects: bool| {
        let mut records = vec![process(1, 0, "generational"), Record::Pause(pause(1, 100, 101))];
        for pid in [2, 3] {
            records.push(process(pid, 1_000, "generational"));
            for (second, private) in [(1, 0), (2, 30), (4, 62)] {
                let at_ns = START + second * S;
                records.push(Record::Pressure(Pressure {
                    pid,
                    since_ns: at_ns,
                    at_ns,
                    resident_bytes: Some(400 * MIB),
                    private_bytes: Some(private * MIB),
                    ..Pressure::default()
                }));
            }
            if collects {
                records.push(Record::Pause(pause(pid, 2_000, 2_001)));
            }
        }
        advised(records, 5)
    };
    let is_advised = |collects, id| forked(collects).contains(&(id, Some(124)));
    assert!(is_advised(false, AdviceId::ShareBuffers), "{:?}", forked(false));
    assert!(is_advised(true, AdviceId::FreezeBeforeFork), "{:?}", forked(true));
}

#[test]
fn explicit_calls_that_free_are_not_removed() {
    let calls = |freed| {
        let one = |index: u64| {
            let start_ns = START + index * 100 * MS;
            let of = Pause { generation: 2, oldest_objects: Some(1_000_000), ..pause(1, 0, 1) };
            let (reason, collected) = (GcReason::Manual, Some(freed));
            Record::Pause(Pause { start_ns, end_ns: start_ns + 50 * MS, reason, collected, ..of })
        };
        let pauses = (1..50).map(one);
        let records = std::iter::once(process(1, 0, "generational")).chain(pauses).collect();
        let advised = advised(records, 5);
        advised.into_iter().map(|(id, _)| id).collect::<Vec<_>>()
    };
    assert_eq!(calls(600)[..2], [AdviceId::Freeze, AdviceId::ExplicitCalls]);
    assert_eq!(calls(0)[..1], [AdviceId::ExplicitCalls]);
    assert!(!calls(0).contains(&AdviceId::Freeze));
}

/// What the C library keeps in all looks of the second half is worth a change.
#[test]
fn freed_memory_that_the_c_library_keeps_is_given_back() {
    let young = || collections(1, 2, 0, GcReason::Automatic);
    let keeping = |kept: fn(u64) -> Option<u64>| {
        let mut records = program(12, |_| 280);
        for (second, record) in records.iter_mut().skip(1).enumerate() {
            if let Record::Pressure(pressure) = record {
                pressure.kept_bytes = kept(second as u64).map(|kept| kept * MIB);
            }
        }
        [records, young()].concat()
    };
    let trim = |kept| {
        let advised = advised(keeping(kept), 12).into_iter();
        advised.filter(|(id, _)| *id == AdviceId::TrimHeap).map(|(_, bytes)| bytes).next()
    };
    assert_eq!(trim(|second| Some(270 + second % 3)), Some(Some(270)));
    assert_eq!(trim(|second| (second % 3 == 0).then_some(270)), Some(Some(270)));
    // It is used again; is little; was looked at once, or not to the end.
    assert_eq!(trim(|second| Some(270 * (second % 2))), None);
    assert_eq!(trim(|_| Some(31)), None);
    assert_eq!(trim(|second| (second == 9).then_some(270)), None);
    assert_eq!(trim(|second| (second < 8).then_some(270)), None);
    let report = report(keeping(|_| Some(270)), Some(end(12_000)));
    let sentence = &report.verdict.sentence;
    assert!(!sentence.contains("piles up"), "{sentence}");
    assert_eq!(resident_in_short(&report), None);
}

/// Memory that is high and flat is no leak, but what holds it can be named.
#[test]
fn large_memory_leads_to_the_heap() {
    let resident = |from: u64, to: u64| {
        let young = collections(12, 5, 0, GcReason::Automatic);
        let records = [program(12, move |second| from + (to - from) * second.min(1)), young];
        resident_in_short(&report(records.concat(), Some(end(12_000))))
    };
    let said = resident(176, 176).unwrap_or_default();
    assert!(said.starts_with("176 MiB are resident.") && said.contains("heap -p 1 "), "{said}");
    assert_eq!(resident(100, 100), None);
    // It rose in the first second.
    assert!(resident(10, 140).is_some());
}

/// A leak of a small program is small at first: a third of what it has after 40 s.
#[test]
fn a_small_leak_of_a_small_program_counts() {
    let growing = |each_kib: u64| {
        let mut records = program(40, |_| 0);
        for (second, record) in records.iter_mut().skip(1).enumerate() {
            if let Record::Pressure(pressure) = record {
                pressure.resident_bytes = Some(13 * MIB + second as u64 * each_kib * 1_024);
            }
        }
        let records = [records, collections(40, 5, 0, GcReason::Automatic)].concat();
        advised(records, 40).iter().any(|(id, _)| *id == AdviceId::FindHolders)
    };
    assert!(growing(180));
    assert!(!growing(60));
}
