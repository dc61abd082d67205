//! An ordinary user without any capability, for in-process recordings.

use crate::limit::WithTimeout as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A user id without an account.
const NOBODYS: u32 = 61_234;

/// A user, and their folder with gctrace and its library in it.
pub struct OrdinaryUser {
    /// Where gctrace runs and writes.
    pub folder: TempDir,
    /// Name of the entry in /etc/passwd, if one was created.
    name: Option<String>,
}

impl OrdinaryUser {
    /// `None`, and a line with the reason, if gctrace cannot be run as another user. Creates a real
    /// user if `GCTRACE_TEST_SUDO=1` allows that; otherwise it is only a number.
    pub fn for_test(test: &str) -> Option<Self> {
        if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
            eprintln!("skipped {test}: it needs root to become an ordinary user");
            return None;
        }
        let allowed = std::env::var_os("GCTRACE_TEST_SUDO").is_some_and(|value| value == "1");
        let name = allowed.then(|| add_user(test)).flatten();
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        let library = crate::library::find_library().expect("the library is built with the tests");
        std::fs::copy(super::binary(), bin.join("gctrace")).unwrap();
        std::fs::copy(library, bin.join("libgctrace_inject.so")).unwrap();
        let user = Self { folder, name };
        let owner = format!("{0}:{0}", user.id());
        let done =
            Command::new("chown").args(["-R", &owner]).arg(user.folder.path()).status_in_time();
        assert!(done.unwrap().success());
        Some(user)
    }

    fn id(&self) -> String {
        self.name.clone().unwrap_or_else(|| NOBODYS.to_string())
    }

    /// A file of the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A command as that user, in that folder, who can read `trees` wherever they are.
    pub fn command(&self, trees: &[&Path], program: &Path) -> Command {
        let mut command = Command::new(super::scripts().join("../as_user.sh"));
        command
            .arg(self.id())
            .args(trees)
            .arg(super::scripts())
            .arg("--")
            .arg(program)
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .env("HOME", self.folder.path())
            .env("TMPDIR", self.folder.path())
            .env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// gctrace as that user; panics with its messages if it fails.
    pub fn gctrace(&self, trees: &[&Path], arguments: &[&str]) -> Output {
        let mut command = self.command(trees, &self.file("bin/gctrace"));
        let output = command.args(arguments).output_in_time().unwrap();
        assert!(output.status.success(), "{output:?}");
        output
    }
}

impl Drop for OrdinaryUser {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = Command::new("userdel").arg(name).output_in_time();
        }
    }
}

fn add_user(test: &str) -> Option<String> {
    let name = format!("gct-{}-{}", &test[..6], std::process::id() % 100_000);
    let mut command = Command::new("useradd");
    command.args(["--no-create-home", "--user-group", &name]);
    let added = command.status_in_time().is_ok_and(|status| status.success());
    added.then_some(name)
}
