//! The section on recorded GPU operations.

use super::clocks;
use super::section::{ReportSection, paragraph};
use crate::units::count;
use gctrace_analysis::report::{GpuWorkReport, Report};

/// The number of operations, and how traces were merged.
pub(crate) fn gpu_work(report: &Report) -> ReportSection {
    let mut lines = Vec::new();
    if let Some(work) = &report.gpu {
        lines.extend(paragraph(&operations(work)));
        lines.extend(clocks::clocks(work, &report.traces));
    }
    ReportSection::new("GPU work", lines)
}

fn operations(work: &GpuWorkReport) -> String {
    let unlinked = match work.ignored.operations_without_call {
        0 => String::new(),
        some => format!(
            " {} of them have no recorded call, so the launching thread is unknown.",
            count(some)
        ),
    };
    format!(
        "{} operations with GPU timestamps (measured by CUPTI).{unlinked}",
        count(work.operations)
    )
}
