//! Changes for the sake of memory: garbage that no collection frees in time, and objects kept for good.
//!
//! A rule states an upper bound, as rules for time do: how far the memory rose, or the most that one collection gave
//! back.

use super::Candidate;
use super::facts::Facts;
use crate::pauses::reason_index;
use crate::report::{AdviceEffect, AdviceId, MemoryRise};
use gctrace_event::GcReason;

/// Memory that garbage holds is worth a change from here on, in bytes.
const WORTH_BYTES: u64 = 32 << 20;
/// Less of it is none, in bytes.
const LEAST_BYTES: u64 = 8 << 20;
/// The same as a part of the process's memory.
const WORTH_PART: u64 = 8;
/// Memory kept by the C library is worth a change from this part of the process's memory on.
const KEPT_PART: u64 = 4;
/// Resident memory beyond start-up, in bytes. From this much on, the screen names the command that finds its holders.
const LARGE_BYTES: u64 = 128 << 20;
/// A rise of less time is no rise yet, in ns.
const SHORT_RISE_NS: u64 = 8_000_000_000;
/// This few automatic collections since the start free no garbage that came after them.
const FEW: u64 = 3;
/// A first threshold from here on is not CPython's own (700, 2,000 from 3.14 on).
const RAISED: i32 = 2_001;

/// Why garbage may wait for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uncollected {
    /// The collector is off.
    Off,
    /// Explicit collections of the young generation promote the objects in use at that time and reset its counter. So
    /// no older generation is collected.
    Promoted,
    /// The program raised the threshold.
    Raised,
    /// Few containers are allocated, and much memory.
    Rare,
}

impl Facts<'_> {
    /// Why the garbage of a process with rising memory may not be collected; `None` if its memory does not rise, or
    /// full collections saw the rest.
    pub(crate) fn uncollected(&self) -> Option<(Uncollected, MemoryRise)> {
        let rise = self.process.trend.as_ref()?.rise?;
        let settings = self.process.settings.as_ref();
        let is_off = settings
            .is_some_and(|settings| settings.enabled == Some(false) || settings.thresholds[0] == 0);
        let pauses = |generation: usize| self.process.by_generation[generation].count;
        let at_exit = self.process.by_reason[reason_index(GcReason::Shutdown)].count;
        let full = crate::time::beyond(pauses(2), at_exit);
        // Before the collector is switched off, a program may collect once.
        if is_off && full <= FEW {
            return Some((Uncollected::Off, rise));
        }
        if full > 0 {
            return None;
        }
        let explicit = self.causes.manual.count;
        let automatic = self.causes.automatic().count;
        if explicit > automatic.max(FEW) {
            return Some((Uncollected::Promoted, rise));
        }
        if matches!(settings, Some(settings) if settings.thresholds[0] >= RAISED) {
            return Some((Uncollected::Raised, rise));
        }
        if automatic <= FEW { Some((Uncollected::Rare, rise)) } else { None }
    }

    /// Whether it grows, and by so much in the recording that a search for the holders is worth it: 32 MiB, or a
    /// tenth of its memory and 8 MiB, or a quarter and 4 MiB.
    fn grows_notably(&self) -> bool {
        let Some(trend) = &self.process.trend else { return false };
        if !trend.rises() {
            return false;
        }
        let Some(resident) = trend.resident else { return true };
        let rise = resident.per_s * resident.duration_ns as f64 / 1e9;
        let whole = trend.resident_bytes.unwrap_or(u64::MAX);
        let tenth = (whole / 10).clamp(LEAST_BYTES, WORTH_BYTES);
        let quarter = (whole / 4).clamp(LEAST_BYTES / 2, WORTH_BYTES);
        rise >= tenth.min(quarter) as f64 || matches!(trend.device, Some(device) if device.rises)
    }

    /// How far the memory rose in a recording too short to call that growth; `None` if it may be garbage waiting in
    /// older generations, or loaded by start-up.
    pub(crate) fn rises_shortly(&self) -> Option<MemoryRise> {
        let rise = self.process.trend.as_ref()?.rise?;
        let phases = &self.report.phases;
        let start_up_ns = if let Some(phases) = phases { phases.start_up.duration_ns } else { 0 };
        let is_notable = rise.bytes() >= WORTH_BYTES
            && rise.duration_ns >= SHORT_RISE_NS
            && start_up_ns <= rise.duration_ns / 2
            && self.frees_nothing() != Some(false);
        if is_notable && !self.grows() && self.uncollected().is_none() { Some(rise) } else { None }
    }

    /// Whether most of the garbage is in cycles that are known, of a line of the program.
    pub(super) fn knows_own_cycles(&self) -> bool {
        let Some(garbage) = &self.process.garbage else { return false };
        let (Some(main), Some(cycle)) = (&garbage.verdict, garbage.main_cycle()) else {
            return false;
        };
        let Some(line) = &cycle.location else { return false };
        main.ratio >= 0.5 && !line.library
    }

    /// Freed memory that the C library keeps, if it is a large part of the process's memory, in bytes.
    pub(crate) fn kept_by_malloc(&self) -> Option<u64> {
        let memory = &self.process.memory;
        let kept = memory.kept_bytes?;
        if kept < WORTH_BYTES || kept < memory.resident_bytes? / KEPT_PART {
            return None;
        }
        Some(kept)
    }

    /// The resident memory, if it is much more than after start-up, in bytes.
    pub(crate) fn large_resident(&self) -> Option<u64> {
        let resident = self.process.memory.resident_bytes?;
        let phases = self.report.phases.as_ref();
        let start_up = phases.and_then(|phases| phases.start_up_bytes).unwrap_or(0);
        if crate::time::beyond(resident, start_up) >= LARGE_BYTES { Some(resident) } else { None }
    }

    /// The most memory that one collection gave back, if it is a large part of the process's memory, in bytes.
    pub(super) fn held_by_garbage(&self) -> Option<u64> {
        let memory = &self.process.memory;
        let held = memory.most_freed_bytes?;
        let whole = memory.resident_bytes?.max(held);
        if held >= WORTH_BYTES && held >= whole / WORTH_PART { Some(held) } else { None }
    }
}

