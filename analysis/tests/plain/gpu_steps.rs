//! Training steps: their contents, and whether a full collection made them longer.

#![expect(clippy::panic, clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use gctrace_analysis::report::{FullBy, NoComparison, ProcessSteps, StepSource, StepsReport};
use gctrace_event::{Annotation, GpuOp, GpuOpKind, NamedMarker, Pause, Record, StepMark};
use test_kit::reports;
use test_kit::reports::{MS, START, end, process};

const PID: u32 = 1;

fn backward(tid: u32, at_ms: u64) -> Record {
    Record::Step(StepMark {
        marker: NamedMarker::Backward,
        pid: PID,
        tid,
        start_ns: START + at_ms * MS,
        end_ns: START + at_ms * MS + MS,
        cpu_ns: None,
    })
}

fn profiler_step(number: u64, from_ms: u64, to_ms: u64) -> Record {
    Record::Annotation(Annotation {
        pid: PID,
        tid: PID,
        name: format!("ProfilerStep#{number}"),
        start_ns: START + from_ms * MS,
        end_ns: START + to_ms * MS,
    })
}

fn pause(from_ms: u64, to_ms: u64, generation: u8) -> Record {
    Record::Pause(Pause { generation, ..reports::pause(PID, from_ms, to_ms) })
}

fn steps(records: Vec<Record>) -> Option<StepsReport> {
    let mut all = vec![process(PID, 0, "generational")];
    all.extend(records);
    reports::report(all, Some(end(100_000))).steps
}

fn only(records: Vec<Record>) -> ProcessSteps {
    let steps = steps(records).unwrap();
    let [steps] = steps.processes.as_slice() else {
        panic!("one process: {steps:?}");
    };
    steps.clone()
}

#[test]
fn no_steps_no_section() {
    assert!(steps(vec![pause(1, 2, 2)]).is_none());
    assert!(steps(vec![backward(PID, 1)]).is_none(), "one pass is no step");
}

/// Steps of 100 ms; every tenth has a full collection of 50 ms, is that much longer, and the one
/// after it 5 ms longer.
fn training(count: u64) -> Vec<Record> {
    let mut records = Vec::new();
    let mut at_ms = 0;
    for n in 0..count {
        records.push(backward(PID, at_ms));
        let jitter = n % 3;
        at_ms += 100 + jitter;
        if n % 10 == 5 {
            records.push(pause(at_ms - 20, at_ms + 30, 2));
            at_ms += 50;
        } else {
            records.push(pause(at_ms - 20, at_ms - 19, 0));
        }
        at_ms += 5 * u64::from(n % 10 == 6);
    }
    records.push(backward(PID, at_ms));
    records
}

#[test]
fn steps_with_a_full_collection_are_longer() {
    let steps = only(training(60));
    assert_eq!((steps.source, steps.count), (StepSource::BackwardPass, 60));
    assert_eq!((steps.full_collections, steps.with_gc), (6, 60));
    assert_eq!(steps.full_by, FullBy::Generation);
    assert_eq!(steps.gc_ns, Some((6 * 50 + 54) * MS));
    assert_eq!(steps.gpu_idle_ns, None, "no times of a GPU");
    let with = &steps.with_full;
    assert_eq!((with.count, with.other_count), (6, 54));
    let difference = with.difference.expect("enough steps");
    let about = |ns: i64, ms: i64| (ns - ms * MS as i64).unsigned_abs() < 2 * MS;
    assert!(about(difference.mean_ns, 50), "{difference:?}");
    assert!(difference.low_ns > 48 * MS as i64 && difference.high_ns < 52 * MS as i64);
    assert!(difference.low_ns <= difference.mean_ns && difference.mean_ns <= difference.high_ns);
    let after = &steps.after_full;
    assert_eq!((after.count, after.other_count), (6, 47));
    let difference = after.difference.expect("enough steps");
    assert!(about(difference.median_ns, 5), "{difference:?}");
    assert!(difference.is_significant(), "{difference:?}");
    let longest: Vec<u64> = steps.longest.iter().map(|step| step.full_collections).collect();
    assert_eq!(longest, [1, 1, 1, 1, 1, 1, 0, 0, 0, 0]);
}

fn mark(marker: NamedMarker, at_ms: u64) -> Record {
    Record::Step(StepMark {
        pid: PID,
        tid: PID,
        marker,
        start_ns: START + at_ms * MS,
        end_ns: START + at_ms * MS,
        cpu_ns: None,
    })
}

