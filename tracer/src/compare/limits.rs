//! The limits of `--fail-if`, for continuous integration.

use crate::args::{ChangeLimit, Increase};
use crate::judged::JudgedLimit;
use crate::units::{duration, three_digits};
use gctrace_analysis::compare::{Comparison, ComparisonNote, Interval};

/// Why the limits cannot be checked; `None` if they can.
pub(super) fn unchecked(comparison: &Comparison, limits: &[ChangeLimit]) -> Option<&'static str> {
    let one_run = comparison.notes.contains(&ComparisonNote::OneRun);
    if !one_run || limits.is_empty() {
        return None;
    }
    Some(
        "limits not checked: --fail-if needs several runs on each side, as the noise between runs \
         is unknown (gctrace compare --fail-if LIMIT A... -- B...)",
    )
}

/// Each limit, checked: exceeded if the whole interval is beyond it, where there is one.
pub(super) fn judged(comparison: &Comparison, limits: &[ChangeLimit]) -> Vec<JudgedLimit> {
    limits.iter().map(|limit| check(comparison, *limit)).collect()
}

fn check(comparison: &Comparison, limit: ChangeLimit) -> JudgedLimit {
    let name = limit.name;
    let found = comparison.figure(limit.figure);
    let found = found.map(|found| (found.difference, found.change_ratio));
    let Some((Some(difference), change_ratio)) = found else {
        return JudgedLimit {
            figure: name,
            is_exceeded: true,
            sentence: format!(
                "limit not checked, so it counts as exceeded: not all runs have {name}"
            ),
        };
    };
    let (grown, most, words): (Interval, f64, fn(f64) -> String) = match limit.most {
        Increase::Ratio(most) => match change_ratio {
            Some(ratio) => (ratio, most, percent),
            // Before, it was 0: anything is infinitely more.
            None => (difference, 0.0, |more| if more > 0.0 { "from 0" } else { "0" }.to_owned()),
        },
        Increase::Points(most) => (difference, most, points),
        Increase::Time(most) => (difference, most.as_secs_f64() * 1e9, time),
    };
    let least = grown.low.unwrap_or(grown.value);
    let is_exceeded = least > most;
    let interval = match (grown.low, grown.high) {
        (Some(low), Some(high)) => format!(" (95 %: {} to {})", words(low), words(high)),
        _ => String::new(),
    };
    let (outcome, limit) =
        if is_exceeded { ("exceeded", "more than") } else { ("kept", "at most") };
    JudgedLimit {
        figure: name,
        is_exceeded,
        sentence: format!(
            "limit {outcome}: {name} grew by {}{interval}, {limit} {}",
            words(grown.value),
            words(most)
        ),
    }
}

fn percent(ratio: f64) -> String {
    format!("{} %", three_digits(ratio * 100.0))
}

fn points(ratio: f64) -> String {
    format!("{} points", three_digits(ratio * 100.0))
}

fn time(ns: f64) -> String {
    let sign = if ns < 0.0 { "-" } else { "" };
    format!("{sign}{}", duration(ns.abs() as u64))
}
