//! Columns of the process table: titles, widths, cells, and their fit.

use super::{text, theme};
use crate::text::OrDash as _;
use gctrace_analysis::figure::{Figure, Unit};
use gctrace_analysis::live::figure_table::{
    GPU_MEMORY, LAST, LONGEST, NET_CONTAINERS, OVERLAP, PAUSE_TIME, RESIDENT, SHARE, TURN_P99,
};
use gctrace_analysis::live::{GENERATIONS, ProcessFigures, Snapshot, ppm};
use ratatui::style::Style;

/// A column as it is shown.
pub(crate) struct ColumnDef {
    pub(crate) column: Column,
    /// Title in the head of the table.
    pub(crate) title: &'static str,
    /// Width in terminal cells; the history and the command may be wider.
    width: u16,
    /// Description for the help, at most 62 characters; `{of}` stands for the process.
    meaning: &'static str,
    /// The cell of a process; `None` if unknown. `processes.rs` draws the history.
    cell: fn(&ProcessFigures, &Snapshot) -> Option<String>,
    /// The figure that rows are sorted by; unknown values sort below all others. `rows.rs` compares
    /// texts.
    pub(crate) figure: fn(&ProcessFigures, &Snapshot) -> Option<u64>,
}

/// A column by its title, width, meaning, cell and figure; or by the figure that `analysis` declares, and
/// the part of a process that has it.
macro_rules! column {
    ($column:ident { $title:expr, $width:expr, $meaning:expr, $cell:expr, $figure:expr }) => {
        ColumnDef {
            column: Column::$column,
            title: $title,
            width: $width,
            meaning: $meaning,
            cell: $cell,
            figure: $figure,
        }
    };
    ($column:ident { $declared:ident $(, $part:ident)? }) => {
        column!($column {
            $declared.column.0,
            $declared.column.1,
            $declared.help,
            |process, _| cell_of(&$declared, &process$(.$part)?),
            |process, _| $declared.whole(&process$(.$part)?)
        })
    };
}

