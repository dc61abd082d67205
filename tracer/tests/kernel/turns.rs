//! Kernel tier: turns of loops, by probes and in-process (which needs no rights), against the log of each turn that the
//! loops write themselves, and planted causes.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, outside of #[test]")]

use super::samples::{SampledRun, on_sampled_interpreters};
use serde_json::Value;
use test_kit::recording::{Pause, nanoseconds};

/// Turns of `asyncio` until its entries are seen: gctrace is woken by its first wait, on a machine that may be busy.
const BEFORE: u64 = 25;
/// The program's clock and the kernel's are read one after the other, and the thread may be preempted in between; in ns.
const APART_NS: u64 = 1_000_000;

/// CPU time of another machine within a turn of 30 ms, at most, in ns.
const STOLEN_NS: u64 = 6_000_000;
/// In-process, a thread has a loop from its second wait on.
const BEFORE_IN_PROCESS: u64 = 2;

on_sampled_interpreters!(check);

mod in_process {
    super::on_sampled_interpreters!(super::check_in_process);
}

fn check(test: &str, name: &str) {
    if let Some(run) = SampledRun::of(test, name, "turns.py", &[]) {
        is_true(&run, &["asyncio", "selector", "poll", "pool", "threads"], BEFORE);
    }
}

fn check_in_process(test: &str, name: &str) {
    if let Some(run) = SampledRun::in_mode("inject", test, name, "turns.py", &[]) {
        is_true(&run, &["asyncio", "selector", "poll"], BEFORE_IN_PROCESS);
    }
}

/// `before`: turns that may be missed at the start.
fn is_true(run: &SampledRun, kinds: &[&str], before: u64) {
    for kind in kinds {
        let log = &run.truth[kind];
        let loops = run.report["loops"].as_array().unwrap();
        let is_its = |of: &&Value| match (*kind, of["call"].as_str().unwrap()) {
            ("pool", call) => call == "queue",
            ("threads", call) => call == "thread",
            (_, call) => call != "queue" && call != "thread",
        };
        let found = loops.iter().filter(is_its).find(|of| of["pid"] == log["pid"]);
        let found = found.unwrap_or_else(|| panic!("{kind}: {loops:?}"));
        is_counted(kind, log, found, before);
        adds_up(kind, found);
        let turns: Vec<Value> =
            run.events("turn").into_iter().filter(|turn| turn["pid"] == log["pid"]).collect();
        let pauses = run.trace().pauses_of(log["pid"].as_u64().unwrap());
        for turn in &turns {
            has_its_pauses(kind, turn, &pauses);
        }
        for (cause, planted) in log["planted"].as_object().unwrap() {
            for planted in planted.as_array().unwrap() {
                is_found(kind, cause, planted, &turns);
            }
        }
    }
}

fn is_counted(kind: &str, log: &Value, found: &Value, before: u64) {
    let lengths = log["lengths"].as_array().unwrap();
    let longest_ns = lengths.iter().map(|ns| ns.as_u64().unwrap()).max().unwrap();
    let (logged, turns) = (lengths.len() as u64, found["turns"].as_u64().unwrap());
    let (most, before) = match kind {
        // A worker that another one was faster than is woken for nothing, which the pool does not log.
        "pool" => (3 * logged, before),
        "threads" => (logged, 0),
        _ => (logged, before),
    };
    assert!(turns <= most && turns + before >= logged, "{kind}: {turns} of {logged}, {found}");
    let found_ns = found["figures"]["longest_ns"].as_u64().unwrap();
    assert!(found_ns + APART_NS >= longest_ns, "{kind}: {found_ns} of {longest_ns}");
}

fn adds_up(kind: &str, found: &Value) {
    let longest = found["longest"].as_array().unwrap();
    assert_eq!(longest.len(), 10, "{kind}: {found}");
    for turn in longest {
        let parts = turn["parts"].as_array().unwrap();
        let sum: u64 = parts.iter().map(|part| part["time_ns"].as_u64().unwrap()).sum();
        assert_eq!(sum, turn["length_ns"].as_u64().unwrap(), "{kind}: {turn}");
    }
}

