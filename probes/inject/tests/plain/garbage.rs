//! The garbage of collections counted by the library, against the interpreter's own: what
//! `DEBUG_SAVEALL` keeps, `gc.get_stats()`, and that nothing of it can be seen.

#![expect(clippy::panic, clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use crate::garbage_harness;

use garbage_harness::{all, between, equal, number, script, truth, with_list};
use gctrace_ring::{GarbageDetail, InjectOptions, PythonMessage, RingKindCount, RingReason};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;
use test_kit::interpreters::{Python, compared, interpreters, root};
use test_kit::preload::{SeenGarbage, SeenKind, run};

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
        assert_eq!(garbage.head.objects, kinds.values().sum::<u64>(), "{}", python.name);
        assert!(garbage.head.cost_ns > 0);
        let sizes: BTreeMap<String, u64> = serde_json::from_value(truth["sizes"].clone()).unwrap();
        for (name, bytes) in sizes {
            let of = garbage.kinds.iter().filter(|(kind, _)| kind.0 == name);
            let sum: u64 = of.filter_map(|(_, count)| count.bytes).sum();
            assert_eq!(sum, bytes, "{} {name}", python.name);
        }
        code_is_named(&python, garbage, number(&truth, "recursive"));
        compared(&python, "types, in-process", kinds.len());
    }
}

