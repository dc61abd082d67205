//! What the report states about cycles and births, against programs that know how many they make.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use serde_json::Value;
use std::path::Path;
use test_kit::interpreters::Python;
use test_kit::{interpreters, recording};

const STEPS: u64 = 1_000;

/// Six closures in each step, which hold a list; the last collection frees all that are left. The
/// sums take the time that lets the budget of 100 % examine every collection.
const PROGRAM: &str = "\
import gc
def leave():
    held = [[1], [2]]
    def closure(n):
        return n and closure(n - 1) and held
    closure(3)
def train_step():
    for _ in range(6):
        leave()
sum(range(3000000))
for _ in range(1000):
    train_step()
    keep = [[n] for n in range(300)]
    sum(range(5000))
gc.collect()
print(gc.isenabled())
";
/// The line of `closure`.
const LINE: u64 = 4;

fn recorded(python: &Python, extra: &[&str], place: &Path) -> Value {
    let script = place.join("closures.py");
    std::fs::write(&script, PROGRAM).unwrap();
    let (program, script) = (python.path.to_str().unwrap(), script.to_str().unwrap());
    let mut line = vec!["record", "--mode", "inject"];
    line.extend(extra);
    line.extend(["--", program, script]);
    let output = recording::gctrace(&line, place);
    assert!(output.status.success(), "{output:?}");
    let json = recording::gctrace(&["analyze", "--format", "json", "trace.json"], place);
    assert!(json.status.success(), "{json:?}");
    serde_json::from_slice(&json.stdout).unwrap()
}

/// Cycles of the program's closures.
fn closures(garbage: &Value) -> Vec<&Value> {
    let cycles = garbage["cycles"].as_array().unwrap().iter();
    let cycles = cycles.filter(|cycle| {
        let file = cycle["location"]["file"].as_str().unwrap_or_default();
        file.ends_with("closures.py")
    });
    cycles.collect()
}

#[test]
fn each_cycle_of_each_step_is_counted() {
    let test = "each_cycle_of_each_step_is_counted";
    let mut tested = Vec::new();
    for python in interpreters::interpreters(test) {
        // Examined in-process from 3.9 on, with the GIL.
        if python.is("free-threaded") || python.version < (3, 9, 0) {
            interpreters::skip(test, &format!("{}: no cycles in-process", python.name));
            continue;
        }
        let place = tempfile::tempdir().unwrap();
        let mut extra = vec!["--garbage", "cycles", "--garbage-budget", "100"];
        let has_steps = python.version >= (3, 12, 0);
        if has_steps {
            extra.extend(["--step-function", "train_step"]);
        }
        let report = recorded(&python, &extra, place.path());
        let name = &python.name;
        let garbage = &report["garbage"];
        let missing = &report["missing"];
        assert_eq!(missing["lost"], serde_json::json!({}), "{name}: {missing}");
        assert_eq!(garbage["examined_ratio"], 1.0, "{name}: {garbage}");
        let signatures = closures(garbage);
        let [closure] = signatures.as_slice() else {
            unreachable!("{name}: one signature, not {signatures:?}");
        };
        assert_eq!(closure["shape"], "closure", "{name}: {closure}");
        assert_eq!(closure["location"]["line"], LINE, "{name}: {closure}");
        assert_eq!(garbage["cycle_garbage"], garbage["objects"], "{name}: {garbage}");
        assert_eq!(closure["count"], 6 * STEPS, "{name}: {garbage}");
        // Function, its tuple of cells and the cell of its own name; held are the other cell, and
        // three lists in it.
        assert_eq!(closure["objects"], 3 * 6 * STEPS, "{name}: {closure}");
        assert_eq!(closure["held_objects"], 4 * 6 * STEPS, "{name}: {closure}");
        if has_steps {
            let per_step = &closure["per_step"];
            assert!((per_step["mean"].as_f64().unwrap() - 6.0).abs() < 0.06, "{name}: {per_step}");
            // Fewer collections do not show whether every step leaves the same.
            let constant = garbage["examined"].as_u64().unwrap() >= 9;
            assert_eq!(per_step["constant"], constant, "{name}: {garbage}");
            let expected = if constant {
                "6 cycles in every step, all from closures.py:4; hardly \
                         anything else is garbage."
            } else {
                "6 cycles per step on average, all from closures.py:4; hardly \
                          anything else is garbage."
            };
            assert_eq!(garbage["verdict"], expected, "{name}");
        }
        tested.push(name.clone());
    }
    assert!(!tested.is_empty(), "{test}: no interpreter whose cycles are examined");
    println!("{test}: {}", tested.join(", "));
}

