//! The sections on recorded GPU operations and on busy and idle time per device.

use super::clocks;
use crate::document::{Block, Section, Table, paragraph};
use crate::text::OrDash as _;
use crate::units::{count, duration, percent, short_count};
use gctrace_analysis::report::{
    CudaReport, DeviceId, DeviceReport, GpuWorkReport, Report, StreamReport,
};
use gctrace_event::GpuApi;
use std::cmp::Reverse;

/// Maximum number of devices shown; the others are in the JSON.
pub(crate) const DEVICES_SHOWN: usize = 16;
/// Maximum number of streams shown, the busiest first.
const STREAMS_SHOWN: usize = 6;

/// Busy and idle time per device, and per stream of a single device.
pub(crate) fn gpu_devices(report: &Report) -> Section {
    let mut blocks = Vec::new();
    if let Some(work) = report.gpu.as_ref()
        && !work.devices.is_empty()
    {
        blocks.extend(devices(work));
        if let [device] = work.devices.as_slice() {
            blocks.extend(streams(device));
        }
    }
    Section::new("GPU busy and idle time", blocks)
}

fn devices(work: &GpuWorkReport) -> Vec<Block> {
    let ids: Vec<DeviceId> = work.devices.iter().map(|device| device.id).collect();
    let share = |ratio: Option<f64>| ratio.map(percent).or_dash();
    let table = Table::of(work.devices.iter().take(DEVICES_SHOWN))
        .left("device", |device| name(device.id, &ids))
        .right("operations", |device| short_count(device.operations))
        .right("span", |device| duration(device.span_ns))
        .right("busy", |device| duration(device.busy_ns))
        .right("", |device| share(device.busy_ratio))
        .right("idle", |device| duration(device.idle_ns))
        .right("", |device| share(device.idle_ratio));
    let mut blocks = vec![table.into()];
    blocks.extend(more(work.devices.len(), DEVICES_SHOWN));
    blocks.push(paragraph(
        "Busy: a kernel, memcpy or memset ran on any stream; span: from the first to the last of \
         them (measured by the GPU).",
    ));
    blocks
}

/// `and 5 more (--format json lists more)`; `None` if all are shown.
pub(crate) fn more(all: usize, shown: usize) -> Option<Block> {
    let more = all.checked_sub(shown)?;
    if more == 0 {
        return None;
    }
    Some(paragraph(format!("and {} more (--format json lists more)", count(more as u64))))
}

/// A unique name for a device: with its rank, or else its process and trace, if needed.
pub(crate) fn name(id: DeviceId, all: &[DeviceId]) -> String {
    let same = |of: fn(&DeviceId) -> Option<u64>| all.iter().all(|other| of(other) == of(&id));
    let mut name = format!("GPU {}", id.device);
    let by_rank = all.iter().all(|other| other.rank.is_some());
    if let Some(rank) = id.rank
        && by_rank
        && !same(|id| id.rank.map(u64::from))
    {
        name += &format!(" of rank {rank}");
    } else if !same(|id| Some(u64::from(id.pid))) {
        name += &format!(" of process {}", id.pid);
    }
    let twice = all
        .iter()
        .filter(|other| (other.device, other.rank, other.pid) == (id.device, id.rank, id.pid));
    if twice.count() > 1 {
        name += &format!(" of trace {}", id.trace + 1);
    }
    name
}

fn streams(device: &DeviceReport) -> Vec<Block> {
    let mut busiest: Vec<&StreamReport> = device.streams.iter().collect();
    busiest.sort_by_key(|stream| (Reverse(stream.busy_ns), stream.stream));
    let table = Table::of(busiest.iter().take(STREAMS_SHOWN))
        .right("stream", |stream| stream.stream.to_string())
        .right("operations", |stream| short_count(stream.operations))
        .right("busy", |stream| duration(stream.busy_ns))
        .right("host wait", |stream| duration(stream.exact_idle_ns.host_wait))
        .right("kernel wait", |stream| duration(stream.exact_idle_ns.kernel_wait))
        .right("other", |stream| duration(stream.exact_idle_ns.other));
    let mut blocks = vec![table.into()];
    blocks.extend(more(busiest.len(), STREAMS_SHOWN));
    blocks.push(paragraph(
        "Idle time between operations of a stream: the next one was launched only after the last had \
         ended (host wait); launched in time and started within 30 µs (kernel wait); or started \
         later, for example because it waited for another stream (other).",
    ));
    blocks
}

/// The number of operations, and how traces were merged.
pub(crate) fn gpu_work(report: &Report) -> Section {
    let mut blocks = Vec::new();
    if let Some(work) = &report.gpu {
        blocks.push(paragraph(operations(work, report.cuda.as_ref())));
        blocks.extend(clocks::clocks(work, &report.traces));
    }
    Section::new("GPU work", blocks)
}

fn operations(work: &GpuWorkReport, cuda: Option<&CudaReport>) -> String {
    let unlinked = match work.ignored.operations_without_call {
        0 => String::new(),
        some => format!(
            " {} of them have no recorded call, so the launching thread is unknown.",
            count(some)
        ),
    };
    format!(
        "{} operations with GPU timestamps (measured by {}).{unlinked}",
        count(work.operations),
        match super::cuda::api(cuda) {
            GpuApi::Cuda => "CUPTI",
            GpuApi::Hip => "ROCm's tracer",
            GpuApi::LevelZero => "Intel's XPUPTI",
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(trace: usize, pid: u32, rank: Option<u32>, device: u32) -> DeviceId {
        DeviceId { trace, pid, rank, device }
    }

    #[test]
    fn device_names_are_unique() {
        let names = |all: &[DeviceId]| -> Vec<String> {
            all.iter().map(|device| name(*device, all)).collect()
        };
        assert_eq!(names(&[id(0, 9, None, 3)]), ["GPU 3"]);
        assert_eq!(
            names(&[id(0, 9, Some(0), 0), id(1, 9, Some(1), 1)]),
            ["GPU 0 of rank 0", "GPU 1 of rank 1"]
        );
        assert_eq!(
            names(&[id(0, 8, None, 0), id(0, 9, None, 0)]),
            ["GPU 0 of process 8", "GPU 0 of process 9"]
        );
        assert_eq!(
            names(&[id(0, 9, None, 0), id(1, 9, None, 0)]),
            ["GPU 0 of trace 1", "GPU 0 of trace 2"]
        );
    }
}
