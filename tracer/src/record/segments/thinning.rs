//! Keeps a recorder below a number of bytes a day: pauses below a length are only counted, times off the CPU
//! below another one, and GPU work that is not around a pause of which there are few as long.
//!
//! Owns these lengths. Those of pauses and times off the CPU change from segment to segment, whose header states
//! them.

use gctrace_event::{OffCpu, OmittedPauses};

/// Time over which what was not used in quiet times may be used: an hour, in ns.
const SAVED_NS: f64 = 3.6e12;
const DAY_NS: f64 = 8.64e13;
/// The least part of the rate that is used, however much was written before.
const LEAST_SHARE: f64 = 0.2;
/// Bytes of a pause until one was written: as measured (docs/measurements/analysis.md).
const USUAL_BYTES: f64 = 28.0;
/// The same of a time off the CPU, with its part of the record and of its stack.
const USUAL_WAIT_BYTES: f64 = 20.0;
/// The same of a record of GPU work: an operation, a call.
const USUAL_GPU_BYTES: f64 = 10.0;
/// Records that show the bytes of one.
const ENOUGH_GPU: u64 = 1000;
/// GPU work may have this part of the bytes, if there is so much.
const GPU_SHARE: f64 = 0.5;
/// Lengths are distinguished to the eighth of a doubling, up to 2^40 ns.
const STEPS: usize = 8;
const LENGTHS: usize = 40 * STEPS;

/// Decides which pauses and times off the CPU are too short to be written.
pub(super) struct Thinning {
    /// Bytes in a nanosecond; `None`: no limit.
    rate: Option<f64>,
    /// Bytes that may be written beyond the rate; negative if too many were.
    saved: f64,
    pauses: Lengths,
    waits: Lengths,
    gpu: GpuShare,
}

/// What GPU work may have.
struct GpuShare {
    /// Bytes that may be written of it; negative if too many were.
    saved: f64,
    /// Bytes of a record.
    each: f64,
    /// Whether some of it is only counted.
    is_thinned: bool,
    /// Records in this segment, written or not.
    seen: u64,
    /// The longest pause of the last segment and of this one, in ns.
    longest_ns: [u64; 2],
}

/// Pauses, or times off the CPU.
struct Lengths {
    /// Those since the last decision, by length.
    counts: Vec<u64>,
    /// What is shorter is only counted, in ns.
    least_ns: u64,
}

/// Times off the CPU of one record: all of them, those that are only counted, and the record of the others.
pub(super) struct ThinnedWaits {
    pub all: OmittedPauses,
    pub omitted: OmittedPauses,
    pub left: Option<OffCpu>,
}

/// What a segment has, with its length in ns.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WrittenSegment {
    pub bytes: u64,
    /// Pauses that were written.
    pub pauses: u64,
    /// Times off the CPU that were written.
    pub waits: u64,
    /// Records of GPU work that were written.
    pub gpu: u64,
    pub took_ns: u64,
}

impl Thinning {
    pub(super) fn new(bytes_a_day: Option<u64>) -> Self {
        let rate = bytes_a_day.map(|bytes| bytes as f64 / DAY_NS);
        Self {
            rate,
            saved: rate.unwrap_or(0.0) * SAVED_NS,
            pauses: Lengths::default(),
            waits: Lengths::default(),
            gpu: GpuShare {
                saved: rate.unwrap_or(0.0) * SAVED_NS * GPU_SHARE,
                each: USUAL_GPU_BYTES,
                is_thinned: false,
                seen: 0,
                longest_ns: [0; 2],
            },
        }
    }

    /// Pauses shorter than this are only counted, in ns.
    pub(super) fn min_pause_ns(&self) -> u64 {
        self.pauses.least_ns
    }

    /// Times off the CPU shorter than this are only counted, in ns.
    pub(super) fn min_wait_ns(&self) -> u64 {
        self.waits.least_ns
    }

