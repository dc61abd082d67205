//! Summaries in place of their traces, in reports and tables. Needs no privileges.

use crate::traces;

use std::path::Path;
use std::process::Command;
use test_kit::limit::WithTimeout as _;
use traces::{Folder, Outcome, rank, traces};

/// The message for every failure, without those that only summaries have.
fn messages(outcome: &Outcome) -> Vec<&str> {
    let lines = outcome.err.lines();
    lines.filter(|line| !line.contains("no trace and no summary")).collect()
}

#[test]
fn a_report_on_summaries_is_that_on_the_traces() {
    let folder = Folder::new();
    let names = traces(&folder);
    // Each alone, all of a kind, and everything; the names sort like the summaries.
    let mut sets: Vec<Vec<String>> = names.iter().map(|name| vec![name.clone()]).collect();
    for kind in ["real/", "own/rank", ""] {
        let mut set: Vec<String> = names.clone();
        set.retain(|name| name.starts_with(kind));
        set.sort();
        sets.push(set);
    }
    for (at, set) in sets.iter().enumerate() {
        let set = set.join(" ");
        folder.summarize(&format!("{set} -o sums{at}"));
        let traces = folder.report(&set);
        let summaries = folder.report(&format!("sums{at}"));
        let without = |out: &str| {
            let mut report: serde_json::Value = serde_json::from_str(out).unwrap();
            let unreadable = report["missing"]["unreadable"].as_array_mut().unwrap();
            unreadable.retain(|line| !line.as_str().unwrap().contains("no trace and no summary"));
            report
        };
        assert_eq!(without(&traces.out), without(&summaries.out), "{set}");
        assert_eq!(messages(&traces), messages(&summaries), "{set}");
    }
}

/// Truth is the tables of the traces, to the byte; `tables.rs` compares those with other programs.
#[cfg(feature = "parquet")]
#[test]
fn tables_of_summaries_are_those_of_the_traces() {
    let folder = Folder::new();
    let mut names = traces(&folder);
    names.sort();
    folder.summarize(&format!("{} -o sums", names.join(" ")));
    let export = |words: &str, output: &str| {
        let words = ["export", "--format", "parquet", "-o", output]
            .into_iter()
            .chain(words.split_whitespace());
        let outcome = folder.gctrace(&words.collect::<Vec<_>>());
        (outcome, folder.files(output))
    };
    let whole = names.join(" ");
    let (of_traces, tables) = export(&whole, "of-traces");
    assert!(tables.len() == 10 && tables.values().all(|bytes| !bytes.is_empty()));
    // A directory, and every other one as its trace; the names sort like the summaries.
    let mixed = names.iter().enumerate().map(|(at, name)| match at % 2 {
        0 => name.clone(),
        _ => format!("sums/{}.gcsum", name.replace('/', "%2F")),
    });
    let mixed = mixed.collect::<Vec<_>>().join(" ");
    for (words, output) in [("sums", "of-summaries"), (&mixed, "of-both")] {
        let (outcome, found) = export(words, output);
        assert_eq!(outcome.code, of_traces.code, "{words}: {}", outcome.err);
        assert_eq!(messages(&outcome), messages(&of_traces), "{words}");
        assert!(found == tables, "{words}");
    }
    // Tables of some ranks are no error, but it is said which.
    let (some, found) = export("sums/own%2Frank1.json.gcsum", "of-one");
    assert_eq!((some.code, found.len()), (Some(0), 10), "{}", some.err);
    assert!(some.err.contains("rank 0 (of 2 or more): no trace and no summary"));
}

