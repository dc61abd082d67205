//! Timelines of any records: nothing lost, nothing twice, everything in order.

use gctrace_analysis::gpu::collect::{TimelineCollector, TimelineContext};
use gctrace_analysis::gpu::kept::KeptTimeline;
use gctrace_analysis::gpu::merge::merge;
use gctrace_analysis::gpu::timeline::{CallIndex, StreamIndex, ThreadIndex, Timeline};
use gctrace_event::{
    Annotation, CudaCall, CudaLayer, GpuOp, GpuOpKind, GpuSync, GpuSyncKind, NamedMarker, StepMark,
};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::HashMap;
use test_kit::reports;
use test_kit::reports::{MS, START};

fn op(start_ms: u64, stream: u64, correlation: Option<u64>) -> GpuOp {
    GpuOp {
        device: 0,
        stream,
        kind: GpuOpKind::Kernel,
        name: "k".to_owned(),
        start_ns: START + start_ms * MS,
        end_ns: START + (start_ms + 1) * MS,
        correlation,
        ..GpuOp::default()
    }
}

fn call(pid: u32, function: &'static str, start_ms: u64, correlation: Option<u64>) -> CudaCall {
    CudaCall {
        pid,
        tid: pid,
        layer: CudaLayer::Runtime,
        function: function.into(),
        start_ns: START + start_ms * MS,
        end_ns: START + start_ms * MS + 1000,
        correlation,
        ..CudaCall::default()
    }
}

fn collect(calls: &[CudaCall], ops: &[GpuOp]) -> Vec<Timeline> {
    let mut collector = TimelineCollector::default();
    calls.iter().for_each(|call| collector.add_call(call));
    ops.iter().for_each(|op| collector.add_op(op));
    collector.finish(&TimelineContext::default())
}

#[test]
fn a_graph_launch_has_many_kernels_even_if_they_are_alike() {
    let calls = [call(1, "cudaGraphLaunch", 0, Some(5))];
    let alike = || op(2, 7, Some(5));
    let timelines = collect(&calls, &[alike(), alike(), op(4, 7, Some(5))]);
    assert_eq!(timelines.len(), 1);
    assert_eq!(timelines[0].ops.len(), 3);
    assert!(timelines[0].ops.iter().all(|op| op.call == Some(CallIndex::new(0))));
    assert_eq!(timelines[0].ignored.duplicates, 0);
}

#[test]
fn repeated_records_count_once() {
    let launch = || call(1, "cudaLaunchKernel", 0, Some(5));
    let timelines = collect(
        &[launch(), launch()],
        &[op(2, 7, Some(5)), op(2, 7, Some(5)), op(3, 7, None), op(3, 7, None)],
    );
    assert_eq!(timelines[0].calls.len(), 1);
    // Those without an id may be two.
    assert_eq!(timelines[0].ops.len(), 3);
    assert_eq!(timelines[0].ignored.duplicates, 2);
    assert_eq!(timelines[0].ignored.operations_without_call, 2);
}

#[test]
fn two_processes_with_the_same_correlation_ids() {
    let calls = [
        call(1, "cudaLaunchKernel", 0, Some(5)),
        call(2, "cudaLaunchKernel", 100, Some(5)),
        call(2, "cudaLaunchKernel", 110, Some(6)),
    ];
    let ops = [op(1, 7, Some(5)), op(101, 7, Some(5)), op(111, 7, Some(6)), op(112, 9, Some(99))];
    let timelines = collect(&calls, &ops);
    let ops_of = |pid: u32| {
        let of = timelines.iter().find(|timeline| timeline.pid == pid);
        of.map_or(0, |timeline| timeline.ops.len())
    };
    assert_eq!((ops_of(0), ops_of(1), ops_of(2)), (1, 1, 2));
    let unowned = timelines.iter().find(|timeline| timeline.pid == 0).unwrap();
    assert_eq!(unowned.ignored.operations_without_process, 1);
}

#[test]
fn overlapping_steps_end_at_the_next_start() {
    let mut collector = TimelineCollector::default();
    for (number, from_ms, to_ms) in [(1, 0, 12), (0, 0, 5), (2, 10, 20)] {
        collector.add_annotation(&Annotation {
            pid: 1,
            tid: 1,
            name: format!("ProfilerStep#{number}"),
            start_ns: START + from_ms * MS,
            end_ns: START + to_ms * MS,
        });
    }
    let timelines = collector.finish(&TimelineContext::default());
    let steps = timelines[0].steps.iter();
    let steps: Vec<_> = steps.map(|step| (step.number, step.end_ns - START)).collect();
    assert_eq!(steps, [(1, 10 * MS), (2, 20 * MS)]);
}

