//! The part of a report about explicit cleanup: `gc.collect()` and PyTorch's `empty_cache()`.

use super::{Basis, Location};
use crate::time::add_to;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// What the explicit cleanup of a process costs and gives back.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CleanupReport {
    /// Lines that clean up, the most time first, at most 10.
    pub sites: Vec<CleanupSite>,
    /// Number of such lines, listed or not.
    pub lines: u64,
    /// Calls beyond the first 10,000, which no figure includes.
    pub calls_left_out: u64,
    /// How often PyTorch's allocator freed its cache itself, as the driver had no more memory; inferred.
    pub emptied_by_allocator: u64,
    /// Allocations that failed for want of device memory, at most 16.
    pub out_of_memory: Vec<OutOfMemory>,
}

/// What was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CleanupCall {
    /// `gc.collect()` or `PyGC_Collect`.
    Collect,
    /// `torch.cuda.empty_cache()`, or another call by which PyTorch's allocator gives memory back.
    EmptyCache,
}

/// What to do about a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CleanupVerdict {
    /// It frees less than 1 MiB, or than 1 % of what the process has: remove it.
    Useless,
    /// Half of what it returns is taken again within 10 s, after half of the calls or more: remove it.
    Undone,
    /// It frees memory that cycles hold: break them, or keep the call.
    FreesCycles,
    /// What it returns stays free, for other processes: keep it if they need it.
    Lasts,
    /// What it frees is unknown.
    Unknown,
    /// Fewer than three calls show nothing.
    TooFew,
}

/// A line that cleans up.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CleanupSite {
    /// What it calls.
    pub call: CleanupCall,
    /// Measured for `collect` where the reason of collections is known, otherwise inferred: no threshold
    /// starts these full collections. Inferred for `empty_cache`, from CUDA calls that free memory in a row
    /// across which what PyTorch's allocator has reserved falls.
    pub basis: Basis,
    /// The program's line; of `empty_cache` that of the `gc.collect()` at most 50 ms before it. `null`
    /// if unknown.
    pub location: Option<Location>,
    /// Number of calls.
    pub calls: u64,
    /// Time of all calls, in ns.
    pub time_ns: u64,
    /// Objects that they freed; `null` if unknown.
    pub freed_objects: Option<u64>,
    /// Memory of the process that they gave back, in bytes, in-process only; `null` if unknown.
    pub freed_bytes: Option<u64>,
    /// Device memory that they gave back, in bytes: `collect` to PyTorch's allocator, `empty_cache` from it
    /// to the driver. `null` if unknown.
    pub device_bytes: Option<u64>,
    /// Of it, what was reserved again until the next call, in bytes; `null` for `collect`.
    pub taken_again_bytes: Option<u64>,
    /// Median time until half of it was reserved again, in ns; `null` if that happened after fewer than half
    /// of the calls.
    pub taken_again_after_ns: Option<u64>,
    /// What to do about it.
    pub verdict: CleanupVerdict,
    #[serde(skip)]
    again: Vec<u64>,
}

/// An allocation of device memory that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OutOfMemory {
    /// When, in ns after the start of the recording.
    pub at_ns: u64,
    /// What was asked of the driver, in bytes; `null` if unknown.
    pub wanted_bytes: Option<u64>,
    /// What the program had of PyTorch's allocator, in bytes, fragments not counted; `null` if unknown.
    pub allocated_bytes: Option<u64>,
    /// What the allocator had reserved beyond that: cache and fragments; `null` if unknown.
    pub cached_bytes: Option<u64>,
    /// Device memory that the next collection to free any freed: held by cycles; `null` if none did.
    pub freed_by_next_collection_bytes: Option<u64>,
}

/// What a process has, by which what it frees is judged; `None`: unknown.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CleanupScale {
    pub(crate) resident_bytes: Option<u64>,
    pub(crate) reserved_bytes: Option<u64>,
    /// It uses a GPU.
    pub(crate) has_device: bool,
}

/// Less than this is not worth a call, in bytes.
const LEAST_BYTES: u64 = 1 << 20;
/// Fewer calls show nothing: one before `gc.freeze()` is right.
const FEWEST: u64 = 3;
/// What is taken again within this time was not free for anything else, in ns.
const SOON_NS: u64 = 10_000_000_000;
/// Less than one in so many is not worth a call.
const LEAST_PART: u64 = 100;