macro_rules! columns {
    ($($(#[$default:meta])? $column:ident $how:tt)*) => {
        /// A column of the table of processes.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) enum Column { $($(#[$default])? $column),* }

        /// All columns, in the order of [`Column`].
        pub(crate) const COLUMNS: [ColumnDef; [$(Column::$column),*].len()] =
            [$(column!($column $how)),*];
    };
}

// From left to right; rows are sorted by the default at first.
columns! {
    Rank { "RANK", 4, "rank in a distributed job",
        |process, _| process.rank.map(|rank| rank.to_string()),
        running_pause_ns }
    Pid { "PID", 7, "process id",
        |process, _| Some(process.pid.to_string()),
        running_pause_ns }
    #[default]
    Rate { "GC ms/s", 8, "time in collections, ms per second of the last interval",
        |process, snapshot| Some(rate(process, snapshot)),
        running_pause_ns }
    History { "LAST MIN", HISTORY, "GC ms/s over the last minute; steps: >0 1 5 10 20 50 100 250",
        |_, _| None,
        running_pause_ns }
    Share { SHARE }
    Pauses { "GC/s", 6, "collections per second",
        |process, snapshot| Some(text::rate(per_second(interval_pauses(process), snapshot))),
        |process, _| Some(interval_pauses(process)) }
    ByGeneration { "GEN0 GEN1 GEN2", 14, "collections per second by generation (4th: unknown)",
        |process, snapshot| Some(by_generation(process, snapshot)),
        |process, _| Some(interval_pauses(process)) }
    Last { LAST }
    Worst { LONGEST, collections }
    TurnP99 { TURN_P99 }
    Heap { "OBJECTS", 7, "objects that the collector tracks; >: oldest generation only",
        |process, _| heap(process),
        |process, _| Some(process.heap_objects?.count) }
    Busy { "GPU%", 4, "GPU busy time; ~: utilization sampled by NVML",
        busy,
        busy_percent }
    GpuMemory { GPU_MEMORY }
    Overlap { OVERLAP }
    Resident { RESIDENT }
    Pressure { NET_CONTAINERS }
    Device { "GPU", 5, "GPUs in use; c: CUDA index in the process",
        |process, _| devices(process),
        running_pause_ns }
    Interpreter { "PYTHON", 8, "CPython version",
        |process, _| (!process.interpreter.is_empty()).then(|| text::clean(&process.interpreter)),
        running_pause_ns }
    Total { PAUSE_TIME, collections }
    Command { "COMMAND", COMMAND, "command line without interpreter and directories",
        |process, _| Some(command(process)),
        running_pause_ns }
}

/// Columns in the order of getting room; all of these fit a screen of 80 columns.
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

/// Additional columns on wider screens, in the order of getting room.
const EXTRA: [Column; 11] = [
    Column::TurnP99,
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
/// Screen widths with a wider history, and its width there.
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

impl ColumnDef {
    /// Its description as a part of a sentence.
    pub(crate) fn meaning(&self) -> String {
        let meaning = self.meaning.replace("{of}", "the process");
        let is_word = matches!(meaning.chars().nth(1), Some(second) if !second.is_uppercase());
        match meaning.split_at_checked(1) {
            Some((first, rest)) if is_word => first.to_lowercase() + rest,
            _ => meaning,
        }
    }
}

impl Column {
    /// The definition of this column.
    pub(crate) fn def(self) -> &'static ColumnDef {
        &COLUMNS[self as usize]
    }

    /// Whether cells are left-aligned: text and the history; figures are right-aligned.
    pub(crate) fn is_left(self) -> bool {
        matches!(self, Self::Command | Self::History | Self::Interpreter)
    }

    /// Width on a screen of this width.
    fn width_on(self, screen: u16) -> u16 {
        let wider = match self {
            Self::History => WIDE.iter().find(|(from, _)| screen >= *from),
            Self::Command if screen >= COMMAND_WIDE.0 => Some(&COMMAND_WIDE),
            _ => None,
        };
        if let Some((_, columns)) = wider { *columns } else { self.def().width }
    }

    /// Whether any process has a value for it. Empty columns are hidden.
    fn is_needed(self, snapshot: &Snapshot) -> bool {
        let any = |has: fn(&ProcessFigures) -> bool| snapshot.processes.iter().any(has);
        match self {
            Self::Rank => any(|process| process.rank.is_some()),
            Self::Device | Self::GpuMemory => any(|process| !process.gpus.is_empty()),
            Self::Busy => any(|process| !process.gpus.is_empty()) || !snapshot.gpus.is_empty(),
            Self::Overlap => any(|process| process.gpus.iter().any(|gpu| gpu.busy.is_some())),
            Self::Pressure => any(|process| NET_CONTAINERS.whole(process).is_some()),
            Self::TurnP99 => any(|process| process.turns.is_some()),
            Self::Interpreter => any(|process| !process.interpreter.is_empty()),
            _ => true,
        }
    }
}

fn all() -> impl Iterator<Item = Column> {
    COLUMNS.iter().map(|def| def.column)
}

/// The columns that fit `width`, after scrolling `from` columns to the left. Rank and pid do not
/// scroll.
pub(crate) fn places(width: u16, from: usize, snapshot: &Snapshot) -> Vec<ColumnPosition> {
    let wanted = if from == 0 { by_importance(width, snapshot) } else { scrolled(from, snapshot) };
    let mut places = Vec::new();
    let mut x = 0_u16;
    for column in wanted {
        if x >= width {
            break;
        }
        let wide = match column {
            Column::Command => width,
            column => column.width_on(width),
        };
        let min = wide.min(width - x);
        places.push(ColumnPosition { column, x, width: min });
        // At most one past the width of the screen.
        x += min + 1;
    }
    places
}

/// Maximum number of columns that can be scrolled away.
pub(crate) fn most_scrolled(snapshot: &Snapshot) -> usize {
    // The command never moves out of the table.
    scrolling(snapshot).1.len() - 1
}

fn by_importance(width: u16, snapshot: &Snapshot) -> Vec<Column> {
    let mut chosen: Vec<Column> = Vec::new();
    let mut used = 0;
    let candidates = BASE.into_iter().chain(EXTRA);
    for column in candidates.filter(|column| column.is_needed(snapshot)) {
        let replaced = match column {
            Column::ByGeneration => Column::Pauses.def().width + 1,
            _ => 0,
        };
        let needed = column.width_on(width) + 1 - replaced;
        if chosen.is_empty() || used + needed <= width + 1 {
            used += needed;
            chosen.push(column);
        }
    }
    if chosen.contains(&Column::ByGeneration) {
        chosen.retain(|column| *column != Column::Pauses);
    }
    all().filter(|column| chosen.contains(column)).collect()
}

fn scrolled(from: usize, snapshot: &Snapshot) -> Vec<Column> {
    let (fixed, movable) = scrolling(snapshot);
    let shown = movable.into_iter().skip(from);
    fixed.into_iter().chain(shown).collect()
}

/// The fixed columns, and the scrolling ones.
fn scrolling(snapshot: &Snapshot) -> (Vec<Column>, Vec<Column>) {
    let needed = all().filter(|column| column.is_needed(snapshot));
    needed.partition(|column| matches!(column, Column::Rank | Column::Pid))
}

/// The cell of a column for a process, `-` if unknown.
pub(crate) fn cell(
    column: Column,
    process: &ProcessFigures,
    snapshot: &Snapshot,
) -> (String, Style) {
    let text = (column.def().cell)(process, snapshot);
    let style = match column {
        Column::Rate => theme::by_share(interval_ppm(process, snapshot)),
        Column::Share => theme::by_share(process.share_ppm),
        Column::Busy => theme::gpu(),
        _ => Style::new(),
    };
    (text.or_dash(), style)
}

/// The cell of a figure, by its unit.
fn cell_of<S>(figure: &Figure<S>, of: &S) -> Option<String> {
    let whole = figure.whole(of)?;
    Some(match figure.unit {
        Unit::Ns | Unit::At => text::brief(whole),
        Unit::Bytes => text::memory(whole),
        Unit::Ppm => text::percent(whole),
        Unit::Count | Unit::Ratio | Unit::Classes | Unit::Info => text::brief_count(whole),
    })
}

/// Share of the interval in pauses, in ppm.
pub(crate) fn interval_ppm(process: &ProcessFigures, snapshot: &Snapshot) -> u64 {
    // No interval has passed before the first snapshot.
    ppm(process.interval_pause_ns, snapshot.interval_ns).unwrap_or(0)
}

fn rate(process: &ProcessFigures, snapshot: &Snapshot) -> String {
    if process.ended.is_some() {
        return "ended".to_owned();
    }
    text::rate(interval_ppm(process, snapshot) as f64 / 1000.0)
}

/// Number of collections in the interval.
pub(crate) fn interval_pauses(process: &ProcessFigures) -> u64 {
    process.interval_pauses.iter().sum()
}

/// Converts a count of the interval to a rate per second.
pub(crate) fn per_second(count: u64, snapshot: &Snapshot) -> f64 {
    if snapshot.interval_ns == 0 {
        return 0.0;
    }
    count as f64 * 1e9 / snapshot.interval_ns as f64
}

/// `  40  3.1  0.2`, aligned with the title; with a fourth number if any generation is unknown.
fn by_generation(process: &ProcessFigures, snapshot: &Snapshot) -> String {
    let rate = |count| text::short_rate(per_second(count, snapshot));
    let [young, middle, old, unknown] = process.interval_pauses.map(rate);
    match process.interval_pauses[GENERATIONS - 1] {
        0 => format!("{young:>4} {middle:>4} {old:>4}"),
        _ => [young, middle, old, unknown].join(" "),
    }
}

fn heap(process: &ProcessFigures) -> Option<String> {
    let heap = process.heap_objects?;
    let at_least = if heap.all { "" } else { ">" };
    Some(format!("{at_least}{}", text::brief_count(heap.count)))
}

/// Percentage of the window with a running GPU operation of the process, or else NVML's utilization.
fn busy(process: &ProcessFigures, snapshot: &Snapshot) -> Option<String> {
    if let Some(ppm) = process.window_ppm(|exact| exact.busy_ns) {
        return Some(((ppm + 5_000) / 10_000).to_string());
    }
    let sampled = process.gpus.iter().filter_map(|gpu| {
        let index = gpu.nvml_index?;
        let figures = snapshot.gpus.iter().find(|gpu| gpu.index == index)?;
        figures.utilization_percent
    });
    sampled.max().map(|percent| format!("~{percent}"))
}

/// GPU busy time, in percent.
fn busy_percent(process: &ProcessFigures, snapshot: &Snapshot) -> Option<u64> {
    let text = busy(process, snapshot)?;
    text.trim_start_matches('~').parse::<u64>().ok()
}

/// Time in collections in the interval, of a process that runs.
fn running_pause_ns(process: &ProcessFigures, _: &Snapshot) -> Option<u64> {
    if process.ended.is_none() { Some(process.interval_pause_ns) } else { None }
}

fn devices(process: &ProcessFigures) -> Option<String> {
    let names = process.gpus.iter().map(|gpu| {
        let by_cuda = if gpu.by_nvml { "" } else { "c" };
        format!("{by_cuda}{}", gpu.device)
    });
    let names = names.collect::<Vec<_>>().join(",");
    if names.is_empty() { None } else { Some(names) }
}

fn command(process: &ProcessFigures) -> String {
    let line = text::command(&process.command);
    let Some(ended) = &process.ended else { return line };
    match (ended.code, ended.signal) {
        (_, Some(signal)) => format!("[killed by signal {signal}] {line}"),
        (Some(0), _) | (None, None) => format!("[ended] {line}"),
        (Some(code), _) => format!("[exit code {code}] {line}"),
    }
}