/// Small numbers, so that things meet, and huge ones.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 0..8u64, 1 => Just(u64::MAX), 1 => any::<u64>()]
}

fn id() -> impl Strategy<Value = u32> {
    prop_oneof![6 => 0..4u32, 1 => Just(u32::MAX)]
}

fn timestamp() -> impl Strategy<Value = (u64, u64)> {
    let start = prop_oneof![8 => 0..50u64, 1 => any::<u64>()];
    (start, number()).prop_map(|(start, length)| (start, start.saturating_add(length)))
}

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "cudaLaunchKernel",
        "cudaGraphLaunch",
        "cuLaunchKernel",
        "cudaStreamWaitEvent",
        "cudaEventRecord",
        "ncclAllReduce",
        "ProfilerStep#1",
        "ProfilerStep#2",
        "ProfilerStep#x",
        "",
    ])
}

#[derive(Debug, Clone)]
enum AnyRecord {
    Op(GpuOp),
    Call(CudaCall),
    Sync(GpuSync),
    Annotation(Annotation),
    Backward(StepMark),
    Pause(u32, u32, u64, u64),
}

prop_compose! {
    fn any_op()(
        (start_ns, end_ns) in timestamp(),
        (device, stream, pid) in (id(), number(), prop::option::of(id())),
        (correlation, name) in (prop::option::of(number()), name()),
    ) -> AnyRecord {
        AnyRecord::Op(GpuOp {
            pid, device, stream, name: name.to_owned(), start_ns, end_ns, correlation,
            ..op(0, 0, None)
        })
    }
}

prop_compose! {
    fn any_call()(
        (start_ns, end_ns) in timestamp(),
        (pid, tid, stream) in (id(), id(), prop::option::of(number())),
        (correlation, function) in (prop::option::of(number()), name()),
    ) -> AnyRecord {
        AnyRecord::Call(CudaCall {
            pid, tid, start_ns, end_ns, stream, ..call(0, function, 0, correlation)
        })
    }
}

prop_compose! {
    fn any_sync()(
        (start_ns, end_ns) in timestamp(),
        (pid, device, stream) in (prop::option::of(id()), prop::option::of(id()), prop::option::of(number())),
        (correlation, event_stream) in (prop::option::of(number()), prop::option::of(number())),
        event_correlation in prop::option::of(number()),
        kind in prop::sample::select(vec![GpuSyncKind::Event, GpuSyncKind::StreamWaitEvent, GpuSyncKind::Stream]),
    ) -> AnyRecord {
        AnyRecord::Sync(GpuSync {
            pid, kind, device, stream, start_ns, end_ns, correlation, event_stream, event_correlation,
        })
    }
}

fn anything() -> impl Strategy<Value = AnyRecord> {
    let span = || (id(), id(), timestamp());
    prop_oneof![
        4 => any_op(),
        4 => any_call(),
        1 => any_sync(),
        1 => (span(), name()).prop_map(|((pid, tid, (start_ns, end_ns)), name)| {
            AnyRecord::Annotation(Annotation { pid, tid, name: name.to_owned(), start_ns, end_ns })
        }),
        1 => span().prop_map(|(pid, tid, (start_ns, end_ns))| {
            AnyRecord::Backward(StepMark { pid, tid, marker: NamedMarker::Backward, start_ns, end_ns, cpu_ns: None })
        }),
        1 => span().prop_map(|(pid, tid, (start, end))| AnyRecord::Pause(pid, tid, start, end)),
    ]
}

fn timelines_of(records: &[AnyRecord], about: &TimelineContext) -> Vec<Timeline> {
    let mut collector = TimelineCollector::default();
    for record in records {
        match record {
            AnyRecord::Op(op) => collector.add_op(op),
            AnyRecord::Call(call) => collector.add_call(call),
            AnyRecord::Sync(sync) => collector.add_sync(sync.clone()),
            AnyRecord::Annotation(annotation) => collector.add_annotation(annotation),
            AnyRecord::Backward(step) => collector.add_step(step),
            AnyRecord::Pause(pid, tid, start_ns, end_ns) => {
                let mut pause = reports::pause(*pid, 0, 0);
                (pause.tid, pause.start_ns, pause.end_ns) = (*tid, *start_ns, *end_ns);
                collector.add_pause(&pause);
            }
        }
    }
    let mut timelines = collector.finish(about);
    timelines.iter_mut().for_each(|timeline| timeline.process.unpack());
    timelines
}

fn in_order<T>(all: &[T], start: impl Fn(&T) -> u64) -> bool {
    all.is_sorted_by_key(start)
}

