//! The part of a report about explicit cleanup: `gc.collect()` and PyTorch's `empty_cache()`.

use super::{Basis, Location};
use crate::time::{add_known, add_to, sum};
use gctrace_stats::ratio;
use serde::Serialize;
use std::collections::BTreeMap;

/// What the explicit cleanup of a process costs and gives back.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CleanupReport {
    /// All of it together; `null` without a call.
    pub total: Option<CleanupTotal>,
    /// Lines that clean up, the most time first, at most 10.
    pub sites: Vec<CleanupSite>,
    /// Number of such lines, listed or not.
    pub lines: u64,
    /// Calls beyond the first 10,000; no figure includes them.
    pub calls_left_out: u64,
    /// How often PyTorch's allocator freed its cache itself, as the driver had no more memory; inferred.
    pub emptied_by_allocator: u64,
    /// Allocations that failed for want of device memory, at most 16.
    pub out_of_memory: Vec<OutOfMemory>,
}

/// A call that cleans up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CleanupCall {
    /// `gc.collect()` or `PyGC_Collect`.
    Collect,
    /// `torch.cuda.empty_cache()`, or another call that returns memory of PyTorch's allocator.
    EmptyCache,
}

/// What to do about a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CleanupVerdict {
    /// It frees less than 1 MiB, or than 1 % of the process's memory: remove it.
    Useless,
    /// Half of the returned memory is taken again within 10 s, after half of the calls or more: remove it.
    Undone,
    /// It frees memory that cycles hold: break them, or keep the call.
    FreesCycles,
    /// The returned memory stays free, for other processes: keep it if they need it.
    Lasts,
    /// The freed memory is unknown.
    Unknown,
    /// Fewer than three calls show nothing.
    TooFew,
}

/// Kind of process, as far as it decides the worth of cleanup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// A Jupyter kernel.
    Notebook,
    /// Large data, such as models, is made and dropped again and again: one call of a line frees a tenth of the
    /// process's memory.
    Replacing,
    /// It makes training steps.
    Training,
    /// It ended within a minute.
    Script,
    /// Anything else: it serves.
    #[default]
    Service,
}

/// When the explicit cleanup of a process pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CleanupWorth {
    /// Never: no line gives back memory that stays free.
    Never,
    /// If memory is short before the next full collection: cycles hold some.
    IfMemoryIsShort,
    /// If another process needs the device's memory.
    ForOthers,
    /// The freed memory is unknown.
    Unknown,
    /// No line was called three times.
    TooFew,
}

/// The explicit cleanup of a process, all lines together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CleanupTotal {
    /// Number of calls.
    pub calls: u64,
    /// Time of all calls, in ns.
    pub time_ns: u64,
    /// `time_ns` / observed time of the process; `null` if nothing was observed.
    pub time_ratio: Option<f64>,
    /// Time of lines that are useless or undone, in ns.
    pub useless_ns: u64,
    /// Memory of the process that cycles hold, in bytes: what one call gives back, of the line that gives
    /// back the most; `null` if none does.
    pub held_bytes: Option<u64>,
    /// The same of device memory.
    pub held_device_bytes: Option<u64>,
    /// Device memory that stays free, in bytes: by one call of the line that returns the most; `null` if none
    /// does.
    pub lasting_bytes: Option<u64>,
    /// How often `held_bytes` fits beside the last memory of the process; `null` if a part of that is unknown.
    pub room_times: Option<u64>,
    /// Kind of the process.
    pub workload: Workload,
    /// When it pays.
    pub worth: CleanupWorth,
}

