//! The sections on GPU work and training steps.

use super::{Trace, plain};
use gctrace_analysis::Analysis;
use gctrace_event::read::{EventReader, TraceInput, TraceReader};
use std::fs::File;
use std::path::Path;
use test_kit::reports;

/// A trace of the PyTorch profiler; its license is beside it.
fn add(analysis: &mut Analysis, name: &str) {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../analysis/tests/data/kineto").join(name);
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
