//! What pauses cost the run and what else leaves the GPU idle: what verdict and advice speak of.
//!
//! Owns no figure: it picks them from where they are computed.

use crate::accumulate::tally::ratio;
use crate::report::GpuWorkReport;
use crate::report::HostTime;
use crate::report::PauseTotal;

/// What the pauses of processes with GPU times cost, by replay. Pauses at interpreter shutdown are
/// not included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GpuCost {
    /// Length of the run.
    pub(crate) run_ns: u64,
    /// How much longer the run was because of them, in ns.
    pub(crate) cost_ns: u64,
    /// Error of the cost in ns; `None` if unknown.
    pub(crate) error_ns: Option<u64>,
    /// Count and time of the pauses.
    pub(crate) pauses: PauseTotal,
    /// The longest of them.
    pub(crate) longest_ns: u64,
}

impl GpuCost {
    /// Share of the run.
    pub(crate) fn ratio(&self) -> f64 {
        ratio(self.cost_ns, self.run_ns).unwrap_or(0.0)
    }
}

/// Idle time of the GPUs, and what the host did in most of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GpuIdle {
    /// Share of the GPUs' time between first and last operation.
    pub(crate) ratio: f64,
    /// What the host did in the largest part that is not garbage collection, to complete "the host
    /// ...".
    pub(crate) host: &'static str,
    /// Share of that part in the idle time.
    pub(crate) host_ratio: f64,
}

/// `None` where there are no gaps.
pub(crate) fn idle(work: &GpuWorkReport) -> Option<GpuIdle> {
    let gaps = work.gaps.as_ref()?;
    let spans = work.devices.iter().map(|device| device.span_ns);
    let span_ns = spans.fold(0, u64::saturating_add);
    let (host, host_ns) = classes(&gaps.host)
        .into_iter()
        .max_by_key(|(_, time_ns)| *time_ns)?;
    Some(GpuIdle {
        ratio: ratio(gaps.time_ns, span_ns)?,
        host,
        host_ratio: ratio(host_ns, gaps.time_ns)?,
    })
}

fn classes(host: &HostTime) -> [(&'static str, u64); 6] {
    [
        ("was launching late", host.launching_late_ns),
        ("was in synchronizing calls", host.synchronizing_ns),
        (
            "was in calls that copy or allocate memory",
            host.copy_or_allocation_ns,
        ),
        ("waited for data", host.waiting_for_data_ns),
        (
            "had already launched (launch latency, or streams waiting for each other)",
            host.launch_under_way_ns,
        ),
        ("did something that is not in the trace", host.unknown_ns),
    ]
}
