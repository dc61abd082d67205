//! Figures of real traces against those that HolisticTraceAnalysis 0.5.0 (HTA) reports for them.
//!
//! The truth was computed by HTA itself; see `data/kineto/README.md`.

#![expect(clippy::panic, clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use gctrace_analysis::Analysis;
use gctrace_analysis::report::{
    AdviceId, DeviceReport, IdleCause, IdlePart, Level, NoComparison, NotCovered, Report,
    StepSource, StreamIdle,
};
use gctrace_event::read::{EventReader, TraceInput, TraceReader};
use serde_json::Value;
use std::fs::File;
use std::path::PathBuf;
use std::sync::LazyLock;
use test_kit::reports;

/// Relative to HTA's figure. Our reading of times is exact, HTA's is by doubles.
const TOLERANCE: f64 = 0.005;
/// Times since 1970 with a fraction: in HTA's doubles they are exact to a quarter of a microsecond,
/// so that without its rounding some gaps change their class; their sum stays.
const SINCE_1970: &str = "ns_resolution_rank0.json.gz";

const TRACES: [&str; 4] = [
    "ns_resolution_rank0.json.gz",
    "sampled_rank0.json.gz",
    "sampled_rank1.json.gz",
    "nccl_rank0.json.gz",
];

fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/kineto").join(name)
}

/// One report per trace, in the order of [`TRACES`].
static REPORTS: LazyLock<Vec<Report>> = LazyLock::new(|| TRACES.map(report).into());

fn report(name: &str) -> Report {
    let mut analysis = Analysis::default();
    let input = TraceInput::new(name, File::open(data(name)).unwrap()).unwrap();
    let reader = TraceReader::new(EventReader::new(input));
    reports::read(&mut analysis, name, reader).unwrap();
    analysis.settle();
    analysis.report()
}

fn device(report: &Report) -> &DeviceReport {
    match report.gpu.as_ref().unwrap().devices.as_slice() {
        [device] => device,
        others => panic!("one device expected: {others:?}"),
    }
}

fn hta(file: &str, trace: &str) -> Value {
    let text = std::fs::read_to_string(data(file)).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    value[trace].clone()
}

/// `us` of HTA against `ns` of ours.
fn same(what: &str, us: &Value, ns: u64) {
    let (us, ours_us) = (us.as_f64().unwrap(), ns as f64 / 1000.0);
    let off = (us - ours_us).abs();
    assert!(off <= us.abs() * TOLERANCE, "{what}: HTA {us} µs, ours {ours_us} µs");
}

fn same_idle(trace: &str, hta: &Value, stream: u64, idle: StreamIdle) {
    let theirs = &hta["idle_by_stream_us"][stream.to_string()];
    for (class, ns) in
        [("host_wait", idle.host_wait), ("kernel_wait", idle.kernel_wait), ("other", idle.other)]
    {
        // HTA names no class without a gap.
        let zero = Value::from(0);
        let us = theirs.get(class).unwrap_or(&zero);
        same(&format!("{trace} stream {stream} {class}"), us, ns);
    }
}

#[test]
fn as_hta_prints_them() {
    for (trace, report) in TRACES.into_iter().zip(&*REPORTS) {
        let device = device(report);
        let hta = hta("hta-0.5.0.json", trace);
        let temporal = device.temporal.unwrap();
        let theirs = &hta["temporal_breakdown_us"];
        same(trace, &theirs["kernel_time(us)"], temporal.span_ns);
        same(trace, &theirs["idle_time(us)"], temporal.idle_ns);
        same(trace, &theirs["compute_time(us)"], temporal.compute_ns);
        let non_compute = &theirs["non_compute_time(us)"];
        same(trace, non_compute, temporal.non_compute_ns);
        assert!(temporal.left_out > 0, "the last step is left out: {trace}");
        assert!(!device.streams.is_empty());
        for stream in &device.streams {
            same_idle(trace, &hta, stream.stream, stream.idle_ns);
        }
    }
}

