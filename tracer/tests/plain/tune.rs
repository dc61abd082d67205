//! `gctrace tune`: settings by turns in one run, whole runs, and what becomes of the command.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests, outside of #[test]"
)]

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

/// The first setting collects ten times as often as the second. Collections are counted, not timed.
#[test]
fn settings_alternate_in_one_run() {
    let folder = tempfile::tempdir().unwrap();
    let settings = "threshold=50,10,10|threshold=500,10,10";
    let arguments = ["--json", "--settings", settings, "--precision", "0.0001", "--budget", "30s"];
    let output =
        tune(folder.path(), &arguments, "for _ in range(50 + 25 * 40): step()\nprint('done')");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    // Standard output is the report's.
    assert!(text(&output.stderr).contains("done"));
    let report = report(&output);
    assert_eq!(report["schema"], "gctrace.tune/1");
    assert_eq!((&report["method"], &report["unit"]), (&"blocks".into(), &"step".into()));
    assert_eq!(report["ranks"], 1);
    assert_eq!(report["unreadable_rows"], 0);
    assert!(report["steps"].as_u64().unwrap() >= 1_000);
    let [often, rarely] = [0, 1].map(|at| {
        let setting = &report["settings"][at];
        assert!(setting["pairs"].as_u64().unwrap() >= 8, "{setting}");
        assert!(setting["cpu_ns"].as_u64().unwrap() > 0);
        let counts = setting["collections"].as_array().unwrap();
        counts.iter().map(|count| count.as_f64().unwrap()).sum::<f64>()
    });
    // Less than ten times as often: a collection waits for the interpreter's next check.
    assert!(often > 3.0 * rarely && rarely > 3.0, "{often} {rarely}");
    assert_eq!(report["settings"][0]["wall_difference"], Value::Null);
    let difference = &report["settings"][1]["wall_difference"];
    assert!(difference["p_value"].as_f64().unwrap() > 0.0);
    if report["best"].is_string() {
        let apply = report["apply"].as_str().unwrap();
        assert!(apply.starts_with("gctrace apply --gc"), "{apply}");
    }
}

/// Freeze has a memory: whole runs, with the memory of each. The budget is for two, and not for
/// sixteen.
#[test]
fn freeze_is_compared_in_whole_runs() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--settings", "none|freeze@step:2", "--budget", "1ms", "--json"];
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
    // The budget was spent before the first run began, or after the first group.
    let runs = std::fs::read_to_string(folder.path().join("runs")).unwrap_or_default();
    assert!(runs.is_empty() || runs == "False\nTrue\n", "{runs}");
}

/// Without steps nothing can alternate; the exit code is the command's.
#[test]
fn a_command_that_fails_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let output = tune(folder.path(), &["--budget", "1m"], "sys.exit(7)");
    assert_eq!(output.status.code(), Some(7));
    assert!(text(&output.stderr).contains("the command made no steps"));
    let output = tune(folder.path(), &["--settings", "none|plan:10"], "sys.exit(9)");
    assert_eq!(output.status.code(), Some(9));
    assert!(text(&output.stderr).contains("the command made no steps"));
    let output = tune(folder.path(), &["--runs"], "sys.exit(8)");
    assert_eq!(output.status.code(), Some(8));
}

/// A command that has no steps, and ends before anything is known, is run again.
#[test]
fn without_steps_short_commands_are_compared_in_whole_runs() {
    let folder = tempfile::tempdir().unwrap();
    let output = tune(folder.path(), &["--budget", "2s", "--json"], "print('ran')");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("comparing whole runs"), "{}", text(&output.stderr));
    let report = report(&output);
    assert_eq!((&report["schema"], &report["method"]), (&"gctrace.tune/1".into(), &"runs".into()));
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
        "--json",
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
