//! Traces of a simulated job (tests/python/tables_job.py), what is true of them, and the program.

use crate::limit::WithTimeout as _;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// The checkout.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The `gctrace` that reads traces: of `GCTRACE_PROGRAM`, or the checkout's.
pub(crate) fn gctrace() -> PathBuf {
    let path = std::env::var_os("GCTRACE_PROGRAM")
        .map_or_else(|| root().join("target/debug/gctrace"), PathBuf::from);
    assert!(
        path.exists(),
        "{}: cargo build -p gctrace makes it, GCTRACE_PROGRAM names another",
        path.display()
    );
    path
}

/// A command of the program under test.
pub(crate) fn cluster() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gctrace-cluster"));
    command.arg("--gctrace").arg(gctrace());
    command
}

/// Its output after exit code 0.
pub(crate) fn succeeded(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{} {text} {}", output.status, errors(output));
    text
}

/// Its message after exit code 1, with nothing on standard output.
pub(crate) fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    errors(output)
}

pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A job in a directory of its own.
pub(crate) struct Job {
    pub(crate) directory: TempDir,
    pub(crate) traces: Vec<PathBuf>,
    truth: Value,
}

impl Job {
    /// Simulates one.
    pub(crate) fn new(ranks: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let script = root().join("tests/python/tables_job.py");
        let mut python = Command::new("python3");
        let made =
            python.arg(script).arg(directory.path()).args([ranks.to_string(), "10".to_owned()]);
        succeeded(&made.output_in_time().unwrap());
        let truth = std::fs::read_to_string(directory.path().join("truth.json")).unwrap();
        std::fs::remove_file(directory.path().join("truth.json")).unwrap();
        let traces = (0..ranks).map(|rank| directory.path().join(format!("rank{rank}.json")));
        Self { traces: traces.collect(), truth: serde_json::from_str(&truth).unwrap(), directory }
    }

    /// Collections of each rank, and their ns, as serde_json reads them.
    pub(crate) fn pauses(&self) -> Vec<(i64, i64, i64)> {
        let rank = |(rank, path): (usize, &PathBuf)| {
            let trace: Value =
                serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
            let events = trace["traceEvents"].as_array().unwrap().iter();
            let pauses = events.filter(|event| event["cat"] == "gc" && event["ph"] == "X");
            let (mut count, mut total) = (0, 0);
            for pause in pauses {
                count += 1;
                total += (pause["dur"].as_f64().unwrap() * 1e3).round() as i64;
            }
            (rank as i64, count, total)
        };
        self.traces.iter().enumerate().map(rank).collect()
    }

    /// How often each rank was the last of a collective.
    pub(crate) fn lasts(&self) -> BTreeMap<i64, i64> {
        let mut lasts = BTreeMap::new();
        for last in self.truth["lasts"].as_array().unwrap() {
            *lasts.entry(last["rank"].as_i64().unwrap()).or_default() += 1;
        }
        lasts
    }

    /// Tables of these traces, as `gctrace export` writes them.
    pub(crate) fn export(&self, traces: &[PathBuf], name: &str) -> PathBuf {
        let tables = self.directory.path().join(name);
        let mut export = Command::new(gctrace());
        export.args(["export", "--format", "parquet", "-o"]).arg(&tables).args(traces);
        succeeded(&export.output_in_time().unwrap());
        tables
    }

    /// Summaries of these traces, named as they are from their directory.
    pub(crate) fn summarize(&self, traces: &[PathBuf], name: &str) -> PathBuf {
        let mut summarize = Command::new(gctrace());
        summarize
            .args(["summarize", "-o", name])
            .args(traces.iter().map(|trace| trace.file_name().unwrap()))
            .current_dir(self.directory.path());
        succeeded(&summarize.output_in_time().unwrap());
        self.directory.path().join(name)
    }
}

/// Collections of each rank, and their ns with the time of examining garbage, as in the traces.
pub(crate) const PAUSES: &str = "select rank, count(*) as n, sum(dur_ns + coalesce(examining_ns, 0) + coalesce(called_ns, 0)) as ns \
                          from pauses group by rank order by rank";

/// Rows of a query.
pub(crate) fn rows(sql: &str, inputs: &[impl AsRef<std::ffi::OsStr>]) -> Vec<Value> {
    let mut query = cluster();
    let output = query.args(["query", "--format", "json", sql]).args(inputs).output_in_time();
    let text = succeeded(&output.unwrap());
    serde_json::from_str(&text).unwrap()
}

/// [`PAUSES`] of these inputs.
pub(crate) fn pauses(inputs: &[impl AsRef<std::ffi::OsStr>]) -> Vec<(i64, i64, i64)> {
    let numbers = |row: &Value| ["rank", "n", "ns"].map(|name| row[name].as_i64().unwrap());
    let numbers = |row: &Value| numbers(row).into();
    rows(PAUSES, inputs).iter().map(numbers).collect()
}
