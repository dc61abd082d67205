//! `gctrace tune`: settings by turns in one run, whole runs, and what becomes of the command.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use test_kit::interpreters::any_python;
use test_kit::limit::WithTimeout as _;
use test_kit::optimizer::OPTIMIZER;
use test_kit::recording;

/// A step that makes cyclic garbage for several collections.
const TRAINING: &str = r"
class Node: pass
mark = step
def step():
    for _ in range(500):
        node = Node()
        node.itself = node
        node.list = []
    mark()
";

fn tune(folder: &Path, arguments: &[&str], script: &str) -> Output {
    let mut command = Command::new(recording::binary());
    command
        .arg("tune")
        .args(arguments)
        .arg("--")
        .arg(any_python())
        .arg("-c")
        .arg(format!("{OPTIMIZER}{TRAINING}{script}"))
        .env("XDG_RUNTIME_DIR", folder)
        .current_dir(folder);
    command.output_in_time().unwrap()
}

fn report(output: &Output) -> Value {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.stdout.is_empty(), "{error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Both settings have as many steps, as the program sees them.
#[test]
fn settings_take_turns_in_one_run() {
    let folder = tempfile::tempdir().unwrap();
    let settings = "threshold=50,10,10|threshold=500,10,10";
    let arguments =
        ["--format", "json", "--settings", settings, "--precision", "0.0001", "--budget", "60s"];
    let script = "
import collections
seen = collections.Counter()
for _ in range(1_500):
    seen[gc.get_threshold()[0]] += 1
    step()
print('seen', seen[50], seen[500])";
    let output = tune(folder.path(), &arguments, script);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    // Standard output is the report's.
    let told = text(&output.stderr);
    let seen = told.lines().find_map(|line| line.strip_prefix("seen ")).unwrap();
    let seen: Vec<u64> = seen.split(' ').map(|count| count.parse().unwrap()).collect();
    let report = report(&output);
    assert_eq!(report["schema"], "gctrace.tune/1");
    assert_eq!((&report["method"], &report["unit"]), (&"blocks".into(), &"step".into()));
    assert_eq!((&report["ranks"], &report["other_processes"]), (&1.into(), &0.into()));
    assert_eq!(report["steps"].as_u64(), Some(1_500));
    let block = report["block_steps"].as_u64().unwrap();
    for at in [0, 1] {
        let setting = &report["settings"][at];
        let pairs = setting["pairs"].as_u64().unwrap();
        assert!(pairs >= 12, "{report}");
        // Of the last round at most one block is left out.
        assert!((pairs * block..=(pairs + 2) * block).contains(&seen[at]), "{seen:?} {report}");
        let (cpu, paused) = (setting["cpu_ns"].as_u64(), setting["pause_ns"].as_u64());
        assert!(cpu > paused && paused > Some(0), "{report}");
    }
    assert_eq!(report["settings"][0]["wall_difference"], Value::Null);
    let difference = &report["settings"][1]["cpu_difference"];
    assert!(difference["p_value"].as_f64() > Some(0.0), "{report}");
    assert!(difference["low_ns"].as_i64() < difference["high_ns"].as_i64(), "{report}");
    // No interval is as narrow as that.
    assert!(report["needed_steps"].as_u64() > Some(100_000), "{report}");
}

/// Once each is known to be faster or slower the command goes on, with the thresholds that it had.
#[test]
fn a_loss_ends_it_while_the_command_runs() {
    let folder = tempfile::tempdir().unwrap();
    let script = "
own = gc.get_threshold()
while not os.path.exists('found.json'): step()
for _ in range(1_000):
    if gc.get_threshold() == own: break
    step()
print(gc.get_threshold() == own)";
    let arguments = ["--settings", "none|threshold=5,1,1", "-o", "found.json", "--budget", "2m"];
    let output = tune(folder.path(), &arguments, script);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "True\n");
    let found = std::fs::read(folder.path().join("found.json")).unwrap();
    let found: Value = serde_json::from_slice(&found).unwrap();
    assert_eq!((&found["outcome"], &found["best"]), (&"loss".into(), &Value::Null), "{found}");
    assert_eq!(found["needed_steps"], Value::Null);
}

