//! PyTorch's memory by layer (`--layers`): the section, the sentence of the first screen, and the data that a page
//! draws.

use crate::document::{Block, Cell, Section, Table, line, paragraph};
use crate::print::clean;
use crate::text::OrDash as _;
use crate::units::{bytes, count, counted, duration, percent, three_digits};
use gctrace_analysis::report::{LayerReport, LayerTotals, LayersReport, ProcessReport, Report};
use gctrace_analysis::words::layers::{layers_in_short, marks, name, remarks};
use gctrace_analysis::{CommonClock, PausedProcess};
use serde::Serialize;

/// Rows shown of a process; the others are in the JSON.
const SHOWN: usize = 40;
/// Processes shown: ranks of a job are much alike.
const PROCESSES_SHOWN: usize = 4;
/// Characters of a line reserved for the columns beside the path, and at least for the path.
const BESIDE_PATH: usize = 58;
const LEAST_PATH: usize = 22;

/// The layers of each process, largest first.
pub(crate) fn layers(report: &Report) -> Section {
    let of =
        report.processes.iter().filter_map(|process| Some((process, process.layers.as_ref()?)));
    let all: Vec<(&ProcessReport, &LayersReport)> = of.collect();
    let mut blocks = Vec::new();
    for (at, (process, layers)) in all.iter().take(PROCESSES_SHOWN).enumerate() {
        if at > 0 {
            blocks.push(Block::Gap);
        }
        if all.len() > 1 {
            let rank = process.rank.map_or(String::new(), |rank| format!(", rank {rank}"));
            blocks.push(line(format!("Process {}{rank}", process.pid)));
        }
        blocks.extend(of_process(layers));
    }
    if let Some(more @ 1..) = all.len().checked_sub(PROCESSES_SHOWN) {
        blocks.push(paragraph(format!(
            "{} more: see --format json, or gctrace export --by layer.",
            counted(more as u64, "process"),
        )));
    }
    Section::new("Memory by layer (PyTorch)", blocks)
}

/// Memory held by the models of the process with the most, in a sentence: one of many ranks.
pub(crate) fn in_short(report: &Report) -> Option<String> {
    let of = report
        .processes
        .iter()
        .filter_map(|process| Some((process.rank, process.layers.as_ref()?)));
    let (rank, layers) = of.max_by_key(|(_, layers)| layers.totals.at_once())?;
    Some(layers_in_short(rank, layers))
}

fn of_process(layers: &LayersReport) -> Vec<Block> {
    let total = layers.totals;
    let mut blocks = vec![paragraph(format!(
        "{} measured, {}; step {} held the most: {} as its backward pass began{}. In MiB:",
        counted(layers.measured_steps, "step"),
        match layers.every {
            None => "of all".to_owned(),
            Some(1) => "each".to_owned(),
            Some(every) => format!("one in {} at last", count(every.into())),
        },
        count(layers.step),
        bytes(total.at_once()),
        over_time(layers),
    ))];
    blocks.push(table(&layers.layers, &total, SHOWN));
    let more = layers.layers.iter().skip(SHOWN).count();
    if more > 0 {
        blocks.push(paragraph(format!(
            "{} more: gctrace export --by layer.",
            counted(more as u64, "row")
        )));
    }
    // They are unknown for compiled modules.
    let gradients = match total.output_gradients {
        Some(gradients) if gradients > 0 => {
            format!(" Their gradients take {} in all, a layer's at a time.", bytes(gradients))
        }
        _ => String::new(),
    };
    blocks.push(paragraph(format!(
        "Saved: for the backward pass, without weights and buffers, each storage once, where it was first saved. \
         Outputs: what modules returned; what is saved too is in both.{gradients}{}",
        if total.buffers > 0 { format!(" Buffers: {}.", bytes(total.buffers)) } else { String::new() },
    )));
    for device in &layers.devices {
        blocks.push(paragraph(format!(
            "GPU {}: {} allocated ({} at peak), {} reserved ({} at peak); {} of it cached, {} of that in free \
             parts of blocks in use (fragmentation).",
            device.device,
            bytes(device.allocated),
            bytes(device.peak_allocated),
            bytes(device.reserved),
            bytes(device.peak_reserved),
            bytes(gctrace_units::beyond(device.reserved, device.allocated)),
            bytes(device.split),
        )));
    }
    blocks.extend(remarks(layers).iter().map(paragraph));
    let share = layers.cost_ratio.map_or(String::new(), |ratio| format!(", {}", percent(ratio)));
    blocks.push(paragraph(format!("Measuring took {}{share}.", duration(layers.cost_ns))));
    blocks
}

