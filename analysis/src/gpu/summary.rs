//! From timelines to the report's part about GPU work.

use super::cause;
use super::device::DeviceTimeline;
use super::devices;
use super::gaps;
use super::launching;
use super::timeline::Timeline;
use crate::parallel;
use crate::report::Basis;
use crate::report::GpuWorkReport;
use crate::report::IgnoredWork;
use std::num::NonZeroUsize;

/// `None` if no trace contains operations with GPU times. `jobs`: timelines worked on at the same
/// time.
pub(crate) fn report(timelines: &[Timeline], jobs: NonZeroUsize) -> Option<GpuWorkReport> {
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
        devices: parallel::map(&timelines, jobs, |timeline| {
            let works = DeviceTimeline::of(timeline);
            works.iter().map(devices::report).collect::<Vec<_>>()
        })
        .concat(),
        gaps: gaps::report(&timelines, jobs),
        launching: launching::report(&timelines, jobs),
        clocks: Vec::new(),
        not_merged: Vec::new(),
        ranks: super::ranks::report(&timelines),
        cause: cause::report(&timelines, jobs),
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
