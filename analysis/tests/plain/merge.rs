//! A trace of the PyTorch profiler merged with gctrace's of the same run: synthetic pairs with a
//! known offset.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use gctrace_analysis::Analysis;
use gctrace_analysis::gpu::collect::{TimelineCollector, TimelineContext};
use gctrace_analysis::gpu::kept::KeptTimeline;
use gctrace_analysis::gpu::merge::{MergedTimelines, merge};
use gctrace_analysis::gpu::timeline::Timeline;
use gctrace_analysis::report::{
    AlignedBy, Basis, GroupName, MergeNote, NotMergedReason, RecognizedBy,
};
use gctrace_event::read::{EventReader, TraceInput, TraceReader};
use gctrace_event::{CudaCall, CudaLayer, GpuOp, GpuOpKind, Pause};
use std::io::Cursor;
use test_kit::reports;
use test_kit::reports::{MS, START};

/// Unix time at which gctrace's clock starts, and the profiler's.
const OURS_UNIX_NS: i64 = 1_790_000_000_000_000_000;
const THEIRS_UNIX_NS: i64 = 1_787_000_000_000_000_000;
/// Offset to add to gctrace's timestamps.
const OFFSET_NS: i64 = OURS_UNIX_NS - THEIRS_UNIX_NS;

/// A run: pauses and launches on gctrace's clock.
struct Run {
    pid: u32,
    namespace_pid: Option<u32>,
    /// How wrong the profiler's wall clock is.
    step_ns: i64,
    /// Whether gctrace recorded calls.
    calls: bool,
    /// The profiler recorded collections.
    pauses: bool,
}

const RUN: Run = Run { pid: 4000, namespace_pid: None, step_ns: 0, calls: false, pauses: false };

/// Irregular timestamps about every ten milliseconds, the same each time (a generator of Knuth's).
fn timestamps(count: u64, apart_ns: u64) -> Vec<u64> {
    let mut state = 7u64;
    let mut at = START;
    let next = |_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        at += apart_ns / 2 + (state >> 33) % apart_ns;
        at
    };
    (0..count).map(next).collect()
}

/// Delay of one tool's timestamps after the other's, in nanoseconds.
fn jitter(at: usize) -> i64 {
    [700, 1_900, 1_200, 9_000, 1_400, 800, 1_000][at % 7]
}

/// A thread of the program: 0 is the main one.
fn call(pid: u32, thread: u32, start_ns: u64, correlation: Option<u64>) -> CudaCall {
    CudaCall {
        pid,
        tid: pid + thread,
        layer: CudaLayer::Runtime,
        function: "cudaLaunchKernel".into(),
        start_ns,
        end_ns: start_ns + correlation.map_or(0, |_| 4_000),
        correlation,
        ..CudaCall::default()
    }
}

fn kernel(start_ns: u64, correlation: u64) -> GpuOp {
    GpuOp {
        device: 0,
        stream: 7,
        kind: GpuOpKind::Kernel,
        name: "gemm".to_owned(),
        start_ns,
        end_ns: start_ns + MS,
        correlation: Some(correlation),
        ..GpuOp::default()
    }
}

/// Every tenth on another thread.
fn pauses(pid: u32) -> Vec<Pause> {
    let timestamps = timestamps(300, 20 * MS);
    let pauses = timestamps.iter().enumerate().map(|(at, start_ns)| Pause {
        tid: pid + u32::from(at % 10 == 0),
        start_ns: *start_ns,
        end_ns: start_ns + MS / 2,
        ..reports::pause(pid, 0, 1)
    });
    pauses.collect()
}

impl Run {
    fn ours(&self) -> Vec<Timeline> {
        let mut collector = TimelineCollector::default();
        for pause in pauses(self.pid) {
            collector.add_pause(&pause);
        }
        for start_ns in timestamps(3_000, 2 * MS).iter().filter(|_| self.calls) {
            collector.add_call(&call(self.pid, 0, *start_ns, None));
        }
        let namespace = self.namespace_pid.map(|pid| (self.pid, pid));
        collector.finish(&TimelineContext {
            trace: 0,
            is_ours: true,
            namespace_pids: namespace.into_iter().collect(),
            unix_offset_ns: Some(OURS_UNIX_NS),
            ..TimelineContext::default()
        })
    }

