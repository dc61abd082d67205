//! The section on gaps: idle intervals of devices.

use super::cause::started_ns;
use super::evidence::after_start;
use super::gpu_devices::name;
use super::table::{INDENT, ReportSection, TextTable, cut, paragraph, width, wrap};
use crate::units::{counted, duration, percent};
use gctrace_analysis::report::{DeviceId, GapReport, GapsReport, HostTime, Report};

/// Maximum number of gaps shown; the report has twenty.
const GAPS_SHOWN: usize = 5;
/// Characters of a line that are reserved for the text beside an operation's name.
const BESIDE_NAME: usize = 14;
/// Minimum share of a gap for a class to be named.
const WORTH_NAMING: f64 = 0.1;

/// Descriptions of [`HostTime::classes`], in the same order.
const CLASSES: [&str; 8] = [
    "in a collection",
    "blocked by a collection on another thread",
    "synchronizing with the GPU",
    "in a copy or an allocation",
    "waiting for data",
    "past the launch (launch latency, or its stream waited)",
    "in other code: launched late",
    "unknown: the operation has no recorded call",
];

/// The sum of all gaps by what the host did, and the longest gaps.
pub(crate) fn gpu_gaps(report: &Report) -> ReportSection {
    let mut lines = Vec::new();
    let gaps = report.gpu.as_ref().and_then(|work| work.gaps.as_ref());
    if let Some(gaps) = gaps.filter(|gaps| gaps.count > 0) {
        lines.extend(sums(gaps));
        let ids: Vec<DeviceId> = gaps.devices.iter().map(|device| device.id).collect();
        for (at, gap) in gaps.longest.iter().take(GAPS_SHOWN).enumerate() {
            lines.extend(one_gap(at + 1, gap, &ids, started_ns(report, gap.id.trace)));
        }
    }
    ReportSection::new("GPU gaps", lines)
}

fn sums(gaps: &GapsReport) -> Vec<String> {
    let sentence = format!(
        "{}, {} in total (measured by the GPU). Meanwhile, the thread that launched the next \
         operation was (inferred from its calls and pauses):",
        counted(gaps.count, "gap"),
        duration(gaps.time_ns)
    );
    let mut lines = paragraph(&sentence);
    let mut table = TextTable::new(&["", "", ""], &[2]);
    let mut parts = named(gaps.host);
    parts.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
    for (ns, class) in parts {
        let share = percent(ns as f64 / gaps.time_ns.max(1) as f64);
        table.row(vec![duration(ns), share, class.to_owned()]);
    }
    // Skip the empty head.
    lines.extend(table.lines().into_iter().skip(1));
    if gaps.host.gc_ns.saturating_add(gaps.host.gc_on_other_thread_ns) > 0 {
        lines.extend(paragraph(
            "Collections overlap with these gaps, which does not make them the cause.",
        ));
    }
    lines
}

/// Classes with a nonzero time.
fn named(host: HostTime) -> Vec<(u64, &'static str)> {
    let parts = host.classes().into_iter().zip(CLASSES);
    parts.filter(|(ns, _)| *ns > 0).collect()
}

/// The threads that collected, unless only the launching thread did.
fn collecting(gap: &GapReport) -> String {
    if gap.collecting.iter().all(|tid| Some(*tid) == gap.tid) {
        return String::new();
    }
    let threads: Vec<String> = gap.collecting.iter().map(u32::to_string).collect();
    format!(" Collections ran on thread {}.", threads.join(", "))
}

fn one_gap(number: usize, gap: &GapReport, ids: &[DeviceId], started_ns: u64) -> Vec<String> {
    let mut parts = named(gap.host);
    parts.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
    let whole_ns = gap.duration_ns.max(1) as f64;
    let parts = parts
        .into_iter()
        .filter(|(ns, _)| *ns as f64 / whole_ns >= WORTH_NAMING)
        .map(|(ns, class)| format!("{} {class}", duration(ns)));
    let parts: Vec<String> = parts.collect();
    let on = match ids {
        [_] => String::new(),
        _ => format!(" on {}", name(gap.id, ids)),
    };
    let sentence = format!(
        "{number}. {} idle{on}, {} after start: {}.{}",
        duration(gap.duration_ns),
        after_start(gap.start_ns.saturating_sub(started_ns)),
        parts.join(", "),
        collecting(gap)
    );
    let mut lines = wrap(&sentence, INDENT, "     ");
    let operation = |what: &str, name: &str| {
        let name = match name {
            "" => "(no name)".to_owned(),
            name => cut(name, width() - BESIDE_NAME),
        };
        format!("     {what} {name}")
    };
    lines.push(operation("after ", &gap.before));
    lines.push(operation("before", &gap.after));
    lines
}
