//! The section on the GPU cost of pauses.

use super::super::cause::too_large;
use super::{Trace, plain};
use gctrace_analysis::report::NotReplayed;

const PID: u32 = 4242;
/// Steps of the training.
const STEPS: u64 = 12;

impl Trace {
    fn work(self, category: &str, name: &str, at_us: u64, us: u64, args: &str) -> Self {
        let ts = 5_000_000 + at_us;
        self.line(&format!(
            r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":{PID},"tid":{PID},"ts":{ts}.000,"dur":{us}.000,"args":{{{args}}}}}"#
        ))
    }
}

/// A blocking loop: a kernel of 2 ms per step, and waiting for it. Step 6 has a pause of 30 ms behind
/// the launch, step 9 one of 1.5 ms, which the kernel hides.
fn training(steps: bool) -> String {
    let mut trace = Trace::new().python(PID);
    let mut now_us = 1_000;
    for step in 0..STEPS {
        let start_us = now_us;
        // Step lengths vary, as in reality.
        let launch_us = now_us + 100 + step * step * 3;
        let kernel_us = launch_us + 8;
        let op = format!(r#""device":0,"stream":7,"process":{PID},"correlation":{step}"#);
        let call = format!(r#""correlation":{step}"#);
        trace = trace
            .work("cuda_runtime", "cudaLaunchKernel", launch_us, 5, &call)
            .work("kernel", "gemm", kernel_us, 2_000, &op);
        now_us = launch_us + 20;
        let pause_us = match step {
            6 => 30_000,
            9 => 1_500,
            _ => 0,
        };
        if pause_us > 0 {
            let (from_ms, ms) = (now_us as f64 / 1e3, pause_us as f64 / 1e3);
            trace = trace.pause(PID, from_ms, ms, 2, r#""reason":"automatic""#);
        }
        now_us += pause_us;
        let end_us = (kernel_us + 2_000).max(now_us) + 4;
        let wait = format!(r#""correlation":{},"stream":7"#, 1000 + step);
        let waited_us = end_us - now_us;
        trace = trace.work("cuda_runtime", "cudaStreamSynchronize", now_us, waited_us, &wait);
        now_us = end_us + 20;
        if steps {
            let name = format!("ProfilerStep#{step}");
            let length_us = now_us - start_us;
            trace = trace.work("user_annotation", &name, start_us, length_us, "");
        }
    }
    trace.end(100, "").json()
}

fn section(steps: bool) -> String {
    let text = plain(&[("trace.json", training(steps))]);
    let section = text.split("GPU cost of GC\n").nth(1).expect("the section");
    section.split("\n\n").next().unwrap_or_default().to_owned()
}

#[test]
fn one_pause_is_paid_and_one_hidden() {
    insta::assert_snapshot!(section(true));
}

#[test]
fn without_steps_there_is_no_error_bar() {
    let section = section(false);
    let line = section.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(line.contains("No error bar: the trace shows no steps."), "{section}");
    assert!(!line.contains('±'), "{section}");
}

#[test]
fn why_nothing_is_replayed() {
    let sentence = too_large(NotReplayed { timestamps: 600_000_000, most: 536_870_911 });
    assert_eq!(
        sentence,
        "What the pauses cost together is unknown: the replay would need 600,000,000 timestamps, and \
         536,870,911 is the most. Analyze fewer ranks, or profile fewer steps."
    );
}
