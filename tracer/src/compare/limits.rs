//! The limits of `--fail-if`, for continuous integration.

use crate::args::{ChangeLimit, Increase};
use crate::units::{duration, three_digits};
use gctrace_analysis::compare::{Comparison, ComparisonNote, Interval};

/// Why the limits cannot be checked; `None` if they can.
pub(super) fn unchecked(comparison: &Comparison, limits: &[ChangeLimit]) -> Option<&'static str> {
    let one_run = comparison.notes.contains(&ComparisonNote::OneRun);
    (one_run && !limits.is_empty()).then_some(
        "limits not checked: --fail-if needs several runs on each side, as the noise between runs \
         is unknown (gctrace compare --fail-if LIMIT A... -- B...)",
    )
}

/// A sentence for each limit that is exceeded, with the whole interval where there is one, or whose
/// figure is unknown: a check that cannot fail is worse than none.
pub(super) fn exceeded(comparison: &Comparison, limits: &[ChangeLimit]) -> Vec<String> {
    let check = |limit: &ChangeLimit| check(comparison, *limit);
    limits.iter().filter_map(check).collect()
}

fn check(comparison: &Comparison, limit: ChangeLimit) -> Option<String> {
    let name = limit.name;
    let found = comparison.figure(limit.figure);
    let Some(difference) = found.and_then(|found| found.difference) else {
        return Some(format!(
            "limit not checked, so it counts as exceeded: not all runs have {name}"
        ));
    };
    let (grown, most, words): (Interval, f64, fn(f64) -> String) = match limit.most {
        Increase::Ratio(most) => match found.and_then(|found| found.change_ratio) {
            Some(ratio) => (ratio, most, percent),
            // Before, it was 0: anything is infinitely more.
            None if difference.value > 0.0 => (difference, 0.0, |_| "from 0".to_owned()),
            None => return None,
        },
        Increase::Points(most) => (difference, most, points),
        Increase::Time(most) => (difference, most.as_secs_f64() * 1e9, time),
    };
    let least = grown.low.unwrap_or(grown.value);
    (least > most).then(|| {
        let interval = match (grown.low, grown.high) {
            (Some(low), Some(high)) => format!(" (95 %: {} to {})", words(low), words(high)),
            _ => String::new(),
        };
        format!(
            "limit exceeded: {name} grew by {}{interval}, more than {}",
            words(grown.value),
            words(most)
        )
    })
}

fn percent(ratio: f64) -> String {
    format!("{} %", three_digits(ratio * 100.0))
}

fn points(ratio: f64) -> String {
    format!("{} points", three_digits(ratio * 100.0))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts of floats saturate"
)]
fn time(ns: f64) -> String {
    let sign = if ns < 0.0 { "-" } else { "" };
    format!("{sign}{}", duration(ns.abs() as u64))
}
