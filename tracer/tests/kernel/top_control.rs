//! Kernel tier: how `gctrace top` ends, and that the command does not depend on it.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use test_kit::limit::WithTimeout as _;
use test_kit::recording::top::{equal_to_trace, objects};
use test_kit::recording::user::OrdinaryUser;
use test_kit::recording::{Trace, wait_until};
use test_kit::{interpreters, recording};

/// Prints numbered lines to both streams, collects, creates `ended`, and exits with 5.
const PRINTS: &str = "
import gc, sys, time
for number in range(150):
    print('out', number, flush=True)
    print('err', number, file=sys.stderr, flush=True)
    gc.collect(0)
    time.sleep(0.01)
open('ended', 'w').close()
sys.exit(5)
";

fn top(place: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(recording::binary());
    command.arg("top").args(arguments).current_dir(place).env_remove("SUDO_UID");
    command
}

fn messages(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// All lines of a stream, in order.
fn is_whole(text: &str, stream: &str) {
    let lines = text.lines().filter(|line| line.starts_with(stream));
    let expected = (0..150).map(|number| format!("{stream} {number}"));
    assert!(lines.eq(expected), "{text}");
}

fn has_ended(place: &Path) -> bool {
    place.join("ended").exists()
}

#[test]
fn the_exit_code_is_the_commands() {
    let Some((python, place)) = recording::place_for("the_exit_code_is_the_commands") else {
        return;
    };
    let python = python.to_str().unwrap();
    let kills_itself = "import os; os.kill(os.getpid(), 9)";
    for (command, code) in [
        (vec![python, "-c", "raise SystemExit(5)"], 5),
        (vec![python, "-c", "pass"], 0),
        (vec![python, "-c", kills_itself], 137),
        (vec!["no-such-command"], 127),
    ] {
        let line: Vec<&str> = ["--format", "text", "--"].into_iter().chain(command).collect();
        let output = top(place.path(), &line).output_in_time().unwrap();
        assert_eq!(output.status.code(), Some(code), "{line:?} {output:?}");
    }
    let nothing: Vec<_> = fs::read_dir(place.path()).unwrap().collect();
    assert!(nothing.is_empty(), "no trace was asked for: {nothing:?}");
}

#[test]
fn the_commands_output_goes_to_its_file() {
    let Some((python, place)) = recording::place_for("the_commands_output_goes_to_its_file") else {
        return;
    };
    let arguments = ["--format", "text", "-d", "0.3", "--output", "o.txt", "--"];
    let mut command = top(place.path(), &arguments);
    let output = command.arg(python).args(["-c", PRINTS]).output_in_time().unwrap();
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let text = fs::read_to_string(place.path().join("o.txt")).unwrap();
    is_whole(&text, "out");
    is_whole(&text, "err");
    assert_eq!(text.lines().count(), 300);
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(lines.starts_with("    time proc"), "{lines}");
    assert!(lines.lines().count() > 4, "{lines}");
    assert!(lines.lines().all(|line| line.chars().count() <= 100));
    assert!(messages(&output).contains("o.txt"), "{output:?}");
}

/// A trace that is there can be read, from the first moment on.
#[test]
fn a_gctrace_killed_at_once_leaves_no_empty_trace() {
    let Some((python, place)) =
        recording::place_for("a_gctrace_killed_at_once_leaves_no_empty_trace")
    else {
        return;
    };
    let (place, trace) = (place.path(), place.path().join("t.json"));
    for round in 0..8 {
        let mut command = top(place, &["--format", "json", "--record", "t.json", "--"]);
        let command = command.arg(&python).args(["-c", "pass"]).stdout(Stdio::null());
        let mut gctrace = command.spawn().unwrap();
        while !trace.exists() && gctrace.try_wait().unwrap().is_none() {}
        let _ = kill(Pid::from_raw(i32::try_from(gctrace.id()).unwrap()), Signal::SIGKILL);
        gctrace.status_in_time().unwrap();
        let analyzed = recording::gctrace(&["analyze", "t.json"], place);
        assert!(analyzed.status.success(), "{round}: {analyzed:?}");
        fs::remove_file(&trace).unwrap();
    }
}

/// However gctrace ends.
#[test]
fn a_killed_gctrace_leaves_the_command_and_its_output() {
    let Some((python, place)) =
        recording::place_for("a_killed_gctrace_leaves_the_command_and_its_output")
    else {
        return;
    };
    let place = place.path();
    let arguments = ["--format", "json", "--output", "o.txt", "--record", "t.json", "--"];
    let mut gctrace = top(place, &arguments)
        .arg(python)
        .args(["-c", PRINTS])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let file = place.join("o.txt");
    let text = || fs::read_to_string(&file).unwrap_or_default();
    wait_until("the command prints", || text().contains("out 20"));
    kill(Pid::from_raw(i32::try_from(gctrace.id()).unwrap()), Signal::SIGKILL).unwrap();
    gctrace.status_in_time().unwrap();
    assert!(!has_ended(place));
    wait_until("the command ended", || has_ended(place));
    wait_until("all is in the file", || text().contains("err 149"));
    is_whole(&text(), "out");
    is_whole(&text(), "err");
    // The records until then can be read.
    let analyzed = Command::new(recording::binary())
        .args(["analyze", "--format", "json", "t.json"])
        .current_dir(place)
        .output_in_time()
        .unwrap();
    assert!(analyzed.status.success(), "{analyzed:?}");
}

#[test]
fn as_many_as_were_asked_for() {
    let Some((python, place)) = recording::place_for("as_many_as_were_asked_for") else {
        return;
    };
    let arguments = ["--format", "json", "-d", "0.1", "-n", "3", "--"];
    let mut command = top(place.path(), &arguments);
    let output = command.arg(python).args(["-c", PRINTS]).output_in_time().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(objects(&output.stdout).len(), 3);
    assert!(messages(&output).contains("the command keeps running: process"));
    wait_until("the command ended", || has_ended(place.path()));
}

#[test]
fn a_reader_that_goes_away_ends_it_in_order() {
    let Some((python, place)) = recording::place_for("a_reader_that_goes_away_ends_it_in_order")
    else {
        return;
    };
    let place = place.path();
    for form in [["--format", "json"], ["--format", "text"]] {
        let _ = fs::remove_file(place.join("ended"));
        let mut gctrace = top(place, &form)
            .args(["-d", "0.1", "--record", "t.json", "--"])
            .arg(&python)
            .args(["-c", PRINTS])
            .stdout(Stdio::piped())
            .stderr(fs::File::create(place.join("messages")).unwrap())
            .spawn()
            .unwrap();
        let mut reader = BufReader::new(gctrace.stdout.take().unwrap());
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        drop(reader);
        assert_eq!(gctrace.status_in_time().unwrap().code(), Some(0));
        let messages = fs::read_to_string(place.join("messages")).unwrap();
        assert!(!messages.contains("roken pipe"), "{messages}");
        assert!(messages.contains("the command keeps running"), "{messages}");
        let trace = Trace::read(&place.join("t.json"));
        assert_eq!(trace.end()["why"], "the user quit the live view");
        wait_until("the command ended", || has_ended(place));
    }
}

/// A file system of 400 KiB.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let place = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=400k", "gctrace-test"])
            .arg(place.path())
            .status_in_time();
        let is_mounted = mounted.is_ok_and(|status| status.success());
        is_mounted.then_some(Self(place))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status_in_time();
    }
}

