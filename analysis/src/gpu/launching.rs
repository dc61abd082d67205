//! How far the host is ahead of the devices.
//!
//! Owns launch latency (from the start of a launch call to the start of its operation) and queue
//! depth (operations launched and not yet started, or not yet finished, over time).

use super::calls::CallEffect;
use super::device::DeviceTimeline;
use super::timeline::{Call, Op};
use crate::distribution::Distribution;
use crate::figure::{Basis, DeviceId};
use serde::Serialize;

/// How far the host is ahead of the devices. A pause shorter than the queued work costs nothing.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LaunchingReport {
    /// Always measured: calls on the host, operations by the GPU.
    pub basis: Basis,
    /// The figures by device of each process; devices without a recorded launch are omitted.
    pub devices: Vec<DeviceLaunching>,
}

/// How far the host was ahead of one device of one process.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceLaunching {
    /// The device, and the process that launched to it.
    #[serde(flatten)]
    pub id: DeviceId,
    /// Operations that these figures omit: their call is not in the trace, they started before it
    /// by the clocks of the trace, or they are not the first of their graph.
    pub left_out: u64,
    /// Launch latency: from the start of the launch call to the start of its operation.
    pub latency: LatencyReport,
    /// Operations launched and not started; `null` if the span of the device is empty.
    pub waiting: Option<DepthReport>,
    /// Queue depth: operations launched and not finished; `null` if the span of the device is
    /// empty.
    pub unfinished: Option<DepthReport>,
}

/// A distribution of launch latencies. Percentiles are by nearest rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LatencyReport {
    /// Number of operations in the distribution.
    pub count: u64,
    /// Shortest launch latency of an operation, in ns.
    pub min_ns: u64,
    /// 5th percentile of the launch latency, in ns.
    pub p5_ns: u64,
    /// Median of the launch latency, in ns.
    pub p50_ns: u64,
    /// 95th percentile of the launch latency, in ns.
    pub p95_ns: u64,
    /// 99th percentile of the launch latency, in ns.
    pub p99_ns: u64,
    /// Longest launch latency of an operation, in ns.
    pub max_ns: u64,
    /// Largest relative error of the percentiles; 0 if they are exact (up to 4,096 operations).
    pub percentile_error_ratio: f64,
}

/// A number of operations over time, between the first start and the last end on the device.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DepthReport {
    /// Mean number of operations, weighted by time.
    pub mean: f64,
    /// Largest number of operations at any time.
    pub max: u64,
    /// Time with this number at 0, in ns.
    pub zero_ns: u64,
    /// `zero_ns` as a share of the device's span, 0 to 1.
    pub zero_ratio: f64,
    /// The number over time, in at most 64 slices of equal length.
    pub series: Vec<DepthPoint>,
}

/// One slice of time of a series.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DepthPoint {
    /// Start of the slice, in ns after the start of the device's first operation.
    pub at_ns: u64,
    /// Mean number of operations in the slice, weighted by time.
    pub mean: f64,
    /// Largest number of operations at any time of the slice.
    pub max: u64,
}

/// Points of a series over time.
const POINTS: u64 = 64;

/// One entry per device; `None` without any.
pub(crate) fn report(devices: Vec<DeviceLaunching>) -> Option<LaunchingReport> {
    if devices.is_empty() {
        return None;
    }
    Some(LaunchingReport { basis: Basis::Measured, devices })
}

/// `None` where no operation names its call.
pub(crate) fn of_device(work: &DeviceTimeline<'_>) -> Option<DeviceLaunching> {
    let launched = launched(work);
    let latency = latency(&launched.ops)?;
    let (first_ns, last_ns) = work.span();
    let depth = |until: fn(&Op) -> u64| {
        let spans = launched.ops.iter();
        let spans = spans.map(|(call, op)| (call.start_ns, until(op)));
        depth(spans, first_ns, last_ns)
    };
    Some(DeviceLaunching {
        id: work.id(),
        left_out: launched.left_out,
        latency,
        waiting: depth(|op| op.start_ns),
        unfinished: depth(|op| op.end_ns),
    })
}

/// Operations with the call that launched them.
struct LaunchedOps<'a> {
    ops: Vec<(&'a Call, &'a Op)>,
    left_out: u64,
}

/// Operations without a call, or that started before it, are ignored. In a graph, all but the first wait for each
/// other, not for the host.
fn launched<'a>(work: &DeviceTimeline<'a>) -> LaunchedOps<'a> {
    let calls = &work.timeline.calls;
    let mut seen = vec![false; calls.len()];
    let mut ops = Vec::with_capacity(work.ops.len());
    for op in &work.ops {
        let Some(at) = op.call else { continue };
        let call = &calls[at];
        let seen = std::mem::replace(&mut seen[at.at()], true);
        let of_graph = call.kind == CallEffect::GraphLaunch && seen;
        if !of_graph && op.start_ns >= call.start_ns {
            ops.push((call, *op));
        }
    }
    let left_out = (work.ops.len() - ops.len()) as u64;
    LaunchedOps { ops, left_out }
}

