//! The section on allocations (`--alloc`).

use crate::document::{Block, Section, Table, paragraph};
use crate::units::short_count;
use gctrace_analysis::report::{AllocationsReport, Report, SizeClass};

/// Maximum number of processes shown; the others are in the JSON.
const PROCESSES_SHOWN: usize = 5;
/// Maximum number of lines and of size classes shown per process.
const LINES_SHOWN: usize = 5;

pub(crate) fn allocations(report: &Report) -> Section {
    let with: Vec<_> = report
        .processes
        .iter()
        .filter_map(|process| Some((process.pid, process.allocations.as_ref()?)))
        .collect();
    let several = with.len() > 1;
    let mut blocks = Vec::new();
    for (pid, allocations) in with.into_iter().take(PROCESSES_SHOWN) {
        let who = if several { format!("Process {pid}: ") } else { String::new() };
        let sentence = if allocations.exact { counted(allocations) } else { rate(allocations) };
        blocks.push(paragraph(format!("{who}{sentence}")));
        if !allocations.exact {
            blocks.push(paragraph(cost(allocations)));
        }
        blocks.push(paragraph(sizes(&allocations.sizes)));
        blocks.extend(places(allocations));
    }
    Section::new("Allocations", blocks)
}

/// For in-process recordings: they count every allocation.
fn counted(allocations: &AllocationsReport) -> String {
    let seen = short_count(allocations.allocations_seen);
    let rate = if let Some(rate) = allocations.per_cpu_s {
        let bytes = match allocations.bytes_per_cpu_s {
            Some(bytes) => format!(" and {:.3} GB", bytes / 1e9),
            None => String::new(),
        };
        format!(": {}{bytes} per second of CPU time", short_count(rate as u64))
    } else {
        String::new()
    };
    format!("{seen} allocations counted{rate}.")
}

fn rate(allocations: &AllocationsReport) -> String {
    let count = |rate: f64| short_count(rate as u64);
    match (allocations.per_cpu_s, allocations.relative_error) {
        (Some(rate), Some(error)) => {
            let bytes = match allocations.bytes_per_cpu_s {
                Some(bytes) => format!(", {:.3} GB", bytes / 1e9),
                None => String::new(),
            };
            let wall = if let Some(rate) = allocations.per_s {
                format!(" ({} per second of the recording)", count(rate))
            } else {
                String::new()
            };
            format!(
                "{} allocations{bytes} per second of CPU time{wall}, ±{:.1} %: {}.",
                count(rate),
                error * 100.0,
                allocations.basis
            )
        }
        _ => format!("The rate could not be estimated: {}.", allocations.basis),
    }
}

fn cost(allocations: &AllocationsReport) -> String {
    let cost = match allocations.cost_ratio {
        Some(cost) => format!("{:.2} %", cost * 100.0),
        None => "an unknown share".to_owned(),
    };
    format!(
        "{} allocations seen in {} windows; they cost {cost} of the CPU time (budget {:.2} %).",
        short_count(allocations.allocations_seen),
        allocations.windows,
        allocations.budget_ratio * 100.0
    )
}

fn sizes(classes: &[SizeClass]) -> String {
    let mut largest: Vec<&SizeClass> = classes.iter().collect();
    largest.sort_by(|a, b| b.share.total_cmp(&a.share));
    let words: Vec<String> = largest
        .iter()
        .take(LINES_SHOWN)
        .map(|class| {
            let size = match class.up_to_bytes {
                Some(bytes) => format!("up to {bytes} bytes"),
                None => "unknown size".to_owned(),
            };
            format!("{size} {:.0} %", class.share * 100.0)
        })
        .collect();
    format!("Sizes: {}.", words.join(", "))
}

fn places(allocations: &AllocationsReport) -> Option<Block> {
    if allocations.lines.is_empty() {
        return None;
    }
    let table = Table::of(allocations.lines.iter().take(LINES_SHOWN))
        .right("allocations", |line| {
            format!("{:.0} % ± {:.0}", line.share * 100.0, line.standard_error * 100.0)
        })
        .left("line", |line| match line.location.line {
            Some(number) => format!("{}:{number}", line.location.file),
            None => line.location.file.clone(),
        })
        .left("function", |line| line.location.function.clone());
    Some(table.into())
}
