//! An ordinary user without any capability: what gctrace does, what it refuses, and its messages.
//!
//! If the tests run as root, gctrace is started as a user that owns no files.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests, outside of #[test]"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use test_kit::limit::WithTimeout as _;
use test_kit::recording;
use test_kit::recording::Trace;

/// `nobody` of Debian; any id without files would do.
const NOBODY_UID: u32 = 65534;

/// gctrace and its libraries where that user may read them, and a folder that it may write.
struct TestDir {
    _folder: tempfile::TempDir,
    gctrace: PathBuf,
    work: PathBuf,
}

impl TestDir {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let open = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        open(folder.path(), 0o755);
        let built = Path::new(recording::binary()).parent().unwrap();
        let gctrace = folder.path().join("gctrace");
        fs::copy(recording::binary(), &gctrace).unwrap();
        for name in ["libgctrace_inject.so", "libgctrace_simgpu.so"] {
            let copy = folder.path().join(name);
            fs::copy(built.join("deps").join(name), &copy).expect("cargo builds it with gctrace");
            open(&copy, 0o755);
        }
        let work = folder.path().join("work");
        fs::create_dir(&work).unwrap();
        open(&work, 0o777);
        Self { _folder: folder, gctrace, work }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(&self.gctrace);
        command
            .args(arguments)
            .current_dir(&self.work)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", &self.work)
            .env("TMPDIR", &self.work);
        if nix::unistd::Uid::effective().is_root() {
            command.uid(NOBODY_UID).gid(NOBODY_UID);
        }
        command.output_in_time().unwrap()
    }
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A copy of `gctrace` has no privileges: file capabilities are not copied.
#[test]
fn auto_records_in_process_and_reports_it_once() {
    let place = TestDir::new();
    let program = "import gc\nfor n in range(50): gc.collect()";
    let output = place.run(&["-o", "t.json", "--", "python3", "-c", program]);
    assert!(output.status.success(), "{output:?}");
    let text = printed(&output);
    assert_eq!(text.matches("recording in-process").count(), 1, "{text}");
    let trace = Trace::read(&place.work.join("t.json"));
    assert_eq!(trace.named("gctrace_header")[0].1["mode"], "inject");
    let pauses = trace.pauses();
    assert!(pauses.len() >= 50, "{}", pauses.len());
    assert_eq!(pauses.iter().filter(|pause| pause.reason == "manual").count(), 50);
    assert!(pauses.iter().all(|pause| pause.args["source"] == "injected"));

    let report = place.run(&["analyze", "--full", "t.json"]);
    let report = String::from_utf8_lossy(&report.stdout).into_owned();
    assert!(report.contains("--mode inject"), "{report}");
    assert_eq!(report.matches("first milliseconds").count(), 1, "{report}");
}

#[test]
fn refusals_suggest_what_works_without_privileges() {
    let place = TestDir::new();
    let refused = |arguments: &[&str]| {
        let output = place.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
        printed(&output)
    };
    let kernel = refused(&["--mode", "ebpf", "--", "python3", "a b.py"]);
    assert!(kernel.contains("gctrace --mode inject -- python3 'a b.py'"), "{kernel}");
    assert!(refused(&["--mode", "both", "--", "true"]).contains("missing CAP_BPF"));
    let running = refused(&["-p", &std::process::id().to_string()]);
    assert!(running.contains("gctrace -- COMMAND"), "{running}");
    let running = refused(&["--mode", "inject", "-p", &std::process::id().to_string()]);
    assert!(running.contains("(-p)"), "{running}");
    assert!(!place.work.join("trace.json").exists(), "no trace was started");
}

#[test]
fn a_library_that_no_program_loads_is_not_said_to_lose_nothing() {
    let place = TestDir::new();
    let output = place.run(&["record", "--mode", "inject", "--", "true"]);
    assert!(output.status.success(), "{output:?}");
    let text = printed(&output);
    assert!(text.contains("0 pauses: the library saw no CPython\n"), "{text}");
}

#[test]
fn a_program_without_room_for_records_is_named() {
    let place = TestDir::new();
    let program = "ulimit -f 64; exec python3 -c pass";
    let output = place.run(&["record", "--mode", "inject", "--", "sh", "-c", program]);
    assert!(output.status.success(), "{output:?}");
    let text = printed(&output).replace("\ngctrace:   ", " ");
    assert!(text.contains("whose limits (ulimit) leave no room"), "{text}");
    assert!(!text.contains("no CPython was recorded"), "{text}");
}

