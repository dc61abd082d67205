//! The output of `gctrace top --format json`, as any JSON reader sees it.

use super::{Pause, Trace, nanoseconds};
use serde_json::Value;
use std::collections::BTreeMap;

/// Every line of standard output, each an object.
pub fn objects(stdout: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(stdout).expect("UTF-8");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

/// Compares the last object's figures, by process and total, with a trace written at the same time.
pub fn equal_to_trace(last: &Value, trace: &Trace) {
    assert_eq!(
        sums(&last["totals"]["collections"]),
        counted(&without_examining(trace, trace.pauses()))
    );
    for process in last["processes"].as_array().expect("processes") {
        let pid = process["pid"].as_u64().expect("pid");
        assert_eq!(
            sums(&process["collections"]),
            counted(&without_examining(trace, trace.pauses_of(pid))),
            "process {pid}"
        );
    }
}

/// Pauses without the time of examining their garbage, as they are shown.
pub fn without_examining(trace: &Trace, mut pauses: Vec<Pause>) -> Vec<Pause> {
    let garbage = |event: &&Value| event["name"] == "gctrace_garbage";
    for garbage in trace.events.iter().filter(garbage) {
        let at_ns = nanoseconds(&garbage["ts"]);
        let cost_ns = garbage["args"]["cost_ns"].as_u64().unwrap_or(0);
        let pause = pauses.iter_mut().find(|pause| {
            let thread = garbage["pid"] == pause.pid && garbage["tid"] == pause.tid;
            thread && (pause.start_ns..=pause.end_ns).contains(&at_ns)
        });
        if let Some(pause) = pause {
            pause.end_ns -= cost_ns.min(pause.end_ns - pause.start_ns);
        }
    }
    pauses
}

/// Figures by name that both sides have.
type Sums = BTreeMap<String, u64>;

fn sums(collections: &Value) -> Sums {
    let number = |value: &Value| value.as_u64().expect("a number");
    let mut sums = Sums::new();
    for generation in 0..3 {
        let histogram = collections["histogram"][generation].as_array();
        let histogram: u64 = histogram.expect("a histogram").iter().map(number).sum();
        let pauses = number(&collections["pauses"][generation]);
        assert_eq!(pauses, histogram, "the histogram has all");
        add(&mut sums, format!("pauses {generation}"), pauses);
        let time = number(&collections["pause_ns"][generation]);
        add(&mut sums, format!("time {generation}"), time);
    }
    for (reason, by_generation) in collections["by_reason"].as_object().expect("reasons") {
        for generation in 0..3 {
            let one = &by_generation[generation];
            add(&mut sums, format!("{reason} {generation}"), number(&one["count"]));
            add(&mut sums, format!("time of {reason} {generation}"), number(&one["time_ns"]));
        }
    }
    for name in ["collected", "uncollectable"] {
        add(&mut sums, name.to_owned(), number(&collections[name]));
    }
    sums.insert("longest".to_owned(), number(&collections["longest_ns"]));
    sums
}

fn counted(pauses: &[Pause]) -> Sums {
    let mut sums = Sums::new();
    let mut longest = 0;
    for pause in pauses {
        let (generation, reason) = (pause.generation, &pause.reason);
        let time = pause.end_ns - pause.start_ns;
        add(&mut sums, format!("pauses {generation}"), 1);
        add(&mut sums, format!("time {generation}"), time);
        add(&mut sums, format!("{reason} {generation}"), 1);
        add(&mut sums, format!("time of {reason} {generation}"), time);
        for name in ["collected", "uncollectable"] {
            add(&mut sums, name.to_owned(), pause.number(name).unwrap_or(0));
        }
        longest = time.max(longest);
    }
    sums.insert("longest".to_owned(), longest);
    sums
}

fn add(sums: &mut Sums, name: String, value: u64) {
    if value > 0 {
        *sums.entry(name).or_default() += value;
    }
}

/// Intervals follow each other without gap or overlap, and no pause is in two of them. One that is
/// read late, on an overloaded machine, may be in none.
pub fn intervals_follow_each_other(objects: &[Value]) {
    let number = |value: &Value| value.as_u64().expect("a number");
    let until = |object: &Value| number(&object["interval_end_ns"]);
    for pair in objects.windows(2) {
        let [before, after] = pair else { continue };
        assert_eq!(until(after) - number(&after["interval_ns"]), until(before));
    }
    let last = objects.last().expect("an object");
    let mut counted = 0;
    for generation in 0..3 {
        let of = |object: &Value| number(&object["totals"]["interval_pauses"][generation]);
        let all: u64 = objects.iter().map(of).sum();
        let total = number(&last["totals"]["collections"]["pauses"][generation]);
        assert!(all <= total, "generation {generation}: {all} of {total}");
        counted += all;
    }
    assert!(counted > 0, "pauses are in intervals");
}
