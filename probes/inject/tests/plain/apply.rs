//! Settings of the collector applied by the agent, against what the program itself sees.

#![expect(clippy::indexing_slicing, reason = "helpers of tests, outside of #[test]")]

use crate::apply_harness;

use apply_harness::{GARBAGE, apply, numbers};
use serde_json::Value;
use test_kit::interpreters::interpreters;
use test_kit::optimizer::OPTIMIZER;

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
        let at: Vec<_> = at.iter().map(|one| (&one["setting"], &one["step"])).collect();
        assert_eq!(at[0], (&Value::from("threshold=7000,10"), &Value::from(0)));
        assert_eq!(at[1], (&Value::from("freeze"), &Value::from(3)));
        assert_eq!(at[2], (&Value::from("disable"), &Value::from(5)));
        let frozen = report["frozen_objects"].as_u64().unwrap();
        let printed: u64 = lines[6].parse().unwrap();
        // A few have been released since.
        assert!(frozen >= printed && frozen - printed < 50, "{}", python.name);
        assert_eq!(report["steps"], 6);
        assert_eq!(report["marker"], "optimizer");
        assert_eq!(report["undone"], Value::from(Vec::<Value>::new()));
    }
}

/// Until the first step, and not in forks; what the program sets meanwhile holds afterwards.
#[test]
fn loading_has_a_threshold_of_its_own() {
    let script = r"
import os
print(gc.get_threshold()[0], flush=True)
if os.fork() == 0:
    print(gc.get_threshold()[0], flush=True)
    os._exit(0)
os.wait()
before = gc.get_stats()[0]['collections']
kept = [[i] for i in range(50000)]
print(gc.get_stats()[0]['collections'] - before)
if sets: gc.set_threshold(900)
step()
print(gc.get_threshold()[0])
step()
print(gc.get_threshold()[0])
";
    for python in interpreters("loading_has_a_threshold_of_its_own") {
        let run = |settings, sets| apply(&python, settings, &format!("sets = {sets}\n{script}"));
        let own = run("none", "False").lines()[0].to_owned();
        for (settings, sets, after) in [
            ("loading=100000", "False", &*own),
            ("loading=100000", "True", "900"),
            ("loading=100000,threshold=7000", "False", "7000"),
            ("threshold=7000,loading=100000", "True", "7000"),
        ] {
            let applied = run(settings, sets);
            let in_fork = if settings.contains("threshold") { "7000" } else { &own };
            let seen = applied.lines();
            // An increment starts with each 2,000 objects or more.
            let none = if python.is("incremental") { seen[2] } else { "0" };
            let expected = ["100000", in_fork, none, after, after];
            assert_eq!(seen, expected, "{} {settings} {sets}", python.name);
        }
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
            assert!(*line == expected || is_missed, "{} step {step}: {line}", python.name);
        }
        let report = applied.report();
        assert_eq!(numbers(&report["planned"]["collections"]), [0, 6, 2], "{}", python.name);
        assert_eq!(report["after"]["steps"], 35);
        assert_eq!(numbers(&report["after"]["collections"]), [0, 6, 2], "{}", python.name);
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
            assert_eq!((&found["step"], &found["times"]), (&Value::from(20), &Value::from(1)));
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
        assert_eq!(report["freezing"]["collections"], Value::from(vec![0, 0, 4]));
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
        let expected = if python.is("free-threaded") {
            "no generations"
        } else {
            "generation 2 is never collected"
        };
        assert!(warnings.contains(expected), "{}: {warnings}", python.name);
        let (kept, warnings) = alive("plan:5,gen2:10");
        assert!(kept < 25, "{}: {kept}", python.name);
        assert!(!warnings.contains("never collected"), "{}: {warnings}", python.name);
        assert_eq!(warnings.contains("increment"), python.is("incremental"), "{warnings}");
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
        let is_planted = |one: &&Value| one["times"] == 4;
        assert!(asked.iter().any(|one| is_planted(&one)), "{}: {asked:?}", python.name);
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
        assert!(end >= 5000 && end.abs_diff(printed) < 500, "{}: {end} {printed}", python.name);
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
        assert_eq!((&report["steps"], &report["after"]), (&Value::from(0), &Value::Null));
        assert_eq!(report["applied"].as_array().unwrap().len(), 1);
    }
}

/// Steps after the first 50, with the program's own counts of collections in them.
#[test]
fn settled_steps_are_measured() {
    let script = r"
import time
for i in range(1, 151):
    if i == 51: settled, cpu = collections(), time.thread_time_ns()
    garbage(200)
    if i == 150: print(*(after - before for before, after in zip(settled, collections())))
    if i == 150: print(time.thread_time_ns() - cpu)
    step()
";
    for python in interpreters("settled_steps_are_measured") {
        let applied = apply(&python, "threshold=300,5,5", script);
        let [counts, cpu_ns] = applied.lines()[..] else { panic!("{}", applied.output) };
        let counts: Vec<u64> = counts.split(' ').map(|word| word.parse().unwrap()).collect();
        let settled = &applied.report()["settled"];
        assert_eq!(settled["steps"], 100, "{}", python.name);
        assert_eq!(numbers(&settled["collections"]), counts, "{}: {settled}", python.name);
        let [wall, cpu, pause] =
            ["wall_ns", "cpu_ns", "pause_ns"].map(|name| settled[name].as_u64().unwrap());
        assert_eq!(pause > 0, counts.iter().sum::<u64>() > 0, "{settled}");
        assert!(pause <= wall && cpu <= wall + 1_000_000, "{settled}");
        // The program's own figure contains the agent's time.
        assert!(cpu <= cpu_ns.parse::<u64>().unwrap() + 1_000_000, "{settled} {cpu_ns}");
    }
}