#[test]
fn a_full_disk_ends_the_trace_and_nothing_else() {
    let test = "a_full_disk_ends_the_trace_and_nothing_else";
    let Some((python, place)) = recording::place_for(test) else {
        return;
    };
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("skipped {test}: no tmpfs can be mounted here");
        return;
    };
    let trace = disk.0.path().join("t.json");
    let code = "import gc, time\nfor _ in range(20): [gc.collect(0) for _ in range(500)]; time.sleep(0.05)\nraise SystemExit(3)";
    let arguments = ["--format", "json", "-d", "0.2", "--record", trace.to_str().unwrap(), "--"];
    let mut command = top(place.path(), &arguments);
    let output = command.arg(python).args(["-c", code]).output_in_time().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(messages(&output).contains("no space left"), "{output:?}");
    let objects = objects(&output.stdout);
    let last = objects.last().unwrap();
    assert_eq!(last["totals"]["collections"]["by_reason"]["manual"][0]["count"], 10_000);
    let notes = last["notes"].as_array().unwrap();
    let printed =
        |note: &serde_json::Value| note["message"].to_string().contains("trace ends here");
    assert!(notes.iter().any(printed), "{notes:?}");
    let recorded = Trace::read(&trace).pauses().len();
    assert!(recorded > 100 && recorded < 10_000, "{recorded}");
}