/// A line that cleans up.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CleanupSite {
    /// The call.
    pub call: CleanupCall,
    /// Measured for `collect` where the reason of collections is known, otherwise inferred: no threshold starts these
    /// full collections. Measured for `empty_cache` in-process, otherwise inferred from CUDA calls that free memory
    /// in a row while the memory reserved by PyTorch's allocator falls.
    pub basis: Basis,
    /// The program's line. For an inferred `empty_cache`, the line of the `gc.collect()` at most 50 ms before it.
    /// `null` if unknown.
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
    /// The part of it reserved again until the next call, in bytes; `null` for `collect`.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutOfMemory {
    /// When, in ns after the start of the recording.
    pub at_ns: u64,
    /// Memory asked of the driver, in bytes; `null` if unknown.
    pub wanted_bytes: Option<u64>,
    /// Memory that the program had from PyTorch's allocator, in bytes, fragments not counted; `null` if unknown.
    pub allocated_bytes: Option<u64>,
    /// Memory that the allocator had reserved beyond that: cache and fragments; `null` if unknown.
    pub cached_bytes: Option<u64>,
    /// Device memory that the next collection to free any freed: held by cycles; `null` if none did.
    pub freed_by_next_collection_bytes: Option<u64>,
}

/// Sizes of a process that the memory it frees is judged by; `None`: unknown.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CleanupScale {
    pub(crate) resident_bytes: Option<u64>,
    pub(crate) reserved_bytes: Option<u64>,
    /// It uses a GPU.
    pub(crate) has_device: bool,
    /// Its limit of memory.
    pub(crate) limit_bytes: Option<u64>,
    pub(crate) observed_ns: u64,
    pub(crate) workload: Workload,
}

/// Less than this is not worth a call, in bytes.
const LEAST_BYTES: u64 = 1 << 20;
/// Fewer calls show nothing: one before `gc.freeze()` is right.
const FEWEST: u64 = 3;
/// Memory taken again within this time was not free for anything else, in ns.
const SOON_NS: u64 = 10_000_000_000;
/// Less than one part in this many is not worth a call.
const LEAST_PART: u64 = 100;
/// Data is large if one call frees one part in this many.
const LARGE_PART: u64 = 10;

impl CleanupTotal {
    /// The sum of all lines, already judged. `None` without any.
    pub(crate) fn of(sites: &[CleanupSite], scale: &CleanupScale) -> Option<Self> {
        let of = |verdict| sites.iter().filter(move |site| site.verdict == verdict);
        let most = |verdict, sum: fn(&CleanupSite) -> Option<u64>| {
            let each = of(verdict).filter_map(|site| Some(site.each(sum(site)?)));
            each.max().filter(|most| *most > 0)
        };
        let time =
            |sites: &mut dyn Iterator<Item = &CleanupSite>| sum(sites.map(|site| site.time_ns));
        let time_ns = time(&mut sites.iter());
        let held_bytes = most(CleanupVerdict::FreesCycles, |site| site.freed_bytes);
        let held_device_bytes = most(CleanupVerdict::FreesCycles, |site| site.device_bytes);
        let is_large = |held: Option<u64>, whole: Option<u64>| match (held, whole) {
            (Some(held), Some(whole)) => held >= whole / LARGE_PART,
            _ => false,
        };
        let is_replacing = is_large(held_bytes, scale.resident_bytes)
            || is_large(held_device_bytes, scale.reserved_bytes);
        let room_times = || {
            let room = scale.limit_bytes?.saturating_sub(scale.resident_bytes?);
            room.checked_div(held_bytes?)
        };
        if sites.is_empty() {
            return None;
        }
        Some(Self {
            calls: sites.iter().map(|site| site.calls).sum(),
            time_ns,
            time_ratio: ratio(time_ns, scale.observed_ns),
            useless_ns: time(&mut sites.iter().filter(|site| site.is_removable())),
            held_bytes,
            held_device_bytes,
            lasting_bytes: most(CleanupVerdict::Lasts, |site| site.device_bytes),
            room_times: room_times(),
            workload: match scale.workload {
                Workload::Notebook => Workload::Notebook,
                _ if is_replacing => Workload::Replacing,
                other => other,
            },
            worth: if of(CleanupVerdict::FreesCycles).next().is_some() {
                CleanupWorth::IfMemoryIsShort
            } else if of(CleanupVerdict::Lasts).next().is_some() {
                CleanupWorth::ForOthers
            } else if of(CleanupVerdict::Unknown).next().is_some() {
                CleanupWorth::Unknown
            } else if sites.iter().any(CleanupSite::is_removable) {
                CleanupWorth::Never
            } else {
                CleanupWorth::TooFew
            },
        })
    }
}

