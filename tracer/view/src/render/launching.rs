//! The section on launch latency and on how far the host runs ahead of the devices.

use super::gpu_devices::{DEVICES_SHOWN, more, name};
use crate::document::{Block, Section, Table, line, paragraph};
use crate::text::OrDash as _;
use crate::units::{duration, percent, short_count, three_digits};
use gctrace_analysis::report::{
    DepthPoint, DepthReport, DeviceId, DeviceLaunching, LaunchingReport, Report,
};

/// Minimum mean depth to draw: below it, the host is practically never ahead.
const MIN_MEAN: f64 = 0.01;
/// Bars of 0 to 8 eighths of a character cell.
/// Bars from empty to full.
pub(super) const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Launch latency and run-ahead per device.
pub(crate) fn launching(report: &Report) -> Section {
    let mut blocks = Vec::new();
    if let Some(work) = &report.gpu
        && let Some(launching) = &work.launching
    {
        blocks.extend(table(launching));
        blocks.extend(series(launching));
    }
    Section::new("Launch latency and run-ahead", blocks)
}

fn table(launching: &LaunchingReport) -> Vec<Block> {
    let ids: Vec<DeviceId> = launching.devices.iter().map(|device| device.id).collect();
    let of = |device: &DeviceLaunching, text: fn(&DepthReport) -> String| {
        device.waiting.as_ref().map(text).or_dash()
    };
    let table = Table::of(launching.devices.iter().take(DEVICES_SHOWN))
        .left("device", |device| name(device.id, &ids))
        .right("latency p50", |device| duration(device.latency.p50_ns))
        .right("p95", |device| duration(device.latency.p95_ns))
        .right("longest", |device| duration(device.latency.max_ns))
        .right("ahead", |device| of(device, |depth| mean(depth.mean)))
        .right("max", |device| of(device, |depth| short_count(depth.max)))
        .right("none", |device| of(device, |depth| percent(depth.zero_ratio)));
    let mut blocks = vec![table.into()];
    blocks.extend(more(launching.devices.len(), DEVICES_SHOWN));
    blocks.push(paragraph(
        "Latency: from the start of a launch to the start of its operation. Ahead: operations launched \
         but not started: mean over time, maximum, and share of time with none (measured). Enough of \
         them hide a pause from the GPU.",
    ));
    blocks
}

/// A mean number of operations.
fn mean(depth: f64) -> String {
    match depth {
        0.0 => "0".to_owned(),
        depth if depth >= 1000.0 => short_count(depth as u64),
        depth => three_digits(depth),
    }
}

/// Depth over time, for a single device.
fn series(launching: &LaunchingReport) -> Vec<Block> {
    let [device] = launching.devices.as_slice() else {
        return Vec::new();
    };
    let depth = match &device.waiting {
        Some(depth) if depth.mean >= MIN_MEAN => depth,
        _ => return Vec::new(),
    };
    let top = depth.series.iter().map(|point| point.mean);
    let top = top.fold(0.0, f64::max);
    let bars: String = depth.series.iter().map(|point| bar(point, top)).collect();
    vec![
        paragraph(format!("Ahead over the span (full bar: {}):", mean(top))),
        line(format!("[{bars}]")),
    ]
}

/// Rounded up, so that only 0 is drawn as empty.
fn bar(point: &DepthPoint, top: f64) -> char {
    let height = (point.mean / top.max(f64::MIN_POSITIVE) * 8.0).ceil() as usize;
    BARS.get(height).copied().unwrap_or('█')
}
