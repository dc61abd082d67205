//! Reports on lines, allocation pressure and counters, over small traces worked out by hand.

use gctrace_analysis::report::{AdviceId, Basis, LineReport, LineTotal, NotCovered, PauseTotal};
use gctrace_event::{Counter, Frame, GcReason, Pause, Pressure, ProcessCounters, Record};
use test_kit::reports::{MS, START, end, pause, process, report};

const JSON: &str = "/usr/lib/python3.12/json/decoder.py";
const OWN: &str = "/home/me/train.py";

fn frame(id: u32, parent: Option<u32>, file: &str, function: &str, line: u32) -> Record {
    Record::Frame(Frame {
        id,
        parent,
        function: function.to_owned(),
        file: file.to_owned(),
        line: Some(line),
    })
}

fn special(id: u32, function: &str) -> Record {
    Record::Frame(Frame { id, function: function.to_owned(), ..Frame::default() })
}

/// A program of two lines, one of which calls the json module.
fn frames() -> Vec<Record> {
    vec![
        process(1, 0, "generational"),
        frame(1, None, OWN, "main", 10),
        frame(2, Some(1), OWN, "load", 20),
        frame(3, Some(2), JSON, "decode", 300),
        frame(4, Some(1), OWN, "build", 30),
        special(5, Frame::OUTER),
        frame(6, Some(5), JSON, "decode", 300),
        special(7, Frame::UNREADABLE),
    ]
}

fn at(stack: Option<u32>, from_ms: u64, length_ms: u64, generation: u8) -> Pause {
    Pause { stack, generation, ..pause(1, from_ms, from_ms + length_ms) }
}

fn names(lines: &[LineReport]) -> Vec<(&str, Option<u32>, u64, u64)> {
    lines
        .iter()
        .map(|line| {
            let PauseTotal { count, time_ns } = line.pauses;
            let location = &line.location;
            (location.function.as_str(), location.line, count, time_ns / MS)
        })
        .collect()
}

#[test]
fn lines_by_time_own_and_innermost() {
    let mut records = frames();
    let pauses = [
        at(Some(3), 0, 10, 0),
        at(Some(3), 20, 30, 2),
        at(Some(4), 60, 20, 2),
        at(Some(6), 90, 5, 1),
        at(Some(7), 100, 1, 0),
        at(None, 110, 4, 0),
        Pause { reason: GcReason::Shutdown, ..at(None, 120, 30, 2) },
    ];
    records.extend(pauses.map(Record::Pause));
    let report = report(records, Some(end(1000)));
    let lines = report.lines.as_ref().unwrap();
    let effort = |count, ms| PauseTotal { count, time_ns: ms * MS };
    assert_eq!(lines.with_stack, effort(5, 66));
    assert_eq!(lines.without_stack, effort(1, 4));
    assert_eq!(lines.without_stack_at_shutdown, effort(1, 30));
    assert_eq!(lines.stack_too_deep, effort(1, 5));
    assert_eq!(lines.own_line_too_deep, effort(1, 5));
    assert_eq!(lines.unreadable, effort(1, 1));
    assert_eq!(
        names(&lines.innermost),
        [("decode", Some(300), 3, 45), ("build", Some(30), 1, 20), (Frame::UNREADABLE, None, 1, 1),]
    );
    // The library's line counts for its caller; if the caller is beyond the recorded frames, for
    // itself.
    assert_eq!(
        names(&lines.own),
        [
            ("load", Some(20), 2, 40),
            ("build", Some(30), 1, 20),
            ("decode", Some(300), 1, 5),
            (Frame::UNREADABLE, None, 1, 1),
        ]
    );
    let line = &lines.own[0];
    assert!((line.time_ratio - 0.4).abs() < 1e-12, "of all 100 ms");
    assert_eq!(line.max_ns, 30 * MS);
    assert_eq!(line.by_generation[0], effort(1, 10));
    assert_eq!(line.by_generation[2], effort(1, 30));
    assert_eq!(line.with.len(), 1);
    assert_eq!(line.with[0].location.file, JSON);
    let callers = &lines.innermost[0].with;
    assert_eq!(callers[0].location.function, "load");
    assert_eq!(callers.len(), 1);
    let innermost: Vec<_> = lines.stacks[0].frames.iter().map(|f| f.line).collect();
    assert_eq!(innermost, [Some(300), Some(20), Some(10)]);
    assert_eq!(lines.stacks_total, 4);
    assert_eq!(names(&report.processes[0].lines.as_ref().unwrap().own), names(&lines.own));
}

