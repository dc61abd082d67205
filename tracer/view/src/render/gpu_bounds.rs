//! The section on bounds of the GPU cost of pauses, for traces with calls only.

use crate::document::{Block, Section, Table, paragraph};
use crate::text::{OrDash as _, mark};
use crate::units::{counted, duration, short_count};
use gctrace_analysis::report::{BoundsLimit, BoundsReport, BoundsRule, Report};

/// Maximum number of processes listed; the others are in the JSON.
const PROCESSES_SHOWN: usize = 8;

pub(crate) fn gpu_bounds(report: &Report) -> Section {
    let mut blocks = Vec::new();
    if let Some(bounds) = &report.gpu_bounds {
        blocks.push(paragraph(sentence(bounds)));
        blocks.push(rules(bounds));
        if bounds.processes.len() > 1 {
            blocks.extend(processes(bounds));
        }
        blocks.extend(limits(bounds).iter().map(paragraph));
    }
    Section::new("GPU time lost to pauses", blocks)
}

fn sentence(bounds: &BoundsReport) -> String {
    format!(
        "Between {} and {}{} of the {} in {}: inferred from the CUDA calls around each pause, as GPU \
         times were not recorded. The lower bound assumes that without the pause the program would \
         have continued at once.",
        duration(bounds.at_least_ns),
        duration(bounds.at_most_ns),
        mark(bounds.basis),
        duration(bounds.pauses.time_ns),
        counted(bounds.pauses.count, "pause"),
    )
}

fn rules(bounds: &BoundsReport) -> Block {
    let table = Table::of(&bounds.rules)
        .right("pauses", |rule| short_count(rule.pauses.count))
        .right("time", |rule| duration(rule.pauses.time_ns))
        .right("at least", |rule| duration(rule.at_least_ns))
        .right("at most", |rule| duration(rule.at_most_ns))
        .left("why", |rule| why(rule.rule).to_owned());
    table.into()
}

/// A rule in a few words, for the table.
fn why(rule: BoundsRule) -> &'static str {
    match rule {
        BoundsRule::GpuWasEmpty => "GPU idle before and after",
        BoundsRule::GpuStayedBusy => "GPU still busy after",
        BoundsRule::GpuFoundEmpty => "GPU idle after",
        BoundsRule::NoGpuWork => "no work before or after",
        BoundsRule::OtherThread => "on a thread without launches",
        BoundsRule::Unknown => "unknown",
    }
}

fn processes(bounds: &BoundsReport) -> Vec<Block> {
    let table = Table::of(bounds.processes.iter().take(PROCESSES_SHOWN))
        .right("rank", |process| process.rank.map(|rank| rank.to_string()).or_dash())
        .right("pid", |process| process.pid.to_string())
        .right("pauses", |process| duration(process.pauses.time_ns))
        .right("at least", |process| duration(process.at_least_ns))
        .right("at most", |process| duration(process.at_most_ns));
    let mut blocks = vec![table.into()];
    let more = bounds.processes.iter().skip(PROCESSES_SHOWN).count();
    if more > 0 {
        blocks.push(paragraph(format!(
            "and {} (--format json lists more)",
            counted(more as u64, "other process")
        )));
    }
    blocks
}

/// The reasons that kept pauses from being classified, without duplicates.
fn limits(bounds: &BoundsReport) -> Vec<String> {
    let mut limits: Vec<BoundsLimit> =
        bounds.processes.iter().filter_map(|process| process.limited_by).collect();
    limits.sort_unstable();
    limits.dedup();
    let limits = limits.into_iter();
    limits.map(|limit| format!("Pauses cannot be classified where {limit}.")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_analysis::Analysis;
    use gctrace_analysis::report::{Basis, PauseTotal, ProcessBounds, RuleBounds};

    #[test]
    fn the_section_has_bounds_and_reasons() {
        let mut report = Analysis::default().report();
        assert!(gpu_bounds(&report).is_empty());
        let pauses = PauseTotal { count: 3, time_ns: 9_000_000 };
        report.gpu_bounds = Some(BoundsReport {
            basis: Basis::Inferred,
            pauses,
            at_least_ns: 2_000_000,
            at_most_ns: 5_500_000,
            rules: vec![RuleBounds {
                rule: BoundsRule::GpuWasEmpty,
                pauses,
                at_least_ns: 2_000_000,
                at_most_ns: 5_500_000,
            }],
            processes: vec![ProcessBounds {
                trace: 0,
                pid: 7,
                rank: None,
                pauses,
                at_least_ns: 2_000_000,
                at_most_ns: 5_500_000,
                limited_by: Some(BoundsLimit::EventsLost),
            }],
        });
        let text = gpu_bounds(&report).text();
        assert!(text.contains("2.00 ms and 5.50 ms (inferred)"), "{text}");
        assert!(text.contains("GPU idle before and after"), "{text}");
        assert!(text.contains("events were lost"), "{text}");
    }
}
