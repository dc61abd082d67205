//! Recording through real sudo, and with file capabilities, by a user created for the test.
//!
//! Creates a user and a file in /etc/sudoers.d, and removes both; therefore only runs as root if
//! `GCTRACE_TEST_SUDO=1` allows it.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;
use test_kit::limit::WithTimeout as _;
use test_kit::{interpreters, recording};

/// A user who may use sudo, and their directory with a copy of gctrace in it.
struct User {
    name: String,
    directory: TempDir,
}

impl User {
    /// `None`, and a line with the reason, if such a user must not be created.
    fn for_test(test: &str) -> Option<Self> {
        if std::env::var_os("GCTRACE_TEST_SUDO").is_none_or(|value| value != "1") {
            eprintln!(
                "skipped {test}: it creates a user and a sudoers entry; GCTRACE_TEST_SUDO=1 allows that"
            );
            return None;
        }
        if !recording::privileged(test) {
            return None;
        }
        for tool in ["sudo", "useradd", "setcap", "script"] {
            if !Command::new("sh")
                .args(["-c", &format!("command -v {tool} >/dev/null")])
                .status_in_time()
                .unwrap()
                .success()
            {
                eprintln!("skipped {test}: there is no {tool} here");
                return None;
            }
        }
        Some(Self::make(test))
    }

    fn make(test: &str) -> Self {
        let name = format!("gctrace-{}-{}", &test[..6], std::process::id() % 100_000);
        run("useradd", &["--no-create-home", "--shell", "/bin/sh", "--groups", "games", &name]);
        let directory = tempfile::tempdir().unwrap();
        let user = Self { name, directory };
        fs::write(user.sudoers(), format!("{} ALL=(ALL:ALL) NOPASSWD: ALL\n", user.name)).unwrap();
        fs::set_permissions(user.sudoers(), PermissionsExt::from_mode(0o440)).unwrap();
        fs::copy(recording::binary(), user.file("gctrace")).unwrap();
        run("chown", &["-R", &user.name, user.directory.path().to_str().unwrap()]);
        user
    }

    fn sudoers(&self) -> PathBuf {
        Path::new("/etc/sudoers.d").join(&self.name)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn id(&self) -> u32 {
        fs::metadata(self.directory.path()).unwrap().uid()
    }

    /// A shell script as that user, in that directory, with an environment that sudo will not keep.
    fn shell(&self, script: &str) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args([
                "--reuid",
                &self.name,
                "--regid",
                &self.name,
                "--init-groups",
                "sh",
                "-c",
                script,
            ])
            .current_dir(self.directory.path())
            .env_clear()
            .env(
                "PATH",
                format!("{}:/usr/local/bin:/usr/bin:/bin", self.file("venv/bin").display()),
            )
            .env("HOME", self.directory.path())
            .env("USER", &self.name)
            .env("VIRTUAL_ENV", self.file("venv"))
            .env("CUDA_VISIBLE_DEVICES", "3")
            .env("LD_LIBRARY_PATH", "/opt/libraries")
            .env("TMPDIR", self.directory.path());
        command
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.sudoers());
        // By force: a command that outlives its recording may still be running.
        let _ = Command::new("userdel")
            .args(["--force", &self.name])
            .stderr(Stdio::null())
            .status_in_time();
    }
}