#[test]
fn lines_of_explicit_and_automatic_collections() {
    let mut records = frames();
    let manual = Pause { reason: GcReason::Manual, ..at(Some(4), 0, 50, 2) };
    records.push(Record::Pause(manual));
    records.push(Record::Pause(at(Some(3), 100, 60, 2)));
    records.push(Record::Pause(at(Some(2), 200, 40, 0)));
    let report = report(records, Some(end(1000)));
    let ids: Vec<AdviceId> = report.advice.iter().map(|advice| advice.id).collect();
    assert_eq!(ids, [AdviceId::RaiseThreshold, AdviceId::ExplicitCalls]);
    let lines = report.lines.unwrap();
    let first = |lines: &[LineTotal]| {
        let LineTotal { location, pauses, .. } = &lines[0];
        (location.file.clone(), location.line, pauses.count, pauses.time_ns / MS)
    };
    let train = |line, time_ms| ("/home/me/train.py".to_owned(), Some(line), 1, time_ms);
    assert_eq!(first(&lines.explicit), train(30, 50));
    assert_eq!(first(&lines.automatic_full), train(20, 60));
    assert_eq!(first(&lines.automatic_partial), train(20, 40));
}

#[test]
fn without_stacks_there_are_no_lines() {
    let records = vec![process(1, 0, "generational"), Record::Pause(pause(1, 0, 1))];
    let report = report(records, Some(end(100)));
    assert!(report.lines.is_none() && report.processes[0].lines.is_none());
    assert!(report.not_covered.contains(&NotCovered::Lines));
    assert!(report.pressure.is_none() && report.counters.is_none());
}

fn interval(from_ms: u64, to_ms: u64, net: u64, arenas: Option<(u64, u64)>) -> Record {
    Record::Pressure(Pressure {
        pid: 1,
        since_ns: START + from_ms * MS,
        at_ns: START + to_ms * MS,
        net_containers: net,
        arenas_mapped: arenas.map(|arenas| arenas.0),
        arenas_unmapped: arenas.map(|arenas| arenas.1),
        ..Pressure::default()
    })
}

#[test]
fn pressure_is_summed_over_intervals() {
    let mut process = process(1, 0, "generational");
    if let Record::Process(described) = &mut process {
        described.interpreter.as_mut().unwrap().version = "3.9.18".to_owned();
    }
    let records = vec![
        process,
        Record::Pause(pause(1, 0, 1)),
        interval(0, 500, 1000, Some((10, 12))),
        interval(500, 2000, 3000, None),
    ];
    let report = report(records, Some(end(4000)));
    let pressure = report.processes[0].pressure.as_ref().unwrap();
    assert_eq!(pressure.basis, Basis::Measured);
    assert_eq!(pressure.net_containers, 4000);
    assert_eq!(pressure.net_containers_per_s, Some(2000.0));
    let arenas = pressure.arenas.as_ref().unwrap();
    assert_eq!(arenas.mapped_per_s, Some(20.0));
    assert_eq!(arenas.balance, -2);
    assert_eq!(arenas.balance_bytes, Some(-2 * (256 << 10)));
    assert_eq!((arenas.peak_balance, arenas.peak_balance_bytes), (0, Some(0)));
    assert_eq!(report.pressure.as_ref(), Some(pressure));
}

#[test]
fn pressure_without_intervals_is_inferred_from_pauses() {
    let counting = Pause { young_count: Some(700), ..pause(1, 0, 1) };
    let records = vec![process(1, 0, "generational"), Record::Pause(counting)];
    let report = report(records, Some(end(2000)));
    let pressure = report.processes[0].pressure.as_ref().unwrap();
    assert_eq!(pressure.basis, Basis::Inferred);
    assert_eq!(pressure.net_containers_per_s, Some(350.0));
    assert!(pressure.arenas.is_none());
}

/// A full collection of a thousand objects, with values of these counters.
fn counted(from_ms: u64, values: &[(Counter, u64)]) -> Pause {
    let mut pause = Pause {
        generation: 2,
        oldest_objects: Some(990),
        collected: Some(10),
        ..pause(1, from_ms, from_ms + 10)
    };
    for (counter, value) in values {
        pause.counters.set(*counter, *value);
    }
    pause
}

