//! Programs that embed CPython and initialize it more than once.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use test_kit::interpreters::{Python, interpreters};
use test_kit::limit::WithTimeout as _;
use test_kit::recording;

const MODES: [&[&str]; 7] = [
    &["record", "-q", "--mode", "inject", "-o", "t.json"],
    &["record", "-q", "--mode", "inject", "--garbage", "cycles", "--alloc", "-o", "t.json"],
    &["record", "-q", "--mode", "inject", "--step-function", "train_step", "-o", "t.json"],
    &["apply", "-q", "--gc", "threshold=700,10,10"],
    &["auto", "-q", "-f", "--step-function", "train_step"],
    &["auto", "-q", "-f", "--wait", "1"],
    &["tune", "-q", "--budget", "1s"],
];

/// The library of a shared build, and what it takes as its home.
fn library(python: &Python) -> Option<(PathBuf, PathBuf)> {
    let script = "import sys\nprint(sys.prefix)\n[print(line.split()[-1]) for line in open('/proc/self/maps') if 'libpython' in line]";
    let output = python.command(script).output_in_time().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines().map(PathBuf::from);
    let home = lines.next()?;
    Some((lines.next()?, home))
}

/// Builds the program; `None`: it does not run with this build, or the build has no library.
fn embedding(python: &Python, folder: &Path) -> Option<impl Fn(&[&str], &[&str]) -> Output> {
    let (library, home) = library(python)?;
    let program = folder.join("embedding");
    let built = Command::new("gcc")
        .arg(recording::scripts().join("embedding.c"))
        .arg("-o")
        .arg(&program)
        .arg(&library)
        .arg(format!("-Wl,-rpath,{}", library.parent()?.display()))
        .arg("-lpthread")
        .status();
    if !built.is_ok_and(|built| built.success()) {
        return None;
    }
    let folder = folder.to_owned();
    let run = move |mode: &[&str], words: &[&str]| {
        let mut command = match mode {
            [] => Command::new(&program),
            _ => {
                let mut command = Command::new(recording::binary());
                command.args(mode).arg("--").arg(&program);
                command
            }
        };
        command.args(words).env("PYTHONHOME", &home).current_dir(&folder).output_in_time().unwrap()
    };
    (run(&[], &[]).status.code() == Some(3)).then_some(run)
}

#[test]
fn programs_that_initialize_more_than_once_are_unchanged() {
    let test = "programs_that_initialize_more_than_once_are_unchanged";
    let mut tried = 0;
    for python in interpreters(test) {
        let folder = tempfile::tempdir().unwrap();
        let Some(run) = embedding(&python, folder.path()) else { continue };
        tried += 1;
        for words in [&["thread", "sub"] as &[&str], &["silent"]] {
            let alone = run(&[], words);
            for mode in MODES {
                let output = run(mode, words);
                let what = format!("{} {words:?} {mode:?}", python.name);
                assert_eq!(output.status.code(), Some(3), "{what}: {output:?}");
                if !mode.contains(&"tune") {
                    assert_eq!(output.stdout, alone.stdout, "{what}: {output:?}");
                }
            }
        }
    }
    if tried == 0 {
        println!("skipped {test}: no build with a shared library");
    }
}
