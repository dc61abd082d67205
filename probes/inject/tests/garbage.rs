//! The garbage of collections counted by the library, against the interpreter's own: what
//! `DEBUG_SAVEALL` keeps, `gc.get_stats()`, and that nothing of it can be seen.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests, outside of #[test]"
)]

use gctrace_ring::GarbageDetail;
use gctrace_ring::HookState;
use gctrace_ring::InjectOptions;
use gctrace_ring::RingKindCount;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;
use test_kit::interpreters::Python;
use test_kit::interpreters::interpreters;
use test_kit::interpreters::root;
use test_kit::interpreters::skip;
use test_kit::preload::Run;
use test_kit::preload::SeenGarbage;
use test_kit::preload::SeenKind;
use test_kit::preload::SeenRecords;
use test_kit::preload::run;
use test_kit::preload::run_with_children;

/// Every collection is examined, whatever it costs.
fn all() -> InjectOptions {
    InjectOptions {
        garbage: GarbageDetail::Types,
        garbage_budget_ppm: 1_000_000_000,
        ..InjectOptions::default()
    }
}

/// `garbage.py` with these arguments.
fn script(python: &Python, arguments: &[&str]) -> Command {
    let mut command = Command::new(&python.path);
    command
        .arg(root().join("tests/python/garbage.py"))
        .args(arguments);
    command
}

/// The script's truth, after a run without a fault.
fn truth(python: &Python, run: &Run) -> Value {
    assert!(run.status.success(), "{}: {}", python.name, run.errors);
    assert_eq!(run.errors, "", "{}", python.name);
    for ring in &run.rings {
        assert_eq!(ring.switched_off, None, "{}", python.name);
        assert_eq!(ring.lost.total(), 0, "{}", python.name);
    }
    serde_json::from_str(run.output.lines().last().unwrap()).unwrap()
}

/// Interpreters with one list of garbage: all with a global lock.
fn with_list(test: &str) -> impl Iterator<Item = Python> {
    let all = interpreters(test).into_iter();
    all.filter(|python| !python.is("free-threaded"))
}

fn number(truth: &Value, name: &str) -> u64 {
    truth[name].as_u64().unwrap()
}

/// Garbage and freed objects of each collection between two times, in order. Exactly those that
/// freed something have garbage.
fn between(ring: &SeenRecords, truth: &Value) -> Vec<(Option<SeenGarbage>, u64)> {
    let window = number(truth, "begin")..number(truth, "end");
    let mut garbage = ring.garbage();
    let pauses = ring.pauses().into_iter();
    pauses
        .filter(|pause| window.contains(&pause.interval.start_ns))
        .map(|pause| {
            let (start, end) = (pause.interval.start_ns, pause.interval.end_ns);
            let own = garbage.iter().position(|garbage| {
                garbage.head.tid == pause.tid && (start..=end).contains(&garbage.head.at_ns)
            });
            (own.map(|at| garbage.remove(at)), pause.collected)
        })
        .collect()
}

/// The same; garbage and freed objects must be equally many.
fn equal(python: &Python, ring: &SeenRecords, truth: &Value) -> Vec<SeenGarbage> {
    let pairs = between(ring, truth);
    let equal = pairs.into_iter().filter_map(|(garbage, collected)| {
        let objects = garbage.as_ref().map_or(0, |garbage| garbage.head.objects);
        // An increment frees what an earlier one marked.
        assert_eq!(objects, collected, "{}", python.name);
        garbage
    });
    equal.collect()
}

