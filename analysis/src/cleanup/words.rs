//! The worth of explicit cleanup, in words.

use super::figures::{
    CleanupCall, CleanupReport, CleanupSite, CleanupTotal, CleanupVerdict, CleanupWorth,
    OutOfMemory, Workload,
};
use crate::figure::Basis;
use crate::paths::{common_directory, place};
use crate::units::{bytes, count, counted, duration, percent};

/// Lines of a process in its sentences at most, and failed allocations.
const SHOWN: usize = 5;

/// Sentences on the worth of a process's cleanup, and on what to do about each line.
pub fn sentences(cleanup: &CleanupReport) -> impl Iterator<Item = String> {
    let worth = cleanup.total.as_ref().and_then(cleanup_worth);
    let sites = cleanup.sites.iter().take(SHOWN).map(cleanup_verdict);
    let failed = cleanup.out_of_memory.iter().take(SHOWN).map(out_of_memory);
    worth.into_iter().chain(sites).chain(failed).chain(emptied_by_allocator(cleanup))
}

/// The call of a line: `gc.collect() at train.py:57 in step`.
pub fn cleanup_call(site: &CleanupSite) -> String {
    let at = site.location.as_ref().map(place);
    match (site.call, at) {
        (CleanupCall::Collect, Some(at)) => format!("gc.collect() at {at}"),
        (CleanupCall::Collect, None) => "gc.collect(), line unknown".to_owned(),
        (CleanupCall::EmptyCache, Some(at)) if site.basis == Basis::Measured => {
            format!("empty_cache() at {at}")
        }
        (CleanupCall::EmptyCache, Some(at)) => format!("empty_cache() after gc.collect() at {at}"),
        (CleanupCall::EmptyCache, None) => "empty_cache(), line unknown".to_owned(),
    }
}

/// What to do about a line, and the figures why.
pub fn cleanup_verdict(site: &CleanupSite) -> String {
    let costs = format!(
        "{}{}: {}, {} each",
        cleanup_call(site),
        if site.basis == Basis::Measured { "" } else { " (inferred)" },
        counted(site.calls, "call"),
        duration(site.each(site.time_ns))
    );
    let gives = gives(site);
    match site.verdict {
        CleanupVerdict::Useless => format!("{costs}. One gives back {gives}: remove it."),
        CleanupVerdict::Undone => format!(
            "{costs}. One gives back {gives}, and half of it is taken again within {}: remove it.",
            site.taken_again_after_ns.map_or_else(String::new, duration)
        ),
        CleanupVerdict::FreesCycles => format!(
            "{costs}. One gives back {gives}, which cycles held until then: break them, or keep \
             the call. Recorded with --garbage cycles, the report names them."
        ),
        CleanupVerdict::Lasts => format!(
            "{costs}. One gives back {gives}, which stays free: worth it if another process needs \
             that memory."
        ),
        CleanupVerdict::TooFew => format!("{costs}. One gives back {gives}."),
        CleanupVerdict::Unknown if site.call == CleanupCall::EmptyCache => {
            format!("{costs}. What it gives back is unknown.")
        }
        CleanupVerdict::Unknown => format!(
            "{costs}. One frees {gives}; the memory of these is unknown (in-process it is measured, \
             and device memory by kernel probes)."
        ),
    }
}

