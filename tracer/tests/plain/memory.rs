//! The memory of a remedy, against runs that have it; leaks and cleanup that are planted.

#![expect(clippy::expect_used, reason = "helpers of tests, outside of #[test]")]

use serde_json::Value;
use std::path::Path;
use test_kit::{interpreters, recording};

/// The report on a program of `tests/python`, recorded in-process, and what it printed.
fn report_on(python: &Path, program: &str, arguments: &[&str]) -> (Value, String) {
    let (place, report, printed) = recorded(python, program, arguments, &[]);
    drop(place);
    (report, printed)
}

/// The same, with options of `record`, and the folder with the trace.
fn recorded(
    python: &Path,
    program: &str,
    arguments: &[&str],
    options: &[&str],
) -> (tempfile::TempDir, Value, String) {
    let place = tempfile::tempdir().expect("a folder");
    let program = recording::scripts().join(program);
    let mut line = vec!["record", "--mode", "inject"];
    line.extend(options);
    line.push("--");
    line.extend([python, program.as_path()].map(|path| path.to_str().expect("UTF-8")));
    line.extend(arguments);
    let output = recording::gctrace(&line, place.path());
    assert!(output.status.success(), "{output:?}");
    let json = recording::gctrace(&["analyze", "--format", "json", "trace.json"], place.path());
    let printed = String::from_utf8(output.stdout).expect("UTF-8");
    let report = serde_json::from_slice(&json.stdout).expect("a report");
    (place, report, printed)
}

/// A list, closures, texts and native memory grow, each in a process of its own; the fifth process is clean.
/// What is born and stays has its line.
#[test]
fn planted_leaks_are_found_and_no_others() {
    let test = "planted_leaks_are_found_and_no_others";
    let Some(python) = interpreters::python(test, "system-3.11") else {
        return;
    };
    let (place, report, printed) = recorded(&python.path, "growing.py", &["60"], &["--alloc"]);
    let of = |name: &str| {
        let pid =
            printed.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        let processes = report["processes"].as_array().unwrap();
        let process = processes.iter().find(|process| process["pid"].as_u64() == pid).unwrap();
        &process["trend"]
    };
    let rises = |name: &str, what: &str| of(name)[what]["rises"].as_bool();
    let source = std::fs::read_to_string(recording::scripts().join("growing.py")).unwrap();
    for name in ["objects", "closures", "texts", "native", "clean"] {
        let lines = of(name)["lines"].as_array().unwrap();
        let found: Vec<usize> =
            lines.iter().map(|line| line["location"]["line"].as_u64().unwrap() as usize).collect();
        let is_planted =
            |line: &usize| source.lines().nth(line - 1).unwrap().ends_with(&format!("# {name}"));
        assert!(found.iter().all(is_planted), "{name}: {lines:?}");
        assert_eq!(found.is_empty(), ["native", "clean"].contains(&name), "{name}: {lines:?}");
    }
    // 4,000 texts a second.
    let texts = of("texts")["lines"][0]["objects"]["per_s"].as_f64().unwrap();
    assert!((2_800.0..5_200.0).contains(&texts), "{texts}");
    assert_eq!(of("texts")["outside_python"], false, "{printed}");
    assert_eq!(of("native")["outside_python"], true, "{printed}");
    let shown = recording::gctrace(&["analyze", "--full", "trace.json"], place.path());
    let shown = String::from_utf8(shown.stdout).unwrap();
    let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains("of a sample of all allocations: "), "{shown}");
    assert_eq!(rises("objects", "objects"), Some(true), "{printed}");
    assert_eq!(rises("closures", "objects"), Some(true), "{printed}");
    assert_eq!(rises("native", "objects"), Some(false), "{printed}");
    assert_eq!(rises("native", "resident"), Some(true), "{printed}");
    assert_eq!(rises("clean", "objects"), Some(false), "{printed}");
    assert_ne!(rises("clean", "resident"), Some(true), "{printed}");
}

