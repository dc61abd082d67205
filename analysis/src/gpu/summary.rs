//! From timelines to the report's part about GPU work.

use super::device::DeviceTimeline;
use super::devices;
use super::gaps;
use super::launching;
use super::replays::JobReplays;
use super::timeline::Timeline;
use crate::report::Basis;
use crate::report::GpuWorkReport;
use crate::report::IgnoredWork;

/// The report on timelines with GPU times; `None` if there are none. `replays`: of all of them.
pub(crate) fn report(timelines: &[&Timeline], replays: &JobReplays) -> Option<GpuWorkReport> {
    if timelines.is_empty() {
        return None;
    }
    Some(GpuWorkReport {
        basis: Basis::Measured,
        operations: timelines
            .iter()
            .map(|timeline| timeline.ops.len() as u64)
            .sum(),
        devices: timelines
            .iter()
            .flat_map(|timeline| DeviceTimeline::of(timeline))
            .map(|work| devices::report(&work))
            .collect(),
        gaps: gaps::report(timelines),
        launching: launching::report(timelines),
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
