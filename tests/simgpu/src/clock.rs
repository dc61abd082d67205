//! The one clock: reads and waits for `CLOCK_MONOTONIC` in nanoseconds.

use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// The kernel's default timer slack: a sleep may end this much late, so the rest is busy-waited.
const SLACK_NS: u64 = 60_000;

/// Now.
#[expect(clippy::expect_used, reason = "Linux has this clock")]
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("invariant: a monotonic clock");
    Duration::from(now).as_nanos() as u64
}

/// Returns at `deadline_ns` or a few microseconds later, like the driver's busy wait.
pub(crate) fn wait_until(deadline_ns: u64) {
    let asleep_until = deadline_ns.saturating_sub(SLACK_NS);
    std::thread::sleep(Duration::from_nanos(asleep_until.saturating_sub(now_ns())));
    while now_ns() < deadline_ns {
        std::hint::spin_loop();
    }
}

/// A short sleep between two polls of something that another process decides.
pub(crate) fn nap() {
    std::thread::sleep(Duration::from_micros(50));
}