fn run(program: &str, arguments: &[&str]) {
    assert!(
        Command::new(program).args(arguments).status_in_time().unwrap().success(),
        "{program} {arguments:?}"
    );
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// A Python program that prints its rights and its environment as JSON, and exits with 9.
const REPORT: &str = r#"
import gc, json, os, sys
gc.collect()
status = dict(line.rstrip().split(':\t', 1) for line in open('/proc/self/status') if ':\t' in line)
json.dump({'uid': os.getuid(), 'gid': os.getgid(), 'groups': sorted(os.getgroups()), 'env': dict(os.environ),
           'capabilities': [int(status[name], 16) for name in ('CapPrm', 'CapEff', 'CapInh', 'CapAmb')],
           'blocked': int(status['SigBlk'], 16)}, open('rights.json', 'w'))
sys.exit(9)
"#;

impl User {
    /// Runs `REPORT` under gctrace, which `start` starts; returns what it printed.
    fn reported_by(&self, start: &str) -> Value {
        fs::write(self.file("report.py"), REPORT).unwrap();
        let python = interpreters::any_python();
        let script = format!("{start} -o trace.json -- {} report.py", python.display());
        let output = self.shell(&script).output_in_time().unwrap();
        assert_eq!(output.status.code(), Some(9), "{}", text(&output));
        assert_eq!(fs::metadata(self.file("trace.json")).unwrap().uid(), self.id());
        assert!(!recording::Trace::read(&self.file("trace.json")).pauses().is_empty());
        recording::json(&self.file("rights.json"))
    }

    fn check(&self, reported: &Value) {
        assert_eq!(reported["uid"], self.id());
        assert_eq!(reported["gid"], self.id());
        assert_eq!(reported["groups"].as_array().unwrap().len(), 2, "{}", reported["groups"]);
        assert_eq!(reported["capabilities"], serde_json::json!([0, 0, 0, 0]));
        assert_eq!(reported["blocked"], 0);
        let environment = &reported["env"];
        assert_eq!(environment["CUDA_VISIBLE_DEVICES"], "3");
        assert_eq!(environment["LD_LIBRARY_PATH"], "/opt/libraries");
        assert_eq!(environment["TMPDIR"], self.directory.path().to_str().unwrap());
        assert_eq!(environment["HOME"], self.directory.path().to_str().unwrap());
        assert_eq!(environment["USER"], self.name);
        assert!(environment["PATH"].as_str().unwrap().contains("/venv/bin:"));
        assert!(environment.as_object().unwrap().keys().all(|name| !name.starts_with("SUDO_")));
    }
}

#[test]
fn through_sudo_the_command_is_the_users_own() {
    let Some(user) = User::for_test("through_sudo_the_command_is_the_users_own") else {
        return;
    };
    let reported = user.reported_by("sudo GIVEN=here ./gctrace");
    user.check(&reported);
    assert_eq!(reported["env"]["GIVEN"], "here");
}

#[test]
fn as_root_keeps_root() {
    let Some(user) = User::for_test("as_root_keeps_root") else {
        return;
    };
    let reported = user.reported_by("sudo ./gctrace --as-root");
    assert_eq!(reported["uid"], 0);
    assert_eq!(reported["env"]["SUDO_USER"], user.name);
}

#[test]
fn file_capabilities_suffice_and_end_with_gctrace() {
    let Some(user) = User::for_test("file_capabilities_suffice_and_end_with_gctrace") else {
        return;
    };
    let file = user.file("gctrace");
    run("setcap", &["cap_bpf,cap_perfmon+ep", file.to_str().unwrap()]);
    let reported = user.reported_by("./gctrace");
    user.check(&reported);
}

#[test]
fn without_privileges_the_command_that_grants_them_is_named() {
    let Some(user) = User::for_test("without_privileges_the_command_that_grants_them_is_named")
    else {
        return;
    };
    let output = user.shell("./gctrace -- true").output_in_time().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let printed = text(&output);
    let named = printed
        .lines()
        .map(str::trim)
        .find(|line| line.starts_with("sudo chown "))
        .expect(&printed);
    // the command has the promised effect
    assert!(user.shell(named).status_in_time().unwrap().success());
    assert_eq!(user.shell("./gctrace -- sh -c 'exit 4'").status_in_time().unwrap().code(), Some(4));
}

#[test]
fn root_does_not_write_through_a_users_link() {
    let Some(user) = User::for_test("root_does_not_write_through_a_users_link") else {
        return;
    };
    let precious = tempfile::NamedTempFile::new().unwrap();
    fs::write(precious.path(), "precious").unwrap();
    std::os::unix::fs::symlink(precious.path(), user.file("trace.json")).unwrap();
    let output = user.shell("sudo ./gctrace -- true").output_in_time().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert_eq!(fs::read(precious.path()).unwrap(), b"precious");
}

/// Reports each SIGINT; ends after the first (`once`), or only when there is a file `stop`.
const COUNT: &str = r"
import os, signal, sys, time
def interrupted(*_):
    os.write(1, b'interrupted\n')
    if sys.argv[1] == 'once':
        sys.exit(3)
signal.signal(signal.SIGINT, interrupted)
os.write(1, b'ready\n')
folder = os.getcwd()
while not os.path.exists('stop') and os.path.isdir(folder):
    time.sleep(0.05)
";

/// A program in a terminal of its own, with its output.
struct Terminal {
    child: Child,
    screen: BufReader<std::process::ChildStdout>,
}

impl Terminal {
    fn open(user: &User, line: &str) -> Self {
        fs::write(user.file("count.py"), COUNT).unwrap();
        let script = format!("exec script --quiet --return --command '{line}' /dev/null");
        let mut child =
            user.shell(&script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let screen = BufReader::new(child.stdout.take().unwrap());
        Self { child, screen }
    }

    /// Reads until the word appears; false if the terminal closes before.
    fn shows(&mut self, word: &str) -> bool {
        let mut line = String::new();
        while self.screen.read_line(&mut line).unwrap_or(0) > 0 {
            eprint!("on the screen: {line}");
            if line.contains(word) {
                return true;
            }
            line.clear();
        }
        false
    }

    fn type_interrupt(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\x03").unwrap();
    }

    fn exit_code(mut self) -> Option<i32> {
        while self.shows("") {}
        self.child.status_in_time().unwrap().code()
    }
}

fn in_terminal(user: &User, how: &str) -> Terminal {
    let python = interpreters::any_python();
    let mut terminal =
        Terminal::open(user, &format!("sudo ./gctrace -q -- {} count.py {how}", python.display()));
    assert!(terminal.shows("ready"));
    terminal.type_interrupt();
    assert!(terminal.shows("interrupted"));
    terminal
}

#[test]
fn the_first_interrupt_is_the_commands() {
    let Some(user) = User::for_test("the_first_interrupt_is_the_commands") else {
        return;
    };
    let terminal = in_terminal(&user, "once");
    assert_eq!(terminal.exit_code(), Some(3));
}

#[test]
fn the_second_interrupt_ends_the_recording() {
    let Some(user) = User::for_test("the_second_interrupt_ends_the_recording") else {
        return;
    };
    let mut terminal = in_terminal(&user, "never");
    // At a finger's pace: two at the same time are one signal.
    std::thread::sleep(std::time::Duration::from_millis(300));
    terminal.type_interrupt();
    assert_eq!(terminal.exit_code(), Some(130));
    fs::write(user.file("stop"), "").unwrap();
    let trace = recording::Trace::read(&user.file("trace.json"));
    assert!(!trace.events.is_empty());
}