/// Every index leads somewhere.
fn linked(timeline: &Timeline) -> bool {
    let thread = |thread: ThreadIndex| thread.at() < timeline.threads.len();
    let call = |call: CallIndex| call.at() < timeline.calls.len();
    let stream = |stream: StreamIndex| stream.at() < timeline.streams.len();
    timeline.ops.iter().all(|op| {
        stream(op.stream)
            && op.call.is_none_or(call)
            && timeline.op_name(op) == timeline.names.text(op.name)
            && timeline.device(op).is_some()
    }) && timeline.calls.iter().all(|call| thread(call.thread) && call.stream.is_none_or(stream))
        && timeline.pauses.iter().all(|pause| thread(pause.thread))
        && timeline.annotations.iter().all(|span| thread(span.thread))
        && timeline.steps.iter().all(|step| thread(step.thread))
        && timeline.waits.iter().all(|wait| {
            call(wait.call)
                && wait.stream.is_none_or(stream)
                && wait.event_stream.is_none_or(stream)
                && wait.event_call.is_none_or(call)
        })
}

proptest! {

    #[test]
    fn any_records_make_timelines_in_order(records in vec(anything(), 0..40)) {
        let timelines = timelines_of(&records, &TimelineContext::default());
        for timeline in &timelines {
            prop_assert!(linked(timeline), "{timeline:?}");
            prop_assert!(timeline.streams.is_sorted());
            prop_assert!(in_order(&timeline.ops, |op| op.start_ns));
            prop_assert!(in_order(&timeline.calls, |call| call.start_ns));
            prop_assert!(in_order(&timeline.pauses, |pause| pause.start_ns));
            prop_assert!(in_order(&timeline.annotations, |span| span.start_ns));
            prop_assert!(in_order(&timeline.steps, |step| step.start_ns));
            let mut ends: HashMap<ThreadIndex, u64> = HashMap::new();
            for step in &timeline.steps {
                let before = ends.insert(step.thread, step.end_ns).unwrap_or(0);
                prop_assert!(before <= step.start_ns, "{:?}", timeline.steps);
            }
        }
        let given = records.iter().filter(|record| matches!(record, AnyRecord::Op(_)));
        let kept: usize = timelines.iter().map(|timeline| timeline.ops.len()).sum();
        let repeated: u64 = timelines.iter().map(|timeline| timeline.ignored.duplicates).sum();
        let given = given.count();
        prop_assert!(kept <= given && kept + repeated as usize >= given, "{kept} of {given}");
        let mut pids: Vec<u32> = timelines.iter().map(|timeline| timeline.pid).collect();
        pids.dedup();
        prop_assert_eq!(pids.len(), timelines.len(), "one timeline per process");
    }

    /// Packed and unpacked, any timeline is the same.
    #[test]
    fn a_kept_timeline_is_whole(records in vec(anything(), 0..40), is_ours: bool) {
        let about = TimelineContext { is_ours, ..TimelineContext::default() };
        for timeline in timelines_of(&records, &about) {
            let kept = KeptTimeline::from(timeline.clone());
            let whole = kept.whole();
            prop_assert_eq!(whole.as_ref(), &timeline);
            prop_assert_eq!(kept.has_gpu_times(), timeline.has_gpu_times());
            prop_assert_eq!(&kept.steps, &timeline.steps);
            prop_assert_eq!(&kept.pauses, &timeline.pauses);
        }
    }

    /// Any gctrace trace with any profiler trace.
    #[test]
    fn any_two_traces_are_put_together(
        ours in vec(anything(), 0..20),
        theirs in vec(anything(), 0..20),
        offsets in (offset(), offset()),
        span in prop::option::of(timestamp()),
    ) {
        let about = |trace, is_ours, unix_offset_ns| TimelineContext {
            trace, is_ours, unix_offset_ns, ..TimelineContext::default()
        };
        let mut timelines = timelines_of(&ours, &about(0, true, offsets.0));
        timelines.extend(timelines_of(&theirs, &about(1, false, offsets.1)));
        let given: usize = timelines.iter().map(|timeline| timeline.ops.len()).sum();
        let kept: Vec<KeptTimeline> = timelines.into_iter().map(Into::into).collect();
        let merged = merge(&kept, &[span, None]);
        let ops = merged.timelines.iter().map(|kept| kept.whole().ops.len());
        prop_assert_eq!(ops.sum::<usize>(), given);
        for timeline in merged.timelines.iter().map(KeptTimeline::whole) {
            prop_assert!(linked(&timeline), "{timeline:?}");
            prop_assert!(in_order(&timeline.pauses, |pause| pause.start_ns));
            prop_assert!(in_order(&timeline.steps, |step| step.start_ns));
        }
    }
}

/// An offset between two clocks, mostly the same one.
fn offset() -> impl Strategy<Value = Option<i64>> {
    prop_oneof![4 => Just(Some(5)), 1 => any::<Option<i64>>()]
}
