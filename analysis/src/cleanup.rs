//! What the explicit cleanup of a process gave back, by its lines: `gc.collect()`, and PyTorch's cached device memory
//! (`torch.cuda.empty_cache()`).
//!
//! The injected library records calls of `empty_cache()`. Where it is not loaded they are inferred: CUDA calls of one
//! thread that free memory, in a row, while the memory reserved by PyTorch's allocator falls. The line is taken from
//! the `gc.collect()` before it on the same thread, if there is one; programs call the two together.

pub(crate) mod figures;
pub mod words;

use crate::bounded::ranked;
use crate::cleanup::figures::{
    CleanupCall, CleanupReport, CleanupScale, CleanupSite, CleanupTotal, OutOfMemory,
};
use crate::cuda::CUDA_DEVICE;
use crate::figure::{Basis, Location};
use crate::stacks::{MovedNodes, NodeId, StackTree};
use crate::time::{add_to, duration_ns, sum};
use gctrace_event::{CudaCall, DeviceMemory, EmptyCache, GpuApi, Pause, PauseMemory, Record};
use std::collections::{BTreeMap, VecDeque};

/// Calls of each kind that are kept one by one; with more calls, figures of each line are too low.
const KEPT: usize = 10_000;
/// Samples of the allocator that are kept: one a millisecond, for longer than records are late.
const SAMPLES: usize = 1_024;
/// Freeing calls at most so far apart are of one `empty_cache()`, in ns.
const APART_NS: u64 = 1_000_000;
/// A sample that is so much later shows that all records of that time are there, in ns.
const SETTLED_NS: u64 = 200_000_000;
/// An `empty_cache()` that starts so soon after a `gc.collect()` belongs to it, in ns.
const TOGETHER_NS: u64 = 50_000_000;
/// A recorded call that gives back less is not followed, in bytes; as in the injected library.
const LEAST_BYTES: u64 = 1 << 20;
/// `CUDA_ERROR_OUT_OF_MEMORY`, `cudaErrorMemoryAllocation` (cuda.h, driver_types.h).
const OUT_OF_MEMORY: i32 = 2;
/// Failed allocations that are listed.
const FAILED_KEPT: usize = 16;
/// Lines in a report.
const LISTED: usize = 10;

/// Cleanup of one process.
#[derive(Clone, Debug, Default)]
pub(crate) struct CleanupSums {
    collects: Vec<Collect>,
    /// Calls beyond the kept ones.
    left_out: u64,
    /// Device memory that pauses freed, in bytes, by thread and start.
    device_bytes: BTreeMap<(u32, u64), u64>,
    devices: BTreeMap<i8, CachedMemory>,
    /// Each block of device memory is seen: what pauses free is known.
    reports_blocks: bool,
    /// The latest freeing calls of each thread.
    open: BTreeMap<u32, Emptied>,
    emptied: Vec<Emptied>,
    recorded: Vec<RecordedCall>,
    /// The latest of these that gave memory back, and the memory of each device since, in bytes.
    followed: Option<usize>,
    since: BTreeMap<i8, u64>,
    failed: Vec<OutOfMemory>,
}

/// A recorded `empty_cache()`.
#[derive(Clone, Copy, Debug)]
struct RecordedCall {
    node: Option<NodeId>,
    /// Reserved before and after are known.
    is_measured: bool,
    emptied: Emptied,
}

#[derive(Clone, Copy, Debug)]
struct Collect {
    tid: u32,
    start_ns: u64,
    end_ns: u64,
    basis: Basis,
    node: Option<NodeId>,
    freed_objects: Option<u64>,
    freed_bytes: Option<u64>,
}

/// An `empty_cache()`, or freeing calls that may be one.
#[derive(Clone, Copy, Debug, Default)]
struct Emptied {
    tid: u32,
    start_ns: u64,
    end_ns: u64,
    /// The allocator's own: it frees its cache when the driver has no more memory.
    by_allocator: bool,
    /// Reserved before and after, in bytes; 0 and 0 until it is known.
    before: u64,
    after: u64,
    device: i8,
    /// The most reserved until the next one, in bytes.
    most_after: u64,
    /// When half of it was reserved again.
    again_ns: Option<u64>,
}

