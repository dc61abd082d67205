//! Garbage in threads, forks, subinterpreters, callbacks that interfere, and under SIGKILL.

use crate::garbage_harness;

use garbage_harness::{all, equal, number, script, truth, with_list};
use gctrace_ring::HookState;
use std::time::Duration;
use test_kit::interpreters::{interpreters, skip};
use test_kit::preload::{run, run_with_children};

#[test]
fn four_threads() {
    for python in with_list("four_threads") {
        let run = run(all(), &mut script(&python, &["threads"]));
        let truth = truth(&python, &run);
        let garbage = equal(&python, run.only(), &truth);
        let sum: u64 = garbage.iter().map(|garbage| garbage.head.objects).sum();
        assert_eq!(sum, number(&truth, "collected"), "{}", python.name);
        let threads = garbage.iter().map(|garbage| garbage.head.tid);
        assert!(threads.collect::<std::collections::BTreeSet<_>>().len() > 1);
    }
}

#[test]
fn freezing_and_nested_collections() {
    for python in with_list("freezing_and_nested_collections") {
        let run = run(all(), &mut script(&python, &["freeze"]));
        let truth = truth(&python, &run);
        let collected: Vec<u64> = serde_json::from_value(truth["collected"].clone()).unwrap();
        let each = collected[0];
        assert_eq!(collected, [each, 0, each, each, 0, each, each], "{}", python.name);
        let same = run.only().garbage();
        let same = same.iter().filter(|same| same.head.objects == each).count();
        assert_eq!(same, 5, "{}", python.name);
    }
}

#[test]
fn a_fork_in_the_middle() {
    for python in with_list("a_fork_in_the_middle") {
        let command = &mut script(&python, &["fork"]);
        let run = run_with_children(all(), command, Duration::from_millis(20));
        let truth = truth(&python, &run);
        assert_eq!(truth["status"], 0, "{}", python.name);
        let collected: Vec<u64> = serde_json::from_value(truth["collected"].clone()).unwrap();
        for (pid, expected) in [
            (number(&truth, "pid"), &collected[..]),
            // The fork may be before or after our part of the collection.
            (number(&truth, "child"), &collected[1..]),
        ] {
            let garbage = run.of(pid as u32).garbage();
            let counts: Vec<u64> = garbage.iter().map(|garbage| garbage.head.objects).collect();
            for count in expected {
                assert!(counts.contains(count), "{}: {counts:?}", python.name);
            }
        }
    }
}

#[test]
fn entries_removed_in_the_middle() {
    for python in with_list("entries_removed_in_the_middle") {
        let run = run(all(), &mut script(&python, &["removed"]));
        let truth = truth(&python, &run);
        let collected: Vec<u64> = serde_json::from_value(truth["collected"].clone()).unwrap();
        assert!(
            collected.iter().all(|count| *count == collected[0]),
            "{}: {collected:?}",
            python.name
        );
    }
}

#[test]
fn killed_while_it_is_examined() {
    for python in with_list("killed_while_it_is_examined") {
        for milliseconds in ["1", "40", "90"] {
            let command = &mut script(&python, &["killed", milliseconds]);
            let run = run_with_children(all(), command, Duration::from_millis(20));
            assert!(!run.status.success());
            let ring = run.rings.iter().find(|ring| !ring.hello.is_fork).unwrap();
            assert_eq!(ring.switched_off, None);
            // Whatever came is whole.
            assert!(ring.garbage().iter().all(|of| of.head.objects > 0), "{}", python.name);
        }
    }
}

#[test]
fn free_threaded_builds_say_so_once() {
    for python in interpreters("free_threaded_builds_say_so_once") {
        let run = run(all(), &mut script(&python, &["visible"]));
        let hooks = run.only().hooks();
        let not: Vec<_> =
            hooks.iter().filter(|hook| hook.0 == HookState::NotExaminingGarbage).collect();
        assert_eq!(not.len(), usize::from(python.is("free-threaded")), "{}: {not:?}", python.name);
        assert!(not.iter().all(|hook| hook.3.contains("free-threaded")));
    }
}

#[test]
fn subinterpreters() {
    let leak = "import gc\nclass Own%d: pass\ngc.collect(); gc.disable()\nfor _ in range(%d):\n own = Own%d(); own.own = own\ndel own\ngc.collect()\n";
    let script = format!(
        r"
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
code = '''{leak}'''
first = interpreters.create()
second = interpreters.create()
for index, one in enumerate((first, second)):
    interpreters.run_string(one, code % (index, 100 + index, index))
exec(code % (7, 150, 7))
interpreters.destroy(first)
exec(code % (8, 160, 8))
interpreters.destroy(second)
exec(code % (9, 170, 9))
"
    );
    for python in with_list("subinterpreters") {
        let version = (python.version.0, python.version.1);
        // Its subinterpreters share one list of callbacks, which their collectors do not read.
        if version == (3, 9) {
            continue;
        }
        // All its interpreters share one collector.
        let interpreter_id = |id| if version == (3, 8) { 0 } else { id };
        let run = run(all(), &mut python.command(&script));
        if run.errors.contains("No module named '_xxsubinterpreters'") {
            skip("subinterpreters", &format!("{}: it has no module for them", python.name));
            continue;
        }
        assert!(run.status.success(), "{}: {}", python.name, run.errors);
        assert_eq!(run.only().switched_off, None, "{}", python.name);
        let garbage = run.only().garbage();
        let count = |name: &str| {
            let counts = garbage.iter().filter_map(|garbage| {
                let count = garbage.types().get(name).copied()?;
                Some((garbage.head.interpreter, count))
            });
            counts.max_by_key(|(_, count)| *count)
        };
        for (name, interpreter, objects) in [
            ("__main__.Own0", interpreter_id(1), 100),
            ("__main__.Own1", interpreter_id(2), 101),
            ("__main__.Own7", 0, 150),
            ("__main__.Own8", 0, 160),
            ("__main__.Own9", 0, 170),
        ] {
            assert_eq!(count(name), Some((interpreter, objects)), "{} {name}", python.name);
        }
    }
}

#[test]
fn under_the_interpreters_own_checks() {
    for python in with_list("under_the_interpreters_own_checks") {
        for (name, value) in [("PYTHONDEVMODE", "1"), ("PYTHONMALLOC", "malloc_debug")] {
            let mut command = script(&python, &["classes"]);
            let run = run(all(), command.env(name, value));
            let truth = truth(&python, &run);
            assert_eq!(equal(&python, run.only(), &truth).len(), 40, "{}", python.name);
        }
    }
}
