//! Kernel tier: the commands in the documents that need root.

#![expect(clippy::expect_used, reason = "helpers of tests, outside of #[test]")]

use std::process::Child;
use test_kit::docs::Shell;
use test_kit::{docs, recording};

/// A program that runs until the test ends.
struct Running(Child);

impl Running {
    fn new(shell: &Shell, commands: &str) -> Self {
        Self(shell.command(commands).spawn().expect("bash"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `PID` is a running program, and `docker inspect` of a stand-in reports another, which is in a
/// container made by bubblewrap. `sudo` is a stand-in as well: `kernel/sudo.rs` tests the real one.
#[test]
fn commands_of_root() {
    if !recording::privileged("commands_of_root") {
        return;
    }
    docs::run("root", |shell| {
        shell.add("root");
        let program = Running::new(shell, "exec python3 train.py --forever");
        shell.words.push(("PID".to_owned(), program.0.id().to_string()));
        let container = "exec bwrap --die-with-parent --ro-bind / / --dev /dev --proc /proc \
            --unshare-pid python3 train.py --forever";
        let container = Running::new(shell, container);
        let pid = container.0.id().to_string();
        shell.variables.push(("CONTAINER_PID".to_owned(), pid));
        (program, container)
    });
}
