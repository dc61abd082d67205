//! Columns of the process table: titles, widths, cells, and which of them fit.

use super::text;
use super::theme;
use gctrace_analysis::live::GENERATIONS;
use gctrace_analysis::live::ProcessFigures;
use gctrace_analysis::live::ProcessGpu;
use gctrace_analysis::live::Snapshot;
use ratatui::style::Style;

/// A column of the table of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    Rank,
    Pid,
    Rate,
    History,
    Share,
    Pauses,
    ByGeneration,
    Last,
    Worst,
    Heap,
    Busy,
    GpuMemory,
    Overlap,
    Resident,
    Pressure,
    Device,
    Interpreter,
    Total,
    Command,
}

/// All columns, from left to right; those without a value are hidden.
pub(crate) const ALL: [Column; 19] = [
    Column::Rank,
    Column::Pid,
    Column::Rate,
    Column::History,
    Column::Share,
    Column::Pauses,
    Column::ByGeneration,
    Column::Last,
    Column::Worst,
    Column::Heap,
    Column::Busy,
    Column::GpuMemory,
    Column::Overlap,
    Column::Resident,
    Column::Pressure,
    Column::Device,
    Column::Interpreter,
    Column::Total,
    Column::Command,
];

/// Columns in the order in which they get room; all of these fit a screen of 80 columns.
const BASE: [Column; 9] = [
    Column::Pid,
    Column::Rate,
    Column::Command,
    Column::Share,
    Column::Pauses,
    Column::Worst,
    Column::Rank,
    Column::Last,
    Column::History,
];

/// Additional columns on wider screens, in the order in which they get room.
const EXTRA: [Column; 10] = [
    Column::Heap,
    Column::Busy,
    Column::Resident,
    Column::ByGeneration,
    Column::Overlap,
    Column::Pressure,
    Column::GpuMemory,
    Column::Device,
    Column::Interpreter,
    Column::Total,
];

/// Minimum width of the command line; and on a screen of at least the first number of columns.
const COMMAND: u16 = 11;
const COMMAND_WIDE: (u16, u16) = (100, 16);
/// Width of the history: at most six seconds per cell.
const HISTORY: u16 = 10;
/// Screen widths from which the history is wider, and its width there.
const WIDE: [(u16, u16); 2] = [(180, 30), (150, 20)];

/// Where a column was drawn, for the mouse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ColumnPosition {
    /// The column that was drawn there.
    pub(crate) column: Column,
    /// Offset from the left edge of the table.
    pub(crate) x: u16,
    /// Width in terminal cells, as it was drawn.
    pub(crate) width: u16,
}

