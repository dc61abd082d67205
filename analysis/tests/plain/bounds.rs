//! Bounds of what pauses cost the GPU, from calls on the host: cases worked out by hand, and
//! programs that a small simulation runs with and without their pauses.

use gctrace_analysis::gpu::bounds::AT_ONCE_NS;
use gctrace_analysis::report::{Basis, BoundsLimit, BoundsReport, BoundsRule, NotCovered, Report};
use gctrace_event::{
    CudaCall, CudaLaunches, CudaLayer, DeviceMemory, GcReason, GpuSample, Pause, Record, TraceEnd,
};
use proptest::prelude::*;
use test_kit::reports::{MS, START, end, pause, process, report};

const US: u64 = 1_000;

fn call(tid: u32, function: &'static str, start_ns: u64, end_ns: u64, stream: u64) -> Record {
    Record::CudaCall(CudaCall {
        pid: 1,
        tid,
        layer: CudaLayer::Driver,
        function: function.into(),
        start_ns,
        end_ns,
        stream: Some(stream),
        ..CudaCall::default()
    })
}

fn launch(tid: u32, at_us: u64) -> Record {
    let at_ns = START + at_us * US;
    call(tid, "cuLaunchKernel", at_ns, at_ns, 7)
}

fn launches(tid: u32, from_us: u64, to_us: u64, count: u64) -> Record {
    Record::CudaLaunches(CudaLaunches {
        pid: 1,
        tid,
        stream: 7,
        first_ns: START + from_us * US,
        last_ns: START + to_us * US,
        count,
    })
}

fn sync(from_us: u64, to_us: u64) -> Record {
    let (from_ns, to_ns) = (START + from_us * US, START + to_us * US);
    call(1, "cuStreamSynchronize", from_ns, to_ns, 7)
}

fn collection(tid: u32, from_us: u64, to_us: u64) -> Record {
    Record::Pause(Pause {
        tid,
        start_ns: START + from_us * US,
        end_ns: START + to_us * US,
        ..pause(1, 0, 1)
    })
}

fn reported(records: Vec<Record>) -> Report {
    let mut all = vec![process(1, 0, "generational")];
    all.extend(records);
    report(all, Some(end(10_000)))
}

fn bounds(records: Vec<Record>) -> Option<BoundsReport> {
    reported(records).gpu_bounds
}

/// Rule, lower bound and upper bound of the only pause, in microseconds.
fn only(records: Vec<Record>) -> Option<(BoundsRule, u64, u64)> {
    let bounds = bounds(records)?;
    assert_eq!(bounds.basis, Basis::Inferred);
    assert_eq!(bounds.pauses.count, 1);
    assert_eq!(bounds.rules.len(), 1);
    let rule = &bounds.rules[0];
    assert_eq!((rule.at_least_ns, rule.at_most_ns), (bounds.at_least_ns, bounds.at_most_ns));
    Some((rule.rule, bounds.at_least_ns / US, bounds.at_most_ns / US))
}

fn is(rule: BoundsRule, at_least_us: u64, at_most_us: u64) -> Option<(BoundsRule, u64, u64)> {
    Some((rule, at_least_us, at_most_us))
}

#[test]
fn a_pause_while_the_gpu_is_empty_is_lost() {
    let records = vec![launch(1, 0), sync(10, 500), collection(1, 600, 2600), launch(1, 2700)];
    assert_eq!(only(records), is(BoundsRule::GpuWasEmpty, 1980, 2000));
}

#[test]
fn work_put_after_the_wait_began_may_still_run() {
    let records = vec![
        launch(1, 0),
        sync(10, 500),
        launch(2, 300),
        collection(1, 600, 2600),
        launch(1, 2700),
    ];
    assert_eq!(only(records), is(BoundsRule::Unknown, 0, 2000));
}

