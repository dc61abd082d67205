//! Lines that instances were born on, against programs that know them.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use crate::garbage_harness;

use garbage_harness::{all, with_list};
use gctrace_ring::InjectOptions;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;
use test_kit::interpreters::{Python, root};
use test_kit::preload::{Run, SeenRecords, run, run_with_children};

/// Mean number of allocations per sample, as in the library.
const EVERY: u64 = 256;

fn with_births() -> InjectOptions {
    InjectOptions { allocations: true, ..all() }
}

fn births(python: &Python, case: &str) -> Command {
    let mut command = Command::new(&python.path);
    command.arg(root().join("tests/python/garbage_births.py")).arg(case);
    command
}

/// By type and line, the number of objects.
type Lines = BTreeMap<(String, u64), u64>;

/// The script's truth.
fn truth(python: &Python, run: &Run) -> Lines {
    let born = garbage_harness::truth(python, run);
    let born: Vec<(u64, String, u64)> = serde_json::from_value(born).unwrap();
    born.into_iter().map(|(line, type_name, count)| ((type_name, line), count)).collect()
}

/// Samples of the script's own types. Every other type with any is one of a class statement.
fn sampled(python: &Python, ring: &SeenRecords) -> Lines {
    let mut lines = Lines::new();
    let file = root().join("tests/python/garbage_births.py");
    for garbage in ring.garbage() {
        for ((type_name, _, from, line), samples) in garbage.births {
            let has_free_list =
                ["list", "dict", "tuple", "method", "function"].contains(&type_name.as_str());
            assert!(!has_free_list, "{}: {type_name}:{line}", python.name);
            if type_name.starts_with("__main__.") {
                assert_eq!(from, file.to_str().unwrap(), "{}", python.name);
                *lines.entry((type_name, line.into())).or_default() += u64::from(samples);
            }
        }
    }
    lines
}

/// Every sampled line is true, and each true line has its share of samples.
fn compare(python: &Python, sampled: &Lines, truth: &Lines) {
    for line in sampled.keys() {
        assert!(truth.contains_key(line), "{}: {line:?}", python.name);
    }
    for (line, objects) in truth {
        let samples = sampled.get(line).copied().unwrap_or(0);
        // Of at least 70 expected: more than four standard deviations to both sides.
        let expected = objects / EVERY;
        let range = expected / 2..expected * 2;
        assert!(range.contains(&samples), "{}: {line:?}: {samples} of {expected}", python.name);
    }
}

#[test]
fn each_line_has_its_share_of_samples() {
    for python in with_list("each_line_has_its_share_of_samples") {
        for case in ["planted", "threads"] {
            let run = run(with_births(), &mut births(&python, case));
            compare(&python, &sampled(&python, run.only()), &truth(&python, &run));
        }
    }
}

#[test]
fn reused_memory_has_no_earlier_line() {
    for python in with_list("reused_memory_has_no_earlier_line") {
        let run = run(with_births(), &mut births(&python, "reuse"));
        compare(&python, &sampled(&python, run.only()), &truth(&python, &run));
    }
}

#[test]
fn a_fork_keeps_lines_of_before() {
    for python in with_list("a_fork_keeps_lines_of_before") {
        let settle = Duration::from_millis(20);
        let run = run_with_children(with_births(), &mut births(&python, "fork"), settle);
        let truth = truth(&python, &run);
        assert_eq!(run.rings.len(), 2, "{}", python.name);
        for ring in &run.rings {
            compare(&python, &sampled(&python, ring), &truth);
        }
    }
}

#[test]
fn code_that_dies_still_has_its_lines() {
    for python in with_list("code_that_dies_still_has_its_lines") {
        let run = run(with_births(), &mut births(&python, "code"));
        truth(&python, &run);
        let mut lines = std::collections::BTreeSet::new();
        for garbage in run.only().garbage() {
            for ((type_name, function, file, line), _) in garbage.births {
                if type_name == "__main__.Plain" {
                    let names = (function.as_str(), file.as_str());
                    assert_eq!(names, ("<module>", "made"), "{}", python.name);
                    lines.insert(line);
                }
            }
        }
        // On average four samples of each: nearly all of 40 lines have one.
        assert!(lines.len() > 30, "{}: {lines:?}", python.name);
        assert!(lines.iter().all(|line| (1..=40).contains(line)));
    }
}

/// What is alive is estimated without bias, also once samples are thinned and lines forgotten, and what died
/// is not there.
#[test]
fn what_stays_alive_is_estimated_by_line() {
    /// Bytes of an instance with its collector's head and the words before it, of a text of 90 digits.
    const BYTES: [(&str, std::ops::Range<u64>); 2] = [("Plain", 32..128), ("str", 128..176)];
    let cases = [("alive", 0.35), ("many", 0.12), ("lines", 0.35)];
    for (at, python) in with_list("what_stays_alive_is_estimated_by_line").enumerate() {
        // Thinning is the same in all.
        for (case, tolerance) in cases.into_iter().take(if at == 0 { cases.len() } else { 1 }) {
            let run = run(with_births(), &mut births(&python, case));
            let alive = run.only().alive();
            let file = root().join("tests/python/garbage_births.py");
            let kept = truth(&python, &run);
            for ((type_name, line), objects) in &kept {
                let at = |place: &(String, String, u32)| {
                    place.1 == file.to_str().unwrap() && u64::from(place.2) == *line
                };
                let found = alive.iter().find(|(place, ..)| at(place));
                let (_, found, bytes) = found.unwrap_or_else(|| panic!("{line} of {alive:?}"));
                let about = format!("{}: {case}: {type_name}: {found} of {objects}", python.name);
                let difference = (*found as f64 / *objects as f64 - 1.0).abs();
                assert!(difference < tolerance, "{about}");
                let known = BYTES.iter().find(|(name, _)| type_name.ends_with(name)).unwrap();
                assert!(known.1.contains(&(bytes / found)), "{about}: {bytes} bytes");
            }
            // What lived for one round only, and what has free lists.
            let most = kept.values().max().unwrap();
            let of_file = alive.iter().filter(|(place, ..)| place.1 == file.to_str().unwrap());
            let rest = of_file
                .filter(|(place, ..)| !kept.keys().any(|(_, line)| *line == u64::from(place.2)));
            assert!(
                rest.map(|(_, objects, _)| objects).sum::<u64>() < most / 20,
                "{}: {alive:?}",
                python.name
            );
        }
    }
}

#[test]
fn without_alloc_nothing_is_sampled() {
    for python in with_list("without_alloc_nothing_is_sampled") {
        let run = run(all(), &mut births(&python, "planted"));
        truth(&python, &run);
        let mut garbage = run.only().garbage().into_iter();
        assert!(garbage.all(|examined| examined.births.is_empty()), "{}", python.name);
    }
}