#[test]
fn a_set_user_id_program_is_refused_before_it_starts() {
    let place = TestDir::new();
    let Some(su) = ["/usr/bin/su", "/bin/su"].into_iter().find(|su| Path::new(su).exists()) else {
        eprintln!("skipped a_set_user_id_program_is_refused_before_it_starts: there is no su");
        return;
    };
    let output = place.run(&["--mode", "inject", "--", su, "--version"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(printed(&output).contains("(setuid)"), "{output:?}");
}

#[test]
fn doctor_reports_that_recording_works() {
    let place = TestDir::new();
    let output = place.run(&["doctor"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("inject: a library in the programs"), "{text}");
    let library = place.gctrace.with_file_name("libgctrace_inject.so");
    assert!(text.contains(&library.display().to_string()), "{text}");
    fs::remove_file(&library).unwrap();
    if ["/usr/local/lib/gctrace", "/usr/lib/gctrace"]
        .iter()
        .any(|folder| Path::new(folder).exists())
    {
        eprintln!("gctrace without its library was not tried: one is installed");
        return;
    }
    let output = place.run(&["doctor"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("target/release/gctrace setup"), "{text}");
}

#[test]
fn the_demo_needs_no_privileges() {
    let place = TestDir::new();
    let output = place.run(&["demo", "--steps", "60"]);
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    for expected in ["60 steps in", "Do this"] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
    let full = place.run(&["analyze", "--full", "demo.json"]);
    let full = String::from_utf8(full.stdout).unwrap();
    for expected in ["--mode inject", "measured by CUPTI", "gctrace simulated GPU"] {
        assert!(full.contains(expected), "{expected}: {full}");
    }
    let left = fs::read_dir(&place.work).unwrap().flatten();
    let mut left: Vec<_> =
        left.map(|entry| entry.file_name()).filter(|name| name != ".cache").collect();
    left.sort();
    // The report names lines of the program.
    assert_eq!(left, ["demo.json", "train_simgpu.py"]);
}

/// The reasons of processes that could have run Python unseen, and the report.
fn unexamined(place: &TestDir, trace: &str) -> (serde_json::Value, String) {
    let read = Trace::read(&place.work.join(trace));
    let end = read.end();
    let report = place.run(&["analyze", "--full", trace]);
    let report = String::from_utf8_lossy(&report.stdout).replace("\n    ", " ");
    assert!(!report.contains("Nothing was lost"), "{report}");
    (end["processes"]["unexamined"].clone(), report)
}

#[test]
fn children_without_the_variables_are_counted_and_unchanged() {
    let place = TestDir::new();
    let script = "
import os, subprocess, sys
show = [sys.executable, '-c', 'import os; print(sorted(os.environ))']
bare = {'PATH': os.environ['PATH'], 'LC_CTYPE': 'C.UTF-8'}
subprocess.run(show, env=bare)
os.waitpid(os.posix_spawn(show[0], show, bare), 0)
subprocess.run(['env', '-i', 'LC_CTYPE=C.UTF-8', *show])
subprocess.run(show, stdout=subprocess.DEVNULL)
try: subprocess.run(['there-is-no-such-program'], env=bare)
except FileNotFoundError: pass";
    let output = place.run(&["-o", "t.json", "--", "python3", "-c", script]);
    assert!(output.status.success(), "{output:?}");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let bare = "['LC_CTYPE', 'PATH']\n".repeat(2) + "['LC_CTYPE']\n";
    assert_eq!(shown, bare, "{output:?}");
    assert!(printed(&output).contains("3 processes started without"), "{output:?}");
    let (unexamined, report) = unexamined(&place, "t.json");
    let expected = serde_json::json!({ "started without gctrace's variables (LD_PRELOAD)": 3 });
    assert_eq!(unexamined, expected, "{report}");
    assert!(report.contains("3 processes started without"), "{report}");
}

#[test]
fn a_seccomp_filter_does_not_kill_the_program() {
    let place = TestDir::new();
    let script = place.work.join("confined.py");
    fs::copy(recording::scripts().join("confined.py"), &script).unwrap();
    let script = script.to_str().unwrap();
    let confined = ["python3", script, "python3", "-c", "print('it lives')"];
    let recorded = ["-o", "t.json", "--"];
    let output = place.run(&[&recorded[..], &confined].concat());
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "it lives\n");
    let (unexamined, report) = unexamined(&place, "t.json");
    assert_eq!(unexamined.as_object().unwrap().len(), 1, "{unexamined}");
    assert!(report.contains("1 process confined by a seccomp"), "{report}");
}

#[test]
fn a_nested_gctrace_is_reported() {
    let place = TestDir::new();
    let inner = ["-o", "inner.json", "--", "python3", "-c", "import gc; gc.collect()"];
    let outer = ["-o", "outer.json", "--", place.gctrace.to_str().unwrap()];
    let output = place.run(&[&outer[..], &inner].concat());
    assert!(output.status.success(), "{output:?}");
    assert!(!Trace::read(&place.work.join("inner.json")).pauses().is_empty());
    let (_, report) = unexamined(&place, "outer.json");
    assert!(report.contains("recorded by another gctrace inside"), "{report}");
}
