//! Kernel tier: what probes see collections free, against what the interpreter says of itself.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests, outside of #[test]"
)]

use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use test_kit::interpreters::{Python, compared};
use test_kit::limit::WithTimeout as _;
use test_kit::recording::{Pause, Trace};
use test_kit::{interpreters, recording};

test_kit::on_each_interpreter!(check);

/// The collections of one list of garbage each.
struct Recorded {
    trace: Trace,
    truth: Vec<Value>,
    _place: TempDir,
}

/// A garbage record, with its kinds resolved.
struct Examined {
    pid: u64,
    at_ns: u64,
    args: Value,
    /// Objects and bytes by type, function, file and line, as the script writes them.
    kinds: BTreeMap<String, (u64, Option<u64>)>,
}

impl Examined {
    fn objects(&self) -> u64 {
        self.args["objects"].as_u64().unwrap()
    }

    /// Objects and bytes of a type.
    fn of_type(&self, name: &str) -> (u64, Option<u64>) {
        let of = |kind: &str| serde_json::from_str::<Value>(kind).unwrap()[0] == name;
        let found = self.kinds.iter().filter(|(kind, _)| of(kind));
        found.fold((0, Some(0)), |(objects, bytes), (_, count)| {
            let sum = bytes.zip(count.1).map(|(one, other)| one + other);
            (objects + count.0, sum)
        })
    }
}

impl Recorded {
    /// Records a section of the script, every list of garbage examined.
    fn new(python: &Python, section: &[&str]) -> Self {
        Self::with(python, section, &["--garbage-budget", "100"])
    }

    fn with(python: &Python, section: &[&str], options: &[&str]) -> Self {
        let place = tempfile::tempdir().unwrap();
        let script = recording::scripts().join("freed.py");
        let mut line = vec!["--mode", "ebpf", "-o", "trace.json"];
        line.extend(options);
        line.extend(["--", python.path.to_str().unwrap()]);
        // Not relative: in a container, programs start elsewhere.
        let truth = place.path().join("truth.json");
        line.extend([script.to_str().unwrap(), truth.to_str().unwrap()]);
        line.extend(section);
        let output = recording::gctrace(&line, place.path());
        assert!(output.status.success(), "{section:?}: {output:?}");
        let mut truth = list(&truth);
        let child = place.path().join("truth.json.child");
        if child.exists() {
            truth.extend(list(&child));
        }
        Self { trace: Trace::read(&place.path().join("trace.json")), truth, _place: place }
    }

