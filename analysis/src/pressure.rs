//! Allocation pressure of one process: summed over its intervals, and the latest.

use crate::figure::Basis;
use crate::time::{add_to, duration_ns, sum};
use gctrace_event::{Allocations, Pause, Pressure};
use gctrace_stats::rate;
use serde::Serialize;

/// Allocation pressure: how fast containers are allocated and memory is taken from the system.
///
/// Over several processes: counts are summed, and rates are per second of one process's time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PressureReport {
    /// Measured if the trace contains counts over intervals; inferred if they are summed from the pauses, as some
    /// pauses may be missing.
    pub basis: Basis,
    /// Time covered by counts of containers, in ns.
    pub covered_ns: u64,
    /// Net containers: containers (objects that the collector tracks) allocated minus containers freed between
    /// collections, summed over all collections. Objects allocated and freed between two collections cancel out.
    pub net_containers: u64,
    /// `net_containers` per second of `covered_ns`; `null` if nothing was covered.
    pub net_containers_per_s: Option<f64>,
    /// Arenas mapped and unmapped; `null` if they were not recorded.
    pub arenas: Option<ArenasReport>,
}

/// Arenas: the blocks that pymalloc maps from the system. Always measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ArenasReport {
    /// Time covered by counts of arenas, in ns.
    pub covered_ns: u64,
    /// Number of arenas mapped during the covered time.
    pub mapped: u64,
    /// Number of arenas unmapped during the covered time.
    pub unmapped: u64,
    /// Arenas mapped per second; `null` if nothing was covered.
    pub mapped_per_s: Option<f64>,
    /// Arenas unmapped per second; `null` if nothing was covered.
    pub unmapped_per_s: Option<f64>,
    /// `mapped` minus `unmapped`; negative if more were unmapped.
    pub balance: i64,
    /// `balance` in bytes: an arena is 1 MiB, and 256 KiB before CPython 3.10 (`ARENA_BITS` and
    /// `ARENA_SIZE` in `obmalloc`). `null` if the version is unknown.
    pub balance_bytes: Option<i64>,
    /// Largest balance at the end of an interval, at least 0 (a process unmaps its arenas when it ends). Over several
    /// processes: the sum of their peaks; these need not coincide.
    pub peak_balance: i64,
    /// `peak_balance` in bytes; `null` if the version is unknown.
    pub peak_balance_bytes: Option<i64>,
}

/// Size of an arena in bytes from CPython 3.10 on (`Include/internal/pycore_obmalloc.h`,
/// `ARENA_BITS` 20).
const ARENA_BYTES: i64 = 1 << 20;
/// Size of an arena in bytes before (`Objects/obmalloc.c`, `ARENA_SIZE` 256 << 10).
const OLD_ARENA_BYTES: i64 = 256 << 10;

/// Sums over one process, or several.
#[derive(Clone, Debug, Default)]
pub(crate) struct PressureSums {
    intervals: u64,
    covered_ns: u64,
    net_containers: u64,
    /// Without the figures derived from its sums.
    arenas: Option<ArenasReport>,
    /// Number of pauses with a known count of the youngest generation, and the sum of these counts.
    counting_pauses: u64,
    counted_in_pauses: u64,
    /// The latest interval that is not empty.
    pub(crate) latest: Option<Pressure>,
    /// The latest allocations per second of CPU time, and when that was reported.
    pub(crate) allocations: Option<(u64, u64)>,
}

impl PressureSums {
    pub(crate) fn add(&mut self, pressure: &Pressure) {
        let length_ns = duration_ns(pressure.since_ns, pressure.at_ns);
        // Only the resident memory.
        if length_ns == 0 && pressure.collections == 0 {
            return;
        }
        if length_ns > 0 {
            self.latest = Some(pressure.clone());
        }
        self.intervals += 1;
        add_to(&mut self.covered_ns, length_ns);
        add_to(&mut self.net_containers, pressure.net_containers);
        if let (Some(mapped), Some(unmapped)) = (pressure.arenas_mapped, pressure.arenas_unmapped) {
            let arenas = self.arenas.get_or_insert_default();
            add_to(&mut arenas.covered_ns, length_ns);
            add_to(&mut arenas.mapped, mapped);
            add_to(&mut arenas.unmapped, unmapped);
            // Intervals come in order of time.
            arenas.balance = balance(arenas.mapped, arenas.unmapped);
            arenas.peak_balance = arenas.balance.max(arenas.peak_balance);
        }
    }

    pub(crate) fn add_pause(&mut self, pause: &Pause) {
        if let Some(count) = pause.young_count {
            self.counting_pauses += 1;
            add_to(&mut self.counted_in_pauses, count);
        }
    }