/// Instances of one class, three in four born at one line; what was freed at their addresses before
/// was born elsewhere.
const INSTANCES: &str = "\
import gc
class Node: pass
def tie(own): own.own = own
def often(): return [Node() for _ in range(300)]
def seldom(): return [Node() for _ in range(100)]
def never(): return [Node() for _ in range(400)]
gc.disable()
for _ in range(200):
    never()
    for own in often() + seldom(): tie(own)
    del own
    gc.collect()
";

#[test]
fn instances_have_the_lines_they_were_born_at() {
    let test = "instances_have_the_lines_they_were_born_at";
    let mut tested = Vec::new();
    for python in interpreters::interpreters(test) {
        if python.is("free-threaded") {
            interpreters::skip(test, &format!("{}: no garbage in-process", python.name));
            continue;
        }
        let name = &python.name;
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("nodes.py"), INSTANCES).unwrap();
        let mut line = vec!["record", "--mode", "inject", "--alloc", "--garbage-budget"];
        line.extend(["100", "--", python.path.to_str().unwrap(), "nodes.py"]);
        let output = recording::gctrace(&line, place.path());
        assert!(output.status.success(), "{output:?}");
        let json = ["analyze", "--format", "json", "trace.json"];
        let json = recording::gctrace(&json, place.path());
        let report: Value = serde_json::from_slice(&json.stdout).unwrap();
        let kinds = report["garbage"]["kinds"].as_array().unwrap();
        let nodes = kinds.iter().find(|kind| kind["type_name"] == "__main__.Node");
        let births = &nodes.unwrap()["births"];
        let samples = |births: &Value| births["samples"].as_u64().unwrap();
        let lines = births["lines"].as_array().unwrap();
        let [often, seldom] = lines.as_slice() else {
            unreachable!("{name}: two lines, not {births}");
        };
        let at = |line: &Value| line["location"]["line"].as_u64();
        assert_eq!((at(often), at(seldom)), (Some(4), Some(5)), "{births}");
        assert_eq!(samples(births), samples(often) + samples(seldom));
        // Of 80,000 objects one in 256 is sampled: 312 on average.
        assert!((150..620).contains(&samples(births)), "{name}: {births}");
        let text = recording::gctrace(&["analyze", "--full", "trace.json"], place.path());
        let text = String::from_utf8(text.stdout).unwrap();
        let shown = format!(
            "__main__.Node born at nodes.py:4 in {} ({} of {} sampled)",
            often["location"]["function"].as_str().unwrap(),
            samples(often),
            samples(births)
        );
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words(&text).contains(&words(&shown)), "{name}: {text}");
        tested.push(name.clone());
    }
    assert!(!tested.is_empty(), "{test}: no interpreter with the GIL");
    println!("{test}: {}", tested.join(", "));
}

/// Half of each pause is a finalizer, and the garbage is examined: neither is the collector's.
const FINALIZERS: &str = "\
import gc, time
class Pool:
    def __init__(self):
        self.me = self
    def __del__(self):
        until = time.perf_counter_ns() + 2_000_000
        while time.perf_counter_ns() < until:
            pass
kept = []
for step in range(60):
    Pool()
    kept.append([{} for _ in range(2_000)])
    gc.collect()
";

/// The recording's last line, the trace and the report have the same pauses: without finalizers and
/// without the examination.
#[test]
fn the_last_line_has_the_figures_of_the_report() {
    let test = "the_last_line_has_the_figures_of_the_report";
    for python in interpreters::interpreters(test) {
        if python.is("free-threaded") || python.version < (3, 9, 0) {
            interpreters::skip(test, &format!("{}: not measured apart", python.name));
            continue;
        }
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("pool.py"), FINALIZERS).unwrap();
        let program = python.path.to_str().unwrap();
        let line = ["record", "--mode", "inject", "--garbage", "cycles", "--", program, "pool.py"];
        let output = recording::gctrace(&line, place.path());
        let printed = String::from_utf8(output.stderr).unwrap();
        let (report, walked_ns) = recording::assert_same_pauses(&printed, place.path());
        assert!(walked_ns > 0, "{}", python.name);
        let called = report["processes"][0]["called"].as_array().unwrap();
        let time_ns = called[0]["time_ns"].as_u64().unwrap();
        // At least what the program waited for.
        assert!(time_ns >= 60 * 2_000_000, "{}: {called:?}", python.name);
    }
}
