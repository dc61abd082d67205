//! `--garbage cycles` in-process, as a user gives it: the trace against the program's own truth.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use test_kit::interpreters::{Python, interpreters};
use test_kit::recording;
use test_kit::recording::Trace;

fn record(python: &Python, options: &[&str]) -> (Value, Trace) {
    let place = tempfile::tempdir().unwrap();
    let script = recording::scripts().join("garbage_cycles.py");
    let mut line = vec!["record", "--mode", "inject"];
    line.extend(options);
    line.extend(["--", python.path.to_str().unwrap()]);
    line.extend([script.to_str().unwrap(), "planted"]);
    let output = recording::gctrace(&line, place.path());
    assert!(output.status.success(), "{output:?}");
    let truth = serde_json::from_slice(&output.stdout).unwrap();
    (truth, Trace::read(&place.path().join("trace.json")))
}

/// Free-threaded builds have no list of garbage.
fn with_list(test: &str) -> impl Iterator<Item = Python> {
    let all = interpreters(test).into_iter();
    all.filter(|python| !python.is("free-threaded"))
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap()
}

#[test]
fn planted_cycles_are_in_the_trace() {
    for python in with_list("planted_cycles_are_in_the_trace") {
        let options = ["--garbage", "cycles", "--garbage-budget", "100"];
        let (truth, trace) = record(&python, &options);
        trace.assert_nothing_lost();
        let ids = |name: &str| -> BTreeMap<u64, &Value> {
            let all = trace.named(name).into_iter();
            all.map(|(_, record)| (number(record, "id"), record)).collect()
        };
        let (kinds, cycles) = (ids("gctrace_object_kind"), ids("gctrace_cycle"));
        for cycle in cycles.values() {
            let edges = cycle["edges"].as_array().unwrap();
            assert!(!edges.is_empty());
            assert!(edges.iter().all(|edge| kinds.contains_key(&number(edge, "kind"))));
        }
        let window = number(&truth, "begin")..number(&truth, "end");
        let events = trace.events.iter();
        let garbage: Vec<&Value> =
            events.filter(|event| event["name"] == "gctrace_garbage").collect();
        let pauses = trace.pauses();
        for garbage in &garbage {
            let at_ns = recording::nanoseconds(&garbage["ts"]);
            let is_own = |pause: &&recording::Pause| {
                (pause.start_ns..=pause.end_ns).contains(&at_ns) && garbage["tid"] == pause.tid
            };
            assert_eq!(pauses.iter().filter(is_own).count(), 1, "{}", python.name);
        }
        let is_planted =
            |garbage: &&&Value| window.contains(&recording::nanoseconds(&garbage["ts"]));
        let planted = garbage.iter().find(is_planted).unwrap();
        let args = &planted["args"];
        assert_eq!(args["objects"], truth["collected"], "{}", python.name);
        let counts = args["cycles"].as_array().unwrap();
        let closures = counts.iter().find(|count| {
            let edges = cycles[&number(count, "cycle")]["edges"].as_array().unwrap();
            let types: BTreeSet<&str> = edges
                .iter()
                .filter_map(|edge| kinds[&number(edge, "kind")]["type_name"].as_str())
                .collect();
            types == BTreeSet::from(["cell", "function", "tuple"])
        });
        let closures = closures.unwrap();
        assert_eq!((number(closures, "count"), number(closures, "objects")), (6, 18));
    }
}

#[test]
fn garbage_of_short_pauses_is_left_out() {
    for python in with_list("garbage_of_short_pauses_is_left_out") {
        let (_, trace) = record(&python, &["--garbage-budget", "100", "--min-pause", "1h"]);
        assert!(trace.pauses().is_empty(), "{}", python.name);
        assert!(trace.named("gctrace_garbage").is_empty(), "{}", python.name);
        assert!(!trace.named("gctrace_object_kind").is_empty(), "{}", python.name);
    }
}

/// Builds 24 MB between collections, which is more than glibc keeps at the end of the heap.
const TRIMMED: &str = "\
class Holder: pass
def step():
    holder = Holder()
    holder.me = holder
    holder.buffer = bytearray(100_000)
for _ in range(6_000):
    step()
";

/// glibc gives memory back as without gctrace, and asks for it as often: what the library keeps must
/// not lie at the end of the program's heap. Its own takes a number of mappings that does not grow.
#[test]
fn the_heap_is_trimmed_as_without_gctrace() {
    let test = "the_heap_is_trimmed_as_without_gctrace";
    if Command::new("strace").arg("-V").output().is_err() {
        eprintln!("{test}: skipped: there is no strace");
        return;
    }
    for python in with_list(test) {
        let place = tempfile::tempdir().unwrap();
        let path = python.path.to_str().unwrap();
        let traced = ["strace", "-qq", "-e", "trace=brk,mmap", "-o", "calls", path, "-c", TRIMMED];
        let calls = || {
            let calls = std::fs::read_to_string(place.path().join("calls")).unwrap();
            let count = |name| calls.lines().filter(|line| line.starts_with(name)).count();
            (count("brk("), count("mmap("))
        };
        let bare = Command::new(traced[0]).args(&traced[1..]).current_dir(place.path()).output();
        assert!(bare.unwrap().status.success());
        let (without, mapped_without) = calls();
        assert!(without > 100, "{}: {without}", python.name);
        for garbage in ["off", "types", "cycles"] {
            let recorded = ["record", "--mode", "inject", "--garbage", garbage, "--"];
            let output = recording::gctrace(&[&recorded[..], &traced].concat(), place.path());
            assert!(output.status.success(), "{output:?}");
            Trace::read(&place.path().join("trace.json")).assert_nothing_lost();
            std::fs::remove_file(place.path().join("trace.json")).unwrap();
            let (with, mapped) = calls();
            let name = &python.name;
            assert!(
                with.abs_diff(without) * 100 <= without,
                "{name}, {garbage}: {without} -> {with}"
            );
            assert!(
                mapped <= mapped_without + 100,
                "{name}, {garbage}: {mapped_without} -> {mapped} mappings"
            );
        }
    }
}

/// A loop makes classes of seven names.
const CLASSES: &str = "
class Meta(type): pass

for number in range(4000):
    Meta(f'Row{number % 7}', (), {})
    type(f'Plain{number % 5}', (), {})
";

#[test]
fn equal_classes_that_a_loop_makes_are_one_cycle() {
    for python in with_list("equal_classes_that_a_loop_makes_are_one_cycle") {
        let place = tempfile::tempdir().unwrap();
        let line = ["record", "--mode", "inject", "--garbage", "cycles", "--garbage-budget", "100"];
        let program = ["--", python.path.to_str().unwrap(), "-c", CLASSES];
        let output = recording::gctrace(&[&line[..], &program].concat(), place.path());
        assert!(output.status.success(), "{output:?}");
        let json = recording::gctrace(&["analyze", "--format", "json", "trace.json"], place.path());
        let report: Value = serde_json::from_slice(&json.stdout).unwrap();
        let garbage = &report["garbage"];
        for list in ["kinds", "cycles"] {
            let text = garbage[list].to_string();
            for name in ["Row*", "Plain*"] {
                assert_eq!(text.matches(name).count(), 1, "{}: {name} in {text}", python.name);
            }
            assert!(!text.contains("Row1") && !text.contains("Plain1"), "{}: {text}", python.name);
        }
    }
}
