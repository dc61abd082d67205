//! The sections on what ran on the GPUs.

use super::clocks;
use super::table::wrap;
use super::text::ReportSection;
use gctrace_analysis::report::GpuWorkReport;
use gctrace_analysis::report::Report;
use gctrace_analysis::units::count;

const INDENT: &str = "  ";

/// What the GPUs did, all in all.
pub(crate) fn gpu_work(report: &Report) -> ReportSection {
    let mut lines = Vec::new();
    if let Some(work) = &report.gpu {
        lines.extend(wrap(&operations(work), INDENT, INDENT));
        lines.extend(clocks::clocks(work, &report.traces));
    }
    ReportSection {
        heading: "GPU work",
        lines,
    }
}

fn operations(work: &GpuWorkReport) -> String {
    let unlinked = match work.ignored.operations_without_call {
        0 => String::new(),
        some => format!(
            " {} of them name no call of the trace: who launched them is not known.",
            count(some)
        ),
    };
    format!(
        "{} operations with the GPU's own times (measured by CUPTI).{unlinked}",
        count(work.operations)
    )
}
