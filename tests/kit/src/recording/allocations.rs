//! Estimates of `--alloc` against programs whose allocations are counted in a separate run.

use super::Trace;
use crate::limit::WithTimeout as _;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Records `allocate.py KIND` for `seconds` of CPU time; returns its output and the last summary.
fn record(python: &Path, kind: &str, seconds: &str) -> (Value, Value) {
    let place = tempfile::tempdir().unwrap();
    let script = super::scripts().join("allocate.py");
    let (python, script) = (python.to_str().unwrap(), script.to_str().unwrap());
    let line = ["--alloc", "--", python, script, kind, seconds];
    let output = super::gctrace(&line, place.path());
    assert!(output.status.success(), "{output:?}");
    let printed = serde_json::from_slice(&output.stdout).unwrap();
    let trace = Trace::read(&place.path().join("trace.json"));
    let summaries = trace.named("gctrace_allocations");
    let (_, last) = summaries.last().unwrap();
    (printed, (*last).clone())
}

/// The allocations of one round of `allocate.py KIND`, counted in a separate run by a wrapper
/// around the allocator.
fn allocations_per_round(python: &Path, kind: &str) -> f64 {
    let place = tempfile::tempdir().unwrap();
    let library = place.path().join("counting_allocator.so");
    let compiled = Command::new("cc")
        .args(["-O2", "-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(super::scripts().join("counting_allocator.c"))
        .status_in_time()
        .unwrap();
    assert!(compiled.success());
    let output = Command::new(python)
        .arg(super::scripts().join("allocate.py"))
        .args([kind, "1"])
        .arg(&library)
        .output_in_time()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    printed["allocations"].as_f64().unwrap() / printed["rounds"].as_f64().unwrap()
}

/// Lengths of the recordings of one program in seconds: other load on the machine makes allocations
/// in a window dearer, so that fewer windows fit into the budget.
const ATTEMPTS: [&str; 4] = ["8", "16", "32", "64"];

/// Records `allocate.py KIND` and compares the estimated allocations with the true ones.
pub fn the_rate_is_estimated(test: &str, python: &Path, kind: &str) {
    if !super::privileged(test) {
        return;
    }
    let per_round = allocations_per_round(python, kind);
    let mut reported = String::new();
    for seconds in ATTEMPTS {
        let (printed, summary) = record(python, kind, seconds);
        let truth =
            printed["rounds"].as_f64().unwrap() * per_round / printed["cpu_s"].as_f64().unwrap();
        summary_makes_sense(kind, &summary);
        match is_near(&summary, truth) {
            Ok(words) => return println!("{test}: {words}"),
            Err(words) => reported += &format!("{words}\n{summary}\n"),
        }
    }
    panic!("{reported}");
}

/// Within the goal's 10 %, or within three of the stated standard errors.
fn is_near(summary: &Value, truth: f64) -> Result<String, String> {
    let (Some(estimate), Some(error)) =
        (summary["per_cpu_second"].as_f64(), summary["error_ppm"].as_f64())
    else {
        return Err("no estimate".to_owned());
    };
    let (off, error) = (estimate / truth - 1.0, error / 1e6);
    let words = format!(
        "{estimate:.3e} a second, {truth:.3e} in truth: {:+.1} %, stated error {:.1} %",
        off * 100.0,
        error * 100.0
    );
    if off.abs() <= (3.0 * error).max(0.1) { Ok(words) } else { Err(words) }
}

fn summary_makes_sense(kind: &str, summary: &Value) {
    let (cost, cpu) = (summary["cost_ns"].as_f64().unwrap(), summary["cpu_ns"].as_f64().unwrap());
    assert!(cost > 0.0 && cost <= cpu, "{summary}");
    let stacks = summary["stacks"].as_array().unwrap();
    assert!(!stacks.is_empty(), "{summary}");
    if kind == "integers" {
        integers_have_their_size(summary);
    }
}

/// An integer of one digit takes 28 bytes, and so is in the class of 32.
fn integers_have_their_size(summary: &Value) {
    let hits = summary["hits"].as_u64().unwrap();
    let of_integers: u64 = summary["classes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|class| class[0] == 32)
        .map(|class| class[1].as_u64().unwrap())
        .sum();
    assert!(of_integers * 10 >= hits * 9, "{summary}");
}