#[test]
fn another_stream_may_still_have_work() {
    let other = call(1, "cuLaunchKernel", START + US, START + US, 8);
    let mut records =
        vec![launch(1, 0), other, sync(10, 500), collection(1, 600, 2600), launch(1, 2700)];
    assert_eq!(only(records.clone()), is(BoundsRule::Unknown, 0, 2000));
    let device = call(1, "cuCtxSynchronize", START + 510 * US, START + 550 * US, 0);
    records.push(device);
    assert_eq!(only(records), is(BoundsRule::GpuWasEmpty, 1980, 2000));
}

#[test]
fn wait_after_the_pause_shows_a_busy_gpu() {
    let busy = |waited_us: u64| {
        vec![launch(1, 0), collection(1, 100, 1100), sync(1200, 1200 + waited_us), launch(1, 9000)]
    };
    assert_eq!(only(busy(300)), is(BoundsRule::GpuStayedBusy, 0, 0));
    assert_eq!(only(busy(5)), is(BoundsRule::GpuFoundEmpty, 0, 1000));
    let mut launched = busy(300);
    launched.push(launch(1, 1150));
    assert_eq!(only(launched), is(BoundsRule::Unknown, 0, 1000));
}

#[test]
fn counted_launches_are_anywhere_between_the_first_and_the_last() {
    let records = |first: Record| {
        vec![launch(1, 0), sync(10, 500), first, collection(1, 600, 1600), launch(1, 2700)]
    };
    assert_eq!(only(records(launches(1, 400, 1700, 3))), is(BoundsRule::Unknown, 0, 1000));
    // Both have known times: a wait after the pause leaves the GPU as empty as it was.
    assert_eq!(only(records(launches(1, 1700, 1900, 2))), is(BoundsRule::GpuWasEmpty, 980, 1000));
}

#[test]
fn no_work_is_delayed_before_the_first_launch_and_after_the_last() {
    let mut at_the_end = pause(1, 900, 950);
    at_the_end.reason = GcReason::Shutdown;
    let bounds = bounds(vec![
        collection(1, 0, 100),
        launch(1, 200),
        launch(1, 300),
        sync(301, 400),
        collection(1, 500, 600),
        Record::Pause(at_the_end),
    ])
    .unwrap();
    assert_eq!(bounds.rules.len(), 1);
    assert_eq!(bounds.rules[0].rule, BoundsRule::NoGpuWork);
    assert_eq!(bounds.rules[0].pauses.count, 3);
    assert_eq!((bounds.at_least_ns, bounds.at_most_ns), (0, 0));
}

#[test]
fn a_pause_of_another_thread_stops_the_launching_one_at_most_since_its_last_sign() {
    let still = vec![launch(1, 0), collection(9, 100, 1100), launch(1, 2000)];
    assert_eq!(only(still), is(BoundsRule::OtherThread, 0, 1000));
    let seen =
        vec![launch(1, 0), launches(1, 200, 900, 40), collection(9, 100, 1100), launch(1, 2000)];
    assert_eq!(only(seen), is(BoundsRule::OtherThread, 0, 200));
    let waiting = vec![launch(1, 0), sync(50, 1500), collection(9, 100, 1100), launch(1, 2000)];
    assert_eq!(only(waiting), is(BoundsRule::GpuStayedBusy, 0, 0));
}

#[test]
fn bounds_are_0_and_length_without_launches_after_losses_or_on_several_devices() {
    let pattern = || vec![launch(1, 0), sync(10, 500), collection(1, 600, 2600), launch(1, 2700)];
    let mut lossy = vec![process(1, 0, "generational")];
    lossy.extend(pattern());
    let lost = TraceEnd { lost: [("ring buffer full".to_owned(), 1)].into(), ..end(10_000) };
    let lossy = report(lossy, Some(lost)).gpu_bounds.unwrap();
    assert_eq!((lossy.at_least_ns, lossy.at_most_ns), (0, 2 * MS));
    let limit = lossy.processes[0].limited_by.as_ref();
    assert_eq!(limit, Some(&BoundsLimit::EventsLost));

    let copy = |at_us| {
        let at_ns = START + at_us * US;
        call(1, "cuMemcpyHtoDAsync", at_ns, at_ns + US, 7)
    };
    let no_launches = vec![copy(0), sync(10, 500), collection(1, 600, 2600), copy(2700)];
    assert_eq!(only(no_launches), is(BoundsRule::Unknown, 0, 2000));

    let memory = |device| {
        Record::DeviceMemory(DeviceMemory {
            pid: 1,
            tid: 1,
            at_ns: START,
            device_type: 1,
            device,
            bytes: 1,
            allocated: 1,
            reserved: 1,
        })
    };
    let mut two = pattern();
    two.extend([memory(0), memory(1)]);
    assert_eq!(only(two), is(BoundsRule::Unknown, 0, 2000));
}

