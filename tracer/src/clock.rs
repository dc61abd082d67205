//! The clock of a trace: CLOCK_MONOTONIC, as `bpf_ktime_get_ns` and Python's `time.monotonic_ns`.

use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Current time of CLOCK_MONOTONIC in nanoseconds, the clock of all timestamps of a trace.
pub(crate) fn monotonic_ns() -> u64 {
    now_ns(ClockId::CLOCK_MONOTONIC)
}

/// Current Unix time (CLOCK_REALTIME) in nanoseconds, to relate a trace to calendar time.
pub(crate) fn unix_ns() -> u64 {
    now_ns(ClockId::CLOCK_REALTIME)
}

/// Current time of CLOCK_BOOTTIME in nanoseconds, the clock of `/proc/PID/stat`.
pub(crate) fn boot_ns() -> u64 {
    now_ns(ClockId::CLOCK_BOOTTIME)
}

#[expect(clippy::expect_used, reason = "no input can cause it")]
fn now_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).expect("invariant: Linux has this clock");
    nanoseconds(time.into())
}

/// A duration in nanoseconds, at most 584 years.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos().try_into().unwrap_or(u64::MAX)
}
