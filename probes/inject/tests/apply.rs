//! Settings of the collector applied by the agent, against what the program itself sees.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests, outside of #[test]"
)]

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use test_kit::interpreters::Python;
use test_kit::interpreters::interpreters;
use test_kit::limit::WithTimeout as _;
use test_kit::optimizer::OPTIMIZER;

/// Cyclic garbage, and the collections so far.
const GARBAGE: &str = r"
class Node:
    def __init__(self): self.me = self
def garbage(count): [Node() for _ in range(count)]
def collections(): return [each['collections'] for each in gc.get_stats()]
";

/// What a program with settings printed, and the agent's report of it.
struct Applied {
    output: String,
    errors: String,
    reports: Vec<Value>,
    steps: Vec<Vec<i64>>,
}

impl Applied {
    /// The report of the process that was started.
    fn report(&self) -> &Value {
        let started = |report: &&Value| report["forked"] == false;
        self.reports.iter().find(started).unwrap()
    }

    /// The lines that were printed.
    fn lines(&self) -> Vec<&str> {
        self.output.lines().collect()
    }
}

fn numbers(value: &Value) -> Vec<u64> {
    let items = value.as_array().unwrap();
    items.iter().map(|item| item.as_u64().unwrap()).collect()
}

fn apply_in(folder: &Path, command: &mut Command, settings: &str) -> Applied {
    let output = command
        .env("LD_PRELOAD", gctrace_inject::find_library().unwrap())
        .env("GCTRACE_APPLY", settings)
        .env("GCTRACE_APPLY_FOLDER", folder)
        .output_in_time()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (mut reports, mut steps) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.ends_with(".report.json") {
            let report = serde_json::from_slice(&std::fs::read(&path).unwrap());
            reports.push(report.unwrap());
        } else if name.ends_with(".steps") {
            let text = std::fs::read_to_string(&path).unwrap();
            let row = |line: &str| {
                line.split(',')
                    .map(|field| field.parse().unwrap())
                    .collect()
            };
            steps = text.lines().skip(1).map(row).collect();
        }
    }
    let (errors, output) = (text(&output.stderr), text(&output.stdout));
    Applied {
        output,
        errors,
        reports,
        steps,
    }
}

/// Runs a script after [`OPTIMIZER`] with settings. Nothing fails in it or in the agent.
fn apply(python: &Python, settings: &str, script: &str) -> Applied {
    let folder = tempfile::tempdir().unwrap();
    let mut command = python.command(&format!("{OPTIMIZER}{GARBAGE}{script}"));
    let applied = apply_in(folder.path(), &mut command, settings);
    assert_eq!(applied.errors, "", "{}", python.name);
    assert_eq!(applied.report()["failure"], Value::Null, "{}", python.name);
    assert_eq!(applied.report()["ended"], true, "{}", python.name);
    applied
}

#[test]
fn settings_begin_at_their_step() {
    let script = r"
kept = [[i] for i in range(10000)]
for i in range(1, 7):
    step()
    print(i, gc.get_threshold()[0], gc.isenabled(), gc.get_freeze_count() > 10000)
print(gc.get_freeze_count())
";
    for python in interpreters("settings_begin_at_their_step") {
        let settings = "threshold=7000,10,freeze@step:3,disable@step:5";
        let applied = apply(&python, settings, script);
        let expected = [
            "1 7000 True False",
            "2 7000 True False",
            "3 7000 True True",
            "4 7000 True True",
            "5 7000 False True",
            "6 7000 False True",
        ];
        let lines = applied.lines();
        assert_eq!(lines[..6], expected, "{}", python.name);
        let report = applied.report();
        let at: Vec<_> = report["applied"].as_array().unwrap().iter().collect();
        let at: Vec<_> = at
            .iter()
            .map(|one| (&one["setting"], &one["step"]))
            .collect();
        assert_eq!(at[0], (&Value::from("threshold=7000,10"), &Value::from(0)));
        assert_eq!(at[1], (&Value::from("freeze"), &Value::from(3)));
        assert_eq!(at[2], (&Value::from("disable"), &Value::from(5)));
        let frozen = report["frozen_objects"].as_u64().unwrap();
        let printed: u64 = lines[6].parse().unwrap();
        // A few have been released since.
        assert!(
            frozen >= printed && frozen - printed < 50,
            "{}",
            python.name
        );
        assert_eq!(report["steps"], 6);
        assert_eq!(report["marker"], "optimizer");
        assert_eq!(report["undone"], Value::from(Vec::<Value>::new()));
    }
}

