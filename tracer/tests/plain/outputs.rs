//! Destinations of traces. Needs no privileges.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use test_kit::limit::WithTimeout as _;
use test_kit::recording;

const COLLECT: &str = "import gc\nfor n in range(50): gc.collect()\nprint('its own output')";

fn gctrace(place: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(recording::binary());
    command.args(["--mode", "inject"]).args(arguments).current_dir(place).env("RANK", "3");
    command
}

fn run(place: &Path, arguments: &[&str]) -> Output {
    gctrace(place, arguments).output_in_time().unwrap()
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn names(place: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(place)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_program_is_not_overwritten_by_its_own_trace() {
    let place = tempfile::tempdir().unwrap();
    let program = format!("{COLLECT}\nopen('ran', 'w')");
    fs::write(place.path().join("small.py"), &program).unwrap();
    for arguments in [
        ["-o", "small.py", "--", "python3", "small.py"],
        ["-o", "small.py", "--", "python3", "other.py"],
    ] {
        let output = run(place.path(), &arguments);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(printed(&output).contains("small.py: "), "{output:?}");
    }
    assert_eq!(names(place.path()), ["small.py"]);
    let left = fs::read_to_string(place.path().join("small.py")).unwrap();
    assert_eq!(left, program);
}

#[test]
fn the_trace_before_is_kept_and_a_failed_start_changes_nothing() {
    let place = tempfile::tempdir().unwrap();
    let record = |words: &[&str]| {
        let arguments = [&["--"], words].concat();
        run(place.path(), &arguments)
    };
    assert!(record(&["python3", "-c", COLLECT]).status.success());
    let first = fs::read(place.path().join("trace.json")).unwrap();
    assert_eq!(record(&["/nonexistent/python"]).status.code(), Some(127));
    assert_eq!(names(place.path()), ["trace.json"]);
    assert_eq!(fs::read(place.path().join("trace.json")).unwrap(), first);
    assert!(record(&["python3", "-c", COLLECT]).status.success());
    assert_eq!(names(place.path()), ["trace.json", "trace.json.old"]);
    let old = fs::read(place.path().join("trace.json.old")).unwrap();
    assert_eq!(old, first);
}

#[test]
fn standard_output_has_the_trace_alone() {
    let place = tempfile::tempdir().unwrap();
    let output = run(place.path(), &["-o", "-", "--", "python3", "-c", COLLECT]);
    assert!(output.status.success(), "{output:?}");
    assert!(printed(&output).contains("its own output"), "{output:?}");
    let trace = place.path().join("piped.json");
    fs::write(&trace, &output.stdout).unwrap();
    let trace = recording::Trace::read(&trace);
    assert!(trace.pauses().len() >= 50, "{}", trace.pauses().len());
    trace.assert_nothing_lost();
    assert_eq!(names(place.path()), ["piped.json"]);
}

/// A slow reader of the trace does not delay the command, and gets the rest at the end.
#[test]
fn a_slow_reader_gets_everything() {
    let place = tempfile::tempdir().unwrap();
    // In portions that the rings hold.
    let many = "import gc, time\nfor _ in range(20):\n for n in range(500): gc.collect(0)\n time.sleep(0.1)\nopen('done', 'w')";
    let mut recording = gctrace(place.path(), &["-o", "-", "--", "python3", "-c", many])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut reader = recording.stdout.take().unwrap();
    recording::wait_until("the command is done", || place.path().join("done").exists());
    let file = place.path().join("piped.json");
    std::io::copy(&mut reader, &mut fs::File::create(&file).unwrap()).unwrap();
    let output = recording.output_in_time().unwrap();
    assert!(output.status.success(), "{output:?}");
    let trace = recording::Trace::read(&file);
    assert!(trace.pauses().len() >= 10000, "{}", trace.pauses().len());
    trace.assert_nothing_lost();
}

#[test]
fn a_reader_that_leaves_ends_the_trace_not_the_command() {
    let place = tempfile::tempdir().unwrap();
    let code = format!("{COLLECT}\nimport time; time.sleep(0.5)\nraise SystemExit(5)");
    let mut recording = gctrace(place.path(), &["-o", "-", "--", "python3", "-c", &code])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut reader = recording.stdout.take().unwrap();
    reader.read_exact(&mut [0; 64]).unwrap();
    drop(reader);
    let output = recording.output_in_time().unwrap();
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert!(printed(&output).contains("Broken pipe"), "{output:?}");
}

#[test]
fn names_hold_host_rank_and_process() {
    let place = tempfile::tempdir().unwrap();
    let arguments = ["-o", "x-%r-%p%%.json.gz", "--", "python3", "-c", COLLECT];
    let recording =
        gctrace(place.path(), &arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut recording = recording.unwrap();
    assert!(recording.status_in_time().unwrap().success());
    let expected = format!("x-3-{}%.json.gz", recording.id());
    assert_eq!(names(place.path()), [expected]);
    let unknown = run(place.path(), &["-o", "x-%q", "--", "true"]);
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
}

#[test]
fn a_pipe_without_a_reader_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let made = Command::new("mkfifo").arg(place.path().join("p")).status_in_time();
    assert!(made.unwrap().success());
    let output = run(place.path(), &["-o", "p", "--", "python3", "-c", COLLECT]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(printed(&output).contains("nothing reads"), "{output:?}");
}

/// Manual pages over other files.
#[test]
fn manual_pages_replace_manual_pages_only() {
    let place = tempfile::tempdir().unwrap();
    let man = |directory: &str| {
        let mut command = Command::new(recording::binary());
        command.args(["man", directory]).current_dir(place.path());
        command.output_in_time().unwrap()
    };
    assert!(man("new/man1").status.success());
    assert!(man("new/man1").status.success(), "again, over its own");
    fs::create_dir(place.path().join("other")).unwrap();
    fs::write(place.path().join("other/gctrace-top.1"), "mine").unwrap();
    let output = man("other");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(names(&place.path().join("other")), ["gctrace-top.1"]);
}
