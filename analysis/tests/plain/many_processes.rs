//! Traces of very many processes: sums are over all of them, listed or not, in time and memory that
//! follow their number.

use gctrace_analysis::Analysis;
use gctrace_analysis::report::{AdviceId, Level, Report};
use gctrace_event::{GcReason, Pause, Process, ProcessOrigin, Record};
use test_kit::reports::{add, end, exit, pause, process, report};

/// Number of processes of a trace that are listed.
const LISTED: u32 = 10_000;

/// Processes of a millisecond with a pause of `n % 3 + 1` tenths of it, every tenth by
/// `gc.collect()`.
fn worker(n: u32) -> [Record; 3] {
    let at_ms = u64::from(n);
    let whole = pause(1000 + n, at_ms, at_ms + 1);
    let reason = match n % 10 {
        0 => GcReason::Manual,
        _ => GcReason::Automatic,
    };
    let pause = Pause { end_ns: whole.start_ns + u64::from(n % 3 + 1) * 100_000, reason, ..whole };
    [process(1000 + n, at_ms, "generational"), Record::Pause(pause), exit(1000 + n, at_ms + 1)]
}

fn workers(numbers: std::ops::Range<u32>) -> Vec<Record> {
    numbers.flat_map(worker).collect()
}

/// Figures that do not depend on which processes are listed.
fn sums(report: &Report) -> String {
    let totals = &report.totals;
    format!(
        "{:?} {:?} {} {} {} {:?} {:?} {} {:?} {:?} {:?}",
        totals.basis,
        totals.pauses,
        totals.observed_ns,
        totals.paused_ns,
        totals.stopped_ns,
        totals.stopped_ratio,
        totals.worst_process_ratio,
        totals.processes,
        report.by_reason,
        report.worst,
        report.explicit_calls,
    )
}

/// The same processes in one trace, and in several, none of which exceeds the limit.
#[test]
fn sums_are_those_of_all_processes() {
    let count = 2 * LISTED + 500;
    let one = report(workers(0..count), Some(end(u64::from(count))));
    assert_eq!(one.processes.len(), LISTED as usize);
    let not_listed = u64::from(count - LISTED);
    assert_eq!(one.totals.processes_not_listed, not_listed);
    assert_eq!(one.traces[0].processes, u64::from(count));

    let mut analysis = Analysis::default();
    for part in 0..5 {
        let part = part * count / 5..(part + 1) * count / 5;
        add(&mut analysis, "t", workers(part), Some(end(u64::from(count))));
    }
    analysis.settle();
    let mut several = analysis.report();
    assert_eq!(several.totals.processes_not_listed, 0);
    several.worst.iter_mut().for_each(|pause| pause.trace = 0);
    assert_eq!(sums(&one), sums(&several));
}

/// A reused process id is another process, listed or not.
#[test]
fn ids_that_come_again() {
    let mut records = workers(0..LISTED);
    for n in LISTED..LISTED + 100 {
        let [process_, pause_, exit_] = worker(n);
        let again = [
            process(1000 + n, u64::from(n) + 10, "generational"),
            Record::Pause(pause(1000 + n, u64::from(n) + 10, u64::from(n) + 11)),
        ];
        records.extend([process_, pause_, exit_].into_iter().chain(again));
    }
    let report = report(records, Some(end(u64::from(LISTED) + 1_000)));
    assert_eq!(report.totals.processes, u64::from(LISTED) + 200);
    assert_eq!(report.totals.processes_not_listed, 200);
}

/// With a linear search for each process this took minutes.
#[test]
fn a_hundred_thousand_processes() {
    let count = 100_000;
    let report = report(workers(0..count), Some(end(u64::from(count))));
    assert_eq!(report.totals.pauses.count, u64::from(count));
    assert_eq!(report.totals.processes, u64::from(count));
}

/// What `multiprocessing.Process` does with each part of a table: forked workers that live for 60 ms each. `allocated`:
/// net containers of each worker before each of its collections; `parents`: objects of the parent.
fn short_workers(count: u32, allocated: Option<u64>, parents: u64) -> Report {
    let mut records = vec![process(1, 0, "generational")];
    for of in [pause(1, 10, 11), pause(1, 20, 21)] {
        let oldest_objects = Some(parents);
        records.push(Record::Pause(Pause { generation: 2, oldest_objects, ..of }));
    }
    for worker in 0..count {
        let (pid, from_ms) = (2 + worker, 100 + 100 * u64::from(worker));
        let Record::Process(of) = process(pid, from_ms, "generational") else { continue };
        let (parent, origin) = (Some(1), ProcessOrigin::Child);
        records.push(Record::Process(Process { parent, origin, ..of }));
        let counting = |pause| Pause { young_count: allocated, ..pause };
        for young in 0..4 {
            let of = pause(pid, from_ms + young, from_ms + young + 1);
            records.push(Record::Pause(counting(of)));
        }
        let full = counting(pause(pid, from_ms + 10, from_ms + 50));
        let oldest_objects = Some(300_000);
        records.push(Record::Pause(Pause { generation: 2, oldest_objects, ..full }));
        records.push(exit(pid, from_ms + 60));
    }
    report(records, Some(end(3_000)))
}

#[test]
fn many_short_workers_are_not_too_short() {
    assert_eq!(short_workers(1, Some(700), 0).verdict.level, Level::TooShort);
    assert_eq!(short_workers(10, Some(700), 0).verdict.level, Level::Heavy);
}

/// A parent that freezes its heap saves nothing if the worker traverses what it made itself.
#[test]
fn only_an_inherited_heap_is_frozen_before_the_fork() {
    let advises = |allocated, parents| {
        let advice = short_workers(10, allocated, parents).advice.into_iter();
        advice.map(|advice| advice.id).any(|id| id == AdviceId::FreezeBeforeFork)
    };
    assert!(advises(Some(700), 0));
    // The worker made 5 * 60,000 objects, or an unknown number.
    assert!(!advises(Some(60_000), 10_000));
    assert!(!advises(None, 10_000));
    // Many of those that it made may be gone.
    assert!(advises(Some(60_000), 250_000));
    assert!(advises(None, 250_000));
    // Its first full collection traverses less than the parent had: that is frozen.
    assert!(!advises(None, 400_000));
}
