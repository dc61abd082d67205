//! The section on PyTorch's memory by layer (`--layers`).

use crate::document::{Block, Cell, Section, Table, line, paragraph};
use crate::text::OrDash as _;
use crate::units::{bytes, count, counted, duration, percent, three_digits};
use gctrace_analysis::report::{LayerReport, LayerTotals, LayersReport, ProcessReport, Report};
use gctrace_analysis::words::layers::{marks, name, remarks};

/// Rows shown of a process; the others are in the JSON.
const SHOWN: usize = 40;
/// Processes shown: ranks of a job are much alike.
const PROCESSES_SHOWN: usize = 4;
/// Characters of a line that are reserved for what is beside the path, and of the path at least.
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
    // Of what is compiled they are unknown.
    let gradients = total.output_gradients.filter(|gradients| *gradients > 0);
    let gradients = gradients.map_or(String::new(), |gradients| {
        format!(" Their gradients take {} in all, a layer's at a time.", bytes(gradients))
    });
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
        move |row: Option<&LayerReport>| size(row.map_or(all, of))
    };
    let table = Table::of(rows)
        .left("layer", |row: Option<&LayerReport>| {
            row.map_or_else(|| Cell::from("all"), |row| path(name(row)))
        })
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

/// The path of a layer, of which there is room for a part.
fn path(name: String) -> Cell {
    Cell::fitted(move |width| end_of(&name, width.saturating_sub(BESIDE_PATH).max(LEAST_PATH)))
}

/// The last characters of a path, which distinguish layers.
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

/// Class and shape of a layer, and what is special about it.
fn about(layer: &LayerReport) -> String {
    let shape = layer.shape.as_ref().map_or(String::new(), |shape| format!(" {shape}"));
    let marks = marks(layer);
    let marks = if marks.is_empty() { marks } else { format!("; {marks}") };
    format!("{}{shape}{marks}", layer.type_name)
}