    fn examined(&self) -> Vec<Examined> {
        let named = |name: &'static str| {
            let events = self.trace.events.iter();
            events.filter(move |event| event["name"] == name)
        };
        let mut kinds = HashMap::new();
        for kind in named("gctrace_object_kind") {
            let args = &kind["args"];
            let words = ["type_name", "function", "file", "line"].map(|name| args[name].clone());
            let known = kinds.insert((kind["pid"].as_u64(), args["id"].as_u64()), words);
            assert!(known.is_none(), "a kind is written once: {kind}");
        }
        let resolved = |event: &Value| {
            let mut found: BTreeMap<String, (u64, Option<u64>)> = BTreeMap::new();
            for count in event["args"]["kinds"].as_array().unwrap() {
                let key = (event["pid"].as_u64(), count["kind"].as_u64());
                let words = kinds.get(&key).expect("a kind written before");
                let name = python_json(words);
                let value = (count["objects"].as_u64().unwrap(), count["bytes"].as_u64());
                assert!(found.insert(name, value).is_none(), "{event}");
            }
            Examined {
                pid: event["pid"].as_u64().unwrap(),
                at_ns: recording::nanoseconds(&event["ts"]),
                args: event["args"].clone(),
                kinds: found,
            }
        };
        named("gctrace_garbage").map(resolved).collect()
    }

    /// The records of an interval of the truth.
    fn within<'a>(&self, examined: &'a [Examined], interval: &Value) -> Vec<&'a Examined> {
        let time = |name: &str| interval[name].as_u64().unwrap();
        let (begin, end) = (time("begin"), time("end"));
        let pid = self.trace.host_pid(interval);
        let examined = examined.iter().filter(|one| one.pid == pid);
        examined.filter(|one| (begin..=end).contains(&one.at_ns)).collect()
    }

    /// In each interval what was examined is what was collected; returns the objects.
    fn assert_sums(&self, section: &str) -> u64 {
        let examined = self.examined();
        assert!(!self.truth.is_empty());
        let mut all = 0;
        for interval in &self.truth {
            let sum: u64 = self.within(&examined, interval).iter().map(|one| one.objects()).sum();
            let collected = interval["collected"].as_u64().unwrap();
            // What its parent began, a child completes; its own list is another one.
            let forked = interval["forked"] == true && sum == 0;
            assert!(sum == collected || forked, "{section}: {sum} of {interval}");
            all += sum;
        }
        all
    }

    /// Each pause that freed something has a record, and no other has one.
    fn assert_pauses(&self, section: &str) {
        let examined = self.examined();
        let mut matched = 0;
        for pause in self.trace.pauses() {
            let matching = examined.iter().filter(|one| is_of(one, &pause));
            let objects: Vec<u64> = matching.map(Examined::objects).collect();
            matched += objects.len();
            let collected = pause.number("collected").unwrap_or(0);
            let expected = if collected > 0 { 1 } else { 0 };
            assert_eq!(objects.len(), expected, "{section}: {pause:?}");
            // A weak reference that dies in a list is counted in the collector's sum (3.11).
            let sum: u64 = objects.iter().sum();
            assert!(collected.abs_diff(sum) <= 1, "{section}: {sum}, {pause:?}");
        }
        assert_eq!(matched, examined.len(), "{section}");
    }
}

fn is_of(examined: &Examined, pause: &Pause) -> bool {
    examined.pid == pause.pid && (pause.start_ns..=pause.end_ns).contains(&examined.at_ns)
}

fn list(path: &Path) -> Vec<Value> {
    recording::json(path).as_array().unwrap().clone()
}

/// As Python's json writes a list.
fn python_json(words: &[Value]) -> String {
    let words: Vec<String> = words.iter().map(Value::to_string).collect();
    format!("[{}]", words.join(", "))
}

/// The interpreter, if recording is possible.
fn python(test: &str, name: &str) -> Option<Python> {
    recording::privileged(test).then(|| interpreters::python(test, name)).flatten()
}

fn check(test: &str, name: &str) {
    let Some(python) = python(test, name) else {
        return;
    };
    if python.is("free-threaded") {
        free_threaded_builds_are_named(&python);
        return;
    }
    kinds_are_those_of_saveall(&python);
    for section in ["automatic", "freeze", "interpreter"] {
        let recorded = Recorded::new(&python, &[section]);
        if section == "interpreter" && recorded.truth.is_empty() {
            interpreters::skip(test, "this build has no module for subinterpreters");
            continue;
        }
        let objects = recorded.assert_sums(section);
        recorded.assert_pauses(section);
        recorded.trace.assert_nothing_lost();
        if section == "automatic" {
            compared(&python, "objects, probes", objects);
        }
    }
    classes_that_died_are_not_mistaken(&python);
    a_child_reports_its_own_garbage(&python);
}

fn kinds_are_those_of_saveall(python: &Python) {
    let recorded = Recorded::new(python, &["kinds"]);
    recorded.assert_sums("kinds");
    recorded.trace.assert_nothing_lost();
    let [interval] = &recorded.truth[..] else {
        panic!("{:?}", recorded.truth);
    };
    let examined = recorded.examined();
    let [one] = recorded.within(&examined, interval)[..] else {
        panic!("{}: one collection", python.name);
    };
    let expected: BTreeMap<String, u64> =
        serde_json::from_value(interval["kinds"].clone()).unwrap();
    let seen = one.kinds.iter().map(|(kind, (count, _))| (kind.clone(), *count));
    let seen: BTreeMap<String, u64> = seen.collect();
    assert_eq!(seen, expected, "{}", python.name);
    let sizes = interval["sizes"].as_object().unwrap();
    assert!(sizes.len() > 2, "{sizes:?}");
    for (name, bytes) in sizes {
        let (_, seen) = one.of_type(name);
        assert_eq!(seen, bytes.as_u64(), "{}: {name}", python.name);
    }
    compared(python, "kinds, probes", expected.len());
}

