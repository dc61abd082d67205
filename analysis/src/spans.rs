//! A pause and a step in a timeline, and compact storage of pauses for processes without GPU work. Such pauses are
//! read only if a PyTorch trace of the same process is given, or to price remedies.
//!
//! Owns the encoding: differences from the previous pause, in as few bytes as they need (LEB128): 12
//! instead of 48 for the pauses of a 1 GB trace (docs/evidence.md).

pub mod index;

use self::index::{SmallNumber, ThreadIndex};
use crate::time::duration_ns;
use gctrace_event::{GcReason, NamedMarker, leb128};
use serde::Serialize;
use std::num::{NonZeroU32, NonZeroU64};

/// The mark that delimits a step, in order of preference: the first that any steps of a process have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum StepSource {
    /// An annotation `ProfilerStep#n`.
    ProfilerStep,
    /// From the start of one call of the function named by `--step-function` to the start of the next.
    Function,
    /// From the end of one step of a torch optimizer to the end of the next of the same class.
    Optimizer,
    /// From the start of one backward pass to the start of the next on the same thread.
    BackwardPass,
    /// From one request for the next batch of a torch `DataLoader` to the next.
    DataLoader,
    /// From one launch of a kernel that recurs at constant distance to the next.
    PeriodicLaunches,
}

impl StepSource {
    /// The kind of step, in a word: the annotation, or the mark that delimits it.
    pub fn basis(self) -> &'static str {
        match self {
            Self::ProfilerStep => "ProfilerStep",
            Self::Function => "call of the step function",
            Self::Optimizer => "optimizer step",
            Self::BackwardPass => "backward pass",
            Self::DataLoader => "batch of the DataLoader",
            Self::PeriodicLaunches => "period of launches",
        }
    }
}

impl From<&NamedMarker> for StepSource {
    fn from(marker: &NamedMarker) -> Self {
        match marker {
            NamedMarker::Function(_) => Self::Function,
            NamedMarker::Optimizer(_) => Self::Optimizer,
            NamedMarker::Backward => Self::BackwardPass,
            NamedMarker::DataLoader(_) => Self::DataLoader,
        }
    }
}

/// First and last time of something, in ns on the clock of its trace; `None` without any.
pub type FirstToLast = Option<(u64, u64)>;

/// A pause: one run of the collector on one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseSpan {
    /// Start of the pause, in ns on the timeline's clock.
    pub start_ns: u64,
    /// End of the pause, in ns on the timeline's clock.
    pub end_ns: u64,
    /// The thread that ran the collector.
    pub thread: ThreadIndex,
    /// CPU time of the collecting thread, in ns; `None` if unknown.
    pub cpu_ns: Option<NonZeroU64>,
    /// Objects freed, at most [`SmallNumber::MAX`]; `None` if unknown.
    pub collected: Option<SmallNumber>,
    /// Objects in the heap or the oldest generation afterwards, at most [`SmallNumber::MAX`];
    /// `None` if unknown.
    pub objects: Option<SmallNumber>,
    /// Memory that the process had less afterwards, in KiB, at most [`SmallNumber::MAX`]; `None` if it was
    /// not measured.
    pub freed_kib: Option<SmallNumber>,
    /// Generation collected, 0 to 2 (full collection); `Pause::UNKNOWN_GENERATION` where unknown.
    pub generation: u8,
    /// Why the collection ran; [`GcReason::Unknown`] if the source does not report it.
    pub reason: GcReason,
    /// The innermost frame of its Python stack, by its id in the trace of the process; `None`
    /// without a stack.
    pub stack: Option<NonZeroU32>,
}

impl PauseSpan {
    /// CPU time of the collecting thread, in ns; its length where that is unknown.
    pub(crate) fn work_ns(&self) -> u64 {
        let length_ns = self.duration_ns();
        if let Some(cpu_ns) = self.cpu_ns { cpu_ns.get().min(length_ns) } else { length_ns }
    }

    /// Start and end.
    pub(crate) fn span(&self) -> (u64, u64) {
        (self.start_ns, self.end_ns)
    }

    fn key(&self) -> PauseKey {
        (self.start_ns, self.end_ns, self.thread)
    }

