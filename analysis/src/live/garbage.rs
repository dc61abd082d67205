//! What the collector frees in one process, and how its heap grows, as figures.

use super::snapshot::{
    CycleFigures, FreezeFigures, GarbageDetail, GarbageFigures, KindFigures, KindName, TrendFigures,
};
use crate::accumulate::garbage::GarbageSums;
use crate::accumulate::process_sums::ProcessSums;
use crate::report::{GarbageCycle, GarbageEdge, GarbageKind, HeapTrend};

/// Kinds and cycles in the details.
const KINDS: usize = 10;
const CYCLES: usize = 5;

/// `None` if nothing was examined.
pub(super) fn figures(sums: &GarbageSums) -> Option<GarbageFigures> {
    let types = sums.types();
    let known = types.counts.iter().cloned();
    let other = (GarbageFigures::OTHER.to_owned(), types.other);
    let mut objects = std::collections::BTreeMap::new();
    for (name, count) in known.chain([other]) {
        *objects.entry(name).or_default() += count;
    }
    let (examined_collected, collected) = sums.freed();
    (!types.counts.is_empty()).then_some(GarbageFigures { objects, examined_collected, collected })
}

/// `None` if nothing was examined. `observed_ns`: how long the process was recorded.
pub(super) fn detail(sums: &GarbageSums, observed_ns: u64) -> Option<GarbageDetail> {
    let report = sums.report(observed_ns, None, &[])?;
    let kinds = report.kinds.into_iter().take(KINDS);
    let cycles = report.cycles.map(|cycles| {
        let shown = cycles.into_iter().take(CYCLES);
        shown.map(cycle).collect::<Vec<CycleFigures>>()
    });
    Some(GarbageDetail { kinds: kinds.map(kind).collect(), objects: report.objects, cycles })
}

fn kind(kind: GarbageKind) -> KindFigures {
    KindFigures {
        objects: kind.objects,
        per_second: kind.estimate.and_then(|own| own.per_s),
        births: kind.births,
        kind: KindName {
            type_name: kind.type_name,
            function: kind.function,
            file: kind.file,
            line: kind.line,
        },
    }
}

fn cycle(cycle: GarbageCycle) -> CycleFigures {
    let edge = |edge: GarbageEdge| {
        let kind = KindName {
            type_name: edge.type_name,
            function: edge.function,
            file: edge.file,
            line: edge.line,
        };
        (kind, edge.name.unwrap_or_default())
    };
    CycleFigures {
        shape: cycle.shape,
        count: cycle.count,
        objects: cycle.objects.saturating_add(cycle.held_objects),
        per_second: cycle.estimate.and_then(|own| own.per_s),
        edges: cycle.edges.into_iter().map(edge).collect(),
    }
}

/// A trend in the units of the live view.
pub(super) fn trend(trend: &HeapTrend) -> TrendFigures {
    const HOUR_S: f64 = 3_600.0;
    TrendFigures {
        objects_per_hour: trend.objects.per_s * HOUR_S,
        objects_rise: trend.objects.rises,
        resident_bytes_per_hour: trend.resident.map(|own| own.per_s * HOUR_S),
        resident_rises: trend.resident.is_some_and(|own| own.rises),
        memory_limit_bytes: trend.memory_limit_bytes,
        reaches_limit_in_ns: trend.reaches_limit.map(|own| own.likely_ns),
    }
}

/// `None` unless a freeze was seen.
pub(super) fn freeze(sums: &ProcessSums) -> Option<FreezeFigures> {
    let after = sums.freeze.report(0)?;
    Some(FreezeFigures { frozen_objects: after.frozen_objects, freed_since: after.freed })
}
