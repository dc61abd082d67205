//! Keeps a recorder below a number of bytes a day: pauses below a length are only counted.
//!
//! Owns that length. It changes from segment to segment, whose header states it.

/// Time over which what was not used in quiet times may be used: an hour, in ns.
const SAVED_NS: f64 = 3.6e12;
const DAY_NS: f64 = 8.64e13;
/// The least part of the rate that is used, however much was written before.
const LEAST_SHARE: f64 = 0.2;
/// Bytes of a pause until one was written: as measured (docs/measurements/analysis.md).
const USUAL_BYTES: f64 = 28.0;
/// Lengths are distinguished to the eighth of a doubling, up to 2^40 ns.
const STEPS: usize = 8;
const LENGTHS: usize = 40 * STEPS;

/// Decides which pauses are too short to be written.
pub(super) struct Thinning {
    /// Bytes in a nanosecond; `None`: no limit.
    rate: Option<f64>,
    /// Bytes that may be written beyond the rate; negative if too many were.
    saved: f64,
    /// Pauses since the last decision, by length.
    lengths: Vec<u64>,
    min_pause_ns: u64,
}

impl Thinning {
    pub(super) fn new(bytes_a_day: Option<u64>) -> Self {
        let rate = bytes_a_day.map(|bytes| bytes as f64 / DAY_NS);
        Self {
            rate,
            saved: rate.unwrap_or(0.0) * SAVED_NS,
            lengths: vec![0; LENGTHS],
            min_pause_ns: 0,
        }
    }

    /// Pauses shorter than this are only counted, in ns.
    pub(super) fn min_pause_ns(&self) -> u64 {
        self.min_pause_ns
    }

    /// A pause ran, whether or not it was written.
    pub(super) fn see(&mut self, duration_ns: u64) {
        if let Some(count) = self.lengths.get_mut(place(duration_ns)) {
            *count += 1;
        }
    }

    /// A segment ended: so many bytes for so many pauses in so many ns. Decides for the next one.
    pub(super) fn decide(&mut self, bytes: u64, written: u64, took_ns: u64) {
        let Some(rate) = self.rate else { return };
        let lengths = std::mem::replace(&mut self.lengths, vec![0; LENGTHS]);
        let took_ns = took_ns.max(1) as f64;
        self.saved = (self.saved + rate * took_ns - bytes as f64).min(rate * SAVED_NS);
        self.min_pause_ns = 0;
        if self.saved > rate * SAVED_NS / 2.0 {
            return;
        }
        let allowed = (rate + self.saved / SAVED_NS).max(rate * LEAST_SHARE);
        let each = match written {
            0 => USUAL_BYTES,
            written => (bytes as f64 / written as f64).min(USUAL_BYTES),
        };
        // The rest is of other records, which are not thinned.
        let others = (bytes as f64 - each * written as f64).max(0.0) / took_ns;
        let for_pauses = (allowed - others).max(rate * LEAST_SHARE);
        let most = (for_pauses * took_ns / each) as u64;
        let mut count = 0u64;
        for (place, more) in lengths.iter().enumerate().rev() {
            count = count.saturating_add(*more);
            if count > most {
                self.min_pause_ns = length_ns(place + 1);
                break;
            }
        }
    }
}

fn place(duration_ns: u64) -> usize {
    let exact = (duration_ns.max(1) as f64).log2() * STEPS as f64;
    (exact as usize).min(LENGTHS - 1)
}

/// The shortest length at a place, in ns.
fn length_ns(place: usize) -> u64 {
    (place as f64 / STEPS as f64).exp2().ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_NS: u64 = 60_000_000_000;
    const BYTES: u64 = 25;

    /// A day of pauses of 10 us to 1 ms; the bytes written.
    fn day(thinning: &mut Thinning, pauses_a_second: u64) -> u64 {
        let mut all = 0;
        for minute in 0..24 * 60 {
            let mut written = 0;
            for pause in 0..pauses_a_second * 60 {
                let duration_ns = 10_000 + (pause * 7919 + minute) % 990_000;
                thinning.see(duration_ns);
                written += u64::from(duration_ns >= thinning.min_pause_ns());
            }
            thinning.decide(written * BYTES, written, MINUTE_NS);
            all += written * BYTES;
        }
        all
    }

    #[test]
    fn a_day_stays_below_its_bytes() {
        for pauses_a_second in [50, 400] {
            let mut thinning = Thinning::new(Some(100_000_000));
            // The first day may use what an hour saves; the next ones may not.
            let first = day(&mut thinning, pauses_a_second);
            let second = day(&mut thinning, pauses_a_second);
            assert!(first <= 105_000_000, "{first} at {pauses_a_second}/s");
            assert!(second <= 101_000_000, "{second} at {pauses_a_second}/s");
            assert!(second >= 90_000_000, "{second} at {pauses_a_second}/s");
        }
    }

    #[test]
    fn other_records_take_their_part() {
        let mut thinning = Thinning::new(Some(100_000_000));
        let (mut all, others) = (0, 800 * 60);
        for minute in 0..48 * 60u64 {
            let mut written = 0;
            for pause in 0..50 * 60 {
                let duration_ns = 10_000 + (pause * 7919 + minute) % 990_000;
                thinning.see(duration_ns);
                written += u64::from(duration_ns >= thinning.min_pause_ns());
            }
            let bytes = written * 17 + others;
            thinning.decide(bytes, written, MINUTE_NS);
            all += bytes;
        }
        assert!((170_000_000..=205_000_000).contains(&all), "{all}");
    }

    #[test]
    fn few_pauses_and_no_limit_leave_all() {
        for (bytes_a_day, rate) in [(Some(100_000_000), 30), (None, 400)] {
            let mut thinning = Thinning::new(bytes_a_day);
            assert_eq!(day(&mut thinning, rate), rate * 86_400 * BYTES);
            assert_eq!(thinning.min_pause_ns(), 0);
        }
    }

    #[test]
    fn lengths_are_told_apart() {
        for ns in [0, 1, 2, 999, 50_000, 1 << 39] {
            assert!(length_ns(place(ns)) <= ns.max(1), "{ns}");
            assert!(length_ns(place(ns) + 1) > ns, "{ns}");
        }
        assert_eq!(place(u64::MAX), LENGTHS - 1);
    }
}
