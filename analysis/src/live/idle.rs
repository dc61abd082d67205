//! Why the devices of one process were idle, as far as the live view can know it.
//!
//! Owns a coarse form of the report's idle ledger, in one pass and bounded memory. The report replays the run without
//! each cause. Here the program is one sequence of calls and each device one queue, so that the run without some
//! causes is two numbers: how much earlier the program is, and how much earlier the device. A gap closes by the
//! difference of both; the next cause gets the part that it closes. A call that waits for the device takes the
//! program's lead away, unless it is removed itself.
//!
//! Calls are known about half a second late, so operations are examined [`SETTLED_NS`] late. Waits that only
//! annotations show (for data, files, other ranks) count as the host's here. Operations of several streams are in
//! each other's way unseen.

use super::HISTORY_SECONDS;
use super::ring::{BUCKET_NS, BucketRing, bucket};
use super::snapshot::GpuIdle;
use crate::accumulate::interval_union::IntervalUnion;
use crate::gpu::calls::CallEffect;
use crate::report::{Basis, IdleCause, IdlePart};
use crate::time::add_to;
use crate::time::intervals::Intervals;
use gctrace_event::{CudaCall, GpuOp, GpuOpKind};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// The causes that are removed one after the other; the rest is the host's.
const REMOVED: [IdleCause; 4] =
    [IdleCause::Gc, IdleCause::Allocation, IdleCause::Synchronization, IdleCause::Copy];
/// How much earlier something is without the first of these, the first two, and so on, in ns.
type Lead = [u64; REMOVED.len()];

/// Records are put in order until they are this much older than the newest operation: records of calls are handed
/// over after two flushes of CUPTI's buffers, 250 ms each.
const SETTLED_NS: u64 = 2_000_000_000;
/// Records that wait, and starts of launches: 3 MiB each. With more, they wait for a shorter time.
const PENDING: usize = 1 << 16;
/// Typical times of CUDA, as in the report: from a launch to its operation; of a call without a wait; from the end of
/// an operation to the return of the call that waited for it.
const LAUNCH_NS: u64 = 4_000;
const UNBLOCKED_NS: u64 = 3_000;
const RETURN_NS: u64 = 5_000;
/// A shorter copy did not wait for its operation.
const BLOCKED_COPY_NS: u64 = 20_000;
/// Operations that were launched in time start at most this long after each other.
const BACK_TO_BACK_NS: u64 = 30_000;
/// Launches that CUDA accepts ahead of the device.
const QUEUE: usize = 1_024;
/// Last ends of operations kept per device, to find the operation that a call waited for.
const ENDS: usize = 16;
/// Copies with a call not examined yet; a blocking copy is the last but a few.
const COPIES: usize = 64;
/// Threads of a process that launch: forward, backward.
const THREADS: usize = 16;
/// Devices of a process; a host has sixteen.
const DEVICES: usize = 64;

/// The devices of one process, and the program that keeps them busy.
#[derive(Clone, Debug, Default)]
pub(super) struct LiveIdle {
    pending: BinaryHeap<Reverse<PendingRecord>>,
    /// Starts of calls that enqueue, by correlation id.
    launches: BTreeMap<u64, u64>,
    /// Threads that launched.
    threads: Vec<u32>,
    /// Correlation id and end of the last copies.
    copies: VecDeque<(u64, u64)>,
    /// How much earlier the program is.
    host: Lead,
    devices: Vec<DeviceIdle>,
    newest_ns: u64,
    settled_ns: u64,
    /// Nothing is waited for any more.
    ended: bool,
}

/// A record that waits for earlier ones; in order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PendingRecord {
    /// End of a pause or call, start of an operation.
    at_ns: u64,
    event: PendingEvent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PendingEvent {
    Paused { length_ns: u64 },
    Call { start_ns: u64, tid: u32, cause: IdleCause, correlation: u64 },
    Op { device: u32, end_ns: u64, correlation: Option<u64>, kind: GpuOpKind },
}

