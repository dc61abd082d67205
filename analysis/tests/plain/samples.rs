//! Samples of what threads execute, in the report.

use gctrace_analysis::report::Report;
use gctrace_analysis::words::samples::samples_in_short;
use gctrace_event::{CpuSamples, Frame, Record};
use test_kit::reports::{MS, START, end, exit, process, report};

/// A process of 10 s without pauses, sampled 100 times a second: 6 s in a library's function that `train.py:41`
/// calls, 1 s of it in collections, 3 s in a native thread.
fn sampled(count: u64) -> Report {
    let frame = |id, parent, file: &str, function: &str, line| {
        Record::Frame(Frame {
            id,
            parent,
            function: function.to_owned(),
            file: file.to_owned(),
            line: Some(line),
        })
    };
    let samples = |tid, at_ms, count, stack, file: &str, in_pause| {
        Record::CpuSamples(CpuSamples {
            pid: 1,
            tid,
            at_ns: START + at_ms * MS,
            until_ns: START + (at_ms + 900) * MS,
            count,
            file: Some(file.to_owned()),
            in_pause,
            stack,
        })
    };
    let library = "/usr/lib/python3.12/site-packages/torch/nn.py";
    let records = vec![
        process(1, 0, "generational"),
        frame(1, None, "/srv/train.py", "step", 41),
        frame(2, Some(1), library, "linear", 7),
        samples(1, 100, 5 * count, Some(2), "libtorch_cpu.so", false),
        samples(1, 2_000, count, Some(2), "python3.12", true),
        samples(2, 3_000, 3 * count, None, "libgomp.so.1", false),
        exit(1, 10_000),
    ];
    report(records, Some(end(10_000)))
}

#[test]
fn lines_of_the_program_have_those_of_what_they_call() {
    let report = sampled(100);
    let [cpu] = &report.cpu[..] else { panic!("{:?}", report.cpu) };
    assert_eq!((cpu.samples, cpu.in_pauses, cpu.threads, cpu.busiest_thread), (900, 100, 2, 600));
    assert_eq!(cpu.observed_ns, 10_000 * MS);
    let lines: Vec<_> = cpu
        .lines
        .iter()
        .map(|of| (of.line.as_ref().map(|line| line.function.as_str()), of.samples))
        .collect();
    assert_eq!(lines, [(Some("step"), 600), (None, 300)]);
    let files: Vec<_> =
        cpu.files.iter().map(|of| (of.file.as_deref().unwrap_or_default(), of.samples)).collect();
    assert_eq!(files, [("libtorch_cpu.so", 500), ("libgomp.so.1", 300), ("python3.12", 100)]);
    let sentence = samples_in_short(&report);
    assert_eq!(
        sentence.as_deref(),
        Some(
            "CPU time, 9.00 s by samples, busiest thread 60.0 % busy: 66.7 % at train.py:41 in step, 33.3 % outside of Python, \
             55.6 % of all in libtorch_cpu.so, 11.1 % in collections."
        )
    );
}

#[test]
fn few_samples_have_no_shares() {
    let report = sampled(10);
    assert_eq!(report.cpu[0].samples, 90);
    assert_eq!(samples_in_short(&report), None);
}
