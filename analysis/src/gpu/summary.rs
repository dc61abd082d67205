//! From timelines to the report's part about GPU work.

use super::cause;
use super::device::DeviceTimeline;
use super::devices;
use super::gaps;
use super::launching;
use super::timeline::Timeline;
use crate::report::Basis;
use crate::report::GpuWorkReport;
use crate::report::IgnoredWork;

/// `None` if no trace contains operations with GPU times.
pub(crate) fn report(timelines: &[Timeline]) -> Option<GpuWorkReport> {
    let timelines: Vec<&Timeline> = timelines
        .iter()
        .filter(|timeline| timeline.has_gpu_times())
        .collect();
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
        gaps: gaps::report(&timelines),
        launching: launching::report(&timelines),
        clocks: Vec::new(),
        not_merged: Vec::new(),
        ranks: super::ranks::report(&timelines),
        cause: cause::report(&timelines),
        ignored: ignored(&timelines),
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