/// HTA's rounding widens each gap by up to 2 µs. Without it and with all steps its figures are
/// ours.
#[test]
fn exact_figures_are_htas_without_its_rounding() {
    for (trace, report) in TRACES.into_iter().zip(&*REPORTS) {
        let device = device(report);
        let hta = hta("hta-0.5.0-all-steps-unrounded.json", trace);
        let theirs = &hta["temporal_breakdown_us"];
        same(trace, &theirs["kernel_time(us)"], device.span_ns);
        same(trace, &theirs["idle_time(us)"], device.idle_ns);
        for stream in &device.streams {
            let idle = stream.exact_idle_ns;
            if trace != SINCE_1970 {
                same_idle(trace, &hta, stream.stream, idle);
            }
            let by_class = &hta["idle_by_stream_us"][stream.stream.to_string()];
            let by_class = by_class.as_object().unwrap().values();
            let sum: f64 = by_class.map(|us| us.as_f64().unwrap()).sum();
            let ours = idle.host_wait + idle.kernel_wait + idle.other;
            same(trace, &Value::from(sum), ours);
        }
        assert_eq!(device.busy_ns + device.idle_ns, device.span_ns);
    }
}

#[test]
fn gaps_add_up_to_the_idle_time() {
    for report in &*REPORTS {
        let device = device(report);
        let [ledger] = report.gpu.as_ref().unwrap().idle.as_slice() else {
            panic!("one device expected");
        };
        assert_eq!((ledger.id, ledger.idle_ns), (device.id, device.idle_ns));
        let rows_ns: u64 = ledger.rows.iter().map(|row| row.time_ns).sum();
        assert_eq!(rows_ns, device.idle_ns);
        assert_eq!(ledger.longest.len(), 20);
        for gap in &ledger.longest {
            let causes = gap.causes.iter();
            assert!(causes.clone().all(|part| part.cause != IdleCause::Unknown), "{gap:?}");
            assert_eq!(causes.map(|part| part.time_ns).sum::<u64>(), gap.duration_ns);
            assert!(gap.before.chars().count() <= 161 && gap.after.chars().count() <= 161);
        }
        let lengths = ledger.longest.iter().map(|gap| gap.duration_ns);
        assert!(lengths.is_sorted_by(|longer, shorter| longer >= shorter));
    }
}

/// The profiler's steps of the traces; collections, which it did not record, are unknown.
#[test]
fn steps_of_the_profiler() {
    for (report, count) in REPORTS.iter().zip([5, 2, 2, 3]) {
        let steps = report.steps.as_ref().unwrap();
        let [steps] = steps.processes.as_slice() else {
            panic!("one process expected: {steps:?}");
        };
        assert_eq!((steps.source, steps.count), (StepSource::ProfilerStep, count));
        assert_eq!((steps.gc_ns, steps.with_gc), (None, 0));
        assert!(steps.gpu_idle_ns.is_some_and(|idle_ns| idle_ns > 0));
        let sum = |causes: &Vec<IdlePart>| causes.iter().map(|part| part.time_ns).sum::<u64>();
        assert_eq!(steps.gpu_idle_causes.as_ref().map(sum), steps.gpu_idle_ns);
        for step in &steps.longest {
            assert_eq!(step.gpu_idle_causes.as_ref().map(sum), step.gpu_idle_ns, "{step:?}");
        }
        assert_eq!(steps.with_full.difference, None);
        assert_eq!(steps.with_full.missing, Some(NoComparison::UnknownCollections));
    }
}

/// The profiler records collections only if configured to: their absence does not mean that none
/// ran.
#[test]
fn a_trace_without_collections_does_not_say_that_none_ran() {
    for report in &*REPORTS {
        assert_eq!(report.verdict.level, Level::Unknown);
        // What else the GPUs wait for is known.
        let ids: Vec<AdviceId> = report.advice.iter().map(|advice| advice.id).collect();
        assert!(ids.contains(&AdviceId::RecordCollections), "{ids:?}");
        let gaps = &report.not_covered;
        assert!(!gaps.contains(&NotCovered::CostWithoutWork), "{gaps:?}");
    }
}
