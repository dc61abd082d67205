//! Cycles in garbage: planted ones, each found once with its line, and the components that
//! `gc.get_referents` makes of what `DEBUG_SAVEALL` keeps.

#![expect(clippy::panic, clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use crate::garbage_harness;

use garbage_harness::{all, number, script, truth, with_list};
use gctrace_ring::{GarbageDetail, InjectOptions, RingCycleCount};
use serde_json::Value;
use std::process::Command;
use std::time::Duration;
use test_kit::interpreters::{Python, compared, root};
use test_kit::preload::{Run, SeenGarbage, SeenKind, run, run_with_children};

/// Every collection is examined, and its cycles, whatever it costs.
fn with_cycles() -> InjectOptions {
    InjectOptions { garbage: GarbageDetail::Cycles, ..all() }
}

/// `garbage_cycles.py` with these arguments.
fn cycles(python: &Python, arguments: &[&str]) -> Command {
    let mut command = Command::new(&python.path);
    command.arg(root().join("tests/python/garbage_cycles.py")).args(arguments);
    command
}

/// The garbage of the one collection between the truth's times, and of those after it.
fn since(run: &Run, truth: &Value) -> Vec<SeenGarbage> {
    let mut garbage = run.only().garbage();
    garbage.retain(|garbage| garbage.head.at_ns >= number(truth, "begin"));
    garbage
}

/// A cycle in words: types and names of references, from the first place in the alphabet on.
fn words(edges: &[(SeenKind, String)]) -> String {
    let mut words: Vec<String> =
        edges.iter().map(|((name, ..), reference)| format!("{name}{reference}")).collect();
    let first = (0..words.len()).min_by_key(|at| &words[*at]).unwrap();
    words.rotate_left(first);
    words.join(" ")
}

/// Count, objects and line of the only cycle with these words; `None` if there is none.
fn found(garbage: &[SeenGarbage], expected: &str) -> Option<(u32, u64, Option<u64>)> {
    let cycles = garbage.iter().flat_map(|garbage| &garbage.cycles);
    let mut same = cycles.filter(|(edges, _)| words(edges) == expected);
    let (edges, count) = same.next()?;
    assert!(same.next().is_none(), "{expected} twice");
    let line = edges.iter().find(|((_, function, ..), _)| !function.is_empty());
    let line = line.map(|((.., line), _)| u64::from(*line));
    Some((count.count, count.objects, line))
}

#[test]
fn planted_cycles_are_found_once_each_with_their_lines() {
    for python in with_list("planted_cycles_are_found_once_each_with_their_lines") {
        let run = run(with_cycles(), &mut cycles(&python, &["planted"]));
        let truth = truth(&python, &run);
        let garbage = since(&run, &truth);
        let line = |name: &str| Some(number(&truth["lines"], name));
        let raw_frames = python.version >= (3, 11, 0);
        // Instances had a dict of their own.
        let dicts = |count: u64| if raw_frames { 0 } else { count };
        let generator = if raw_frames {
            "generator.gi_frame.f_locals['own']"
        } else {
            "frame.f_locals['own'] generator.gi_frame"
        };
        let in_frames = |with: u64, without: u64| if raw_frames { without } else { with };
        let planted = [
            ("cell.cell_contents function.__closure__ tuple[]", 6, 18, line("closure")),
            ("__main__.Trainer.hooks list[] method.__self__", 5, 15 + dicts(5), line("method")),
            (
                "ValueError.__traceback__ traceback.tb_frame frame.f_locals['kept']",
                4,
                12,
                line("exception"),
            ),
            ("function.__defaults__ tuple[] list[]", 1, 3, line("default")),
            ("__main__.Tree.children list[] __main__.Tree.parent", 1, 5 + dicts(4), None),
            ("garbage.Slots.one garbage.Slots.two", 1, 2, None),
            ("dict[7] list[]", 1, 2, None),
            ("dict['own']", 1, 1, None),
            ("garbage.Node.next", 1, 100 + dicts(100), None),
            (generator, 1, in_frames(2, 1), line("generator")),
        ];
        for (expected, count, objects, line) in planted {
            assert_eq!(
                found(&garbage, expected),
                Some((count, objects, line)),
                "{}: {expected}",
                python.name
            );
        }
        let class = found(&garbage, "tuple[] type.__mro__");
        assert_eq!(
            class.map(|(count, _, line)| (count, line)),
            Some((3, line("class"))),
            "{}",
            python.name
        );
        task_is_found(&python, &garbage, line("task"));
        compared(&python, "signatures", planted.len() + 2);
    }
}

