//! A timeline between the times that its work is used: packed, except for the parts that other ranks need.
//!
//! All ranks of a job are read before anything is computed of one. Operations and calls take 40 and
//! 32 bytes, packed some 10: the pauses, the steps and the kernels of NCCL stay at hand.

use super::ranks::reduced;
use super::timeline::{ProcessTimeline, Timeline};
use crate::spans::FirstToLast;
use std::borrow::Cow;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A timeline that may be packed. It can be used as its [`ProcessTimeline`].
#[derive(Clone, Debug)]
pub struct KeptTimeline {
    /// The whole timeline, or, if its work is packed, what [`reduced`] leaves of it.
    timeline: Timeline,
    packed: Option<PackedWork>,
}

/// The work of a timeline, encoded, and facts about it known without unpacking.
#[derive(Clone, Debug)]
struct PackedWork {
    bytes: Box<[u8]>,
    ops: usize,
    calls: usize,
    window: FirstToLast,
    activity: FirstToLast,
}

impl From<Timeline> for KeptTimeline {
    /// Packs a timeline with GPU times.
    fn from(mut timeline: Timeline) -> Self {
        if !timeline.has_gpu_times() {
            return Self { timeline, packed: None };
        }
        let (window, activity) = (timeline.window(), timeline.activity());
        let (ops, calls) = (timeline.ops.len(), timeline.calls.len());
        let at_hand = reduced(&mut timeline);
        change_spans(&mut timeline, pack_span);
        let bytes = bitcode::encode(&timeline).into();
        Self { timeline: at_hand, packed: Some(PackedWork { bytes, ops, calls, window, activity }) }
    }
}

impl Deref for KeptTimeline {
    type Target = ProcessTimeline;

    fn deref(&self) -> &ProcessTimeline {
        &self.timeline.process
    }
}

impl DerefMut for KeptTimeline {
    fn deref_mut(&mut self) -> &mut ProcessTimeline {
        &mut self.timeline.process
    }
}

impl KeptTimeline {
    /// The timeline as it was kept, unpacked if necessary.
    #[expect(clippy::expect_used, reason = "the bytes are those of `from`")]
    pub fn whole(&self) -> Cow<'_, Timeline> {
        let Some(packed) = &self.packed else { return Cow::Borrowed(&self.timeline) };
        let mut whole: Timeline = bitcode::decode(&packed.bytes).expect("invariant: encoded work");
        change_spans(&mut whole, unpack_span);
        Arc::make_mut(&mut whole.names).find_indices();
        whole.process = self.timeline.process.clone();
        Cow::Owned(whole)
    }

    /// The part that other ranks have something to do with, at least. Its operations and calls have
    /// other places than in the whole timeline, in the same order.
    pub(crate) fn at_hand(&self) -> &Timeline {
        &self.timeline
    }

    /// Whether it contains operations with GPU times.
    pub fn has_gpu_times(&self) -> bool {
        self.ops() > 0
    }

    /// Number of operations.
    pub(crate) fn ops(&self) -> usize {
        let packed = self.packed.as_ref();
        if let Some(packed) = packed { packed.ops } else { self.timeline.ops.len() }
    }

    /// Number of times in a model of it alone: one for its process, two for each call and operation.
    pub(crate) fn timestamps(&self) -> u64 {
        let own = self.timeline.calls.len();
        let calls = if let Some(packed) = &self.packed { packed.calls } else { own };
        2 * (calls + self.ops()) as u64 + 1
    }

    /// As [`Timeline::window`].
    pub(crate) fn window(&self) -> FirstToLast {
        let packed = self.packed.as_ref();
        if let Some(packed) = packed { packed.window } else { self.timeline.window() }
    }

    /// As [`Timeline::activity`].
    pub(crate) fn activity(&self) -> FirstToLast {
        let packed = self.packed.as_ref();
        if let Some(packed) = packed { packed.activity } else { self.timeline.activity() }
    }
}

/// The start of an entry as difference from the one before, and its length: small numbers need few bytes. Both wrap
/// around. Like [`unpack_span`] it returns the start; the next start is stored as the difference from it.
fn pack_span(before_ns: u64, start_ns: &mut u64, end_ns: &mut u64) -> u64 {
    let at_ns = *start_ns;
    *start_ns = at_ns.wrapping_sub(before_ns);
    *end_ns = end_ns.wrapping_sub(at_ns);
    at_ns
}

fn unpack_span(before_ns: u64, start_ns: &mut u64, end_ns: &mut u64) -> u64 {
    *start_ns = start_ns.wrapping_add(before_ns);
    *end_ns = end_ns.wrapping_add(*start_ns);
    *start_ns
}

/// Changes all starts and ends, in each list one after the other.
fn change_spans(work: &mut Timeline, change: fn(u64, &mut u64, &mut u64) -> u64) {
    fn each<T>(
        list: &mut [T],
        span: fn(&mut T) -> (&mut u64, &mut u64),
        change: fn(u64, &mut u64, &mut u64) -> u64,
    ) {
        list.iter_mut().map(span).fold(0, |before_ns, (start, end)| change(before_ns, start, end));
    }
    each(&mut work.ops, |op| (&mut op.start_ns, &mut op.end_ns), change);
    each(&mut work.calls, |call| (&mut call.start_ns, &mut call.end_ns), change);
    let launches = &mut work.counted_launches;
    each(launches, |launches| (&mut launches.first_ns, &mut launches.last_ns), change);
    each(&mut work.annotations, |span| (&mut span.start_ns, &mut span.end_ns), change);
    each(&mut work.code, |span| (&mut span.start_ns, &mut span.end_ns), change);
    each(&mut work.samples, |samples| (&mut samples.start_ns, &mut samples.end_ns), change);
}
