//! GPU work that a recorder wrote in parts: figures are those of a trace with one part alone, and pauses and
//! steps of all the time stay.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use gctrace_event::{Annotation, CudaCall, GpuOp, OmittedGpuWork, OmittedPauses, Pause, Record};
use serde_json::Value;
use test_kit::reports::{MS, START, end, pause, process, report};

const STEP: u64 = 50 * MS;
const STEPS: u64 = 400;
/// Kernels of a step.
const KERNELS: u64 = 20;

/// Training, host-bound in every fourth step; the collector pauses each tenth, longest in step 350.
fn training() -> Vec<Record> {
    let mut records = Vec::new();
    for step in 0..STEPS {
        let start_ns = START + step * STEP;
        records.push(Record::Annotation(Annotation {
            pid: 1,
            tid: 1,
            name: format!("ProfilerStep#{step}"),
            start_ns,
            end_ns: start_ns + STEP,
        }));
        let paused_ns = match step {
            350 => 30 * MS,
            _ if step % 10 == 3 => 4 * MS,
            _ => 0,
        };
        if paused_ns > 0 {
            records.push(Record::Pause(Pause {
                start_ns,
                end_ns: start_ns + paused_ns,
                ..pause(1, 0, 1)
            }));
        }
        for kernel in 0..KERNELS {
            let called_ns = start_ns + paused_ns + kernel * MS / if step % 4 == 0 { 1 } else { 4 };
            let correlation = Some(step * KERNELS + kernel + 1);
            records.push(Record::CudaCall(CudaCall {
                pid: 1,
                tid: 1,
                function: "cudaLaunchKernel".into(),
                start_ns: called_ns,
                end_ns: called_ns + MS / 100,
                correlation,
                ..CudaCall::default()
            }));
            let began_ns = called_ns.max(start_ns + paused_ns + kernel * MS / 2) + MS / 50;
            records.push(Record::GpuOp(GpuOp {
                pid: Some(1),
                name: "gemm".into(),
                start_ns: began_ns,
                end_ns: began_ns + MS / 3,
                correlation,
                ..GpuOp::default()
            }));
        }
    }
    records
}

fn span(record: &Record) -> (u64, u64) {
    match record {
        Record::GpuOp(op) => (op.start_ns, op.end_ns),
        Record::CudaCall(call) => (call.start_ns, call.end_ns),
        Record::Pause(pause) => (pause.start_ns, pause.end_ns),
        Record::Annotation(step) => (step.start_ns, step.end_ns),
        _ => (0, 0),
    }
}

fn is_gpu_work(record: &Record) -> bool {
    matches!(record, Record::GpuOp(_) | Record::CudaCall(_))
}

/// What a recorder leaves that only counts the GPU work of some steps, stated in two records.
fn thinned(steps: std::ops::Range<u64>) -> Vec<Record> {
    let (from_ns, until_ns) = (START + steps.start * STEP, START + steps.end * STEP);
    let middle_ns = from_ns.midpoint(until_ns);
    let mut omitted = [OmittedGpuWork::default(); 2];
    let mut records = training();
    records.retain(|record| {
        let (start_ns, end_ns) = span(record);
        let is_omitted = is_gpu_work(record) && from_ns <= start_ns && start_ns < until_ns;
        if is_omitted {
            let one = OmittedPauses::of(1, end_ns - start_ns);
            let mut work = OmittedGpuWork {
                pid: 1,
                since_ns: start_ns,
                until_ns: end_ns,
                ..OmittedGpuWork::default()
            };
            let is_op = matches!(record, Record::GpuOp(_));
            *(if is_op { &mut work.operations } else { &mut work.calls }) = one;
            let sum = &mut omitted[usize::from(start_ns >= middle_ns)];
            sum.add(&work);
            sum.pid = 1;
        }
        !is_omitted
    });
    records.extend(omitted.map(Record::OmittedGpuWork));
    records
}

fn reported(records: Vec<Record>) -> Value {
    let mut all = vec![process(1, 0, "generational")];
    all.extend(records);
    serde_json::to_value(report(all, Some(end(STEPS * STEP / MS)))).unwrap()
}

#[test]
fn figures_are_of_the_part_with_the_longest_pause() {
    let of_parts = reported(thinned(100..300));
    let whole = training();
    let ops = whole.iter().filter(|record| matches!(record, Record::GpuOp(_)));
    let spans = ops.map(span).filter(|op| op.0 >= START + 300 * STEP);
    let part = spans.reduce(|one, other| (one.0, one.1.max(other.1))).unwrap();
    let mut alone = whole;
    alone.retain(|record| {
        let (start_ns, end_ns) = span(record);
        match record {
            Record::Pause(_) => part.0 <= end_ns && start_ns <= part.1,
            _ => part.0 <= start_ns && end_ns <= part.1,
        }
    });
    let alone = reported(alone);
    for figures in ["/gpu/devices", "/gpu/idle", "/gpu/cause", "/gpu/operations", "/gpu/launching"]
    {
        assert!(alone.pointer(figures).is_some_and(|figures| !figures.is_null()), "{figures}");
        assert_eq!(of_parts.pointer(figures), alone.pointer(figures), "{figures}");
    }
    let number = |path: &str| of_parts.pointer(path).and_then(Value::as_u64);
    assert_eq!(number("/gpu/cause/0/pauses/count"), Some(11));
    assert_eq!(number("/missing/omitted_gpu_work/operations/count"), Some(200 * KERNELS));
    assert_eq!(number("/missing/omitted_gpu_work/calls/count"), Some(200 * KERNELS));
    assert!(number("/missing/omitted_gpu_work/known_ns").is_some_and(|ns| ns > 99 * STEP));
    // All the time.
    assert_eq!(number("/totals/pauses/count"), Some(41));
    assert_eq!(number("/steps/processes/0/count"), Some(STEPS));
    let steps = of_parts.pointer("/steps/processes").and_then(Value::as_array).unwrap();
    assert!(steps.len() == 1 && steps[0]["gpu_idle_ns"].is_null(), "{steps:?}");
}

#[test]
fn without_a_part_nothing_is_known_of_the_gpu() {
    let of_none = reported(thinned(0..STEPS));
    assert!(of_none["gpu"].is_null());
    let omitted = &of_none["missing"]["omitted_gpu_work"];
    assert_eq!(omitted["operations"]["count"].as_u64(), Some(STEPS * KERNELS));
    assert!(omitted["known_ns"].is_null());
    assert_eq!(of_none.pointer("/totals/pauses/count").and_then(Value::as_u64), Some(41));
    assert!(reported(training())["missing"]["omitted_gpu_work"].is_null());
}