/// When all of it together pays, in one sentence; `None` if too few calls show nothing.
pub(crate) fn cleanup_worth(total: &CleanupTotal) -> Option<String> {
    let what = match total.workload {
        Workload::Notebook => "this notebook",
        Workload::Replacing => "this program (it makes large data and drops it again and again)",
        Workload::Training => "this training",
        Workload::Script => "this short script (its end frees all)",
        Workload::Service => "this service",
    };
    let of =
        total.time_ratio.map_or(String::new(), |ratio| format!(", {} of the time", percent(ratio)));
    let (calls, time) = (counted(total.calls, "call"), duration(total.time_ns));
    let held = [
        total.held_bytes.map(bytes),
        total.held_device_bytes.map(|device| format!("{} of device memory", bytes(device))),
    ];
    let held: Vec<String> = held.into_iter().flatten().collect();
    let others = match total.useless_ns {
        0 => String::new(),
        useless => format!(" The other lines take {} for nothing.", duration(useless)),
    };
    let pays = match total.worth {
        CleanupWorth::Never => {
            format!("none of it pays in {what}: nothing that it frees stays free.")
        }
        CleanupWorth::IfMemoryIsShort => {
            let room = match total.room_times {
                None => String::new(),
                Some(0) => "; there is no room for that".to_owned(),
                Some(1) => "; there is room for that once".to_owned(),
                Some(times) => format!("; there is room for that {} times", count(times)),
            };
            format!(
                "it pays only if memory is short: cycles hold up to {} in {what}, until a call or the next full \
                 collection{room}.{others}",
                held.join(" and ")
            )
        }
        CleanupWorth::ForOthers => format!(
            "it pays only if another process needs device memory: up to {} stays free in {what}.{others}",
            total.lasting_bytes.map_or_else(|| "some".to_owned(), bytes)
        ),
        CleanupWorth::Unknown => {
            format!(
                "whether it pays in {what} is unknown: the memory it frees is not measured.{others}"
            )
        }
        CleanupWorth::TooFew => return None,
    };
    Some(format!("In all {calls}, {time}{of}: {pays}"))
}

/// What one call gives back.
pub(crate) fn gives(site: &CleanupSite) -> String {
    let sums = [site.freed_objects, site.freed_bytes, site.device_bytes];
    if sums.iter().any(Option::is_some) && sums.iter().flatten().all(|sum| *sum == 0) {
        return "nothing".to_owned();
    }
    let each = |sum: Option<u64>| sum.map(|sum| site.each(sum));
    let device = each(site.device_bytes);
    let parts = [
        each(site.freed_objects).map(|objects| counted(objects, "object")),
        each(site.freed_bytes).map(bytes),
        device.map(|device| format!("{} of device memory", bytes(device))),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    match parts.split_last() {
        None => "an unknown number of objects".to_owned(),
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

/// The line to remove that saves the most, if a line is useless or undone and takes one percent of the time or more:
/// a smaller share is not noticeable, as in the verdict.
pub fn cleanup_in_short(cleanup: &CleanupReport, observed_ns: u64) -> Option<String> {
    const LEAST_PART: u64 = 100;
    let removable =
        |site: &&CleanupSite| site.is_removable() && site.time_ns >= observed_ns / LEAST_PART;
    let worst = cleanup.sites.iter().filter(removable).max_by_key(|site| site.time_ns)?;
    let folder = common_directory(cleanup.sites.iter().filter_map(|site| site.location.as_ref()));
    Some(cleanup_verdict(worst).replacen(folder, "", 1))
}

/// Memory held as device memory ran out.
fn out_of_memory(failed: &OutOfMemory) -> String {
    let wanted = if let Some(of) = failed.wanted_bytes { bytes(of) } else { "memory".to_owned() };
    let mut text =
        format!("Out of device memory after {}: {wanted} wanted", duration(failed.at_ns));
    if let (Some(allocated), Some(cached)) = (failed.allocated_bytes, failed.cached_bytes) {
        text += &format!(
            "; {} in use, {} cached by PyTorch or in fragments",
            bytes(allocated),
            bytes(cached)
        );
    }
    text += &match failed.freed_by_next_collection_bytes {
        Some(held) => format!(". Cycles held {}: the next collection freed it.", bytes(held)),
        None => ". No collection freed device memory after it.".to_owned(),
    };
    text
}

/// How often the allocator emptied its cache itself.
fn emptied_by_allocator(cleanup: &CleanupReport) -> Option<String> {
    match cleanup.emptied_by_allocator {
        0 => None,
        times => Some(format!(
            "PyTorch's allocator emptied its cache itself {} times, as the driver had no more memory \
             (inferred).",
            count(times)
        )),
    }
}
