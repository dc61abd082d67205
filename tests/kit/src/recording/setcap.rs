//! gctrace installed by root with file capabilities, and ordinary users of it.

use crate::limit::WithTimeout as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;
use tempfile::TempDir;

/// User ids without an account.
pub const ALICE: u32 = 61_301;
/// The user id of the second user.
pub const BOB: u32 = 61_302;

/// Longer than any test takes, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// A copy of gctrace and its library that only root can write, and a folder that all users can.
pub struct Setcap {
    installed: TempDir,
    work: TempDir,
}

impl Setcap {
    /// `None`, and a line with the reason, if that is not possible.
    pub fn install(test: &str, capabilities: &str) -> Option<Self> {
        if !super::privileged(test) {
            return None;
        }
        if !gctrace_ebpf::KernelSupport::probe().uprobe_multi {
            eprintln!("skipped {test}: before Linux 6.6 probes take more than file capabilities");
            return None;
        }
        let installed = tempfile::tempdir_in("/usr/local/lib").unwrap();
        let work = tempfile::tempdir().unwrap();
        let open = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        open(installed.path(), 0o755);
        open(work.path(), 0o1777);
        let setcap = Self { installed, work };
        fs::copy(super::binary(), setcap.gctrace()).unwrap();
        let library = crate::library::find_library().expect("the library is built with the tests");
        let copy = setcap.installed.path().join("libgctrace_inject.so");
        fs::copy(library, &copy).unwrap();
        open(&setcap.gctrace(), 0o755);
        open(&copy, 0o755);
        let granted =
            Command::new("setcap").arg(capabilities).arg(setcap.gctrace()).output_in_time();
        match granted {
            Ok(output) if output.status.success() => Some(setcap),
            other => {
                eprintln!("skipped {test}: file capabilities cannot be set here: {other:?}");
                None
            }
        }
    }

    /// The binary with the capabilities.
    pub fn gctrace(&self) -> PathBuf {
        self.installed.path().join("gctrace")
    }

    /// A file of the folder that all users can write.
    pub fn file(&self, name: &str) -> PathBuf {
        self.work.path().join(name)
    }

    /// A command as that user, without supplementary groups, with a time limit.
    pub fn command(&self, user: u32, program: &Path) -> Command {
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=5", &LIMIT.as_secs().to_string()])
            .arg(program)
            .current_dir(self.work.path())
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.work.path())
            .uid(user)
            .gid(user);
        command
    }

    /// gctrace as that user.
    pub fn run(&self, user: u32, arguments: &[&str]) -> Output {
        let mut command = self.command(user, &self.gctrace());
        command.args(arguments).output_in_time().unwrap()
    }
}

/// Standard output and error.
pub fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
