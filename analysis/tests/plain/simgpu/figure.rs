//! One figure of a case and its verdict: the error of the prediction, and the error that chance and
//! a busy machine alone can cause.
//!
//! Owns the statistics. The figures of runs come from `trial.rs`.

/// A prediction may be off by this share of the real difference, ...
const SHARE_PERCENT: i64 = 5;
/// ... or by this, whichever is more.
const MIN_NS: i64 = 1_000_000;

/// With fewer runs of a kind nothing is right: the median of three is the first that bears an
/// outlier.
pub(crate) const RIGHT_RUNS: usize = 3;
/// With fewer runs of a kind nothing is wrong: all values of n lie on one side of the true median
/// with a probability of 2 / 2^n, and six are the first for which that is below 5 %.
const WRONG_RUNS: usize = 6;

/// For the standard error of a median of 3 to 12 values: the distance between the c-th smallest and
/// the c-th largest value is 2 z standard errors. c = (n + 1) / 2 - sqrt(n), rounded, at least 1; z
/// is that quantile of the normal distribution which the true median lies within this distance by
/// the binomial distribution, whatever the values' own. R. M. Price and D. G. Bonett, Estimating
/// the variance of the sample median, Journal of Statistical Computation and Simulation 68 (2001),
/// 295-305. Of normal values it is too large by 7 % (12 values) to 26 % (6), and one outlier of
/// eight or two of eleven do not change it.
const MEDIAN_ERRORS: [(usize, f64); 10] = [
    (1, 1.150),
    (1, 1.534),
    (1, 1.863),
    (1, 2.154),
    (1, 2.418),
    (2, 1.810),
    (2, 2.064),
    (2, 2.299),
    (3, 1.842),
    (3, 2.069),
];

/// What collections add to a figure, in nanoseconds.
#[derive(Debug)]
pub(crate) struct Figure {
    /// With collections minus without.
    pub(crate) real: i64,
    /// The same according to the replay of the runs with collections.
    pub(crate) predicted: i64,
    /// Predicted minus real.
    pub(crate) error: i64,
    /// Bound that the error exceeds by chance with a probability of about 5 %: from how much runs
    /// without collections differ, and those with them once replayed without. Twice the
    /// standard error.
    pub(crate) noise: i64,
    /// Time for which threads waited for a CPU, which the replay does not predict: in the runs of
    /// both kinds together.
    pub(crate) waited: i64,
    /// Number of runs, of the kind with fewer.
    pub(crate) runs: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Within the bound, by runs so similar that chance does not decide.
    Right,
    /// Beyond the bound by more than chance and waiting for processors explain.
    Wrong,
    /// These runs are inconclusive.
    Open,
}

/// A run with collections.
pub(crate) struct PausedRuns {
    pub(crate) measured: i64,
    pub(crate) replayed: i64,
    pub(crate) waited: i64,
}

/// A run without collections.
pub(crate) struct UnpausedRuns {
    pub(crate) measured: i64,
    pub(crate) waited: i64,
}

impl Figure {
    pub(crate) fn of(with: &[PausedRuns], without: &[UnpausedRuns]) -> Self {
        let each = |value: fn(&PausedRuns) -> i64| with.iter().map(value).collect::<Vec<_>>();
        let alone = |value: fn(&UnpausedRuns) -> i64| without.iter().map(value).collect::<Vec<_>>();
        let (replayed, truth) = (each(|run| run.replayed), alone(|run| run.measured));
        Self {
            real: median(&each(|run| run.measured)) - median(&truth),
            // Of each run for itself: runs differ by their pauses.
            predicted: median(&each(|run| run.measured - run.replayed)),
            error: median(&truth) - median(&replayed),
            noise: noise([&truth, &replayed]),
            waited: median(&each(|run| run.waited)) + median(&alone(|run| run.waited)),
            runs: with.len().min(without.len()),
        }
    }

    /// How far off a prediction may be.
    pub(crate) fn bound(&self) -> i64 {
        (self.real.abs() * SHARE_PERCENT / 100).max(MIN_NS)
    }

    /// Right and wrong both have to be shown; a machine on which neither can be is no failure.
    pub(crate) fn verdict(&self) -> Verdict {
        let off = self.error.abs();
        let explained = self.noise.saturating_add(self.waited);
        if self.runs >= RIGHT_RUNS && self.noise <= self.bound() && off <= self.bound() {
            Verdict::Right
        } else if self.runs >= WRONG_RUNS && off.saturating_sub(explained) > self.bound() {
            Verdict::Wrong
        } else {
            Verdict::Open
        }
    }
}

/// Twice the standard error of the difference of two medians.
fn noise(of: [&[i64]; 2]) -> i64 {
    let [first, second] = of.map(median_error);
    (2.0 * first.hypot(second)) as i64
}

/// Infinite where there are too few values, or more than the table is for.
fn median_error(values: &[i64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let row = sorted.len().checked_sub(RIGHT_RUNS);
    let Some((c, z)) = row.and_then(|row| MEDIAN_ERRORS.get(row)) else {
        return f64::INFINITY;
    };
    (sorted[sorted.len() - c] - sorted[c - 1]) as f64 / (2.0 * z)
}

pub(crate) fn median(values: &[i64]) -> i64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let middle = sorted.len() / 2;
    match sorted.as_slice() {
        [] => 0,
        sorted if sorted.len() % 2 == 1 => sorted[middle],
        sorted => i64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}
