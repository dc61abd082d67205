//! What a program does, against what the program reports about itself: `sys._current_frames`, `gc`,
//! `sys._debugmallocstats`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use crate::script::Script;

use gctrace_event::OffCpuReason;
use gctrace_heap::state::{BlockSizes, GenerationState, ProgramState};
use gctrace_heap::{StateOptions, look};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::process::Command;
use test_kit::interpreters::{Python, interpreters, root};

#[derive(Debug, Deserialize)]
struct Truth {
    stacks: BTreeMap<u32, Vec<(String, String, u32)>>,
    thresholds: Vec<i32>,
    counts: Vec<i32>,
    generations: Vec<Generation>,
    frozen: u64,
    is_enabled: bool,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Generation {
    collections: u64,
    collected: u64,
    uncollectable: u64,
}

/// The number of a call stands for what is waited for.
const OPTIONS: fn() -> StateOptions = || StateOptions {
    resolve: gctrace_probes::ResolveOptions::default(),
    depth: 64,
    reason: |number, _| {
        if number == libc::SYS_futex { OffCpuReason::Lock } else { OffCpuReason::Other }
    },
};

#[test]
fn stacks_and_collector_are_as_seen_from_within() {
    for python in interpreters("stacks_and_collector_are_as_seen_from_within") {
        for freezes in [false, true] {
            let mut command = Command::new(&python.path);
            command.arg(root().join("tests/python/dump_truth.py"));
            command.args(freezes.then_some("freeze"));
            let mut script = Script::run(command);
            let truth: Truth = script.line();
            script.wait_until_idle();
            // On a busy machine another program may have had the CPU for all of the time that reading may take.
            let looks =
                std::iter::repeat_with(|| look(script.pid(), &OPTIONS()).expect(&python.name));
            let is_whole = |found: &ProgramState| {
                found.notes.is_empty() && !found.interpreters.iter().any(|one| one.is_more_frozen)
            };
            let found = looks.take(20).find(is_whole).expect(&python.name);
            let name = format!("{} {freezes}: {found:#?}", python.name);
            // Its thread goes on after it has printed, and is left out of the truth.
            let stacks: BTreeMap<u32, Vec<(String, String, u32)>> = found
                .threads
                .iter()
                .filter(|thread| thread.tid.is_some_and(|tid| truth.stacks.contains_key(&tid)))
                .map(|thread| {
                    let frames = thread.frames.iter().cloned().map(|frame| {
                        let [file, function] =
                            [frame.file, frame.function].map(Option::unwrap_or_default);
                        (file, function, frame.line.unwrap_or(0))
                    });
                    (thread.tid.unwrap_or(0), frames.collect())
                })
                .collect();
            assert_eq!(stacks, truth.stacks, "{name}");
            assert_eq!(stacks.len(), 3, "{name}");
            assert_eq!(found.threads[0].tid, Some(script.pid()), "{name}");
            assert!(
                found.threads.iter().any(|one| one.waits_for == Some(OffCpuReason::Lock)),
                "{name}"
            );
            let [interpreter] = &found.interpreters[..] else { panic!("{name}") };
            assert_eq!(interpreter.is_enabled, Some(truth.is_enabled), "{name}");
            assert_eq!(interpreter.is_collecting, Some(false), "{name}");
            let own = truth.generations.iter().map(|one| GenerationState {
                collections: one.collections,
                collected: one.collected,
                uncollectable: one.uncollectable,
            });
            assert_eq!(interpreter.generations, own.collect::<Vec<_>>(), "{name}");
            if python.is("free-threaded") {
                // One threshold has an effect; frozen objects are in no list.
                assert_eq!(interpreter.thresholds.first(), truth.thresholds.first(), "{name}");
                continue;
            }
            assert_eq!(interpreter.thresholds[..2], truth.thresholds[..2], "{name}");
            assert_eq!(interpreter.counts[1..], truth.counts[1..], "{name}");
            assert_eq!(interpreter.frozen_objects, Some(truth.frozen), "{name}");
            assert!(!freezes || truth.frozen > 3000, "{name}");
        }
    }
}

/// What the script prints, and the number of blocks in use.
fn stats(script: &mut Script) -> (String, u64) {
    let mut text = String::new();
    loop {
        let line = script.text();
        if let Some(blocks) = line.strip_prefix("blocks ") {
            return (text, blocks.parse().unwrap());
        }
        text.push_str(&line);
        text.push('\n');
    }
}

/// A number in what `sys._debugmallocstats` prints, after a label.
fn after(text: &str, label: &str) -> u64 {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(label));
    let number = line.and_then(|line| line.split('=').nth(1)).unwrap();
    number.trim().replace(',', "").parse().unwrap()
}

/// The rows of its table: size of a block, pools, blocks in use and free.
fn table(text: &str) -> Vec<BlockSizes> {
    let rows = text.lines().skip_while(|line| !line.starts_with("-----")).skip(1);
    let rows = rows.take_while(|line| !line.trim().is_empty());
    let numbers = rows.map(|line| {
        let words = line.split_ascii_whitespace().map(|word| word.parse().unwrap());
        words.collect::<Vec<u64>>()
    });
    numbers
        .map(|row| BlockSizes {
            block_bytes: row[1],
            pools: row[2],
            used_blocks: row[3],
            free_blocks: row[4],
        })
        .collect()
}