    /// A pause ran, whether or not it was written. Returns whether GPU work around it is to be: it is the longest
    /// for at least a segment, and the bytes are there.
    pub(super) fn see(&mut self, duration_ns: u64, held: usize) -> bool {
        self.pauses.see(duration_ns);
        let [before_ns, longest_ns] = &mut self.gpu.longest_ns;
        let is_longest = duration_ns >= *longest_ns && duration_ns >= *before_ns;
        *longest_ns = duration_ns.max(*longest_ns);
        self.gpu.is_thinned && is_longest && self.gpu.saved >= held as f64 * self.gpu.each * 1.5
    }

    /// GPU work was recorded. Returns whether some of it is only counted.
    pub(super) fn see_gpu(&mut self) -> bool {
        self.gpu.seen += 1;
        self.gpu.is_thinned
    }

    /// A record of GPU work is written.
    pub(super) fn spend_gpu(&mut self) {
        self.gpu.saved -= self.gpu.each;
        // The other half is for what comes.
        let half = self.rate.map(|rate| rate * GPU_SHARE * SAVED_NS / 2.0);
        self.gpu.is_thinned |= half.is_some_and(|half| self.gpu.saved < half);
    }

    /// A thread was off the CPU.
    pub(super) fn thin(&mut self, off: &OffCpu) -> ThinnedWaits {
        let (mut all, mut omitted) = (OmittedPauses::default(), OmittedPauses::default());
        let mut left = off.clone();
        left.times.retain(|(_, length_ns)| {
            let one = OmittedPauses { count: 1, total_ns: *length_ns };
            let is_short = *length_ns < self.waits.least_ns;
            self.waits.see(*length_ns);
            all.add(one);
            if is_short {
                omitted.add(one);
            }
            !is_short
        });
        let left = Some(left).filter(|left| !left.times.is_empty());
        ThinnedWaits { all, omitted, left }
    }

    /// A segment ended. Decides for the next one: each of pauses and waits may have what the other leaves, and half
    /// in any case.
    pub(super) fn decide(&mut self, written: WrittenSegment) {
        let Some(rate) = self.rate else { return };
        let (pauses, waits) = (self.pauses.begin(), self.waits.begin());
        let took_ns = written.took_ns.max(1) as f64;
        let (gpu, reserved) = self.gpu.decide(written, rate);
        let bytes = (written.bytes as f64 - gpu).max(0.0);
        self.saved = (self.saved + rate * took_ns - bytes - reserved).min(rate * SAVED_NS);
        if self.saved > rate * SAVED_NS / 2.0 {
            return;
        }
        let allowed = (rate + self.saved / SAVED_NS).max(rate * LEAST_SHARE);
        let each = |count: u64, usual: f64| match count {
            0 => usual,
            count => (bytes / count as f64).min(usual),
        };
        let (pause, wait) =
            (each(written.pauses, USUAL_BYTES), each(written.waits, USUAL_WAIT_BYTES));
        let thinned = pause * written.pauses as f64 + wait * written.waits as f64;
        // The rest is of other records, which are not thinned.
        let others = ((bytes - thinned).max(0.0) + reserved) / took_ns;
        let left = (allowed - others).max(rate * LEAST_SHARE) * took_ns;
        let all = |counts: &[u64], each: f64| counts.iter().sum::<u64>() as f64 * each;
        let for_pauses = (left - all(&waits, wait)).max(left / 2.0);
        let for_waits = (left - all(&pauses, pause)).max(left / 2.0);
        self.pauses.keep_at_most((for_pauses / pause) as u64, &pauses);
        self.waits.keep_at_most((for_waits / wait) as u64, &waits);
    }
}