    /// The second second of it or so, as the profiler sees it.
    fn theirs(&self) -> Vec<Timeline> {
        let mut collector = TimelineCollector::default();
        let pid = self.namespace_pid.unwrap_or(self.pid);
        let moved = |at_ns: u64, by_ns: i64| {
            at_ns.checked_add_signed(OFFSET_NS + self.step_ns + by_ns).unwrap()
        };
        let launches = timestamps(3_000, 2 * MS);
        for (at, start_ns) in launches.iter().enumerate().skip(500).take(1_000) {
            let start_ns = moved(*start_ns, jitter(at));
            collector.add_call(&call(pid, 0, start_ns, Some(at as u64)));
            collector.add_op(&kernel(start_ns + 20_000, at as u64));
        }
        let (first, last) = (launches[500], launches[1_499]);
        for (at, pause) in pauses(pid).into_iter().enumerate() {
            if self.pauses && pause.start_ns > first && pause.end_ns < last {
                collector.add_pause(&Pause {
                    tid: if at % 10 == 0 { 77 } else { pid },
                    start_ns: moved(pause.start_ns, -jitter(at)),
                    end_ns: moved(pause.end_ns, jitter(at + 1)),
                    ..pause
                });
            }
        }
        collector.finish(&TimelineContext {
            trace: 1,
            unix_offset_ns: Some(THEIRS_UNIX_NS),
            ..TimelineContext::default()
        })
    }

    fn timelines(&self) -> Vec<KeptTimeline> {
        let both = [self.ours(), self.theirs()];
        both.into_iter().flatten().map(Into::into).collect()
    }
}

/// The spans of both traces, gctrace's and the profiler's.
fn spans() -> [Option<(u64, u64)>; 2] {
    [Some((START, START + 60_000 * MS)), None]
}

/// Number of gctrace's pauses that coincide with the profiler's launches 500 to 1499.
fn within() -> u64 {
    let launches = timestamps(3_000, 2 * MS);
    let (first, last) = (launches[500] + 700, launches[1_499] + 5_000 + MS);
    let met = |pause: &&Pause| pause.end_ns >= first && pause.start_ns <= last;
    pauses(1).iter().filter(met).count() as u64
}

#[test]
fn calls_in_both_show_a_clock_that_was_set() {
    for step_ns in [0, 40_000, -300_000_000] {
        let run = Run { step_ns, calls: true, ..RUN };
        let timelines = run.timelines();
        let merged = merge(&timelines, &spans());
        assert_eq!(merged.timelines.len(), 1);
        let clock = &merged.clocks[0];
        assert_eq!(clock.aligned_by, AlignedBy::Calls);
        assert_eq!(clock.recognized_by, RecognizedBy::ProcessId);
        assert_eq!(clock.basis, Basis::Measured);
        assert_eq!(clock.offset_ns, OFFSET_NS + step_ns + 1_200, "the median of the jitter");
        assert_eq!(clock.beyond_wall_clock_ns, step_ns + 1_200);
        assert!(clock.error_ns.unwrap() <= 500 && clock.matches > 400, "{clock:?}");
        assert_eq!(clock.pauses, within());
        assert_eq!(clock.pauses + clock.pauses_outside, 300);
        assert_eq!(merged.timelines[0].pauses.len() as u64, within());
        assert_eq!(merged.timelines[0].whole().ops.len(), 1_000);
    }
}

#[test]
fn collections_in_both_are_one_and_show_the_offset() {
    let run = Run { step_ns: 2_000_000, pauses: true, ..RUN };
    let timelines = run.timelines();
    let merged = merge(&timelines, &spans());
    let clock = &merged.clocks[0];
    assert_eq!(clock.aligned_by, AlignedBy::Pauses);
    let error_ns = clock.offset_ns - OFFSET_NS - 2_000_000;
    assert!(error_ns.abs() < 2_000, "{error_ns}");
    assert!(clock.error_ns.unwrap() < 2_000, "{clock:?}");
    assert!(clock.pauses_in_both + 2 >= within(), "{clock:?}");
    assert_eq!(clock.pauses_of_profiler_only, 0);
    assert_eq!(merged.timelines[0].pauses.len() as u64, within());
    assert!(merged.timelines[0].pauses.is_sorted_by_key(|pause| pause.start_ns));
}

