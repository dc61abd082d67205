//! The clock of a trace: CLOCK_MONOTONIC of the first time namespace, as `bpf_ktime_get_ns`; and local time of day.
//!
//! Python's `time.monotonic_ns` is the same but in another time namespace (`clock/namespaces.rs`).

pub mod namespaces;

use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Current time in nanoseconds of CLOCK_MONOTONIC in the first time namespace, the clock of all timestamps of a trace.
pub fn monotonic_ns() -> u64 {
    let ahead_ns = namespaces::own_ahead_ns().unwrap_or(0);
    own_monotonic_ns().saturating_add_signed(ahead_ns.saturating_neg())
}

/// The same in the namespace of this process.
pub fn own_monotonic_ns() -> u64 {
    now_ns(ClockId::CLOCK_MONOTONIC)
}

/// Current Unix time (CLOCK_REALTIME) in nanoseconds, to relate a trace to calendar time.
pub fn unix_ns() -> u64 {
    now_ns(ClockId::CLOCK_REALTIME)
}

/// CPU time of this thread in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    now_ns(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// Current time of CLOCK_BOOTTIME in nanoseconds, the clock of `/proc/PID/stat`.
pub fn boot_ns() -> u64 {
    now_ns(ClockId::CLOCK_BOOTTIME)
}

#[expect(clippy::expect_used, reason = "no input can cause it")]
fn now_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).expect("invariant: Linux has this clock");
    nanoseconds(time.into())
}

/// A duration in nanoseconds, at most 584 years.
pub fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos().try_into().unwrap_or(u64::MAX)
}

/// UTC offset in seconds at a Unix time in nanoseconds; 0 if unknown.
pub fn offset_s(unix_ns: u64) -> i64 {
    let Ok(seconds) = libc::time_t::try_from(unix_ns / 1_000_000_000) else {
        return 0;
    };
    // SAFETY: all fields of `tm` are numbers, or a pointer that may be null.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both point to values that live; `localtime_r` writes to the second only.
    let filled = unsafe { libc::localtime_r(&raw const seconds, &raw mut parts) };
    if filled.is_null() { 0 } else { parts.tm_gmtoff }
}

/// Time of day at a Unix time in nanoseconds with a UTC offset in seconds: `12:34:56`.
pub fn time_of_day(unix_ns: u64, offset_s: i64) -> String {
    let seconds = (unix_ns / 1_000_000_000).cast_signed();
    let of_day = (seconds + offset_s).rem_euclid(86_400);
    let (hours, minutes, seconds) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}")
}

/// [`time_of_day`] with three decimals of a second.
pub fn time_of_day_ms(unix_ns: u64, offset_s: i64) -> String {
    let milliseconds = unix_ns / 1_000_000 % 1000;
    format!("{}.{milliseconds:03}", time_of_day(unix_ns, offset_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_milliseconds() {
        let time_ns = 1_700_000_000_123_000_000;
        assert_eq!(time_of_day_ms(time_ns, 3600), "23:13:20.123");
    }

    /// Compares with `date`, an independent implementation.
    #[test]
    fn as_date_prints_it() {
        for seconds in [0_u64, 951_782_399, 1_770_000_000] {
            let output = std::process::Command::new("date")
                .args(["-d", &format!("@{seconds}"), "+%H:%M:%S"])
                .output()
                .expect("date");
            let expected = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            let time_ns = seconds * 1_000_000_000 + 999_999_999;
            assert_eq!(time_of_day(time_ns, offset_s(time_ns)), expected);
        }
    }
}