impl GpuShare {
    /// A segment ended. Returns what GPU work took of it, and what is reserved for that in such a time: parts are
    /// large and few.
    fn decide(&mut self, written: WrittenSegment, rate: f64) -> (f64, f64) {
        let took_ns = written.took_ns.max(1) as f64;
        let expected = written.gpu as f64 * self.each;
        let others = written.pauses as f64 * USUAL_BYTES + written.waits as f64 * USUAL_WAIT_BYTES;
        let gpu = match written.gpu {
            0 => 0.0,
            _ => written.bytes as f64 * expected / (expected + others),
        };
        self.saved += expected - gpu;
        if written.gpu >= ENOUGH_GPU {
            self.each = gpu / written.gpu as f64;
        }
        let most = rate * GPU_SHARE;
        self.saved = (self.saved + most * took_ns).min(most * SAVED_NS);
        let seen = std::mem::take(&mut self.seen) as f64 * self.each;
        let fits = seen <= most * took_ns;
        self.is_thinned &= !fits || self.saved < most * SAVED_NS / 2.0;
        self.longest_ns = [self.longest_ns[1], 0];
        (gpu, seen.min(most * took_ns))
    }
}

impl Default for Lengths {
    fn default() -> Self {
        Self { counts: vec![0; LENGTHS], least_ns: 0 }
    }
}

impl Lengths {
    fn see(&mut self, duration_ns: u64) {
        if let Some(count) = self.counts.get_mut(place(duration_ns)) {
            *count += 1;
        }
    }

    /// Begins the next segment, in which all are written; returns what there was, by length.
    fn begin(&mut self) -> Vec<u64> {
        std::mem::take(self).counts
    }

    /// Of as many as before, so many are written, the longest.
    fn keep_at_most(&mut self, most: u64, counts: &[u64]) {
        let mut count = 0u64;
        for (place, more) in counts.iter().enumerate().rev() {
            count = count.saturating_add(*more);
            if count > most {
                self.least_ns = length_ns(place + 1);
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
                thinning.see(duration_ns, 0);
                written += u64::from(duration_ns >= thinning.min_pause_ns());
            }
            thinning.decide(WrittenSegment {
                bytes: written * BYTES,
                pauses: written,
                waits: 0,
                gpu: 0,
                took_ns: MINUTE_NS,
            });
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
                thinning.see(duration_ns, 0);
                written += u64::from(duration_ns >= thinning.min_pause_ns());
            }
            let bytes = written * 17 + others;
            thinning.decide(WrittenSegment {
                bytes,
                pauses: written,
                waits: 0,
                gpu: 0,
                took_ns: MINUTE_NS,
            });
            all += bytes;
        }
        assert!((170_000_000..=205_000_000).contains(&all), "{all}");
    }

    #[test]
    fn waits_are_thinned_beside_few_pauses_and_leave_half_to_many() {
        for (pauses_a_second, waits_a_second) in [(5, 400), (200, 400), (200, 5)] {
            let mut thinning = Thinning::new(Some(100_000_000));
            let mut all = [0u64; 3];
            for minute in 0..24 * 60u64 {
                let mut written =
                    WrittenSegment { took_ns: MINUTE_NS, ..WrittenSegment::default() };
                for one in 0..pauses_a_second * 60 {
                    let duration_ns = 10_000 + (one * 7919 + minute) % 990_000;
                    thinning.see(duration_ns, 0);
                    written.pauses += u64::from(duration_ns >= thinning.min_pause_ns());
                }
                for one in 0..waits_a_second * 60 {
                    let duration_ns = 1_000_000 + (one * 7919 + minute) % 90_000_000;
                    thinning.waits.see(duration_ns);
                    written.waits += u64::from(duration_ns >= thinning.min_wait_ns());
                }
                written.bytes = written.pauses * 25 + written.waits * 15;
                all[0] += written.bytes;
                all[1] += written.pauses;
                all[2] += written.waits;
                thinning.decide(written);
            }
            let [bytes, pauses, waits] = all;
            let name = format!("{pauses_a_second} {waits_a_second}: {all:?}");
            assert!((85_000_000..=105_000_000).contains(&bytes), "{name}");
            // Few of one kind are all written; of many, each has at least three tenths of the bytes.
            let few = |rate: u64, written: u64| rate > 5 || written == rate * 24 * 3600;
            assert!(few(pauses_a_second, pauses) && few(waits_a_second, waits), "{name}");
            if pauses_a_second == waits_a_second / 2 {
                assert!(pauses * 25 * 10 >= bytes * 3 && waits * 15 * 10 >= bytes * 3, "{name}");
            }
        }
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
