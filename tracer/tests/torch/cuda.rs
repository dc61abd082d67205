//! Torch tier: PyTorch works with every CUDA probe in place; its backward passes and device memory
//! are recorded.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use serde_json::Value;
use test_kit::recording::Trace;
use test_kit::{interpreters, recording};

fn argument(event: &Value, name: &str) -> i64 {
    event["args"][name].as_i64().unwrap()
}

#[test]
fn backward_passes_and_device_memory() {
    let test = "backward_passes_and_device_memory";
    let Some(python) = interpreters::torch(test).filter(|_| recording::privileged(test)) else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let script = recording::scripts().join("torch_steps.py");
    let (python, script) = (python.to_str().unwrap(), script.to_str().unwrap());
    let line = ["--mode", "ebpf", "--cuda", "all", "--", python, script, "60"];
    let output = recording::gctrace(&line, place.path());
    assert!(output.status.success(), "{output:?}");
    let truth: Value = serde_json::from_slice(&output.stdout).unwrap();
    let trace = Trace::read(&place.path().join("trace.json"));
    trace.assert_nothing_lost();

    let named = |name: &str| {
        let events = trace.events.iter().filter(|event| event["name"] == name);
        events.cloned().collect::<Vec<Value>>()
    };
    let steps = named("backward");
    assert_eq!(steps.len() as u64, truth["backward"].as_u64().unwrap());
    let unfinished = steps.iter().filter(|step| step["dur"] == 0.0);
    assert_eq!(
        unfinished.count() as u64,
        truth["failed"].as_u64().unwrap(),
        "those ended by an exception"
    );

    let freed: i64 =
        named("gctrace_pause_memory").iter().map(|memory| argument(memory, "freed_bytes")).sum();
    assert_eq!(freed, truth["freed"].as_i64().unwrap());
    let memory = named("[memory]");
    let of_device = |event: &Value| (argument(event, "Device Type"), argument(event, "Device Id"));
    assert!(memory.iter().all(|event| of_device(event) == (1, 1)));
    let last = memory.iter().max_by_key(|event| recording::nanoseconds(&event["ts"]));
    assert_eq!(argument(last.unwrap(), "Total Allocated"), 0);
    println!("{test}: {} backward passes, {freed} bytes freed within pauses", steps.len());
}
