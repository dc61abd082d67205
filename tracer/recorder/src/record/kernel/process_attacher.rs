//! Records every Python process, by attaching to each new one.
//!
//! Owns when to scan, and the treatment of the processes found. `record/kernel/discovery.rs` finds them.

use crate::privileges;
use crate::record::kernel::KernelSource;
use crate::record::kernel::discovery::ProcessDiscovery;
use crate::record::trace::RecordingTrace;
use nix::unistd::Uid;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Time between two scans of the machine's processes.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum time to attach in one turn of the recording: rings must be drained in between.
const TURN: Duration = Duration::from_millis(100);

/// How often to try a process that could not be recorded.
const TRIES: u32 = 3;

/// Python processes that are not recorded yet.
pub(super) struct ProcessAttacher {
    discovery: ProcessDiscovery,
    next: Instant,
    /// Pids found, and how often each was tried.
    waiting: VecDeque<(u32, u32)>,
    /// To be tried again after the next scan.
    failed: Vec<(u32, u32)>,
    /// A failure was reported; later ones are not.
    has_complained: bool,
    /// Root lacks CAP_SYS_PTRACE, and this is still to be reported.
    others_are_hidden: bool,
}

impl ProcessAttacher {
    /// Root and users with CAP_SYS_PTRACE record all processes, other users their own.
    pub(super) fn new() -> Self {
        let own_only = !privileges::may_inspect_all_users();
        Self {
            discovery: ProcessDiscovery::new(own_only.then(|| Uid::current().as_raw())),
            next: Instant::now(),
            waiting: VecDeque::new(),
            failed: Vec::new(),
            has_complained: false,
            others_are_hidden: privileges::is_root_without_ptrace(),
        }
    }

    /// Scans for new processes once a second and attaches to the processes found, within one turn's time. A process
    /// that has exited meanwhile is ignored.
    pub(super) fn scan(&mut self, probes: &mut KernelSource, trace: &mut RecordingTrace) {
        let began = Instant::now();
        if std::mem::take(&mut self.others_are_hidden) {
            trace.note("processes of other users are not recorded: that needs CAP_SYS_PTRACE (gctrace doctor)");
        }
        if began >= self.next {
            self.next = began + SCAN_INTERVAL;
            let found = self.discovery.scan().into_iter().map(|pid| (pid, 0));
            self.waiting.extend(found.chain(self.failed.drain(..)));
        }
        while began.elapsed() < TURN
            && let Some((pid, tries)) = self.waiting.pop_front()
        {
            self.attach(pid, tries, probes, trace);
        }
    }

    fn attach(
        &mut self,
        pid: u32,
        tries: u32,
        probes: &mut KernelSource,
        trace: &mut RecordingTrace,
    ) {
        let Ok(status) = gctrace_probes::proc_status::status(pid) else {
            return;
        };
        let Err(error) = probes.attach_to(trace, pid, status.parent) else {
            return;
        };
        if tries + 1 < TRIES {
            self.failed.push((pid, tries + 1));
        } else if !std::mem::replace(&mut self.has_complained, true) {
            trace.note(&format!("process {pid} cannot be recorded: {error}"));
        }
    }
}
