//! The limits of `--fail-if`, for continuous integration.

use crate::args::ReportLimit;
use crate::units::{duration, percent};
use gctrace_analysis::report::Report;
use std::time::Duration;

/// A sentence for each limit that the training phase exceeds, or whose figure the traces do not
/// contain: a check that cannot fail is worse than none.
pub(super) fn exceeded(report: &Report, limits: &[ReportLimit]) -> Vec<String> {
    limits.iter().filter_map(|limit| check(report, *limit)).collect()
}

fn check(report: &Report, limit: ReportLimit) -> Option<String> {
    let training = report.phases.as_ref().map(|phases| &phases.training);
    // Without any pause there are no phases.
    let quiet = report.totals.pauses.count == 0;
    match limit {
        ReportLimit::GcShare(limit) => {
            let share = training.and_then(|training| training.paused_ratio);
            match share.or(quiet.then_some(0.0)) {
                None => Some(unknown("gc_share")),
                Some(share) if share <= limit => None,
                Some(share) => Some(format!(
                    "limit exceeded: the collector paused {} of training, more than {}",
                    percent(share),
                    percent(limit)
                )),
            }
        }
        ReportLimit::Longest(limit) => {
            let longest = training.map(|training| training.longest_ns.unwrap_or(0));
            match longest.or(quiet.then_some(0)) {
                None => Some(unknown("longest")),
                Some(longest_ns) if Duration::from_nanos(longest_ns) <= limit => None,
                Some(longest_ns) => Some(format!(
                    "limit exceeded: the longest pause in training took {}, more than {}",
                    duration(longest_ns),
                    humantime::format_duration(limit)
                )),
            }
        }
    }
}

fn unknown(figure: &str) -> String {
    format!("limit not checked, so it counts as exceeded: these traces do not contain {figure}")
}
