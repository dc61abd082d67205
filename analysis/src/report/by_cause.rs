//! Pauses by cause.

use super::{GroupName, PauseTotal, PausesReport, Report};
use gctrace_event::GcReason;
use gctrace_stats::ratio;
use serde::Serialize;

/// Count and time of pauses, by cause.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ByCause {
    /// Automatic full collections.
    pub automatic_full: PauseTotal,
    /// Automatic collections of younger generations.
    pub automatic_partial: PauseTotal,
    /// Explicit collections (`gc.collect()`).
    pub manual: PauseTotal,
    /// Collections at interpreter shutdown.
    pub shutdown: PauseTotal,
    /// Collections of unknown reason.
    pub unknown: PauseTotal,
}

impl ByCause {
    /// The pauses of one cause. `full`: of the whole heap.
    pub(crate) fn of(&mut self, reason: GcReason, full: bool) -> &mut PauseTotal {
        match reason {
            GcReason::Automatic if full => &mut self.automatic_full,
            GcReason::Automatic => &mut self.automatic_partial,
            GcReason::Manual => &mut self.manual,
            GcReason::Shutdown => &mut self.shutdown,
            GcReason::Unknown => &mut self.unknown,
        }
    }

    /// Pauses of all causes.
    pub fn total(&self) -> PauseTotal {
        let Self { automatic_full, automatic_partial, manual, shutdown, unknown } = self;
        [automatic_full, automatic_partial, manual, shutdown, unknown].into_iter().collect()
    }

    /// Adds other pauses.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.automatic_full.add_all(&other.automatic_full);
        self.automatic_partial.add_all(&other.automatic_partial);
        self.manual.add_all(&other.manual);
        self.shutdown.add_all(&other.shutdown);
        self.unknown.add_all(&other.unknown);
    }

    /// Automatic collections of all generations, full ones included.
    pub fn automatic(&self) -> PauseTotal {
        [self.automatic_full, self.automatic_partial].iter().collect()
    }
}

impl Report {
    /// All pauses by cause.
    pub(crate) fn by_cause(&self) -> ByCause {
        let of = |reason| self.pauses_of(reason).map_or(PauseTotal::default(), total);
        let full = self.freed_nothing.of_automatic_full;
        ByCause {
            automatic_full: full,
            automatic_partial: without(of(GcReason::Automatic), full),
            manual: of(GcReason::Manual),
            shutdown: of(GcReason::Shutdown),
            unknown: of(GcReason::Unknown),
        }
    }

    /// The same with pauses of unknown reason counted as automatic, as most of them are.
    pub(crate) fn by_likely_cause(&self) -> ByCause {
        let known = self.by_cause();
        let of = |generation| {
            let name = GroupName::Generation(Some(generation));
            let group = self.by_generation.iter().find(|group| group.name == name);
            if let Some(group) = group { total(&group.pauses) } else { PauseTotal::default() }
        };
        if known.automatic().count > 0 {
            return known;
        }
        ByCause {
            // Collections at shutdown are full.
            automatic_full: without(of(2), known.shutdown),
            automatic_partial: [of(0), of(1)].iter().collect(),
            ..known
        }
    }

    /// The share of these pauses in the time of all, 0 to 1.
    pub(crate) fn share(&self, pauses: PauseTotal) -> f64 {
        ratio(pauses.time_ns, self.totals.pauses.time_ns).unwrap_or(0.0)
    }
}

fn total(pauses: &PausesReport) -> PauseTotal {
    PauseTotal { count: pauses.count, time_ns: pauses.time_ns }
}

fn without(all: PauseTotal, part: PauseTotal) -> PauseTotal {
    PauseTotal {
        count: crate::time::beyond(all.count, part.count),
        time_ns: crate::time::beyond(all.time_ns, part.time_ns),
    }
}
