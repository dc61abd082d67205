//! What the collector frees: sums, estimates, figures per step.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use gctrace_analysis::live::{Live, SnapshotRequest};
use gctrace_analysis::report::{Basis, CycleShape, GarbageReport, Report};
use gctrace_event::{
    CycleCount, Garbage, KindCount, KindName, ObjectKind, Pause, PauseMemory, Record,
};
use proptest::prelude::*;
use test_kit::garbage::ClosuresRun;
use test_kit::reports::START;
use test_kit::{garbage, reports};

fn of(run: ClosuresRun) -> Report {
    let end = reports::end(garbage::end_ms(run));
    reports::report(garbage::records(run), Some(end))
}

fn garbage(report: &Report) -> &GarbageReport {
    report.garbage.as_ref().unwrap()
}

#[test]
fn the_same_closures_in_every_step() {
    let report = of(ClosuresRun::default());
    let garbage = garbage(&report);
    assert_eq!((garbage.collections, garbage.examined), (84, 84));
    assert_eq!(garbage.examined_ratio, Some(1.0));
    assert_eq!(garbage.objects, 4 * 50 + 80 * 60);
    assert_eq!(garbage.cost_ns, Some(84_000));
    assert_eq!(garbage.device_bytes, None, "unknown without --cuda");
    assert_eq!(garbage.steps, Some(200));
    assert_eq!(garbage.other_objects, 0);
    let cell = &garbage.kinds[0];
    assert_eq!(cell.name.type_name, "cell");
    assert_eq!(cell.name.function.as_deref(), Some("Trainer.step.<locals>.closure"));
    assert_eq!((cell.objects, cell.bytes), (1200, Some(48_000)));
    let per_step = cell.per_step.unwrap();
    assert!((per_step.mean - 6.0).abs() < 0.05, "{per_step:?}");
    assert!(per_step.constant);
    assert_eq!(per_step.basis, Basis::Measured);
    let error = garbage.kinds.last().unwrap();
    assert_eq!((error.name.type_name.as_str(), error.objects), ("ModuleNotFoundError", 200));
    assert_eq!(error.per_step.unwrap().mean, 0.0, "of the imports only");
    assert!(!error.per_step.unwrap().constant);

    let cycles = garbage.cycles.as_ref().unwrap();
    assert_eq!(cycles.len(), 1);
    let closure = &cycles[0];
    assert_eq!(closure.shape, CycleShape::Closure);
    assert_eq!((closure.count, closure.objects, closure.held_objects), (1200, 3600, 1200));
    let location = closure.location.as_ref().unwrap();
    assert_eq!((location.file.as_str(), location.line), ("/srv/train.py", Some(10)));
    assert!(closure.per_step.unwrap().constant);
    assert_eq!(garbage.cycle_garbage, 5000);
    assert_eq!(garbage.other_cycle_objects, 200);
    assert_eq!(report.processes[0].garbage.as_ref(), Some(garbage));
}

#[test]
fn a_part_of_the_collections_stands_for_all() {
    let run = ClosuresRun { every: 4, cycles: false, ..ClosuresRun::default() };
    let report = of(run);
    let garbage = garbage(&report);
    let ratio = garbage.examined_ratio.unwrap();
    assert!((0.25..0.4).contains(&ratio), "{ratio}");
    assert!(garbage.examined < garbage.collections);
    assert_eq!(garbage.cycles, None);
    let cell = &garbage.kinds[0];
    let estimate = cell.estimate.unwrap();
    assert_eq!(estimate.basis, Basis::Inferred);
    assert!(cell.objects < 500);
    assert!((1150..1250).contains(&estimate.count), "{estimate:?}");
    let per_step = cell.per_step.unwrap();
    assert_eq!(per_step.basis, Basis::Inferred);
    assert!((per_step.mean - 6.0).abs() < 0.5, "{per_step:?}");
}

#[test]
fn more_and_more_is_not_constant() {
    let report = of(ClosuresRun { constant: false, ..ClosuresRun::default() });
    assert!(!garbage(&report).kinds[0].per_step.unwrap().constant);
}

#[test]
fn device_memory_is_beside_it() {
    let run = ClosuresRun::default();
    let mut records = garbage::records(run);
    records.push(Record::PauseMemory(PauseMemory {
        pid: garbage::PID,
        tid: garbage::PID,
        start_ns: START,
        end_ns: START + 1,
        device_type: 1,
        device: 0,
        freed_bytes: 512,
        freed_blocks: Some(1),
    }));
    let report = reports::report(records, Some(reports::end(garbage::end_ms(run))));
    assert_eq!(garbage(&report).device_bytes, Some(512));
}

