//! Processes that the user of gctrace may not inspect: they are not recorded, and the trace states
//! it.

use super::KernelSource;
use crate::clock;
use crate::platform::has_more_rights_than_its_user;
use crate::record::examination::Unexamined;
use crate::record::kernel::permission::{AttachRefusal, check};
use crate::record::trace::RecordingTrace;

impl KernelSource {
    /// Detects what the BPF programs cannot on this kernel, or in a user namespace.
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
