//! Kernel tier: `--mode both` when one source is read long after the other, or neither has room:
//! every collection that a process counts is in the trace once, or lost once.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use serde_json::Value;
use std::path::Path;
use test_kit::interpreters::any_python;
use test_kit::recording;
use test_kit::recording::Trace;

/// A recording of `tests/python/unread.py`.
struct Unread {
    trace: Trace,
    truths: Vec<Value>,
    place: tempfile::TempDir,
    messages: String,
}

fn record(test: &str, options: &[&str], what: &str, number: u32) -> Option<Unread> {
    let (python, place) = recording::place_for(test)?;
    let (script, folder) = (recording::scripts().join("unread.py"), place.path().join("truths"));
    let number = number.to_string();
    let fixed = ["--mode", "both", "-o", "trace.json"];
    let command = [
        "--",
        python.to_str().unwrap(),
        script.to_str().unwrap(),
        folder.to_str().unwrap(),
        what,
        &number,
    ];
    let output = recording::gctrace(&[&fixed[..], options, &command].concat(), place.path());
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{messages}");
    println!("{test}: {messages}");
    Some(Unread {
        trace: Trace::read(&place.path().join("trace.json")),
        truths: recording::truths(&folder),
        place,
        messages,
    })
}

impl Unread {
    /// Pauses of a process in the trace, and collections that it counted, until it wrote its truth.
    fn pauses_and_collections(&self, truth: &Value) -> (u64, u64) {
        let until_ns = truth["until_ns"].as_u64().unwrap();
        let pauses = self.trace.pauses_of(truth["pid"].as_u64().unwrap());
        let before = pauses.iter().filter(|pause| pause.end_ns <= until_ns);
        (before.count() as u64, truth["collections"].as_u64().unwrap())
    }

    fn analyze(&self, options: &[&str]) -> String {
        analyze(self.place.path(), options)
    }
}

fn analyze(place: &Path, options: &[&str]) -> String {
    let output = recording::gctrace(&[&["analyze", "trace.json"], options].concat(), place);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A report in one line, however its sentences were wrapped.
fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn with_separators(number: u64) -> String {
    let digits = number.to_string();
    let head = digits.len() % 3;
    let (first, rest) = digits.split_at(head);
    let groups = rest.as_bytes().chunks(3).map(String::from_utf8_lossy);
    let groups = [first.into()].into_iter().chain(groups);
    let groups: Vec<_> = groups.filter(|group| !group.is_empty()).collect();
    groups.join(",")
}

/// More processes wait to hand over their rings than gctrace accepts in the time that a pause once
/// waited for its other record.
#[test]
fn records_read_long_after_each_other_are_of_one_pause() {
    let test = "records_read_long_after_each_other_are_of_one_pause";
    let Some(unread) = record(test, &[], "crowd", 300) else {
        return;
    };
    assert_eq!(unread.truths.len(), 302);
    for truth in &unread.truths {
        let (pauses, collections) = unread.pauses_and_collections(truth);
        assert_eq!(pauses, collections, "{truth}");
    }
    unread.trace.assert_nothing_lost();
    assert!(unread.messages.contains(" 0 in-process alone)"), "{}", unread.messages);
    let full = unwrapped(&unread.analyze(&["--full"]));
    assert!(full.contains("Nothing was lost."), "{full}");
}

/// Rings overflow: a collection that neither source recorded counts once in every figure, and one
/// that either recorded does not count.
fn lost_once(test: &str, what: &str, number: u32) {
    let options = ["--ring-size", "64KiB", "--stack-depth", "0", "--sample", "0"];
    let Some(unread) = record(test, &options, what, number) else {
        return;
    };
    let mut missing = 0;
    for truth in &unread.truths {
        let (pauses, collections) = unread.pauses_and_collections(truth);
        assert!(pauses <= collections, "{truth}: {pauses} pauses");
        missing += collections - pauses;
    }
    assert!(missing > 100, "{missing}");
    let lost = unread.trace.end()["lost"].as_object().unwrap();
    let lost: Vec<_> = lost.iter().collect();
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert_eq!(lost[0].1.as_u64(), Some(missing), "{lost:?}");
    let message =
        format!("; {} events LOST; a larger --ring-size keeps more", with_separators(missing));
    assert!(unread.messages.contains(&message), "{}", unread.messages);
    let report = format!("{} events lost: collections: ", with_separators(missing));
    for options in [&[][..], &["--full"]] {
        let text = unwrapped(&unread.analyze(options));
        assert!(text.contains(&report), "{report}: {text}");
    }
}

/// Both rings overflow, the library's much later.
#[test]
fn collections_of_one_process_are_lost_once() {
    let test = "collections_of_one_process_are_lost_once";
    lost_once(test, "collections", 90_000);
}

/// The probes' ring overflows; the library does not see the first collections of each process.
#[test]
fn collections_of_many_processes_are_lost_once() {
    let test = "collections_of_many_processes_are_lost_once";
    lost_once(test, "crowd", 200);
}

/// A thread is held up for seconds between the records of the two sources.
#[test]
fn a_record_written_seconds_after_the_other_is_of_the_same_pause() {
    let test = "a_record_written_seconds_after_the_other_is_of_the_same_pause";
    let Some(unread) = record(test, &[], "slow", 2) else {
        return;
    };
    for truth in &unread.truths {
        let (pauses, collections) = unread.pauses_and_collections(truth);
        assert_eq!(pauses, collections, "{truth}");
    }
    unread.trace.assert_nothing_lost();
    // From 3.13 on the probes' record has the time of the callbacks, and comes last.
    println!("{test}: {}", any_python().display());
}