/// `None` without operations.
fn latency(ops: &[(&Call, &Op)]) -> Option<LatencyReport> {
    let mut distribution = Distribution::default();
    let mut min_ns = u64::MAX;
    for (call, op) in ops {
        let latency_ns = op.start_ns - call.start_ns;
        min_ns = min_ns.min(latency_ns);
        distribution.add(latency_ns);
    }
    let [p5_ns, p50_ns, p95_ns, p99_ns] = distribution.percentiles([5.0, 50.0, 95.0, 99.0])?;
    Some(LatencyReport {
        count: distribution.count(),
        min_ns,
        p5_ns,
        p50_ns,
        p95_ns,
        p99_ns,
        max_ns: distribution.max()?,
        percentile_error_ratio: distribution.error_ratio(),
    })
}

/// The number of intervals that are open over time, between two times.
fn depth(
    intervals: impl Iterator<Item = (u64, u64)>,
    first_ns: u64,
    last_ns: u64,
) -> Option<DepthReport> {
    let mut changes: Vec<(u64, bool)> = Vec::new();
    for (start, end) in intervals {
        let (start, end) = (start.max(first_ns), end.min(last_ns));
        if start < end {
            changes.extend([(start, true), (end, false)]);
        }
    }
    // At equal times, ends before starts.
    changes.sort_unstable();
    let mut series = DepthSeries::new(first_ns, last_ns)?;
    let (mut at_ns, mut open) = (first_ns, 0u64);
    for (next_ns, starts) in changes {
        series.hold(at_ns, next_ns, open);
        if starts {
            open += 1
        } else {
            open -= 1
        }
        at_ns = next_ns;
    }
    series.hold(at_ns, last_ns, open);
    Some(series.report())
}

/// A depth over time, summed in slices.
struct DepthSeries {
    first_ns: u64,
    length_ns: u64,
    slices: Vec<DepthSlice>,
    zero_ns: u64,
}

/// Depth times nanoseconds, and the largest depth.
#[derive(Clone, Copy, Default)]
struct DepthSlice {
    area: u128,
    max: u64,
}

impl DepthSeries {
    /// `None` for no time at all.
    fn new(first_ns: u64, last_ns: u64) -> Option<Self> {
        if last_ns <= first_ns {
            return None;
        }
        let length_ns = last_ns - first_ns;
        let slices = POINTS.min(length_ns) as usize;
        Some(Self { first_ns, length_ns, slices: vec![DepthSlice::default(); slices], zero_ns: 0 })
    }

    /// Start of a slice, after the first.
    fn offset(&self, slice: usize) -> u64 {
        (u128::from(self.length_ns) * slice as u128 / self.slices.len() as u128) as u64
    }

    /// The depth between two times.
    fn hold(&mut self, from_ns: u64, to_ns: u64, depth: u64) {
        if from_ns >= to_ns {
            return;
        }
        if depth == 0 {
            self.zero_ns += to_ns - from_ns;
            return;
        }
        let (mut from, to) = (from_ns - self.first_ns, to_ns - self.first_ns);
        let slices = self.slices.len() as u128;
        let mut at = (u128::from(from) * slices / u128::from(self.length_ns)) as usize;
        while from < to {
            let end = self.offset(at + 1).min(to);
            if end > from {
                let slice = &mut self.slices[at];
                slice.area += u128::from(end - from) * u128::from(depth);
                slice.max = slice.max.max(depth);
            }
            from = end.max(from);
            at += 1;
        }
    }

    fn report(&self) -> DepthReport {
        let mean = |area: u128, ns: u64| area as f64 / ns.max(1) as f64;
        let area = self.slices.iter().map(|slice| slice.area).sum();
        let points = self.slices.iter().enumerate().map(|(at, slice)| {
            let (start, end) = (self.offset(at), self.offset(at + 1));
            DepthPoint { at_ns: start, mean: mean(slice.area, end - start), max: slice.max }
        });
        DepthReport {
            mean: mean(area, self.length_ns),
            max: self.slices.iter().map(|slice| slice.max).fold(0, u64::max),
            zero_ns: self.zero_ns,
            zero_ratio: self.zero_ns as f64 / self.length_ns as f64,
            series: points.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn depth_of_a_ladder() {
        let report = depth([(0, 30), (10, 20), (40, 40)].into_iter(), 0, 100).unwrap();
        assert_eq!((report.max, report.zero_ns), (2, 70));
        assert!((report.mean - 0.4).abs() < 1e-12);
        assert_eq!(report.series.len(), 64);
        assert!(depth([(3, 3)].into_iter(), 3, 3).is_none());
    }

    proptest! {
        #[test]
        fn depth_equals_a_count_per_tick(
            intervals in prop::collection::vec((0u64..400, 0u64..80), 0..40),
            first in 0u64..100,
            length in 1u64..400,
        ) {
            let intervals: Vec<(u64, u64)> =
                intervals.into_iter().map(|(start, length)| (start, start + length)).collect();
            let last = first + length;
            let report = depth(intervals.iter().copied(), first, last).unwrap();
            let open = |at: u64| {
                intervals.iter().filter(|(start, end)| *start <= at && at < *end).count() as u64
            };
            let depths: Vec<u64> = (first..last).map(open).collect();
            prop_assert_eq!(report.max, depths.iter().copied().max().unwrap());
            let zeros = depths.iter().filter(|depth| **depth == 0).count() as u64;
            prop_assert_eq!(report.zero_ns, zeros);
            let mean = depths.iter().sum::<u64>() as f64 / length as f64;
            prop_assert!((report.mean - mean).abs() < 1e-9);
            prop_assert!(report.series.len() <= 64);
        }
    }
}