#[test]
fn a_plan_collects_at_its_steps() {
    let script = r"
for i in range(1, 46):
    before = collections()
    garbage(300)
    step()
    print(*[after - old for old, after in zip(before, collections())])
";
    for python in interpreters("a_plan_collects_at_its_steps") {
        let applied = apply(&python, "plan:5@step:10,gen2:20", script);
        let seen: Vec<&str> = applied.lines();
        for (index, line) in seen.iter().enumerate() {
            let step = index + 1;
            let expected = match step {
                11.. if step % 20 == 0 => "0 0 1",
                11.. if step % 5 == 0 => "0 1 0",
                // The one that starts before the automatic collection is disabled.
                ..=10 => continue,
                _ => "0 0 0",
            };
            // Its statistics miss increments.
            let is_missed = python.is("incremental") && expected == "0 1 0" && *line == "0 0 0";
            assert!(
                *line == expected || is_missed,
                "{} step {step}: {line}",
                python.name
            );
        }
        let report = applied.report();
        assert_eq!(
            numbers(&report["planned"]["collections"]),
            [0, 6, 2],
            "{}",
            python.name
        );
        assert_eq!(report["after"]["steps"], 35);
        assert_eq!(
            numbers(&report["after"]["collections"]),
            [0, 6, 2],
            "{}",
            python.name
        );
        let garbage: u64 = numbers(&report["planned"]["garbage"]).iter().sum();
        // Instances with and without a dictionary of their own.
        assert!(garbage >= 35 * 300, "{} {garbage}", python.name);
    }
}

/// A library enables collection again, resets the thresholds and unfreezes (tnt's and Instagram's
/// experience).
#[test]
fn what_undoes_settings_is_named() {
    let script = r"
def library():
    gc.enable()
    gc.set_threshold(500)
    gc.unfreeze()
for i in range(1, 31):
    if i == 20: library()
    step()
    if i in (19, 20, 21): print(gc.get_threshold()[0], gc.isenabled(), gc.get_freeze_count() > 1000)
";
    for python in interpreters("what_undoes_settings_is_named") {
        let applied = apply(&python, "threshold=7000,freeze,plan:10", script);
        assert_eq!(applied.lines(), ["7000 False True"; 3], "{}", python.name);
        let line = |text: &str| {
            let script = format!("{OPTIMIZER}{GARBAGE}{script}");
            script.lines().position(|line| line.contains(text)).unwrap() + 1
        };
        for (setting, call) in [
            ("threshold", "gc.set_threshold(500)"),
            ("freeze", "gc.unfreeze()"),
            ("plan", "gc.enable()"),
        ] {
            let undone = applied.report()["undone"].as_array().unwrap();
            let found = undone.iter().find(|one| one["setting"] == setting).unwrap();
            let by = format!("<string>:{} library", line(call));
            assert_eq!(found["by"], by, "{}", python.name);
            assert_eq!(
                (&found["step"], &found["times"]),
                (&Value::from(20), &Value::from(1))
            );
        }
    }
}

#[test]
fn a_freeze_is_repeated_only_so_often() {
    let script = "
for i in range(1, 31):
    gc.unfreeze()
    step()
";
    for python in interpreters("a_freeze_is_repeated_only_so_often") {
        let applied = apply(&python, "freeze", script);
        let report = applied.report();
        assert_eq!(
            report["freezing"]["collections"],
            Value::from(vec![0, 0, 4])
        );
        assert_eq!(report["undone"][0]["times"], 28, "{}", python.name);
        let warnings = report["warnings"].to_string();
        assert!(warnings.contains("not repeated again"), "{warnings}");
    }
}