impl CleanupSite {
    pub(crate) fn of(
        sites: &mut BTreeMap<(CleanupCall, Option<Location>), Self>,
        call: CleanupCall,
        location: Option<Location>,
    ) -> &mut Self {
        sites.entry((call, location.clone())).or_insert_with(|| Self {
            call,
            basis: Basis::Measured,
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

    /// Adds a collection: its length; the basis for calling it explicit; objects, memory and device memory that it
    /// freed.
    pub(crate) fn add_collect(
        &mut self,
        time_ns: u64,
        basis: Basis,
        (objects, bytes, device): (Option<u64>, Option<u64>, Option<u64>),
    ) {
        self.add_call(time_ns, basis);
        add_known(&mut self.freed_objects, objects);
        add_known(&mut self.freed_bytes, bytes);
        add_known(&mut self.device_bytes, device);
    }

    /// Adds an `empty_cache()`: its length; its basis; the memory it returned, the part of it taken again, and the
    /// time until half of it was; `None` if unknown.
    pub(crate) fn add_emptied(
        &mut self,
        time_ns: u64,
        basis: Basis,
        gave: Option<(u64, u64, Option<u64>)>,
    ) {
        self.add_call(time_ns, basis);
        add_known(&mut self.device_bytes, gave.map(|gave| gave.0));
        add_known(&mut self.taken_again_bytes, gave.map(|gave| gave.1));
        self.again.extend(gave.and_then(|gave| gave.2));
    }

    fn add_call(&mut self, time_ns: u64, basis: Basis) {
        self.calls += 1;
        if basis != Basis::Measured {
            self.basis = basis;
        }
        add_to(&mut self.time_ns, time_ns);
    }

    /// Judges it by the sizes of the process.
    pub(crate) fn judge(&mut self, scale: &CleanupScale) {
        self.again.sort_unstable();
        let enough = self.again.len() as u64 * 2 >= self.calls;
        self.taken_again_after_ns =
            if enough { self.again.get(self.again.len() / 2).copied() } else { None };
        self.verdict = match self.call {
            _ if self.calls < FEWEST => CleanupVerdict::TooFew,
            CleanupCall::Collect => self.of_collect(scale),
            CleanupCall::EmptyCache => self.of_empty_cache(),
        };
    }

    fn of_collect(&self, scale: &CleanupScale) -> CleanupVerdict {
        let is_worth = |freed: Option<u64>, whole: Option<u64>| {
            let least = whole.map_or(LEAST_BYTES, |whole| LEAST_BYTES.max(whole / LEAST_PART));
            matches!(freed, Some(freed) if self.each(freed) >= least)
        };
        if is_worth(self.freed_bytes, scale.resident_bytes)
            || is_worth(self.device_bytes, scale.reserved_bytes)
        {
            return CleanupVerdict::FreesCycles;
        }
        // Few objects may own any memory: they count as nothing only if memory was measured, or if there are none.
        let is_measured =
            self.freed_bytes.is_some() && (self.device_bytes.is_some() || !scale.has_device);
        if is_measured || self.freed_objects == Some(0) {
            return CleanupVerdict::Useless;
        }
        CleanupVerdict::Unknown
    }

    fn of_empty_cache(&self) -> CleanupVerdict {
        let Some(returned) = self.device_bytes else { return CleanupVerdict::Unknown };
        if self.each(returned) < LEAST_BYTES {
            CleanupVerdict::Useless
        } else if matches!(self.taken_again_after_ns, Some(after_ns) if after_ns <= SOON_NS) {
            CleanupVerdict::Undone
        } else {
            CleanupVerdict::Lasts
        }
    }

    /// Whether the line is better removed.
    pub fn is_removable(&self) -> bool {
        matches!(self.verdict, CleanupVerdict::Useless | CleanupVerdict::Undone)
    }

    /// A sum by call.
    pub fn each(&self, sum: u64) -> u64 {
        sum.checked_div(self.calls).unwrap_or(0)
    }
}
