//! Why the devices were idle, before and after.

use super::report::IdleComparison;
use crate::report::{IdleCause, Report};
use crate::time::stats::ratio;
use crate::time::{add_to, sum};
use std::collections::{BTreeMap, BTreeSet};

/// The share of each cause in the time of a run's devices.
type CauseShares = BTreeMap<IdleCause, f64>;

/// The causes with the largest differences first. Empty if a run has no idle ledger.
pub(super) fn compare(before: &[Report], after: &[Report]) -> Vec<IdleComparison> {
    let (Some(before), Some(after)) = (side(before), side(after)) else {
        return Vec::new();
    };
    let causes: BTreeSet<IdleCause> =
        before.iter().chain(&after).flat_map(|run| run.keys().copied()).collect();
    let rows = causes.into_iter().map(|cause| IdleComparison {
        cause,
        before_ratio: mean(&before, cause),
        after_ratio: mean(&after, cause),
    });
    let mut rows: Vec<IdleComparison> = rows.collect();
    let difference = |row: &IdleComparison| (row.after_ratio - row.before_ratio).abs();
    rows.sort_by(|one, other| difference(other).total_cmp(&difference(one)));
    rows
}

fn side(reports: &[Report]) -> Option<Vec<CauseShares>> {
    reports.iter().map(shares).collect()
}

fn shares(report: &Report) -> Option<CauseShares> {
    let ledgers = || report.gpu.iter().flat_map(|work| &work.idle);
    let span_ns = sum(ledgers().map(|ledger| ledger.span_ns));
    let mut causes: BTreeMap<IdleCause, u64> = BTreeMap::new();
    for row in ledgers().flat_map(|ledger| &ledger.rows) {
        add_to(causes.entry(row.cause).or_default(), row.time_ns);
    }
    ratio(0, span_ns)?;
    let shares = causes.into_iter().filter_map(|(cause, ns)| Some((cause, ratio(ns, span_ns)?)));
    Some(shares.collect())
}

/// A cause without a row is none of the idle time.
fn mean(runs: &[CauseShares], cause: IdleCause) -> f64 {
    let shares = runs.iter().map(|run| run.get(&cause).copied().unwrap_or(0.0));
    shares.sum::<f64>() / super::float(runs.len() as u64)
}