#[test]
fn without_calls_there_are_no_bounds() {
    assert!(reported(vec![collection(1, 0, 100)]).gpu_bounds.is_none());
}

#[test]
fn from_nvml_alone_nothing_is_claimed() {
    let sample = Record::GpuSample(GpuSample {
        device: 0,
        at_ns: START + 100 * MS,
        utilization_percent: Some(40),
        ..GpuSample::default()
    });
    let report = reported(vec![collection(1, 0, 100), sample]);
    assert!(report.gpu_bounds.is_none() && report.gpu.is_none());
    let gaps = report.not_covered.iter();
    let by_samples = gaps.filter(|gap| **gap == NotCovered::CostBySamples);
    assert_eq!(by_samples.count(), 1);
    assert!(report.gpu_cost.is_none());
}

/// The actions of a program with one launching thread and one stream.
#[derive(Clone, Copy, Debug)]
enum BoundsStep {
    Think(u64),
    Launch(u64),
    Wait,
    Collect(u64),
}

fn act() -> impl Strategy<Value = BoundsStep> {
    prop_oneof![
        3 => (1u64..400).prop_map(|us| BoundsStep::Think(us * US)),
        5 => (1u64..900).prop_map(|us| BoundsStep::Launch(us * US)),
        2 => Just(BoundsStep::Wait),
        2 => (1u64..3000).prop_map(|us| BoundsStep::Collect(us * US)),
    ]
}

/// Between a launch and the start of its kernel, and between a kernel's end and the return of a
/// wait for it.
const LATENCY_NS: u64 = 6 * US;
/// Time of a launch, and of a wait without work, on the host.
const CALL_NS: u64 = 4 * US;

/// Runs a program, with its pauses or without, to its records and the end of its last kernel.
fn run(program: &[BoundsStep], collects: bool) -> (Vec<Record>, u64) {
    let (mut now, mut gpu) = (START, 0);
    let mut records = Vec::new();
    for act in program {
        match *act {
            BoundsStep::Think(ns) => now += ns,
            BoundsStep::Launch(ns) => {
                records.push(call(1, "cuLaunchKernel", now, now, 7));
                gpu = gpu.max(now + LATENCY_NS) + ns;
                now += CALL_NS;
            }
            BoundsStep::Wait => {
                let start = now;
                now = (now + CALL_NS).max(gpu + LATENCY_NS);
                records.push(call(1, "cuStreamSynchronize", start, now, 7));
            }
            BoundsStep::Collect(ns) if collects => {
                records.push(Record::Pause(Pause {
                    start_ns: now,
                    end_ns: now + ns,
                    ..pause(1, 0, 1)
                }));
                now += ns;
            }
            BoundsStep::Collect(_) => {}
        }
        // So that no two events have the same time.
        now += 10;
    }
    (records, gpu)
}

/// Single launches as `--cuda launches` writes them: counted by the millisecond.
fn counted(records: Vec<Record>) -> Vec<Record> {
    let mut counted: Vec<CudaLaunches> = Vec::new();
    let mut kept = Vec::new();
    for record in records {
        let Record::CudaCall(call) = &record else {
            kept.push(record);
            continue;
        };
        if !call.is_launch() {
            kept.push(record);
            continue;
        }
        match counted.last_mut() {
            Some(last) if last.first_ns / MS == call.start_ns / MS => {
                last.count += 1;
                last.last_ns = call.start_ns;
            }
            _ => counted.push(CudaLaunches {
                pid: 1,
                tid: 1,
                stream: 7,
                first_ns: call.start_ns,
                last_ns: call.start_ns,
                count: 1,
            }),
        }
    }
    kept.extend(counted.into_iter().map(Record::CudaLaunches));
    kept
}

