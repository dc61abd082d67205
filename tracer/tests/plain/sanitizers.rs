//! Programs with the shared runtime of a sanitizer, before which no other library may be loaded.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use std::path::Path;
use std::process::{Command, Output};
use test_kit::interpreters::any_python;
use test_kit::limit::WithTimeout as _;
use test_kit::recording;

const IN_PROCESS: [&[&str]; 3] = [
    &["record", "-q", "--mode", "inject", "-o", "t.json"],
    &["apply", "-q", "--gc", "threshold=700,10,10"],
    &["auto", "-q", "-f"],
];

/// A program that returns 3; `None`: gcc cannot build it.
fn sanitized(folder: &Path) -> Option<()> {
    std::fs::write(folder.join("a.c"), "int main(){return 3;}").unwrap();
    let words = ["-fsanitize=address", "a.c", "-o", "sanitized"];
    let built = Command::new("gcc").args(words).current_dir(folder).status();
    let is_built = built.is_ok_and(|built| built.success());
    let starts =
        is_built && Command::new(folder.join("sanitized")).status().unwrap().code() == Some(3);
    starts.then_some(())
}

fn gctrace(folder: &Path, mode: &[&str], command: &[&str]) -> Output {
    let mut gctrace = Command::new(recording::binary());
    gctrace.args(mode).arg("--").args(command).current_dir(folder).output_in_time().unwrap()
}

#[test]
fn they_run_without_the_library() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    if sanitized(folder).is_none() {
        println!("skipped they_run_without_the_library: gcc has no sanitizer");
        return;
    }
    std::fs::write(folder.join("script"), format!("#!{}/sanitized\n", folder.display())).unwrap();
    Command::new("chmod").arg("755").arg(folder.join("script")).status().unwrap();
    let python = any_python();
    let python = python.to_str().unwrap();
    let children = "import os, subprocess
print([subprocess.call(['./' + name]) for name in ('sanitized', 'script')])
print(os.waitstatus_to_exitcode(os.system('./sanitized')), flush=True)
os.environ['PATH'] += ':.'
os.execvp('sanitized', ['sanitized'])";
    for mode in IN_PROCESS {
        // As a child of the recorded program, and in its place.
        let output = gctrace(folder, mode, &[python, "-c", children]);
        assert_eq!(output.status.code(), Some(3), "{mode:?}: {output:?}");
        assert_eq!(output.stdout, b"[3, 3]\n3\n", "{mode:?}: {output:?}");
        // Itself it is refused, with the reason.
        let output = gctrace(folder, mode, &["./script"]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("is built with a sanitizer: its libasan.so"), "{mode:?}: {errors}");
    }
    // Behind a runtime that the user loads first, the library may be loaded.
    let runtime = Command::new("gcc").arg("-print-file-name=libasan.so").output().unwrap().stdout;
    let runtime = String::from_utf8(runtime).unwrap();
    let output = Command::new(recording::binary())
        .args(["record", "-q", "--mode", "inject", "-o", "t.json", "--", "./sanitized"])
        .env("LD_PRELOAD", std::fs::canonicalize(runtime.trim()).unwrap())
        .current_dir(folder)
        .output_in_time()
        .unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
}