    /// Adds the rate of a summary of allocations.
    pub(crate) fn add_allocations(&mut self, allocations: &Allocations) {
        if let Some(per_second) = allocations.per_cpu_second {
            self.allocations = Some((per_second, allocations.at_ns));
        }
    }

    /// `None` without any counts. `observed_ns`: how long the process was recorded. `version`: of
    /// its interpreter.
    pub(crate) fn report(&self, observed_ns: u64, version: Option<&str>) -> Option<PressureReport> {
        let (basis, covered_ns, net_containers) = match (self.intervals, self.counting_pauses) {
            (0, 0) => return None,
            (0, _) => (Basis::Inferred, observed_ns, self.counted_in_pauses),
            _ => (Basis::Measured, self.covered_ns, self.net_containers),
        };
        Some(PressureReport {
            basis,
            covered_ns,
            net_containers,
            net_containers_per_s: rate(net_containers, covered_ns),
            arenas: self.arenas.map(|arenas| arenas.computed(version.and_then(arena_bytes))),
        })
    }
}

impl ArenasReport {
    /// With the figures derived from its sums.
    fn computed(self, arena_bytes: Option<i64>) -> Self {
        let balance = balance(self.mapped, self.unmapped);
        Self {
            mapped_per_s: rate(self.mapped, self.covered_ns),
            unmapped_per_s: rate(self.unmapped, self.covered_ns),
            balance,
            balance_bytes: arena_bytes.map(|bytes| balance.saturating_mul(bytes)),
            peak_balance_bytes: arena_bytes.map(|bytes| self.peak_balance.saturating_mul(bytes)),
            ..self
        }
    }
}

/// Arenas mapped minus arenas unmapped.
pub(crate) fn balance(mapped: u64, unmapped: u64) -> i64 {
    let signed = |count| gctrace_units::i64_or_most(count);
    signed(mapped) - signed(unmapped)
}

/// Size of an arena in this version of CPython.
pub(crate) fn arena_bytes(version: &str) -> Option<i64> {
    let minor = version.strip_prefix("3.")?;
    let digits = minor.find(|c: char| !c.is_ascii_digit());
    let minor: u32 = minor.get(..digits.unwrap_or(minor.len()))?.parse().ok()?;
    Some(match minor {
        0..10 => OLD_ARENA_BYTES,
        _ => ARENA_BYTES,
    })
}

/// Pressure over several processes: sums, and rates per second of one process's time.
pub(crate) fn together<'a>(
    reports: impl Iterator<Item = &'a PressureReport>,
) -> Option<PressureReport> {
    reports.cloned().reduce(|mut sum, report| {
        if report.basis != Basis::Measured {
            sum.basis = Basis::Inferred;
        }
        add_to(&mut sum.covered_ns, report.covered_ns);
        add_to(&mut sum.net_containers, report.net_containers);
        sum.net_containers_per_s = rate(sum.net_containers, sum.covered_ns);
        sum.arenas = match (sum.arenas, report.arenas) {
            (Some(sum), Some(report)) => Some(arenas_together(&sum, &report)),
            (sum, report) => sum.or(report),
        };
        sum
    })
}

fn arenas_together(a: &ArenasReport, b: &ArenasReport) -> ArenasReport {
    let arenas = ArenasReport {
        covered_ns: sum([a.covered_ns, b.covered_ns]),
        mapped: sum([a.mapped, b.mapped]),
        unmapped: sum([a.unmapped, b.unmapped]),
        peak_balance: a.peak_balance.saturating_add(b.peak_balance),
        ..ArenasReport::default()
    };
    let both = |a: Option<i64>, b: Option<i64>| Some(a?.saturating_add(b?));
    ArenasReport {
        balance_bytes: both(a.balance_bytes, b.balance_bytes),
        peak_balance_bytes: both(a.peak_balance_bytes, b.peak_balance_bytes),
        ..arenas.computed(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in-process recording writes it.
    #[test]
    fn memory_alone_is_no_interval() {
        let mut sums = PressureSums::default();
        sums.add(&Pressure {
            since_ns: 7,
            at_ns: 7,
            resident_bytes: Some(1 << 20),
            ..Pressure::default()
        });
        assert!(sums.latest.is_none() && sums.report(1_000, None).is_none());
    }

    #[test]
    fn arenas_by_version() {
        assert_eq!(arena_bytes("3.9.18"), Some(256 << 10));
        assert_eq!(arena_bytes("3.10.13"), Some(1 << 20));
        assert_eq!(arena_bytes("3.14"), Some(1 << 20));
        assert_eq!(arena_bytes("3.15.0a1"), Some(1 << 20));
        for unknown in ["", "3.", "4.0", "3.x"] {
            assert_eq!(arena_bytes(unknown), None, "{unknown}");
        }
    }
}
