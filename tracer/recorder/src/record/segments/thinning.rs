//! Keeps a recorder below a number of bytes a day. Only counted are pauses below a length, times off the CPU below
//! another length, GPU work that is not around one of the longest pauses, and all but one in several of the records
//! stated again and again.
//!
//! Owns these lengths and numbers (they change from segment to segment), and the size of a record of each kind. The
//! header states the lengths for pauses and times off the CPU.

use gctrace_event::{OffCpu, OmittedPauses, SpacedClass};
use gctrace_units::add_to;

/// Bytes unused in quiet times may be used over this time: an hour, in ns.
const SAVED_NS: f64 = 3.6e12;
const DAY_NS: f64 = 8.64e13;
/// The least part of the rate to use, however much was written before.
const LEAST_SHARE: f64 = 0.2;
/// Number of records that show the bytes of one.
const ENOUGH: u64 = 100;
/// The same of GPU work.
const ENOUGH_GPU: u64 = 1000;
/// GPU work may have this part of the bytes, if there is so much.
const GPU_SHARE: f64 = 0.5;
/// Lengths are distinguished to the eighth of a doubling, up to 2^40 ns.
const STEPS: usize = 8;
const LENGTHS: usize = 40 * STEPS;

/// The kinds of records that share the bytes of a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Pauses, with their calls and freed objects.
    Pauses,
    /// Times off the CPU.
    Waits,
    /// Samples of running threads.
    Samples,
    /// Counts of allocations; they contain the counts before.
    Allocations,
    /// Memory of layers in a step.
    Layers,
    /// Readings of device memory.
    Memory,
    /// Calls about device memory, and failed calls.
    Calls,
    /// NVML's samples.
    Devices,
    /// Marks of backward passes beside other marks of their steps.
    Backward,
    /// GPU work.
    Gpu,
    /// Records that are always written.
    Rest,
}

impl From<SpacedClass> for Kind {
    fn from(class: SpacedClass) -> Self {
        match class {
            SpacedClass::Samples => Self::Samples,
            SpacedClass::Allocations => Self::Allocations,
            SpacedClass::Layers => Self::Layers,
            SpacedClass::Memory => Self::Memory,
            SpacedClass::Calls => Self::Calls,
            SpacedClass::Devices => Self::Devices,
        }
    }
}

/// Number of kinds thinned here (they are the first), and of all.
const THINNED: usize = Kind::Backward as usize + 1;
const KINDS: usize = Kind::Rest as usize + 1;
/// The first kind with only one record in several written; these are the last of the thinned kinds.
const FIRST_SPACED: usize = Kind::Samples as usize;
/// Bytes of a record until there were enough, by kind. Pauses, waits and GPU work: as measured (docs/evidence.md), with
/// their part of the stacks.
const USUAL_BYTES: [f64; KINDS] =
    [28.0, 20.0, 15.0, 100.0, 500.0, 15.0, 15.0, 20.0, 13.0, 10.0, 15.0];

/// Decides the records to write.
pub(super) struct Thinning {
    /// Bytes in a nanosecond; `None`: no limit.
    rate: Option<f64>,
    /// Bytes that may be written beyond the rate; negative if too many were.
    saved: f64,
    pauses: Lengths,
    waits: Lengths,
    spaced: [Spaced; THINNED - FIRST_SPACED],
    gpu: GpuShare,
    /// Bytes of a record, by kind.
    each: [f64; KINDS],
}

/// The bytes for GPU work.
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
    /// Counts since the last decision, by length.
    counts: Vec<u64>,
    /// Counts before it.
    before: Vec<u64>,
    /// Shorter ones are only counted, in ns.
    least_ns: u64,
}

/// Records of a kind with only one in several written.
#[derive(Default)]
struct Spaced {
    /// Since the last decision: records, and the sum of their counts.
    seen: (u64, u64),
    /// Before it.
    before: (u64, u64),
    /// A record is written when so much was counted since the last one; up to 1, each is.
    every: u64,
    /// Counted since then.
    since: u64,
}

