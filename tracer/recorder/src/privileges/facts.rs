//! Facts on the privileges of this process, from `/proc` and `/sys`. Nothing here fails: unreadable
//! values get the usual default, and the kernel decides in the end.

use crate::invoker::Invoker;
use crate::platform::in_foreign_user_namespace;
use crate::privileges::{Capabilities, credentials};
use crate::variables::{VariableEffect, variable};
use gctrace_probes::proc_status;
use nix::sys::statvfs::FsFlags;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

/// The inode of the first pid namespace is fixed (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Level of kernel lockdown (kernel_lockdown(7)): limits the memory that BPF programs may read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lockdown {
    /// Off, or a kernel without it.
    #[default]
    Off,
    /// BPF programs may still read kernel memory.
    Integrity,
    /// They may not.
    Confidentiality,
}

/// The facts that decide whether recording is permitted, and how it could be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivilegeFacts {
    /// Login name of the effective user.
    pub user: String,
    /// Name of the effective group of this process.
    pub group: String,
    /// Effective capabilities; empty if they cannot be read.
    pub effective: Capabilities,
    /// Capability bounding set: limits the rights that an exec can grant.
    pub bounding: Capabilities,
    /// Number of the newest capability of the kernel; `None` if it is unknown.
    pub newest_capability: Option<u32>,
    /// Whether no_new_privs is set: neither sudo nor setcap works.
    pub no_new_privileges: bool,
    /// Whether this is not the initial user namespace.
    pub foreign_user_namespace: bool,
    /// Whether this is not the initial pid namespace: BPF sees other pids than this `/proc` shows.
    pub foreign_pid_namespace: bool,
    /// The kind of container, if this is one: `docker`, `podman`, ...
    pub container: Option<String>,
    /// Level of kernel lockdown; with confidentiality, probes cannot record.
    pub lockdown: Lockdown,
    /// Absolute path of gctrace's executable; `gctrace` if it is unknown.
    pub executable: PathBuf,
    /// Whether it is on a nosuid mount, where setcap has no effect.
    pub on_nosuid_mount: bool,
    /// Arguments that gctrace was started with, for commands that it suggests.
    pub arguments: Vec<OsString>,
}

impl PrivilegeFacts {
    /// Reads the facts about this process and its kernel; unreadable ones get a default.
    pub fn gather() -> Self {
        let executable = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("gctrace"));
        Self {
            user: Invoker::effective_name(),
            group: Invoker::effective_group(),
            effective: Capabilities(credentials::effective().unwrap_or(0)),
            bounding: Capabilities(credentials::bounding()),
            newest_capability: number("/proc/sys/kernel/cap_last_cap"),
            no_new_privileges: credentials::gains_no_privileges(),
            foreign_user_namespace: in_foreign_user_namespace(),
            foreign_pid_namespace: fs::read_link("/proc/self/ns/pid")
                .is_ok_and(|link| link != Path::new(FIRST_PID_NAMESPACE)),
            container: container(),
            // A kernel without the file has no lockdown.
            lockdown: match fs::read_to_string("/sys/kernel/security/lockdown") {
                Ok(text) => lockdown(&text),
                Err(_) => Lockdown::Off,
            },
            on_nosuid_mount: on_nosuid_mount(&executable),
            executable,
            arguments: std::env::args_os().skip(1).collect(),
        }
    }
}

fn number(path: &str) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The active level is in brackets: `none [integrity] confidentiality`.
fn lockdown(text: &str) -> Lockdown {
    if text.contains("[confidentiality]") {
        Lockdown::Confidentiality
    } else if text.contains("[integrity]") {
        Lockdown::Integrity
    } else {
        Lockdown::Off
    }
}

/// Detects container managers: by systemd's variable of process 1 (also set by podman and LXC), and
/// by the marker files of docker and podman.
fn container() -> Option<String> {
    if let Ok(Some(set)) = proc_status::environment(1).map(container_variable) {
        return Some(set);
    }
    if let Ok(named) = fs::read_to_string("/run/systemd/container") {
        return Some(named.trim().to_owned());
    }
    if Path::new("/.dockerenv").exists() {
        return Some("docker".to_owned());
    }
    if Path::new("/run/.containerenv").exists() {
        return Some("podman".to_owned());
    }
    let cluster = variable("KUBERNETES_SERVICE_HOST", VariableEffect::Appearance);
    cluster.map(|_| "kubernetes".to_owned())
}

fn container_variable(mut environment: HashMap<OsString, OsString>) -> Option<String> {
    let value = environment.remove(OsStr::new("container"))?;
    if value.is_empty() { None } else { Some(value.to_string_lossy().into_owned()) }
}

fn on_nosuid_mount(executable: &Path) -> bool {
    nix::sys::statvfs::statvfs(executable)
        .is_ok_and(|file_system| file_system.flags().contains(FsFlags::ST_NOSUID))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_texts_are_understood() {
        let variable = |bytes| container_variable(proc_status::parse_environment(bytes).collect());
        assert_eq!(lockdown("none [integrity] confidentiality\n"), Lockdown::Integrity);
        assert_eq!(lockdown("none integrity [confidentiality]\n"), Lockdown::Confidentiality);
        assert_eq!(lockdown("[none] integrity confidentiality\n"), Lockdown::Off);
        assert_eq!(variable(b"PATH=/bin\0container=podman\0").as_deref(), Some("podman"));
        assert_eq!(variable(b"PATH=/bin\0container=\0"), None);
    }

    #[test]
    fn this_process() {
        let facts = PrivilegeFacts::gather();
        assert!(facts.executable.is_absolute());
        assert!(facts.newest_capability.is_some_and(|newest| newest > 0));
        let status = fs::read_to_string("/proc/self/status").expect("own status");
        for (name, set) in [("CapEff", facts.effective), ("CapBnd", facts.bounding)] {
            assert!(status.contains(&format!("{name}:\t{:016x}", set.0)), "{status}");
        }
        assert!(!facts.user.is_empty());
    }
}