/// torchtitan's collector: disabled, generation 1 collected every few steps. Garbage that survives
/// two collections is never freed, unless generation 2 is collected.
#[test]
fn generation_2_must_be_collected() {
    let script = r"
import weakref
held, alive = [], []
for i in range(1, 61):
    node = Node()
    alive.append(weakref.ref(node))
    held.append(node)
    # Lives for two planned collections.
    del held[:-12]
    del node
    step()
print(sum(one() is not None for one in alive))
";
    for python in interpreters("generation_2_must_be_collected") {
        // Free-threaded builds have no generations, 3.14.0 to 3.14.4 increments.
        let generational = python.is("generational");
        let alive = |settings| {
            let applied = apply(&python, settings, script);
            let warnings = applied.report()["warnings"].to_string();
            (applied.lines()[0].parse::<u32>().unwrap(), warnings)
        };
        let (leaked, warnings) = alive("plan:5,gen2:0");
        if generational {
            assert!(leaked > 30, "{}: {leaked}", python.name);
        }
        let expected = match python.is("free-threaded") {
            true => "no generations",
            false => "generation 2 is never collected",
        };
        assert!(warnings.contains(expected), "{}: {warnings}", python.name);
        let (kept, warnings) = alive("plan:5,gen2:10");
        assert!(kept < 25, "{}: {kept}", python.name);
        assert!(
            !warnings.contains("never collected"),
            "{}: {warnings}",
            python.name
        );
        assert_eq!(
            warnings.contains("increment"),
            python.is("incremental"),
            "{warnings}"
        );
    }
}

/// The program collects and disables by itself: reported, and left to it.
#[test]
fn the_programs_own_calls_are_reported() {
    let script = r"
gc.disable()
for i in range(1, 41):
    if i % 10 == 0: gc.collect(1)
    step()
print(gc.isenabled())
";
    for python in interpreters("the_programs_own_calls_are_reported") {
        let applied = apply(&python, "threshold=7000", script);
        assert_eq!(applied.lines(), ["False"]);
        let report = applied.report();
        let asked = report["asked"].as_array().unwrap();
        let own = |one: &&Value| one["times"] == 4;
        assert!(
            asked.iter().any(|one| own(&one)),
            "{}: {asked:?}",
            python.name
        );
        assert_eq!(report["calls"][0]["function"], "disable", "{}", python.name);
        let warnings = report["warnings"].to_string();
        assert!(warnings.contains("itself has disabled"), "{warnings}");
        assert_eq!(report["undone"], Value::from(Vec::<Value>::new()));
    }
}

/// Objects that appear after the freeze (the state of later steps) are tracked, and reported.
#[test]
fn objects_after_a_freeze_are_counted() {
    let script = r"
state = []
for i in range(1, 11):
    if i == 4: state.extend([j] for j in range(5000))
    step()
print(len(gc.get_objects()))
";
    for python in interpreters("objects_after_a_freeze_are_counted") {
        let applied = apply(&python, "freeze@step:2", script);
        let report = applied.report();
        let number = |key: &str| report[key].as_u64().unwrap();
        let printed: u64 = applied.lines()[0].parse().unwrap();
        let start = number("tracked_objects_at_start");
        let end = number("tracked_objects_at_end");
        assert!(start < 3000, "{}: {start}", python.name);
        assert!(
            end >= 5000 && end.abs_diff(printed) < 500,
            "{}: {end} {printed}",
            python.name
        );
    }
}

#[test]
fn nothing_happens_without_steps() {
    let script = "print(gc.get_threshold()[0], gc.isenabled(), gc.get_freeze_count() < 1000)";
    for python in interpreters("nothing_happens_without_steps") {
        let applied = apply(&python, "threshold=5000,freeze,plan:5", script);
        assert_eq!(applied.lines(), ["5000 True True"], "{}", python.name);
        let report = applied.report();
        assert_eq!(report["marker"], Value::Null);
        assert_eq!(
            (&report["steps"], &report["after"]),
            (&Value::from(0), &Value::Null)
        );
        assert_eq!(report["applied"].as_array().unwrap().len(), 1);
    }
}

