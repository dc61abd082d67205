//! The agent in processes: taken back, forked, failing, without a folder, in several ranks.

#![expect(clippy::indexing_slicing, reason = "helpers of tests, outside of #[test]")]

use crate::apply_harness;

use apply_harness::{GARBAGE, apply, apply_in, numbers, reports};
use gctrace_ring::InjectOptions;
use serde_json::Value;
use test_kit::interpreters::interpreters;
use test_kit::limit::WithTimeout as _;
use test_kit::optimizer::OPTIMIZER;
use test_kit::preload;

#[test]
fn settings_are_taken_back() {
    let script = r"
import time
folder = os.environ['GCTRACE_APPLY_FOLDER']
def show(): print(gc.get_threshold()[0], gc.isenabled(), gc.get_freeze_count() > 1000)
before = gc.get_threshold()[0]
for i in range(1, 6): step()
show()
open(folder + '/control', 'wb').write(b'1')
while gc.get_threshold()[0] == 7000 and i < 10000:
    i += 1
    time.sleep(0.001)
    step()
show()
for _ in range(10): step()
show()
";
    for python in interpreters("settings_are_taken_back") {
        let applied = apply(&python, "threshold=7000,freeze,plan:5", script);
        let first = applied.lines();
        assert_eq!(first[0], "7000 False True", "{}", python.name);
        let fresh = python
            .command("import gc; print(gc.get_threshold()[0], gc.isenabled(), False)")
            .output_in_time()
            .unwrap();
        let fresh = String::from_utf8(fresh.stdout).unwrap();
        assert_eq!(first[1..], [fresh.trim(); 2], "{}", python.name);
        assert_eq!(applied.report()["taken_back"], true);
    }
}

/// Forked children keep thresholds, collect by themselves and report for themselves; so do those
/// that end by `os._exit`, and programs that they start.
#[test]
fn forked_children_collect_by_themselves() {
    let script = r"
for i in range(1, 6): step()
def show(who): print(who, gc.get_threshold()[0], gc.isenabled(), flush=True)
show('parent')
for leaves in (True, False):
    pid = os.fork()
    if pid == 0:
        gc.collect()
        show('child')
        if leaves: os._exit(0)
        sys.exit(0)
    os.waitpid(pid, 0)
import subprocess
subprocess.run([sys.executable, '-c', 'import gc; print(gc.get_threshold()[0], gc.isenabled())'])
";
    for python in interpreters("forked_children_collect_by_themselves") {
        let applied = apply(&python, "threshold=7000,freeze,plan:5", script);
        let expected = ["parent 7000 False", "child 7000 True", "child 7000 True", "7000 True"];
        assert_eq!(applied.lines(), expected, "{}", python.name);
        let forked = |report: &&Value| report["forked"] == true;
        let forked: Vec<_> = applied.reports.iter().filter(forked).collect();
        assert_eq!(forked.len(), 2, "{}", python.name);
        for report in forked {
            assert_eq!((&report["ended"], &report["steps"]), (&Value::from(true), &Value::from(0)));
            assert_eq!(report["applied"].as_array().unwrap().len(), 1, "{}", python.name);
            let collections = numbers(&report["before"]["collections"]);
            assert!(collections.iter().sum::<u64>() > 0, "{}", python.name);
        }
        // The program itself and the one that it starts.
        assert_eq!(applied.reports.len(), 4, "{}", python.name);
    }
}

/// A fault of the library ends the agent, and gives the settings back: the recording beside it has
/// entries in `gc.callbacks`, whose capsules have another name here.
#[test]
fn a_fault_ends_the_agent_alone() {
    let script = r"
import ctypes
rename = ctypes.pythonapi.PyCapsule_SetName
rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
for i in range(1, 6): step()
print(gc.isenabled(), gc.get_freeze_count() > 1000)
for entry in gc.callbacks:
    if entry.__self__ is not None: rename(entry.__self__, b'other')
gc.collect()
for i in range(1, 6): step()
print(gc.isenabled(), gc.get_freeze_count())
gc.disable()
for i in range(1, 6): step()
print(gc.isenabled())
";
    for python in interpreters("a_fault_ends_the_agent_alone") {
        let folder = tempfile::tempdir().unwrap();
        let mut command = python.command(&format!("{OPTIMIZER}{GARBAGE}{script}"));
        command.env("GCTRACE_APPLY", "freeze,disable").env("GCTRACE_APPLY_FOLDER", folder.path());
        let run = preload::run(InjectOptions::default(), &mut command);
        assert_eq!(run.errors, "", "{}", python.name);
        let lines: Vec<&str> = run.output.lines().collect();
        assert_eq!(lines, ["False True", "True 0", "False"], "{}", python.name);
        let report = reports(folder.path()).pop().unwrap();
        let failure = report["failure"].as_str().unwrap();
        assert!(
            failure.starts_with("probes/inject/src/python/interpreter.rs:"),
            "{}: {failure}",
            python.name
        );
        assert_eq!(report["ended"], true, "{}", python.name);
    }
}

