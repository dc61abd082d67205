//! The section on allocation pressure.

use crate::document::{Block, Section, Table, paragraph};
use crate::text::rank_or_pid;
use crate::units::{mebibytes, short_count, three_digits};
use gctrace_analysis::report::{ArenasReport, Basis, PressureReport, ProcessReport, Report};

/// Maximum number of processes listed; the others are in the JSON.
const PROCESSES_SHOWN: usize = 10;

pub(crate) fn pressure(report: &Report) -> Section {
    let with: Vec<(&ProcessReport, &PressureReport)> = report
        .processes
        .iter()
        .filter_map(|process| Some((process, process.pressure.as_ref()?)))
        .collect();
    let mut blocks = Vec::new();
    if !with.is_empty() {
        blocks.push(table(report, &with));
        blocks.push(paragraph(legend(&with)));
    }
    Section::new("Allocation pressure", blocks)
}

fn table(report: &Report, with: &[(&ProcessReport, &PressureReport)]) -> Block {
    let arenas = with.iter().any(|(_, pressure)| pressure.arenas.is_some());
    let mut head = vec!["process", "net containers", "per second"];
    if arenas {
        head.extend(["arenas/s", "unmapped/s", "balance"]);
    }
    let mut table = Table::new(&head, &[]);
    let row = |name: String, pressure: &PressureReport| {
        let mut row = vec![
            name,
            short_count(pressure.net_containers),
            per_second(pressure.net_containers_per_s),
        ];
        if arenas {
            row.extend(arenas_cells(pressure.arenas.as_ref()));
        }
        row
    };
    for (process, pressure) in with.iter().take(PROCESSES_SHOWN) {
        table.row(row(rank_or_pid(process.rank, process.pid), pressure));
    }
    if with.len() > 1
        && let Some(all) = report.pressure.as_ref()
    {
        let mut sums = row(format!("all {}", with.len()), all);
        // Rates are not summed, as processes may have run at different times.
        for (column, cell) in sums.iter_mut().enumerate() {
            if matches!(column, 2..=4) {
                "-".clone_into(cell);
            }
        }
        table.row(sums);
    }
    table.into()
}

/// `1.23 M`, `812`, `0.35`.
fn per_second(rate: Option<f64>) -> String {
    match rate {
        None => "-".to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(rate) if rate >= 1000.0 => short_count(rate as u64),
        Some(rate) => three_digits(rate),
    }
}

fn arenas_cells(arenas: Option<&ArenasReport>) -> [String; 3] {
    let Some(arenas) = arenas else { return ["-", "-", "-"].map(str::to_owned) };
    let bytes = match arenas.balance_bytes {
        Some(bytes) => format!(" ({})", mebibytes(bytes as f64)),
        None => String::new(),
    };
    [
        per_second(arenas.mapped_per_s),
        per_second(arenas.unmapped_per_s),
        format!("{:+}{bytes}", arenas.balance),
    ]
}

fn legend(with: &[(&ProcessReport, &PressureReport)]) -> String {
    let mut text = vec![
        "Net containers: containers allocated minus containers freed between collections."
            .to_owned(),
    ];
    let inferred = with.iter().filter(|(_, pressure)| pressure.basis == Basis::Inferred);
    match inferred.count() {
        0 => {}
        all if all == with.len() => {
            text.push("Summed over the pauses in the trace (inferred).".to_owned());
        }
        some => text
            .push(format!("For {some} processes, summed over the pauses in the trace (inferred).")),
    }
    if with.iter().any(|(_, pressure)| pressure.arenas.is_some()) {
        text.push(
            "Arenas: blocks that the allocator for small objects maps and unmaps; balance: arenas \
             mapped minus unmapped."
                .to_owned(),
        );
    }
    text.join(" ")
}