    /// Time from start to end, in ns; 0 if the end precedes the start.
    pub fn duration_ns(&self) -> u64 {
        duration_ns(self.start_ns, self.end_ns)
    }
}

/// One training step of one thread, from its start to the start of the next or to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepSpan {
    /// Start of the step, in ns on the timeline's clock.
    pub start_ns: u64,
    /// End of the step, in ns on the timeline's clock; never after the start of the thread's next
    /// step.
    pub end_ns: u64,
    /// The thread that ran the step.
    pub thread: ThreadIndex,
    /// CPU time of the thread in the step, in ns; `None` if unknown.
    pub cpu_ns: Option<u64>,
    /// Its number in the trace, otherwise counted from 0.
    pub number: u64,
    /// The mark that delimits the step: the profiler or backward passes.
    pub source: StepSource,
}

/// Pauses in the order they were added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackedPauses {
    bytes: Vec<u8>,
    last: DeltaBase,
    /// Start, end and thread of the last one.
    last_key: Option<PauseKey>,
    /// One has not come after the one before it.
    is_unsorted: bool,
    /// Pauses that were left out, as they were there twice.
    repeated: u64,
}

/// The order of pauses. Two pauses with the same key are one.
type PauseKey = (u64, u64, ThreadIndex);

/// The previous pause; the next is encoded relative to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct DeltaBase {
    start_ns: u64,
    /// As by [`unknown_or`].
    objects: u64,
    /// 0 without a stack; frames are counted from 1.
    stack: u64,
}

impl PackedPauses {
    /// Appends a pause; it may start before the previous one.
    pub fn push(&mut self, pause: &PauseSpan) {
        let key = Some(pause.key());
        self.is_unsorted |= self.last_key >= key;
        self.last_key = key;
        let start = pause.start_ns.wrapping_sub(self.last.start_ns).cast_signed();
        self.number(zigzag(start));
        self.number(pause.end_ns.wrapping_sub(pause.start_ns));
        self.number(pause.thread.at() as u64);
        // Most pauses are on the CPU for nearly all of their time.
        let duration_ns = pause.end_ns.wrapping_sub(pause.start_ns);
        self.number(match pause.cpu_ns {
            None => 0,
            Some(cpu_ns) => {
                let off_cpu_ns = zigzag(duration_ns.wrapping_sub(cpu_ns.get()).cast_signed());
                off_cpu_ns.wrapping_add(1)
            }
        });
        self.number(unknown_or(pause.collected));
        let objects = unknown_or(pause.objects);
        self.number(zigzag(objects.cast_signed() - self.last.objects.cast_signed()));
        self.number(unknown_or(pause.freed_kib));
        self.bytes.push(pause.generation);
        self.bytes.push(match pause.reason {
            GcReason::Automatic => 0,
            GcReason::Manual => 1,
            GcReason::Shutdown => 2,
            GcReason::Unknown => 3,
        });
        let stack = if let Some(frame) = pause.stack { u64::from(frame.get()) } else { 0 };
        let since = stack.cast_signed() - self.last.stack.cast_signed();
        self.number(zigzag(since));
        self.last = DeltaBase { start_ns: pause.start_ns, objects, stack };
    }

    /// Whether no pause has been appended.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The pauses by start, and how many were there twice.
    pub fn unpack(&self) -> (Vec<PauseSpan>, u64) {
        let mut pauses: Vec<PauseSpan> = self.iter().collect();
        if !self.is_unsorted {
            return (pauses, self.repeated);
        }
        pauses.sort_by_key(PauseSpan::key);
        let all = pauses.len();
        pauses.dedup_by_key(|pause| pause.key());
        let repeated = (all - pauses.len()) as u64;
        (pauses, self.repeated + repeated)
    }

    /// The pauses in order of addition.
    pub(crate) fn iter(&self) -> impl Iterator<Item = PauseSpan> + Clone {
        PackedIter { rest: &self.bytes, last: DeltaBase::default() }
    }

    /// The same by start, each once. Most are in that order already: the others take memory for a short time.
    pub(crate) fn sorted(mut self) -> Self {
        if self.is_unsorted {
            let (pauses, repeated) = self.unpack();
            self = Self { repeated, ..Self::default() };
            pauses.iter().for_each(|pause| self.push(pause));
        }
        self.bytes.shrink_to_fit();
        self
    }

