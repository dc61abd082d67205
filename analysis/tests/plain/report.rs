//! Reports over small traces with figures that can be computed by hand.

use gctrace_analysis::Analysis;
use gctrace_analysis::report::{AdviceId, Basis, JudgedPhase, Level, Report, TrainingMark};
use gctrace_event::{
    CollectorKind, Frame, GcReason, GcSettings, HitCost, NamedMarker, OmittedPauses, Pause,
    ProbeCost, ProcessOrigin, Record, StepMark,
};
use test_kit::reports::{MS, START, add, end, exit, pause, process, report};

fn ids(report: &Report) -> Vec<AdviceId> {
    report.advice.iter().map(|advice| advice.id).collect()
}

#[test]
fn overlaps_of_one_process_count_once_and_processes_add_up() {
    let mut nested = pause(1, 110, 120);
    nested.tid = 9;
    let report = report(
        vec![
            process(1, 0, "generational"),
            process(2, 500, "generational"),
            Record::Pause(nested),
            Record::Pause(pause(1, 100, 140)),
            Record::Pause(pause(2, 600, 610)),
            exit(2, 700),
        ],
        Some(end(1000)),
    );
    assert_eq!(report.totals.pauses.count, 3);
    assert_eq!(report.totals.pauses.time_ns, 60 * MS);
    assert_eq!(report.totals.stopped_ns, 50 * MS);
    assert_eq!(report.totals.observed_ns, 1200 * MS);
    assert!((report.totals.stopped_ratio.unwrap() - 50.0 / 1200.0).abs() < 1e-12);
    assert_eq!(report.totals.basis, Basis::Measured);
    let pids: Vec<u32> = report.processes.iter().map(|process| process.pid).collect();
    assert_eq!(pids, [1, 2]);
    assert_eq!(report.processes[0].threads, 2);
    assert_eq!(report.processes[1].observed_ns, 200 * MS);
    let worst = &report.worst[0];
    assert_eq!(worst.duration_ns, 40 * MS);
    assert_eq!(worst.after_start_ns, 100 * MS);
    assert_eq!(worst.unix_ns, Some(1_700_000_000_000_000_000 + 100 * MS));
}

#[test]
fn a_reused_process_id_is_another_process() {
    let report = report(
        vec![
            process(1, 0, "generational"),
            Record::Pause(pause(1, 10, 11)),
            exit(1, 100),
            process(1, 500, "generational"),
            Record::Pause(pause(1, 510, 513)),
            // Written late, but of the first.
            Record::Pause(pause(1, 20, 22)),
            exit(1, 600),
        ],
        Some(end(1000)),
    );
    let mut times: Vec<(u64, u64)> = report
        .processes
        .iter()
        .map(|process| (process.observed_ns / MS, process.stopped_ns / MS))
        .collect();
    times.sort_unstable();
    assert_eq!(times, [(100, 3), (100, 3)]);
    assert_eq!(report.processes.len(), 2);
}

#[test]
fn an_exec_continues_the_process() {
    let report = report(
        vec![
            process(1, 0, "generational"),
            process(1, 50, "incremental"),
            Record::Pause(pause(1, 60, 61)),
        ],
        Some(end(100)),
    );
    assert_eq!(report.processes[0].observed_ns, 100 * MS);
    let interpreter = report.processes[0].interpreter.as_ref().unwrap();
    assert_eq!(interpreter.collector, CollectorKind::Incremental);
}

#[test]
fn free_threaded_stops_are_not_runs() {
    let run = |from, to, stopped_ms| {
        Record::Pause(Pause { stop_the_world_ns: Some(stopped_ms * MS), ..pause(1, from, to) })
    };
    let records = vec![process(1, 0, "free-threaded"), run(0, 100, 30), run(200, 300, 40)];
    let report = report(records, Some(end(1000)));
    assert_eq!(report.totals.paused_ns, 200 * MS);
    assert_eq!(report.totals.stopped_ns, 70 * MS);
    let world = report.totals.pauses.stop_the_world.as_ref().unwrap();
    assert_eq!((world.runs, world.run_ns, world.stopped_ns), (2, 200 * MS, 70 * MS));
    // Every run goes through the whole heap, whatever generation it reports.
    assert_eq!(report.freed_nothing.of_automatic_full.count, 2);
    assert_eq!(report.totals.basis, Basis::Measured);
}

#[test]
fn free_threaded_without_stop_times_is_inferred() {
    let records = vec![process(1, 0, "free-threaded"), Record::Pause(pause(1, 0, 10))];
    assert_eq!(report(records, Some(end(100))).totals.basis, Basis::Inferred);
}

