//! Whom gctrace may record: with file capabilities, only what its user could inspect.
//!
//! gctrace gives up all capabilities but those for BPF then (`privileges/credentials.rs`), so that the kernel itself
//! answers for that user: what is asked is `PTRACE_MODE_READ` (ptrace(2)), which wants equal user and group
//! ids, no capability that we lack, and a process that is "dumpable". The BPF programs ask the same
//! again whenever a recorded process executes a program (`may_follow`, process.bpf.c).
//!
//! Nothing here can be outrun by a pid that comes again: an entry of the table of recorded processes goes with
//! its process, and is made before the kernel is asked.

use crate::privileges::has_more_rights_than_its_user;
use crate::record::clock;
use crate::record::examination::Unexamined;
use crate::record::trace::RecordingTrace;
use crate::record::watch::ProbeWatch;
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

impl ProbeWatch {
    /// What the BPF programs could not tell of this kernel, or of a user namespace.
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

    /// Says of a process that it is not recorded, in the trace too.
    pub(crate) fn forbidden(&self, trace: &mut RecordingTrace, forbidden: &AttachRefusal) {
        trace
            .examination
            .unexamined(forbidden.pid, Unexamined::Forbidden);
        let message = format!("{forbidden}: it is not recorded");
        tracing::warn!("{message}");
        trace
            .output
            .note(Some(forbidden.pid), clock::monotonic_ns(), message);
    }
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
