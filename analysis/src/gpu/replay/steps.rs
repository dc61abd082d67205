//! How well the replay explains steps: the duration of each step without pauses, predicted from the
//! others.

use super::ReplaySchedule;
use crate::gpu::timeline::{ProcessTimeline, StepSpan, ThreadIndex};
use crate::time::duration_ns;
use serde::Serialize;

/// How well the steps are explained after the pauses are removed.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepEvidenceReport {
    /// Number of compared steps: from the thread with the most steps.
    pub count: u64,
    /// Number of steps with at least one pause.
    pub with_pauses: u64,
    /// Median duration of all these steps in the replay without any pause, in ns.
    pub median_without_ns: u64,
    /// How much longer (negative: shorter) the steps with pauses remain than steps without, after the pauses are
    /// removed, in ns: the difference of the medians times the number of steps with pauses. `null` if all steps or
    /// none have pauses.
    pub unexplained_ns: Option<i64>,
    /// Standard error of the cost of all pauses, as the difference to a second run of as many steps
    /// without them, in ns.
    #[serde(skip)]
    pub(crate) standard_error_ns: u64,
}

/// Fewer steps do not show how much they vary.
const FEWEST: usize = 5;

/// Fewer steps make no blocks: five of five.
const FEWEST_IN_BLOCKS: usize = 25;

/// One step, replayed.
pub(super) struct ReplayedStep {
    pub(super) paused: bool,
    pub(super) without_ns: u64,
}

impl StepEvidenceReport {
    /// Leaves out one step after the other: its duration without pauses, by a replay without any,
    /// minus the median of the other steps' is its error. Two runs of N such steps differ by the
    /// standard deviation of these errors times the square root of 2 N; from 25 steps on, by the
    /// standard deviation of the sums over as many blocks as each has steps: a host that waits for
    /// the GPU in every fourth step makes steps that differ, and blocks that do not. Compared with
    /// differences between real runs, using only the steps with pauses, or the median deviation,
    /// was two to five times too low. `None` with fewer than five steps.
    pub(crate) fn collect(
        timeline: &ProcessTimeline,
        index: usize,
        without: &ReplaySchedule<'_>,
    ) -> Option<Self> {
        let steps = paused_steps(timeline).map(|(step, paused)| {
            let start_ns = without.timestamp(index, step.thread, step.start_ns);
            let end_ns = without.timestamp(index, step.thread, step.end_ns);
            ReplayedStep { paused, without_ns: duration_ns(start_ns, end_ns) }
        });
        Self::of(steps.collect())
    }

    /// The evidence of steps that were replayed without any pause.
    pub(super) fn of(steps: Vec<ReplayedStep>) -> Option<Self> {
        if steps.len() < FEWEST {
            return None;
        }
        let mut sorted: Vec<u64> = steps.iter().map(|step| step.without_ns).collect();
        sorted.sort_unstable();
        let median_without_ns = gctrace_stats::median_high(&mut sorted)?;
        let errors = steps.iter().map(|step| {
            let predicted = median_without(&sorted, step.without_ns);
            step.without_ns as f64 - predicted as f64
        });
        let errors: Vec<f64> = errors.collect();
        let block = match errors.len() {
            0..FEWEST_IN_BLOCKS => 1,
            all => all.isqrt(),
        };
        let blocks = errors.chunks_exact(block);
        let sums: Vec<f64> = blocks.map(|block| block.iter().sum()).collect();
        let deviation = gctrace_stats::standard_deviation(&sums).unwrap_or(0.0);
        let paused = steps.iter().filter(|step| step.paused).count();
        Some(Self {
            count: steps.len() as u64,
            with_pauses: paused as u64,
            median_without_ns,
            standard_error_ns: (deviation * (2.0 * steps.len() as f64 / block as f64).sqrt())
                .round() as u64,
            unexplained_ns: unexplained_ns(&steps),
        })
    }
}

/// The steps of the thread with most of them, the last of such threads.
fn main_steps(timeline: &ProcessTimeline) -> Vec<StepSpan> {
    let mut threads: Vec<ThreadIndex> = timeline.steps.iter().map(|step| step.thread).collect();
    threads.sort_unstable();
    let most = threads.chunk_by(|a, b| a == b).max_by_key(|of_one| of_one.len());
    let thread = most.map(|of_one| of_one[0]);
    let steps = timeline.steps.iter();
    steps.filter(|step| Some(step.thread) == thread).copied().collect()
}

/// The main steps, and whether a pause started in each.
pub(super) fn paused_steps(timeline: &ProcessTimeline) -> impl Iterator<Item = (StepSpan, bool)> {
    let mut pauses = timeline.pauses.iter().peekable();
    main_steps(timeline).into_iter().map(move |step| {
        while pauses.next_if(|pause| pause.start_ns < step.start_ns).is_some() {}
        let next = pauses.peek();
        (step, matches!(next, Some(pause) if pause.start_ns < step.end_ns))
    })
}

/// The median of sorted values, at least two, without one of them.
fn median_without(sorted: &[u64], left_out: u64) -> u64 {
    let place = sorted.partition_point(|value| *value < left_out);
    let middle = (sorted.len() - 1) / 2;
    sorted[middle + usize::from(place <= middle)]
}

fn unexplained_ns(steps: &[ReplayedStep]) -> Option<i64> {
    let median = |paused: bool| {
        let those = steps.iter().filter(|step| step.paused == paused);
        let mut durations: Vec<u64> = those.map(|step| step.without_ns).collect();
        let median = gctrace_stats::median_high(&mut durations)?;
        Some((i128::from(median), durations.len() as i128))
    };
    let ((with, count), (without, _)) = (median(true)?, median(false)?);
    i64::try_from((with - without) * count).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_without_one() {
        let sorted = [1, 2, 3, 4, 5];
        let medians = sorted.map(|value| median_without(&sorted, value));
        assert_eq!(medians, [4, 4, 4, 3, 3]);
    }

    #[test]
    fn unexplained_difference_of_steps() {
        let step = |paused, without_ns| ReplayedStep { paused, without_ns };
        let steps = [step(true, 12), step(false, 10), step(false, 10), step(true, 12)];
        assert_eq!(unexplained_ns(&steps), Some(4));
        assert_eq!(unexplained_ns(&[step(true, 12)]), None);
    }
}
