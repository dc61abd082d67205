//! The environment of the command, as without sudo.
//!
//! sudo replaces `PATH`, drops most variables and sets some of its own. sudo's process still has the user's environment
//! in `/proc/PID/environ`, readable by root.

use crate::invoker::{Invoker, PrivilegeTool};
use crate::platform::has_more_rights_than_its_user;
use gctrace_probes::proc_status;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;

/// Environment variables by name; neither names nor values need to be UTF-8.
pub(super) type Environment = BTreeMap<OsString, OsString>;

/// Set by sudo, doas and their PAM modules: no user chose a value that differs from their own
/// (sudoers(5) "Command environment", pam_systemd(8), pam_xauth(8)).
const REWRITTEN: [&str; 12] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "USERNAME",
    "SHELL",
    "MAIL",
    "XAUTHORITY",
    "XDG_RUNTIME_DIR",
    "XDG_SESSION_ID",
    "DBUS_SESSION_BUS_ADDRESS",
    "_",
];

/// Added by sudo and doas.
const ADDED: [&str; 7] =
    ["SUDO_COMMAND", "SUDO_USER", "SUDO_UID", "SUDO_GID", "SUDO_HOME", "SUDO_TTY", "DOAS_USER"];

/// How far up the ancestors to search: far more than launchers nest.
const MAX_ANCESTORS: usize = 64;

/// The environment that gctrace was given. With file capabilities (setcap) the dynamic loader has
/// removed `LD_LIBRARY_PATH`, `TMPDIR` and others from the process's view of it (ld.so(8), "secure
/// execution"); the kernel's copy still has them.
pub(super) fn present() -> Environment {
    if has_more_rights_than_its_user() {
        given_by_kernel().unwrap_or_else(|_| seen())
    } else {
        seen()
    }
}

/// For the command, not for gctrace.
#[expect(
    clippy::disallowed_methods,
    reason = "passed on, not read: gctrace's own variables are in variables.rs"
)]
fn seen() -> Environment {
    std::env::vars_os().collect()
}

/// A process with more rights than its user may not read its own `/proc/self/environ` unless it is
/// "dumpable". Making it so briefly exposes nothing: tracing a process needs all of its
/// capabilities (`cap_ptrace_access_check`, security/commoncap.c).
fn given_by_kernel() -> io::Result<Environment> {
    let before = nix::sys::prctl::get_dumpable()?;
    nix::sys::prctl::set_dumpable(true)?;
    let environment = std::fs::read("/proc/self/environ")
        .map(|bytes| proc_status::parse_environment(&bytes).collect());
    nix::sys::prctl::set_dumpable(before)?;
    environment
}

/// The environment from before the tool, and a note if that is unknown.
pub(super) fn before(
    tool: PrivilegeTool,
    present: &Environment,
    invoker: &Invoker,
) -> (Environment, Option<String>) {
    match find(tool) {
        Ok(found) => (merge(present, &found), None),
        Err(reason) => {
            let note = format!(
                "the environment from before {tool} cannot be read ({reason}): PATH is {tool}'s"
            );
            (guess(present, invoker), Some(note))
        }
    }
}

/// The environments before and after the tool.
struct ToolEnvironments {
    /// The tool's own: the user's when typing the command.
    typed: Environment,
    /// Initial environment of the process that it started, such as gctrace or a root shell.
    given: Environment,
}

fn find(tool: PrivilegeTool) -> Result<ToolEnvironments, String> {
    let environment = |pid| {
        let variables = proc_status::environment(pid).map_err(|error| error.to_string())?;
        Ok::<Environment, String>(variables.into_iter().collect())
    };
    let mut child = std::process::id();
    for parent in ancestors(child) {
        let status = proc_status::status(parent).map_err(|error| error.to_string())?;
        if status.name == tool.to_string() && status.effective_user == Some(0) {
            return Ok(ToolEnvironments {
                typed: environment(parent)?,
                given: environment(child)?,
            });
        }
        child = parent;
    }
    Err(format!("no {tool} among the ancestors of this process"))
}

/// The ancestors of a process, nearest first, without process 1.
pub fn ancestors(pid: u32) -> impl Iterator<Item = u32> {
    let parent = |pid: &u32| {
        let parent = proc_status::stat(*pid).ok()?.parent;
        if parent > 1 { Some(parent) } else { None }
    };
    std::iter::successors(parent(&pid), parent).take(MAX_ANCESTORS)
}