/// The means are of the steps after the first 50, as the program counts collections in them.
#[test]
fn whole_runs_are_compared_by_their_settled_steps() {
    let folder = tempfile::tempdir().unwrap();
    let script = "
def count(): return sum(each['collections'] for each in gc.get_stats())
for at in range(1, 121):
    if at == 51: before = count()
    step_of_garbage()
    if at == 120: open('counts', 'a').write(f'{gc.get_threshold()[0]} {count() - before}\\n')
    mark()"
        .replace("step_of_garbage()", "[Node() for _ in range(500)]");
    let arguments = [
        "--runs",
        "--format",
        "json",
        "--settings",
        "threshold=50,5,5|threshold=500,5,5",
        "--budget",
        "1m",
    ];
    let output = tune(folder.path(), &[&arguments[..], &["--precision", "100"]].concat(), &script);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report = report(&output);
    assert_eq!((&report["method"], &report["unit"]), (&"runs".into(), &"step".into()));
    let pairs = report["settings"][0]["pairs"].as_u64().unwrap();
    assert!(pairs >= 2 && report["steps"].as_u64() == Some(2 * 120 * pairs), "{report}");
    let counts = std::fs::read_to_string(folder.path().join("counts")).unwrap();
    for (at, first) in [(0, "50 "), (1, "500 ")] {
        let of_setting = counts.lines().filter_map(|line| line.strip_prefix(first));
        let of_setting: Vec<f64> = of_setting.map(|count| count.parse().unwrap()).collect();
        let counted = of_setting.iter().sum::<f64>() / of_setting.len() as f64;
        let reported = report["settings"][at]["collections"].as_array().unwrap();
        let reported: f64 = reported.iter().map(|count| count.as_f64().unwrap()).sum();
        assert!((counted - reported).abs() < 0.01 && counted > 0.0, "{counted} {report}");
    }
}

/// A rank that gctrace cannot have together with the others.
#[test]
fn what_cannot_take_turns_is_said_and_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let script = "\nfor _ in range(5): step()";
    let mut command = Command::new(recording::binary());
    command
        .args([
            "tune",
            "--format",
            "json",
            "--settings",
            "none|threshold=7000",
            "--budget",
            "2s",
            "--",
        ])
        .arg(any_python())
        .arg("-c")
        .arg(format!("{OPTIMIZER}{TRAINING}{script}"))
        .envs([("WORLD_SIZE", "2"), ("RANK", "0")])
        .current_dir(folder.path());
    let output = command.output_in_time().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let told = text(&output.stderr);
    assert!(told.contains("settings cannot take turns in the command: ranks on"), "{told}");
    assert_eq!(report(&output)["method"], "runs");
}

/// Freeze has a memory: whole runs, with the memory of each.
#[test]
fn freeze_is_compared_in_whole_runs() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--settings", "none|freeze@step:2", "--budget", "1ms", "--format", "json"];
    let output = tune(
        folder.path(),
        &arguments,
        "for _ in range(120): step()\nopen('runs', 'a').write(f'{gc.get_freeze_count() > 0}\\n')",
    );
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report = report(&output);
    assert_eq!(report["method"], "runs");
    assert_eq!(report["outcome"], "refused");
    assert_eq!(report["settings"][1]["refused"]["reason"], "few_pairs");
    // The budget was spent before the first run began, or after it.
    let runs = std::fs::read_to_string(folder.path().join("runs")).unwrap_or_default();
    assert!(runs.is_empty() || runs == "False\n", "{runs}");
}

/// A script that builds a heap, in which collections free nothing.
const BUILDING: &str = "
kept = []
for at in range(400_000): kept.append([at])
with open('runs', 'a') as runs: runs.write(f'{gc.isenabled()} {gc.get_threshold()[0]}\\n')";

/// The first threshold of the first run.
fn own_threshold(runs: &str) -> &str {
    runs.split_whitespace().nth(1).unwrap()
}