/// At the interpreter's end everything is garbage, which says nothing of the program.
#[test]
fn what_the_end_frees_is_left_out() {
    let run = ClosuresRun::default();
    let mut records = garbage::records(run);
    let before = reports::report(records.clone(), Some(reports::end(3_000)));
    records.push(Record::Garbage(Garbage {
        pid: garbage::PID,
        tid: garbage::PID,
        at_ns: START + 2_905 * reports::MS,
        objects: 70_000,
        kinds: vec![KindCount { kind: 3, objects: 70_000, bytes: None }],
        ..Garbage::default()
    }));
    records.push(Record::Pause(Pause {
        generation: 2,
        reason: gctrace_event::GcReason::Shutdown,
        collected: Some(70_000),
        ..reports::pause(garbage::PID, 2_900, 2_910)
    }));
    let after = reports::report(records, Some(reports::end(3_000)));
    let (before, after) = (garbage(&before), garbage(&after));
    assert_eq!(after.shutdown_objects, 70_000);
    assert_eq!(
        (after.collections, after.objects, &after.kinds),
        (before.collections, before.objects, &before.kinds)
    );
}

#[test]
fn without_examined_collections_there_is_no_section() {
    let mut records = garbage::records(ClosuresRun::default());
    records.retain(|record| !matches!(record, Record::Garbage(_)));
    let report = reports::report(records, Some(reports::end(3000)));
    assert!(report.garbage.is_none());
}

/// The order of a pause and its garbage, and gaps between them, make no difference to the sums.
#[test]
fn garbage_may_follow_its_pause() {
    let mut records = garbage::records(ClosuresRun::default());
    let before = reports::report(records.clone(), Some(reports::end(3000)));
    for index in 1..records.len() {
        if matches!((&records[index - 1], &records[index]), (Record::Garbage(_), Record::Pause(_)))
        {
            records.swap(index - 1, index);
        }
    }
    let after = reports::report(records, Some(reports::end(3000)));
    assert_eq!(garbage(&before), garbage(&after));
}

/// A pause that was not examined is not taken for the next one, however soon that follows and
/// however long examining took.
#[test]
fn garbage_is_of_the_pause_that_it_was_read_in() {
    let mut records = vec![reports::process(1, 0, "generational"), kind(1)];
    for n in 0..20 {
        let at_ms = 100 + n * 10;
        let empty = Pause { collected: Some(0), ..reports::pause(1, at_ms, at_ms + 1) };
        let freeing = Pause { collected: Some(5), ..reports::pause(1, at_ms + 2, at_ms + 9) };
        records.push(Record::Pause(empty));
        records.push(Record::Garbage(Garbage {
            pid: 1,
            tid: 1,
            at_ns: freeing.start_ns + 10,
            objects: 5,
            cost_ns: Some(6 * reports::MS),
            ..Garbage::default()
        }));
        records.push(Record::Pause(freeing));
    }
    let report = reports::report(records, Some(reports::end(1000)));
    assert_eq!(garbage(&report).examined_ratio, Some(1.0));
    assert_eq!(report.totals.pauses.time_ns, 20 * 2 * reports::MS);
}

/// Cycles of large garbage are not examined: what was found of the rest stands for it.
#[test]
fn cycles_that_were_not_examined_are_estimated() {
    let run = ClosuresRun::default();
    let mut records = garbage::records(run);
    let garbage_of = |record| match record {
        &mut Record::Garbage(ref mut garbage) => Some(garbage),
        _ => None,
    };
    let all = records.iter_mut().filter_map(garbage_of).skip(4);
    all.step_by(2).for_each(|garbage| garbage.cycles = None);
    let report = reports::report(records, Some(reports::end(garbage::end_ms(run))));
    let garbage = garbage(&report);
    let closure = &garbage.cycles.as_ref().unwrap()[0];
    assert_eq!(closure.count, 600);
    let estimate = closure.estimate.unwrap();
    assert_eq!(estimate.basis, Basis::Inferred);
    assert!((1_150..1_250).contains(&estimate.count), "{estimate:?}");
    let per_step = closure.per_step.unwrap();
    assert_eq!(per_step.basis, Basis::Inferred);
    assert!((per_step.mean - 6.0).abs() < 0.3, "{per_step:?}");
    assert_eq!(garbage.kinds[0].estimate.unwrap().basis, Basis::Measured);
}