/// One device.
#[derive(Clone, Debug, Default)]
struct DeviceIdle {
    device: u32,
    first_ns: u64,
    /// End of its work so far.
    end_ns: u64,
    /// The last ends, in order.
    ends: VecDeque<u64>,
    /// Start and end of the last functions that the host ran for its streams.
    functions: VecDeque<(u64, u64)>,
    /// How much earlier it is.
    lead: Lead,
    /// Starts of the last operations in each run.
    starts: VecDeque<Lead>,
    total_ns: BTreeMap<IdleCause, u64>,
    by_bucket: BTreeMap<IdleCause, BucketRing<u32>>,
}

impl LiveIdle {
    /// Adds a call; calls that CUPTI did not record have no place among the operations.
    pub(super) fn add_call(&mut self, call: &CudaCall) {
        let Some(correlation) = call.correlation else { return };
        let effect = CallEffect::of(&call.function);
        if effect.launches() || effect == CallEffect::Copy {
            self.launches.insert(correlation, call.start_ns);
            if self.launches.len() > PENDING {
                self.launches.pop_first();
            }
        }
        if effect.launches() && self.threads.len() < THREADS && !self.threads.contains(&call.tid) {
            self.threads.push(call.tid);
        }
        let cause = effect.idle_cause();
        if REMOVED.contains(&cause) {
            let (start_ns, tid) = (call.start_ns, call.tid);
            self.add(call.end_ns, PendingEvent::Call { start_ns, tid, cause, correlation });
        }
    }

    /// Adds an operation. `paused`: when pauses of the process ran.
    pub(super) fn add_op(&mut self, op: &GpuOp, paused: &IntervalUnion) {
        if self.newest_ns == 0 {
            for (from, until) in paused.within(op.start_ns, u64::MAX) {
                self.add(until, PendingEvent::Paused { length_ns: until - from });
            }
        }
        self.newest_ns = self.newest_ns.max(op.end_ns);
        let event = PendingEvent::Op {
            device: op.device,
            end_ns: op.end_ns.max(op.start_ns),
            correlation: op.correlation,
            kind: op.kind,
        };
        self.add(op.start_ns, event);
        let due_ns = self.newest_ns.saturating_sub(SETTLED_NS);
        if due_ns.saturating_sub(self.settled_ns) >= BUCKET_NS {
            self.settle(due_ns);
        }
    }

    /// Adds time with a pause running and no other.
    pub(super) fn add_paused(&mut self, start_ns: u64, end_ns: u64) {
        if self.newest_ns > 0 && start_ns < end_ns {
            self.add(end_ns, PendingEvent::Paused { length_ns: end_ns - start_ns });
        }
    }

    /// The process has ended.
    pub(super) fn end(&mut self) {
        self.ended = true;
        self.settle(self.newest_ns);
    }

    /// `None` before anything is known of a device, and if no launches are recorded.
    pub(super) fn figures(&self, device: u32) -> Option<GpuIdle> {
        let is_it = |one: &&DeviceIdle| one.device == device && !self.launches.is_empty();
        let of_device = self.devices.iter().find(is_it)?;
        Some(of_device.figures(self.settled_ns))
    }

    fn add(&mut self, at_ns: u64, event: PendingEvent) {
        self.pending.push(Reverse(PendingRecord { at_ns, event }));
        if self.ended || self.pending.len() > PENDING {
            self.settle(self.settled_ns);
        }
    }

    fn settle(&mut self, until_ns: u64) {
        self.settled_ns = self.settled_ns.max(until_ns);
        while let Some(Reverse(next)) = self.pending.peek()
            && (self.ended || next.at_ns <= until_ns || self.pending.len() > PENDING)
            && let Some(Reverse(PendingRecord { at_ns, event })) = self.pending.pop()
        {
            self.settled_ns = self.settled_ns.max(at_ns);
            match event {
                PendingEvent::Paused { length_ns } => remove(&mut self.host, 0, length_ns),
                PendingEvent::Call { start_ns, tid, cause, correlation } => {
                    if self.threads.contains(&tid) {
                        self.call((start_ns, at_ns), cause, correlation);
                    }
                }
                PendingEvent::Op { device, end_ns, correlation, kind } => match kind {
                    GpuOpKind::HostFunction => self.host_function(device, (at_ns, end_ns)),
                    _ => {
                        let is_copy = kind == GpuOpKind::Memcpy;
                        if is_copy && let Some(correlation) = correlation {
                            push(&mut self.copies, (correlation, end_ns), COPIES);
                        }
                        self.op(device, (at_ns, end_ns), correlation);
                    }
                },
            }
        }
    }

