//! Processes that gctrace may record: with file capabilities, only processes that its user may inspect. The others are
//! not recorded, and the trace states it.
//!
//! With file capabilities gctrace drops all capabilities except the ones for BPF (`privileges/credentials.rs`), so that
//! the kernel itself decides for that user, by `PTRACE_MODE_READ` (ptrace(2)): it requires equal user and group ids, no
//! capability that we lack, and a process that is "dumpable". The BPF programs check the same again whenever a recorded
//! process executes a program (`may_follow`, process.bpf.c).
//!
//! A reused pid cannot race with this: an entry of the table of recorded processes is removed with
//! its process, and made before the kernel is asked.

use super::KernelSource;
use crate::clock;
use crate::platform::has_more_rights_than_its_user;
use crate::record::examination::Unexamined;
use crate::record::trace::RecordingTrace;
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
pub struct AttachRefusal {
    /// The process.
    pub pid: u32,
    name: String,
    owner: String,
}

/// Asks the kernel. A process that is gone is permitted.
///
/// # Errors
/// The kernel refuses access.
pub fn check(pid: u32) -> Result<(), AttachRefusal> {
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
pub fn attachable(pid: u32) -> anyhow::Result<()> {
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
pub enum AttachError {
    /// The kernel's reason.
    #[error(transparent)]
    Probes(#[from] gctrace_ebpf::Error),
    /// The user of gctrace may not inspect it.
    #[error(transparent)]
    Forbidden(#[from] AttachRefusal),
}

impl KernelSource {
    /// Detects processes that the BPF programs cannot detect on this kernel, or in a user namespace.
    pub(super) fn is_foreign(&self, pid: u32) -> bool {
        has_more_rights_than_its_user() && check(pid).is_err()
    }

    /// A recorded process executed a program that the user of gctrace may not inspect.
    pub(super) fn became_foreign(&mut self, trace: &mut RecordingTrace, pid: u32, at_ns: u64) {
        self.session.unfollow(pid);
        self.ended(trace, pid, at_ns);
        if let Err(forbidden) = check(pid) {
            self.forbidden(trace, &forbidden);
        } else {
            trace.examination.unexamined(pid, Unexamined::Forbidden);
        }
        trace.examination.ended(pid);
        self.processes.forget(pid, &mut trace.output);
    }

    /// Reports, to the trace as well, that a process is not recorded.
    pub(super) fn forbidden(&self, trace: &mut RecordingTrace, forbidden: &AttachRefusal) {
        trace.examination.unexamined(forbidden.pid, Unexamined::Forbidden);
        let message = format!("{forbidden}: it is not recorded");
        tracing::warn!("{message}");
        trace.output.note(Some(forbidden.pid), clock::monotonic_ns(), message);
    }
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
