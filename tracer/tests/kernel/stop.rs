//! Kernel tier: every program that gctrace stops is resumed, however and whenever the recording
//! ends, and even if gctrace hangs.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use test_kit::limit::WithTimeout as _;
use test_kit::recording;
use test_kit::recording::tmux::{Tmux, has_tmux};

/// Recordings that end while programs are started: each of them used to leave some stopped.
const ROUNDS: usize = 4;

fn spawner() -> String {
    let script = recording::scripts().join("spawner.py");
    script.to_str().unwrap().to_owned()
}

/// In a session of its own: below a shell with job control no program would be stopped.
fn start_spawner(python: &Path, folder: &Path) -> Child {
    let child = Command::new("setsid").arg(python).arg(spawner()).arg(folder).spawn().unwrap();
    recording::wait_until("the first program", || folder.join("ready").exists());
    child
}

/// Ends a spawner and returns how many programs it started. All of them must have exited.
fn all_programs_ended(folder: &Path) -> u64 {
    fs::write(folder.join("stop"), "").unwrap();
    let report = folder.join("report.json");
    recording::wait_until("the report of the spawner", || report.exists());
    let report = recording::json(&report);
    assert_eq!(report["stuck"], Value::Array(Vec::new()), "{report}");
    report["started"].as_u64().unwrap()
}

fn signal(process: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(process.id()).unwrap()), signal).unwrap();
}

fn gctrace(place: &Path, arguments: &[&str]) -> Child {
    Command::new(recording::binary())
        .args(arguments)
        .current_dir(place)
        .env_remove("SUDO_UID")
        .stdout(Stdio::null())
        .stderr(fs::File::create(place.join("messages")).unwrap())
        .spawn()
        .unwrap()
}

/// Records a spawner, ends the recording with `end`, and checks that all programs exit.
fn ends_cleanly(python: &Path, arguments: &[&str], end: Option<Signal>) {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("programs");
    let mut spawner = start_spawner(python, &folder);
    let pid = spawner.id().to_string();
    let mut line = arguments.to_vec();
    line.extend(["-p", &pid]);
    let mut gctrace = gctrace(place.path(), &line);
    if let Some(end) = end {
        std::thread::sleep(std::time::Duration::from_millis(500));
        signal(&gctrace, end);
    }
    let status = gctrace.status_in_time().unwrap();
    let messages = fs::read_to_string(place.path().join("messages")).unwrap();
    assert!(status.success(), "{arguments:?}: {status} {messages}");
    let started = all_programs_ended(&folder);
    assert!(started > 2, "{started} programs");
    assert!(spawner.status_in_time().unwrap().success());
}

#[test]
fn a_recording_that_ends_leaves_nothing_stopped() {
    let Some((python, _)) = recording::place_for("a_recording_that_ends_leaves_nothing_stopped")
    else {
        return;
    };
    for _ in 0..ROUNDS {
        ends_cleanly(&python, &["record", "-d", "0.4s"], None);
    }
    for _ in 0..2 {
        ends_cleanly(&python, &["record"], Some(Signal::SIGINT));
        ends_cleanly(&python, &["record"], Some(Signal::SIGTERM));
        ends_cleanly(&python, &["top", "-n", "2", "-d", "0.2s"], None);
    }
}

/// The kernel sends SIGHUP to every process of a group that loses its last parent while one of them
/// is stopped.
#[test]
fn the_end_of_the_command_ends_no_survivor() {
    let Some((python, _)) = recording::place_for("the_end_of_the_command_ends_no_survivor") else {
        return;
    };
    let round = || {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("programs");
        let command = format!("{} {} {} & sleep 1", python.display(), spawner(), folder.display());
        // In a process group of its own, whose only parent in the session is this shell.
        let line = format!("set -m; {} record -- sh -c '{command}' & wait $!", recording::binary());
        let status = Command::new("setsid")
            .args(["--wait", "bash", "-c", &line])
            .current_dir(place.path())
            .env_remove("SUDO_UID")
            .stderr(Stdio::null())
            .status_in_time()
            .unwrap();
        assert!(status.success(), "{status}");
        all_programs_ended(&folder);
    };
    std::thread::scope(|rounds| {
        for _ in 0..5 {
            rounds.spawn(round);
        }
    });
}

