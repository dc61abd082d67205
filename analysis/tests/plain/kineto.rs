//! Real traces of the PyTorch profiler: their contents are read, once, in any order. Numbers of
//! events were counted by Python's `json`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use gctrace_analysis::Analysis;
use gctrace_analysis::report::{AdviceId, GpuWorkReport, Level, Report};
use gctrace_event::Record;
use gctrace_event::read::{DecodedItem, EventReader, TraceCompletion, TraceInput, TraceReader};
use std::path::PathBuf;
use test_kit::reports;

fn path(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    folder.join("tests/data/kineto").join(name)
}

fn add(analysis: &mut Analysis, name: &str) {
    reports::read(analysis, name, TraceReader::open(&path(name)).unwrap()).unwrap();
}

fn report(names: &[&str]) -> Report {
    let mut analysis = Analysis::default();
    names.iter().for_each(|name| add(&mut analysis, name));
    analysis.settle();
    analysis.report()
}

#[test]
fn every_operation_is_read_and_linked() {
    for (name, operations, without_call) in [
        ("nccl_rank0.json.gz", 2_700 + 960 + 114, 0),
        ("ns_resolution_rank0.json.gz", 4_350 + 1_600 + 145, 0),
        ("sampled_rank0.json.gz", 1_154 + 40 + 10, 0),
        ("sampled_rank1.json.gz", 1_104 + 40 + 10, 0),
    ] {
        let report = report(&[name]);
        let work = report.gpu.unwrap();
        assert_eq!(work.operations, operations, "{name}");
        let ignored = work.ignored;
        assert_eq!(ignored.operations_without_call, without_call, "{name}");
        assert_eq!(ignored.duplicates, 0, "{name}");
        assert_eq!(ignored.operations_without_process, 0, "{name}");
        assert_eq!(report.traces[0].anomalies, [""; 0], "{name}");
    }
}

#[test]
fn that_no_collection_is_in_them_does_not_say_that_none_ran() {
    let report = report(&["sampled_rank0.json.gz"]);
    assert_eq!(report.verdict.level, Level::Unknown);
    assert_eq!(report.advice[0].id, AdviceId::RecordCollections);
}

#[test]
fn ranks_and_wall_clock() {
    let report = report(&["sampled_rank0.json.gz", "sampled_rank1.json.gz", "nccl_rank0.json.gz"]);
    let ranks: Vec<_> = report.traces.iter().map(|trace| trace.rank).collect();
    assert_eq!(ranks, [Some(0), Some(1), Some(0)]);
    let second = |at: usize| report.traces[at].started_unix_ns.unwrap() / 1_000_000_000;
    // Both ranks: 28 April 2023; the third: 23 May 2024, by its base time.
    assert_eq!((second(0), second(1)), (1_682_725_897, 1_682_725_897));
    assert_eq!(second(2), 1_711_964_646 + 4_458_676);
}

/// The records of a file, repeated and ordered by `arrange`.
fn arranged(name: &str, arrange: impl Fn(Vec<Record>) -> Vec<Record>) -> GpuWorkReport {
    let mut reader = TraceReader::open(&path(name)).unwrap();
    let mut records = Vec::new();
    while let Some(item) = reader.next_item().unwrap() {
        if let DecodedItem::Record(record) = item {
            records.push(record);
        }
    }
    let mut analysis = Analysis::default();
    analysis.begin_trace(name);
    for record in arrange(records) {
        analysis.add(DecodedItem::Record(record));
    }
    analysis.end_trace(TraceCompletion::default(), None);
    analysis.settle();
    analysis.report().gpu.unwrap()
}

fn text(work: &GpuWorkReport) -> String {
    serde_json::to_string_pretty(work).unwrap()
}

#[test]
fn the_order_of_events_does_not_matter() {
    for name in ["sampled_rank0.json.gz", "sampled_rank1.json.gz"] {
        let forwards = arranged(name, |records| records);
        let backwards = arranged(name, |records| records.into_iter().rev().collect());
        assert_eq!(text(&forwards), text(&backwards), "{name}");
    }
}