#[test]
fn kinds_and_sizes_are_those_of_saveall() {
    for python in with_list("kinds_and_sizes_are_those_of_saveall") {
        let run = run(all(), &mut script(&python, &["saveall"]));
        let truth = truth(&python, &run);
        let collected = number(&truth, "collected");
        assert!(collected > 5_000 && number(&truth, "again") == 0);
        let pairs = between(run.only(), &truth);
        let [(Some(garbage), freed)] = pairs.as_slice() else {
            panic!("{}: one collection with garbage", python.name)
        };
        assert_eq!(*freed, collected, "{}", python.name);
        let kinds: BTreeMap<String, u64> = serde_json::from_value(truth["kinds"].clone()).unwrap();
        assert_eq!(garbage.types(), kinds, "{}", python.name);
        assert_eq!(
            garbage.head.objects,
            kinds.values().sum::<u64>(),
            "{}",
            python.name
        );
        assert!(garbage.head.cost_ns > 0);
        let sizes: BTreeMap<String, u64> = serde_json::from_value(truth["sizes"].clone()).unwrap();
        for (name, bytes) in sizes {
            let of = garbage.kinds.iter().filter(|(kind, _)| kind.0 == name);
            let sum: u64 = of.map(|(_, count)| count.bytes).sum();
            assert_eq!(sum, bytes, "{} {name}", python.name);
        }
        code_is_named(&python, garbage, number(&truth, "recursive"));
    }
}

/// Objects that belong to code have its name, and the line.
fn code_is_named(python: &Python, garbage: &SeenGarbage, recursive: u64) {
    let file = root().join("tests/python/garbage.py");
    let qualified = |name: &'static str, own: &'static str| match python.version >= (3, 11, 0) {
        true => name,
        false => own,
    };
    let recursive = (
        qualified("closure.<locals>.recursive", "recursive"),
        Some(recursive),
    );
    for (name, (function, line)) in [
        ("function", recursive),
        ("cell", recursive),
        ("traceback", ("mixed", None)),
        ("method", (qualified("Holder.call", "call"), None)),
        ("coroutine", ("coroutine", None)),
    ] {
        let kinds = garbage.kinds.iter().filter(|(kind, _)| kind.0 == name);
        let most = kinds.max_by_key(|(_, count)| count.objects);
        let ((_, own, from, at), count) =
            most.unwrap_or_else(|| panic!("{}: no {name}", python.name));
        assert_eq!(
            (own.as_str(), from.as_str()),
            (function, file.to_str().unwrap()),
            "{} {name}",
            python.name
        );
        assert!(
            *at > 0 && line.is_none_or(|line| line == u64::from(*at)),
            "{} {name}: {at}",
            python.name
        );
        assert_eq!(count.objects, 500, "{} {name}", python.name);
    }
}

#[test]
fn what_finalizers_free_was_unreachable() {
    for python in with_list("what_finalizers_free_was_unreachable") {
        let run = run(all(), &mut script(&python, &["finalizers"]));
        let truth = truth(&python, &run);
        let pairs = between(run.only(), &truth);
        let [(Some(garbage), collected)] = pairs.as_slice() else {
            panic!("{}: one collection with garbage", python.name)
        };
        assert!(garbage.head.objects > *collected, "{}", python.name);
        let types = garbage.types();
        assert_eq!(
            (types["generator"], types["list"]),
            (100, 100),
            "{}",
            python.name
        );
        let generator = garbage.kinds.iter().find(|(kind, _)| kind.0 == "generator");
        let line = generator.map(|((.., line), _)| u64::from(*line));
        assert_eq!(line, truth["line"].as_u64(), "{}", python.name);
    }
}

#[test]
fn automatic_collections_add_up_to_the_statistics() {
    for python in with_list("automatic_collections_add_up_to_the_statistics") {
        let run = run(all(), &mut script(&python, &["automatic"]));
        let truth = truth(&python, &run);
        let garbage = equal(&python, run.only(), &truth);
        let sum: u64 = garbage.iter().map(|garbage| garbage.head.objects).sum();
        assert_eq!(sum, number(&truth, "collected"), "{}", python.name);
        // Most increments only mark.
        let least = if python.is("incremental") { 2 } else { 20 };
        assert!(
            garbage.len() > least && sum > 50_000,
            "{}: {}",
            python.name,
            garbage.len()
        );
    }
}

