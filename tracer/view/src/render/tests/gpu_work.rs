//! The sections on GPU work and training steps.

use super::{Trace, plain};
use crate::document::{Style, lines};
use gctrace_analysis::Analysis;
use gctrace_event::read::{EventReader, TraceInput, TraceReader};
use std::fs::File;
use std::path::Path;
use test_kit::reports;

/// A trace of the PyTorch profiler; its license is beside it.
fn add(analysis: &mut Analysis, name: &str) {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../analysis/tests/data/kineto").join(name);
    let input = TraceInput::new(name, File::open(file).unwrap()).unwrap();
    reports::read(analysis, name, TraceReader::new(EventReader::new(input))).unwrap();
}

#[test]
fn a_rank_by_the_pytorch_profiler() {
    let mut analysis = Analysis::default();
    add(&mut analysis, "sampled_rank1.json.gz");
    insta::assert_snapshot!(super::checked(&super::super::report(&mut analysis)));
}

/// Sections of the text, by heading.
fn sections(text: &str, headings: &[&str]) -> String {
    let all: Vec<&str> = text.split("\n\n").collect();
    let wanted = |section: &&&str| headings.iter().any(|heading| section.starts_with(heading));
    all.iter().filter(wanted).copied().collect::<Vec<_>>().join("\n\n")
}

impl Trace {
    pub(super) fn backward(self, pid: u32, at_ms: f64) -> Self {
        let ts = 5_000_000.0 + at_ms * 1000.0;
        self.line(&format!(
            r#"{{"ph":"X","cat":"user_annotation","name":"backward","pid":{pid},"tid":{pid},"ts":{ts:.3},"dur":900.000}}"#
        ))
    }

    fn launch(self, pid: u32, correlation: u32, at_ms: f64, start_ms: f64, end_ms: f64) -> Self {
        let [at, start] = [at_ms, start_ms].map(|ms| 5_000_000.0 + ms * 1000.0);
        let length = (end_ms - start_ms) * 1000.0;
        self.line(&format!(
            r#"{{"ph":"X","cat":"cuda_driver","name":"cuLaunchKernel","pid":{pid},"tid":{pid},"ts":{at:.3},"dur":5.000,"args":{{"correlation":{correlation}}}}}"#
        ))
        .line(&format!(
            r#"{{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":{start:.3},"dur":{length:.3},"args":{{"device":0,"stream":7,"process":{pid},"correlation":{correlation}}}}}"#
        ))
    }

    /// A copy that blocks for `length_ms`, in a Python function that takes 1 ms more.
    fn copy_in(
        self,
        function: &str,
        name: &str,
        correlation: u32,
        at_ms: f64,
        length_ms: f64,
    ) -> Self {
        let ts = 5_000_000.0 + at_ms * 1000.0;
        let length = length_ms * 1000.0;
        self.line(&format!(
            r#"{{"ph":"X","cat":"python_function","name":"{function}","pid":4242,"tid":4242,"ts":{ts:.3},"dur":{:.3}}}"#,
            length + 1000.0
        ))
        .line(&format!(
            r#"{{"ph":"X","cat":"cuda_runtime","name":"cudaMemcpyAsync","pid":4242,"tid":4242,"ts":{ts:.3},"dur":{length:.3},"args":{{"correlation":{correlation}}}}}"#
        ))
        .line(&format!(
            r#"{{"ph":"X","cat":"gpu_memcpy","name":"{name}","pid":0,"tid":7,"ts":{:.3},"dur":{:.3},"args":{{"device":0,"stream":7,"process":4242,"correlation":{correlation}}}}}"#,
            ts + 10.0,
            length - 20.0
        ))
    }
}

/// Twenty steps of about 50 ms; every fifth has a full collection of 30 ms during which the GPU is
/// idle.
fn training() -> String {
    let mut trace = Trace::new().python(4242);
    let mut at = 0.0;
    for n in 0..20u32 {
        trace = trace.backward(4242, at);
        let correlation = n + 1;
        let waits = if n % 5 == 2 { 30.0 } else { 0.0 };
        if waits > 0.0 {
            trace = trace.pause(4242, at + 10.0, 30.0, 2, r#""reason":"automatic","collected":0"#);
        }
        let launched = at + 11.0 + waits + f64::from(n % 3);
        trace = trace.launch(4242, correlation, launched, launched + 0.01, launched + 40.0);
        at += 50.0 + waits + f64::from(n % 3);
    }
    trace.backward(4242, at).end(2000, "").json()
}

#[test]
fn steps_and_gaps_with_collections() {
    let text = plain(&[("trace.json", training())]);
    insta::assert_snapshot!(sections(
        &text,
        &["Training steps", "GPU busy and idle time", "Why the GPU was idle", "Launch latency"]
    ));
}

#[test]
fn without_gpu_work_there_is_no_section() {
    let text = plain(&[("trace.json", Trace::new().python(1).end(10, "").json())]);
    for heading in ["Training steps", "GPU busy", "Why the GPU was idle", "Launch latency"] {
        assert!(!text.contains(heading), "{heading}");
    }
}

#[test]
fn two_ranks_fit_and_have_distinct_names() {
    let mut analysis = Analysis::default();
    add(&mut analysis, "sampled_rank0.json.gz");
    add(&mut analysis, "sampled_rank1.json.gz");
    let text = super::checked(&super::super::report(&mut analysis));
    assert!(text.contains("GPU 0 of rank 0 was idle 55.2 %"), "{text}");
    assert!(text.contains("GPU 1 of rank 1  "), "{text}");
    assert!(text.contains("no collection in these 2"), "{text}");
}

/// Copies at two lines, in both directions: a row of the same cause.
#[test]
fn copies_at_several_lines_have_a_place_each() {
    let mut trace = Trace::new().python(4242);
    for step in 0..20u32 {
        let (at, id) = (f64::from(step) * 10.0, step * 3 + 1);
        trace = trace
            .launch(4242, id, at, at + 0.01, at + 2.0)
            .copy_in("data.py(88): load", "Memcpy HtoD (Pageable -> Device)", id + 1, at + 0.1, 3.0)
            .copy_in(
                "model.py(12): loss",
                "Memcpy DtoH (Device -> Pageable)",
                id + 2,
                at + 5.0,
                2.0,
            );
    }
    let report = super::report(&[("trace.json", trace.end(300, "").json())]);
    let short = super::super::idle::idle_in_short(&report);
    let short = lines(&short, Style::OF_FILES).join(" ").replace("   ", " ");
    for place in ["Memcpy HtoD (Pageable -> Device) at data.py:88 in load", "model.py:12 in loss"] {
        assert!(short.contains(place), "{place}: {short}");
    }
    let pinned = "pinned memory and non_blocking=True to the GPU";
    assert!(report.advice.iter().any(|advice| advice.action.contains(pinned)), "{report:?}");
    let full = super::checked(&report);
    for (gaps, place) in
        [("20", "data.py:88 in load: Memcpy"), ("19", "model.py:12 in loss: Memcpy")]
    {
        let mut lines = full.lines().filter(|line| line.starts_with("  blocking copies"));
        let is_place = |line: &str| line.contains(place) && line.contains(&format!(" {gaps}  "));
        assert!(lines.any(is_place), "{place}: {full}");
    }
    assert!(full.contains("Gaps: all with a part of the place"), "{full}");
}
