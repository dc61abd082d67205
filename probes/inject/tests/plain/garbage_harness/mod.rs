//! Runs the scripts that make garbage, and pairs what the library reports with their truth.

#![allow(
    clippy::allow_attributes,
    dead_code,
    clippy::unwrap_used,
    reason = "each test program uses some of it"
)]

use gctrace_ring::{GarbageDetail, InjectOptions};
use serde_json::Value;
use std::process::Command;
use test_kit::interpreters::{Python, interpreters, root};
use test_kit::preload::{Run, SeenGarbage, SeenRecords};

/// Every collection is examined, whatever it costs.
pub(crate) fn all() -> InjectOptions {
    InjectOptions {
        garbage: GarbageDetail::Types,
        garbage_budget_ppm: 1_000_000_000,
        ..InjectOptions::default()
    }
}

/// `garbage.py` with these arguments.
pub(crate) fn script(python: &Python, arguments: &[&str]) -> Command {
    let mut command = Command::new(&python.path);
    command.arg(root().join("tests/python/garbage.py")).args(arguments);
    command
}

/// The script's truth, after a run without a fault.
pub(crate) fn truth(python: &Python, run: &Run) -> Value {
    assert!(run.status.success(), "{}: {}", python.name, run.errors);
    assert_eq!(run.errors, "", "{}", python.name);
    for ring in &run.rings {
        assert_eq!(ring.switched_off, None, "{}", python.name);
        assert_eq!(ring.lost.total(), 0, "{}", python.name);
    }
    serde_json::from_str(run.output.lines().last().unwrap()).unwrap()
}

/// Interpreters with one list of garbage: all with a global lock.
pub(crate) fn with_list(test: &str) -> impl Iterator<Item = Python> {
    let all = interpreters(test).into_iter();
    all.filter(|python| !python.is("free-threaded"))
}

pub(crate) fn number(truth: &Value, name: &str) -> u64 {
    truth[name].as_u64().unwrap()
}

/// Garbage and freed objects of each collection between two times, in order. Exactly those that
/// freed something have garbage.
pub(crate) fn between(ring: &SeenRecords, truth: &Value) -> Vec<(Option<SeenGarbage>, u64)> {
    let window = number(truth, "begin")..number(truth, "end");
    let mut garbage = ring.garbage();
    let pauses = ring.pauses().into_iter();
    pauses
        .filter(|pause| window.contains(&pause.interval.start_ns))
        .map(|pause| {
            let (start, end) = (pause.interval.start_ns, pause.interval.end_ns);
            let position = garbage.iter().position(|garbage| {
                garbage.head.tid == pause.tid && (start..=end).contains(&garbage.head.at_ns)
            });
            (position.map(|at| garbage.remove(at)), pause.collected.map_or(0, u64::from))
        })
        .collect()
}

/// The same; garbage and freed objects must be equally many.
pub(crate) fn equal(python: &Python, ring: &SeenRecords, truth: &Value) -> Vec<SeenGarbage> {
    let pairs = between(ring, truth);
    let equal = pairs.into_iter().filter_map(|(garbage, collected)| {
        let objects = garbage.as_ref().map_or(0, |garbage| garbage.head.objects);
        // An increment frees what an earlier one marked.
        assert_eq!(objects, collected, "{}", python.name);
        garbage
    });
    equal.collect()
}
