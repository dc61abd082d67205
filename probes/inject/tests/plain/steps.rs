//! Marks of the function that the user names, against the program's own count of its calls.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use gctrace_ring::{HookState, InjectOptions, STEP_FUNCTION_VARIABLE, StepMarker};
use test_kit::interpreters::{Python, interpreters};
use test_kit::preload::{Run, run};

/// Calls functions of several names in several threads; prints how often each of them ran.
const PROGRAM: &str = r"
import collections, threading
count = collections.Counter()
def train_step(index):
    count['train_step'] += 1
    return sum(range(index % 50))
class Trainer:
    def train_step(self):
        count['Trainer.train_step'] += 1
        return [step for step in range(3)]
class Tester:
    def train_step(self):
        count['Tester.train_step'] += 1
def pretrain_step():
    count['pretrain_step'] += 1
def make(step):
    def train_step():
        count['make.train_step'] += 1
    return train_step
lock = threading.Lock()
def work():
    for index in range(50):
        with lock:
            train_step(index), Trainer().train_step(), Tester().train_step(), pretrain_step()
            make(index)()
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
for index in range(300):
    train_step(index)
for name, number in sorted(count.items()):
    print(name, number)
";

fn marked(python: &Python, script: &str, function: &str) -> Run {
    let mut command = python.command(script);
    run(InjectOptions::default(), command.env(STEP_FUNCTION_VARIABLE, function))
}

/// The program's own counts of the functions whose names pass.
fn counted(run: &Run, names: impl Fn(&str) -> bool) -> usize {
    assert!(run.status.success(), "{}", run.errors);
    let lines = run.output.lines().filter_map(|line| line.split_once(' '));
    let counts =
        lines.filter(|(name, _)| names(name)).map(|(_, count)| count.parse::<usize>().unwrap());
    counts.sum()
}

#[test]
fn every_call_of_the_function_marks() {
    for python in interpreters("every_call_of_the_function_marks") {
        for (function, names) in [
            ("train_step", (|name: &str| name != "pretrain_step") as fn(&str) -> bool),
            ("Trainer.train_step", |name| name == "Trainer.train_step"),
            ("<string>:Trainer.train_step", |name| name == "Trainer.train_step"),
            ("string>:Trainer.train_step", |_| false),
            ("other.py:train_step", |_| false),
            ("step", |_| false),
        ] {
            let run = marked(&python, PROGRAM, function);
            assert_eq!(run.errors, "", "{}", python.name);
            let seen = run.only();
            let marks = seen.steps();
            let refused =
                seen.hooks().into_iter().find(|hook| hook.0 == HookState::NotWatchingFunction);
            if python.version < (3, 12, 0) {
                let (_, _, _, why) = refused.unwrap();
                assert!(why.contains("3.12"), "{why}");
                assert_eq!(marks, []);
                continue;
            }
            assert_eq!(refused, None);
            assert_eq!(marks.len(), counted(&run, names), "{}: {function}", python.name);
            let of_main = marks.iter().filter(|(_, _, tid)| *tid == seen.pid).count();
            let calls_of_main = if function == "train_step" { 300 } else { 0 };
            assert_eq!(of_main, calls_of_main, "{}", python.name);
            for (marker, name, _) in marks {
                assert_eq!(marker, StepMarker::Function);
                let last = name.rsplit('.').next();
                assert_eq!(last, Some("train_step"), "{name}");
            }
        }
    }
}

/// Counts lines of its own functions as a coverage tool does, with all tool ids but one.
const MONITORS_ITSELF: &str = r"
import sys
monitoring = sys.monitoring
seen = []
def started(code, offset):
    seen.append(code.co_name)
    return monitoring.DISABLE
free = [id for id in range(6) if monitoring.get_tool(id) is None]
for id in free:
    monitoring.use_tool_id(id, 'mine')
    monitoring.register_callback(id, monitoring.events.PY_START, started)
    monitoring.set_events(id, monitoring.events.PY_START)
def train_step(): pass
def other(): pass
for _ in range(10):
    train_step()
    other()
    monitoring.restart_events()
    for id in free:
        monitoring.set_events(id, 0)
        monitoring.set_events(id, monitoring.events.PY_START)
