//! Kernel tier: readers and terminals that go away.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::process::Command;
use test_kit::limit::WithTimeout as _;
use test_kit::recording;

#[test]
fn messages_without_a_reader_leave_the_commands_exit_code() {
    let test = "messages_without_a_reader_leave_the_commands_exit_code";
    let Some((_, place)) = recording::place_for(test) else {
        return;
    };
    for mode in ["ebpf", "both"] {
        for how in [vec!["record"], vec!["top", "--format", "text"]] {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let status = Command::new(recording::binary())
                .args(&how)
                .args(["-v", "--mode", mode, "--", "sh", "-c", "exit 5"])
                .current_dir(place.path())
                .env_remove("SUDO_UID")
                .stderr(writer)
                .status_in_time()
                .unwrap();
            assert_eq!(status.code(), Some(5), "{how:?} {mode}");
        }
    }
}

/// With little memory, either the recording is refused before the command starts, or gctrace's exit
/// code is the command's.
#[test]
fn without_room_for_threads_the_exit_code_is_the_commands() {
    let test = "without_room_for_threads_the_exit_code_is_the_commands";
    let Some((_, place)) = recording::place_for(test) else {
        return;
    };
    let started = place.path().join("started");
    let mut recorded = 0;
    for mode in ["ebpf", "inject"] {
        for kib in (20_000..=160_000).step_by(10_000) {
            let _ = fs::remove_file(&started);
            let script = format!("ulimit -v {kib}; exec \"$@\"");
            let output = Command::new("sh")
                .args(["-c", &script, "sh", recording::binary(), "--mode", mode])
                .args(["--", "sh", "-c", "ulimit -v unlimited; : > started; exit 37"])
                .current_dir(place.path())
                .env_remove("SUDO_UID")
                .output_in_time()
                .unwrap();
            if started.exists() {
                assert_eq!(output.status.code(), Some(37), "{mode} {kib} {output:?}");
            } else {
                // This includes the dynamic loader's own exit code.
                assert!(!output.status.success(), "{mode} {kib} {output:?}");
            }
            let messages = String::from_utf8_lossy(&output.stderr);
            assert!(!messages.contains("panicked"), "{mode} {kib} {messages}");
            recorded += usize::from(started.exists());
        }
    }
    assert!(recorded > 5, "{recorded} commands were started");
}

/// The shell that leads the session outlives the terminal, and so does gctrace for a while.
#[test]
fn the_view_without_its_terminal_ends_in_order() {
    let Some((python, place)) = recording::place_for("the_view_without_its_terminal_ends_in_order")
    else {
        return;
    };
    let place = place.path();
    let code = "import time; open('ready', 'w').close(); time.sleep(2); open('ended', 'w').close()";
    for mode in ["ebpf", "inject"] {
        let _ = fs::remove_file(place.join("ready"));
        let script = format!(
            "trap '' HUP; {} top --mode {mode} -- {} -c \"{code}\"; echo $? > code",
            recording::binary(),
            python.display()
        );
        let output = recording::terminal::closed(place, &["/bin/sh", "-c", &script]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n", "{output:?}");
        assert_eq!(fs::read_to_string(place.join("code")).unwrap(), "0\n");
        recording::wait_until("the command ended", || place.join("ended").exists());
        fs::remove_file(place.join("ended")).unwrap();
    }
}

#[test]
fn the_leader_of_a_session_forwards_the_hangup() {
    let Some((python, _place)) =
        recording::place_for("the_leader_of_a_session_forwards_the_hangup")
    else {
        return;
    };
    for mode in ["ebpf", "both"] {
        recording::terminal::the_leader_forwards_the_hangup(&python, mode);
    }
}

/// A recorder that was started with every signal ignored can still be ended.
#[test]
fn an_ignored_sigterm_ends_a_recording_that_was_attached() {
    let test = "an_ignored_sigterm_ends_a_recording_that_was_attached";
    let Some((python, place)) = recording::place_for(test) else {
        return;
    };
    let place = place.path();
    let mut program =
        Command::new(python).args(["-c", "import time; time.sleep(60)"]).spawn().unwrap();
    let script = "trap '' HUP INT QUIT TERM; exec \"$@\"";
    let mut gctrace = Command::new("sh")
        .args(["-c", script, "sh", recording::binary(), "record", "-p"])
        .arg(program.id().to_string())
        .current_dir(place)
        .env_remove("SUDO_UID")
        .spawn()
        .unwrap();
    let trace = place.join("trace.json");
    recording::wait_until("attached", || {
        fs::read_to_string(&trace).is_ok_and(|text| text.contains("found_by"))
    });
    let pid = Pid::from_raw(i32::try_from(gctrace.id()).unwrap());
    for ignored in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT] {
        kill(pid, ignored).unwrap();
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(gctrace.try_wait().unwrap().is_none(), "ignored stays ignored");
    kill(pid, Signal::SIGTERM).unwrap();
    assert_eq!(gctrace.status_in_time().unwrap().code(), Some(0));
    assert!(program.try_wait().unwrap().is_none());
    program.kill().unwrap();
    program.status_in_time().unwrap();
}

/// Runs a command below a shell that leads a session, on a terminal that is closed after each of
/// several times; prints `alive` and exits if the command, by its standard error, is still there 20
/// s later.
const CLOSED_EARLY: &str = "
import os, pty, select, signal, sys, time
for delay in (0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5):
    reader, writer = os.pipe()
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.dup2(writer, 2)
        os.execv('/bin/sh', ['sh', '-c', '\"$@\"; true', 'sh'] + sys.argv[1:])
    os.close(writer)
    time.sleep(delay)
    os.close(terminal)
    os.waitpid(pid, 0)
    patience = time.monotonic() + 20
    while select.select([reader], [], [], max(0, patience - time.monotonic()))[0]:
        if not os.read(reader, 65536):
            break
    else:
        print('alive: the terminal was closed after', delay)
        os.killpg(pid, signal.SIGKILL)
        break
    os.close(reader)
";

/// Until there is a command, the hangup of the process group reaches gctrace alone.
#[test]
fn a_hangup_before_the_command_starts_ends_it() {
    let test = "a_hangup_before_the_command_starts_ends_it";
    let Some((python, place)) = recording::place_for(test) else {
        return;
    };
    for (verb, mode) in [("record", "ebpf"), ("record", "inject"), ("top", "both")] {
        let output = Command::new(&python)
            .args(["-c", CLOSED_EARLY, recording::binary(), verb, "--mode", mode])
            .args(["--", "sleep", "600"])
            .current_dir(place.path())
            .env("TERM", "xterm")
            .env_remove("SUDO_UID")
            .output_in_time()
            .unwrap();
        assert!(output.status.success(), "{verb} {mode}: {output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{verb} {mode}");
    }
}