/// A program that no step is known of is answered in some runs of it: switched off, its collections take nothing.
#[test]
fn a_script_that_frees_nothing_is_answered_in_whole_runs() {
    let folder = tempfile::tempdir().unwrap();
    let output = tune(folder.path(), &["--format", "json", "--budget", "2m"], BUILDING);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(told.contains("the program's own settings: "), "{told}");
    assert!(told.contains("measuring takes about 4 runs of "), "{told}");
    let report = report(&output);
    assert_eq!((&report["schema"], &report["method"]), (&"gctrace.tune/1".into(), &"runs".into()));
    assert_eq!((&report["unit"], &report["measure"]), (&"run".into(), &"cpu".into()));
    let names: Vec<&str> =
        (0..3).map(|at| report["settings"][at]["setting"].as_str().unwrap()).collect();
    assert_eq!(names, ["none", "disable@start", "threshold=50000,10,10"]);
    // The program collects once itself.
    let [own, off] = [0, 1].map(|at| report["settings"][at]["pause_ns"].as_u64().unwrap());
    assert!(off < own / 2, "{report}");
    // Each was applied from the start, in as many runs as are reported; the last one only if it was tried.
    let runs = std::fs::read_to_string(folder.path().join("runs")).unwrap();
    let counted = |line: &str| runs.lines().filter(|run| *run == line).count() as u64;
    for (at, line) in [(0, "True 700"), (1, "False 700"), (2, "True 50000"), (3, "True 7000")] {
        let line = if at < 2 { line.replace("700", own_threshold(&runs)) } else { line.to_owned() };
        assert_eq!(
            report["settings"][at]["pairs"].as_u64().unwrap_or(0),
            counted(&line),
            "{runs}{report}"
        );
    }
    if report["outcome"] == "gain" {
        assert!(report["apply"].as_str().unwrap().starts_with("gctrace apply --gc "), "{report}");
    }
}

/// Where the collector takes next to nothing one run is enough.
#[test]
fn nothing_to_gain_is_said_after_one_run() {
    let folder = tempfile::tempdir().unwrap();
    let script = "
gc.disable()
sum(range(3_000_000))
open('runs', 'a').write('.')";
    let output = tune(folder.path(), &["--format", "json", "--budget", "1m"], script);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(report(&output)["outcome"], "no_difference");
    assert_eq!(std::fs::read_to_string(folder.path().join("runs")).unwrap(), ".");
}

/// Without steps nothing can alternate; the exit code is the command's.
#[test]
fn a_command_that_fails_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let output = tune(folder.path(), &["--budget", "1m"], "sys.exit(7)");
    assert_eq!(output.status.code(), Some(7));
    assert!(text(&output.stderr).contains("the command made no steps"), "{}", text(&output.stderr));
    let output = tune(folder.path(), &["--settings", "none|threshold=7000"], "sys.exit(9)");
    assert_eq!(output.status.code(), Some(9));
    assert!(text(&output.stderr).contains("the command made no steps"));
    let output = tune(folder.path(), &["--runs"], "sys.exit(8)");
    assert_eq!(output.status.code(), Some(8));
}

/// Without settings they are sought until there is a result, and the command goes on with its own.
#[test]
fn settings_are_sought() {
    let folder = tempfile::tempdir().unwrap();
    let script = "
import time
def step():
    sum(range(20_000))
    mark()
while len(os.listdir()) == 0 and step() is None: pass
for _ in range(1_000):
    if gc.get_threshold() == own: break
    step()
print(gc.get_threshold() == own)";
    let mut command = Command::new(recording::binary());
    command.args([
        "tune",
        "--format",
        "json",
        "-o",
        "found.json",
        "--",
        &any_python().to_string_lossy(),
        "-c",
    ]);
    command.arg(format!("{OPTIMIZER}{TRAINING}own = gc.get_threshold(){script}"));
    let output = command.current_dir(folder.path()).output_in_time().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "True\n");
    let told = text(&output.stderr);
    assert!(told.contains("everything stays as it is") && told.contains("goes on"), "{told}");
    let found = std::fs::read(folder.path().join("found.json")).unwrap();
    let found: Value = serde_json::from_slice(&found).unwrap();
    assert_eq!(found["schema"], "gctrace.auto/1");
    assert_eq!(found["processes"][0]["events"][0]["decision"], "nothing_to_gain");
}

#[test]
fn usage() {
    let folder = tempfile::tempdir().unwrap();
    for (settings, error) in
        [("none", "needs 2 to 8 settings"), ("none|freez", "none of threshold")]
    {
        let output = tune(folder.path(), &["--settings", settings], "");
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(error), "{}", text(&output.stderr));
    }
}