fn free_threaded_builds_are_named(python: &Python) {
    let recorded = Recorded::new(python, &["automatic"]);
    assert!(recorded.examined().is_empty());
    let text = format!("{:?}", recorded.trace.named("gctrace_note"));
    let sentence = "what collections free is not recorded: a free-threaded collector";
    assert_eq!(text.matches(sentence).count(), 1, "{text}");
    compared(python, "kinds, probes", "refused");
}

fn classes_that_died_are_not_mistaken(python: &Python) {
    let recorded = Recorded::new(python, &["classes"]);
    recorded.assert_sums("classes");
    let examined = recorded.examined();
    for interval in &recorded.truth {
        let [one] = recorded.within(&examined, interval)[..] else {
            panic!("{}: {interval}", python.name);
        };
        let (objects, _) = one.of_type(interval["type"].as_str().unwrap());
        assert_eq!(objects, 1, "{}: {interval} {:?}", python.name, one.kinds);
    }
}

fn a_child_reports_its_own_garbage(python: &Python) {
    let recorded = Recorded::new(python, &["fork"]);
    recorded.assert_sums("fork");
    let mut pids: Vec<_> = recorded.truth.iter().map(|one| one["pid"].as_u64()).collect();
    pids.dedup();
    assert_eq!(pids.len(), 2, "{:?}", recorded.truth);
}

/// An interpreter for tests that do not depend on its version.
fn any(test: &str) -> Option<(Python, TempDir)> {
    let python = python(test, "pyenv-3.12").or_else(|| python(test, "system-3.11"))?;
    Some((python, tempfile::tempdir().unwrap()))
}

/// The smallest check of all, for kernels that scripts/kernels.sh emulates.
#[test]
fn kinds_on_any_kernel() {
    let test = "kinds_on_any_kernel";
    let Some((python, _)) = any(test) else {
        return;
    };
    if !gctrace_ebpf::KernelSupport::probe().loops {
        let recorded = Recorded::new(&python, &["kinds"]);
        assert!(recorded.examined().is_empty());
        let notes = format!("{:?}", recorded.trace.named("gctrace_note"));
        assert!(notes.contains("bpf_loop"), "{notes}");
        interpreters::skip(test, "this kernel's programs cannot loop, which is noted");
        return;
    }
    kinds_are_those_of_saveall(&python);
}

#[test]
fn a_list_of_a_million_is_walked_and_a_longer_one_is_counted_as_lost() {
    let test = "a_list_of_a_million_is_walked_and_a_longer_one_is_counted_as_lost";
    let Some((python, _)) = any(test) else {
        return;
    };
    let recorded = Recorded::new(&python, &["linked", "1000000"]);
    recorded.assert_sums("linked");
    recorded.trace.assert_nothing_lost();
    let recorded = Recorded::new(&python, &["linked", "1100000"]);
    let examined = recorded.examined();
    assert!(recorded.within(&examined, &recorded.truth[0]).is_empty());
    let lost = &recorded.trace.end()["lost"];
    let what = "garbage of collections: more than 1,048,576 objects";
    assert_eq!(lost[what], 1, "{lost}");
}

#[test]
fn a_budget_examines_some_and_loses_nothing() {
    let test = "a_budget_examines_some_and_loses_nothing";
    let Some((python, _)) = any(test) else {
        return;
    };
    let recorded = Recorded::with(&python, &["automatic"], &["--garbage-budget", "0.01"]);
    recorded.trace.assert_nothing_lost();
    let examined = recorded.examined();
    let freed = recorded.trace.pauses();
    let freed = freed.iter().filter(|pause| pause.number("collected") > Some(0)).count();
    assert!(!examined.is_empty() && examined.len() < freed / 2, "{} of {freed}", examined.len());
    // What is examined is examined as a whole.
    for pause in recorded.trace.pauses() {
        for one in examined.iter().filter(|one| is_of(one, &pause)) {
            assert_eq!(Some(one.objects()), pause.number("collected"));
        }
    }
}

