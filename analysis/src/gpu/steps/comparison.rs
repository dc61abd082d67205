//! Comparisons of steps with and without a full collection.

use crate::figure::{Basis, serialized_as_text};
use gctrace_stats::{bootstrap, median_low, signed};
use serde::Serialize;
use std::fmt;

serialized_as_text!(NoComparison);

/// A comparison of the mean lengths of two kinds of steps.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepComparison {
    /// Basis of `difference`: inferred, assuming that steps otherwise vary independently. The
    /// difference need not be caused by the collections alone.
    pub basis: Basis,
    /// Number of steps of the kind in question (with a full collection, or after one).
    pub count: u64,
    /// Their mean length, in ns; `null` if there are none.
    pub mean_ns: Option<u64>,
    /// Number of steps to compare with (without a full collection, or before one).
    pub other_count: u64,
    /// Their mean length, in ns; `null` if there are none.
    pub other_mean_ns: Option<u64>,
    /// How much longer the former are; `null` if there are too few steps.
    pub difference: Option<StepDifference>,
    /// Why `difference` is `null`, as text.
    pub missing: Option<NoComparison>,
}

impl StepComparison {
    /// Fewer steps of a kind than this are not compared.
    pub const FEWEST: usize = bootstrap::FEWEST;

    /// The lengths of both kinds, in ns. `shows_gc`: whether the trace would show collections.
    pub(super) fn of(these: &[f64], others: &[f64], shows_gc: bool) -> Self {
        let mean_ns = |lengths: &[f64]| {
            let sum: f64 = lengths.iter().sum();
            let count = lengths.len();
            if count > 0 { Some(signed(sum / count as f64).unsigned_abs()) } else { None }
        };
        let (with, without) = (these.len() as u64, others.len() as u64);
        let difference = bootstrap::difference(these, others).map(|estimate| StepDifference {
            mean_ns: signed(estimate.value),
            low_ns: signed(estimate.low),
            high_ns: signed(estimate.high),
        });
        let few = NoComparison::FewSteps { with, without };
        Self {
            basis: Basis::Inferred,
            count: with,
            mean_ns: mean_ns(these),
            other_count: without,
            other_mean_ns: mean_ns(others),
            difference,
            missing: if difference.is_none() { Some(few.if_shown(shows_gc)) } else { None },
        }
    }
}

/// A comparison of the median lengths of two kinds of steps.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MedianComparison {
    /// Basis of `difference`: inferred, as every comparison of means.
    pub basis: Basis,
    /// Number of steps of the kind in question.
    pub count: u64,
    /// Their median length, in ns; `null` if there are none.
    pub median_ns: Option<u64>,
    /// Number of steps to compare with.
    pub other_count: u64,
    /// Their median length, in ns; `null` if there are none.
    pub other_median_ns: Option<u64>,
    /// How much longer the former are, by their medians; `null` if there are too few steps.
    pub difference: Option<MedianDifference>,
    /// Why `difference` is `null`, as text.
    pub missing: Option<NoComparison>,
}

impl MedianComparison {
    /// As [`StepComparison::of`].
    pub(super) fn of(mut after: Vec<u64>, mut others: Vec<u64>, shows_gc: bool) -> Self {
        let lengths = |steps: &[u64]| steps.iter().map(|ns| *ns as f64).collect::<Vec<f64>>();
        let estimate = bootstrap::median_difference(&lengths(&after), &lengths(&others));
        let difference = estimate.map(|estimate| MedianDifference {
            median_ns: signed(estimate.value),
            low_ns: signed(estimate.low),
            high_ns: signed(estimate.high),
        });
        let (count, other_count) = (after.len() as u64, others.len() as u64);
        let few = NoComparison::FewAfterFull { after: count, others: other_count };
        Self {
            basis: Basis::Inferred,
            count,
            median_ns: median_low(&mut after),
            other_count,
            other_median_ns: median_low(&mut others),
            difference,
            missing: if difference.is_none() { Some(few.if_shown(shows_gc)) } else { None },
        }
    }
}

/// A difference of medians with its 95 % confidence interval by bootstrap, as one of means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MedianDifference {
    /// Difference of the medians, in ns; negative: shorter.
    pub median_ns: i64,
    /// Lower end of the confidence interval, in ns.
    pub low_ns: i64,
    /// Upper end of the confidence interval, in ns.
    pub high_ns: i64,
}

impl MedianDifference {
    /// Whether the interval excludes 0.
    pub fn is_significant(&self) -> bool {
        self.low_ns > 0 || self.high_ns < 0
    }
}

/// A difference of means with its 95 % confidence interval by bootstrap (10,000 resamples with a
/// fixed seed, percentile method; Efron and Tibshirani, An Introduction to the Bootstrap, 1993;
/// its ends moved outwards for few steps, Hesterberg, The American Statistician 69, 2015).
/// More than 256 steps are first averaged to 256 batches of neighbors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepDifference {
    /// Difference of the means, in ns; negative: shorter.
    pub mean_ns: i64,
    /// Lower end of the confidence interval, in ns.
    pub low_ns: i64,
    /// Upper end of the confidence interval, in ns.
    pub high_ns: i64,
}

/// Why two kinds of steps are not compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoComparison {
    /// The trace would not show collections.
    UnknownCollections,
    /// Too few steps with or without a full collection.
    FewSteps {
        /// Steps with one.
        with: u64,
        /// Steps without one.
        without: u64,
    },
    /// Too few steps without a full collection follow one with a full collection.
    FewAfterFull {
        /// Steps that follow one.
        after: u64,
        /// Other steps without one.
        others: u64,
    },
}

impl fmt::Display for NoComparison {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = match *self {
            Self::UnknownCollections => {
                return formatter.write_str("whether the collector ran is not in the trace");
            }
            Self::FewSteps { with, without } => {
                [(with, "step", "with a full collection"), (without, "step", "without")]
            }
            Self::FewAfterFull { after, others } => {
                [(after, "step", "after a full collection"), (others, "other step", "without one")]
            }
        };
        let few = counts.iter().filter(|(count, ..)| *count < StepComparison::FEWEST as u64);
        let few: Vec<String> = few
            .map(|(count, what, kind)| match count {
                0 => format!("no {what} {kind}"),
                1 => format!("only 1 {what} {kind}"),
                _ => format!("only {count} {what}s {kind}"),
            })
            .collect();
        formatter.write_str(&few.join(", "))
    }
}

impl NoComparison {
    /// This; or else that the trace would not show collections.
    fn if_shown(self, shows_gc: bool) -> Self {
        if shows_gc { self } else { Self::UnknownCollections }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_name_the_counts_that_are_too_small() {
        for (why, sentence) in [
            (NoComparison::FewSteps { with: 1, without: 7 }, "only 1 step with a full collection"),
            (
                NoComparison::FewAfterFull { after: 1, others: 7 },
                "only 1 step after a full collection",
            ),
            (NoComparison::UnknownCollections, "whether the collector ran is not in the trace"),
            (
                NoComparison::FewSteps { with: 0, without: 2 },
                "no step with a full collection, only 2 steps without",
            ),
        ] {
            assert_eq!(why.to_string(), sentence);
        }
    }
}