    /// A call that may have waited.
    fn call(&mut self, (start_ns, end_ns): (u64, u64), cause: IdleCause, correlation: u64) {
        let Some(place) = REMOVED.iter().position(|removed| *removed == cause) else { return };
        let length_ns = end_ns.saturating_sub(start_ns);
        if cause == IdleCause::Allocation {
            return remove(&mut self.host, place, length_ns);
        }
        let own = self.copies.iter().find(|(copied, _)| *copied == correlation);
        let blocks = matches!(own, Some((_, done_ns)) if *done_ns <= end_ns);
        if cause == IdleCause::Copy && !(blocks && length_ns >= BLOCKED_COPY_NS) {
            return;
        }
        let last = self.devices.iter().filter_map(|device| Some((device.ended(end_ns)?, device)));
        let Some((done_ns, device)) = last.max_by_key(|(done_ns, _)| *done_ns) else { return };
        let waited = done_ns > start_ns;
        let wait_ns = if waited { length_ns.saturating_sub(UNBLOCKED_NS) } else { 0 };
        // It would have had to wait, had it been called earlier.
        let spare_ns = if waited { 0 } else { (end_ns - done_ns).saturating_sub(RETURN_NS) };
        for (at, lead) in self.host.iter_mut().enumerate() {
            add_to(lead, wait_ns);
            if at < place {
                *lead = (*lead).min(device.lead[at].saturating_add(spare_ns));
            }
        }
    }

    /// The host ran a function for a stream, as calls may wait for.
    fn host_function(&mut self, number: u32, span: (u64, u64)) {
        if let Some(device) = self.devices.iter_mut().find(|one| one.device == number) {
            push(&mut device.functions, span, ENDS);
            push(&mut device.ends, span.1, ENDS);
        }
    }

    fn op(&mut self, number: u32, (start_ns, end_ns): (u64, u64), correlation: Option<u64>) {
        let at = self.devices.iter().position(|one| one.device == number);
        let Some(device) = at.and_then(|at| self.devices.get_mut(at)) else {
            if self.devices.len() < DEVICES {
                self.devices.push(DeviceIdle::new(number, start_ns, end_ns));
            }
            return;
        };
        let called_ns = correlation.and_then(|id| self.launches.get(&id).copied());
        if device.starts.len() == QUEUE
            && let Some(before) = device.starts.pop_front()
        {
            let launched_ns = called_ns.unwrap_or(start_ns);
            for (at, lead) in self.host.iter_mut().enumerate() {
                let most_ns = launched_ns.saturating_sub(before[at]);
                *lead = (*lead).min(most_ns.max(device.lead[at]));
            }
        }
        if device.end_ns < start_ns {
            device.gap(start_ns, called_ns, &self.host);
        }
        device.starts.push_back(device.lead.map(|lead| start_ns.saturating_sub(lead)));
        device.end_ns = device.end_ns.max(end_ns);
        push(&mut device.ends, end_ns, ENDS);
    }
}

impl DeviceIdle {
    fn new(device: u32, start_ns: u64, end_ns: u64) -> Self {
        Self {
            device,
            first_ns: start_ns,
            end_ns,
            ends: VecDeque::from([end_ns]),
            ..Self::default()
        }
    }

    /// The last end of an operation before a time.
    fn ended(&self, before_ns: u64) -> Option<u64> {
        self.ends.iter().copied().filter(|end_ns| *end_ns <= before_ns).max()
    }