#[test]
fn the_preferred_marker_that_has_steps_delimits_them() {
    let optimizer = || NamedMarker::Optimizer("SGD".to_owned());
    let loader = || NamedMarker::DataLoader("_SingleProcessDataLoaderIter".to_owned());
    // Gradients of four backward passes are accumulated; a second optimizer steps seldom.
    let mut records = vec![mark(NamedMarker::Function("train_step".to_owned()), 0)];
    for step in 0..21 {
        let micro = (0..4).map(|pass| mark(NamedMarker::Backward, step * 100 + pass * 20 + 5));
        records.extend(micro);
        records.push(mark(loader(), step * 100 + 1));
        records.push(mark(optimizer(), step * 100 + 90));
        if step % 7 == 0 {
            records.push(mark(NamedMarker::Optimizer("Adam".to_owned()), step * 100 + 95));
        }
    }
    let found = |records: &[Record]| {
        let steps = only(records.to_vec());
        (steps.source, steps.count, steps.length.p50_ns / MS)
    };
    assert_eq!(found(&records), (StepSource::Optimizer, 20, 100));
    let without = |records: &mut Vec<Record>, gone: fn(&NamedMarker) -> bool| {
        records.retain(|record| !matches!(record, Record::Step(mark) if gone(&mark.marker)));
    };
    without(&mut records, |marker| matches!(marker, NamedMarker::Optimizer(_)));
    assert_eq!(found(&records), (StepSource::BackwardPass, 83, 20));
    without(&mut records, |marker| *marker == NamedMarker::Backward);
    assert_eq!(found(&records), (StepSource::DataLoader, 20, 100));
    records.push(mark(NamedMarker::Function("train_step".to_owned()), 2_100));
    assert_eq!(found(&records), (StepSource::Function, 1, 2_100));
    records.push(profiler_step(3, 100, 200));
    assert_eq!(found(&records), (StepSource::ProfilerStep, 1, 100));
}

#[test]
fn too_few_steps_say_why() {
    let steps = only(training(8));
    assert_eq!((steps.with_full.count, steps.with_full.difference), (1, None));
    assert_eq!(steps.with_full.missing, Some(NoComparison::FewSteps { with: 1, without: 7 }));
    assert_eq!(steps.after_full.count, 1);
    assert_eq!(steps.after_full.missing, Some(NoComparison::FewAfterFull { after: 1, others: 5 }));
}

#[test]
fn unknown_generations_count_by_length() {
    let unknown = Pause::UNKNOWN_GENERATION;
    let steps = only(vec![
        profiler_step(3, 0, 100),
        profiler_step(4, 100, 200),
        pause(10, 11, unknown),
        pause(90, 120, unknown),
        Record::Pause(Pause {
            generation: unknown,
            end_ns: START + 150 * MS + 999_999,
            ..reports::pause(PID, 150, 150)
        }),
    ]);
    assert_eq!((steps.full_by, steps.full_collections), (FullBy::Length, 2));
    // The pause from 90 to 120 is in both steps, and started in the first.
    let gc: Vec<_> = steps.longest.iter().map(|step| (step.number, step.gc_ns)).collect();
    assert_eq!(gc, [(3, Some(11 * MS)), (4, Some(20 * MS + 999_999))]);
}

#[test]
fn free_threaded_collections_are_all_full() {
    let records =
        vec![process(PID, 0, "free-threaded"), profiler_step(1, 0, 100), pause(10, 11, 0)];
    let report = reports::report(records, Some(end(1000)));
    assert_eq!(report.steps.unwrap().processes[0].full_collections, 1);
}

#[test]
fn steps_of_the_busiest_thread_and_idle_time_of_all_devices() {
    let op = |device: u32, from_ms: u64, to_ms: u64| {
        Record::GpuOp(GpuOp {
            pid: Some(PID),
            device,
            stream: 7,
            kind: GpuOpKind::Kernel,
            name: "k".to_owned(),
            start_ns: START + from_ms * MS,
            end_ns: START + to_ms * MS,
            ..GpuOp::default()
        })
    };
    let steps = only(vec![
        backward(5, 0),
        backward(5, 50),
        backward(6, 0),
        backward(6, 100),
        backward(6, 200),
        op(0, 0, 40),
        op(0, 60, 110),
        op(0, 120, 300),
        op(1, 90, 95),
        op(1, 150, 160),
    ]);
    assert_eq!((steps.tid, steps.count, steps.left_out), (6, 2, 1));
    assert_eq!(steps.gpu_idle_ns, Some((20 + 10 + 55) * MS));
    let idle: Vec<_> = steps.longest.iter().map(|step| step.gpu_idle_ns).collect();
    assert_eq!(idle, [Some(25 * MS), Some(60 * MS)]);
}
