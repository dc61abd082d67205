//! Usage errors: each has its exit code and a message with the problem and the correct usage.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use test_kit::limit::WithTimeout as _;
use test_kit::recording;

/// Command line, exit code, parts of standard error.
type Use = (&'static str, i32, &'static [&'static str]);

/// Words are separated by spaces. Exit code 2 is a usage error, 1 a failure of gctrace, 126 and 127
/// are the command's, as in shells.
const WRONG: &[Use] = &[
    // What to record.
    ("", 2, &["nothing to record", "gctrace -- python train.py"]),
    ("record", 2, &["nothing to record"]),
    ("record -o x.json", 2, &["nothing to record"]),
    ("python small.py", 2, &["goes after `--`", "tip: gctrace -- python small.py"]),
    ("small.py", 2, &["goes after `--`"]),
    ("ok.json", 2, &["tip: gctrace analyze ok.json"]),
    ("run.json.gz", 2, &["tip: gctrace analyze run.json.gz"]),
    ("run.json.zst", 2, &["tip: gctrace analyze run.json.zst"]),
    ("anlyze ok.json", 2, &["tip: gctrace analyze ok.json"]),
    ("exprot ok.json", 2, &["tip: gctrace export ok.json"]),
    ("docter", 2, &["tip: gctrace doctor"]),
    ("--nofollow -- true", 2, &["--nofollow", "--no-follow"]),
    ("-p 1 -- true", 2, &["give only one of them"]),
    ("top -p 1 -- true", 2, &["give only one of them"]),
    // Processes.
    ("-p abc", 2, &["not a process id"]),
    ("-p -5", 2, &["not a process id"]),
    ("-p 0", 2, &["not a process id"]),
    ("-p 99999999999", 2, &["not a process id"]),
    ("-p 1,2", 2, &["only one process can be given; its children are recorded too"]),
    ("top -p 1,2", 2, &["only one process can be given"]),
    // Invalid values.
    ("--stack-depth -1 -- true", 2, &["-1 is not in 0..="]),
    ("--stack-depth 65000 -- true", 2, &["is not in 0..="]),
    ("--stack-depth many -- true", 2, &["--stack-depth"]),
    ("-d 0 -- true", 2, &["must be longer than zero"]),
    ("-d ten -- true", 2, &["examples: 10, 2.5, 30s, 2m"]),
    ("--min-pause 50 -- true", 2, &["unit missing", "50us"]),
    ("--ring-size 3MiB -- true", 2, &["power of two"]),
    ("--ring-size 1KiB -- true", 2, &["between 4KiB and 1GiB"]),
    ("--ring-size huge -- true", 2, &["not a size", "16MiB"]),
    ("--counters cycels -- true", 2, &["no counter is named \"cycels\"", "cycles"]),
    ("--mode root -- true", 2, &["--mode", "inject"]),
    ("--cuda some -- true", 2, &["--cuda", "launches"]),
    ("--nvml-hz 0.05 -- true", 2, &["from 0.1 to 100"]),
    ("--alloc-budget 99 -- true", 2, &["up to 50"]),
    ("-q -v -- true", 2, &["cannot be used with"]),
    // Live.
    ("top -i 0", 2, &["must be longer than zero"]),
    ("top -i 61", 2, &["from 0.1 to 60 seconds"]),
    ("top -n 0", 2, &["an integer of at least 1"]),
    ("top --plain --format json", 2, &["cannot be used with"]),
    ("top --listen elsewhere", 2, &["must be a port (9464)"]),
    ("top --listen-arguments -- true", 2, &["--listen"]),
    ("top --output o -p 1", 2, &["--output is the file for the output of a command"]),
    // Commands that cannot be started.
    ("--mode inject -- ./no-such-program", 127, &["command not found"]),
    ("--mode inject -- no-such-program", 127, &["command not found"]),
    ("--mode inject -- ./small.py", 126, &["small.py"]),
    ("--mode inject -- small.py", 127, &["gctrace -- python small.py"]),
    ("--mode inject -- .", 126, &["."]),
    // Files.
    (
        "--mode inject -o no/such/folder/t.json -- true",
        1,
        &["no/such/folder", "Create its directory first"],
    ),
    ("--mode inject -o . -- true", 1, &["directory"]),
    ("--mode inject -o small.py -- true", 1, &["small.py"]),
    ("analyze", 2, &["<TRACE>"]),
    ("analyze missing.json", 1, &["missing.json", "No such file"]),
    ("analyze .", 1, &["directory"]),
    ("analyze empty.json", 1, &["empty.json"]),
    ("analyze small.py", 1, &["small.py"]),
    ("analyze ok.json missing.json", 1, &["missing.json"]),
    ("analyze --format xml ok.json", 2, &["possible values: text, json"]),
    ("export missing.json", 1, &["missing.json"]),
    ("export ok.json", 1, &["no stack in ok.json", "To record stacks"]),
    ("export --generation 3 ok.json", 2, &["3 is not in 0..=2"]),
    ("doctor --python no-such-python", 1, &[]),
    ("completions", 2, &["<SHELL>"]),
    ("completions csh", 2, &["possible values"]),
    ("demo --steps 0", 2, &["--steps"]),
    ("help nothing", 2, &["nothing"]),
];

fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(place.path().join(name), text).unwrap();
    write("small.py", "print(1)\n");
    write("empty.json", "");
    let pause = serde_json::json!({
        "name": "gc", "cat": "gc", "ph": "X", "ts": 10.0, "dur": 5.0, "pid": 1, "tid": 1,
        "args": {"generation": 2, "reason": "automatic"}
    });
    let trace = serde_json::json!({"traceEvents": [pause]}).to_string();
    write("ok.json", &trace);
    place
}

fn run(place: &Path, line: &str) -> Output {
    Command::new(recording::binary())
        .args(line.split_whitespace())
        .current_dir(place)
        .env_remove("SUDO_UID")
        .output_in_time()
        .unwrap()
}

#[test]
fn usage_errors_are_explained() {
    let place = place();
    assert!(WRONG.len() >= 60, "{}", WRONG.len());
    let before = names(place.path());
    let mut failures = Vec::new();
    for (line, code, parts) in WRONG {
        let output = run(place.path(), line);
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        let mut wrong = Vec::new();
        if output.status.code() != Some(*code) {
            wrong.push(format!("exit code {:?}", output.status.code()));
        }
        wrong.extend(
            parts
                .iter()
                .filter(|part| !messages.contains(**part))
                .map(|part| format!("no {part:?}")),
        );
        if messages.contains("panicked") || messages.matches("os error 2").count() > 1 {
            wrong.push("a panic, or a repeated cause".to_owned());
        }
        if *code != 0 && messages.is_empty() && output.stdout.is_empty() {
            wrong.push("no message".to_owned());
        }
        if !wrong.is_empty() {
            failures.push(format!("gctrace {line}: {}\n{messages}", wrong.join(", ")));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(names(place.path()), before, "nothing is left behind");
}

/// What is wrong stays on the screen: of 17 commands the usage of one is printed.
#[test]
fn usage_errors_have_the_usage_of_their_subcommand() {
    let place = place();
    for (line, usage) in [
        ("", "gctrace [record]"),
        ("-p 1 -- true", "gctrace [record]"),
        ("record", "gctrace [record]"),
        ("top -p 1 -- true", "gctrace top"),
        ("heap", "gctrace heap -p"),
        ("heap show", "gctrace heap show"),
        ("export ok.json -o x.csv", "gctrace export"),
        ("export ok.json -o x.parquet", "gctrace export"),
        ("compare", "gctrace compare"),
        ("compare ok.json", "gctrace compare"),
        ("apply -- true", "gctrace apply --gc"),
        ("tune", "gctrace tune"),
    ] {
        let output = run(place.path(), line);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{line}: {text}");
        let is_own = text.contains(&format!("Usage: {usage}")) && !text.contains("gctrace demo");
        assert!(is_own && text.lines().count() <= 14, "{line}: {text}");
    }
    let text = String::from_utf8(run(place.path(), "export ok.json -o x.csv").stderr).unwrap();
    assert!(text.contains("--format parquet -o DIRECTORY"), "{text}");
}

fn names(place: &Path) -> Vec<std::ffi::OsString> {
    let entries = fs::read_dir(place).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

/// Spellings that other tools of the field accept are accepted.
#[test]
fn usual_spellings() {
    let place = place();
    for (line, code) in [
        ("record --mode inject -o a.json sh -c true", 0),
        ("record -q --mode inject -o b.json /usr/bin/python3 -c pass", 0),
        ("analyze -q ok.json", 0),
        ("analyze -v ok.json", 0),
        ("analyze --version", 0),
        ("export --version", 0),
        ("doctor --version", 0),
        ("demo --version", 0),
        ("top -q --format text --mode inject sh -c true", 0),
        ("top -d 1 --format text --mode inject -- true", 0),
    ] {
        let output = run(place.path(), line);
        assert_eq!(output.status.code(), Some(code), "{line} {output:?}");
    }
}

/// The recording ends; the command keeps running, and gctrace exits with its exit code.
#[test]
fn a_command_is_recorded_for_a_time() {
    let place = place();
    let output = Command::new(recording::binary())
        .args(["-d", "0.3", "--mode", "inject", "--", "sh", "-c", "sleep 1; : > ended; exit 5"])
        .current_dir(place.path())
        .env_remove("SUDO_UID")
        .output_in_time()
        .unwrap();
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert!(place.path().join("ended").exists());
    let trace = recording::Trace::read(&place.path().join("trace.json"));
    assert_eq!(trace.end()["why"], "the duration given with -d elapsed");
}

/// Spellings of earlier versions work, and say what replaces them.
#[test]
fn old_spellings() {
    let place = place();
    for (line, new) in [
        ("analyze --json ok.json", "--format json"),
        ("top -n 1 --plain --mode inject -- true", "--format text"),
    ] {
        let output = run(place.path(), line);
        assert!(output.status.success(), "{line} {output:?}");
        let said = |output: &Output| String::from_utf8_lossy(&output.stderr).contains(new);
        assert!(said(&output), "{line} {output:?}");
        assert!(!said(&run(place.path(), &line.replacen(' ', " -q ", 1))), "{line}");
    }
}