#[test]
fn with_the_wall_clock_alone_no_error_is_claimed() {
    let timelines = RUN.timelines();
    let clock = &merge(&timelines, &spans()).clocks[0];
    assert_eq!(clock.aligned_by, AlignedBy::WallClock);
    assert_eq!(clock.basis, Basis::Inferred);
    assert_eq!((clock.offset_ns, clock.error_ns), (OFFSET_NS, None));
}

#[test]
fn a_process_in_a_namespace_keeps_its_threads() {
    let run = Run { namespace_pid: Some(31), pauses: true, ..RUN };
    let timelines = run.timelines();
    let merged = merge(&timelines, &spans());
    let clock = &merged.clocks[0];
    assert_eq!(clock.recognized_by, RecognizedBy::NamespaceProcessId);
    assert_eq!((clock.pid, clock.profiler_pid), (4000, 31));
    let timeline = &merged.timelines[0];
    assert_eq!((timeline.pid, timeline.namespace_pid), (4000, Some(31)));
    // Thread 4001 of the host is 77 in the namespace, as its collections show.
    let tids = timeline.pauses.iter().map(|pause| timeline.threads[pause.thread].tid);
    let mut tids: Vec<u32> = tids.collect();
    tids.sort_unstable();
    tids.dedup();
    assert_eq!(tids, [31, 77]);
    assert_eq!(clock.notes, []);
}

#[test]
fn notes_unmatched_threads() {
    let run = Run { namespace_pid: Some(31), ..RUN };
    let timelines = run.timelines();
    let merged = merge(&timelines, &spans());
    let expected = [MergeNote::SeparateThread(4001)];
    assert_eq!(merged.clocks[0].notes, expected);
}

#[test]
fn runs_of_another_time_are_not_merged() {
    let mut timelines = RUN.timelines();
    timelines[1].unix_offset_ns = Some(THEIRS_UNIX_NS + 3_600_000_000_000);
    let merged = merge(&timelines, &spans());
    assert_eq!(merged.timelines.len(), 2);
    assert!(merged.clocks.is_empty());
    let why = |merged: &MergedTimelines<'_>| merged.not_merged[0].why;
    assert_eq!(why(&merged), NotMergedReason::NoOverlap);
    timelines[1].unix_offset_ns = None;
    let merged = merge(&timelines, &spans());
    assert_eq!(why(&merged), NotMergedReason::NoWallClock);
}

#[test]
fn another_process_id_at_the_same_time() {
    let mut timelines = RUN.timelines();
    timelines[1].pid = 5;
    let merged = merge(&timelines, &spans());
    assert_eq!(merged.clocks[0].recognized_by, RecognizedBy::Time);
    let mut sibling = timelines[0].clone();
    sibling.pid = 4010;
    timelines.insert(1, sibling);
    let merged = merge(&timelines, &spans());
    assert!(merged.clocks.is_empty());
    let why = merged.not_merged[0].why;
    assert_eq!(why, NotMergedReason::Ambiguous(2));
    timelines[1].rank = Some(3);
    timelines[2].rank = Some(3);
    let merged = merge(&timelines, &spans());
    assert_eq!(merged.clocks[0].recognized_by, RecognizedBy::Rank);
    assert_eq!(merged.timelines.len(), 2);
}

fn add(analysis: &mut Analysis, name: &str, text: &str) {
    let input = TraceInput::new(name, Cursor::new(text.as_bytes().to_vec())).unwrap();
    reports::read(analysis, name, TraceReader::new(EventReader::new(input))).unwrap();
}

/// The same through files: base time and rank are read from the profiler's.
#[test]
fn a_report_of_both_files() {
    let profiler = r#"{"distributedInfo":{"rank":2,"world_size":4},"host_name":"node7","traceEvents":[
        {"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":8,"tid":8,"ts":1000,"dur":5,
         "args":{"correlation":1}},
        {"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1010,"dur":90000,
         "args":{"device":0,"stream":7,"correlation":1}}],
        "baseTimeNanoseconds":1700000000000000000}"#;
    let mut analysis = Analysis::default();
    let records = vec![reports::process(8, 0, "generational")];
    let pause = gctrace_event::Record::Pause(reports::pause(8, 50, 60));
    let records = [records, vec![pause]].concat();
    reports::add(&mut analysis, "gc.json", records, Some(reports::end(500)));
    add(&mut analysis, "kineto.json", profiler);
    analysis.settle();
    let report = analysis.report();
    assert_eq!(report.traces[1].rank, Some(2));
    assert_eq!(report.traces[1].host.as_deref(), Some("node7"));
    assert_eq!(report.traces[1].started_unix_ns, Some(1_700_000_000_001_000_000));
    let work = report.gpu.unwrap();
    let clock = &work.clocks[0];
    assert_eq!((clock.trace, clock.gc_trace), (1, 0));
    assert_eq!(clock.aligned_by, AlignedBy::WallClock);
    assert_eq!(clock.offset_ns, -1_000_000_000, "their clock starts with the recording");
    assert_eq!(clock.pauses, 1);
}

