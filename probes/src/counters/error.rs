//! Why a counter is not there, in words for the user.

use std::io;

/// Why a counter cannot be counted on this machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CounterError {
    /// No counting unit at all.
    #[error(
        "the kernel sees no performance monitoring unit of the processor (virtual machines often have none)"
    )]
    NoUnit,
    /// There is a unit, which lacks this one.
    #[error("the performance monitoring unit of CPU {cpu} does not count it")]
    NotInUnit {
        /// The CPU.
        cpu: u32,
    },
    /// All registers are taken for good, by the NMI watchdog or a pinned event.
    #[error(
        "the performance monitoring unit of CPU {cpu} is taken by another program; /proc/sys/kernel/nmi_watchdog may hold one register"
    )]
    Taken {
        /// The CPU.
        cpu: u32,
    },
    /// Not allowed.
    #[error(
        "counting everything on a CPU is not permitted (CAP_PERFMON, a seccomp filter or a security module)"
    )]
    Denied,
    /// Anything else.
    #[error("CPU {cpu}: perf_event_open says: {message}")]
    Other {
        /// The CPU.
        cpu: u32,
        /// The system's words.
        message: String,
    },
    /// The kernel counts it for each thread; there is nothing to open.
    #[error("it is counted for each thread, not for each CPU")]
    PerThread,
    /// The CPUs are not known.
    #[error("cannot find out which CPUs are running: {0}")]
    Cpus(String),
}

impl CounterError {
    /// From what perf_event_open(2) said. `has_unit`: whether the processor has a counting unit.
    pub(super) fn new(error: &io::Error, cpu: u32, has_unit: bool) -> Self {
        use nix::errno::Errno;
        match error.raw_os_error().map(Errno::from_raw) {
            // ENOENT: no source takes the event; EOPNOTSUPP: the processor lacks it; EINVAL: some
            // units' word for the same (perf_event_open(2)).
            Some(Errno::ENOENT | Errno::EOPNOTSUPP | Errno::EINVAL | Errno::ENODEV) => {
                if has_unit {
                    Self::NotInUnit { cpu }
                } else {
                    Self::NoUnit
                }
            }
            Some(Errno::EBUSY | Errno::ENOSPC) => Self::Taken { cpu },
            Some(Errno::EACCES | Errno::EPERM) => Self::Denied,
            _ => Self::Other {
                cpu,
                message: error.to_string(),
            },
        }
    }
}