/// Times off the CPU of one record: all of them, the times only counted, and the record of the others.
pub(super) struct ThinnedWaits {
    pub all: OmittedPauses,
    pub omitted: OmittedPauses,
    pub left: Option<OffCpu>,
}

/// The contents of a segment, with its length in ns.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WrittenSegment {
    pub bytes: u64,
    pub took_ns: u64,
    /// Bytes of its text before it is compressed.
    pub text: u64,
    /// By kind.
    pub kinds: [WrittenRecords; KINDS],
}

/// Records of one kind in a segment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WrittenRecords {
    pub count: u64,
    /// Bytes of their text, and of the records written because they name them.
    pub text: u64,
}

impl WrittenSegment {
    /// Records were written: pauses, times off the CPU, or other records.
    pub(super) fn count(&mut self, kind: Kind, count: u64) {
        self.kinds[kind as usize].count += count;
    }

    /// Bytes of text were written for records.
    pub(super) fn add_text(&mut self, kind: Kind, bytes: u64) {
        self.kinds[kind as usize].text += bytes;
    }

    /// Bytes of a kind's records, as if all text were compressed alike.
    fn bytes_of(&self, kind: usize) -> f64 {
        self.bytes as f64 * self.kinds[kind].text as f64 / self.text.max(1) as f64
    }
}