/// Lines of births are of a type, and no kinds of their own.
#[test]
fn births_are_those_of_the_type() {
    let run = ClosuresRun::default();
    let end = reports::end(garbage::end_ms(run));
    let plain = garbage::records(run);
    let records = garbage::with_births(plain.clone());
    let without = reports::report(plain, Some(end.clone()));
    let mut report = reports::report(records, Some(end));
    let garbage = report.garbage.as_mut().unwrap();
    let tensors = garbage.kinds.iter_mut().find(|kind| kind.births.is_some());
    let tensors = tensors.unwrap();
    assert_eq!(tensors.name.type_name, "torch.Tensor");
    let births = tensors.births.take().unwrap();
    let seen: Vec<_> = births
        .lines
        .iter()
        .map(|line| (line.location.function.as_str(), line.location.line, line.samples))
        .collect();
    // Each of 80 collections frees 15 closures.
    assert_eq!(births.samples, 80);
    assert_eq!(seen, [("Model.build", Some(31), 80)]);
    assert_eq!(Some(&*garbage), without.garbage.as_ref());
}

/// Several processes: sums, without steps.
#[test]
fn processes_are_summed() {
    let run = ClosuresRun::default();
    let mut records = garbage::records(run);
    let other = records.clone().into_iter().map(|mut record| {
        match &mut record {
            Record::Process(process) => process.pid = 9,
            Record::Settings(settings) => settings.pid = 9,
            Record::ObjectKind(kind) => kind.pid = 9,
            Record::CycleSignature(cycle) => cycle.pid = 9,
            Record::Garbage(garbage) => (garbage.pid, garbage.tid) = (9, 9),
            Record::Pause(pause) => (pause.pid, pause.tid) = (9, 9),
            Record::Step(step) => (step.pid, step.tid) = (9, 9),
            _ => {}
        }
        record
    });
    let other: Vec<Record> = other.collect();
    records.extend(other);
    let report = reports::report(records, Some(reports::end(garbage::end_ms(run))));
    let garbage = garbage(&report);
    assert_eq!((garbage.collections, garbage.examined), (168, 168));
    assert_eq!(garbage.examined_ratio, Some(1.0));
    assert_eq!(garbage.kinds[0].objects, 2400);
    assert_eq!(garbage.kinds[0].per_step, None);
    assert_eq!(garbage.cycles.as_ref().unwrap()[0].count, 2400);
    assert_eq!(garbage.steps, None);
}

/// The share of all: a process that frees much at its end does not weigh more, and a process whose collections were not
/// examined counts.
#[test]
fn the_share_is_that_of_all_processes() {
    let pause = |pid, at_ms, collected| {
        let pause = reports::pause(pid, at_ms, at_ms + 1);
        Record::Pause(Pause { generation: 0, collected: Some(collected), ..pause })
    };
    let examined = |pid, at_ms, objects| {
        let (at_ns, kinds) = (START + at_ms * reports::MS + 10, Vec::new());
        Record::Garbage(Garbage { pid, tid: pid, at_ns, objects, kinds, ..Garbage::default() })
    };
    let shutdown = Pause {
        generation: 2,
        reason: gctrace_event::GcReason::Shutdown,
        collected: Some(1_000_000),
        ..reports::pause(1, 500, 510)
    };
    let records = vec![
        examined(1, 100, 100),
        pause(1, 100, 100),
        Record::Pause(shutdown),
        examined(2, 200, 1),
        pause(2, 200, 1),
        pause(2, 300, 9_999),
        pause(3, 400, 89_900),
    ];
    let report = reports::report(records, Some(reports::end(1_000)));
    assert_eq!(garbage(&report).examined_ratio, Some(0.001_01));
}

prop_compose! {
    fn any_garbage()(
        (tid, at_ms) in (1u32..3, 0u64..200),
        unlisted in prop_oneof![4 => 0u64..100, 1 => Just(u64::MAX)],
        kinds in prop::collection::vec((0u32..90, 0u64..50, any::<Option<u64>>()), 0..6),
        cycles in prop::option::of(prop::collection::vec((0u32..40, any::<u64>(), 0u64..50), 0..4)),
    ) -> Record {
        let kind = |(kind, objects, bytes)| KindCount { kind, objects, bytes };
        let cycle = |(cycle, count, objects)| CycleCount {
            cycle, count, objects, held_objects: objects, bytes: None,
        };
        Record::Garbage(Garbage {
            pid: 1,
            tid,
            at_ns: START + at_ms * reports::MS,
            objects: kinds.iter().fold(unlisted, |sum, (_, objects, _)| sum.saturating_add(*objects)),
            kinds: kinds.into_iter().map(kind).collect(),
            cycles: cycles.map(|counts| counts.into_iter().map(cycle).collect()),
            ..Garbage::default()
        })
    }
}

