//! Why the devices were idle, before and after.

use super::report::IdleComparison;
use crate::report::{IdleCause, Report};
use crate::time::{add_to, sum};
use gctrace_stats::ratio;
use std::collections::{BTreeMap, BTreeSet};

/// The idle time of a run's devices.
struct IdleRun {
    /// Share of each cause in the time of the devices.
    shares: BTreeMap<IdleCause, f64>,
    /// Time of each cause per step, in ns; `None` without steps.
    steps_ns: Option<BTreeMap<IdleCause, f64>>,
}

/// The causes with the largest differences first: of the time per step, else of the share. Empty if a
/// run has no idle ledger.
pub(super) fn compare(before: &[Report], after: &[Report]) -> Vec<IdleComparison> {
    let (Some(before), Some(after)) = (side(before), side(after)) else {
        return Vec::new();
    };
    let causes: BTreeSet<IdleCause> =
        before.iter().chain(&after).flat_map(|run| run.shares.keys().copied()).collect();
    let has_steps = before.iter().chain(&after).all(|run| run.steps_ns.is_some());
    let of_step = |runs: &[IdleRun], cause| {
        let steps = runs.iter().filter_map(|run| run.steps_ns.as_ref());
        if has_steps { Some(mean(steps, cause)) } else { None }
    };
    let rows = causes.into_iter().map(|cause| IdleComparison {
        cause,
        before_ratio: mean(before.iter().map(|run| &run.shares), cause),
        after_ratio: mean(after.iter().map(|run| &run.shares), cause),
        before_step_ns: of_step(&before, cause),
        after_step_ns: of_step(&after, cause),
    });
    let mut rows: Vec<IdleComparison> = rows.collect();
    let difference = |row: &IdleComparison| match (row.before_step_ns, row.after_step_ns) {
        (Some(before), Some(after)) => (after - before).abs(),
        _ => (row.after_ratio - row.before_ratio).abs(),
    };
    rows.sort_by(|one, other| difference(other).total_cmp(&difference(one)));
    rows
}

fn side(reports: &[Report]) -> Option<Vec<IdleRun>> {
    reports.iter().map(run).collect()
}

fn run(report: &Report) -> Option<IdleRun> {
    let ledgers = || report.gpu.iter().flat_map(|work| &work.idle);
    let span_ns = sum(ledgers().map(|ledger| ledger.span_ns));
    let mut causes: BTreeMap<IdleCause, u64> = BTreeMap::new();
    for row in ledgers().flat_map(|ledger| &ledger.rows) {
        add_to(causes.entry(row.cause).or_default(), row.time_ns);
    }
    ratio(0, span_ns)?;
    let per = |whole: u64| {
        let parts = causes.iter().filter_map(|(cause, ns)| Some((*cause, ratio(*ns, whole)?)));
        parts.collect()
    };
    let processes: BTreeSet<(usize, u32)> =
        ledgers().map(|ledger| (ledger.id.trace, ledger.id.pid)).collect();
    let steps = processes.iter().map(|process| {
        let mut listed = report.steps.iter().flat_map(|steps| &steps.processes);
        let count = listed.find(|steps| (steps.trace, steps.pid) == *process)?.count;
        if count > 0 { Some(count) } else { None }
    });
    let steps: Option<Vec<u64>> = steps.collect();
    Some(IdleRun { shares: per(span_ns), steps_ns: steps.map(|steps| per(sum(steps))) })
}

/// A cause without a row is none of the idle time.
fn mean<'a>(runs: impl Iterator<Item = &'a BTreeMap<IdleCause, f64>>, cause: IdleCause) -> f64 {
    let (mut count, mut total) = (0, 0.0);
    for run in runs {
        count += 1;
        total += run.get(&cause).copied().unwrap_or(0.0);
    }
    total / gctrace_stats::float(count)
}