#[test]
fn repeated_events_count_once() {
    let name = "sampled_rank0.json.gz";
    let once = arranged(name, |records| records);
    let twice = arranged(name, |records| [records.clone(), records].concat());
    assert_eq!(twice.operations, once.operations);
    assert!(twice.ignored.duplicates >= once.operations);
    let mut rest = twice.clone();
    rest.ignored = once.ignored;
    assert_eq!(text(&rest), text(&once));
}

/// A trace with this category and name of the calls, this category of the kernels, 20 of each.
fn of_api(call: (&str, &str), kernel: &str, wait: &str) -> Report {
    let mut events = Vec::new();
    for number in 0..20 {
        let (ts, id) = (1_000 + number * 100, number + 1);
        let ((category, launch), (runs, ends)) = (call, (ts + 10, ts + 50));
        events.push(format!(
            r#"{{"ph":"X","cat":"Operator","name":"ProfilerStep#{number}","pid":9,"tid":9,"ts":{ts},"dur":90}}"#
        ));
        events.push(format!(
            r#"{{"ph":"X","cat":"{category}","name":"{launch}","pid":9,"tid":9,"ts":{ts},"dur":5,"args":{{"correlation":{id}}}}}"#
        ));
        events.push(format!(
            r#"{{"ph":"X","cat":"{kernel}","name":"gemm","pid":0,"tid":"stream 7","ts":{runs},"dur":40,"args":{{"correlation":{id},"device":0,"stream":7}}}}"#
        ));
        events.push(format!(
            r#"{{"ph":"X","cat":"{category}","name":"{wait}","pid":9,"tid":9,"ts":{ends},"dur":5,"args":{{"correlation":{}}}}}"#,
            id + 100
        ));
    }
    let text = format!("{{\"traceEvents\":[{}]}}", events.join(",\n"));
    let mut analysis = Analysis::default();
    let input = TraceInput::new("made.json", std::io::Cursor::new(text)).unwrap();
    let read = TraceReader::new(EventReader::new(input));
    reports::read(&mut analysis, "made.json", read).unwrap();
    analysis.settle();
    analysis.report()
}

#[test]
fn calls_of_rocm_and_xpus_and_categories_of_2021() {
    for (call, kernel, wait) in [
        (("cuda_runtime", "cudaLaunchKernel"), "kernel", "cudaDeviceSynchronize"),
        (("cuda_runtime", "hipLaunchKernel"), "kernel", "hipDeviceSynchronize"),
        (("cuda_runtime", "hipExtModuleLaunchKernel"), "kernel", "hipStreamSynchronize"),
        (("xpu_runtime", "urEnqueueKernelLaunch"), "kernel", "urQueueFinish"),
        (("Runtime", "cudaLaunchKernel"), "Kernel", "cudaDeviceSynchronize"),
    ] {
        let report = of_api(call, kernel, wait);
        assert_eq!(report.gpu.as_ref().map(|work| work.operations), Some(20), "{call:?}");
        assert_eq!(report.cuda.as_ref().map(|cuda| cuda.launches), Some(20), "{call:?}");
        let steps = report.steps.as_ref().map(|steps| steps.processes[0].count);
        assert!(steps.is_some_and(|steps| steps >= 19), "{call:?}: {steps:?}");
    }
}

/// What a cause saves is of the time in which the device did not compute: what is before its first
/// operation is no idle time.
#[test]
fn a_cause_saves_no_more_than_was_not_computing() {
    let traces = ["nccl_rank0", "ns_resolution_rank0", "sampled_rank0", "sampled_rank1"];
    for name in traces.map(|name| format!("{name}.json.gz")) {
        for ledger in report(&[&name]).gpu.unwrap().idle {
            let most_ns = ledger.span_ns - ledger.compute_ns;
            for row in &ledger.rows {
                let places = row.places.iter().filter_map(|place| place.saves_ns);
                let saves_ns = places.chain(row.saves_ns).max().unwrap_or(0);
                assert!(saves_ns <= most_ns, "{name}: {saves_ns} of {most_ns}: {row:?}");
            }
        }
    }
}
