//! Functions of the program that collections call: apart from the pauses, named, saved by nothing.

use gctrace_analysis::report::{Level, Report};
use gctrace_event::{Called, CalledKind, Frame, Record};
use test_kit::reports::{MS, START, end, exit, pause, process, report};

/// A process of 10 s that collects every 100 ms for `pause_ms`, of which all but 1 ms is in a
/// finalizer, and whose callback takes another `callback_ms` after that.
fn records(pause_ms: u64, callback_ms: u64) -> Vec<Record> {
    let frame = |id, function: &str, line| {
        Record::Frame(Frame {
            id,
            parent: None,
            function: function.to_owned(),
            file: "/srv/app/session.py".to_owned(),
            line: Some(line),
        })
    };
    let mut records = vec![
        process(1, 0, "generational"),
        frame(1, "Session.__del__", 12),
        frame(2, "report", 30),
    ];
    for at in (100..9_900).step_by(100) {
        let called = |kind, at_ms: u64, ms: u64, stack| {
            Record::Called(Called {
                pid: 1,
                tid: 1,
                at_ns: START + at_ms * MS,
                kind,
                calls: 3,
                time_ns: ms * MS,
                stack: Some(stack),
            })
        };
        records.push(called(CalledKind::Finalizer, at, pause_ms - 1, 1));
        records.push(Record::Pause(pause(1, at, at + pause_ms)));
        if callback_ms > 0 {
            records.push(called(CalledKind::Callback, at + pause_ms + 1, callback_ms, 2));
        }
    }
    records.push(exit(1, 10_000));
    records
}

fn of(pause_ms: u64, callback_ms: u64) -> Report {
    report(records(pause_ms, callback_ms), Some(end(10_000)))
}

#[test]
fn they_are_apart_from_the_pauses_and_named() {
    let report = of(41, 20);
    let process = &report.processes[0];
    assert_eq!(process.paused_ns, 98 * MS);
    assert_eq!(report.totals.pauses.time_ns, 98 * MS);
    let [finalizer, callback] = &process.called[..] else { panic!("{:?}", process.called) };
    assert_eq!((finalizer.kind, finalizer.calls), (CalledKind::Finalizer, 3 * 98));
    assert_eq!((finalizer.time_ns, finalizer.longest_ns), (98 * 40 * MS, 40 * MS));
    assert_eq!((callback.kind, callback.time_ns), (CalledKind::Callback, 98 * 20 * MS));
    assert_eq!(report.verdict.level, Level::Negligible, "{}", report.verdict.sentence);
    for part in [
        "3.92 s more (39.2 %), up to 40.0 ms at a time",
        "session.py:12 in Session.__del__",
        "no setting of the collector saves it",
        "gc.callbacks took 1.96 s more (19.6 %)",
        "session.py:30 in report",
    ] {
        assert!(report.verdict.sentence.contains(part), "{part}: {}", report.verdict.sentence);
    }
}

#[test]
fn nothing_saves_them() {
    let report = of(41, 20);
    for advice in &report.advice {
        let most = advice.effect.saves_at_most_ns.unwrap_or(0);
        assert!(most <= 110 * MS, "{:?} {most}", advice.id);
    }
}

/// With probes the same pauses are the collector's: 40 ms for 700 objects are not.
#[test]
fn probes_report_that_they_cannot_distinguish() {
    let probes = |objects| {
        let is_pause = |record: &Record| !matches!(record, Record::Called(_));
        let mut records: Vec<Record> = records(41, 0).into_iter().filter(is_pause).collect();
        for record in &mut records {
            if let Record::Pause(pause) = record {
                pause.young_count = Some(objects);
            }
        }
        report(records, Some(end(10_000))).verdict.sentence
    };
    let sentence = probes(700);
    let words = "took 58.6 µs for each object that they traversed";
    assert!(sentence.contains(words) && sentence.contains("--mode inject"), "{sentence}");
    assert!(!probes(70_000).contains("traversed"), "{}", probes(70_000));
}

#[test]
fn little_of_it_is_no_sentence() {
    let report = of(2, 0);
    assert_eq!(report.processes[0].called[0].time_ns, 98 * MS);
    assert!(!report.verdict.sentence.contains("Finalizers"), "{}", report.verdict.sentence);
}

/// CPython counts nothing for a cycle that its finalizer breaks, as a suspended generator's does.
#[test]
fn what_dies_in_finalizers_is_garbage() {
    let advised = |calls| {
        let mut records = records(40, 0);
        for record in &mut records {
            match record {
                Record::Pause(pause) => pause.collected = Some(0),
                Record::Called(called) => (called.calls, called.time_ns) = (calls, MS),
                _ => {}
            }
        }
        let list = report(records, Some(end(10_000))).advice;
        list.iter().find_map(|advice| advice.effect.settings.clone())
    };
    assert_eq!(advised(0).as_deref(), Some("disable@start"));
    assert_ne!(advised(300).as_deref(), Some("disable@start"));
}