/// A profiler's trace states the number of ranks: two of 128, as traces and as summaries.
#[test]
fn some_ranks_of_a_job_are_named_alike() {
    let folder = Folder::new();
    for rank in 0..2 {
        let text = format!(
            r#"{{"distributedInfo": {{"rank": {rank}, "world_size": 128}}, "traceEvents": [
            {{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 10, "dur": 5,
              "args": {{"device": 0, "stream": 7, "correlation": 1}}}},
            {{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1,
              "ts": 1, "dur": 2, "args": {{"correlation": 1}}}}]}}"#
        );
        folder.add(&format!("rank{rank}.json"), text.into_bytes());
    }
    folder.summarize("rank0.json rank1.json -o sums");
    let (traces, summaries) = (folder.report("rank0.json rank1.json"), folder.report("sums"));
    assert_eq!((traces.code, &traces.err), (summaries.code, &summaries.err));
    assert_eq!((traces.code, traces.out), (Some(1), summaries.out));
    assert_eq!(traces.err.matches("no trace and no summary").count(), 1, "{}", traces.err);
    assert!(traces.err.contains("and 94 more (of 128)"), "{}", traces.err);
    // One rank alone stands for itself.
    let one = folder.report("rank1.json");
    assert_eq!((one.code, one.err.as_str()), (Some(0), ""));
}

/// As a trace and its summary, also under another name, and as two summaries; in both orders.
#[test]
fn a_trace_that_is_given_again_does_not_count() {
    let folder = Folder::new();
    for number in 0..2 {
        folder.add(&format!("rank{number}.json"), rank(number));
    }
    folder.add("copy.json", rank(1));
    folder.summarize("rank0.json rank1.json -o sums");
    folder.summarize("copy.json -o others");
    let once = folder.report("rank0.json rank1.json");
    for (first, again) in [
        ("rank1.json", "sums/rank1.json.gcsum"),
        ("sums/rank1.json.gcsum", "copy.json"),
        ("sums/rank1.json.gcsum", "others/copy.json.gcsum"),
    ] {
        for (first, again) in [(first, again), (again, first)] {
            let outcome = folder.report(&format!("rank0.json {first} {again}"));
            let expected = format!("{again}: is the same trace as {first}: name one of them");
            assert_eq!(outcome.code, Some(1), "{}", outcome.err);
            assert!(outcome.err.contains(&expected), "{}", outcome.err);
            let totals = |out: &str| {
                let report: serde_json::Value = serde_json::from_str(out).unwrap();
                report["totals"].clone()
            };
            assert_eq!(totals(&outcome.out), totals(&once.out), "{first} {again}");
            if cfg!(feature = "parquet") {
                let words = ["export", "--format", "parquet", "-o", "t", "--force"];
                let outcome = folder.gctrace(&[&words[..], &[first, again]].concat());
                assert_eq!(outcome.code, Some(1), "{}", outcome.err);
                assert!(outcome.err.contains(&expected), "{}", outcome.err);
            }
        }
    }
}

/// The command in the message makes it right, wherever it is run.
#[test]
fn a_summary_of_a_trace_that_changed_is_refused() {
    let folder = Folder::new();
    folder.add("job/rank 0.json", rank(0));
    let summarize = folder
        .command(&["summarize", "rank 0.json", "-o", "made/sums"])
        .current_dir(folder.path("job"))
        .output_in_time();
    assert!(summarize.unwrap().status.success());
    let sum = "job/made/sums/rank 0.json.gcsum";
    // Somewhere else, and where no trace is near, it is of a trace that may have another name by now.
    folder.add("rank 0.json", rank(7));
    folder.add("far/away/from/all/x.gcsum", std::fs::read(folder.path(sum)).unwrap());
    let analyze = |path: &str| folder.gctrace(&["analyze", "--format", "json", path]);
    let before = analyze(sum);
    assert_eq!(before.code, Some(0), "{}", before.err);
    assert_eq!(analyze("far/away/from/all").out, before.out);

    let changed = [rank(0), b"\n".to_vec()].concat();
    folder.add("job/rank 0.json", &changed);
    let outcome = analyze("job/made/sums");
    assert_eq!((outcome.code, &*outcome.out), (Some(1), ""), "{}", outcome.err);
    let expected = format!("(was {} bytes, is {}): ", rank(0).len(), changed.len());
    let (problem, command) = outcome.err.split_once(&expected).unwrap();
    assert!(problem.contains(&format!("rank 0.json: has changed since {sum}")), "{problem}");
    let (directory, command) = command.trim().split_once(" && gctrace ").unwrap();
    assert_eq!(command, "summarize 'rank 0.json' -o made/sums");
    let script = format!("{directory} && exec '{}' {command}", env!("CARGO_BIN_EXE_gctrace"));
    let output = Command::new("sh").arg("-c").arg(script).output_in_time();
    assert!(output.unwrap().status.success());
    let after = analyze(sum);
    assert_eq!((after.code, after.out), (Some(0), before.out));
}