/// A turn's time in collections is the length of the ones in its thread.
fn has_its_pauses(kind: &str, turn: &Value, pauses: &[Pause]) {
    let from_ns = nanoseconds(&turn["ts"]);
    let within = from_ns..from_ns + nanoseconds(&turn["dur"]);
    let pauses = pauses.iter().filter(|pause| turn["tid"] == pause.tid);
    let pauses = pauses.filter(|pause| within.contains(&pause.start_ns));
    let expected_ns: u64 = pauses.map(|pause| pause.end_ns - pause.start_ns).sum();
    let in_pauses_ns = turn["args"]["in_pauses_ns"].as_u64().unwrap();
    assert!(in_pauses_ns.abs_diff(expected_ns) <= APART_NS, "{kind}: {expected_ns} ns, {turn}");
}

/// The turn with a planted cause has as much of it as was planted: a collection or a sleep is all of it, a computation
/// 30 ms on the CPU. Everything else it can have is waiting for a CPU.
fn is_found(kind: &str, cause: &str, planted: &Value, turns: &[Value]) {
    let (start_ns, planted_ns) = (planted[0].as_u64().unwrap(), planted[1].as_u64().unwrap());
    let end_ns = start_ns + planted_ns;
    let turn = turns.iter().find(|turn| {
        let from_ns = nanoseconds(&turn["ts"]);
        let to_ns = from_ns + nanoseconds(&turn["dur"]);
        let spans_it = from_ns <= start_ns + APART_NS && to_ns + APART_NS >= end_ns;
        turn["tid"] == planted[3] && spans_it
    });
    let turn = turn.unwrap_or_else(|| panic!("{kind}: no turn of {cause} at {start_ns}"));
    let in_pauses_ns = turn["args"]["in_pauses_ns"].as_u64().unwrap();
    let waits = turn["args"]["waits"].as_array().unwrap();
    let cpu_ns = turn["args"]["cpu_ns"].as_u64();
    let length_ns = nanoseconds(&turn["dur"]) - in_pauses_ns;
    let waited = |reasons: &[&str]| -> u64 {
        // In-process, all time off the CPU is one.
        if let Some(cpu_ns) = cpu_ns {
            return length_ns - cpu_ns;
        }
        let of = waits.iter().filter(|wait| reasons.contains(&wait[0].as_str().unwrap()));
        of.map(|wait| wait[1].as_u64().unwrap()).sum()
    };
    let all_ns: u64 = waits.iter().map(|wait| wait[1].as_u64().unwrap()).sum();
    let ran_ns = cpu_ns.unwrap_or(length_ns - all_ns);
    // A thread's CPU time contains what a hypervisor takes from it.
    let stolen_ns = if cpu_ns.is_some() { STOLEN_NS } else { 0 };
    let (of_it_ns, least_ns) = match cause {
        // The thread may be preempted before and after the pause. In-process, the library and the collector work there.
        "collects" => {
            assert!(in_pauses_ns > planted_ns / 2, "{kind}: {planted_ns}, {turn}");
            let outside_ns = planted_ns / if cpu_ns.is_some() { 5 } else { 20 };
            let least_ns = planted_ns - outside_ns - APART_NS.min(planted_ns / 2);
            (nanoseconds(&turn["dur"]) - ran_ns, least_ns)
        }
        "sleeps" => (waited(&["sleep"]), 29_000_000 - stolen_ns),
        "sleeps_often" => (waited(&["sleep"]), 60 * 380_000 - stolen_ns),
        "computes" => (ran_ns, 29_000_000),
        // The loop may begin to wait late, on a machine that stood still.
        "locks" => {
            let waited_ns = planted[2].as_u64().unwrap();
            (waited(&["lock", "gil", "cpu"]), (waited_ns * 2 / 3).saturating_sub(APART_NS))
        }
        "mixes" => ((in_pauses_ns > 0).into(), 1),
        other => panic!("{other} is not a cause"),
    };
    assert!(of_it_ns >= least_ns, "{kind}, {cause}: {of_it_ns} of {least_ns} ns, {turn}");
}