impl Column {
    /// Title in the head of the table.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Rank => "RANK",
            Self::Pid => "PID",
            Self::Rate => "GC ms/s",
            Self::History => "LAST MIN",
            Self::Share => "SHARE%",
            Self::Pauses => "GC/s",
            Self::ByGeneration => "GEN0 GEN1 GEN2",
            Self::Last => "LAST",
            Self::Worst => "WORST",
            Self::Heap => "OBJECTS",
            Self::Busy => "GPU%",
            Self::GpuMemory => "GPUMEM",
            Self::Overlap => "OVERLAP%",
            Self::Resident => "RSS",
            Self::Pressure => "~NET/s",
            Self::Device => "GPU",
            Self::Interpreter => "PYTHON",
            Self::Total => "GC TIME",
            Self::Command => "COMMAND",
        }
    }

    /// Description for the help, at most 62 characters.
    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Self::Rank => "rank in a distributed job",
            Self::Pid => "process id",
            Self::Rate => "time in collections, ms per second of the last interval",
            Self::History => "GC ms/s over the last minute; steps: >0 1 5 10 20 50 100 250",
            Self::Share => "share of wall time in collections, since first seen",
            Self::Pauses => "collections per second",
            Self::ByGeneration => "collections per second by generation (4th: unknown)",
            Self::Last => "length of the last collection",
            Self::Worst => "length of the longest collection",
            Self::Heap => "objects that the collector tracks; >: oldest generation only",
            Self::Busy => "GPU busy time; ~: utilization sampled by NVML",
            Self::GpuMemory => "GPU memory of the process (NVML)",
            Self::Overlap => "GPU idle time during collections: overlap, not cause",
            Self::Resident => "resident memory",
            Self::Pressure => "net containers per second; inferred from collections",
            Self::Device => "GPUs in use; c: CUDA index in the process",
            Self::Interpreter => "CPython version",
            Self::Total => "time in collections, since first seen",
            Self::Command => "command line without interpreter and directories",
        }
    }

    fn width(self) -> u16 {
        match self {
            Self::Rank | Self::Busy => 4,
            Self::Device => 5,
            Self::Pauses | Self::GpuMemory => 6,
            Self::Share | Self::Pid | Self::Last | Self::Worst | Self::Heap | Self::Pressure => 7,
            Self::Resident => 6,
            Self::Total => 7,
            Self::Rate | Self::Overlap | Self::Interpreter => 8,
            Self::History => HISTORY,
            Self::ByGeneration => 14,
            Self::Command => COMMAND,
        }
    }

    /// Whether cells are left-aligned: text and the history; figures are right-aligned.
    pub(crate) fn is_left(self) -> bool {
        matches!(self, Self::Command | Self::History | Self::Interpreter)
    }

    /// Whether any process has a value for it. Empty columns are hidden.
    fn is_needed(self, snapshot: &Snapshot) -> bool {
        let any = |has: fn(&ProcessFigures) -> bool| snapshot.processes.iter().any(has);
        match self {
            Self::Rank => any(|process| process.rank.is_some()),
            Self::Device | Self::GpuMemory => any(|process| !process.gpus.is_empty()),
            Self::Busy => any(|process| !process.gpus.is_empty()) || !snapshot.gpus.is_empty(),
            Self::Overlap => any(|process| process.gpus.iter().any(|gpu| gpu.busy.is_some())),
            Self::Pressure => any(|process| {
                let pressure = process.pressure;
                pressure.is_some_and(|pressure| pressure.net_containers_per_second.is_some())
            }),
            Self::Interpreter => any(|process| !process.interpreter.is_empty()),
            _ => true,
        }
    }
}

/// The columns that fit `width`, after scrolling `from` columns to the left. Rank and pid do not
/// scroll.
pub(crate) fn places(width: u16, from: usize, snapshot: &Snapshot) -> Vec<ColumnPosition> {
    let wanted = if from == 0 {
        by_importance(width, snapshot)
    } else {
        scrolled(from, snapshot)
    };
    let mut places = Vec::new();
    let mut x = 0_u16;
    for column in wanted {
        let left = width.saturating_sub(x);
        if left == 0 {
            break;
        }
        let own = match column {
            Column::Command => left,
            Column::History => history_width(width),
            column => column.width().min(left),
        };
        let own = own.min(left);
        places.push(ColumnPosition {
            column,
            x,
            width: own,
        });
        x = x.saturating_add(own).saturating_add(1);
    }
    places
}

/// Maximum number of columns that can be scrolled away.
pub(crate) fn most_scrolled(snapshot: &Snapshot) -> usize {
    let needed = ALL.into_iter().filter(|column| column.is_needed(snapshot));
    let movable = needed.filter(|column| !matches!(column, Column::Rank | Column::Pid));
    movable.count().saturating_sub(1)
}

fn command_width(width: u16) -> u16 {
    let (from, columns) = COMMAND_WIDE;
    if width >= from { columns } else { COMMAND }
}

fn history_width(width: u16) -> u16 {
    let wide = WIDE.iter().find(|(from, _)| width >= *from);
    wide.map_or(HISTORY, |(_, columns)| *columns)
}

fn by_importance(width: u16, snapshot: &Snapshot) -> Vec<Column> {
    let mut chosen: Vec<Column> = Vec::new();
    let mut used = 0_u16;
    let candidates = BASE.into_iter().map(|column| (column, true));
    for (column, base) in candidates.chain(EXTRA.into_iter().map(|column| (column, false))) {
        if !column.is_needed(snapshot) {
            continue;
        }
        let own = match column {
            Column::History => history_width(width),
            Column::Command => command_width(width),
            column => column.width(),
        };
        let mut needed = own.saturating_add(1);
        if column == Column::ByGeneration {
            needed = needed.saturating_sub(Column::Pauses.width() + 1);
        }
        if base && chosen.is_empty() || used.saturating_add(needed) <= width.saturating_add(1) {
            used = used.saturating_add(needed);
            chosen.push(column);
        }
    }
    if chosen.contains(&Column::ByGeneration) {
        chosen.retain(|column| *column != Column::Pauses);
    }
    ALL.into_iter()
        .filter(|column| chosen.contains(column))
        .collect()
}

