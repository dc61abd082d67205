//! Kernel tier: performance counters against getrusage(2), wait4(2) and each other.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use test_kit::limit::WithTimeout as _;
use test_kit::recording::{Pause, Trace};
use test_kit::{interpreters, recording};

/// Faults or switches between a callback and the collector's function.
const CLOSE: u64 = 8;

/// Threads of the script, and the longest tick of a kernel (HZ=100): the kernel updates a thread's
/// time at ticks.
const THREADS: u64 = 9;
const TICK_NS: u64 = 10_000_000;

test_kit::on_interpreters! {
    check;
    system_python => "system-3.11",
    cpython_3_8 => "pyenv-3.8",
    cpython_3_12 => "pyenv-3.12",
    debian_3_14 => "debian-3.14",
    free_threaded_3_13 => "manylinux-3.13t",
}

fn check(test: &str, name: &str) {
    if !recording::privileged(test) {
        return;
    }
    let Some(python) = interpreters::python(test, name) else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let counters = "page-faults,major-faults,context-switches,cpu-migrations,task-clock,cpu-clock";
    let (trace, truth, wait4) = record(&python.path, place.path(), counters);
    let pauses = trace.pauses_of(truth["pid"].as_u64().unwrap());
    for collection in truth["collections"].as_array().unwrap() {
        let pause = pause_of(&pauses, collection);
        agrees_with_getrusage(pause, collection);
        counted_what_happened(test, pause, collection);
    }
    // If a switch between threads was not seen, both report it.
    let known = |pause: &&Pause| {
        pause.number("cpu_ns").is_some() && pause.args["counters"]["migrated"] != true
    };
    assert!(pauses.iter().filter(known).count() > pauses.len() / 2, "{pauses:?}");
    clocks_agree(&pauses.iter().filter(known).collect::<Vec<_>>());
    let total = total(&trace, truth["pid"].as_u64().unwrap());
    process_agrees(total, &truth["process"], &wait4);
    outside_is_not_inside(total, &pauses);
}

/// The script's child under gctrace: the trace, what the child saw, what its parent got from
/// wait4(2).
fn record(python: &Path, place: &Path, counters: &str) -> (Trace, Value, Value) {
    let script = recording::scripts().join("counters.py");
    let truth = place.join("truth.json");
    let output = recording::gctrace(
        &[
            "--counters",
            counters,
            "--",
            python.to_str().unwrap(),
            script.to_str().unwrap(),
            truth.to_str().unwrap(),
        ],
        place,
    );
    assert!(output.status.success(), "{output:?}");
    let trace = Trace::read(&place.join("trace.json"));
    trace.assert_nothing_lost();
    let wait4 = recording::json(&place.join("truth.json.wait4"));
    assert_eq!(wait4["status"], 0, "{wait4}");
    (trace, recording::json(&truth), wait4)
}

/// The one pause that overlaps a collection seen by the callbacks.
fn pause_of<'a>(pauses: &'a [Pause], collection: &Value) -> &'a Pause {
    let time = |name: &str| collection[name].as_u64().unwrap();
    let mut found = pauses
        .iter()
        .filter(|pause| pause.start_ns < time("stop_ns") && pause.end_ns > time("start_ns"));
    let pause = found.next().unwrap();
    assert!(found.next().is_none(), "{collection}");
    pause
}

fn counter(pause: &Pause, name: &str) -> u64 {
    pause.args["counters"][name].as_u64().unwrap()
}

fn close(counted: u64, truth: u64, most: u64, what: &str) {
    assert!(counted.abs_diff(truth) <= most, "{what}: counted {counted}, should be {truth}");
}

fn agrees_with_getrusage(pause: &Pause, collection: &Value) {
    let used = |name: &str| collection["used"][name].as_u64().unwrap();
    let what = collection.to_string();
    close(counter(pause, "page-faults"), used("page_faults"), CLOSE, &what);
    close(counter(pause, "major-faults"), used("major_faults"), CLOSE, &what);
    close(counter(pause, "context-switches"), used("context_switches"), CLOSE, &what);
    assert_eq!(pause.number("cpu_ns"), pause.args["counters"]["task-clock"].as_u64(), "{pause:?}");
}