for id in free:
    monitoring.free_tool_id(id)
print('train_step', 10)
print('seen', seen.count('train_step') // len(free), seen.count('other') // len(free), 1 in free)
";

#[test]
fn programs_that_monitor_themselves_see_the_same() {
    for python in interpreters("programs_that_monitor_themselves_see_the_same") {
        if python.version < (3, 12, 0) {
            continue;
        }
        let plain = python.command(MONITORS_ITSELF).output().unwrap();
        let run = marked(&python, MONITORS_ITSELF, "train_step");
        assert_eq!(run.errors, "", "{}", python.name);
        assert_eq!(run.output, String::from_utf8_lossy(&plain.stdout));
        assert_eq!(run.only().steps().len(), 10, "{}", python.name);
    }
}

/// Prints the instructions of a function that has become hot, as the interpreter runs them.
const HOT: &str = r"
import dis
def train_step(): pass
def numbers(turns=100):
    x = 0
    for i in range(turns):
        x += i * i % 7
    return x
for _ in range(50): train_step(), numbers()
for each in dis.get_instructions(numbers, adaptive=True): print(each.offset, each.opname)
";

/// Once instrumented and released, code of 3.12 lacks its superinstructions.
#[test]
fn other_functions_run_as_without() {
    for python in interpreters("other_functions_run_as_without") {
        if python.version < (3, 12, 0) {
            continue;
        }
        let plain = python.command(HOT).output().unwrap();
        let run = marked(&python, HOT, "train_step");
        assert!(run.output.contains("RETURN_VALUE"), "{}: {}", run.output, run.errors);
        assert_eq!(run.output, String::from_utf8_lossy(&plain.stdout), "{}", python.name);
        assert_eq!(run.only().steps().len(), 50, "{}", python.name);
    }
}

/// Every sub-interpreter, if the build has any, has a function of this name.
const SUBINTERPRETERS: &str = r"
code = 'def train_step(): pass\nfor _ in range(5): train_step()'
count = 1
try:
    import _interpreters
except ImportError:
    try:
        import _xxsubinterpreters as _interpreters
    except ImportError:
        count = 0
for _ in range(3 * count):
    _interpreters.run_string(_interpreters.create(), code)
exec(code)
print('train_step', 5 + 15 * count)
";

#[test]
fn subinterpreters_mark_too() {
    for python in interpreters("subinterpreters_mark_too") {
        if python.version < (3, 12, 0) {
            continue;
        }
        let run = marked(&python, SUBINTERPRETERS, "train_step");
        let expected = counted(&run, |name| name == "train_step");
        assert_eq!(run.only().steps().len(), expected, "{}: {}", python.name, run.errors);
    }
}

/// As next to probes, where the library is loaded for GPU times only.
#[test]
fn steps_are_marked_without_collections() {
    let options = InjectOptions { collections: false, ..InjectOptions::default() };
    for python in interpreters("steps_are_marked_without_collections") {
        if python.version < (3, 12, 0) {
            continue;
        }
        let mut command = python.command(PROGRAM);
        let run = run(options, command.env(STEP_FUNCTION_VARIABLE, "Trainer.train_step"));
        let seen = run.only();
        let expected = counted(&run, |name| name == "Trainer.train_step");
        assert_eq!(seen.steps().len(), expected, "{}", python.name);
        assert_eq!(seen.pauses(), [], "{}", python.name);
    }
}

#[test]
fn nothing_is_marked_without_a_request() {
    for python in interpreters("nothing_is_marked_without_a_request") {
        let run = run(InjectOptions::default(), &mut python.command(PROGRAM));
        assert_eq!(run.only().steps(), [], "{}", python.name);
        let options = InjectOptions { steps: false, ..InjectOptions::default() };
        let mut command = python.command(PROGRAM);
        let off =
            test_kit::preload::run(options, command.env(STEP_FUNCTION_VARIABLE, "train_step"));
        assert_eq!(off.only().steps(), [], "{}", python.name);
    }
}