/// Exceptions of signal handlers reach the program, also those that arrive in the agent's code.
#[test]
fn exceptions_of_signal_handlers_pass_through() {
    let script = r"
import signal
class Ring(Exception): pass
raised = caught = 0
armed = False
def handler(number, frame):
    global raised, armed
    if armed:
        armed = False
        raised += 1
        raise Ring
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
while raised < 100:
    try:
        armed = True
        for i in range(1000): step()
        armed = False
    except Ring:
        caught += 1
signal.setitimer(signal.ITIMER_REAL, 0)
print(raised - caught)
";
    for python in interpreters("exceptions_of_signal_handlers_pass_through") {
        let applied = apply(&python, "threshold=7000,plan:3", script);
        assert_eq!(applied.lines(), ["0"], "{}", python.name);
    }
}

/// Without a folder, one line says what was done; what cannot be understood is not applied.
#[test]
fn without_a_folder_one_line_is_printed() {
    for python in interpreters("without_a_folder_one_line_is_printed") {
        let run = |settings: &str, script: &str| {
            let mut command = python.command(&format!("{OPTIMIZER}{GARBAGE}{script}"));
            let output = command
                .env("LD_PRELOAD", test_kit::library::find_library().unwrap())
                .env("GCTRACE_APPLY", settings)
                .output_in_time()
                .unwrap();
            assert!(output.status.success(), "{}", python.name);
            String::from_utf8(output.stderr).unwrap()
        };
        let steps = "for i in range(9): step()";
        let said = run("freeze@step:3", steps);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.starts_with("gctrace: process "), "{said}");
        assert!(said.contains("freeze after step 3"), "{said}");
        assert!(run("freeze", "").contains("no step was seen: nothing was applied"));
        let said = run("freeze@start", steps);
        assert!(said.contains("is not applied: freeze@start"), "{said}");
        assert!(run("nonsense", steps).contains("\"nonsense\" is none of threshold="));
        assert_eq!(run("", steps), "");
    }
}

/// Two processes apply at the same step, whatever their speed.
#[test]
fn ranks_apply_at_the_same_step() {
    let script = r"
import time
for i in range(1, 21):
    time.sleep(0.002 * int(os.environ['RANK']))
    step()
    print(i, gc.isenabled(), gc.get_freeze_count() > 1000)
";
    for python in interpreters("ranks_apply_at_the_same_step") {
        let run = |rank: &str| {
            let folder = tempfile::tempdir().unwrap();
            let mut command = python.command(&format!("{OPTIMIZER}{GARBAGE}{script}"));
            let applied =
                apply_in(folder.path(), command.env("RANK", rank), "freeze@step:5,plan:3@step:7");
            assert_eq!(applied.report()["rank"], rank.parse::<u64>().unwrap());
            applied.output
        };
        let first = run("0");
        assert!(first.contains("4 True False\n5 True True"), "{}: {first}", python.name);
        assert!(first.contains("6 True True\n7 False True"), "{}: {first}", python.name);
        assert_eq!(first, run("1"), "{}", python.name);
    }
}

/// Calls of a named function begin steps, and nothing else counts then.
#[test]
fn calls_of_a_function_are_steps() {
    let script = r"
class Trainer:
    def train_step(self): return gc.get_freeze_count() > 1000
trainer = Trainer()
for i in range(1, 7):
    print(i, trainer.train_step())
    step()
";
    for python in interpreters("calls_of_a_function_are_steps") {
        let folder = tempfile::tempdir().unwrap();
        let mut command = python.command(&format!("{OPTIMIZER}{GARBAGE}{script}"));
        command.env("GCTRACE_STEP_FUNCTION", "Trainer.train_step");
        let applied = apply_in(folder.path(), &mut command, "freeze@step:3");
        assert_eq!(applied.errors, "", "{}", python.name);
        let report = applied.report();
        let lines = applied.lines();
        if python.version < (3, 12, 0) {
            assert!(lines.iter().all(|line| line.ends_with("False")), "{lines:?}");
            let warnings = report["warnings"].to_string();
            assert!(warnings.contains("3.12 and later only"), "{warnings}");
            continue;
        }
        let frozen: Vec<_> = lines.iter().map(|line| line.ends_with("True")).collect();
        // After step 3, so when step 4 begins.
        assert_eq!(frozen, [false, false, false, true, true, true], "{}", python.name);
        assert_eq!((&report["marker"], &report["steps"]), (&"function".into(), &5.into()));
    }
}

/// Settings apply to the main interpreter.
#[test]
fn subinterpreters_are_left_alone() {
    let script = r"
try: import _interpreters as module
except ImportError:
    try: import _xxsubinterpreters as module
    except ImportError: module = None
if module is None or sys.version_info < (3, 9): print('none')
else:
    code = 'import gc, os; print(gc.get_threshold()[0], type(gc.enable).__name__, flush=True)'
    one = module.create()
    (module.exec if hasattr(module, 'exec') else module.run_string)(one, code)
    module.destroy(one)
print(gc.get_threshold()[0])
";
    for python in interpreters("subinterpreters_are_left_alone") {
        let applied = apply(&python, "threshold=7654", script);
        let lines = applied.lines();
        assert_eq!(lines.last(), Some(&"7654"), "{}", python.name);
        match lines[0] {
            "none" => eprintln!("{}: no subinterpreters of their own", python.name),
            line => assert!(
                line.ends_with(" builtin_function_or_method") && !line.starts_with("7654"),
                "{}: {line}",
                python.name
            ),
        }
    }
}
