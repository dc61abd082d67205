//! The operations of one process on one device, and the gaps between them.
//!
//! Owns the definition of busy and idle: busy is the union over streams of kernels, memcpys and
//! memsets, idle the rest between the first start and the last end. While the host runs a function
//! for a stream, the device does nothing. All in nanoseconds, as in the trace.

use super::timeline::{Op, Timeline};
use crate::figure::DeviceId;
use crate::time::intervals::Intervals;
use gctrace_event::GpuOpKind;
use std::collections::BTreeMap;

/// The operations of a process on one device.
#[derive(Clone, Debug)]
pub(crate) struct DeviceTimeline<'a> {
    pub(crate) timeline: &'a Timeline,
    pub(crate) device: u32,
    /// By start; never empty.
    pub(crate) ops: Vec<&'a Op>,
}

/// An interval without an operation on any stream of the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceGap {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
}

impl DeviceGap {
    pub(crate) fn duration_ns(&self) -> u64 {
        self.end_ns - self.start_ns
    }
}

impl<'a> DeviceTimeline<'a> {
    /// One per device that the process used, by index.
    pub(crate) fn of(timeline: &'a Timeline) -> Vec<Self> {
        let mut by_device: BTreeMap<u32, Vec<&Op>> = BTreeMap::new();
        for op in timeline.ops.iter().filter(|op| op.kind != GpuOpKind::HostFunction) {
            if let Some(device) = timeline.device(op) {
                by_device.entry(device).or_default().push(op);
            }
        }
        let works = by_device.into_iter().map(|(device, mut ops)| {
            ops.sort_by_key(|op| op.start_ns);
            Self { timeline, device, ops }
        });
        works.collect()
    }

    /// Device and process, for the report.
    pub(crate) fn id(&self) -> DeviceId {
        DeviceId {
            trace: self.timeline.trace,
            pid: self.timeline.pid,
            rank: self.timeline.rank,
            device: self.device,
        }
    }

    /// First start and last end.
    pub(crate) fn span(&self) -> (u64, u64) {
        let first = self.ops[0].start_ns;
        let ends = self.ops.iter().map(|op| op.end_ns);
        (first, ends.fold(first, u64::max))
    }

    /// When it did something.
    pub(crate) fn busy(&self) -> Intervals {
        Intervals::from_iter(self.ops.iter().map(|op| op.span()))
    }

    /// When it did nothing, by start. Together they are as long as the span minus the busy time.
    pub(crate) fn gaps(&self) -> Vec<DeviceGap> {
        let mut gaps = Vec::new();
        let mut busy_until_ns = self.ops[0].end_ns;
        for op in &self.ops {
            if op.start_ns > busy_until_ns {
                gaps.push(DeviceGap { start_ns: busy_until_ns, end_ns: op.start_ns });
            }
            busy_until_ns = busy_until_ns.max(op.end_ns);
        }
        gaps
    }
}