/// Memory of one device in PyTorch's allocator.
#[derive(Clone, Debug, Default)]
struct CachedMemory {
    /// Time, reserved and allocated bytes.
    samples: VecDeque<(u64, u64, u64)>,
    /// The latest `empty_cache()` in `emptied`.
    latest: Option<usize>,
    /// The most reserved, in bytes.
    peak: u64,
}

fn is_freeing(name: &str) -> bool {
    matches!(name, "Free" | "MemFree_v2" | "MemUnmap" | "MemRelease")
}

fn is_allocating(name: &str) -> bool {
    matches!(name, "Malloc" | "MemAlloc_v2" | "MemCreate")
}

impl CleanupSums {
    /// Adds a record of it, and ignores any other; `node`: its stack.
    pub(crate) fn record(&mut self, record: &Record, node: Option<NodeId>) {
        match record {
            Record::CudaCall(call) => self.add_call(call),
            Record::PauseMemory(memory) => self.add_pause_memory(memory),
            Record::DeviceMemory(memory) => self.add_memory(memory),
            Record::EmptyCache(call) => self.add_empty_cache(call, node),
            _ => {}
        }
    }

    /// Adds a collection that the program asked for, as `basis` shows; `node`: its stack.
    pub(crate) fn add_collect(&mut self, pause: &Pause, basis: Basis, node: Option<NodeId>) {
        if pause.unfinished {
            return;
        }
        if self.collects.len() >= KEPT {
            self.left_out += 1;
            return;
        }
        self.collects.push(Collect {
            tid: pause.tid,
            start_ns: pause.start_ns,
            end_ns: pause.end_ns,
            basis,
            node,
            freed_objects: pause.collected,
            freed_bytes: pause.freed_bytes,
        });
    }

    /// Adds device memory that a pause freed.
    fn add_pause_memory(&mut self, memory: &PauseMemory) {
        if memory.device_type == CUDA_DEVICE && self.device_bytes.len() < KEPT {
            let key = (memory.tid, memory.start_ns);
            add_to(self.device_bytes.entry(key).or_default(), memory.freed_bytes);
        }
    }

    /// Adds a recorded `empty_cache()`; `node`: its stack.
    fn add_empty_cache(&mut self, call: &EmptyCache, node: Option<NodeId>) {
        if self.recorded.len() >= KEPT {
            self.left_out += 1;
            return;
        }
        let known = call.reserved_before.zip(call.reserved_after);
        let (before, after) = known.unwrap_or_default();
        if before.saturating_sub(after) >= LEAST_BYTES {
            self.followed = Some(self.recorded.len());
            self.since.clear();
        }
        self.recorded.push(RecordedCall {
            node,
            is_measured: known.is_some(),
            emptied: Emptied {
                tid: call.tid,
                start_ns: call.start_ns,
                end_ns: call.end_ns,
                before: before.max(after),
                after,
                ..Emptied::default()
            },
        });
    }

    /// Whether a recorded call has these freeing calls.
    fn is_recorded(&self, emptied: &Emptied) -> bool {
        let of = |call: &RecordedCall| {
            let call = call.emptied;
            call.tid == emptied.tid
                && call.start_ns <= emptied.end_ns
                && emptied.start_ns <= call.end_ns
        };
        self.recorded.iter().any(of)
    }

    /// Whether a call may be of cleanup.
    pub(crate) fn is_of_interest(call: &CudaCall) -> bool {
        let Some((GpuApi::Cuda, name)) = GpuApi::of(&call.function) else { return false };
        is_freeing(name) || is_allocating(name)
    }

    /// Adds a call of CUDA.
    fn add_call(&mut self, call: &CudaCall) {
        let Some((GpuApi::Cuda, name)) = GpuApi::of(&call.function) else { return };
        if is_allocating(name) && call.error == Some(OUT_OF_MEMORY) {
            return self.add_failed(call);
        }
        if !is_freeing(name) {
            return;
        }
        let failed = self.failed.last();
        let by_allocator =
            matches!(failed, Some(failed) if call.start_ns.abs_diff(failed.at_ns) < TOGETHER_NS);
        if let Some(open) = self.open.get_mut(&call.tid)
            && call.start_ns.saturating_sub(open.end_ns) <= APART_NS
        {
            open.end_ns = open.end_ns.max(call.end_ns);
            open.by_allocator |= by_allocator;
            return;
        }
        let new = Emptied {
            tid: call.tid,
            start_ns: call.start_ns,
            end_ns: call.end_ns,
            by_allocator,
            ..Emptied::default()
        };
        if let Some(before) = self.open.insert(call.tid, new) {
            self.settle(before);
        }
    }

