//! The clock of a trace: CLOCK_MONOTONIC, as `bpf_ktime_get_ns` and Python's `time.monotonic_ns`.

use nix::time::ClockId;
use nix::time::clock_gettime;

/// Current time of CLOCK_MONOTONIC in nanoseconds, the clock of all timestamps of a trace.
pub(crate) fn monotonic_ns() -> u64 {
    nanoseconds(ClockId::CLOCK_MONOTONIC)
}

/// Current Unix time (CLOCK_REALTIME) in nanoseconds, to relate a trace to calendar time.
pub(crate) fn unix_ns() -> u64 {
    nanoseconds(ClockId::CLOCK_REALTIME)
}

/// These clocks cannot fail on Linux; if one did, 0 would be visibly wrong and harmless.
fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock)
        .map(std::time::Duration::from)
        .unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