/// Blocks, pools and arenas are those that the allocator itself prints.
#[test]
fn the_allocator_has_what_it_says() {
    /// Blocks that come and go as the script prints and begins to wait.
    const SOME: u64 = 8;
    for python in interpreters("the_allocator_has_what_it_says") {
        let mut command = Command::new(&python.path);
        command.arg(root().join("tests/python/pymalloc_truth.py"));
        let mut script = Script::run(command);
        let (text, blocks) = stats(&mut script);
        script.wait_until_idle();
        let found = look(script.pid(), &OPTIONS()).expect(&python.name);
        if python.is("free-threaded") {
            assert_eq!(found.pymalloc, None, "{}", python.name);
            let why = found.without_pymalloc.unwrap_or_default();
            assert!(why.contains("mimalloc"), "{} {why}", python.name);
            continue;
        }
        let own = found.pymalloc.clone().unwrap_or_else(|| panic!("{}: {found:#?}", python.name));
        let name = format!("{}: {own:#?}\n{text}", python.name);
        let rows = table(&text);
        assert_eq!(own.arenas, after(&text, "# arenas allocated current"), "{name}");
        let used = own.used_bytes.unwrap_or_default();
        let truth = after(&text, "# bytes in allocated blocks");
        assert!(used.abs_diff(truth) <= SOME * 512, "{name}");
        let counted = own.used_blocks.unwrap_or_default();
        assert!(counted <= blocks && blocks - counted < blocks / 50, "{blocks} {name}");
        let of_rows: u64 = rows.iter().map(|row| row.used_blocks).sum();
        assert!(counted.abs_diff(of_rows) <= SOME, "{name}");
        // Whole pools are rarely among what changes.
        let same = rows.iter().zip(&own.sizes).filter(|(row, own)| {
            let is_close = row.used_blocks.abs_diff(own.used_blocks) <= SOME;
            row.block_bytes == own.block_bytes && row.pools == own.pools && is_close
        });
        assert_eq!((rows.len(), own.sizes.len()), (own.sizes.len(), rows.len()), "{name}");
        assert!(same.count() + 1 >= rows.len() && rows.len() >= 30, "{name}");
    }
}

/// Arenas and bytes are the sums of what each interpreter prints of its own.
#[test]
fn interpreters_with_their_own_allocators_are_counted() {
    let test = "interpreters_with_their_own_allocators_are_counted";
    let has_own = |python: &Python| python.version.1 >= 12 && !python.is("free-threaded");
    let mut pythons = interpreters(test);
    pythons.retain(has_own);
    if pythons.is_empty() {
        eprintln!("skipped {test}: it needs CPython 3.12");
    }
    for python in pythons {
        let mut command = Command::new(&python.path);
        command.arg(root().join("tests/python/pymalloc_interpreters.py"));
        let mut script = Script::run(command);
        let (text, blocks) = stats(&mut script);
        if blocks == 0 {
            eprintln!("skipped {test}: {}: {text}", python.name);
            continue;
        }
        script.wait_until_idle();
        let found = look(script.pid(), &OPTIONS()).expect(&python.name).pymalloc;
        let own = found.unwrap_or_else(|| panic!("{}", python.name));
        let sum = |what: &str| -> u64 {
            let parts = text.match_indices(what).map(|(at, _)| after(&text[at..], what));
            parts.sum()
        };
        let name = format!("{}: {own:#?}\n{text}", python.name);
        assert_eq!(own.allocators, 2, "{name}");
        assert_eq!(own.arenas, sum("# arenas allocated current"), "{name}");
        // What the other interpreter executed is freed after it printed.
        let (used, truth) =
            (own.used_bytes.unwrap_or_default(), sum("# bytes in allocated blocks"));
        assert!(truth > 20_000_000 && used.abs_diff(truth) < truth / 100, "{truth} {name}");
    }
}

/// Another allocator is not taken for it.
#[test]
fn without_arenas_the_allocator_is_unknown() {
    let test = "without_arenas_the_allocator_is_unknown";
    let pythons = interpreters(test).into_iter();
    for python in pythons.filter(|python| !python.is("free-threaded")) {
        let mut command = Command::new(&python.path);
        command.arg(root().join("tests/python/pymalloc_truth.py")).env("PYTHONMALLOC", "malloc");
        let mut script = Script::run(command);
        let (_printed, blocks) = stats(&mut script);
        if blocks > 0 {
            eprintln!("skipped {test}: {} ignores PYTHONMALLOC", python.name);
            continue;
        }
        let found = look(script.pid(), &OPTIONS()).expect(&python.name);
        assert_eq!(found.pymalloc, None, "{}", python.name);
        let why = found.without_pymalloc.unwrap_or_default();
        assert!(why.contains("PYTHONMALLOC"), "{} {why}", python.name);
    }
}

/// What cannot be looked at is said with what to do.
#[test]
fn what_is_no_python_is_said() {
    let mut sleep = Command::new("sleep").arg("100").spawn().expect("sleep");
    let error = look(sleep.id(), &OPTIONS()).expect_err("no Python").to_string();
    assert!(error.contains("gctrace doctor"), "{error}");
    let _ended = sleep.kill();
    let pid = sleep.id();
    let _ended = sleep.wait();
    let error = look(pid, &OPTIONS()).expect_err("gone").to_string();
    assert!(error.contains("ps -ef"), "{error}");
}