proptest! {
    #[test]
    fn the_truth_lies_within(program in prop::collection::vec(act(), 1..80), counts: bool) {
        let (records, with) = run(&program, true);
        let (_, without) = run(&program, false);
        let truth = with - without;
        let collected = program.iter().any(|act| matches!(act, BoundsStep::Collect(_)));
        let launched = program.iter().any(|act| matches!(act, BoundsStep::Launch(_)));
        let records = if counts { counted(records) } else { records };
        let bounds = reported(records).gpu_bounds;
        prop_assert_eq!(bounds.is_some(), collected && launched);
        if let Some(bounds) = bounds {
            // Work before the first launch is not the GPU's time, yet moves its end.
            let before: u64 = program
                .iter()
                .take_while(|act| !matches!(act, BoundsStep::Launch(_)))
                .map(|act| if let BoundsStep::Collect(ns) = act { *ns } else { 0 })
                .sum();
            let truth = truth - before;
            prop_assert!(bounds.at_least_ns <= truth, "{} > {truth}", bounds.at_least_ns);
            prop_assert!(bounds.at_most_ns >= truth, "{} < {truth}", bounds.at_most_ns);
            adds_up(&bounds);
        }
    }

    /// Bounds add up and are ordered for any calls, overlapping in any way.
    #[test]
    fn bounds_hold_together(
        calls in prop::collection::vec((0u32..3, 0usize..5, 0u64..5000, 0u64..900, 0u64..3), 1..60),
        pauses in prop::collection::vec((0u32..4, 0u64..5000, 0u64..900), 1..20),
    ) {
        let functions = [
            "cuLaunchKernel",
            "cuStreamSynchronize",
            "cuCtxSynchronize",
            "cuMemcpyHtoDAsync",
            "cuEventSynchronize",
        ];
        let mut records = Vec::new();
        for (tid, function, at, length, stream) in calls {
            let start = START + at * US;
            records.push(call(tid, functions[function], start, start + length * US, stream));
        }
        let mut union = std::collections::BTreeSet::new();
        for (tid, at, length) in pauses {
            records.push(collection(tid, at, at + length));
            union.extend(at..at + length);
        }
        if let Some(bounds) = reported(records).gpu_bounds {
            adds_up(&bounds);
            prop_assert_eq!(bounds.pauses.time_ns, union.len() as u64 * US);
        }
    }
}

fn adds_up(bounds: &BoundsReport) {
    assert!(bounds.at_least_ns <= bounds.at_most_ns);
    assert!(bounds.at_most_ns <= bounds.pauses.time_ns);
    let rules = &bounds.rules;
    let processes = &bounds.processes;
    for (all, by_rule, by_process) in [
        (
            bounds.at_least_ns,
            rules.iter().map(|rule| rule.at_least_ns).sum::<u64>(),
            processes.iter().map(|process| process.at_least_ns).sum::<u64>(),
        ),
        (
            bounds.at_most_ns,
            rules.iter().map(|rule| rule.at_most_ns).sum(),
            processes.iter().map(|process| process.at_most_ns).sum(),
        ),
        (
            bounds.pauses.time_ns,
            rules.iter().map(|rule| rule.pauses.time_ns).sum(),
            processes.iter().map(|process| process.pauses.time_ns).sum(),
        ),
    ] {
        assert_eq!((all, all), (by_rule, by_process));
    }
    for rule in rules {
        assert!(rule.at_least_ns <= rule.at_most_ns);
        assert!(rule.at_most_ns <= rule.pauses.time_ns);
        let slack_ns = AT_ONCE_NS * rule.pauses.count;
        if rule.rule == BoundsRule::GpuWasEmpty {
            assert!(rule.at_least_ns + slack_ns >= rule.at_most_ns);
        }
    }
}
