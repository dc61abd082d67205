//! Work of one process on one GPU, with GPU times from CUPTI.
//!
//! Owns the definition of busy and idle, as in the report of a trace: busy is the union over
//! streams of kernels, memcpys and memsets, idle the rest between the first start and the last end.
//! Operations arrive seconds late, and out of order where there are several streams, and pauses are
//! known only at their end: each adds its new part to the unions, so that the figures are exact
//! once both have arrived. For that the last minute is kept, and at most [`STRETCHES`] intervals.

use super::ring::{BUCKET_NS, BucketRing, bucket};
use super::snapshot::GpuBusy;
use crate::accumulate::interval_union::IntervalUnion;
use crate::bounded::{Keep, WINDOW_NS};
use crate::time::{add_to, beyond, duration_ns};

/// Number of busy intervals of a device that are kept: 1 MiB. An operation that ends before this
/// many intervals is not counted.
const STRETCHES: usize = (1 << 16) - 1;

/// The work of a process on a device.
#[derive(Clone, Debug)]
pub(super) struct LiveDeviceWork {
    busy: IntervalUnion,
    /// Start of the first operation and end of the last.
    span: Option<(u64, u64)>,
    /// Time within the span with a pause running, in ns.
    paused_ns: u64,
    /// The part of that with the device busy, in ns.
    busy_and_paused_ns: u64,
    /// Time after the span with a pause running that the [`IntervalUnion`] of the pauses no longer keeps, in ns.
    paused_after_ns: u64,
    busy_by_bucket: BucketRing<u32>,
    busy_and_paused_by_bucket: BucketRing<u32>,
}

impl Default for LiveDeviceWork {
    fn default() -> Self {
        Self {
            busy: IntervalUnion::new(Keep::Window, STRETCHES),
            span: None,
            paused_ns: 0,
            busy_and_paused_ns: 0,
            paused_after_ns: 0,
            busy_by_bucket: BucketRing::default(),
            busy_and_paused_by_bucket: BucketRing::default(),
        }
    }
}

impl LiveDeviceWork {
    /// Adds an operation. `paused`: when pauses of the process ran.
    pub(super) fn add(&mut self, start_ns: u64, end_ns: u64, paused: &IntervalUnion) {
        let end_ns = end_ns.max(start_ns);
        self.reach(start_ns, end_ns, paused);
        let (busy_by_bucket, both) =
            (&mut self.busy_by_bucket, &mut self.busy_and_paused_by_bucket);
        let busy_and_paused_ns = &mut self.busy_and_paused_ns;
        self.busy.add(start_ns, end_ns, |start, end| {
            busy_by_bucket.cover(start, end);
            for (from, until) in paused.within(start, end) {
                add_to(busy_and_paused_ns, until - from);
                both.cover(from, until);
            }
        });
        self.busy.trim(|_, _| {});
    }

    /// Extends the span, and counts the pauses of its new part.
    fn reach(&mut self, start_ns: u64, end_ns: u64, paused: &IntervalUnion) {
        let Some((first, last)) = self.span else {
            self.span = Some((start_ns, end_ns));
            self.paused_ns = paused.length_within(start_ns, end_ns);
            return;
        };
        if start_ns < first {
            let before = paused.length_within(start_ns, first);
            add_to(&mut self.paused_ns, before);
        }
        if end_ns > last {
            add_to(&mut self.paused_ns, paused.length_within(last, end_ns));
            add_to(&mut self.paused_ns, std::mem::take(&mut self.paused_after_ns));
        }
        self.span = Some((first.min(start_ns), last.max(end_ns)));
    }

    /// Adds time with a pause of this process running and no other pause.
    pub(super) fn add_paused(&mut self, start_ns: u64, end_ns: u64) {
        let Some((first, last)) = self.span else { return };
        let within = duration_ns(start_ns.max(first), end_ns.min(last));
        add_to(&mut self.paused_ns, within);
        for (from, until) in self.busy.within(start_ns, end_ns) {
            add_to(&mut self.busy_and_paused_ns, until - from);
            self.busy_and_paused_by_bucket.cover(from, until);
        }
    }