fn scrolled(from: usize, snapshot: &Snapshot) -> Vec<Column> {
    let needed = ALL.into_iter().filter(|column| column.is_needed(snapshot));
    let (fixed, movable): (Vec<Column>, Vec<Column>) =
        needed.partition(|column| matches!(column, Column::Rank | Column::Pid));
    fixed
        .into_iter()
        .chain(movable.into_iter().skip(from))
        .collect()
}

/// The cell of a column for a process. `processes.rs` draws the history.
pub(crate) fn cell(
    column: Column,
    process: &ProcessFigures,
    snapshot: &Snapshot,
) -> (String, Style) {
    let plain = Style::new();
    match column {
        Column::Rank => (optional(process.rank.map(|rank| rank.to_string())), plain),
        Column::Pid => (process.pid.to_string(), plain),
        Column::Rate => rate_cell(process, snapshot),
        Column::History => (String::new(), plain),
        Column::Share => (
            text::percent(process.share_ppm),
            theme::by_share(process.share_ppm),
        ),
        Column::Pauses => {
            let all = process
                .interval_pauses
                .iter()
                .fold(0_u64, |sum, count| sum.saturating_add(*count));
            (text::rate(per_second(all, snapshot)), plain)
        }
        Column::ByGeneration => (by_generation(process, snapshot), plain),
        Column::Last => (
            optional(process.last.map(|last| text::brief(last.duration_ns))),
            plain,
        ),
        Column::Worst => (
            optional(process.worst.map(|worst| text::brief(worst.duration_ns))),
            plain,
        ),
        Column::Heap => (heap(process), plain),
        Column::Busy => (busy(process, snapshot), theme::gpu()),
        Column::GpuMemory => (optional(gpu_memory(process).map(text::memory)), plain),
        Column::Overlap => (optional(overlap_ppm(process).map(text::percent)), plain),
        Column::Resident => (optional(process.resident_bytes.map(text::memory)), plain),
        Column::Pressure => (pressure(process), plain),
        Column::Device => (devices(process), plain),
        Column::Interpreter if process.interpreter.is_empty() => ("-".to_owned(), plain),
        Column::Interpreter => (text::clean(&process.interpreter), plain),
        Column::Total => (text::brief(total_ns(process)), plain),
        Column::Command => command(process),
    }
}

