//! The garbage of several processes as one.

use super::figures::{CYCLES_REPORTED, KINDS_REPORTED};
use super::report::{GarbageCycle, GarbageEstimate, GarbageReport};
use crate::figure::Basis;
use crate::time::{add_known, add_to};
use gctrace_stats::ratio;
use gctrace_units::sum;
use std::cmp::Reverse;

/// The garbage of all processes. Several processes have no figures per step: their steps differ.
///
/// `freed`: what examined collections freed, and what all collections freed, of each process, also of those without a
/// report, in objects ([`GarbageSums::freed`](super::GarbageSums::freed)).
pub(crate) fn together(
    reports: impl Iterator<Item = GarbageReport>,
    freed: impl Iterator<Item = (u64, u64)>,
) -> Option<GarbageReport> {
    let mut all = reports.reduce(|mut all, other| {
        merge(&mut all, other);
        all
    })?;
    let (examined, freed): (Vec<u64>, Vec<u64>) = freed.unzip();
    all.examined_ratio = ratio(sum(examined), sum(freed));
    Some(all)
}

fn merge(sum: &mut GarbageReport, other: GarbageReport) {
    add_to(&mut sum.collections, other.collections);
    add_to(&mut sum.examined, other.examined);
    add_to(&mut sum.objects, other.objects);
    add_to(&mut sum.shutdown_objects, other.shutdown_objects);
    add_to(&mut sum.other_objects, other.other_objects);
    add_to(&mut sum.cycle_garbage, other.cycle_garbage);
    add_to(&mut sum.other_cycle_objects, other.other_cycle_objects);
    add_known(&mut sum.bytes, other.bytes);
    add_known(&mut sum.device_bytes, other.device_bytes);
    add_known(&mut sum.cost_ns, other.cost_ns);
    (sum.steps, sum.verdict) = (None, None);
    for kind in other.kinds {
        match sum.kinds.iter_mut().find(|total| total.name == kind.name) {
            Some(total) => {
                add_to(&mut total.objects, kind.objects);
                add_known(&mut total.bytes, kind.bytes);
                total.estimate = estimates(total.estimate, kind.estimate);
                total.births = match (total.births.take(), kind.births) {
                    (Some(one), Some(other)) => Some(one.and(other)),
                    (one, other) => one.or(other),
                };
            }
            None => sum.kinds.push(kind),
        }
    }
    for kind in &mut sum.kinds {
        kind.ratio = ratio(kind.objects, sum.objects).unwrap_or(0.0);
        kind.per_step = None;
    }
    sum.kinds.sort_by_key(|kind| Reverse(kind.objects));
    for kind in sum.kinds.drain(KINDS_REPORTED.min(sum.kinds.len())..) {
        add_to(&mut sum.other_objects, kind.objects);
    }
    merge_cycles(sum, other.cycles);
}

fn merge_cycles(sum: &mut GarbageReport, other: Option<Vec<GarbageCycle>>) {
    let Some(other) = other else {
        return sum.cycles.iter_mut().flatten().for_each(|cycle| cycle.per_step = None);
    };
    let cycles = sum.cycles.get_or_insert_default();
    for cycle in other {
        match cycles.iter_mut().find(|total| total.edges == cycle.edges) {
            Some(total) => {
                add_to(&mut total.count, cycle.count);
                add_to(&mut total.objects, cycle.objects);
                add_to(&mut total.held_objects, cycle.held_objects);
                add_known(&mut total.bytes, cycle.bytes);
                total.estimate = estimates(total.estimate, cycle.estimate);
            }
            None => cycles.push(cycle),
        }
    }
    let objects = |cycle: &GarbageCycle| cycle.objects.saturating_add(cycle.held_objects);
    for cycle in cycles.iter_mut() {
        cycle.ratio = ratio(objects(cycle), sum.cycle_garbage).unwrap_or(0.0).min(1.0);
        cycle.per_step = None;
    }
    cycles.sort_by_key(|cycle| Reverse(objects(cycle)));
    for cycle in cycles.drain(CYCLES_REPORTED.min(cycles.len())..) {
        add_to(&mut sum.other_cycle_objects, objects(&cycle));
    }
}

/// The sum of the known ones.
fn estimates(
    one: Option<GarbageEstimate>,
    other: Option<GarbageEstimate>,
) -> Option<GarbageEstimate> {
    let (one, other) = (one?, other?);
    let both = |one: Option<f64>, other: Option<f64>| Some(one? + other?);
    Some(GarbageEstimate {
        basis: match (one.basis, other.basis) {
            (Basis::Measured, Basis::Measured) => Basis::Measured,
            _ => Basis::Inferred,
        },
        count: one.count.saturating_add(other.count),
        per_s: both(one.per_s, other.per_s),
    })
}