    /// Time in pauses that is forgotten now.
    pub(super) fn forget_paused(&mut self, start_ns: u64, end_ns: u64) {
        if let Some((_, last)) = self.span {
            let after = duration_ns(start_ns.max(last), end_ns);
            add_to(&mut self.paused_after_ns, after);
        }
    }

    /// The bucket of the first operation.
    pub(super) fn known_from(&self) -> u64 {
        if let Some((first, _)) = self.span { bucket(first) } else { 0 }
    }

    /// The last bucket with known work.
    pub(super) fn known_until(&self) -> u64 {
        if let Some((_, last)) = self.span { bucket(last) } else { 0 }
    }

    /// Busy time by bucket.
    pub(super) fn by_bucket(&self, from: u64, until: u64) -> impl Iterator<Item = (u64, u32)> {
        self.busy_by_bucket.within(from, until)
    }

    /// Figures of the last `buckets` buckets up to `until`. `paused_ns`: pause time of the process
    /// between two buckets.
    pub(super) fn figures(
        &self,
        until: u64,
        buckets: u64,
        paused_ns: impl Fn(u64, u64) -> u64,
    ) -> GpuBusy {
        let (first, last) = self.span.unwrap_or_default();
        let span_ns = last - first;
        let idle_ns = span_ns - self.busy.length_ns();
        let idle_in_gc_ns = beyond(self.paused_ns, self.busy_and_paused_ns);
        let known = until.min(self.known_until());
        let mut from = beyond(known, buckets).max(bucket(first));
        if beyond(until, from) * BUCKET_NS > WINDOW_NS {
            from = known;
        }
        let window_ns = beyond(known, from) * BUCKET_NS;
        let busy_ns = self.busy_by_bucket.sum(from, known).min(window_ns);
        let both_ns = self.busy_and_paused_by_bucket.sum(from, known);
        let window_idle_ns = window_ns - busy_ns;
        let window_paused_ns = beyond(paused_ns(from, known), both_ns);
        GpuBusy {
            window_ns,
            window_end_ns: known * BUCKET_NS,
            busy_ns,
            idle_ns: window_idle_ns,
            idle_in_gc_ns: window_paused_ns.min(window_idle_ns),
            total_busy_ns: self.busy.length_ns(),
            total_idle_ns: idle_ns,
            total_idle_in_gc_ns: idle_in_gc_ns.min(idle_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Operations and pauses in any order, as they may arrive.
        #[test]
        fn totals_equal_a_count_per_tick(
            events in prop::collection::vec((any::<bool>(), 0u64..300, 1u64..40), 0..60)
        ) {
            let mut work = LiveDeviceWork::default();
            let mut paused = IntervalUnion::new(Keep::Window, 1000);
            let (mut busy, mut in_pauses) = (BTreeSet::new(), BTreeSet::new());
            for (is_op, start, length) in events {
                let end = start + length;
                if is_op {
                    work.add(start, end, &paused);
                    busy.extend(start..end);
                } else {
                    paused.add(start, end, |from, until| work.add_paused(from, until));
                    in_pauses.extend(start..end);
                }
            }
            let figures = work.figures(0, 0, |_, _| 0);
            let (Some(first), Some(last)) = (busy.first(), busy.last()) else {
                prop_assert_eq!(figures, GpuBusy::default());
                return Ok(());
            };
            let idle: BTreeSet<u64> = &(*first..=*last).collect() - &busy;
            prop_assert_eq!(figures.total_busy_ns, busy.len() as u64);
            prop_assert_eq!(figures.total_idle_ns, idle.len() as u64);
            prop_assert_eq!(figures.total_idle_in_gc_ns, idle.intersection(&in_pauses).count() as u64);
        }
    }

    #[test]
    fn pauses_of_a_long_silence_count_when_work_goes_on() {
        let mut work = LiveDeviceWork::default();
        let mut paused = IntervalUnion::new(Keep::Window, 4);
        work.add(0, 10, &paused);
        for n in 1..100 {
            paused.add(n * 20, n * 20 + 5, |from, until| work.add_paused(from, until));
            paused.trim(|from, until| work.forget_paused(from, until));
        }
        work.add(3000, 3010, &paused);
        let figures = work.figures(0, 0, |_, _| 0);
        assert_eq!(figures.total_idle_in_gc_ns, 99 * 5);
        assert_eq!(figures.total_idle_ns, 2990);
    }
}