/// Each line of the program states what its `gc.collect()` is.
#[test]
fn planted_cleanups_are_judged_at_their_lines() {
    let test = "planted_cleanups_are_judged_at_their_lines";
    let Some(python) = interpreters::python(test, "system-3.11") else {
        return;
    };
    let source = std::fs::read_to_string(recording::scripts().join("cleanups.py")).unwrap();
    let lines_of = |mark: &str| {
        let lines = source.lines().enumerate();
        let marked =
            lines.filter(|(_, line)| line.contains("gc.collect()") && line.ends_with(mark));
        marked.map(|(index, _)| index as u64 + 1).collect::<Vec<u64>>()
    };
    let (report, _) = report_on(&python.path, "cleanups.py", &[]);
    let sites = report["processes"][0]["cleanup"]["sites"].as_array().unwrap();
    let found = |verdict: &str| {
        let of = sites.iter().filter(|site| site["verdict"] == verdict);
        let mut lines: Vec<u64> = of.filter_map(|site| site["location"]["line"].as_u64()).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(found("useless"), lines_of("# useless"), "{sites:?}");
    assert_eq!(found("frees_cycles"), lines_of("# cycles"), "{sites:?}");
    assert_eq!((found("useless").len(), found("frees_cycles").len()), (3, 1));
    assert!(sites.iter().all(|site| site["calls"] == 20), "{sites:?}");
}

/// Calls of a PyTorch that the program makes up, by their lines, and the device memory that its collections free; no
/// GPU is needed.
#[test]
fn calls_of_empty_cache_are_judged_at_their_lines() {
    for python in interpreters::interpreters("calls_of_empty_cache_are_judged_at_their_lines") {
        let (report, printed) = report_on(&python.path, "empty_caches.py", &[]);
        assert_eq!(printed.trim(), "True True True _cuda_emptyCache None 44", "{}", python.name);
        let source = std::fs::read_to_string(recording::scripts().join("empty_caches.py")).unwrap();
        let line_of = |mark: &str| {
            source.lines().position(|line| line.ends_with(mark)).map(|index| index as u64 + 1)
        };
        // The forked child comes first if its one collection took longest.
        let processes = report["processes"].as_array().unwrap();
        let pid = &report["cuda"]["memory"][0]["pid"];
        let parent = processes.iter().find(|process| &process["pid"] == pid).unwrap();
        let sites = parent["cleanup"]["sites"].as_array().unwrap();
        let marks = [("useless", 20, 0_u64), ("undone", 20, 20 * 500), ("lasts", 4, 10_620)];
        for (mark, calls, mib) in marks {
            let is_it =
                |site: &&Value| site["location"]["line"].as_u64() == line_of(&format!("# {mark}"));
            let site = sites.iter().find(is_it).unwrap_or_else(|| panic!("{mark}: {sites:?}"));
            assert_eq!(site["call"], "empty_cache");
            assert_eq!((&site["verdict"], &site["basis"]), (&mark.into(), &"measured".into()));
            assert_eq!(site["calls"], calls, "{mark}");
            assert_eq!(site["device_bytes"], mib << 20, "{}: {mark}", python.name);
            assert!(site["time_ns"].as_u64().unwrap() >= calls * 2_000_000, "it sleeps for 2 ms");
        }
        let memory = &report["cuda"]["memory"][0];
        assert_eq!(memory["freed_in_pauses_bytes"], 1_500_u64 << 20, "{}", python.name);
        if python.is("free-threaded") {
            // Which collections were asked for is unknown there.
            continue;
        }
        for (mark, mib, verdict) in
            [("cycles", 1_500_u64, "frees_cycles"), ("nothing", 0, "useless")]
        {
            let is_it =
                |site: &&Value| site["location"]["line"].as_u64() == line_of(&format!("# {mark}"));
            let site = sites.iter().find(is_it).unwrap_or_else(|| panic!("{mark}: {sites:?}"));
            assert_eq!((&site["call"], &site["calls"]), (&"collect".into(), &5.into()));
            assert_eq!(site["device_bytes"], mib << 20, "{}: {mark}", python.name);
            assert_eq!(site["verdict"], verdict, "{}: {site}", python.name);
        }
    }
}