/// The user's environment, overridden by variables set on purpose since: `sudo NAME=value gctrace`, or in a root shell.
fn merge(present: &Environment, found: &ToolEnvironments) -> Environment {
    let mut merged = found.typed.clone();
    for (name, value) in present {
        let rewritten = REWRITTEN.iter().any(|known| name == known);
        let changed_since = found.given.get(name) != Some(value);
        if !is_added(name) && (!rewritten || changed_since && name == "PATH") {
            merged.insert(name.clone(), value.clone());
        }
    }
    merged
}

/// Without sudo's own environment: from the user database.
fn guess(present: &Environment, invoker: &Invoker) -> Environment {
    let mut guessed = present.clone();
    guessed.retain(|name, _| !is_added(name));
    let mail = format!("/var/mail/{}", invoker.name);
    for (name, value) in [
        ("HOME", invoker.home.as_os_str()),
        ("USER", OsStr::new(&invoker.name)),
        ("LOGNAME", OsStr::new(&invoker.name)),
        ("SHELL", invoker.shell.as_os_str()),
        ("MAIL", OsStr::new(&mail)),
    ] {
        guessed.insert(name.into(), value.to_owned());
    }
    guessed
}

fn is_added(name: &OsStr) -> bool {
    ADDED.iter().any(|added| name == *added)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    const TYPED: [(&str, &str); 6] = [
        ("PATH", "/home/alice/venv/bin:/usr/bin"),
        ("HOME", "/home/alice"),
        ("USER", "alice"),
        ("VIRTUAL_ENV", "/home/alice/venv"),
        ("LANG", "de_DE.UTF-8"),
        ("SUDO_EDITOR", "vi"),
    ];
    const GIVEN: [(&str, &str); 6] = [
        ("PATH", "/usr/sbin:/usr/bin"),
        ("HOME", "/root"),
        ("USER", "root"),
        ("SUDO_USER", "alice"),
        ("SUDO_UID", "1000"),
        ("LANG", "de_DE.UTF-8"),
    ];

    fn found() -> ToolEnvironments {
        ToolEnvironments { typed: environment(&TYPED), given: environment(&GIVEN) }
    }

    #[test]
    fn plain_sudo_restores_the_users_environment() {
        assert_eq!(merge(&environment(&GIVEN), &found()), environment(&TYPED));
    }

    #[test]
    fn variables_set_on_purpose_are_kept() {
        let mut present = environment(&GIVEN);
        present.insert("CUDA_VISIBLE_DEVICES".into(), "1".into());
        present.insert("LANG".into(), "C".into());
        let mut expected = environment(&TYPED);
        expected.insert("CUDA_VISIBLE_DEVICES".into(), "1".into());
        expected.insert("LANG".into(), "C".into());
        assert_eq!(merge(&present, &found()), expected);
    }

    #[test]
    fn a_venv_activated_in_a_root_shell_is_kept() {
        let mut present = environment(&GIVEN);
        present.insert("PATH".into(), "/srv/venv/bin:/usr/bin".into());
        let merged = merge(&present, &found());
        assert_eq!(merged.get(OsStr::new("PATH")), Some(&"/srv/venv/bin:/usr/bin".into()));
        assert_eq!(merged.get(OsStr::new("HOME")), Some(&"/home/alice".into()));
    }

    #[test]
    fn without_it_the_user_database_helps() {
        let mut invoker = Invoker::detect();
        invoker.name = "a".into();
        invoker.home = "/home/a".into();
        invoker.shell = "/bin/zsh".into();
        let expected = environment(&[
            ("PATH", "/usr/sbin:/usr/bin"),
            ("HOME", "/home/a"),
            ("USER", "a"),
            ("LOGNAME", "a"),
            ("SHELL", "/bin/zsh"),
            ("MAIL", "/var/mail/a"),
            ("LANG", "de_DE.UTF-8"),
        ]);
        assert_eq!(guess(&environment(&GIVEN), &invoker), expected);
    }

    #[test]
    fn the_parent_is_the_nearest_ancestor() {
        let parent = ancestors(std::process::id()).next();
        assert_eq!(parent, Some(std::os::unix::process::parent_id()));
    }
}
