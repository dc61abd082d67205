//! Commands on a terminal of their own, which goes away.

use super::limit::CommandLimit as _;
use std::path::Path;
use std::process::Command;
use std::process::Output;

/// Runs a command as the leader of a session on a terminal that is closed as soon as the file `ready` is there; then
/// prints its exit code (of a signal, negative), or `alive` after 20 s. SIGINT and SIGHUP do what they do by default.
const CLOSED_TERMINAL: &str = "
import os, pty, select, signal, sys, time
pid, terminal = pty.fork()
if pid == 0:
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT): signal.signal(number, signal.SIG_DFL)
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

/// Runs that, in `place`. What it prints is on standard output.
pub fn closed(place: &Path, command: &[&str]) -> Output {
    Command::new(super::any_python())
        .args(["-c", CLOSED_TERMINAL])
        .args(command)
        .current_dir(place)
        .env("TERM", "xterm")
        .env_remove("SUDO_UID")
        .output_in_time()
        .unwrap()
}
