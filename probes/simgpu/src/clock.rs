//! The one clock: reads and waits for `CLOCK_MONOTONIC` in nanoseconds.

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::time::ClockId;
use nix::time::ClockNanosleepFlags;
use nix::time::clock_gettime;
use nix::time::clock_nanosleep;

const NANOSECONDS: u64 = 1_000_000_000;

/// The kernel's default timer slack: a sleep may end this much late, so the rest is busy-waited.
const SLACK_NS: u64 = 60_000;

/// Now.
pub(crate) fn now_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |time| {
        let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
        let rest = u64::try_from(time.tv_nsec()).unwrap_or(0);
        seconds.saturating_mul(NANOSECONDS).saturating_add(rest)
    })
}

/// Returns at `deadline_ns` or a few microseconds later, like the driver's busy wait.
pub(crate) fn wait_until(deadline_ns: u64) {
    let asleep_until = deadline_ns.saturating_sub(SLACK_NS);
    while now_ns() < asleep_until {
        let seconds = i64::try_from(asleep_until / NANOSECONDS).unwrap_or(i64::MAX);
        let rest = i64::try_from(asleep_until % NANOSECONDS).unwrap_or(0);
        let slept = clock_nanosleep(
            ClockId::CLOCK_MONOTONIC,
            ClockNanosleepFlags::TIMER_ABSTIME,
            &TimeSpec::new(seconds, rest),
        );
        if slept.is_err_and(|error| error != Errno::EINTR) {
            break;
        }
    }
    while now_ns() < deadline_ns {
        std::hint::spin_loop();
    }
}

/// A short sleep between two polls of something that another process decides.
pub(crate) fn nap() {
    std::thread::sleep(std::time::Duration::from_micros(50));
}