impl CleanupSite {
    pub(crate) fn of(
        sites: &mut BTreeMap<(CleanupCall, Option<Location>), Self>,
        call: CleanupCall,
        location: Option<Location>,
    ) -> &mut Self {
        sites.entry((call, location.clone())).or_insert_with(|| Self {
            call,
            basis: match call {
                CleanupCall::Collect => Basis::Measured,
                CleanupCall::EmptyCache => Basis::Inferred,
            },
            location,
            calls: 0,
            time_ns: 0,
            freed_objects: None,
            freed_bytes: None,
            device_bytes: None,
            taken_again_bytes: None,
            taken_again_after_ns: None,
            verdict: CleanupVerdict::Unknown,
            again: Vec::new(),
        })
    }

    /// Adds a collection: its length; on what it rests that it was asked for; objects, memory and device
    /// memory that it freed.
    pub(crate) fn add_collect(
        &mut self,
        time_ns: u64,
        basis: Basis,
        (objects, bytes, device): (Option<u64>, Option<u64>, Option<u64>),
    ) {
        self.calls += 1;
        if basis != Basis::Measured {
            self.basis = basis;
        }
        add_to(&mut self.time_ns, time_ns);
        add_known(&mut self.freed_objects, objects);
        add_known(&mut self.freed_bytes, bytes);
        add_known(&mut self.device_bytes, device);
    }

    /// Adds an `empty_cache()`: its length; what it returned, what of it was taken again, and after which
    /// time half of it was.
    pub(crate) fn add_emptied(
        &mut self,
        time_ns: u64,
        (returned, taken, again_ns): (u64, u64, Option<u64>),
    ) {
        self.calls += 1;
        add_to(&mut self.time_ns, time_ns);
        add_known(&mut self.device_bytes, Some(returned));
        add_known(&mut self.taken_again_bytes, Some(taken));
        self.again.extend(again_ns);
    }

    /// Judges it by what the process has.
    pub(crate) fn judge(&mut self, scale: &CleanupScale) {
        self.again.sort_unstable();
        let enough = self.again.len() as u64 * 2 >= self.calls;
        self.taken_again_after_ns =
            self.again.get(self.again.len() / 2).copied().filter(|_| enough);
        self.verdict = match self.call {
            _ if self.calls < FEWEST => CleanupVerdict::TooFew,
            CleanupCall::Collect => self.of_collect(scale),
            CleanupCall::EmptyCache => self.of_empty_cache(),
        };
    }

    fn of_collect(&self, scale: &CleanupScale) -> CleanupVerdict {
        let is_worth = |freed: Option<u64>, whole: Option<u64>| {
            let whole = whole.unwrap_or(0);
            freed.is_some_and(|freed| self.each(freed) >= LEAST_BYTES.max(whole / LEAST_PART))
        };
        if is_worth(self.freed_bytes, scale.resident_bytes)
            || is_worth(self.device_bytes, scale.reserved_bytes)
        {
            return CleanupVerdict::FreesCycles;
        }
        // Few objects may own any memory: only what was measured, or none, is nothing.
        let is_measured =
            self.freed_bytes.is_some() && (self.device_bytes.is_some() || !scale.has_device);
        if is_measured || self.freed_objects == Some(0) {
            return CleanupVerdict::Useless;
        }
        CleanupVerdict::Unknown
    }

    fn of_empty_cache(&self) -> CleanupVerdict {
        let returned = self.device_bytes.unwrap_or(0);
        if self.each(returned) < LEAST_BYTES {
            CleanupVerdict::Useless
        } else if self.taken_again_after_ns.is_some_and(|after_ns| after_ns <= SOON_NS) {
            CleanupVerdict::Undone
        } else {
            CleanupVerdict::Lasts
        }
    }

    /// A sum by call.
    #[must_use]
    pub fn each(&self, sum: u64) -> u64 {
        sum.checked_div(self.calls).unwrap_or(0)
    }
}

/// Sums what is known.
fn add_known(sum: &mut Option<u64>, more: Option<u64>) {
    if let Some(more) = more {
        add_to(sum.get_or_insert(0), more);
    }
}