/// Memory copied by forked processes: their collections caused that, or counting references.
fn copied(facts: &Facts<'_>) -> Option<Candidate> {
    let copied = facts.report.totals.copied?;
    let is_much = copied.bytes >= WORTH_BYTES && copied.most_bytes >= WORTH_BYTES / 4;
    let is_by_collections = copied.collecting * 2 > copied.processes;
    let id = match is_by_collections && facts.traverses_inherited() != Some(false) {
        true => AdviceId::FreezeBeforeFork,
        false => AdviceId::ShareBuffers,
    };
    let gives_back_at_most_bytes = Some(copied.bytes);
    let effect = AdviceEffect { gives_back_at_most_bytes, ..AdviceEffect::default() };
    if is_much { Some(Candidate { id, effect }) } else { None }
}

/// The changes for these facts, the first one first.
pub(super) fn changes(facts: &Facts<'_>) -> Vec<Candidate> {
    let mut list = Vec::new();
    let gives_back = |id, bytes| {
        let effect = AdviceEffect { gives_back_at_most_bytes: Some(bytes), ..Default::default() };
        Candidate { id, effect }
    };
    if let Some(bytes) = facts.held_by_garbage() {
        list.push(gives_back(facts.about_cycles(), bytes));
    } else if facts.knows_own_cycles() {
        list.push(Candidate { id: AdviceId::BreakCycles, effect: AdviceEffect::default() });
    }
    if let Some((_, rise)) = facts.uncollected() {
        list.push(gives_back(AdviceId::CollectSometimes, rise.bytes()));
    }
    list.extend(copied(facts));
    if let Some(bytes) = facts.kept_by_malloc() {
        list.push(gives_back(AdviceId::TrimHeap, bytes));
    }
    if facts.grows_notably() || facts.rises_shortly().is_some() {
        list.push(Candidate { id: AdviceId::FindHolders, effect: AdviceEffect::default() });
    }
    list
}
