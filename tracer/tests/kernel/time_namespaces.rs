//! Kernel tier: gctrace, a program, or what it starts, in a time namespace: clocks that show other times than the
//! kernel's. Every collection is in the trace once, at its time.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use test_kit::recording;

/// Prints how many collections ran.
const PROGRAM: &str = "import gc
class A: pass
for _ in range(30000):
    a = A()
    a.a = a
print('ran', sum(of['collections'] for of in gc.get_stats()), flush=True)
";

/// The same, in a child in another namespace and then in itself.
const PARENT: &str = "import subprocess, sys
subprocess.run(sys.argv[2:] + [sys.executable, '-c', sys.argv[1]], check=True)
exec(sys.argv[1])
";

/// A day, a little, and back.
const NAMESPACES: [&[&str]; 3] = [
    &["unshare", "-T", "--monotonic", "86400", "--fork"],
    &["unshare", "-T", "--monotonic", "3", "--boottime", "86400", "--fork"],
    &["unshare", "-T", "--monotonic", "-20", "--fork"],
];

fn run(words: &[&str], place: &Path) -> Output {
    Command::new(words[0]).args(&words[1..]).current_dir(place).output().unwrap()
}

fn has_namespaces(test: &str, place: &Path) -> bool {
    let has = run(&[NAMESPACES[2], &["true"]].concat(), place).status.success();
    if !has {
        println!("skipped {test}: no time namespaces (Linux 5.6, unshare of util-linux 2.36)");
    }
    has
}

fn number(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or(0)
}

/// Records, and compares with what the program counted.
fn check(outer: &[&str], mode: &str, command: &[&str], place: &Path) {
    let recorder = [recording::binary(), "record", "--mode", mode, "-o", "t.json", "--"];
    let words = [outer, &recorder, command].concat();
    let output = run(&words, place);
    let (printed, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let case = format!("{words:?}: {printed}{errors}");
    assert!(output.status.success(), "{case}");
    let counts = printed.lines().filter_map(|line| line.strip_prefix("ran ")?.parse::<u64>().ok());
    let (processes, truth) = counts.fold((0, 0), |(all, sum), one| (all + 1, sum + one));
    assert!(truth > 0, "{case}");
    let analyzed = run(&[recording::binary(), "analyze", "--format", "json", "t.json"], place);
    let report: Value = serde_json::from_slice(&analyzed.stdout).unwrap();
    // At the ends of the interpreters a few more.
    let pauses = number(&report, "/totals/pauses/count");
    assert_eq!(report.pointer("/missing/lost"), Some(&serde_json::json!({})), "{case}");
    match mode {
        // The first ones of each are not seen.
        "inject" => assert!((truth / 2..=truth + 6 * processes).contains(&pauses), "{case}"),
        _ => assert!((truth..=truth + 6 * processes).contains(&pauses), "{case}"),
    }
    if mode == "both" {
        let joined = errors.split_once(" seen by both sources").unwrap().0;
        let joined: u64 = joined.rsplit('(').next().unwrap().replace(',', "").parse().unwrap();
        assert!(joined >= truth / 2, "{case}");
        assert!(errors.contains(" 0 in-process alone"), "{case}");
    }
    let trace = recording::Trace::read(&place.join("t.json"));
    let header = &trace.named("gctrace_header")[0].1;
    let (start_ns, end_ns) = (number(header, "/started_ns"), number(trace.end(), "/ended_ns"));
    for pause in trace.pauses() {
        assert!(start_ns <= pause.start_ns && pause.end_ns <= end_ns, "{pause:?} {case}");
    }
}

#[test]
fn a_program_in_a_time_namespace_is_recorded_on_one_clock() {
    let test = "a_program_in_a_time_namespace_is_recorded_on_one_clock";
    let Some((python, place)) = recording::place_for(test) else { return };
    let place = place.path();
    if !has_namespaces(test, place) {
        return;
    }
    let python = python.to_str().unwrap();
    for mode in ["both", "inject", "ebpf"] {
        for namespace in NAMESPACES {
            check(&[], mode, &[namespace, &[python, "-c", PROGRAM]].concat(), place);
        }
        let parent = [python, "-c", PARENT, PROGRAM];
        check(&[], mode, &[&parent[..], NAMESPACES[0]].concat(), place);
    }
}

#[test]
fn gctrace_in_a_time_namespace_has_the_clock_of_the_kernel() {
    let test = "gctrace_in_a_time_namespace_has_the_clock_of_the_kernel";
    let Some((python, place)) = recording::place_for(test) else { return };
    let place = place.path();
    if !has_namespaces(test, place) {
        return;
    }
    let python = python.to_str().unwrap();
    for mode in ["both", "inject", "ebpf"] {
        for namespace in NAMESPACES {
            check(namespace, mode, &[python, "-c", PROGRAM], place);
        }
        // Within another one.
        check(NAMESPACES[0], mode, &[NAMESPACES[2], &[python, "-c", PROGRAM]].concat(), place);
    }
}

#[test]
fn a_running_process_is_recorded_across_time_namespaces() {
    let test = "a_running_process_is_recorded_across_time_namespaces";
    let Some((python, place)) = recording::place_for(test) else { return };
    let place = place.path();
    if !has_namespaces(test, place) {
        return;
    }
    let program = "import gc, time
while True:
    gc.collect()
    time.sleep(0.01)
";
    let mut running = Command::new(python)
        .args(["-c", program])
        .current_dir(place)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let pid = running.id().to_string();
    let recorder = [recording::binary(), "record", "-d", "2s", "-o", "t.json", "-p", &pid];
    let output = run(&[NAMESPACES[0], &recorder].concat(), place);
    running.kill().unwrap();
    running.wait().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    let trace = recording::Trace::read(&place.join("t.json"));
    let started_ns = number(trace.named("gctrace_header")[0].1, "/started_ns");
    let ended_ns = number(trace.end(), "/ended_ns");
    let pauses = trace.pauses();
    assert!(!pauses.is_empty(), "{errors}");
    for pause in pauses {
        assert!(started_ns <= pause.end_ns && pause.end_ns <= ended_ns, "{pause:?} {errors}");
    }
}
