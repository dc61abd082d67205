//! Steps as a user names them with `--step-function`: marks in the trace against the program's own
//! count; and programs without steps.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use std::process::Command;
use test_kit::interpreters::{Python, any_python, interpreters};
use test_kit::limit::WithTimeout as _;
use test_kit::recording;
use test_kit::recording::Trace;

const PROGRAM: &str = "\
calls = 0
class Trainer:
    def step(self):
        global calls
        calls += 1
class Scheduler:
    def step(self): pass
for _ in range(37):
    Trainer().step()
    Scheduler().step()
print(calls)
";

/// Records the program; its own count, the trace, what gctrace printed.
fn record(python: &Python, mode: &str, function: &str) -> (u64, Trace, String) {
    let place = tempfile::tempdir().unwrap();
    let script = place.path().join("train.py");
    std::fs::write(&script, PROGRAM).unwrap();
    let (program, script) = (python.path.to_str().unwrap(), script.to_str().unwrap());
    let line = ["record", "--mode", mode, "--step-function", function, "--", program, script];
    let output = recording::gctrace(&line, place.path());
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stdout);
    let calls = printed.trim().parse().unwrap();
    let trace = Trace::read(&place.path().join("trace.json"));
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    (calls, trace, messages)
}

#[test]
fn the_cpu_time_of_steps_is_what_the_program_measures() {
    let test = "the_cpu_time_of_steps_is_what_the_program_measures";
    let place = tempfile::tempdir().unwrap();
    for python in interpreters(test) {
        if python.version < (3, 12, 0) {
            continue;
        }
        let script = recording::scripts().join("step_cpu.py");
        let (program, script) = (python.path.to_str().unwrap(), script.to_str().unwrap());
        let line = ["record", "--mode", "inject", "--step-function", "step", "--", program, script];
        let output = recording::gctrace(&line, place.path());
        assert!(output.status.success(), "{output:?}");
        let trace = Trace::read(&place.path().join("trace.json"));
        let truth = serde_json::from_slice(&output.stdout).unwrap();
        // Reading the clock twice, and what is between the two.
        trace.assert_cpu_times_of_steps("step function step", truth, 5_000_000);
    }
}

fn marks(trace: &Trace) -> u64 {
    let is_mark = |name: &str| name.starts_with("step function ");
    let events = trace.events.iter();
    let marks = events.filter(|event| event["name"].as_str().is_some_and(is_mark));
    marks
        .inspect(|event| {
            assert_eq!(event["name"], "step function Trainer.step");
            assert_eq!(event["cat"], "user_annotation");
            assert_eq!(event["tid"], event["pid"]);
        })
        .count() as u64
}

#[test]
fn every_call_is_in_the_trace() {
    let test = "every_call_is_in_the_trace";
    let mut modes = vec!["inject"];
    if recording::privileged(test) {
        modes.push("auto");
    }
    for python in interpreters(test) {
        for mode in &modes {
            let (calls, trace, messages) = record(&python, mode, "train.py:Trainer.step");
            let says_why = messages.matches("CPython 3.12").count();
            let name = &python.name;
            if python.version < (3, 12, 0) {
                assert_eq!((marks(&trace), says_why), (0, 1), "{name}: {messages}");
            } else {
                assert_eq!((marks(&trace), says_why), (calls, 0), "{name}: {messages}");
            }
            assert!(!messages.contains("no function"), "{name}: {messages}");
            trace.assert_nothing_lost();
        }
    }
}

#[test]
fn a_function_that_is_never_called_is_named() {
    for python in interpreters("a_function_that_is_never_called_is_named") {
        if python.version < (3, 12, 0) {
            continue;
        }
        let (_, trace, messages) = record(&python, "inject", "Trainer.stop");
        assert_eq!(marks(&trace), 0);
        assert!(messages.contains("no function named Trainer.stop was called"), "{messages}");
    }
}

/// A program without steps that makes 40 collections: the line of `apply`, and of a recording that
/// applies a setting, counts these.
#[test]
fn collections_without_steps_are_counted() {
    let place = tempfile::tempdir().unwrap();
    let python = any_python();
    let (setting, program) =
        ("threshold=1000000,10,10", "import gc\nfor _ in range(40): gc.collect()");
    let printed = |words: &[&str], variable: &str| {
        let mut command = Command::new(recording::binary());
        command.args(words).arg("--").arg(&python).args(["-c", program]);
        command.current_dir(place.path()).env("GCTRACE_APPLY", variable);
        String::from_utf8(command.output_in_time().unwrap().stderr).unwrap()
    };
    let applied = printed(&["apply", "--gc", setting], "");
    assert!(applied.contains("1 process without steps: 40 collections"), "{applied}");
    let recorded = printed(&["record", "--mode", "inject"], setting);
    assert!(
        recorded.contains("no step was seen; applied at the start; 40 collections"),
        "{recorded}"
    );
}
