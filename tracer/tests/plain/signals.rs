//! Signals that were ignored when gctrace started, and terminals that go away, without privileges.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::process::Command;
use test_kit::limit::WithTimeout as _;
use test_kit::{interpreters, recording};

/// As nohup and `&` in scripts do: gctrace and its command keep ignoring what was ignored.
#[test]
fn ignored_signals_stay_ignored_for_gctrace_and_its_command() {
    let place = tempfile::tempdir().expect("a folder");
    let place = place.path();
    let script = "trap '' HUP INT QUIT TERM; exec \"$@\"";
    let command = "grep SigIgn /proc/self/status > ignored; touch ready; \
                   while [ ! -e stop ]; do sleep 0.02; done; exit 5";
    let mut gctrace = Command::new("sh")
        .args(["-c", script, "sh", recording::binary(), "--mode", "inject"])
        .args(["--", "sh", "-c", command])
        .current_dir(place)
        .env_remove("SUDO_UID")
        .spawn()
        .expect("sh");
    recording::wait_until("the command runs", || place.join("ready").exists());
    let text = fs::read_to_string(place.join("ignored")).expect("signals");
    let bits = u64::from_str_radix(text.trim_start_matches("SigIgn:").trim(), 16).expect("bits");
    let expected = [1, 2, 3, 15].map(|signal| 1_u64 << (signal - 1));
    assert!(expected.iter().all(|bit| bits & bit != 0), "{text}");
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGINT, Signal::SIGTERM] {
        kill(Pid::from_raw(gctrace.id().cast_signed()), signal).expect("kill");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(gctrace.try_wait().expect("a child").is_none());
    fs::write(place.join("stop"), "").expect("written");
    assert_eq!(gctrace.status_in_time().expect("a child").code(), Some(5));
}

#[test]
fn the_leader_of_a_session_forwards_the_hangup() {
    recording::terminal::the_leader_forwards_the_hangup(&interpreters::any_python(), "inject");
}
