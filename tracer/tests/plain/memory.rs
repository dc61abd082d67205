//! The memory of a remedy, against runs that have it.

use test_kit::owned::{OWNERS, predicted, taken_by_raised};
use test_kit::{interpreters, recording};

/// Less is within what any two runs differ by, in bytes.
const LITTLE: u64 = 4 << 20;

#[test]
fn memory_of_waiting_garbage_is_what_a_run_with_it_takes() {
    let test = "memory_of_waiting_garbage_is_what_a_run_with_it_takes";
    let Some(python) = interpreters::python(test, "system-3.11") else {
        return;
    };
    for (owns, program) in OWNERS {
        let place = tempfile::tempdir().unwrap();
        let path = python.path.to_str().unwrap();
        let line = ["record", "--mode", "inject", "--", path, "-c", program];
        let output = recording::gctrace(&line, place.path());
        assert!(output.status.success(), "{owns}: {output:?}");
        let json = recording::gctrace(&["analyze", "--json", "trace.json"], place.path());
        let report = serde_json::from_slice(&json.stdout).unwrap();
        let (bytes, is_least) = predicted(&report);
        let (bytes, taken) = (bytes.unwrap(), taken_by_raised(&python.path, program));
        let near = |one: u64, other: u64| one <= 2 * other + LITTLE;
        assert!(!is_least, "{owns}");
        assert!(near(bytes, taken) && near(taken, bytes), "{owns}: {bytes} for {taken}");
    }
}
