//! The section on NVML samples.

use super::{Trace, plain};

impl Trace {
    fn gpu(self, args: &str) -> Self {
        self.line(&format!(
            r#"{{"ph":"M","name":"gctrace_gpu","pid":0,"tid":0,"ts":5000000.000,"args":{{{args}}}}}"#
        ))
    }

    fn gpu_sample(self, at_ms: u64, args: &str) -> Self {
        let ts = 5_000_000 + at_ms * 1000;
        self.line(&format!(
            r#"{{"ph":"M","name":"gctrace_gpu_sample","pid":0,"tid":0,"ts":{ts}.000,"args":{{{args}}}}}"#
        ))
    }
}

fn training() -> Trace {
    Trace::new()
        .python(4242)
        .pause(4242, 100.0, 30.0, 2, r#""reason":"automatic","collected":5"#)
        .gpu(r#""gpu":0,"uuid":"GPU-1","name":"NVIDIA H100 80GB HBM3","memory_total_bytes":85899345920,"driver":"570.86.10""#)
        .gpu(r#""gpu":1,"uuid":"GPU-2","name":"NVIDIA H100 80GB HBM3","mig":true"#)
        .gpu_sample(0, r#""gpu":0,"utilization_percent":20,"memory_used_bytes":1073741824,"power_mw":120000,"throttle_reasons":["gpu_idle"],"processes":[{"pid":4242,"memory_bytes":524288000},{"pid":77}]"#)
        .gpu_sample(0, r#""gpu":1,"memory_used_bytes":0,"throttle_reasons":["gpu_idle"]"#)
        .gpu_sample(200, r#""gpu":0,"utilization_percent":97,"memory_used_bytes":18468360192,"power_mw":698123,"throttle_reasons":["sw_power_cap"],"processes":[{"pid":4242,"memory_bytes":17930649600}]"#)
}

#[test]
fn two_gpus_one_of_them_split() {
    let trace = training().end(1000, "").json();
    let text = plain(&[("trace.json", trace)]);
    let section = text.split("GPU (NVML)\n").nth(1).expect("the section");
    let section = section.split("\n\n").next().unwrap_or_default();
    insta::assert_snapshot!(section);
}

#[test]
fn without_samples_there_is_no_section() {
    let trace = Trace::new().python(1).end(10, "").json();
    assert!(!plain(&[("trace.json", trace)]).contains("NVML"));
}

#[test]
fn of_several_traces_each_gpu_says_whose_it_is() {
    let trace = || training().end(1000, "").json();
    let text = plain(&[("a.json", trace()), ("b.json", trace())]);
    assert!(text.contains("GPU 0 of trace 1") && text.contains("GPU 1 of trace 2"), "{text}");
}