    /// The device was idle until an operation, launched by a call that started at `called_ns`.
    fn gap(&mut self, until_ns: u64, called_ns: Option<u64>, host: &Lead) {
        let from_ns = self.end_ns;
        let Some(called_ns) = called_ns else {
            return self.book(IdleCause::Unknown, until_ns - from_ns);
        };
        let mut ready_ns = called_ns.saturating_add(LAUNCH_NS).clamp(from_ns, until_ns);
        if ready_ns > from_ns && until_ns - ready_ns <= BACK_TO_BACK_NS {
            // A slow launch.
            ready_ns = until_ns;
        }
        let functions = self.functions.iter().filter_map(|(start, end)| {
            let is_within = *start < until_ns && *end > from_ns;
            if is_within { Some(((*start).max(from_ns), (*end).min(until_ns))) } else { None }
        });
        let functions: Vec<(u64, u64)> = functions.collect();
        let mut function_ns = 0;
        if let Some((start_ns, _)) = functions.first().copied()
            && functions.iter().any(|(_, end_ns)| *end_ns >= ready_ns)
        {
            // If a launch was late, it was the function's launch.
            let in_turn = start_ns - from_ns <= BACK_TO_BACK_NS;
            ready_ns = if in_turn { from_ns } else { start_ns };
            function_ns = Intervals::from_iter(functions).length_ns().min(until_ns - ready_ns);
        }
        let late_ns = ready_ns - from_ns;
        let mut closed_ns = 0;
        for (at, cause) in REMOVED.into_iter().enumerate() {
            let closes_ns = late_ns.min(host[at].saturating_sub(self.lead[at]));
            add_to(&mut self.lead[at], closes_ns);
            self.book(cause, closes_ns.saturating_sub(closed_ns));
            closed_ns = closed_ns.max(closes_ns);
        }
        // Launch latency, too: a program that is fast enough hides it.
        self.book(IdleCause::Host, late_ns - closed_ns);
        self.book(IdleCause::HostFunction, function_ns);
        let waited_ns = until_ns - ready_ns - function_ns;
        let in_turn = waited_ns <= BACK_TO_BACK_NS;
        self.book(if in_turn { IdleCause::BackToBack } else { IdleCause::Blocked }, waited_ns);
    }

    /// The next part of the gap.
    fn book(&mut self, cause: IdleCause, time_ns: u64) {
        if time_ns > 0 {
            add_to(self.total_ns.entry(cause).or_default(), time_ns);
            let until_ns = self.end_ns.saturating_add(time_ns);
            self.by_bucket.entry(cause).or_default().cover(self.end_ns, until_ns);
            self.end_ns = until_ns;
        }
    }

    /// `settled_ns`: up to when all is known.
    fn figures(&self, settled_ns: u64) -> GpuIdle {
        let until = bucket(settled_ns.min(self.end_ns));
        let from = until
            .saturating_sub(HISTORY_SECONDS as u64 * 1_000_000_000 / BUCKET_NS)
            .max(bucket(self.first_ns))
            .min(until);
        let recent = self.by_bucket.iter().map(|(cause, ring)| (*cause, ring.sum(from, until)));
        GpuIdle {
            basis: Basis::Inferred,
            window_ns: (until - from) * BUCKET_NS,
            window_end_ns: until * BUCKET_NS,
            causes: IdlePart::sorted(recent),
            total: IdlePart::sorted(self.total_ns.iter().map(|(cause, ns)| (*cause, *ns))),
        }
    }
}

/// Removes a time with a cause from the runs without it. `place`: of the cause in [`REMOVED`].
fn remove(leads: &mut Lead, place: usize, by_ns: u64) {
    for lead in leads.iter_mut().skip(place) {
        add_to(lead, by_ns);
    }
}