/// Objects that belong to code have its name, and the line.
fn code_is_named(python: &Python, garbage: &SeenGarbage, recursive: u64) {
    let file = root().join("tests/python/garbage.py");
    let qualified = |name: &'static str, plain: &'static str| {
        if python.version >= (3, 11, 0) { name } else { plain }
    };
    let recursive = (qualified("closure.<locals>.recursive", "recursive"), Some(recursive));
    for (name, (function, line)) in [
        ("function", recursive),
        ("cell", recursive),
        ("traceback", ("mixed", None)),
        ("method", (qualified("Holder.call", "call"), None)),
        ("coroutine", ("coroutine", None)),
    ] {
        let kinds = garbage.kinds.iter().filter(|(kind, _)| kind.0 == name);
        let most = kinds.max_by_key(|(_, count)| count.objects);
        let ((_, function_name, from, at), count) =
            most.unwrap_or_else(|| panic!("{}: no {name}", python.name));
        assert_eq!(
            (function_name.as_str(), from.as_str()),
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
        assert_eq!((types["generator"], types["list"]), (100, 100), "{}", python.name);
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
        assert!(garbage.len() > least && sum > 50_000, "{}: {}", python.name, garbage.len());
        compared(&python, "objects, in-process", sum);
    }
}

#[test]
fn nothing_of_it_can_be_seen() {
    for python in interpreters("nothing_of_it_can_be_seen") {
        let off = InjectOptions { garbage: GarbageDetail::Off, ..all() };
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
            // too. Free-threaded builds count in batches.
            if python.is("incremental") || python.is("free-threaded") {
                truth.remove("counts");
            }
        }
        assert_eq!(truths[0], truths[1], "{}", python.name);
        assert!(truths[0]["more"] == 0 && truths[0]["called"].as_u64() >= Some(7));
        if python.is("free-threaded") {
            compared(&python, "kinds, in-process", "refused");
        }
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
        let same = garbage.iter().filter(|garbage| garbage.head.objects == each);
        assert_eq!(same.count(), 4, "{}", python.name);
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
            assert_eq!(garbage.types().get(&name), Some(&1), "{}: {name}", python.name);
            let is_class = |(kind, _): &&(SeenKind, RingKindCount)| {
                kind.0 == "type" && kind.1 == format!("Made{index}") && kind.3 > 0
            };
            assert_eq!(garbage.kinds.iter().filter(is_class).count(), 1, "{}: {name}", python.name);
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
fn only_what_the_budget_allows() {
    for python in with_list("only_what_the_budget_allows") {
        let options = InjectOptions { garbage_budget_ppm: 0, ..all() };
        let run = run(options, &mut script(&python, &["automatic"]));
        let truth = truth(&python, &run);
        let pairs = between(run.only(), &truth);
        let examined = pairs.iter().filter(|(garbage, _)| garbage.is_some()).count();
        let freeing = pairs.iter().filter(|(_, collected)| *collected > 0).count();
        assert!(examined < freeing / 2, "{}: {examined}", python.name);
        let full = |(garbage, collected): &(Option<SeenGarbage>, u64)| {
            garbage.as_ref().is_none_or(|garbage| garbage.head.objects == *collected)
        };
        assert!(pairs.iter().all(full), "{}", python.name);
        for pause in run.only().pauses() {
            let (start, end) = (pause.interval.start_ns, pause.interval.end_ns);
            let garbage = run.only().garbage();
            let has = garbage.iter().any(|garbage| (start..=end).contains(&garbage.head.at_ns));
            let is_full = pause.generation == 2
                && pause.collected > Some(0)
                && pause.reason != RingReason::Exit;
            assert!(has || !is_full, "{}: {pause:?}", python.name);
        }
    }
}

#[test]
fn kinds_are_those_that_probes_see() {
    for python in with_list("kinds_are_those_that_probes_see") {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("truth.json");
        let mut command = Command::new(&python.path);
        command.arg(root().join("tests/python/freed.py"));
        let run = run(all(), command.arg(&file).arg("kinds"));
        assert!(run.status.success(), "{}: {}", python.name, run.errors);
        let truth: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let [truth] = truth.as_array().unwrap().as_slice() else {
            panic!("{}: {truth}", python.name)
        };
        let garbage = run.only().garbage();
        let window = number(truth, "begin")..number(truth, "end");
        let mut garbage = garbage.iter().filter(|garbage| window.contains(&garbage.head.at_ns));
        let kinds = &garbage.next().unwrap().kinds;
        let text = |text: &String| Value::from((!text.is_empty()).then_some(text.as_str()));
        let seen: BTreeMap<String, u64> = kinds
            .iter()
            .map(|((name, function, file, line), count)| {
                let line = Value::from((*line > 0).then_some(*line));
                let words = [text(name), text(function), text(file), line];
                let words: Vec<String> = words.iter().map(Value::to_string).collect();
                (format!("[{}]", words.join(", ")), count.objects)
            })
            .collect();
        let expected: BTreeMap<String, u64> =
            serde_json::from_value(truth["kinds"].clone()).unwrap();
        assert_eq!(seen, expected, "{}", python.name);
        compared(&python, "kinds, in-process", seen.len());
    }
}

#[test]
fn a_program_that_keeps_making_classes() {
    let script = r"
import gc
gc.disable()
for turn in range(50):
    for index in range(120):
        made = type('Made%d_%d' % (turn, index), (), {'method': lambda self: self})
        own = made()
        own.own = own
    del made, own
    gc.collect()
def the_last_function():
    own = []
    own.append(own)
    del own
    gc.collect()
the_last_function()
";
    for python in with_list("a_program_that_keeps_making_classes") {
        let run = run(all(), &mut python.command(script));
        assert!(run.status.success(), "{}: {}", python.name, run.errors);
        let ring = run.only();
        let garbage = ring.garbage();
        let unnamed = garbage.iter().any(|garbage| {
            let named: u64 = garbage.kinds.iter().map(|(_, count)| count.objects).sum();
            named < garbage.head.objects
        });
        assert!(unnamed, "{}: 12,000 kinds are too many", python.name);
        let kinds = |record: &&PythonMessage| matches!(record, PythonMessage::ObjectKind { .. });
        let kinds = ring.records.iter().filter(kinds).count();
        assert!((8_192..9_000).contains(&kinds), "{}: {kinds}", python.name);
        let frames = ring.pauses().into_iter().map(|pause| pause.frame);
        let is_last = |frame| {
            let stack = ring.stack(frame);
            stack.first().is_some_and(|(function, ..)| function == "the_last_function")
        };
        assert!(frames.filter(|frame| *frame != 0).any(is_last), "{}", python.name);
        let last = garbage.iter().rfind(|garbage| garbage.types().contains_key("list"));
        assert!(last.is_some(), "{}: the kinds of CPython have room of their own", python.name);
    }
}
