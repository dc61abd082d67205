//! Idle time by the definitions of HolisticTraceAnalysis (HTA), for comparison with it.
//!
//! Owns both forms: as HTA 0.5.0 reports the figures (whole microseconds, without the last profiler
//! step), and by the same definitions in nanoseconds over all operations. The definitions are from
//! `hta/analyzers/breakdown_analysis.py`, `hta/utils/utils.py` and `hta/common/trace.py`.

use super::device::DeviceTimeline;
use super::timeline::{Call, NameIndex, Op, StepSource, StreamIndex, Timeline};
use crate::time::{later, signed};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// The figures of `get_temporal_breakdown` of HolisticTraceAnalysis 0.5.0, for comparison: starts
/// are rounded up and ends down to whole microseconds, and if the trace has at least two profiler
/// steps, operations launched in the last one are omitted. `span_ns`, `busy_ns` and `idle_ns` of
/// the device are exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TemporalBreakdown {
    /// `kernel_time` in ns: from the first start to the last end.
    pub span_ns: u64,
    /// `idle_time` in ns: the span minus the union of all operations.
    pub idle_ns: u64,
    /// `compute_time` in ns: the union of kernels that neither communicate (`nccl...Kernel`) nor
    /// move memory.
    pub compute_ns: u64,
    /// `non_compute_time` in ns: the rest of the span.
    pub non_compute_ns: u64,
    /// Number of operations in these figures.
    pub operations: u64,
    /// Number of omitted operations: launched in the last profiler step, or by no call of the
    /// trace.
    pub left_out: u64,
}

/// Idle time of a stream, in ns, by the cause of its next operation's wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StreamIdle {
    /// In ns: the launch started after the previous operation had ended.
    pub host_wait: u64,
    /// In ns: the operation was launched in time and started within 30 µs.
    pub kernel_wait: u64,
    /// In ns: the operation was launched in time and started later, for example because it waited
    /// for an event of another stream.
    pub other: u64,
}

/// A gap shorter than this after an operation that was launched in time is back-to-back launching:
/// `consecutive_kernel_delay` of HTA. Its documentation says 30 nanoseconds, but its times are
/// microseconds.
const BACK_TO_BACK_NS: i64 = 30_000;

/// An operation with rounded or exact times. Rounded to whole microseconds it may end before it
/// starts.
#[derive(Clone, Copy, Debug)]
struct TimedOp {
    start_ns: i64,
    end_ns: i64,
    /// Start of the call that launched it; `None` if unknown.
    launched_ns: Option<i64>,
    stream: StreamIndex,
    name: NameIndex,
}

impl TimedOp {
    fn exact(op: &Op, call: Option<&Call>) -> Self {
        Self {
            start_ns: signed(op.start_ns),
            end_ns: signed(op.end_ns),
            launched_ns: call.map(|call| signed(call.start_ns)),
            stream: op.stream,
            name: op.name,
        }
    }

    /// As by HTA's `round_down_time_stamps`: starts rounded up, ends down.
    fn rounded(op: &Op, call: Option<&Call>) -> Self {
        let (start, length) = (microseconds(op.start_ns), microseconds(op.duration_ns()));
        Self {
            start_ns: whole_ns(start.ceil()),
            end_ns: whole_ns((start + length).floor()),
            launched_ns: call.map(|call| whole_ns(microseconds(call.start_ns).ceil())),
            stream: op.stream,
            name: op.name,
        }
    }
}

/// The double that a reader of the trace gets: Unix times are exact to only a quarter of a
/// microsecond in it, and HTA rounds that.
fn microseconds(ns: u64) -> f64 {
    (ns / 1000) as f64 + (ns % 1000) as f64 / 1000.0
}

fn whole_ns(us: f64) -> i64 {
    (us as i64).saturating_mul(1000)
}

/// `get_temporal_breakdown` as HTA prints it; `None` where it would have no operation.
pub(crate) fn temporal(work: &DeviceTimeline<'_>) -> Option<TemporalBreakdown> {
    let ops = as_in_hta(work);
    if ops.is_empty() {
        return None;
    }
    let mut kinds = OpCategories::new(work.timeline);
    let (run_ns, span_ns) = merged(ops.iter());
    let compute = ops.iter().filter(|op| kinds.computes(op.name));
    let (compute_ns, _) = merged(compute);
    let idle_ns = span_ns - run_ns;
    Some(TemporalBreakdown {
        span_ns: positive(span_ns),
        idle_ns: positive(idle_ns),
        compute_ns: positive(compute_ns),
        non_compute_ns: positive(span_ns - compute_ns - idle_ns),
        operations: ops.len() as u64,
        left_out: (work.ops.len() - ops.len()) as u64,
    })
}

/// `get_idle_time_breakdown` as HTA prints it, by stream (index in the timeline).
pub(crate) fn printed_idle(work: &DeviceTimeline<'_>) -> BTreeMap<StreamIndex, StreamIdle> {
    idle_by_stream(&as_in_hta(work))
}

/// The same definitions over all operations, in nanoseconds.
pub(crate) fn exact_idle(work: &DeviceTimeline<'_>) -> BTreeMap<StreamIndex, StreamIdle> {
    let timeline = work.timeline;
    let exact = |op: &&Op| TimedOp::exact(op, timeline.call(op));
    let ops: Vec<TimedOp> = work.ops.iter().map(exact).collect();
    idle_by_stream(&ops)
}