#[test]
fn counters_inside_against_outside() {
    let mut whole = ProcessCounters {
        pid: 1,
        since_ns: START,
        at_ns: START + 1000 * MS,
        counters: gctrace_event::Counters::default(),
    };
    whole.counters.set(Counter::Cycles, 10_000);
    whole.counters.set(Counter::Instructions, 21_000);
    whole.counters.set(Counter::CacheMisses, 300);
    whole.counters.set(Counter::TaskClock, 100 * MS);
    whole.counters.scaled = true;
    let earlier = ProcessCounters { at_ns: START + 10 * MS, ..whole.clone() };
    let mut moved = counted(40, &[(Counter::TaskClock, 10 * MS), (Counter::MajorFaults, 3)]);
    moved.counters.migrated = true;
    let full = [
        (Counter::Cycles, 2000),
        (Counter::Instructions, 1000),
        (Counter::CacheMisses, 100),
        (Counter::TaskClock, 10 * MS),
        (Counter::MajorFaults, 0),
    ];
    let records = vec![
        process(1, 0, "generational"),
        Record::Counters(whole),
        Record::Counters(earlier),
        Record::Pause(counted(0, &full)),
        Record::Pause(counted(20, &full)),
        Record::Pause(moved),
    ];
    let report = report(records, Some(end(1000)));
    let counters = report.counters.as_ref().unwrap();
    assert_eq!(counters.inside_ipc, Some(0.5));
    assert_eq!(counters.outside_ipc, Some(19_000.0 / 6000.0));
    assert_eq!((counters.pauses, counters.migrated_pauses), (3, 1));
    assert_eq!((counters.scaled_pauses, counters.scaled_processes), (0, 1));
    assert_eq!(counters.major_fault_pauses.count, 1);
    assert_eq!(counters.traversed_objects, 3000);
    let of = |name| counters.counters.iter().find(|c| c.name == name).unwrap();
    let misses = of(Counter::CacheMisses);
    assert_eq!((misses.inside, misses.inside_pauses, misses.outside), (200, 2, Some(100)));
    assert_eq!(misses.per_1000_objects, Some(100.0), "two pauses of 1000 objects");
    assert_eq!(misses.inside_per_1000_instructions, Some(100.0));
    assert_eq!(misses.outside_per_1000_instructions, Some(100.0 / 19_000.0 * 1e3));
    assert_eq!(misses.inside_per_cpu_s, Some(10_000.0));
    let clock = of(Counter::TaskClock);
    assert_eq!(clock.outside, Some(70 * MS));
    assert_eq!(clock.inside_per_cpu_s, None, "a rate alone proves nothing");
    let faults = of(Counter::MajorFaults);
    assert_eq!((faults.inside, faults.outside), (3, None), "no total was read");
    let ids: Vec<AdviceId> = report.advice.iter().map(|advice| advice.id).collect();
    assert_eq!(ids, [AdviceId::RaiseThreshold, AdviceId::SwappedOut]);
}

/// A heap that is swapped out makes pauses in training wait for a disk.
#[test]
fn pauses_that_waited_for_a_disk() {
    let waited = [(Counter::TaskClock, MS), (Counter::MajorFaults, 30)];
    let pauses = [600, 700, 800].map(|from_ms| Record::Pause(counted(from_ms, &waited)));
    let records = [process(1, 0, "generational")].into_iter().chain(pauses);
    let report = report(records.collect(), Some(end(1000)));
    let mut ids = report.advice.iter().map(|advice| advice.id);
    assert!(ids.any(|id| id == AdviceId::SwappedOut), "{:?}", report.advice);
}

/// Each collection but the last one is of a program that frees `garbage` objects in it; the interpreter's end
/// frees its heap.
fn advised(garbage: u64) -> Vec<AdviceId> {
    let mut records = vec![process(1, 0, "generational")];
    let collected = |pause, collected| Record::Pause(Pause { collected: Some(collected), ..pause });
    records.extend((0..500).map(|at| collected(pause(1, 10 * at, 10 * at + 5), garbage)));
    let last = Pause { reason: GcReason::Shutdown, generation: 2, ..pause(1, 5_000, 5_200) };
    records.push(collected(last, 3_000_000));
    report(records, Some(end(5_300))).advice.iter().map(|advice| advice.id).collect()
}

#[test]
fn cycles_are_sought_where_collections_free_some() {
    assert!(advised(50).contains(&AdviceId::FindCycles), "{:?}", advised(50));
    assert!(!advised(0).contains(&AdviceId::FindCycles), "{:?}", advised(0));
}

/// A large heap that collections traverse to free little is frozen, once.
#[test]
fn a_large_heap_is_frozen_where_little_is_garbage() {
    let advised = |objects: [u64; 6]| -> Vec<AdviceId> {
        let mut records = vec![process(1, 0, "generational")];
        for (at, objects) in (0..).zip(objects) {
            let from_ms = 1000 * at;
            let young = (1..40).map(|n| pause(1, from_ms + 10 * n, from_ms + 10 * n + 1));
            records.extend(young.map(Record::Pause));
            let full = pause(1, from_ms + 500, from_ms + 560);
            let (heap_objects, collected) = (Some(objects), Some(900));
            let full = Pause { generation: 2, heap_objects, collected, ..full };
            records.push(Record::Pause(full));
        }
        report(records, Some(end(6000))).advice.iter().map(|advice| advice.id).collect()
    };
    let whole = advised([300_000; 6]);
    assert!(whole.contains(&AdviceId::Freeze), "{whole:?}");
    let small = advised([90_000; 6]);
    assert!(!small.contains(&AdviceId::Freeze), "{small:?}");
    let frozen = advised([300_000, 300_000, 20_000, 90_000, 150_000, 240_000]);
    assert!(!frozen.contains(&AdviceId::Freeze), "{frozen:?}");
}