#[test]
fn traces_and_summaries_can_be_mixed() {
    let folder = Folder::new();
    for number in 0..4 {
        folder.add(&format!("rank{number}.json"), rank(number));
    }
    folder.summarize("rank1.json rank2.json -o sums");
    let traces = folder.report("rank0.json rank1.json rank2.json rank3.json");
    let mixed = folder.report("rank0.json sums rank3.json");
    assert_eq!(traces.code, Some(0), "{}", traces.err);
    assert_eq!((mixed.code, mixed.err), (Some(0), String::new()));
    assert_eq!(traces.out, mixed.out);
}

#[test]
fn what_is_missing_is_named() {
    let folder = Folder::new();
    for number in 0..6 {
        folder.add(&format!("rank{number}.json"), rank(number));
    }
    folder.summarize("rank0.json rank1.json rank2.json rank4.json rank5.json -o sums");
    let sums = folder.files("sums");
    let cut = &sums["rank1.json.gcsum"];
    folder.add("sums/rank1.json.gcsum", &cut[..cut.len() - 7]);
    let mut flipped = sums["rank2.json.gcsum"].clone();
    *flipped.last_mut().unwrap() ^= 1;
    folder.add("sums/rank2.json.gcsum", flipped);
    let mut other = br#"{"schema":"gctrace.summary/1","gctrace":"9.9.9"}"#.to_vec();
    other.push(b'\n');
    other.extend(b"a body of another kind");
    folder.add("sums/rank4.json.gcsum", other);
    // A copy under another name, too.
    folder.add("sums/copy.gcsum", &sums["rank0.json.gcsum"]);
    let outcome = folder.report("sums");
    assert_eq!(outcome.code, Some(1), "{}", outcome.err);
    let report: serde_json::Value = serde_json::from_str(&outcome.out).unwrap();
    let unreadable = report["missing"]["unreadable"].to_string();
    for part in [
        "rank1.json.gcsum: is no complete summary",
        "rank2.json.gcsum: is no complete summary",
        "rank4.json.gcsum: is a summary (gctrace.summary/1) of gctrace 9.9.9",
        "rank0.json.gcsum: is the same trace as sums/copy.gcsum: name one of them",
        "ranks 1, 2, 3, 4 (of 6 or more)",
    ] {
        assert!(outcome.err.contains(part), "{part:?} is not in: {}", outcome.err);
        assert!(unreadable.contains(part), "{part:?} is not in: {unreadable}");
    }
    assert_eq!(report["traces"].as_array().unwrap().len(), 2);
}

/// The trace is no part of gctrace's own: nothing but the summary is left of it.
#[test]
fn traces_are_not_needed_after_their_summary() {
    let folder = Folder::new();
    folder.add("rank0.json", rank(0));
    folder.summarize("rank0.json -o sums");
    let before = folder.report("sums");
    std::fs::remove_file(folder.path("rank0.json")).unwrap();
    let after = folder.report("sums");
    assert_eq!((before.code, before.out), (after.code, after.out));
    assert!(Path::new(&folder.path("sums/rank0.json.gcsum")).exists());
}
