//! From timelines to the report's part about GPU work.

use super::device::DeviceTimeline;
use super::devices;
use super::gaps;
use super::launching;
use super::replays::JobReplays;
use super::timeline::Timeline;
use crate::parallel;
use crate::report::Basis;
use crate::report::GpuWorkReport;
use crate::report::IgnoredWork;
use std::num::NonZeroUsize;

/// The report on timelines with GPU times; `None` if there are none. `replays`: of all of them.
/// `threads`: see [`parallel::map`].
pub(crate) fn report(
    timelines: &[&Timeline],
    replays: &JobReplays,
    threads: NonZeroUsize,
) -> Option<GpuWorkReport> {
    if timelines.is_empty() {
        return None;
    }
    Some(GpuWorkReport {
        basis: Basis::Measured,
        operations: timelines
            .iter()
            .map(|timeline| timeline.ops.len() as u64)
            .sum(),
        devices: parallel::map(timelines, threads, |timeline| {
            let works = DeviceTimeline::of(timeline);
            works.iter().map(devices::report).collect::<Vec<_>>()
        })
        .concat(),
        gaps: gaps::report(timelines, threads),
        launching: launching::report(timelines, threads),
        clocks: Vec::new(),
        not_merged: Vec::new(),
        ranks: super::ranks::report_of(timelines, replays),
        cause: replays.causes().cloned().collect(),
        ignored: ignored(timelines),
    })
}

fn ignored(timelines: &[&Timeline]) -> IgnoredWork {
    let mut sum = IgnoredWork::default();
    for ignored in timelines.iter().map(|timeline| &timeline.ignored) {
        sum.operations_without_call += ignored.ops_without_call;
        sum.operations_before_call += ignored.ops_before_call;
        sum.nested_calls += ignored.nested_calls;
        sum.duplicates += ignored.duplicates;
        sum.operations_without_process += ignored.without_process;
    }
    sum
}