fn counted_what_happened(test: &str, pause: &Pause, collection: &Value) {
    let what = collection.to_string();
    let expected = collection["expected"].as_object().unwrap();
    for (name, value) in expected {
        let value = value.as_u64().unwrap();
        // Other programs may take the CPU too: more switches than requested are fine.
        match name.as_str() {
            "page_faults" => close(counter(pause, "page-faults"), value, CLOSE, &what),
            "context_switches" => assert!(counter(pause, "context-switches") >= value, "{what}"),
            "cpu_migrations" => close(counter(pause, "cpu-migrations"), value, 3, &what),
            other => unreachable!("{other}"),
        }
    }
    if collection["name"] == "from disk" && collection["used"]["major_faults"] == 0 {
        eprintln!(
            "skipped {test}: major faults: the file system of the temporary folder made none"
        );
    }
}

/// The CPU clocks are read like hardware counters. Over a pause they give the thread's time on a
/// CPU, whatever other threads ran there and however often it migrated. The hypervisor may stop the
/// CPU between the readings of both clocks, but not in many pauses.
fn clocks_agree(pauses: &[&Pause]) {
    let differs = |pause: &&&Pause| {
        let truth = pause.number("cpu_ns").unwrap();
        counter(pause, "cpu-clock").abs_diff(truth) > truth / 50 + 100_000
    };
    let differing = pauses.iter().filter(differs).count();
    assert!(pauses.len() >= 4 && differing <= 1 + pauses.len() / 10, "{differing} of {pauses:?}");
}

/// The last totals of a process.
fn total(trace: &Trace, pid: u64) -> &Value {
    let totals = trace.named("gctrace_counters");
    let (_, args) = totals.into_iter().rfind(|(of, _)| *of == pid).unwrap();
    &args["counters"]
}

/// wait4(2) counts to the very end of the process, gctrace to the start of its exit.
fn process_agrees(total: &Value, before_exit: &Value, wait4: &Value) {
    let counted = |name: &str| total[name].as_u64().unwrap();
    let truth = |name: &str| wait4[name].as_u64().unwrap();
    close(counted("page-faults"), truth("page_faults"), 20, "faults");
    close(counted("major-faults"), truth("major_faults"), 2, "majors");
    close(counted("context-switches"), truth("context_switches"), 40, "switches");
    let before_ns = before_exit["cpu_us"].as_u64().unwrap() * 1000;
    let most = THREADS * TICK_NS + before_ns / 20;
    close(counted("task-clock"), before_ns, most, "time");
    // Time stolen by the hypervisor or interrupts is only in the CPU's clock.
    assert!(counted("cpu-clock") + most >= before_ns, "{total}");
}

/// 3000 pages by the main thread and 2000 by others were touched outside of any collection.
fn outside_is_not_inside(total: &Value, pauses: &[Pause]) {
    for name in ["page-faults", "context-switches", "task-clock", "cpu-clock"] {
        let inside: u64 =
            pauses.iter().filter_map(|pause| pause.args["counters"][name].as_u64()).sum();
        assert!(total[name].as_u64().unwrap() >= inside, "{name}");
    }
    let inside: u64 = pauses.iter().map(|pause| counter(pause, "page-faults")).sum();
    assert!(total["page-faults"].as_u64().unwrap() >= inside + 5000, "{total} {inside}");
}