/// Blocks alternate in Thue-Morse order, and the table has the collections of each step.
#[test]
fn blocks_alternate() {
    const WARM_UP: i64 = 10;
    const BLOCK: i64 = 5;
    let script = r"
import time
begun = []
def seen(phase, info):
    if phase == 'start': begun.append((time.monotonic_ns(), info['generation']))
gc.callbacks.append(seen)
thresholds = []
for i in range(1, 91):
    garbage(200)
    step()
    thresholds.append(gc.get_threshold()[0])
print(*thresholds)
for one in begun: print(*one)
";
    for python in interpreters("blocks_alternate") {
        let folder = tempfile::tempdir().unwrap();
        let mut command = python.command(&format!("{OPTIMIZER}{GARBAGE}{script}"));
        command
            .env("GCTRACE_APPLY_BLOCK", BLOCK.to_string())
            .env("GCTRACE_APPLY_WARM_UP", WARM_UP.to_string());
        let applied = apply_in(folder.path(), &mut command, "threshold=300|threshold=7000");
        assert_eq!(applied.errors, "");
        let numbers = |line: &str| -> Vec<i64> {
            line.split(' ').map(|word| word.parse().unwrap()).collect()
        };
        let lines = applied.lines();
        let thresholds = numbers(lines[0]);
        let begun: Vec<_> = lines.iter().skip(1).map(|line| numbers(line)).collect();
        // The first interval has no mark at its start.
        assert_eq!(applied.steps.len(), 89, "{}", python.name);
        for row in &applied.steps {
            let [
                step,
                setting,
                block,
                start_ns,
                end_ns,
                pause_ns,
                young,
                middle,
                old,
                ..,
            ] = row[..]
            else {
                unreachable!("{row:?}");
            };
            let expected = (step - 1 - WARM_UP).div_euclid(BLOCK).max(-1);
            assert_eq!(block, expected, "{} step {step}", python.name);
            let parity = i64::from(block.max(0).count_ones() % 2);
            assert_eq!(setting, parity, "{} step {step}", python.name);
            let threshold = [300, 7000][usize::try_from(setting).unwrap()];
            let begins = thresholds[usize::try_from(step).unwrap() - 2];
            assert_eq!(begins, threshold, "{} step {step}", python.name);
            let counted = [0, 1, 2].map(|generation| {
                let is_here =
                    |one: &&Vec<i64>| (start_ns..=end_ns).contains(&one[0]) && one[1] == generation;
                i64::try_from(begun.iter().filter(is_here).count()).unwrap()
            });
            assert_eq!(counted, [young, middle, old], "{} step {step}", python.name);
            assert!(
                start_ns <= end_ns && pause_ns <= end_ns - start_ns,
                "{row:?}"
            );
            assert_eq!(pause_ns > 0, young + middle + old > 0, "{row:?}");
        }
        let steps: Vec<i64> = applied.steps.iter().map(|row| row[0]).collect();
        assert_eq!(steps, (2..=90).collect::<Vec<_>>());
    }
}

#[test]
fn settings_are_taken_back() {
    let script = r"
import time
folder = os.environ['GCTRACE_APPLY_FOLDER']
def show(): print(gc.get_threshold()[0], gc.isenabled(), gc.get_freeze_count() > 1000)
before = gc.get_threshold()[0]
for i in range(1, 6): step()
show()
open(folder + '/control', 'w').write('1')
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
        let expected = [
            "parent 7000 False",
            "child 7000 True",
            "child 7000 True",
            "7000 True",
        ];
        assert_eq!(applied.lines(), expected, "{}", python.name);
        let forked = |report: &&Value| report["forked"] == true;
        let forked: Vec<_> = applied.reports.iter().filter(forked).collect();
        assert_eq!(forked.len(), 2, "{}", python.name);
        for report in forked {
            assert_eq!(
                (&report["ended"], &report["steps"]),
                (&Value::from(true), &Value::from(0))
            );
            assert_eq!(
                report["applied"].as_array().unwrap().len(),
                1,
                "{}",
                python.name
            );
            let collections = numbers(&report["before"]["collections"]);
            assert!(collections.iter().sum::<u64>() > 0, "{}", python.name);
        }
        // The program itself and the one that it starts.
        assert_eq!(applied.reports.len(), 4, "{}", python.name);
    }
}

