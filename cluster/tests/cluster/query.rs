//! `gctrace-cluster query` in one process, against what is true of a simulated job.

use crate::job;
use crate::job::{Job, pauses, rows};
use crate::limit::WithTimeout as _;
use std::collections::BTreeMap;

#[test]
fn traces_and_their_tables_answer_alike() {
    let job = Job::new(4);
    let truth = job.pauses();
    assert!(truth.iter().all(|(_, count, _)| *count > 0), "{truth:?}");
    assert_eq!(pauses(&job.traces), truth);
    assert_eq!(pauses(&[job.directory.path()]), truth);
    let tables = job.export(&job.traces, "tables");
    assert_eq!(pauses(&[&tables]), truth);
    let summaries = job.summarize(&job.traces, "summaries");
    assert_eq!(pauses(&[&summaries]), truth);

    let sql = "select rank, count(*) as n from collectives where is_last group by rank";
    for inputs in [&job.traces[..], &[tables], &[summaries]] {
        let number = |row: &serde_json::Value, name| row[name].as_i64().unwrap();
        let lasts = rows(sql, inputs)
            .iter()
            .map(|row| (number(row, "rank"), number(row, "n")))
            .collect::<BTreeMap<_, _>>();
        assert_eq!(lasts, job.lasts());
    }
}

#[test]
fn traces_of_several_directories_are_told_apart() {
    let job = Job::new(4);
    let (left, right) = job.traces.split_at(2);
    let inputs = [job.export(left, "left"), job.export(right, "right")];
    assert_eq!(pauses(&inputs), job.pauses());
    // A part as tables, another as traces and summaries.
    assert_eq!(pauses(&[&inputs[0], &right[0], &right[1]]), job.pauses());
    let last = job.summarize(&right[1..], "last").join("rank3.json.gcsum");
    assert_eq!(pauses(&[&inputs[0], &right[0], &last]), job.pauses());

    // Joined by numbers that each directory counts from 0.
    for sql in [
        "select count(*) as n from pauses p join frames f on f.trace = p.trace and f.frame_id = p.frame_id",
        "select count(*) as n from collectives a join collectives b on a.job = b.job and a.collective = b.collective",
    ] {
        let parts: i64 = inputs.iter().map(|one| rows(sql, &[one])[0]["n"].as_i64().unwrap()).sum();
        assert!(parts > 0, "{sql}");
        assert_eq!(rows(sql, &inputs)[0]["n"].as_i64(), Some(parts), "{sql}");
    }
}

#[test]
fn nothing_is_counted_twice() {
    let job = Job::new(2);
    let copy = job.directory.path().join("copy");
    std::fs::create_dir(&copy).unwrap();
    std::fs::copy(&job.traces[0], copy.join("rank0.json")).unwrap();
    let (once, again) = (job.export(&job.traces, "once"), job.export(&job.traces[1..], "again"));
    for inputs in [
        [&once, &again],
        [&once, &once],
        [&job.traces[0], &job.traces[0]],
        [&once, &job.traces[1]],
        [&job.traces[0], &copy],
    ] {
        let message = refused(&inputs);
        assert!(message.contains("doubled"), "{message}");
    }
    let sums = job.summarize(&job.traces[..1], "sums");
    let sum = sums.join("rank0.json.gcsum");
    let other = copy.join("of-another-name.json");
    std::fs::copy(&job.traces[0], &other).unwrap();
    for (inputs, expected) in [
        ([&once, &sum], "its figures would be doubled; name one"),
        ([&sums, &sum], "named twice"),
        ([&job.traces[0], &sum], "is the same trace as"),
        ([&other, &sum], "is the same trace as"),
    ] {
        let message = refused(&inputs);
        assert!(message.contains(expected), "{message}");
        assert!(message.contains("name "), "{message}");
    }
    // A summary whose trace has changed since, and one of another gctrace.
    let text = std::fs::read_to_string(&job.traces[0]).unwrap();
    std::fs::write(&job.traces[0], text + "\n").unwrap();
    let message = refused(&[&sum]);
    let command = "&& gctrace summarize rank0.json -o sums";
    assert!(message.contains("has changed since") && message.contains(command), "{message}");
    std::fs::write(&sum, "{\"schema\":\"gctrace.summary/12\",\"gctrace\":\"9.9.9\"}\n").unwrap();
    let message = refused(&[&sum]);
    assert!(
        message.contains("9.9.9") && message.contains("summarize the trace again"),
        "{message}"
    );
}

/// Ranks that a query lacks are named beside its answer.
#[test]
fn a_query_on_some_ranks_says_so() {
    let job = Job::new(3);
    let sums = job.summarize(&job.traces[1..], "sums");
    let output = job::cluster()
        .args(["query", "--format", "json", job::PAUSES])
        .arg(sums)
        .output_in_time()
        .unwrap();
    let answer: Vec<serde_json::Value> = serde_json::from_str(&job::succeeded(&output)).unwrap();
    assert_eq!(answer.len(), 2);
    let message = job::errors(&output);
    let expected = "gctrace-cluster: rank 0 (of 3 or more): no trace and no summary";
    assert!(message.contains(expected), "{message}");
}

fn refused(inputs: &[&std::path::PathBuf]) -> String {
    let mut query = job::cluster();
    query.args(["query", job::PAUSES]).args(inputs);
    job::refused(&query.output_in_time().unwrap())
}

#[test]
fn what_cannot_be_answered_is_an_error() {
    let job = Job::new(2);
    let trace = job.traces[0].to_str().unwrap();
    let broken = job.directory.path().join("broken.json");
    std::fs::write(&broken, "{\"no\": \"trace\"}").unwrap();
    let broken = broken.to_str().unwrap();
    let written = job.directory.path().join("written.parquet");
    let copy = format!("copy pauses to '{}'", written.display());
    for (sql, inputs, expected) in [
        (job::PAUSES, vec![trace, broken], "broken.json"),
        (job::PAUSES, vec!["/nowhere/rank0.json"], "/nowhere/rank0.json"),
        (job::PAUSES, vec!["/proc/self/status"], "neither a trace"),
        (job::PAUSES, vec!["ftp://host/trace.json"], "not a URL of"),
        ("select no_such_column from pauses", vec![trace], "no_such_column"),
        ("select * from no_such_table", vec![trace], "no_such_table"),
        ("selec", vec![trace], "SQL"),
        (&copy, vec![trace], "DML"),
        ("create table t as select 1", vec![trace], "DDL"),
        ("set datafusion.execution.batch_size = 1", vec![trace], "tatement"),
    ] {
        let output = job::cluster().args(["query", sql]).args(inputs).output_in_time().unwrap();
        let message = job::refused(&output);
        assert!(
            message.starts_with("gctrace-cluster: ") && message.contains(expected),
            "{expected}: {message}"
        );
    }
    assert!(!written.exists());
}