#[test]
fn nothing_of_it_can_be_seen() {
    for python in interpreters("nothing_of_it_can_be_seen") {
        let off = InjectOptions {
            garbage: GarbageDetail::Off,
            ..all()
        };
        let mut truths = [off, all()].map(|options| {
            let run = run(options, &mut script(&python, &["visible"]));
            let garbage = run.rings.iter().map(|ring| ring.garbage().len());
            let expected = options.garbage != GarbageDetail::Off && !python.is("free-threaded");
            assert_eq!(garbage.sum::<usize>() >= 7, expected, "{}", python.name);
            truth(&python, &run)
        });
        for truth in &mut truths {
            let truth = truth.as_object_mut().unwrap();
            // Those of the interpreter at its start depend on where its memory is.
            truth.remove("stats");
            // Code that long pauses have the library remember, with or without garbage.
            truth["grown"].as_array_mut().unwrap().drain(..7);
            // 3.14.0 - 3.14.4 count what is tracked, the sentinel in increments that free nothing
            // too.
            if python.is("incremental") {
                truth.remove("counts");
            }
        }
        assert_eq!(truths[0], truths[1], "{}", python.name);
        assert!(truths[0]["more"] == 0 && truths[0]["called"].as_u64() >= Some(7));
    }
}

#[test]
fn nothing_is_examined_while_the_program_debugs() {
    for python in with_list("nothing_is_examined_while_the_program_debugs") {
        let run = run(all(), &mut script(&python, &["debug"]));
        assert!(run.status.success(), "{}", python.name);
        let printed = run.errors.lines();
        assert!(
            printed
                .clone()
                .all(|line| line.starts_with("gc: collectable <") && !line.contains("<method")),
            "{}: {}",
            python.name,
            run.errors
        );
        let truth: Value = serde_json::from_str(run.output.trim()).unwrap();
        let counts: Vec<(u64, u64)> = serde_json::from_value(truth["result"].clone()).unwrap();
        let each = counts[0].0;
        let kept = [each, 0, 0, each, 0].map(|kept| (each, kept));
        assert_eq!(counts, kept, "{}", python.name);
        assert_eq!(printed.count() as u64, each, "{}", python.name);
        // Those without a flag, and those that free what was kept.
        let garbage = run.only().garbage();
        let same = garbage.iter().filter(|own| own.head.objects == each);
        assert_eq!(same.count(), 4, "{}", python.name);
    }
}

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
fn classes_that_die_keep_their_names() {
    for python in with_list("classes_that_die_keep_their_names") {
        let run = run(all(), &mut script(&python, &["classes"]));
        let truth = truth(&python, &run);
        let garbage = equal(&python, run.only(), &truth);
        assert_eq!(garbage.len(), 40, "{}", python.name);
        for (index, garbage) in garbage.iter().enumerate() {
            let name = format!("__main__.Made{index}");
            assert_eq!(
                garbage.types().get(&name),
                Some(&1),
                "{}: {name}",
                python.name
            );
            let is_class = |(kind, _): &&(SeenKind, RingKindCount)| {
                kind.0 == "type" && kind.1 == format!("Made{index}") && kind.3 > 0
            };
            assert_eq!(
                garbage.kinds.iter().filter(is_class).count(),
                1,
                "{}: {name}",
                python.name
            );
        }
    }
}

#[test]
fn a_list_of_a_million() {
    for python in with_list("a_list_of_a_million") {
        let run = run(all(), &mut script(&python, &["linked", "1000000"]));
        let truth = truth(&python, &run);
        let garbage = equal(&python, run.only(), &truth);
        assert_eq!(garbage.len(), 1, "{}", python.name);
        assert_eq!(garbage[0].types()["__main__.Slots"], 1_000_000);
    }
}

#[test]
fn freezing_and_nested_collections() {
    for python in with_list("freezing_and_nested_collections") {
        let run = run(all(), &mut script(&python, &["freeze"]));
        let truth = truth(&python, &run);
        let collected: Vec<u64> = serde_json::from_value(truth["collected"].clone()).unwrap();
        let each = collected[0];
        assert_eq!(
            collected,
            [each, 0, each, each, 0, each, each],
            "{}",
            python.name
        );
        let same = run.only().garbage();
        let same = same.iter().filter(|own| own.head.objects == each).count();
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
            let counts: Vec<u64> = garbage.iter().map(|own| own.head.objects).collect();
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
            // Whatever came is whole, except the last.
            assert!(ring.garbage_but_last().is_some(), "{}", python.name);
        }
    }
}