    fn number(&mut self, value: u64) {
        self.bytes.extend(leb128::encode(value));
    }
}

/// 0 for an unknown number, the most frequent one; else one more than the number.
fn unknown_or(number: Option<SmallNumber>) -> u64 {
    if let Some(number) = number { u64::from(number.get()) + 1 } else { 0 }
}

/// Inverse of [`unknown_or`].
fn known(number: u64) -> Option<SmallNumber> {
    SmallNumber::new(number.checked_sub(1)?)
}

/// Small numbers of either sign as small numbers.
fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

#[derive(Clone)]
struct PackedIter<'a> {
    rest: &'a [u8],
    last: DeltaBase,
}

impl Iterator for PackedIter<'_> {
    type Item = PauseSpan;

    fn next(&mut self) -> Option<PauseSpan> {
        next(&mut self.rest, &mut self.last)
    }
}

fn next(rest: &mut &[u8], last: &mut DeltaBase) -> Option<PauseSpan> {
    let start = unzigzag(number(rest)?).cast_unsigned();
    last.start_ns = last.start_ns.wrapping_add(start);
    let duration_ns = number(rest)?;
    let thread = ThreadIndex::new(number(rest)? as usize);
    let cpu_ns = number(rest)?.checked_sub(1).and_then(|off_cpu_ns| {
        let off_cpu_ns = unzigzag(off_cpu_ns).cast_unsigned();
        NonZeroU64::new(duration_ns.wrapping_sub(off_cpu_ns))
    });
    let collected = known(number(rest)?);
    let objects = unzigzag(number(rest)?);
    last.objects = last.objects.checked_add_signed(objects)?;
    Some(PauseSpan {
        start_ns: last.start_ns,
        end_ns: last.start_ns.wrapping_add(duration_ns),
        thread,
        cpu_ns,
        collected,
        objects: known(last.objects),
        freed_kib: known(number(rest)?),
        generation: byte(rest)?,
        reason: match byte(rest)? {
            0 => GcReason::Automatic,
            1 => GcReason::Manual,
            2 => GcReason::Shutdown,
            _ => GcReason::Unknown,
        },
        stack: {
            last.stack = last.stack.checked_add_signed(unzigzag(number(rest)?))?;
            u32::try_from(last.stack).ok().and_then(NonZeroU32::new)
        },
    })
}

fn byte(rest: &mut &[u8]) -> Option<u8> {
    let (first, behind) = rest.split_first()?;
    *rest = behind;
    Some(*first)
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    leb128::decode(|| byte(rest).ok_or(())).ok()?
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
            values in prop::collection::vec(any::<(u64, u64, u16, u64, u64, u64, u64, u8, u32)>(), 0..20),
            reason in reason(),
            repeated in 0usize..3,
        ) {
            let mut packed = PackedPauses::default();
            let mut pauses: Vec<PauseSpan> = Vec::new();
            for (start_ns, end_ns, thread, cpu_ns, collected, objects, freed_kib, generation, frame) in values {
                let thread = ThreadIndex::new(usize::from(thread));
                let [collected, objects, freed_kib] =
                    [collected, objects, freed_kib].map(|number| SmallNumber::new(number >> 31));
                pauses.push(PauseSpan {
                    start_ns,
                    end_ns,
                    thread,
                    cpu_ns: NonZeroU64::new(cpu_ns >> 1),
                    collected,
                    objects,
                    freed_kib,
                    generation,
                    reason,
                    stack: NonZeroU32::new(frame),
                });
            }
            pauses.iter().for_each(|pause| packed.push(pause));
            prop_assert_eq!(packed.is_empty(), pauses.is_empty());
            pauses.sort_by_key(PauseSpan::key);
            prop_assert_eq!(packed.unpack(), (pauses.clone(), 0));
            pauses.iter().take(repeated).for_each(|pause| packed.push(pause));
            let repeated = pauses.len().min(repeated) as u64;
            let sorted = packed.clone().sorted();
            prop_assert!(sorted.iter().eq(pauses.iter().copied()));
            prop_assert_eq!(packed.unpack(), (pauses.clone(), repeated));
            prop_assert_eq!(sorted.unpack(), (pauses, repeated));
        }
    }
}
