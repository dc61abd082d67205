//! Reports of more traces than are described one by one.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

use crate::ranks_job;

use gctrace_analysis::Analysis;
use gctrace_analysis::report::{DESCRIBED_TRACES, Report};
use gctrace_event::read::{DecodedItem, TraceCompletion};
use gctrace_event::{Record, TraceHeader};
use ranks_job::{MS, Plan, Planned, START, run};
use serde_json::Value;
use std::collections::BTreeSet;

const RANKS: u32 = 160;

/// The rank that pauses for far longer than the others, on the host with the same number.
const SLOW: u32 = 131;

fn report() -> Report {
    let mut plan =
        Plan { ranks: RANKS, steps: 4, kernels: [4, 2, 2], numbered: true, ..Plan::default() };
    plan.pauses = (0..RANKS)
        .map(|rank| Planned {
            rank,
            step: u64::from(rank % 4),
            launch: 2,
            length_ns: if rank == SLOW { 90 } else { 2 + u64::from(rank % 3) } * MS,
        })
        .collect();
    let mut analysis = Analysis::default();
    for rank in run(&plan, START) {
        analysis.begin_trace(&format!("rank{}.json", rank.rank));
        let header =
            TraceHeader { host: format!("host{}", rank.rank / 8), ..test_kit::reports::header() };
        analysis.add(DecodedItem::Header(Box::new(header)));
        let pid = rank.records.iter().find_map(|record| match record {
            Record::Pause(pause) => Some(pause.pid),
            _ => None,
        });
        let pid = pid.unwrap();
        let process = test_kit::reports::process(pid, 0, "generational");
        let Record::Process(mut process) = process else {
            panic!("a process");
        };
        process.rank = Some(rank.rank);
        analysis.add(DecodedItem::Record(Record::Process(process)));
        for record in rank.records {
            analysis.add(DecodedItem::Record(record));
        }
        let end = test_kit::reports::end(200_000);
        analysis.add(DecodedItem::Record(Record::End(end)));
        analysis.end_trace(TraceCompletion::default(), None);
    }
    analysis.settle();
    analysis.report()
}

/// All values of members called `trace`, and all numbers of ranks beside one.
fn indices(value: &Value, found: &mut Vec<(u64, Option<u64>)>) {
    match value {
        Value::Object(members) => {
            if let Some(trace) = members.get("trace").and_then(Value::as_u64) {
                found.push((trace, members.get("rank").and_then(Value::as_u64)));
            }
            members.values().for_each(|member| indices(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| indices(item, found)),
        _ => {}
    }
}

#[test]
fn what_is_described_refers_to_described_traces_and_sums_stay() {
    let whole = report();
    let mut condensed = whole.clone();
    condensed.condense();
    assert_eq!(condensed.traces.len(), DESCRIBED_TRACES);
    assert_eq!(condensed.traces_left_out, u64::from(RANKS) - 128);
    let (before, after) =
        (serde_json::to_value(&whole).unwrap(), serde_json::to_value(&condensed).unwrap());
    for member in ["totals", "verdict", "advice", "by_generation", "missing"] {
        assert_eq!(before[member], after[member], "{member}");
    }
    assert_eq!(whole.worst.len(), condensed.worst.len());
    let mut found = Vec::new();
    indices(&after, &mut found);
    assert!(found.len() > 5 * DESCRIBED_TRACES, "{}", found.len());
    for (trace, rank) in &found {
        let file = &condensed.traces[usize::try_from(*trace).unwrap()].file;
        if let Some(rank) = rank {
            assert_eq!(*file, format!("rank{rank}.json"));
        }
    }
    let all: BTreeSet<u64> = found.iter().map(|(trace, _)| *trace).collect();
    assert_eq!(all.len(), DESCRIBED_TRACES, "each described trace has details");
    let job = &condensed.gpu.as_ref().unwrap().ranks.as_ref().unwrap().jobs[0];
    let pauses = job.pauses.as_ref().unwrap();
    assert_eq!(pauses.victims.len(), job.ranks.len());
    for source in pauses.sources.iter().chain([&pauses.all]) {
        assert_eq!(source.earlier_ns.len(), job.ranks.len());
    }
}

#[test]
fn ranks_and_hosts_that_stand_out_are_named() {
    let report = report();
    let job = &report.gpu.as_ref().unwrap().ranks.as_ref().unwrap().jobs[0];
    let paused = &job.spread[0];
    let sum = job.ranks.iter().map(|rank| rank.paused_ns).max().unwrap();
    assert_eq!((paused.max_ns, paused.max_ns), (90 * MS, sum));
    assert_eq!((paused.min_ns, paused.p50_ns), (2 * MS, 3 * MS));
    let outlier = &paused.outliers[0];
    assert_eq!((outlier.rank, outlier.value_ns), (SLOW, 90 * MS));
    assert_eq!(outlier.host.as_deref(), Some("host16"));
    assert!(outlier.z > 3.5, "{outlier:?}");
    assert_eq!(paused.hosts[0].host, "host16");
    assert_eq!(paused.hosts[0].ranks, 8);
}

#[test]
fn few_traces_are_all_described() {
    let mut report = report();
    report.traces.truncate(DESCRIBED_TRACES);
    let before = serde_json::to_string(&report).unwrap();
    report.condense();
    assert_eq!(serde_json::to_string(&report).unwrap(), before);
}
