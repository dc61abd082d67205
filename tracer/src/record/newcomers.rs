//! Recording every Python process: who appears is attached to.
//!
//! Owns when to look and what is done with those found. Who they are is `record/discovery.rs`.

use crate::record::discovery::Discovery;
use crate::record::trace::Trace;
use crate::record::watch::Watch;
use nix::unistd::Uid;
use std::time::Duration;
use std::time::Instant;

/// Between two looks at all processes of the machine.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Python processes that are not recorded yet.
pub(super) struct Newcomers {
    discovery: Discovery,
    next: Instant,
    /// What could not be recorded was said once.
    has_complained: bool,
}

impl Newcomers {
    /// Root watches all of them, others their own.
    pub(super) fn new() -> Self {
        let user = Uid::effective();
        Self {
            discovery: Discovery::new((!user.is_root()).then(|| Uid::current().as_raw())),
            next: Instant::now(),
            has_complained: false,
        }
    }

    /// Attaches to those that have appeared, once a second. One that is gone again is no error.
    pub(super) fn look(&mut self, probes: &mut Watch, trace: &mut Trace) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + LOOK_EVERY;
        for pid in self.discovery.look() {
            let parent = gctrace_probes::process::status(pid)
                .ok()
                .map(|status| status.parent);
            if let Err(error) = probes.attach_to(trace, pid, parent)
                && !std::mem::replace(&mut self.has_complained, true)
            {
                trace.note(&format!("process {pid} cannot be recorded: {error}"));
            }
        }
    }
}