impl Thinning {
    pub(super) fn new(bytes_a_day: Option<u64>) -> Self {
        let rate = bytes_a_day.map(|bytes| bytes as f64 / DAY_NS);
        Self {
            rate,
            saved: rate.unwrap_or(0.0) * SAVED_NS,
            pauses: Lengths::default(),
            waits: Lengths::default(),
            spaced: Default::default(),
            gpu: GpuShare {
                saved: rate.unwrap_or(0.0) * SAVED_NS * GPU_SHARE,
                each: USUAL_BYTES[Kind::Gpu as usize],
                is_thinned: false,
                seen: 0,
                longest_ns: [0; 2],
            },
            each: USUAL_BYTES,
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
        // The other half is for future work.
        let half = self.rate.map(|rate| rate * GPU_SHARE * SAVED_NS / 2.0);
        self.gpu.is_thinned |= matches!(half, Some(half) if self.gpu.saved < half);
    }

    /// A thread was off the CPU.
    pub(super) fn thin(&mut self, off: &OffCpu) -> ThinnedWaits {
        let (mut all, mut omitted) = (OmittedPauses::default(), OmittedPauses::default());
        let mut left = off.clone();
        left.times.retain(|(_, length_ns)| {
            let one = OmittedPauses::of(1, *length_ns);
            let is_short = *length_ns < self.waits.least_ns;
            self.waits.see(*length_ns);
            all.add(one);
            if is_short {
                omitted.add(one);
            }
            !is_short
        });
        let left = if left.times.is_empty() { None } else { Some(left) };
        ThinnedWaits { all, omitted, left }
    }

    /// A record of another kind counts so much. Returns whether it is to be written.
    pub(super) fn takes(&mut self, kind: Kind, count: u64) -> bool {
        let place = (kind as usize).wrapping_sub(FIRST_SPACED);
        let Some(spaced) = self.spaced.get_mut(place) else { return true };
        spaced.takes(count)
    }

    /// A segment ended. Decides for the next one: each kind may have the bytes that the others leave, and at least as
    /// much as each of them.
    pub(super) fn decide(&mut self, written: &WrittenSegment) {
        let Some(rate) = self.rate else { return };
        let took_ns = written.took_ns.max(1) as f64;
        for (kind, each) in self.each.iter_mut().enumerate() {
            let count = written.kinds[kind].count;
            if count >= ENOUGH {
                *each = written.bytes_of(kind) / count as f64;
            }
        }
        let each = self.each;
        let seen: [u64; THINNED] = std::array::from_fn(|kind| match kind {
            0 => self.pauses.begin(),
            1 => self.waits.begin(),
            _ => self.spaced[kind - FIRST_SPACED].begin(),
        });
        let (gpu, reserved) = self.gpu.decide(written, rate);
        let bytes = (written.bytes as f64 - gpu).max(0.0);
        self.saved = (self.saved + rate * took_ns - bytes - reserved).min(rate * SAVED_NS);
        if self.saved > rate * SAVED_NS / 2.0 {
            return;
        }
        let allowed = (rate + self.saved / SAVED_NS).max(rate * LEAST_SHARE);
        let thinned: f64 = (0..THINNED).map(|kind| written.bytes_of(kind)).sum();
        // The rest is of other records; they are not thinned.
        let others = ((bytes - thinned).max(0.0) + reserved) / took_ns;
        let left = (allowed - others).max(rate * LEAST_SHARE) * took_ns;
        let shares = shares(left, std::array::from_fn(|kind| seen[kind] as f64 * each[kind]));
        for (kind, share) in shares.into_iter().enumerate() {
            let most = (share / each[kind].max(1.0)) as u64;
            match kind {
                0 => self.pauses.keep_at_most(most),
                1 => self.waits.keep_at_most(most),
                _ => self.spaced[kind - FIRST_SPACED].keep_at_most(most),
            }
        }
    }
}

/// The part of each kind of the bytes left, if records of each would take so many.
fn shares(mut left: f64, demands: [f64; THINNED]) -> [f64; THINNED] {
    let mut order: [usize; THINNED] = std::array::from_fn(|kind| kind);
    order.sort_by(|one, other| demands[*one].total_cmp(&demands[*other]));
    let mut shares = [0.0; THINNED];
    for (before, kind) in order.into_iter().enumerate() {
        shares[kind] = left / (THINNED - before) as f64;
        left -= demands[kind].min(shares[kind]);
    }
    shares
}

impl GpuShare {
    /// A segment ended. Returns the bytes that GPU work took of it, and the bytes reserved for GPU work in such a time:
    /// parts are large and few.
    fn decide(&mut self, written: &WrittenSegment, rate: f64) -> (f64, f64) {
        let took_ns = written.took_ns.max(1) as f64;
        let count = written.kinds[Kind::Gpu as usize].count;
        let gpu = written.bytes_of(Kind::Gpu as usize);
        self.saved += count as f64 * self.each - gpu;
        if count >= ENOUGH_GPU {
            self.each = gpu / count as f64;
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
        Self { counts: vec![0; LENGTHS], before: Vec::new(), least_ns: 0 }
    }
}

impl Lengths {
    fn see(&mut self, duration_ns: u64) {
        if let Some(count) = self.counts.get_mut(place(duration_ns)) {
            *count += 1;
        }
    }

    /// Begins the next segment, with all written; returns the number of the segment before.
    fn begin(&mut self) -> u64 {
        let before = std::mem::take(self).counts;
        self.before = before;
        self.before.iter().sum()
    }

    /// Given as many as before, so many are written, the longest.
    fn keep_at_most(&mut self, most: u64) {
        let mut count = 0u64;
        for (place, more) in self.before.iter().enumerate().rev() {
            add_to(&mut count, *more);
            if count > most {
                self.least_ns = length_ns(place + 1);
                break;
            }
        }
    }
}

impl Spaced {
    fn takes(&mut self, count: u64) -> bool {
        self.seen.0 += 1;
        add_to(&mut self.seen.1, count);
        add_to(&mut self.since, count);
        let is_due = self.since >= self.every;
        if is_due {
            self.since %= self.every.max(1);
        }
        is_due
    }

    /// As [`Lengths::begin`].
    fn begin(&mut self) -> u64 {
        let before = std::mem::take(self).seen;
        self.before = before;
        before.0
    }

    /// Given as many as before, so many are written.
    fn keep_at_most(&mut self, most: u64) {
        let (records, sum) = self.before;
        if records > most {
            self.every = sum.div_ceil(most.max(1));
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
mod tests;
