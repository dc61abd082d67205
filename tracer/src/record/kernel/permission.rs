//! Which processes gctrace may record: with file capabilities, only those that its user may
//! inspect.
//!
//! In that case gctrace drops all capabilities but those for BPF (`privileges/credentials.rs`), so
//! that the kernel itself decides for that user, by `PTRACE_MODE_READ` (ptrace(2)): it requires
//! equal user and group ids, no capability that we lack, and a process that is "dumpable". The BPF
//! programs check the same again whenever a recorded process executes a program (`may_follow`,
//! process.bpf.c).
//!
//! A reused pid cannot race with this: an entry of the table of recorded processes is removed with
//! its process, and made before the kernel is asked.

use crate::platform::has_more_rights_than_its_user;
use anyhow::Context as _;
use gctrace_probes::proc_status;
use nix::unistd::{Uid, User};
use std::io;
use std::os::unix::fs::MetadataExt as _;

/// The user of gctrace may not inspect this process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "process {pid} ({name}, {owner}) may not be inspected by this user; gctrace's file capabilities do not change that"
)]
pub(crate) struct AttachRefusal {
    pub pid: u32,
    name: String,
    owner: String,
}

/// Asks the kernel. A process that is gone is permitted.
///
/// # Errors
/// The kernel refuses access.
pub(crate) fn check(pid: u32) -> Result<(), AttachRefusal> {
    match std::fs::read_link(proc_status::executable_link(pid)) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(AttachRefusal {
            pid,
            name: proc_status::thread_name(pid, pid).unwrap_or_else(|_| "unknown".to_owned()),
            owner: owner(pid),
        }),
        _ => Ok(()),
    }
}

/// The folder of a process that is not dumpable belongs to root, whichever user runs it (proc(5)).
fn owner(pid: u32) -> String {
    let owner = std::fs::metadata(format!("/proc/{pid}")).map(|folder| folder.uid());
    match owner {
        Ok(0) => "of root, or with privileges of its own".to_owned(),
        Ok(uid) if uid == Uid::current().as_raw() => "with privileges of its own".to_owned(),
        Ok(uid) => match User::from_uid(Uid::from_raw(uid)) {
            Ok(Some(user)) => format!("of {}", user.name),
            _ => format!("of user {uid}"),
        },
        Err(_) => "of an unknown user".to_owned(),
    }
}

/// Checks that the process to attach to exists and may be inspected.
pub(crate) fn attachable(pid: u32) -> anyhow::Result<()> {
    anyhow::ensure!(
        pid != std::process::id(),
        "process {pid} is gctrace itself; ps -ef lists processes"
    );
    let path = format!("/proc/{pid}");
    anyhow::ensure!(std::path::Path::new(&path).exists(), "no process {pid} (ps -ef lists them)");
    anyhow::ensure!(
        !is_kernel_thread(pid),
        "process {pid} is a kernel thread and never runs Python"
    );
    proc_status::command_line(pid)
        .map(drop)
        .with_context(|| format!("cannot record process {pid}"))?;
    if has_more_rights_than_its_user() {
        check(pid)?;
    }
    Ok(())
}

/// `PF_KTHREAD` of include/linux/sched.h.
fn is_kernel_thread(pid: u32) -> bool {
    const PF_KTHREAD: u32 = 0x0020_0000;
    proc_status::stat(pid).is_ok_and(|stat| stat.flags & PF_KTHREAD != 0)
}

/// Why a process is not recorded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttachError {
    /// The kernel's reason.
    #[error(transparent)]
    Probes(#[from] gctrace_ebpf::Error),
    /// The user of gctrace may not inspect it.
    #[error(transparent)]
    Forbidden(#[from] AttachRefusal),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_and_exited_processes_are_permitted() {
        assert_eq!(check(std::process::id()), Ok(()));
        assert_eq!(check(u32::MAX), Ok(()));
    }
}
