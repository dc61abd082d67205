//! A pause in a timeline, and compact storage of pauses for processes without GPU work, which are
//! read only if a PyTorch trace of the same process is given.
//!
//! Owns the encoding: differences from the previous pause, in as few bytes as they need (LEB128): 11
//! instead of 32 for the pauses of a 1 GB trace, 54 MB in all (docs/measurements.md, section 4).

use gctrace_event::GcReason;

/// A pause: one run of the collector on one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseSpan {
    /// Start of the pause, in ns on the timeline's clock.
    pub start_ns: u64,
    /// End of the pause, in ns on the timeline's clock.
    pub end_ns: u64,
    /// Index in [`Timeline::threads`](super::timeline::Timeline::threads) of the collecting thread.
    pub thread: u32,
    /// Objects freed; [`NONE`](super::timeline::NONE) where unknown, saturating.
    pub collected: u32,
    /// Objects in the heap or the oldest generation afterwards;
    /// [`NONE`](super::timeline::NONE) where unknown.
    pub objects: u32,
    /// Generation collected, 0 to 2 (full collection); `Pause::UNKNOWN_GENERATION` where unknown.
    pub generation: u8,
    /// Why the collection ran; [`GcReason::Unknown`] if the source does not report it.
    pub reason: GcReason,
}

impl PauseSpan {
    /// Start and end.
    pub(crate) fn span(&self) -> (u64, u64) {
        (self.start_ns, self.end_ns)
    }

    /// Time from start to end, in ns; 0 if the end precedes the start.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

/// Pauses in the order they were added.
#[derive(Clone, Debug, Default)]
pub struct PackedPauses {
    bytes: Vec<u8>,
    last: DeltaBase,
}

/// The previous pause, which the next is encoded relative to.
#[derive(Clone, Copy, Debug, Default)]
struct DeltaBase {
    start_ns: u64,
    objects: u32,
}

impl PackedPauses {
    /// Appends a pause; it may start before the previous one.
    pub fn push(&mut self, pause: &PauseSpan) {
        let start = pause
            .start_ns
            .wrapping_sub(self.last.start_ns)
            .cast_signed();
        self.number(zigzag(start));
        self.number(pause.end_ns.wrapping_sub(pause.start_ns));
        self.number(u64::from(pause.thread));
        // Unknown is the largest number and the most frequent one, so it is encoded as 0.
        self.number(u64::from(pause.collected.wrapping_add(1)));
        let objects = i64::from(pause.objects) - i64::from(self.last.objects);
        self.number(zigzag(objects));
        self.bytes.push(pause.generation);
        self.bytes.push(match pause.reason {
            GcReason::Automatic => 0,
            GcReason::Manual => 1,
            GcReason::Shutdown => 2,
            GcReason::Unknown => 3,
        });
        self.last = DeltaBase {
            start_ns: pause.start_ns,
            objects: pause.objects,
        };
    }

    /// Whether no pause has been appended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The pauses by start, and how many were there twice.
    #[must_use]
    pub fn unpack(&self) -> (Vec<PauseSpan>, u64) {
        let mut rest = self.bytes.as_slice();
        let mut last = DeltaBase::default();
        let mut pauses = Vec::new();
        while let Some(pause) = next(&mut rest, &mut last) {
            pauses.push(pause);
        }
        pauses.sort_by_key(|pause| (pause.start_ns, pause.end_ns, pause.thread));
        let all = pauses.len();
        pauses.dedup_by_key(|pause| (pause.start_ns, pause.end_ns, pause.thread));
        let repeated = (all - pauses.len()) as u64;
        (pauses, repeated)
    }

    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

/// Small numbers of either sign as small numbers.
fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

fn next(rest: &mut &[u8], last: &mut DeltaBase) -> Option<PauseSpan> {
    let start = unzigzag(number(rest)?).cast_unsigned();
    last.start_ns = last.start_ns.wrapping_add(start);
    let end_ns = last.start_ns.wrapping_add(number(rest)?);
    let thread = u32::try_from(number(rest)?).ok()?;
    let collected = u32::try_from(number(rest)?).ok()?.wrapping_sub(1);
    let objects = i64::from(last.objects).checked_add(unzigzag(number(rest)?))?;
    last.objects = u32::try_from(objects).ok()?;
    Some(PauseSpan {
        start_ns: last.start_ns,
        end_ns,
        thread,
        collected,
        objects: last.objects,
        generation: byte(rest)?,
        reason: match byte(rest)? {
            0 => GcReason::Automatic,
            1 => GcReason::Manual,
            2 => GcReason::Shutdown,
            _ => GcReason::Unknown,
        },
    })
}

fn byte(rest: &mut &[u8]) -> Option<u8> {
    let (first, behind) = rest.split_first()?;
    *rest = behind;
    Some(*first)
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = byte(rest)?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reason() -> impl Strategy<Value = GcReason> {
        prop::sample::select(vec![
            GcReason::Automatic,
            GcReason::Manual,
            GcReason::Shutdown,
            GcReason::Unknown,
        ])
    }

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(
            values in prop::collection::vec(any::<(u64, u64, u32, u32, u32, u8)>(), 0..20),
            reason in reason(),
        ) {
            let mut packed = PackedPauses::default();
            let mut pauses: Vec<PauseSpan> = Vec::new();
            for (start_ns, end_ns, thread, collected, objects, generation) in values {
                pauses.push(PauseSpan { start_ns, end_ns, thread, collected, objects, generation, reason });
            }
            pauses.iter().for_each(|pause| packed.push(pause));
            prop_assert_eq!(packed.is_empty(), pauses.is_empty());
            pauses.sort_by_key(|pause| (pause.start_ns, pause.end_ns, pause.thread));
            prop_assert_eq!(packed.unpack(), (pauses, 0));
        }
    }
}