#[test]
fn growth_of_the_full_collection() {
    // 50 ns per object and 1 ms fixed.
    let mut records = vec![process(1, 0, "generational")];
    for n in 1..=10u64 {
        let start_ns = START + n * 1000 * MS;
        records.push(Record::Pause(Pause {
            start_ns,
            end_ns: start_ns + MS + n * 1_000_000 * 50,
            generation: 2,
            collected: Some(1000),
            oldest_objects: Some(n * 1_000_000 - 1000),
            ..pause(1, 0, 0)
        }));
    }
    let report = report(records, Some(end(20_000)));
    let growth = report.processes[0].growth.as_ref().unwrap();
    assert_eq!(growth.collections, 10);
    assert_eq!((growth.first.objects, growth.last.objects), (1_000_000, 10_000_000));
    assert!((growth.ns_per_million_objects.unwrap() - 50e6).abs() < 1.0);
    assert!(growth.r_squared.unwrap() > 0.999_999);
    let prediction = growth.at_twice_the_heap.unwrap();
    assert_eq!(prediction.objects, 20_000_000);
    assert_eq!(prediction.basis, Basis::Predicted);
    assert!(prediction.duration_ns.abs_diff(1_001 * MS) < 1000);
}

#[test]
fn collections_that_freed_nothing_and_explicit_calls() {
    let of = |reason, generation, collected, from_ms| {
        Record::Pause(Pause { reason, generation, collected, ..pause(1, from_ms, from_ms + 4) })
    };
    let report = report(
        vec![
            process(1, 0, "generational"),
            of(GcReason::Automatic, 2, Some(0), 0),
            of(GcReason::Automatic, 0, Some(0), 100),
            of(GcReason::Manual, 2, Some(0), 200),
            of(GcReason::Manual, 2, Some(5), 250),
            of(GcReason::Manual, 2, Some(5), 300),
            of(GcReason::Shutdown, 2, Some(0), 400),
            of(GcReason::Automatic, 2, None, 500),
        ],
        Some(end(1000)),
    );
    let nothing = &report.freed_nothing;
    assert_eq!(nothing.by_cause.automatic_full.count, 1);
    assert_eq!(nothing.by_cause.automatic_partial.count, 1);
    assert_eq!(nothing.by_cause.manual.count, 1);
    assert_eq!(nothing.by_cause.shutdown.count, 1);
    assert_eq!((nothing.total.count, nothing.total.time_ns), (4, 16 * MS));
    assert_eq!(report.totals.pauses.outcome_unknown, 1);
    assert_eq!(report.explicit_calls.pauses.count, 3);
    assert!((report.explicit_calls.rate_per_s.unwrap() - 3.0).abs() < 1e-9);
    assert_eq!(report.verdict.level, Level::Heavy);
    assert_eq!(ids(&report), [AdviceId::ExplicitCalls]);
}

#[test]
fn reports_missing_data() {
    let mut attached = process(1, 0, "generational");
    if let Record::Process(process) = &mut attached {
        process.origin = ProcessOrigin::Attached;
    }
    let cut_short = Pause { unfinished: true, collected: Some(0), ..pause(1, 10, 12) };
    let mut last = end(1000);
    last.lost.insert("ring buffer full".to_owned(), 3);
    last.omitted = OmittedPauses::of(7, 5 * MS);
    last.probes = vec![
        ProbeCost::new("gc entry", 1000, Some(HitCost::between(250.0, 1000.0))),
        ProbeCost::new("exec", 5, None),
        ProbeCost::new(ProbeCost::STOPPED, 2, Some(HitCost::exactly(5e6))),
    ];
    last.cpu_ns = Some(10_000_000);
    let report = report(vec![attached, Record::Pause(cut_short)], Some(last));
    assert_eq!(report.missing.lost["ring buffer full"], 3);
    assert_eq!(report.missing.omitted.count, 7);
    assert_eq!(report.missing.attached, 1);
    assert_eq!(report.missing.unfinished.count, 1);
    assert_eq!(report.freed_nothing.total.count, 0, "a pause cut short could still have freed");
    assert_eq!(report.totals.stopped_ns, 7 * MS, "what was left out is in the total");
    let overhead = &report.overhead;
    assert_eq!(overhead.time_ns, Some(500_000), "a stop takes no CPU time");
    assert_eq!(overhead.time_at_least_ns.zip(overhead.time_at_most_ns), Some((250_000, 1_000_000)));
    assert_eq!(overhead.stopped_ns, Some(10 * MS));
    assert_eq!(overhead.cpu_ratio, Some(0.5 / 9.5), "of the CPU time without the overhead");
    assert_eq!(overhead.cpu_ratio_at_most, Some(1.0 / 9.0));
    assert_eq!(overhead.hits_without_time, 5);
}