/// The operations that HTA includes, with its times, by start. With two or more profiler steps it omits operations
/// launched in the last one, and operations without a call.
fn as_in_hta(work: &DeviceTimeline<'_>) -> Vec<TimedOp> {
    let timeline = work.timeline;
    let before_ns = last_step(timeline);
    let ops = work.ops.iter().filter_map(|op| {
        let call = timeline.call(op);
        let kept = match before_ns {
            Some(limit) => matches!(call, Some(call) if call.start_ns < limit),
            None => true,
        };
        if kept { Some(TimedOp::rounded(op, call)) } else { None }
    });
    let mut ops: Vec<TimedOp> = ops.collect();
    ops.sort_by_key(|op| op.start_ns);
    ops
}

/// Start of the last profiler step, if there are at least two of different numbers.
fn last_step(timeline: &Timeline) -> Option<u64> {
    let steps = || {
        let steps = timeline.steps.iter();
        steps.filter(|step| step.source == StepSource::ProfilerStep)
    };
    let first = steps().next()?;
    steps().find(|step| step.number != first.number)?;
    steps().map(|step| step.start_ns).max()
}

/// Sum of the lengths of merged operations, and the time from the first start to the last merged end. By HTA's rule
/// an operation joins earlier ones unless it starts after all of them ended.
fn merged<'a>(ops: impl Iterator<Item = &'a TimedOp>) -> (i64, i64) {
    let (mut run, mut first, mut group) = (0i64, None, None::<(i64, i64)>);
    for op in ops {
        first.get_or_insert(op.start_ns);
        group = Some(match group {
            Some((start, end)) if op.start_ns <= end => (start, end.max(op.end_ns)),
            Some((start, end)) => {
                run += end - start;
                (op.start_ns, op.end_ns)
            }
            None => (op.start_ns, op.end_ns),
        });
    }
    match (first, group) {
        (Some(first), Some((start, end))) => (run + (end - start), end - first),
        _ => (0, 0),
    }
}

/// Classes that HTA derives from names.
struct OpCategories<'a> {
    timeline: &'a Timeline,
    computes: HashMap<NameIndex, bool>,
}

impl<'a> OpCategories<'a> {
    fn new(timeline: &'a Timeline) -> Self {
        Self { timeline, computes: HashMap::new() }
    }

    fn computes(&mut self, name: NameIndex) -> bool {
        let timeline = self.timeline;
        let known = self.computes.entry(name);
        *known.or_insert_with(|| is_computation(timeline.names.text(name)))
    }
}

/// HTA's `get_kernel_type(name) == COMPUTATION`.
pub(crate) fn is_computation(name: &str) -> bool {
    let collective = matches!(name.strip_prefix("nccl"), Some(rest) if rest.contains("Kernel"));
    let memory = ["Memcpy", "Memset", "dma"].iter().any(|prefix| name.starts_with(prefix));
    !collective && !memory && !name.contains("Memcpy") && !name.contains("Sync")
}

fn idle_by_stream(ops: &[TimedOp]) -> BTreeMap<StreamIndex, StreamIdle> {
    let mut streams: BTreeMap<StreamIndex, (i64, [i64; 3])> = BTreeMap::new();
    for op in ops {
        let Some((previous_ns, [host_wait, kernel_wait, other])) = streams.get_mut(&op.stream)
        else {
            streams.insert(op.stream, (op.end_ns, [0; 3]));
            continue;
        };
        let gap_ns = op.start_ns - *previous_ns;
        let late = matches!(op.launched_ns, Some(at_ns) if at_ns > *previous_ns);
        match () {
            () if late => *host_wait = later(*host_wait, gap_ns),
            () if gap_ns < BACK_TO_BACK_NS => *kernel_wait = later(*kernel_wait, gap_ns),
            () => *other = later(*other, gap_ns),
        }
        *previous_ns = op.end_ns;
    }
    let idle = streams.into_iter().map(|(stream, (_, sums))| {
        let [host_wait, kernel_wait, other] = sums.map(positive);
        let idle = StreamIdle { host_wait, kernel_wait, other };
        (stream, idle)
    });
    idle.collect()
}

/// Sums are negative only where operations of a stream overlap.
fn positive(ns: i64) -> u64 {
    ns.max(0).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_by_name() {
        for (name, computes) in [
            ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", false),
            ("ncclKernel_AllGather", false),
            ("void nccl_helper()", true),
            ("Memcpy HtoD (Pageable -> Device)", false),
            ("Memset (Device)", false),
            ("my_Memcpy_kernel", false),
            ("SyncThreads", false),
            ("void at::native::vectorized_elementwise_kernel<4>", true),
        ] {
            assert_eq!(is_computation(name), computes, "{name}");
        }
    }

    #[test]
    fn rounding_is_inward() {
        let op = Op {
            start_ns: 10_200,
            end_ns: 12_900,
            stream: StreamIndex::new(0),
            name: NameIndex::new(0),
            call: None,
            kind: gctrace_event::GpuOpKind::Kernel,
            group: None,
            sequence: None,
        };
        let rounded = TimedOp::rounded(&op, None);
        assert_eq!((rounded.start_ns, rounded.end_ns), (11_000, 12_000));
        let short = Op { end_ns: 10_700, ..op };
        let rounded = TimedOp::rounded(&short, None);
        assert_eq!((rounded.start_ns, rounded.end_ns), (11_000, 10_000));
    }
}