/// A task that its own coroutine names: the reference from the task has no name, its type is not
/// CPython's.
fn task_is_found(python: &Python, garbage: &[SeenGarbage], line: Option<u64>) {
    let tasks: Vec<_> = garbage
        .iter()
        .flat_map(|garbage| &garbage.cycles)
        .filter(|(edges, _)| edges.iter().any(|((name, ..), _)| name == "_asyncio.Task"))
        .collect();
    let [(edges, count)] = tasks.as_slice() else { panic!("{}: {tasks:?}", python.name) };
    assert_eq!(count.count, 1);
    let is_own = |((_, function, _, at), name): &(SeenKind, String)| {
        function.ends_with("work") && Some(u64::from(*at)) == line && name.contains("'task'")
    };
    assert!(edges.iter().any(is_own), "{}: {edges:?}", python.name);
}

#[test]
fn components_are_those_of_get_referents() {
    for python in with_list("components_are_those_of_get_referents") {
        let run = run(with_cycles(), &mut cycles(&python, &["components"]));
        let truth = truth(&python, &run);
        let garbage = since(&run, &truth);
        let garbage = garbage.first().unwrap();
        assert_eq!(garbage.head.objects, number(&truth, "collected"), "{}", python.name);
        let sum = |of: fn(&RingCycleCount) -> u64| {
            garbage.cycles.iter().map(|(_, count)| of(count)).sum::<u64>()
        };
        assert_eq!(
            [
                sum(|count| count.count.into()),
                sum(|count| count.objects),
                sum(|count| count.held_objects)
            ],
            ["count", "objects", "held"].map(|name| number(&truth, name)),
            "{}",
            python.name
        );
        compared(&python, "cycles", number(&truth, "count"));
    }
}

#[test]
fn a_list_of_a_million_is_one_cycle() {
    for python in with_list("a_list_of_a_million_is_one_cycle") {
        let arguments = ["linked", "1000000"];
        let run = run(with_cycles(), &mut cycles(&python, &arguments));
        let truth = truth(&python, &run);
        let garbage = since(&run, &truth);
        let [(edges, count)] = garbage.first().unwrap().cycles.as_slice() else {
            panic!("{}: one cycle", python.name)
        };
        assert_eq!((count.count, count.objects), (1, 1_000_000), "{}", python.name);
        let types: Vec<_> = edges.iter().map(|((name, ..), _)| name.as_str()).collect();
        assert_eq!(types, ["garbage.Slots"; 2], "{}", python.name);
    }
}

/// As without cycles: see `garbage.rs`.
#[test]
fn nothing_of_it_can_be_seen() {
    for python in with_list("nothing_of_it_can_be_seen") {
        let types = InjectOptions { garbage: GarbageDetail::Types, ..all() };
        let mut truths = [types, with_cycles()].map(|options| {
            let run = run(options, &mut script(&python, &["visible"]));
            let examined = run.only().garbage();
            let has_cycles = examined.iter().all(|examined| examined.head.cycles.is_some());
            assert_eq!(has_cycles, options.garbage == GarbageDetail::Cycles);
            truth(&python, &run)
        });
        for truth in &mut truths {
            let truth = truth.as_object_mut().unwrap();
            truth.remove("stats");
            truth["grown"].as_array_mut().unwrap().drain(..7);
        }
        assert_eq!(truths[0], truths[1], "{}", python.name);
    }
}

#[test]
fn threads_forks_and_a_kill() {
    for python in with_list("threads_forks_and_a_kill") {
        let threads = run(with_cycles(), &mut script(&python, &["threads"]));
        truth(&python, &threads);
        assert!(threads.only().garbage().len() > 10, "{}", python.name);
        let settle = Duration::from_millis(20);
        let command = &mut script(&python, &["fork"]);
        let fork = run_with_children(with_cycles(), command, settle);
        assert_eq!(truth(&python, &fork)["status"], 0, "{}", python.name);
        assert_eq!(fork.rings.len(), 2, "{}", python.name);
        assert!(fork.rings.iter().all(|ring| !ring.garbage().is_empty()));
        let command = &mut script(&python, &["killed", "150"]);
        let killed = run_with_children(with_cycles(), command, settle);
        let ring = killed.rings.iter().find(|ring| !ring.hello.is_fork).unwrap();
        assert_eq!(ring.switched_off, None);
        assert!(ring.garbage().iter().all(|of| of.head.objects > 0), "{}", python.name);
    }
}
