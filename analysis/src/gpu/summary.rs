//! From timelines to the report's part about GPU work.

use super::cause::CauseReport;
use super::device::DeviceTimeline;
use super::devices::DeviceReport;
use super::idle::IdleLedger;
use super::kept::KeptTimeline;
use super::launching::{DeviceLaunching, LaunchingReport};
use super::merge::{ClockReport, NotMerged};
use super::ranks::summary::RanksReport;
use super::ranks::waits;
use super::ranks::waits::{BusyTimes, WaitEnds};
use super::replays::{JobReplays, NotReplayed};
use super::timeline::IgnoredWork;
use super::{devices, launching, ranks};
use crate::figure::Basis;
use crate::parallel;
use serde::Serialize;
use std::num::NonZeroUsize;

/// What ran on the GPUs and what the pauses cost, from traces that contain operations with GPU
/// times.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuWorkReport {
    /// Measured by the GPU, through CUPTI.
    pub basis: Basis,
    /// Number of kernels, memcpys and memsets.
    pub operations: u64,
    /// How busy each device of each process was: ns, measured.
    pub devices: Vec<DeviceReport>,
    /// Why each device was idle: ns, inferred by replays. Empty if a process is too large for them.
    pub idle: Vec<IdleLedger>,
    /// How far the host was ahead of the devices: ns and operations, measured. `null` if no
    /// operation has a correlation id of a recorded call.
    pub launching: Option<LaunchingReport>,
    /// Traces of the PyTorch profiler that were merged with gctrace's trace of the same process.
    pub clocks: Vec<ClockReport>,
    /// Traces of the PyTorch profiler that could not be merged.
    pub not_merged: Vec<NotMerged>,
    /// Ranks of distributed jobs: ns, inferred. `null` if the traces contain fewer than two ranks.
    pub ranks: Option<RanksReport>,
    /// What the pauses cost, by replay: one entry for each process that used a GPU and ran the
    /// collector, by trace and process. ns, inferred.
    pub cause: Vec<CauseReport>,
    /// Why there are no costs of pauses although there were pauses; `null` if there are.
    pub not_replayed: Option<NotReplayed>,
    /// Records that these figures ignore, counted by reason.
    pub ignored: IgnoredWork,
}

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
        sum.operations_without_call += ignored.operations_without_call;
        sum.operations_before_call += ignored.operations_before_call;
        sum.nested_calls += ignored.nested_calls;
        sum.duplicates += ignored.duplicates;
        sum.operations_without_process += ignored.operations_without_process;
    }
    sum
}
