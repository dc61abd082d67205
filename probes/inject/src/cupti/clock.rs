//! Converts CUPTI's timestamps to CLOCK_MONOTONIC.
//!
//! CUPTI is asked to take its time from a callback; its own default is CLOCK_REALTIME. If it
//! refuses, or accepts but keeps using its own clock, the two clocks are compared: at the start and
//! at each flush.

use crate::process_ring::now_ns;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};

/// Number of pairs of readings; the closest one counts.
const PAIRS: usize = 100;

/// Work may have started before us: up to an hour.
const BEFORE_NS: u64 = 3_600_000_000_000;

/// Timestamps are CLOCK_MONOTONIC already.
const OURS: u8 = 0;
/// CUPTI accepted the callback, but its clock disagrees: the first record decides.
const UNPROVEN: u8 = 1;
/// Timestamps are converted.
const CALIBRATED: u8 = 2;

/// The timestamp callback: CUPTI may call it for each call and kernel.
pub(super) extern "C" fn monotonic() -> u64 {
    now_ns()
}

/// Reads CUPTI's clock; `None` if unavailable.
pub(super) type Read<'a> = &'a dyn Fn() -> Option<u64>;

/// Conversion from CUPTI's clock to ours.
pub(super) struct CuptiClock {
    state: AtomicU8,
    begun_ns: u64,
    offset_ns: AtomicI64,
    error_ns: AtomicU64,
}

impl CuptiClock {
    /// Called after offering the callback. `is_taken`: CUPTI accepted it.
    pub(super) fn new(is_taken: bool, read: Read) -> Self {
        let begun_ns = now_ns();
        let (offset_ns, error_ns) = compare(read);
        // A reading of the same clock lies between two others, within their error.
        let is_same = offset_ns.unsigned_abs() <= error_ns;
        let state = match (is_taken, is_same) {
            (true, true) => OURS,
            (true, false) => UNPROVEN,
            (false, _) => CALIBRATED,
        };
        Self {
            state: AtomicU8::new(state),
            begun_ns,
            offset_ns: AtomicI64::new(offset_ns),
            error_ns: AtomicU64::new(error_ns),
        }
    }

    /// The largest error in nanoseconds; `None` if, as far as known, timestamps need no conversion.
    pub(super) fn error_ns(&self) -> Option<u64> {
        let is_calibrated = self.state.load(Ordering::Acquire) == CALIBRATED;
        if is_calibrated { Some(self.error_ns.load(Ordering::Relaxed)) } else { None }
    }

    /// Compares the clocks again, if they are converted.
    pub(super) fn calibrate(&self, read: Read) {
        if self.state.load(Ordering::Acquire) == OURS {
            return;
        }
        let (offset_ns, error_ns) = compare(read);
        let before_ns = self.offset_ns.swap(offset_ns, Ordering::Relaxed);
        // Timestamps converted in between are wrong by the drift of the clocks.
        let error_ns = error_ns.saturating_add(offset_ns.abs_diff(before_ns));
        self.error_ns.fetch_max(error_ns, Ordering::Relaxed);
    }

    /// Whether a converted timestamp is plausible: not long before the start, not after
    /// `latest_ns`. Another library may register a clock of its own with CUPTI while it records.
    pub(super) fn is_plausible(&self, timestamp_ns: u64, latest_ns: u64) -> bool {
        let earliest_ns = gctrace_units::beyond(self.begun_ns, BEFORE_NS);
        (earliest_ns..=latest_ns).contains(&timestamp_ns)
    }

    /// A CUPTI timestamp in CLOCK_MONOTONIC.
    pub(super) fn convert(&self, timestamp_ns: u64) -> u64 {
        let state = self.state.load(Ordering::Acquire);
        if state == OURS || (state == UNPROVEN && self.is_proven_by(timestamp_ns)) {
            return timestamp_ns;
        }
        timestamp_ns.saturating_add_signed(self.offset_ns.load(Ordering::Relaxed))
    }

    /// Whether records have timestamps of our clock: the first is between the start and now.
    /// CLOCK_REALTIME is decades away from that.
    fn is_proven_by(&self, timestamp_ns: u64) -> bool {
        let is_ours = self.is_plausible(timestamp_ns, now_ns());
        let state = if is_ours { OURS } else { CALIBRATED };
        // Another thread may have decided concurrently, by a record of the same clock.
        self.state.store(state, Ordering::Release);
        is_ours
    }
}

/// Our clock minus CUPTI's, and the error of that.
fn compare(read: Read) -> (i64, u64) {
    let mut best = (0, u64::MAX);
    for _ in 0..PAIRS {
        let before_ns = now_ns();
        // CUPTI's own default, if it does not report its clock.
        let reported_ns = read().unwrap_or_else(realtime_ns);
        let after_ns = now_ns();
        let width_ns = after_ns - before_ns;
        let error_ns = width_ns.div_ceil(2);
        if error_ns < best.1 {
            let middle_ns = before_ns + width_ns / 2;
            best = (middle_ns.wrapping_sub(reported_ns).cast_signed(), error_ns);
        }
    }
    best
}

fn realtime_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the memory is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now) };
    now.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const AHEAD_NS: u64 = 1_700_000_000_000_000_000;

    fn ahead() -> Option<u64> {
        Some(now_ns() + AHEAD_NS)
    }

    fn ours() -> Option<u64> {
        Some(now_ns())
    }

    #[test]
    fn a_callback_that_is_used_needs_no_conversion() {
        let clock = CuptiClock::new(true, &ours);
        assert_eq!((clock.convert(7), clock.error_ns()), (7, None));
    }

    #[test]
    fn a_refused_callback_is_made_up_for() {
        let clock = CuptiClock::new(false, &ahead);
        let error_ns = clock.error_ns().expect("calibrated");
        for _ in 0..3 {
            let before_ns = now_ns();
            let converted_ns = clock.convert(before_ns + AHEAD_NS);
            assert!(converted_ns.abs_diff(before_ns) <= clock.error_ns().expect("calibrated"));
            clock.calibrate(&ahead);
        }
        assert!(clock.error_ns() >= Some(error_ns));
    }

    #[test]
    fn records_decide_where_the_clock_contradicts_the_answer() {
        let clock = CuptiClock::new(true, &ahead);
        assert_eq!(clock.error_ns(), None);
        let now = now_ns();
        assert_eq!(clock.convert(now), now);
        clock.calibrate(&ahead);
        assert_eq!(clock.convert(now), now, "proven for good");

        let clock = CuptiClock::new(true, &ahead);
        let converted = clock.convert(now + AHEAD_NS);
        let error_ns = clock.error_ns().expect("calibrated");
        assert!(converted.abs_diff(now) <= error_ns);
    }

    #[test]
    fn timestamps_of_another_clock_are_rejected() {
        let clock = CuptiClock::new(true, &ours);
        let now = now_ns();
        assert!(clock.is_plausible(clock.convert(now), now));
        assert!(!clock.is_plausible(clock.convert(now + AHEAD_NS), now + 1_000_000_000));
    }

    #[test]
    fn without_an_answer_it_is_taken_for_its_default() {
        let clock = CuptiClock::new(false, &|| None);
        let converted_ns = clock.convert(realtime_ns());
        assert!(converted_ns.abs_diff(now_ns()) < 1_000_000_000);
    }
}
