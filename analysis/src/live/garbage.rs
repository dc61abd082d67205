//! What the collector frees in one process, how its heap grows and the latest allocation pressure, as
//! figures.

use super::snapshot::{
    CycleFigures, FreezeFigures, GarbageFigures, KindFigures, PressureFigures, SelectedGarbage,
    TrendFigures,
};
use crate::accumulate::process_sums::ProcessSums;
use crate::garbage::GarbageSums;
use crate::pressure::{PressureSums, arena_bytes, balance};
use crate::report::{GarbageCycle, GarbageEdge, GarbageKind, HeapTrend, Trend};

/// Kinds and cycles in the details.
const KINDS: usize = 10;
const CYCLES: usize = 5;

/// `None` if nothing was examined.
pub(super) fn figures(sums: &GarbageSums) -> Option<GarbageFigures> {
    let types = &sums.types;
    let known = types.counts.iter().cloned();
    let other = (GarbageFigures::OTHER.to_owned(), types.other);
    let mut objects = std::collections::BTreeMap::new();
    for (name, count) in known.chain([other]) {
        *objects.entry(name).or_default() += count;
    }
    let (examined_collected, collected) = sums.freed();
    if types.counts.is_empty() {
        return None;
    }
    Some(GarbageFigures { objects, examined_collected, collected })
}

/// `None` if nothing was examined. `observed_ns`: how long the process was recorded.
pub(super) fn detail(sums: &GarbageSums, observed_ns: u64) -> Option<SelectedGarbage> {
    let report = sums.report(observed_ns, None, &[])?;
    let kinds = report.kinds.into_iter().take(KINDS);
    let cycles = report.cycles.map(|cycles| {
        let shown = cycles.into_iter().take(CYCLES);
        shown.map(cycle).collect::<Vec<CycleFigures>>()
    });
    Some(SelectedGarbage { kinds: kinds.map(kind).collect(), objects: report.objects, cycles })
}

fn kind(kind: GarbageKind) -> KindFigures {
    KindFigures {
        objects: kind.objects,
        per_second: kind.estimate.and_then(|estimate| estimate.per_s),
        births: kind.births,
        kind: kind.name,
    }
}

fn cycle(cycle: GarbageCycle) -> CycleFigures {
    let edge = |edge: GarbageEdge| (edge.kind, gctrace_units::if_known(edge.name));
    CycleFigures {
        shape: cycle.shape,
        count: cycle.count,
        objects: cycle.objects.saturating_add(cycle.held_objects),
        per_second: cycle.estimate.and_then(|estimate| estimate.per_s),
        edges: cycle.edges.into_iter().map(edge).collect(),
    }
}

/// A trend in the units of the live view.
pub(super) fn trend(trend: &HeapTrend) -> TrendFigures {
    const HOUR_S: f64 = 3_600.0;
    let per_hour = |trend: Option<Trend>| trend.map(|trend| trend.per_s * HOUR_S);
    let rises = |trend: Option<Trend>| matches!(trend, Some(trend) if trend.rises);
    TrendFigures {
        objects_per_hour: per_hour(trend.objects),
        objects_rise: rises(trend.objects),
        resident_bytes_per_hour: per_hour(trend.resident),
        resident_rises: rises(trend.resident),
        device_bytes_per_hour: per_hour(trend.device),
        device_rises: rises(trend.device),
        outside_python: trend.outside_python,
        may_be_set_up: trend.may_be_set_up(),
        memory_limit_bytes: trend.memory_limit_bytes,
        reaches_limit_in_ns: trend.reaches_limit.map(|reaches_limit| reaches_limit.likely_ns),
    }
}

/// `None` unless a freeze was seen.
pub(super) fn freeze(sums: &ProcessSums) -> Option<FreezeFigures> {
    let after = sums.freeze.report(0)?;
    Some(FreezeFigures { frozen_objects: after.frozen_objects, freed_since: after.freed })
}

/// Nanoseconds of a second.
const SECOND: i128 = 1_000_000_000;

/// `version`: of the interpreter; it determines the size of an arena.
pub(super) fn pressure(sums: &PressureSums, version: Option<&str>) -> Option<PressureFigures> {
    let latest = sums.latest.as_ref();
    let (rate, reported_ns) = sums.allocations.unzip();
    let at_ns = latest.map(|latest| latest.at_ns).max(reported_ns)?;
    let per_second = |amount: i128| {
        let latest = latest?;
        Some(amount * SECOND / i128::from(latest.at_ns - latest.since_ns))
    };
    let containers = || per_second(latest?.net_containers.into());
    let arenas = || {
        let (mapped, unmapped) = (latest?.arenas_mapped?, latest?.arenas_unmapped?);
        let bytes = arena_bytes(version?)?;
        i64::try_from(per_second(i128::from(balance(mapped, unmapped)) * i128::from(bytes))?).ok()
    };
    Some(PressureFigures {
        net_containers_per_second: containers().map(gctrace_units::u64_or_most),
        arena_bytes_per_second: arenas(),
        allocations_per_cpu_second: rate,
        at_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_event::{Allocations, Pressure};

    #[test]
    fn rates_are_of_the_last_interval() {
        let mut last = PressureSums::default();
        assert_eq!(super::pressure(&last, None), None);
        let pressure = Pressure {
            since_ns: 1_000_000_000,
            at_ns: 1_500_000_000,
            net_containers: 700,
            arenas_mapped: Some(3),
            arenas_unmapped: Some(4),
            ..Pressure::default()
        };
        last.add(&pressure);
        let figures = super::pressure(&last, Some("3.9.18")).unwrap();
        assert_eq!(figures.net_containers_per_second, Some(1400));
        assert_eq!(figures.arena_bytes_per_second, Some(-2 * (256 << 10)));
        assert_eq!(super::pressure(&last, None).unwrap().arena_bytes_per_second, None);
        let allocations =
            Allocations { per_cpu_second: Some(5), at_ns: 9, ..Allocations::default() };
        let mut counted = PressureSums::default();
        counted.add_allocations(&allocations);
        let figures = super::pressure(&counted, None).unwrap();
        assert_eq!(figures.net_containers_per_second, None);
        assert_eq!(figures.allocations_per_cpu_second, Some(5));
    }

    #[test]
    fn damaged_figures_do_no_harm() {
        let mut last = PressureSums::default();
        let pressure = Pressure {
            at_ns: 1,
            net_containers: u64::MAX,
            arenas_mapped: Some(u64::MAX),
            arenas_unmapped: Some(0),
            ..Pressure::default()
        };
        last.add(&pressure);
        let figures = super::pressure(&last, Some("3.12.1")).unwrap();
        assert_eq!(figures.net_containers_per_second, Some(u64::MAX));
    }
}
