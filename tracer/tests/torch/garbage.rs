//! Torch tier: tensors in cycles, against what `gc.DEBUG_SAVEALL` keeps of one step.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use serde_json::Value;
use std::path::Path;
use test_kit::recording::Trace;
use test_kit::{interpreters, recording};

const STEPS: u64 = 20;

fn count(garbage: &Value, kinds: &[(u64, &Value)], matches: &dyn Fn(&Value) -> bool) -> u64 {
    let counts = garbage["kinds"].as_array().unwrap().iter();
    let of_kind = |count: &&Value| {
        let kind = kinds.iter().find(|(_, kind)| kind["id"] == count["kind"]);
        matches(kind.unwrap().1)
    };
    let objects = |count: &Value| count["objects"].as_u64().unwrap();
    counts.filter(of_kind).map(objects).sum()
}

fn recorded(python: &Path, mode: &str, place: &Path) -> Value {
    let script = recording::scripts().join("torch_cycles.py");
    let (program, steps) = (python.to_str().unwrap(), STEPS.to_string());
    let line = ["--mode", mode, "--", program, script.to_str().unwrap(), &steps];
    let output = recording::gctrace(&line, place);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn tensors_are_counted(test: &str, mode: &str) {
    let Some(python) = interpreters::torch(test) else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let truth = recorded(&python, mode, place.path());
    let trace = Trace::read(&place.path().join("trace.json"));
    trace.assert_nothing_lost();
    let kinds = trace.named("gctrace_object_kind");
    let is_tensor = |kind: &Value| kind["type_name"] == "torch.Tensor";
    let is_closure = |kind: &Value| {
        let file = kind["file"].as_str().unwrap_or_default();
        kind["type_name"] == "function" && file.ends_with("torch_cycles.py")
    };
    // The last of them: before come one step, and the one that was kept for the truth.
    let walks: Vec<_> = trace.named("gctrace_garbage");
    let with_tensors = walks.iter().map(|(_, walk)| *walk);
    let with_tensors = with_tensors.filter(|walk| count(walk, &kinds, &is_tensor) > 0);
    let mut with_tensors: Vec<_> = with_tensors.collect();
    let steps = with_tensors.split_off(with_tensors.len() - STEPS as usize);
    let of_steps = |matches: &dyn Fn(&Value) -> bool| -> Vec<u64> {
        steps.iter().map(|walk| count(walk, &kinds, matches)).collect()
    };
    let expected = |name: &str| [truth[name].as_u64().unwrap(); STEPS as usize];
    assert_eq!(of_steps(&is_tensor), expected("tensors"));
    assert_eq!(of_steps(&is_closure), expected("closures"));
    println!("{test}: {} collections with tensors", steps.len());
}

#[test]
fn tensors_in_cycles_are_counted_in_process() {
    tensors_are_counted("tensors_in_cycles_are_counted_in_process", "inject");
}

#[test]
fn tensors_in_cycles_are_counted_by_probes() {
    let test = "tensors_in_cycles_are_counted_by_probes";
    if recording::privileged(test) {
        tensors_are_counted(test, "ebpf");
    }
}
