//! Getting the injected library into the command.

use crate::launch::LaunchPlan;
use crate::record::mode::Injection;
use std::path::Path;

impl LaunchPlan {
    /// The command loads the library.
    pub(crate) fn inject(&mut self, injection: &Injection, rendezvous: &Path) {
        let mut set =
            |name: &str, value: std::ffi::OsString| self.environment.insert(name.into(), value);
        set("LD_PRELOAD", injection.library.clone().into());
        set("CUDA_INJECTION64_PATH", injection.library.clone().into());
        set(gctrace_ring::RENDEZVOUS_VARIABLE, rendezvous.into());
        set(
            gctrace_ring::OPTIONS_VARIABLE,
            injection.options.to_string().into(),
        );
    }
}