/// In either order of the files, and with GPU work or without.
#[test]
fn collections_in_both_files_count_once() {
    // The profiler's have no generation, other tools' do.
    for (args, generation) in [(r#""Ev Idx":0"#, None), (r#""generation":1"#, Some(1))] {
        count_once(args, generation);
    }
}

fn count_once(args: &str, generation: Option<u8>) {
    let gc = |at: u64, tid: u32| {
        format!(
            r#"{{"ph":"X","cat":"python_function","name":"Python GC","pid":8,"tid":{tid},"ts":{at}.5,
            "dur":9999,"args":{{{args}}}}}"#
        )
    };
    // The last is not among gctrace's.
    let all = [gc(50_000, 8), gc(120_000, 8), gc(210_000, 8), gc(400_000, 8)];
    let profiler = format!(
        r#"{{"traceEvents":[{},{{"ph":"M","name":"thread_name","pid":8,"tid":8,"args":{{"name":"main"}}}}],
        "baseTimeNanoseconds":1700000000000000000}}"#,
        all.join(",")
    );
    let add_ours = |analysis: &mut Analysis| {
        let pauses = [50, 120, 210, 300].map(|at| reports::pause(8, at, at + 10));
        let process = reports::process(8, 0, "generational");
        let records = pauses.map(gctrace_event::Record::Pause);
        let records = [vec![process], records.to_vec()].concat();
        reports::add(analysis, "gc.json", records, Some(reports::end(500)));
    };
    let mut forwards = Analysis::default();
    add_ours(&mut forwards);
    add(&mut forwards, "kineto.json", &profiler);
    let mut backwards = Analysis::default();
    add(&mut backwards, "kineto.json", &profiler);
    add_ours(&mut backwards);
    for mut analysis in [forwards, backwards] {
        analysis.settle();
        let report = analysis.report();
        assert_eq!(report.totals.pauses.count, 5, "4 of gctrace's, 1 of the profiler's alone");
        let name = GroupName::Generation(generation);
        let group = report.by_generation.iter().find(|generation| generation.name == name);
        assert_eq!(group.unwrap().pauses.count, 1);
        let worst = report.worst.iter().find(|worst| worst.generation != Some(0));
        assert_eq!(worst.unwrap().thread.as_deref(), Some("main"));
        assert_eq!(analysis.report().totals.pauses.count, 5, "asked again");
    }
}

#[test]
fn reports_a_trace_given_twice() {
    let kernel = r#"{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":5,"dur":5,"args":{"stream":7}}"#;
    let trace = |id: &str| format!(r#"{{"trace_id":"{id}","traceEvents":[{kernel}]}}"#);
    let mut analysis = Analysis::default();
    for (name, id) in [("a.json", "F1"), ("b.json", "F2"), ("c.json", "F1")] {
        add(&mut analysis, name, &trace(id));
    }
    analysis.settle();
    let report = analysis.report();
    let repeats = report.traces.iter().map(|trace| trace.repeats.as_deref());
    assert!(repeats.eq([None, None, Some("a.json")]));
}

/// Before torch 2.4 times were since 1970 themselves, without a word.
#[test]
fn times_since_1970_need_no_base() {
    let profiler = |ts: &str| {
        format!(
            r#"{{"traceEvents":[{{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":{ts},"dur":5,
            "args":{{"device":0,"stream":7}}}}]}}"#
        )
    };
    for (ts, unix_ns) in [
        ("1682725898082381", Some(1_682_725_898_082_381_000)),
        ("1.682725898082381e15", Some(1_682_725_898_082_381_000)),
        ("4458676524670.502", None),
    ] {
        let mut analysis = Analysis::default();
        add(&mut analysis, "t.json", &profiler(ts));
        analysis.settle();
        assert_eq!(analysis.report().traces[0].started_unix_ns, unix_ns, "{ts}");
    }
}