#[test]
fn a_cost_as_long_as_the_program_has_a_share() {
    let mut last = end(1000);
    last.probes = vec![ProbeCost::new("gc entry", 10, Some(HitCost::between(50.0, 200.0)))];
    last.cpu_ns = Some(1_000);
    let overhead = report(vec![process(1, 0, "generational")], Some(last)).overhead;
    assert_eq!(overhead.cpu_ratio_at_least, Some(1.0));
    let most = overhead.cpu_ratio_at_most.unwrap();
    assert!((most - 19.0).abs() < 1e-9, "{most}");
}

#[test]
fn without_a_last_line_the_end_is_inferred() {
    let records = vec![process(1, 0, "generational"), Record::Pause(pause(1, 100, 200))];
    let report = report(records, None);
    assert_eq!(report.totals.basis, Basis::Inferred);
    assert_eq!(report.totals.observed_ns, 200 * MS);
    assert_eq!(report.missing.traces_without_end, 1);
    assert_eq!(report.traces[0].ended, None);
}

#[test]
fn several_traces_have_a_line_each() {
    let mut analysis = Analysis::default();
    for (file, length) in [("a", 1), ("b", 3)] {
        let records = vec![process(1, 0, "generational"), Record::Pause(pause(1, 10, 10 + length))];
        add(&mut analysis, file, records, Some(end(100)));
    }
    analysis.settle();
    let report = analysis.report();
    let stopped: Vec<u64> = report.traces.iter().map(|trace| trace.stopped_ns / MS).collect();
    assert_eq!(stopped, [1, 3]);
    assert_eq!(report.totals.stopped_ns, 4 * MS);
    assert_eq!(report.processes.len(), 2, "the same process id on two machines");
    assert_eq!(report.processes[0].trace, 1);
    assert_eq!(report.worst[0].trace, 1);
}

#[test]
fn levels_of_the_verdict() {
    let level = |pauses: &[(u64, u64)], length_ms| {
        let mut records = vec![process(1, 0, "generational")];
        records.extend(
            pauses
                .iter()
                .map(|(from, to)| (from + length_ms / 2, to + length_ms / 2))
                .map(|(from, to)| Record::Pause(pause(1, from, to))),
        );
        let report = report(records, Some(end(length_ms)));
        (report.verdict.level, report.advice.first().map(|advice| advice.id))
    };
    assert_eq!(level(&[], 1000), (Level::None, Some(AdviceId::NoCollection)));
    assert_eq!(level(&[(0, 1)], 1000), (Level::Negligible, Some(AdviceId::Leave)));
    assert_eq!(level(&[(0, 150)], 100_000).0, Level::RareLongPauses);
    assert_eq!(level(&[(0, 3), (10, 13), (20, 24)], 500).0, Level::Noticeable);
    assert_eq!(level(&[(0, 10), (20, 30), (40, 50)], 500).0, Level::Heavy);
    // One pause that is felt, however short the run.
    assert_eq!(level(&[(0, 100)], 500).0, Level::RareLongPauses);
    // Whether one or two that are not felt repeat is unknown.
    assert_eq!(level(&[(0, 99)], 500), (Level::TooShort, None));
    assert_eq!(level(&[(0, 30), (40, 70)], 500), (Level::TooShort, None));
    assert_eq!(level(&[(0, 90)], 7_500), (Level::TooShort, None));
    assert_eq!(level(&[(0, 90)], 15_000).0, Level::Negligible);
    // Less than 100 ms, whatever happened in it.
    assert_eq!(level(&[(0, 1), (2, 4), (5, 9), (10, 14)], 99), (Level::TooShort, None));
    assert_eq!(level(&[(0, 1), (2, 4), (5, 9), (10, 14)], 100).0, Level::Heavy);
    assert_eq!(level(&[], 10).0, Level::None);
}

/// Steps repeat: 20 of 2 ms with a pause in each are enough, without them the same pauses are not.
#[test]
fn a_short_recording_is_judged_by_its_steps() {
    let level = |with_steps: bool, pauses: u64| {
        let mut records = vec![process(1, 0, "generational")];
        for step in 0..20 {
            let start_ns = START + 2 * step * MS;
            let mark = StepMark {
                pid: 1,
                tid: 1,
                marker: NamedMarker::Backward,
                start_ns,
                end_ns: start_ns + MS / 10,
                cpu_ns: None,
            };
            records.extend(with_steps.then_some(Record::Step(mark)));
            let pause =
                Pause { start_ns: start_ns + MS, end_ns: start_ns + MS + MS / 2, ..pause(1, 0, 0) };
            records.extend((step > 10 && step <= 10 + pauses).then_some(Record::Pause(pause)));
        }
        report(records, Some(end(50))).verdict.level
    };
    assert_eq!(level(true, 9), Level::Heavy);
    assert_eq!(level(true, 2), Level::TooShort);
    assert_eq!(level(false, 9), Level::TooShort);
}

