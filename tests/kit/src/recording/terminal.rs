//! Commands on a terminal of their own, which goes away.

use crate::limit::WithTimeout as _;
use std::path::Path;
use std::process::{Command, Output};

/// Runs a command as the leader of a session on a terminal that is closed as soon as the file
/// `ready` exists; then prints its exit code (negative for a signal), or `alive` after 20 s.
const CLOSED_TERMINAL: &str = "
import os, pty, select, signal, sys, time
pid, terminal = pty.fork()
if pid == 0:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's handler goes with exec; what is ignored would stay
    os.execv(sys.argv[1], sys.argv[1:])
patience = time.monotonic() + 60
while not os.path.exists('ready') and time.monotonic() < patience:
    if select.select([terminal], [], [], 0.01)[0]:
        try: os.read(terminal, 65536)
        except OSError: break
os.close(terminal)
patience = time.monotonic() + 20
while time.monotonic() < patience:
    ended, status = os.waitpid(pid, os.WNOHANG)
    if ended:
        print(os.waitstatus_to_exitcode(status))
        break
    time.sleep(0.01)
else:
    print('alive')
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
";

/// Runs that in `place`. Its result is on standard output.
pub fn closed(place: &Path, command: &[&str]) -> Output {
    Command::new(crate::interpreters::any_python())
        .args(["-c", CLOSED_TERMINAL])
        .args(command)
        .current_dir(place)
        .env("TERM", "xterm")
        .env_remove("SUDO_UID")
        .output_in_time()
        .unwrap()
}

/// If gctrace itself leads the session (`ssh -t HOST gctrace`), the kernel reports the hangup only
/// to gctrace: it must reach the command, and the recording must be complete.
pub fn the_leader_forwards_the_hangup(python: &Path, mode: &str) {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let sleeps = "import gc, time; gc.collect(); open('ready', 'w').close(); time.sleep(60)";
    let handles = format!("import signal, sys; signal.signal(1, lambda *_: sys.exit(3)); {sleeps}");
    for (code, expected) in [(sleeps, "129\n"), (&handles, "3\n")] {
        let _ = std::fs::remove_file(place.join("ready"));
        let python = python.to_str().unwrap();
        let command = [super::binary(), "--mode", mode, "--", python, "-c", code];
        let output = closed(place, &command);
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{output:?}");
        let trace = super::Trace::read(&place.join("trace.json"));
        assert_eq!(trace.end()["why"], "the command ended");
        let collected =
            trace.pauses().iter().any(|pause| pause.reason == "manual" || mode == "inject");
        assert!(collected, "{mode}");
    }
}
