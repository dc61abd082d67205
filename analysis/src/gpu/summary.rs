//! From timelines to the report's part about GPU work.

use super::device::DeviceTimeline;
use super::kept::KeptTimeline;
use super::ranks::waits;
use super::ranks::waits::{BusyTimes, WaitEnds};
use super::replays::JobReplays;
use super::{devices, launching, ranks};
use crate::parallel;
use crate::report::{Basis, DeviceLaunching, DeviceReport, GpuWorkReport, IgnoredWork};
use std::num::NonZeroUsize;

/// The figures of one timeline that need all of its work.
struct TimelineWork {
    devices: Vec<DeviceReport>,
    launching: Vec<DeviceLaunching>,
    busy: BusyTimes,
}

impl TimelineWork {
    /// `waited`: when its operations stopped waiting for other ranks; `None` if it is in no job.
    fn of(kept: &KeptTimeline, waited: Option<&WaitEnds>) -> Self {
        let timeline = kept.whole();
        let works = DeviceTimeline::of(&timeline);
        Self {
            devices: works.iter().map(devices::report).collect(),
            launching: works.iter().filter_map(launching::of_device).collect(),
            busy: waited.map_or_else(BusyTimes::default, |ends| waits::busy(&timeline, ends)),
        }
    }
}

/// The report on timelines with GPU times; `None` if there are none. `replays`: of all of them.
/// `threads`: see [`parallel::map`].
pub(crate) fn report(
    timelines: &[&KeptTimeline],
    replays: &JobReplays,
    threads: NonZeroUsize,
) -> Option<GpuWorkReport> {
    if timelines.is_empty() {
        return None;
    }
    let waits = ranks::waits_of(timelines, &replays.found);
    let mut parts: Vec<(&KeptTimeline, Option<&WaitEnds>)> =
        timelines.iter().map(|kept| (*kept, None)).collect();
    for (at, ends) in ranks::wait_ends(&replays.found, &waits) {
        parts[at].1 = Some(ends);
    }
    let works = parallel::map(&parts, threads, |(kept, waited)| TimelineWork::of(kept, *waited));
    let (mut devices, mut launching, mut busy) = (Vec::new(), Vec::new(), Vec::new());
    for work in works {
        devices.extend(work.devices);
        launching.extend(work.launching);
        busy.push(work.busy);
    }
    Some(GpuWorkReport {
        basis: Basis::Measured,
        operations: timelines.iter().map(|kept| kept.ops() as u64).sum(),
        devices,
        idle: replays.ledgers.iter().flatten().cloned().collect(),
        launching: launching::report(launching),
        clocks: Vec::new(),
        not_merged: Vec::new(),
        ranks: ranks::report_of(timelines, replays, &waits, &busy),
        cause: replays.causes().cloned().collect(),
        not_replayed: replays.not_replayed,
        ignored: ignored(timelines),
    })
}

fn ignored(timelines: &[&KeptTimeline]) -> IgnoredWork {
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