/// A fault of the agent ends the agent and gives the settings back.
#[test]
fn a_fault_ends_the_agent_alone() {
    let script = r"
for i in range(1, 6): step()
print(gc.isenabled())
del sys._getframe
gc.get_threshold = None
gc.enable()
for i in range(1, 6): step()
print(gc.isenabled(), gc.get_freeze_count())
";
    for python in interpreters("a_fault_ends_the_agent_alone") {
        let folder = tempfile::tempdir().unwrap();
        let mut command = python.command(&format!("{OPTIMIZER}{GARBAGE}{script}"));
        let applied = apply_in(folder.path(), &mut command, "freeze,disable");
        assert_eq!(applied.errors, "", "{}", python.name);
        assert_eq!(applied.lines()[0], "False", "{}", python.name);
        assert!(applied.lines()[1].starts_with("True"), "{}", python.name);
        let failure = applied.report()["failure"].as_str().unwrap();
        assert!(
            failure.starts_with("AttributeError"),
            "{}: {failure}",
            python.name
        );
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

#[test]
fn wrapped_functions_look_like_their_own() {
    let script = r"
import inspect
for name in ('enable', 'disable', 'set_threshold', 'freeze', 'unfreeze', 'collect'):
    function = getattr(gc, name)
    real = function.__wrapped__
    assert inspect.isbuiltin(real)
    for attribute in ('__name__', '__qualname__', '__doc__', '__module__'):
        assert getattr(function, attribute) == getattr(real, attribute), attribute
assert gc.collect(generation=0) >= 0
try: gc.collect(7)
except ValueError: print('ValueError')
try: gc.enable(1)
except TypeError: print('TypeError')
import _thread, time
_thread.start_new_thread(gc.enable, ())
time.sleep(0.05)
";
    for python in interpreters("wrapped_functions_look_like_their_own") {
        let applied = apply(&python, "none", script);
        assert_eq!(
            applied.lines(),
            ["ValueError", "TypeError"],
            "{}",
            python.name
        );
    }
}

/// Without a folder, one line says what was done; what cannot be understood is not applied.
#[test]
fn without_a_folder_one_line_is_printed() {
    for python in interpreters("without_a_folder_one_line_is_printed") {
        let run = |settings: &str, script: &str| {
            let mut command = python.command(&format!("{OPTIMIZER}{GARBAGE}{script}"));
            let output = command
                .env("LD_PRELOAD", gctrace_inject::find_library().unwrap())
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
        assert!(run("nonsense", steps).contains("unknown setting 'nonsense'"));
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
            let applied = apply_in(
                folder.path(),
                command.env("RANK", rank),
                "freeze@step:5,plan:3@step:7",
            );
            assert_eq!(applied.report()["rank"], rank.parse::<u64>().unwrap());
            applied.output
        };
        let first = run("0");
        assert!(
            first.contains("4 True False\n5 True True"),
            "{}: {first}",
            python.name
        );
        assert!(
            first.contains("6 True True\n7 False True"),
            "{}: {first}",
            python.name
        );
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
            assert!(
                lines.iter().all(|line| line.ends_with("False")),
                "{lines:?}"
            );
            let warnings = report["warnings"].to_string();
            assert!(warnings.contains("3.12 and later only"), "{warnings}");
            continue;
        }
        let frozen: Vec<_> = lines.iter().map(|line| line.ends_with("True")).collect();
        // After step 3, so when step 4 begins.
        assert_eq!(
            frozen,
            [false, false, false, true, true, true],
            "{}",
            python.name
        );
        assert_eq!(
            (&report["marker"], &report["steps"]),
            (&"function".into(), &5.into())
        );
    }
}

/// Settings are those of the main interpreter.
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
            own => assert!(
                own.ends_with(" builtin_function_or_method") && !own.starts_with("7654"),
                "{}: {own}",
                python.name
            ),
        }
    }
}