/// The first layers, and the sums of all.
pub(crate) fn table(layers: &[LayerReport], total: &LayerTotals, shown: usize) -> Block {
    let shown = layers.iter().take(shown);
    let size = |size: Option<u64>| match size {
        Some(0) => String::new(),
        size => size.map(mebibytes).or_dash(),
    };
    let rows = shown.map(Some).chain([None]);
    let figure = |of: fn(&LayerReport) -> Option<u64>, all: Option<u64>| {
        move |row: Option<&LayerReport>| size(if let Some(row) = row { of(row) } else { all })
    };
    let table = Table::of(rows)
        .left(
            "layer",
            |row: Option<&LayerReport>| {
                if let Some(row) = row { path(name(row)) } else { Cell::from("all") }
            },
        )
        .right("weights", figure(|row| Some(row.bytes.weights), Some(total.weights)))
        .right("grads", figure(|row| Some(row.bytes.gradients), Some(total.gradients)))
        .right("optim", figure(|row| Some(row.bytes.optimizer), Some(total.optimizer)))
        .right("saved", figure(|row| row.bytes.saved, total.saved))
        .right("outputs", figure(|row| row.bytes.outputs, total.outputs))
        .left("", |row: Option<&LayerReport>| row.map_or_else(String::new, about));
    table.into()
}

/// In MiB.
fn mebibytes(bytes: u64) -> String {
    match bytes as f64 / 1_048_576.0 {
        // Three digits would be wider than the column.
        small if small < 0.1 => format!("{small:.3}"),
        large if large >= 1e5 => count(large as u64),
        size => three_digits(size),
    }
}

/// The path of a layer, with room for a part.
fn path(name: String) -> Cell {
    Cell::fitted(move |width| end_of(&name, width.saturating_sub(BESIDE_PATH).max(LEAST_PATH)))
}

/// The last characters of a path: they distinguish layers.
fn end_of(path: &str, width: usize) -> String {
    let length = path.chars().count();
    match length.checked_sub(width) {
        Some(more @ 1..) => format!("…{}", path.chars().skip(more + 1).collect::<String>()),
        _ => path.to_owned(),
    }
}

/// How the sums changed over the measured steps.
fn over_time(layers: &LayersReport) -> String {
    let sums = layers.over_time.iter().map(|point| point.totals.at_once());
    match (sums.clone().min(), sums.max()) {
        (Some(least), Some(most)) if least < most => {
            format!(" ({} in the step with the least)", bytes(least))
        }
        _ => String::new(),
    }
}

/// Class, shape and special marks of a layer.
fn about(layer: &LayerReport) -> String {
    let shape = if let Some(shape) = &layer.shape { format!(" {shape}") } else { String::new() };
    let marks = marks(layer);
    let marks = if marks.is_empty() { marks } else { format!("; {marks}") };
    format!("{}{shape}{marks}", layer.type_name)
}

/// Maximum number of processes with drawn layers: ranks of a job are much alike.
const PROCESSES_DRAWN: usize = 4;
/// Tiles of a process; smaller layers are left out of the picture.
const TILES: usize = 300;

/// The layers of a process, in bytes by kind: weights, saved (`None` if unknown), gradients, optimizer state,
/// buffers.
#[derive(Serialize)]
pub(crate) struct LayersData {
    name: String,
    /// The step that held the most.
    step: u64,
    /// Of each layer its name, class and bytes; the largest first.
    layers: Vec<(String, String, [Option<u64>; 5])>,
    /// Of each measured step its end, number and bytes.
    steps: Vec<(u64, u64, [Option<u64>; 5])>,
}

impl LayersData {
    /// Of all processes with layers; `process_name` is theirs.
    pub(crate) fn of(
        report: &Report,
        clock: &CommonClock,
        process_name: fn(&PausedProcess) -> String,
    ) -> Vec<Self> {
        let with = report.processes.iter().filter_map(|process| {
            let measured = process.layers.as_ref()?;
            let held = measured.layers.iter().filter(|layer| layer.bytes.at_once() > 0);
            let layers = held.take(TILES).map(|layer| {
                (clean_of(&name(layer)), clean_of(&layer.type_name), kinds(&layer.bytes))
            });
            let steps = measured.over_time.iter().map(|point| {
                let at_ns = clock.after_start(process.trace, point.since_start_ns);
                (at_ns, point.step, kinds(&point.totals))
            });
            let of =
                PausedProcess { trace: process.trace, pid: Some(process.pid), rank: process.rank };
            Some(Self {
                name: process_name(&of),
                step: measured.step,
                layers: layers.collect(),
                steps: steps.collect(),
            })
        });
        with.filter(|data| !data.layers.is_empty()).take(PROCESSES_DRAWN).collect()
    }
}

fn clean_of(name: &str) -> String {
    clean::line(name).into_owned()
}

fn kinds(bytes: &LayerTotals) -> [Option<u64>; 5] {
    let LayerTotals { weights, saved, gradients, optimizer, buffers, .. } = *bytes;
    [Some(weights), saved, Some(gradients), Some(optimizer), Some(buffers)]
}