fn optional(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

/// Share of the interval in pauses, in ppm.
pub(crate) fn interval_ppm(process: &ProcessFigures, snapshot: &Snapshot) -> u64 {
    let scaled = u128::from(process.interval_pause_ns).saturating_mul(1_000_000);
    let ppm = scaled
        .checked_div(u128::from(snapshot.interval_ns))
        .unwrap_or(0);
    u64::try_from(ppm).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn rate_cell(process: &ProcessFigures, snapshot: &Snapshot) -> (String, Style) {
    if process.ended.is_some() {
        return ("ended".to_owned(), theme::dim());
    }
    let ppm = interval_ppm(process, snapshot);
    (text::rate(ppm as f64 / 1000.0), theme::by_share(ppm))
}

/// Converts a count of the interval to a rate per second.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(crate) fn per_second(count: u64, snapshot: &Snapshot) -> f64 {
    if snapshot.interval_ns == 0 {
        return 0.0;
    }
    count as f64 * 1e9 / snapshot.interval_ns as f64
}

/// `  40  3.1  0.2`, aligned with the title; with a fourth number if any generation is unknown.
fn by_generation(process: &ProcessFigures, snapshot: &Snapshot) -> String {
    let unknown = process
        .interval_pauses
        .last()
        .is_some_and(|count| *count > 0);
    let shown = if unknown {
        GENERATIONS
    } else {
        GENERATIONS - 1
    };
    let rates = process.interval_pauses.iter().take(shown);
    let rates = rates.map(|count| text::short_rate(per_second(*count, snapshot)));
    let cells: Vec<String> = match unknown {
        true => rates.collect(),
        false => rates.map(|rate| format!("{rate:>4}")).collect(),
    };
    cells.join(" ")
}

fn heap(process: &ProcessFigures) -> String {
    optional(process.heap_objects.map(|heap| {
        let at_least = if heap.all { "" } else { ">" };
        format!("{at_least}{}", text::brief_count(heap.count))
    }))
}

/// Percentage of the window in which any GPU operation of the process ran, or else NVML's
/// utilization.
fn busy(process: &ProcessFigures, snapshot: &Snapshot) -> String {
    let exact = process.gpus.iter().filter_map(|gpu| gpu.busy);
    let (busy, window) = exact.fold((0_u64, 0_u64), |(busy, window), exact| {
        (
            busy.saturating_add(exact.busy_ns),
            window.saturating_add(exact.window_ns),
        )
    });
    if let Some(ppm) = ppm(busy, window) {
        return rounded(ppm);
    }
    let sampled = process.gpus.iter().filter_map(|gpu| {
        let index = gpu.nvml_index?;
        let figures = snapshot.gpus.iter().find(|gpu| gpu.index == index)?;
        figures.utilization_percent
    });
    optional(sampled.max().map(|percent| format!("~{percent}")))
}

/// `a` / `b` in ppm.
fn ppm(a: u64, b: u64) -> Option<u64> {
    let ppm = u128::from(a)
        .saturating_mul(1_000_000)
        .checked_div(u128::from(b))?;
    Some(u64::try_from(ppm).unwrap_or(u64::MAX))
}

fn rounded(ppm: u64) -> String {
    (ppm.saturating_add(5_000) / 10_000).to_string()
}

/// Memory of the process on all GPUs, in bytes.
pub(crate) fn gpu_memory(process: &ProcessFigures) -> Option<u64> {
    let known = process
        .gpus
        .iter()
        .filter_map(|gpu: &ProcessGpu| gpu.memory_bytes);
    known.reduce(u64::saturating_add)
}

/// Share of the window in which the GPU was idle while the process was in a pause, in ppm.
pub(crate) fn overlap_ppm(process: &ProcessFigures) -> Option<u64> {
    let exact = process.gpus.iter().filter_map(|gpu| gpu.busy);
    let (overlap, window) = exact.fold((0_u64, 0_u64), |(overlap, window), exact| {
        (
            overlap.saturating_add(exact.idle_in_gc_ns),
            window.saturating_add(exact.window_ns),
        )
    });
    ppm(overlap, window)
}

/// GPU busy time for sorting, in percent.
pub(crate) fn busy_ppm(process: &ProcessFigures, snapshot: &Snapshot) -> Option<u64> {
    let text = busy(process, snapshot);
    text.trim_start_matches('~').parse::<u64>().ok()
}

fn pressure(process: &ProcessFigures) -> String {
    let net = process
        .pressure
        .and_then(|pressure| pressure.net_containers_per_second);
    optional(net.map(text::brief_count))
}

fn devices(process: &ProcessFigures) -> String {
    let names = process.gpus.iter().map(|gpu| {
        let by_cuda = if gpu.by_nvml { "" } else { "c" };
        format!("{by_cuda}{}", gpu.device)
    });
    let names = names.collect::<Vec<_>>().join(",");
    if names.is_empty() {
        "-".to_owned()
    } else {
        names
    }
}

/// Time in collections since the process was first seen, in ns.
pub(crate) fn total_ns(process: &ProcessFigures) -> u64 {
    process
        .collections
        .pause_ns
        .iter()
        .fold(0, |sum, time| sum.saturating_add(*time))
}

fn command(process: &ProcessFigures) -> (String, Style) {
    let line = text::command(&process.command);
    match &process.ended {
        None => (line, Style::new()),
        Some(ended) => {
            let how = match (ended.code, ended.signal) {
                (_, Some(signal)) => format!("[killed by signal {signal}] "),
                (Some(0), _) | (None, None) => "[ended] ".to_owned(),
                (Some(code), _) => format!("[exit code {code}] "),
            };
            (how + &line, theme::dim())
        }
    }
}