    /// Adds the memory in PyTorch's allocator.
    fn add_memory(&mut self, memory: &DeviceMemory) {
        if memory.device_type != CUDA_DEVICE {
            return;
        }
        self.reports_blocks |= memory.bytes != 0;
        let cached = self.devices.entry(memory.device).or_default();
        cached.peak = cached.peak.max(memory.reserved);
        cached.samples.push_back((memory.at_ns, memory.reserved, memory.allocated));
        if cached.samples.len() > SAMPLES {
            cached.samples.pop_front();
        }
        if let Some(latest) = cached.latest
            && let Some(emptied) = self.emptied.get_mut(latest)
            && memory.at_ns > emptied.end_ns
        {
            emptied.see(memory.at_ns, memory.reserved);
        }
        if let Some(call) = self.followed
            && let Some(call) = self.recorded.get_mut(call)
            && memory.at_ns > call.emptied.end_ns
        {
            self.since.insert(memory.device, memory.reserved);
            let all = sum(self.since.values().copied());
            call.emptied.see(memory.at_ns, all);
        }
        let settled: Vec<u32> = self
            .open
            .iter()
            .filter(|(_, open)| open.end_ns.saturating_add(SETTLED_NS) < memory.at_ns)
            .map(|(tid, _)| *tid)
            .collect();
        for tid in settled {
            if let Some(open) = self.open.remove(&tid) {
                self.settle(open);
            }
        }
    }

    /// Keeps freeing calls if the reserved memory fell across them.
    fn settle(&mut self, mut open: Emptied) {
        let index = self.emptied.len();
        if index >= KEPT {
            self.left_out += 1;
            return;
        }
        for (device, cached) in &mut self.devices {
            let samples = &cached.samples;
            let first_after = samples.partition_point(|sample| sample.0 <= open.end_ns);
            let before = samples.iter().take(first_after).rfind(|sample| sample.0 <= open.start_ns);
            let (Some(before), Some(after)) = (before, samples.get(first_after)) else { continue };
            // The first block that is given out again may be new already.
            if after.1 < before.1 {
                (open.device, open.before, open.after) = (*device, before.1, after.1);
                for (at_ns, reserved, _) in samples.iter().skip(first_after) {
                    open.see(*at_ns, *reserved);
                }
                cached.latest = Some(index);
                self.emptied.push(open);
                return;
            }
        }
    }

    fn add_failed(&mut self, call: &CudaCall) {
        if self.failed.len() >= FAILED_KEPT {
            return;
        }
        let latest = |cached: &CachedMemory| cached.samples.back().copied();
        let latest = self.devices.values().filter_map(latest).max_by_key(|sample| sample.1);
        self.failed.push(OutOfMemory {
            at_ns: call.start_ns,
            wanted_bytes: call.bytes,
            allocated_bytes: latest.map(|sample| sample.2),
            cached_bytes: latest.map(|sample| sample.1.saturating_sub(sample.2)),
            freed_by_next_collection_bytes: None,
        });
    }

    /// Names the lines as in a tree that their own was added to.
    pub(crate) fn renumber(&mut self, places: &MovedNodes) {
        let collects = self.collects.iter_mut().map(|collect| &mut collect.node);
        let calls = self.recorded.iter_mut().map(|call| &mut call.node);
        for place in collects.chain(calls) {
            *place = places.moved(*place);
        }
    }

