//! Kernel tier: turns of loops, against the log of each turn that the loops write themselves, and planted causes.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use super::samples::{SampledRun, on_sampled_interpreters};
use serde_json::Value;
use test_kit::recording::nanoseconds;

/// Turns of `asyncio` until its entries are seen: gctrace is woken by its first wait, on a machine that may be busy.
const BEFORE: u64 = 25;
/// The program's clock and the kernel's are read one after the other, and the thread may be preempted in between; in ns.
const APART_NS: u64 = 1_000_000;

on_sampled_interpreters!(check);

fn check(test: &str, name: &str) {
    let Some(run) = SampledRun::of(test, name, "turns.py", &[]) else {
        return;
    };
    for kind in ["asyncio", "selector"] {
        let log = &run.truth[kind];
        let loops = run.report["loops"].as_array().unwrap();
        let found = loops.iter().find(|of| of["pid"] == log["pid"]);
        let found = found.unwrap_or_else(|| panic!("{kind}: {loops:?}"));
        is_counted(kind, log, found);
        adds_up(kind, found);
        let turns: Vec<Value> =
            run.events("turn").into_iter().filter(|turn| turn["pid"] == log["pid"]).collect();
        for (cause, planted) in log["planted"].as_object().unwrap() {
            for planted in planted.as_array().unwrap() {
                let span = (planted[0].as_u64().unwrap(), planted[1].as_u64().unwrap());
                is_found(kind, cause, span, &turns);
            }
        }
    }
}

fn is_counted(kind: &str, log: &Value, found: &Value) {
    let lengths = log["lengths"].as_array().unwrap();
    let longest_ns = lengths.iter().map(|ns| ns.as_u64().unwrap()).max().unwrap();
    let (logged, turns) = (lengths.len() as u64, found["turns"].as_u64().unwrap());
    assert!(turns <= logged && turns + BEFORE >= logged, "{kind}: {turns} of {logged}, {found}");
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

/// The turn with a planted cause has as much of it as was planted: a collection or a sleep is all of it, a computation
/// 30 ms on the CPU. Everything else it can have is waiting for a CPU.
fn is_found(kind: &str, cause: &str, (start_ns, length_ns): (u64, u64), turns: &[Value]) {
    let end_ns = start_ns + length_ns;
    let turn = turns.iter().find(|turn| {
        let from_ns = nanoseconds(&turn["ts"]);
        let to_ns = from_ns + nanoseconds(&turn["dur"]);
        from_ns <= start_ns + APART_NS && to_ns + APART_NS >= end_ns
    });
    let turn = turn.unwrap_or_else(|| panic!("{kind}: no turn of {cause} at {start_ns}"));
    let in_pauses_ns = turn["args"]["in_pauses_ns"].as_u64().unwrap();
    let waits = turn["args"]["waits"].as_array().unwrap();
    let waited = |reasons: &[&str]| -> u64 {
        let of = waits.iter().filter(|wait| reasons.contains(&wait[0].as_str().unwrap()));
        of.map(|wait| wait[1].as_u64().unwrap()).sum()
    };
    let all_ns: u64 = waits.iter().map(|wait| wait[1].as_u64().unwrap()).sum();
    let ran_ns = nanoseconds(&turn["dur"]) - in_pauses_ns - all_ns;
    let (of_it_ns, planted_ns) = match cause {
        "collects" => (in_pauses_ns, length_ns - length_ns / 20 - APART_NS.min(length_ns / 2)),
        "sleeps" => (waited(&["sleep"]), 29_000_000),
        "sleeps_often" => (waited(&["sleep"]), 60 * 380_000),
        "computes" => (ran_ns, 29_000_000),
        // The holder has begun to sleep before the loop waits.
        "locks" => (waited(&["lock", "gil", "cpu"]), 20_000_000),
        "mixes" => ((in_pauses_ns > 0).into(), 1),
        other => panic!("{other} is not a cause"),
    };
    assert!(of_it_ns >= planted_ns, "{kind}, {cause}: {of_it_ns} of {planted_ns} ns, {turn}");
}