#[test]
fn only_what_the_budget_allows() {
    for python in with_list("only_what_the_budget_allows") {
        let options = InjectOptions {
            garbage_budget_ppm: 0,
            ..all()
        };
        let run = run(options, &mut script(&python, &["automatic"]));
        let truth = truth(&python, &run);
        let pairs = between(run.only(), &truth);
        let examined = pairs
            .iter()
            .filter(|(garbage, _)| garbage.is_some())
            .count();
        let freeing = pairs.iter().filter(|(_, collected)| *collected > 0).count();
        assert!(examined < freeing / 2, "{}: {examined}", python.name);
        let full = |(garbage, collected): &(Option<SeenGarbage>, u64)| {
            garbage
                .as_ref()
                .is_none_or(|garbage| garbage.head.objects == *collected)
        };
        assert!(pairs.iter().all(full), "{}", python.name);
        for pause in run.only().pauses() {
            let (start, end) = (pause.interval.start_ns, pause.interval.end_ns);
            let garbage = run.only().garbage();
            let has = garbage
                .iter()
                .any(|own| (start..=end).contains(&own.head.at_ns));
            let is_full = pause.generation == 2 && pause.collected > 0 && !pause.at_exit;
            assert!(has || !is_full, "{}: {pause:?}", python.name);
        }
    }
}

#[test]
fn free_threaded_builds_say_so_once() {
    for python in interpreters("free_threaded_builds_say_so_once") {
        let run = run(all(), &mut script(&python, &["visible"]));
        let hooks = run.only().hooks();
        let not: Vec<_> = hooks
            .iter()
            .filter(|hook| hook.0 == HookState::NotExaminingGarbage)
            .collect();
        assert_eq!(
            not.len(),
            usize::from(python.is("free-threaded")),
            "{}: {not:?}",
            python.name
        );
        assert!(not.iter().all(|hook| hook.3.contains("free-threaded")));
    }
}

/// Two interpreters with garbage of their own, each with its own sentinel.
#[test]
fn subinterpreters() {
    let own = "import gc\nclass Own%d: pass\ngc.collect(); gc.disable()\nfor _ in range(%d):\n own = Own%d(); own.own = own\ndel own\ngc.collect()\n";
    let script = format!(
        r"
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
code = '''{own}'''
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
        let own = |id| if version == (3, 8) { 0 } else { id };
        let run = run(all(), &mut python.command(&script));
        if run.errors.contains("No module named '_xxsubinterpreters'") {
            skip(
                "subinterpreters",
                &format!("{}: it has no module for them", python.name),
            );
            continue;
        }
        assert!(run.status.success(), "{}: {}", python.name, run.errors);
        assert_eq!(run.only().switched_off, None, "{}", python.name);
        let garbage = run.only().garbage();
        let count = |name: &str| {
            let own = garbage.iter().filter_map(|own| {
                let count = own.types().get(name).copied()?;
                Some((own.head.interpreter, count))
            });
            own.max_by_key(|(_, count)| *count)
        };
        for (name, interpreter, objects) in [
            ("__main__.Own0", own(1), 100),
            ("__main__.Own1", own(2), 101),
            ("__main__.Own7", 0, 150),
            ("__main__.Own8", 0, 160),
            ("__main__.Own9", 0, 170),
        ] {
            assert_eq!(
                count(name),
                Some((interpreter, objects)),
                "{} {name}",
                python.name
            );
        }
    }
}

/// Allocators that fill freed memory, warnings as errors, and `python -X dev`.
#[test]
fn under_the_interpreters_own_checks() {
    for python in with_list("under_the_interpreters_own_checks") {
        for (name, value) in [("PYTHONDEVMODE", "1"), ("PYTHONMALLOC", "malloc_debug")] {
            let mut command = script(&python, &["classes"]);
            let run = run(all(), command.env(name, value));
            let truth = truth(&python, &run);
            assert_eq!(
                equal(&python, run.only(), &truth).len(),
                40,
                "{}",
                python.name
            );
        }
    }
}