/// Adds to the last elements of something.
fn push<T>(last: &mut VecDeque<T>, new: T, most: usize) {
    if last.len() >= most {
        last.pop_front();
    }
    last.push_back(new);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounded::Keep;
    use proptest::prelude::*;

    const US: u64 = 1_000;

    fn call(function: &'static str, (start_us, end_us): (u64, u64), id: u64) -> CudaCall {
        let (start_ns, end_ns) = (start_us * US, end_us * US);
        let (function, correlation) = (function.into(), Some(id));
        CudaCall { tid: 1, function, start_ns, end_ns, correlation, ..CudaCall::default() }
    }

    fn kernel((start_us, end_us): (u64, u64), id: u64) -> GpuOp {
        let (start_ns, end_ns) = (start_us * US, end_us * US);
        GpuOp { start_ns, end_ns, correlation: Some(id), ..GpuOp::default() }
    }

    /// A kernel of this length, `.item()` for it, 42 µs of Python and the next kernel.
    fn item(length_us: u64) -> Vec<(IdleCause, u64)> {
        let mut idle = LiveIdle::default();
        let paused = IntervalUnion::new(Keep::Window, 10);
        let done_us = 100 + length_us;
        idle.add_call(&call("cudaLaunchKernel", (95, 98), 1));
        idle.add_call(&call("cudaStreamSynchronize", (98, done_us + 8), 2));
        idle.add_call(&call("cudaLaunchKernel", (done_us + 50, done_us + 53), 3));
        idle.add_op(&kernel((100, done_us), 1), &paused);
        idle.add_op(&kernel((done_us + 55, done_us + 99), 3), &paused);
        idle.end();
        let total = idle.figures(0).expect("a device").total;
        total.into_iter().map(|part| (part.cause, part.time_ns / US)).collect()
    }

    #[test]
    fn a_stream_waits_for_a_function_of_the_host() {
        let mut idle = LiveIdle::default();
        let paused = IntervalUnion::new(Keep::Window, 10);
        for (id, function) in
            (1..).zip(["cudaLaunchKernel", "cudaLaunchHostFunc", "cudaLaunchKernel"])
        {
            idle.add_call(&call(function, (90 + id, 91 + id), id));
        }
        idle.add_op(&kernel((100, 200), 1), &paused);
        let function = GpuOp { kind: GpuOpKind::HostFunction, ..kernel((210, 700), 2) };
        idle.add_op(&function, &paused);
        idle.add_op(&kernel((705, 800), 3), &paused);
        idle.end();
        let total = idle.figures(0).expect("a device").total;
        let total: Vec<_> = total.iter().map(|part| (part.cause, part.time_ns / US)).collect();
        assert_eq!(total, [(IdleCause::HostFunction, 490), (IdleCause::BackToBack, 15)]);
    }

    #[test]
    fn what_a_wait_keeps_from_being_hidden_is_its_own() {
        assert_eq!(item(100), [(IdleCause::Synchronization, 55)]);
        // The GPU would have hidden no more than the call took.
        assert_eq!(item(30), [(IdleCause::Synchronization, 37), (IdleCause::Host, 18)]);
    }

    proptest! {
        /// Whatever comes in whatever order, each idle nanosecond has one cause.
        #[test]
        fn it_closes(
            events in prop::collection::vec((0u8..4, 0u64..400, 1u64..40), 0..80)
        ) {
            let mut idle = LiveIdle::default();
            let mut paused = IntervalUnion::new(Keep::Window, 1000);
            let mut busy = Vec::new();
            for (id, (kind, start, length)) in (0..).zip(events) {
                let span = (start, start + length);
                match kind {
                    0 => paused.add(span.0 * US, span.1 * US, |from, until| idle.add_paused(from, until)),
                    1 => idle.add_call(&call("cudaStreamSynchronize", span, id)),
                    2 => idle.add_call(&call("cudaMalloc", span, id)),
                    _ => {
                        idle.add_call(&call("cudaLaunchKernel", (start.saturating_sub(id % 50), start), id));
                        idle.add_op(&kernel(span, id), &paused);
                        busy.push((span.0 * US, span.1 * US));
                    }
                }
            }
            idle.end();
            let Some(figures) = idle.figures(0) else {
                prop_assert!(busy.is_empty());
                return Ok(());
            };
            busy.sort_unstable();
            let (mut gaps_ns, mut end_ns) = (0, busy[0].0);
            for (from, until) in busy {
                gaps_ns += from.saturating_sub(end_ns);
                end_ns = end_ns.max(until);
            }
            prop_assert_eq!(figures.total.iter().map(|part| part.time_ns).sum::<u64>(), gaps_ns);
        }
    }
}