    /// `None` if nothing was cleaned up. `started_ns`: of the trace; `scale`: what else is known of the
    /// process.
    pub(crate) fn report(
        &self,
        started_ns: u64,
        tree: &StackTree,
        scale: CleanupScale,
    ) -> Option<CleanupReport> {
        let mut all = self.clone();
        for open in std::mem::take(&mut all.open).into_values() {
            all.settle(open);
        }
        all.collects.sort_by_key(|collect| collect.start_ns);
        let mut sites: BTreeMap<(CleanupCall, Option<Location>), CleanupSite> = BTreeMap::new();
        let unreported = if all.reports_blocks { Some(0) } else { None };
        for collect in &all.collects {
            let location = collect.node.map(|node| tree.own_line(node).clone());
            let device = all.device_bytes.get(&(collect.tid, collect.start_ns)).copied();
            let device = device.or(unreported);
            CleanupSite::of(&mut sites, CleanupCall::Collect, location).add_collect(
                duration_ns(collect.start_ns, collect.end_ns),
                collect.basis,
                (collect.freed_objects, collect.freed_bytes, device),
            );
        }
        for call in &all.recorded {
            let location = call.node.map(|node| tree.own_line(node).clone());
            let gave = if call.is_measured { Some(call.emptied.gave()) } else { None };
            CleanupSite::of(&mut sites, CleanupCall::EmptyCache, location).add_emptied(
                duration_ns(call.emptied.start_ns, call.emptied.end_ns),
                Basis::Measured,
                gave,
            );
        }
        for emptied in &all.emptied {
            if emptied.by_allocator || all.is_recorded(emptied) {
                continue;
            }
            let before = all.collects.partition_point(|collect| collect.end_ns <= emptied.start_ns);
            let collect = all.collects.iter().take(before).rfind(|collect| {
                collect.tid == emptied.tid && emptied.start_ns - collect.end_ns < TOGETHER_NS
            });
            let node = collect.and_then(|collect| collect.node);
            let location = node.map(|node| tree.own_line(node).clone());
            CleanupSite::of(&mut sites, CleanupCall::EmptyCache, location).add_emptied(
                duration_ns(emptied.start_ns, emptied.end_ns),
                Basis::Inferred,
                Some(emptied.gave()),
            );
        }
        for failed in &mut all.failed {
            let after = all.device_bytes.iter().filter_map(|((_, at_ns), bytes)| {
                let is_after = *at_ns >= failed.at_ns && *bytes > 0;
                if is_after { Some((*at_ns, *bytes)) } else { None }
            });
            let next = after.min_by_key(|(at_ns, _)| *at_ns);
            failed.freed_by_next_collection_bytes = next.map(|(_, bytes)| bytes);
            failed.at_ns = failed.at_ns.saturating_sub(started_ns);
        }
        let mut sites: Vec<CleanupSite> = sites.into_values().collect();
        let peaks = all.devices.values().map(|cached| cached.peak);
        let scale = CleanupScale {
            reserved_bytes: peaks.reduce(u64::saturating_add),
            has_device: scale.has_device || !all.devices.is_empty(),
            ..scale
        };
        for site in &mut sites {
            site.judge(&scale);
        }
        let total = CleanupTotal::of(&sites, &scale);
        let lines = sites.len() as u64;
        if lines == 0 && all.failed.is_empty() {
            return None;
        }
        Some(CleanupReport {
            total,
            sites: ranked(sites, LISTED, |site| site.time_ns),
            lines,
            calls_left_out: all.left_out,
            emptied_by_allocator: all.emptied.iter().filter(|emptied| emptied.by_allocator).count()
                as u64,
            out_of_memory: all.failed,
        })
    }
}

impl Emptied {
    /// The memory it returned, the part of it taken again until the next one, and the time until half of it was.
    fn gave(&self) -> (u64, u64, Option<u64>) {
        let returned = self.before - self.after;
        let taken = self.most_after.saturating_sub(self.after).min(returned);
        let again = self.again_ns.map(|at_ns| at_ns.saturating_sub(self.end_ns));
        (returned, taken, again)
    }

    /// Adds the memory reserved at a time after it.
    fn see(&mut self, at_ns: u64, reserved: u64) {
        self.most_after = self.most_after.max(reserved);
        let half = (self.before - self.after) / 2;
        if reserved.saturating_sub(self.after) >= half.max(1) {
            self.again_ns.get_or_insert(at_ns);
        }
    }
}

#[cfg(test)]
mod tests;