/// Runs a command on a terminal; types Ctrl-C when the file `ready` is there, twice; prints the exit code.
const ON_TERMINAL: &str = "
import os, pty, sys, time
pid, terminal = pty.fork()
if pid == 0: os.execv(sys.argv[1], sys.argv[1:])
def ready():
    while not os.path.exists('ready'): time.sleep(0.01)
    os.unlink('ready')
for _ in range(2):
    ready()
    os.write(terminal, b'\\x03')
while True:
    try:
        if not os.read(terminal, 4096): break
    except OSError: break
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
";

/// Ignores Ctrl-C, and ends after gctrace. Two simultaneous ones are one signal, so the second is typed
/// half a second after the first.
const STUBBORN: &str = "
import os, signal, time
parent, count = os.getppid(), 0
def interrupted(*_):
    global count
    count += 1
signal.signal(signal.SIGINT, interrupted)
signal.signal(signal.SIGHUP, signal.SIG_IGN)  # gctrace leads the session
open('ready', 'w').close()
while not count: time.sleep(0.01)
time.sleep(0.5)
open('ready', 'w').close()
while os.getppid() == parent: time.sleep(0.01)
open('ended', 'w').close()
";

#[test]
fn the_second_interrupt_leaves() {
    let Some((python, place)) = recording::place_for("the_second_interrupt_leaves") else {
        return;
    };
    let output = Command::new(&python)
        .args(["-c", ON_TERMINAL, recording::binary()])
        .args(["top", "--format", "text", "--"])
        .arg(&python)
        .args(["-c", STUBBORN])
        .current_dir(place.path())
        .env_remove("SUDO_UID")
        .output_in_time()
        .unwrap();
    let code = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert_eq!(code, "130", "{output:?}");
    wait_until("the command ended", || has_ended(place.path()));
}

/// An address in use is reported before the command starts.
#[test]
fn an_address_that_is_taken() {
    let Some((_, place)) = recording::place_for("an_address_that_is_taken") else {
        return;
    };
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let arguments = ["--format", "text", "--record", "t.json", "--listen", &address, "--"];
    let mut command = top(place.path(), &arguments);
    let output = command.args(["touch", "started"]).output_in_time().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(messages(&output).contains(&address), "{output:?}");
    let nothing: Vec<_> = fs::read_dir(place.path()).unwrap().collect();
    assert!(nothing.is_empty(), "{nothing:?}");
}

#[test]
fn without_rights_a_command_is_watched_from_within() {
    let Some(user) = OrdinaryUser::for_test("without_rights_a_command_is_watched_from_within")
    else {
        return;
    };
    let program = "import gc\nfor n in range(50): gc.collect()\nprint('mine')";
    let python = interpreters::any_python();
    let arguments = ["top", "--format", "json", "--record", "t.json", "--"];
    let mut command = user.command(&[], &user.file("bin/gctrace"));
    let output =
        command.args(arguments).arg(&python).args(["-c", program]).output_in_time().unwrap();
    assert!(output.status.success(), "{output:?}");
    let objects = objects(&output.stdout);
    let last = objects.last().unwrap();
    assert_eq!(last["mode"], "inject");
    let trace = Trace::read(&user.file("t.json"));
    assert!(trace.pauses().len() >= 50);
    equal_to_trace(last, &trace);

    let pid = std::process::id().to_string();
    for arguments in [vec!["top"], vec!["top", "-p", &pid]] {
        let mut command = user.command(&[], &user.file("bin/gctrace"));
        let output = command.args(&arguments).output_in_time().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?} {output:?}");
        let printed = messages(&output);
        assert!(printed.contains("gctrace -- COMMAND"), "{printed}");
    }
}
