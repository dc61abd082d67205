//! A real user with a home, who may use sudo.

use crate::limit::WithTimeout as _;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A user with a home that only they can enter.
pub struct Account {
    /// Login name.
    pub name: String,
    /// Home directory, mode 0700.
    pub home: PathBuf,
}

impl Account {
    /// `None`, and a line with the reason, if users must not be created. `letter` distinguishes the
    /// users of one test.
    pub fn create(test: &str, letter: char) -> Option<Self> {
        if std::env::var_os("GCTRACE_TEST_SUDO").is_none_or(|value| value != "1") {
            eprintln!("skipped {test}: it creates users; GCTRACE_TEST_SUDO=1 allows that");
            return None;
        }
        if !super::privileged(test) {
            return None;
        }
        let name = format!("gct-{letter}{}-{}", &test[..4], std::process::id() % 100_000);
        let home = Path::new("/home").join(&name);
        let options = ["--create-home", "--user-group", "--shell", "/bin/sh", &name];
        run("useradd", &options);
        let account = Self { name, home };
        set_mode(&account.home, 0o700);
        let rule = format!("{} ALL=(ALL:ALL) NOPASSWD: ALL\n", account.name);
        fs::write(account.sudoers(), rule).unwrap();
        set_mode(&account.sudoers(), 0o440);
        Some(account)
    }

    fn sudoers(&self) -> PathBuf {
        Path::new("/etc/sudoers.d").join(&self.name)
    }

    /// User id.
    pub fn uid(&self) -> u32 {
        fs::metadata(&self.home).unwrap().uid()
    }

    /// Copies a file below the home, as the user's own.
    pub fn own(&self, from: &Path, to: &str) -> PathBuf {
        let to = self.home.join(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, &to).unwrap();
        set_mode(&to, 0o755);
        self.give(&self.home);
        to
    }

    /// Makes the user the owner of a file, or of a folder with all it contains.
    pub fn give(&self, path: &Path) {
        let owner = format!("{0}:{0}", self.name);
        run("chown", &["--recursive", &owner, path.to_str().unwrap()]);
    }

    /// A shell script in the home. `before`: what root runs first, in a mount namespace of its own.
    pub fn shell_after(&self, before: &str, script: &str) -> Output {
        let user = &self.name;
        let become_user = format!(
            "{before}\nexec setpriv --reuid {user} --regid {user} --init-groups sh -c \"$1\""
        );
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-ec", &become_user, "sh", script])
            .current_dir(&self.home)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .env("HOME", &self.home)
            .env("USER", user);
        command.output_in_time().unwrap()
    }

    /// A shell script in the home.
    pub fn shell(&self, script: &str) -> Output {
        self.shell_after("", script)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.sudoers());
        let copies = format!("/var/tmp/gctrace-{}", self.uid());
        let options = ["--force", "--remove", &self.name];
        let _ = Command::new("userdel").args(options).output_in_time();
        let _ = fs::remove_dir_all(copies);
    }
}

/// Runs a program that must succeed.
pub fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output_in_time();
    let output = output.unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
}

/// Sets permissions.
pub fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}