/// While gctrace itself is stopped, the programs that it has stopped are resumed after at most two
/// seconds.
#[test]
fn a_stopped_gctrace_leaves_no_program_stopped() {
    let Some((python, place)) = recording::place_for("a_stopped_gctrace_leaves_no_program_stopped")
    else {
        return;
    };
    let place = place.path();
    let folder = place.join("programs");
    let mut spawner = start_spawner(&python, &folder);
    let mut gctrace = gctrace(place, &["record", "-p", &spawner.id().to_string()]);
    let trace = place.join("trace.json");
    recording::wait_until("attached", || {
        fs::read_to_string(&trace).is_ok_and(|text| text.contains("found_by"))
    });
    signal(&gctrace, Signal::SIGSTOP);
    std::thread::sleep(std::time::Duration::from_millis(500));
    all_programs_ended(&folder);
    signal(&gctrace, Signal::SIGCONT);
    assert!(gctrace.status_in_time().unwrap().success(), "the process ended");
    assert!(spawner.status_in_time().unwrap().success());
    let trace = recording::Trace::read(&trace);
    let notes = trace.named("gctrace_note");
    let is_reported = |(_, note): &(u64, &Value)| note["message"].to_string().contains("guardian");
    assert!(notes.iter().any(is_reported), "{notes:?}");
}

/// A shell that has gctrace among its descendants, and starts new programs meanwhile. None of them
/// runs Python, which gctrace's exit code shows.
const ANCESTOR: &str = "
cp \"$(command -v sleep)\" program; truncate -s 4M program
$GCTRACE record -p $$ -d 1s & recording=$!
for number in 1 2 3 4 5 6 7 8 9 10; do cp program program$number; ./program$number 0.05; done
wait $recording; test $? = 1
";

#[test]
fn an_ancestor_is_recorded() {
    let Some((_, place)) = recording::place_for("an_ancestor_is_recorded") else {
        return;
    };
    let mut shell = Command::new("setsid")
        .args(["--wait", "bash", "-c", ANCESTOR])
        .current_dir(place.path())
        .env("GCTRACE", recording::binary())
        .env_remove("SUDO_UID")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    recording::wait_until("the end", || shell.try_wait().unwrap().is_some());
    assert!(shell.status_in_time().unwrap().success());
    let trace = recording::Trace::read(&place.path().join("trace.json"));
    let processes = trace.named("gctrace_process");
    let is_gctrace = |(_, process): &(u64, &Value)| {
        let command = process["command"].to_string();
        command.contains(recording::binary()) || command.contains("guardian")
    };
    assert!(!processes.iter().any(is_gctrace), "{processes:?}");
}

#[test]
fn the_view_of_an_ancestor_is_left() {
    let test = "the_view_of_an_ancestor_is_left";
    let Some((_, place)) = recording::place_for(test) else {
        return;
    };
    if !has_tmux(test) {
        return;
    }
    let shell = ["bash", "--norc", "--noprofile", "-i"];
    let tmux = Tmux::start(place.path(), (100, 30), &shell);
    for leave in ["q", "C-c", "SIGTERM"] {
        tmux.line(&format!("{} top -p $$; echo left $?", recording::binary()));
        tmux.wait_for_words("gctrace top");
        recording::wait_until("the view", || tmux.variable("alternate_on") == "1");
        match leave {
            "SIGTERM" => {
                let pane = tmux.variable("pane_pid");
                let children = fs::read_to_string(format!("/proc/{pane}/task/{pane}/children"));
                let gctrace = children.unwrap().trim().parse().unwrap();
                kill(Pid::from_raw(gctrace), Signal::SIGTERM).unwrap();
            }
            key => tmux.press(&[key]),
        }
        tmux.wait_for_words("left 0");
        tmux.line("clear");
        tmux.wait_for("an empty screen", |screen| !screen.contains("left"));
    }
}