#[test]
fn none_counts_nothing_and_the_header_shows_it() {
    let Some((python, place)) = recording::place_for("none_counts_nothing_and_the_header_shows_it")
    else {
        return;
    };
    let (trace, truth, _) = record(&python, place.path(), "none");
    let pauses = trace.pauses_of(truth["pid"].as_u64().unwrap());
    assert!(!pauses.is_empty());
    assert!(pauses.iter().all(|pause| pause.args["counters"].is_null()));
    assert!(trace.named("gctrace_counters").is_empty());
    let (_, header) = trace.named("gctrace_header").pop().unwrap();
    assert_eq!(header["counters"], serde_json::json!([]));
    // The other options keep their effect.
    assert_eq!(header["stack_depth"], 24, "{header}");
    assert_eq!(header["cuda"], "launches", "{header}");
}

/// With a hardware PMU every pause has cycles; otherwise the trace states why not.
#[test]
fn hardware_counters_where_there_is_a_unit() {
    let test = "hardware_counters_where_there_is_a_unit";
    let Some((python, place)) = recording::place_for(test) else {
        return;
    };
    let (trace, truth, _) = record(&python, place.path(), "default");
    let (_, header) = trace.named("gctrace_header").pop().unwrap();
    if !gctrace_probes::counters::has_unit() {
        let why = header["counters_missing"]["cycles"].as_str().unwrap();
        assert!(why.contains("no hardware PMU"), "{why}");
        eprintln!("skipped {test}: counting itself: {why}");
        return;
    }
    let pid = truth["pid"].as_u64().unwrap();
    let pauses = trace.pauses_of(pid);
    let total = total(&trace, pid);
    for name in ["cycles", "instructions"] {
        let inside: Vec<u64> =
            pauses.iter().filter_map(|pause| pause.args["counters"][name].as_u64()).collect();
        assert!(!inside.is_empty() && inside.iter().all(|value| *value > 0));
        assert!(total[name].as_u64().unwrap() >= inside.iter().sum());
    }
}

/// Waits for the file `go`, touches 5000 fresh pages, writes `done`, waits for `stop`.
const ON_DEMAND: &str = "
import mmap, os, time
memory = mmap.mmap(-1, 5000 * 4096)
if hasattr(memory, 'madvise'): memory.madvise(14)
open('ready', 'w').close()
while not os.path.exists('go'): time.sleep(0.005)
for page in range(5000): memory[page * 4096] = 1
open('done', 'w').close()
while not os.path.exists('stop'): time.sleep(0.005)
";

/// For a process that ran before and keeps running, only the time of the recording counts.
#[test]
fn an_attached_process_is_counted_while_it_is_recorded() {
    let test = "an_attached_process_is_counted_while_it_is_recorded";
    let Some((python, place)) = recording::place_for(test) else {
        return;
    };
    let place = place.path();
    let wait_for = |name: &str| recording::wait_until(name, || place.join(name).exists());
    let mut program =
        Command::new(python).args(["-c", ON_DEMAND]).current_dir(place).spawn().unwrap();
    wait_for("ready");
    let pid = program.id().to_string();
    let mut gctrace = Command::new(recording::binary())
        .args(["record", "-q", "-p", &pid, "--counters", "page-faults,cpu-clock"])
        .current_dir(place)
        .spawn()
        .unwrap();
    recording::wait_until("attached", || {
        std::fs::read_to_string(place.join("trace.json"))
            .is_ok_and(|text| text.contains("gctrace_process"))
    });
    std::fs::write(place.join("go"), "").unwrap();
    wait_for("done");
    let signal = Signal::SIGINT;
    kill(Pid::from_raw(i32::try_from(gctrace.id()).unwrap()), signal).unwrap();
    gctrace.status_in_time().unwrap();
    std::fs::write(place.join("stop"), "").unwrap();
    program.status_in_time().unwrap();
    let trace = Trace::read(&place.join("trace.json"));
    let total = total(&trace, u64::from(program.id()));
    close(total["page-faults"].as_u64().unwrap(), 5000, 200, "faults");
    assert!(total["cpu-clock"].as_u64().unwrap() > 0, "{total}");
    assert!(total["context-switches"].is_null(), "{total}");
}
