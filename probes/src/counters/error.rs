//! Why a counter is unavailable, worded for the user.

use std::io;

/// Why this machine cannot count an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CounterError {
    /// The machine has no hardware PMU.
    #[error("no hardware PMU (common in virtual machines)")]
    NoUnit,
    /// There is a PMU, but it lacks this event.
    #[error("the PMU of CPU {cpu} does not support this event")]
    NotInUnit {
        /// Number of the CPU.
        cpu: u32,
    },
    /// All registers are permanently taken, by the NMI watchdog or a pinned event.
    #[error(
        "the PMU of CPU {cpu} is in use by another program; /proc/sys/kernel/nmi_watchdog may occupy one register"
    )]
    Taken {
        /// Number of the CPU.
        cpu: u32,
    },
    /// Opening the event was denied.
    #[error(
        "counting on a whole CPU is not permitted (CAP_PERFMON, a seccomp filter or a security module)"
    )]
    Denied,
    /// Any other error.
    #[error("CPU {cpu}: perf_event_open: {message}")]
    Other {
        /// Number of the CPU.
        cpu: u32,
        /// Text of the system's error.
        message: String,
    },
    /// The kernel counts it per thread; there is nothing to open.
    #[error("it is counted per thread, not per CPU")]
    PerThread,
    /// The list of online CPUs is unknown.
    #[error("cannot determine which CPUs are online: {0}")]
    Cpus(String),
}

impl CounterError {
    /// Maps an error of perf_event_open(2). `has_unit`: whether the CPU has a PMU.
    pub(super) fn new(error: &io::Error, cpu: u32, has_unit: bool) -> Self {
        use nix::errno::Errno;
        match error.raw_os_error().map(Errno::from_raw) {
            // ENOENT: no source takes the event; EOPNOTSUPP: the CPU lacks it; EINVAL: some PMUs'
            // code for the same (perf_event_open(2)).
            Some(Errno::ENOENT | Errno::EOPNOTSUPP | Errno::EINVAL | Errno::ENODEV) => {
                if has_unit {
                    Self::NotInUnit { cpu }
                } else {
                    Self::NoUnit
                }
            }
            Some(Errno::EBUSY | Errno::ENOSPC) => Self::Taken { cpu },
            Some(Errno::EACCES | Errno::EPERM) => Self::Denied,
            _ => Self::Other { cpu, message: error.to_string() },
        }
    }
}