#[test]
fn it_can_be_turned_off_and_follows_min_pause() {
    let test = "it_can_be_turned_off_and_follows_min_pause";
    let Some((python, _)) = any(test) else {
        return;
    };
    let recorded = Recorded::with(&python, &["automatic"], &["--garbage", "off"]);
    assert!(recorded.examined().is_empty());
    let options = ["--garbage-budget", "100", "--min-pause", "1s"];
    let recorded = Recorded::with(&python, &["automatic"], &options);
    assert!(recorded.trace.pauses().is_empty() && recorded.examined().is_empty());
}

#[test]
fn cycles_need_the_library() {
    let test = "cycles_need_the_library";
    let Some((python, _)) = any(test) else {
        return;
    };
    let recorded = Recorded::with(&python, &["automatic"], &["--garbage", "cycles"]);
    let notes = recorded.trace.named("gctrace_note");
    let text = format!("{notes:?}");
    assert!(text.contains("in-process recording (--mode both)"), "{text}");
    assert!(recorded.examined().iter().all(|one| one.args["cycles"].is_null()));
}

/// Killed while garbage is examined all the time, gctrace leaves the program running.
#[test]
fn the_program_survives_gctrace() {
    let test = "the_program_survives_gctrace";
    let Some((python, place)) = any(test) else {
        return;
    };
    let truth: PathBuf = place.path().join("truth.json");
    let mut program = Command::new(&python.path)
        .arg(recording::scripts().join("freed.py"))
        .arg(&truth)
        .arg("endless")
        .spawn()
        .unwrap();
    for _ in 0..3 {
        let pid = program.id().to_string();
        let mut gctrace = Command::new(recording::binary())
            .args(["record", "--garbage-budget", "100", "-o", "trace.json", "-p", &pid])
            .current_dir(place.path())
            .spawn()
            .unwrap();
        recording::wait_until("a record of garbage", || {
            let text = std::fs::read_to_string(place.path().join("trace.json"));
            text.is_ok_and(|text| text.contains("gctrace_garbage"))
        });
        gctrace.kill().unwrap();
        gctrace.wait().unwrap();
        std::fs::remove_file(place.path().join("trace.json")).unwrap();
    }
    // It still collects: it replaces its file once more.
    std::fs::remove_file(&truth).unwrap();
    recording::wait_until("another round", || truth.exists());
    std::fs::write(place.path().join("truth.json.stop"), "").unwrap();
    assert!(program.status_in_time().unwrap().success());
}

/// Garbage that takes long to count, most of each pause's time.
const CYCLES: &str = "\
import gc
for step in range(40):
    for _ in range(20_000):
        pair = [], []
        pair[0].append(pair)
    gc.collect()
";

/// The walk of the garbage is in no figure of a pause: not in the last line, not in the report.
#[test]
fn the_last_line_the_trace_and_the_report_have_the_same_pauses() {
    let test = "the_last_line_the_trace_and_the_report_have_the_same_pauses";
    let Some((python, place)) = recording::place_for(test) else {
        return;
    };
    std::fs::write(place.path().join("cycles.py"), CYCLES).unwrap();
    let program = [python.to_str().unwrap(), "cycles.py"];
    let line = ["record", "--mode", "ebpf", "--garbage-budget", "100", "--"];
    let output = recording::gctrace(&[&line[..], &program].concat(), place.path());
    let printed = String::from_utf8(output.stderr).unwrap();
    let (report, walked_ns) = recording::assert_same_pauses(&printed, place.path());
    let own_ns = report["totals"]["pauses"]["time_ns"].as_u64().unwrap();
    assert!(walked_ns > own_ns / 10, "{walked_ns} of {own_ns} ns: {printed}");
}
