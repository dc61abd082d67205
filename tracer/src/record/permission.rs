//! Whom gctrace may record: with file capabilities, only what its user could inspect.
//!
//! gctrace gives up all capabilities but those for BPF then (`privileges/credentials.rs`), so that the kernel itself
//! answers for that user: what is asked is `PTRACE_MODE_READ` (ptrace(2)), which wants equal user and group
//! ids, no capability that we lack, and a process that is "dumpable". The BPF programs ask the same
//! again whenever a recorded process executes a program (`may_follow`, process.bpf.c).
//!
//! Nothing here can be outrun by a pid that comes again: an entry of the table of recorded processes goes with
//! its process, and is made before the kernel is asked.

use gctrace_probes::proc_status;
use nix::unistd::Uid;
use nix::unistd::User;
use std::io;
use std::os::unix::fs::MetadataExt as _;

/// The user of gctrace may not inspect this process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "process {pid} ({name}, {whose}) may not be inspected by this user: gctrace's own capabilities do not extend that"
)]
pub(crate) struct AttachRefusal {
    /// The process.
    pub pid: u32,
    name: String,
    whose: String,
}

/// Asks the kernel. A process that is gone is not forbidden.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn check(pid: u32) -> Result<(), AttachRefusal> {
    match std::fs::read_link(proc_status::executable_link(pid)) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(AttachRefusal {
            pid,
            name: proc_status::thread_name(pid, pid).unwrap_or_default(),
            whose: whose(pid),
        }),
        _ => Ok(()),
    }
}

/// The folder of a process that is not dumpable belongs to root, whoever runs it (proc(5)).
fn whose(pid: u32) -> String {
    let owner = std::fs::metadata(format!("/proc/{pid}")).map(|folder| folder.uid());
    match owner {
        Ok(0) => "of root, or with rights of its own".to_owned(),
        Ok(uid) if uid == Uid::current().as_raw() => "with rights of its own".to_owned(),
        Ok(uid) => match User::from_uid(Uid::from_raw(uid)) {
            Ok(Some(user)) => format!("of {}", user.name),
            _ => format!("of user {uid}"),
        },
        Err(_) => "of an unknown user".to_owned(),
    }
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
    fn our_own_and_those_gone_are_not_forbidden() {
        assert_eq!(check(std::process::id()), Ok(()));
        assert_eq!(check(u32::MAX), Ok(()));
    }
}
