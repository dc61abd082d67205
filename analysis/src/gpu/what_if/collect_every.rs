//! The number of steps between planned collections: large enough to cost almost nothing, small
//! enough to limit garbage.

use super::plan::FullLengths;
use super::program::{ProgramModel, mean_step_ns};
use crate::report::PlannedInterval;
use crate::time::{scaled, times};

/// Planned collections may cost this share of the step time (in thousandths): repeated runs differ
/// by more.
const COST_PER_MILLE: u64 = 5;

/// `None` where no process has two steps.
pub(super) fn choose(
    programs: &[ProgramModel<'_>],
    lengths: &FullLengths,
) -> Option<PlannedInterval> {
    let step_ns = programs.iter().filter_map(mean_step_ns).max()?;
    let (_, length_ns) = lengths.range();
    let by_cost = times(length_ns, 1000).div_ceil(times(step_ns, COST_PER_MILLE));
    // More steps than were recorded would not be tried by a run of this length.
    let recorded = programs.iter().map(|program| program.steps().len() as u64).max()?;
    let by_cost = round_up(by_cost.max(1)).min(round_down(recorded));
    let by_garbage = programs.iter().filter_map(allowed_by_garbage).min();
    let by_garbage = by_garbage.map(round_down);
    let steps = by_garbage.map_or(by_cost, |most| by_cost.min(most));
    Some(PlannedInterval { steps, length_ns, step_ns, by_cost })
}

/// Steps after which the garbage reaches a limit; `None` where it never does.
fn allowed_by_garbage(program: &ProgramModel<'_>) -> Option<u64> {
    let steps = (program.recorded_ns() / mean_step_ns(program)?).max(1);
    let allowed = |sum: u64, limit: u64| (sum > 0).then(|| scaled(limit, steps, sum).max(1));
    let objects = allowed(program.freed_objects(), PlannedInterval::MOST_OBJECTS);
    let limit = program.device_reserved_bytes / 100 * PlannedInterval::MOST_DEVICE_PERCENT;
    let device = allowed(program.device_freed_bytes, limit.max(1));
    [objects, device].into_iter().flatten().min()
}

/// 1, 2, 5, 10, 20, 50, ... not below.
fn round_up(least: u64) -> u64 {
    series().find(|step| *step >= least).unwrap_or(least)
}

/// 1, 2, 5, 10, 20, 50, ... not above, but at least 1.
fn round_down(most: u64) -> u64 {
    series().take_while(|step| *step <= most).last().unwrap_or(1)
}

fn series() -> impl Iterator<Item = u64> {
    let tens = std::iter::successors(Some(1u64), |ten| ten.checked_mul(10));
    tens.flat_map(|ten| [1, 2, 5].map(|digit| times(ten, digit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_numbers() {
        for (value, up, down) in [(1, 1, 1), (3, 5, 2), (10, 10, 10), (51, 100, 50), (0, 1, 1)] {
            assert_eq!((round_up(value), round_down(value)), (up, down), "{value}");
        }
        assert!(round_up(u64::MAX) == u64::MAX && round_down(u64::MAX) > u64::MAX / 10);
    }
}
