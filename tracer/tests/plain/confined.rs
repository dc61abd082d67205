//! Programs that confine themselves: every system call that they do not make themselves kills them.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use test_kit::interpreters::any_python;
use test_kit::limit::WithTimeout as _;
use test_kit::{interpreters, recording};

/// Commands of gctrace before the program's, each in-process.
const MODES: [&[&str]; 7] = [
    &["record", "-q", "--mode", "inject", "-o", "t.json"],
    &["record", "-q", "--mode", "inject", "--garbage", "cycles", "--alloc", "-o", "t.json"],
    &["apply", "-q", "--step-function", "train_step", "--gc", "threshold=700,10,10"],
    &["auto", "-q", "-f", "--step-function", "train_step"],
    &["auto", "-q", "-f", "--wait", "1"],
    &["tune", "-q", "--step-function", "train_step"],
    &[
        "tune",
        "-q",
        "--settings",
        "disable@start,freeze@step:2|none",
        "--step-function",
        "train_step",
    ],
];

/// With kernel probes.
const PROBED: [&[&str]; 2] = [
    &["record", "-q", "--mode", "ebpf", "-o", "t.json"],
    &["record", "-q", "--mode", "both", "-o", "t.json"],
];

fn script() -> PathBuf {
    recording::scripts().join("confining.py")
}

/// A program: how it confines itself, and how it ends.
struct ConfinedProgram<'a> {
    python: PathBuf,
    folder: tempfile::TempDir,
    how: &'a str,
    end: &'a str,
    alone: Output,
}

impl<'a> ConfinedProgram<'a> {
    /// Runs it alone twice: with strace for the calls that it makes once it is confined, and with these allowed.
    fn new(python: &Path, how: &'a str, end: &'a str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let calls = folder.path().join("calls");
        let traced = Command::new("strace")
            .args(["-f", "-n", "-o"])
            .arg(&calls)
            .arg(python)
            .arg(script())
            .args([how, end])
            .output_in_time()
            .unwrap();
        assert_eq!(traced.status.code(), Some(4), "{how}: {traced:?}");
        let allowed = calls_when_confined(&std::fs::read_to_string(&calls).unwrap());
        let allowed: Vec<String> = allowed.iter().map(u32::to_string).collect();
        std::fs::write(folder.path().join("allowed"), allowed.join(" ")).unwrap();
        let alone = Command::new(python)
            .arg(script())
            .args([how, end, "allowed"])
            .current_dir(folder.path())
            .output_in_time()
            .unwrap();
        assert_eq!(alone.status.code(), Some(4), "{how}: {alone:?}");
        Self { python: python.to_owned(), folder, how, end, alone }
    }

    fn lives_below(&self, mode: &[&str]) {
        let output = Command::new(recording::binary())
            .args(mode)
            .arg("--")
            .arg(&self.python)
            .arg(script())
            .args([self.how, self.end, "allowed"])
            .current_dir(self.folder.path())
            .output_in_time()
            .unwrap();
        let what = format!("{} {} {} {mode:?}", self.python.display(), self.how, self.end);
        assert_eq!(output.status.code(), Some(4), "{what}: {output:?}");
        assert_eq!(output.stdout, self.alone.stdout, "{what}: {output:?}");
    }
}

/// Numbers of the calls after the one that confines, as `strace -f -n` writes them.
fn calls_when_confined(trace: &str) -> BTreeSet<u32> {
    let confines = |line: &&str| {
        let is_call = line.contains("SECCOMP_MODE_") || line.contains("SECCOMP_SET_MODE_");
        is_call && line.ends_with("= 0") || line.contains("seccomp resumed")
    };
    let number = |line: &str| line.split_once('[')?.1.split_once(']')?.0.trim().parse().ok();
    let lines = trace.lines().skip_while(|line| !confines(line)).skip(1);
    lines.filter_map(number).collect()
}

fn has_strace(test: &str) -> bool {
    let is_there = Command::new("strace").arg("-V").output().is_ok();
    if !is_there {
        println!("skipped {test}: there is no strace");
    }
    is_there
}

mod programs_that_confine_themselves_live {
    test_kit::on_each_interpreter!(super::check);
}

fn check(test: &str, name: &str) {
    if !has_strace(test) {
        return;
    }
    // The script must be in its root directory.
    let sees_files = |python: &interpreters::Python| !python.is("container");
    if let Some(python) = interpreters::python(test, name).filter(sees_files) {
        let program = ConfinedProgram::new(&python.path, "prctl", "exit");
        for mode in MODES {
            program.lives_below(mode);
        }
    }
}

/// However the filter is set, and however the program ends.
#[test]
fn filters_are_noticed_whoever_sets_them() {
    if !has_strace("filters_are_noticed_whoever_sets_them") {
        return;
    }
    let has_probes = recording::privileged("filters_are_noticed_whoever_sets_them");
    for how in ["syscall", "library-prctl", "library-syscall", "tsync", "prctl"] {
        let program = ConfinedProgram::new(&any_python(), how, "return");
        let probed = PROBED.iter().filter(|_| has_probes);
        for mode in MODES.iter().chain(probed) {
            program.lives_below(mode);
        }
    }
}

/// But for read, write and the end of a thread, and without the processor's clock.
#[test]
fn the_strict_mode_is_survived() {
    let folder = tempfile::tempdir().unwrap();
    for mode in MODES {
        let output = Command::new(recording::binary())
            .args(mode)
            .arg("--")
            .arg(any_python())
            .arg(script())
            .args(["strict", "exit"])
            .current_dir(folder.path())
            .output_in_time()
            .unwrap();
        assert_eq!(output.status.code(), Some(4), "{mode:?}: {output:?}");
        assert_eq!(output.stdout, b"survived 4000\n", "{mode:?}");
    }
}

/// Its own collections are recorded, those of its child are counted as lost.
#[test]
fn what_happens_then_is_recorded_or_counted() {
    let folder = tempfile::tempdir().unwrap();
    let script = script();
    let python = any_python();
    let words = ["record", "-q", "--mode", "inject", "-o", "t.json", "--"];
    let command = [python.to_str().unwrap(), script.to_str().unwrap(), "prctl", "exit"];
    let output = Command::new(recording::binary())
        .args(words)
        .args(command)
        .current_dir(folder.path())
        .output_in_time()
        .unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let trace = std::fs::read_to_string(folder.path().join("t.json")).unwrap();
    // 700 objects each, and the full ones.
    let pauses = trace.matches(r#""cat":"gc""#).count();
    assert!(pauses > 350, "{pauses}");
    assert!(trace.contains("could not create a ring"), "{}", &trace[trace.len() - 3000..]);
}