/// Some of the kinds of [`any_garbage`], several of them the same.
fn kind(id: u32) -> Record {
    Record::ObjectKind(ObjectKind {
        pid: 1,
        id,
        name: KindName { type_name: format!("T{}", id % 30), ..KindName::default() },
    })
}

fn any_record() -> impl Strategy<Value = Record> {
    let pause = (1u32..3, 0u64..200, 0u64..9, any::<Option<u64>>(), 0u8..4).prop_map(
        |(tid, from, length, collected, generation)| {
            Record::Pause(Pause {
                tid,
                collected,
                generation,
                ..reports::pause(1, from, from + length)
            })
        },
    );
    prop_oneof![1 => any_garbage(), 1 => pause]
}

proptest! {
    /// Whatever comes in whatever order: every object of examined garbage is in one row or among
    /// the others, and shares are shares.
    #[test]
    fn no_object_is_lost(mut records in prop::collection::vec(any_record(), 0..120)) {
        let all: Vec<Garbage> = records
            .iter()
            .filter_map(|record| match record {
                Record::Garbage(garbage) => Some(garbage.clone()),
                _ => None,
            })
            .collect();
        let objects = all.iter().fold(0u64, |sum, record| sum.saturating_add(record.objects));
        let some = all.iter().filter(|record| record.objects > 0).count() as u64;
        let known = all.iter().flat_map(|record| &record.kinds).filter(|count| count.kind < 60);
        let known: u64 = known.map(|count| count.objects).sum();
        records.splice(0..0, (0..60).map(kind));
        // A process is in the report if it has a pause.
        records.push(Record::Pause(reports::pause(1, 1000, 1001)));
        let report = reports::report(records, Some(reports::end(2000)));
        let Some(garbage) = &report.garbage else {
            prop_assert_eq!(some, 0);
            return Ok(());
        };
        prop_assert_eq!((garbage.examined, garbage.objects), (some, objects));
        let listed: u64 = garbage.kinds.iter().map(|kind| kind.objects).sum();
        prop_assert_eq!(listed, known);
        prop_assert_eq!(garbage.other_objects, objects - listed);
        prop_assert!(garbage.kinds.windows(2).all(|pair| pair[0].objects >= pair[1].objects));
        prop_assert!(garbage.kinds.iter().all(|kind| (0.0..=1.0).contains(&kind.ratio)));
        prop_assert!(garbage.examined_ratio.is_none_or(|ratio| (0.0..=1.0).contains(&ratio)));
        prop_assert!(garbage.collections >= garbage.examined);
    }
}

/// The live view counts what the report counts.
#[test]
fn live_figures_are_those_of_the_report() {
    let run = ClosuresRun { every: 3, ..ClosuresRun::default() };
    let report = of(run);
    let reported = garbage(&report);
    let mut live = Live::new(reports::header(), 0);
    for record in garbage::records(run) {
        live.record(&record);
    }
    let now_ns = START + garbage::end_ms(run) * reports::MS;
    let snapshot = live.snapshot(&SnapshotRequest {
        now_ns,
        interval_ns: 1_000 * reports::MS,
        detail: Some(garbage::PID),
    });
    let process = &snapshot.processes[0];
    let figures = process.garbage.as_ref().unwrap();
    let by_type = |name: &str| {
        let of_type = reported.kinds.iter().filter(|kind| kind.name.type_name == name);
        of_type.map(|kind| kind.objects).sum::<u64>()
    };
    assert_eq!(figures.objects["other"], reported.other_objects);
    for (name, objects) in figures.objects.iter().filter(|object| object.0 != "other") {
        assert_eq!(*objects, by_type(name), "{name}");
    }
    assert_eq!(figures.collected, process.collections.outcomes.collected);
    assert_eq!(
        reported.examined_ratio.unwrap() * figures.collected as f64,
        figures.examined_collected as f64
    );
    let detail = snapshot.detail.unwrap().garbage.unwrap();
    assert_eq!(detail.objects, reported.objects);
    for (one, other) in detail.kinds.iter().zip(&reported.kinds) {
        assert_eq!((&one.kind, one.objects), (&other.name, other.objects));
    }
    let (one, other) = (&detail.cycles.unwrap()[0], &reported.cycles.as_ref().unwrap()[0]);
    assert_eq!((one.count, one.edges.len()), (other.count, other.edges.len()));
    assert_eq!(one.shape, other.shape);
    // Pauses are without the time that examining took, in both.
    let time_ns: u64 = process.collections.pause_ns.iter().sum();
    assert_eq!(time_ns, report.totals.pauses.time_ns);
    let recorded = (4 + 72) * reports::MS + 8 * 5 * reports::MS;
    assert_eq!(time_ns, recorded - reported.cost_ns.unwrap());
}
