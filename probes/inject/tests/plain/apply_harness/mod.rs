//! Runs programs with settings that the agent applies, for `apply.rs` and `apply_processes.rs`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]
#![allow(dead_code, reason = "each test program uses some of it")]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use test_kit::interpreters::Python;
use test_kit::limit::WithTimeout as _;
use test_kit::optimizer::OPTIMIZER;

/// Cyclic garbage, and the collections so far.
pub(crate) const GARBAGE: &str = r"
class Node:
    def __init__(self): self.me = self
def garbage(count): [Node() for _ in range(count)]
def collections(): return [each['collections'] for each in gc.get_stats()]
";

/// What a program with settings printed, and the agent's report of it.
pub(crate) struct Applied {
    pub(crate) output: String,
    pub(crate) errors: String,
    pub(crate) reports: Vec<Value>,
}

impl Applied {
    /// The report of the process that was started.
    pub(crate) fn report(&self) -> &Value {
        let started = |report: &&Value| report["forked"] == false;
        self.reports.iter().find(started).unwrap()
    }

    /// The lines that were printed.
    pub(crate) fn lines(&self) -> Vec<&str> {
        self.output.lines().collect()
    }
}

pub(crate) fn numbers(value: &Value) -> Vec<u64> {
    let items = value.as_array().unwrap();
    items.iter().map(|item| item.as_u64().unwrap()).collect()
}

pub(crate) fn apply_in(folder: &Path, command: &mut Command, settings: &str) -> Applied {
    let output = command
        .env("LD_PRELOAD", test_kit::library::find_library().unwrap())
        .env("GCTRACE_APPLY", settings)
        .env("GCTRACE_APPLY_FOLDER", folder)
        .output_in_time()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (errors, output) = (text(&output.stderr), text(&output.stdout));
    Applied { output, errors, reports: reports(folder) }
}

fn files(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().path())
}

/// The reports in a folder.
pub(crate) fn reports(folder: &Path) -> Vec<Value> {
    files(folder)
        .filter(|path| path.to_string_lossy().ends_with(".report.json"))
        .map(|path| serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap())
        .collect()
}

/// Runs a script after [`OPTIMIZER`] with settings. Nothing fails in it or in the agent.
pub(crate) fn apply(python: &Python, settings: &str, script: &str) -> Applied {
    let folder = tempfile::tempdir().unwrap();
    let mut command = python.command(&format!("{OPTIMIZER}{GARBAGE}{script}"));
    let applied = apply_in(folder.path(), &mut command, settings);
    assert_eq!(applied.errors, "", "{}", python.name);
    assert_eq!(applied.report()["failure"], Value::Null, "{}", python.name);
    assert_eq!(applied.report()["ended"], true, "{}", python.name);
    applied
}