#[test]
fn the_last_settings_count() {
    let settings = |thresholds| {
        Record::Settings(GcSettings {
            pid: 1,
            at_ns: START,
            enabled: Some(true),
            thresholds,
            stack: None,
        })
    };
    let report = report(
        vec![
            process(1, 0, "generational"),
            settings([700, 10, 10]),
            settings([500, 5, 5]),
            Record::Pause(pause(1, 0, 50)),
        ],
        Some(end(100)),
    );
    let settings = report.processes[0].settings.as_ref().unwrap();
    assert_eq!((settings.changes, settings.thresholds), (1, [500, 5, 5]));
}

#[test]
fn distinguishes_collections_at_shutdown() {
    let last = Pause { reason: GcReason::Shutdown, generation: 2, ..pause(1, 900, 1000) };
    let report = report(vec![process(1, 0, "generational"), Record::Pause(last)], Some(end(1000)));
    assert_eq!(ids(&report), [AdviceId::FreezeAtExit]);
}

/// One full collection that the program asked for, in a long run, and one at each second.
#[test]
fn one_or_two_pauses_are_no_share() {
    let run_in = |file: &str, pauses: u64, reason| {
        let frame = Record::Frame(Frame {
            id: 1,
            parent: None,
            function: "fit".to_owned(),
            file: file.to_owned(),
            line: Some(12),
        });
        let of = |at: u64| {
            let from_ms = 1_000 + at * 6_000;
            Record::Pause(Pause { reason, stack: Some(1), ..pause(1, from_ms, from_ms + 800) })
        };
        let records = [process(1, 0, "generational"), frame].into_iter();
        report(records.chain((0..pauses).map(of)).collect(), Some(end(20_000)))
    };
    let run = |pauses, reason| run_in("/srv/search.py", pauses, reason);
    let once = run(1, GcReason::Manual).verdict;
    assert_eq!(once.level, Level::RareLongPauses, "{}", once.sentence);
    assert_eq!(
        once.sentence,
        "The garbage collector ran once in the run (20.0 s): one call of gc.collect() at /srv/search.py:12 in fit, \
         800 ms."
    );
    let twice = run(2, GcReason::Automatic).verdict;
    assert_eq!(
        twice.sentence,
        "The garbage collector ran twice in the run (20.0 s): triggered at /srv/search.py:12 in fit, up to 800 ms."
    );
    assert_eq!(run(3, GcReason::Manual).verdict.level, Level::Heavy);
    // A library's, which nothing turns off.
    let library = run_in("/usr/lib/python3/site-packages/loky/executor.py", 1, GcReason::Manual);
    assert!(library.verdict.sentence.contains("loky/executor.py:12"));
    assert_eq!(ids(&library), [AdviceId::Leave]);
    // Without phases, as of free-threaded builds.
    let stops = Pause { stop_the_world_ns: Some(800 * MS), ..pause(1, 1_000, 1_800) };
    let free = report(vec![process(1, 0, "free-threaded"), Record::Pause(stops)], Some(end(9_000)));
    assert_eq!(
        free.verdict.sentence,
        "The garbage collector ran once in 9.00 s, for up to 800 ms."
    );
}

/// A program that works in bursts and ends with a quiet time, and a server with one long pause in between.
#[test]
fn pauses_that_become_rare_end_no_loading() {
    let full = |from_ms, to_ms| Pause {
        generation: 2,
        oldest_objects: Some(460_000),
        ..pause(1, from_ms, to_ms)
    };
    let bursts = (0..40).map(|at| pause(1, 100 + at * 50, 110 + at * 50)).collect();
    let quiet = (0..5).map(|at| pause(1, 4_000 + at * 1_000, 4_001 + at * 1_000));
    let young =
        |from_ms: u64| (0..40).map(move |at| pause(1, from_ms + at * 40, from_ms + at * 40 + 5));
    let server: Vec<Pause> =
        [young(100).collect(), vec![full(1_800, 2_031)], young(2_100).collect()].concat();
    let bursts: Vec<Pause> = [bursts, quiet.collect::<Vec<_>>()].concat();
    for (pauses, longest) in [(bursts, "10.0 ms"), (server, "231 ms")] {
        let records = pauses.into_iter().map(Record::Pause);
        let records = [process(1, 0, "generational")].into_iter().chain(records);
        let report = report(records.collect(), Some(end(9_000)));
        let phases = report.phases.as_ref().unwrap();
        assert_eq!(phases.training_by, TrainingMark::WholeRun);
        assert_eq!((phases.start_up.pauses.count, phases.judged), (0, JudgedPhase::Training));
        assert!(report.verdict.sentence.contains(longest), "{}", report.verdict.sentence);
        assert!(!ids(&report).contains(&AdviceId::OffWhileLoading), "{:?}", ids(&report));
    }
}
