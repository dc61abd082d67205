//! The objects that the collector frees in the selected process, and whether its heap grows, below its lines.

use super::{log, plain, styled};
use crate::text::OrDash as _;
use crate::top::view::{text, theme};
use crate::units;
use gctrace_analysis::live::{CycleFigures, ProcessDetail, ProcessFigures, TrendFigures};
use gctrace_analysis::report::GarbageEdge;
use gctrace_analysis::words::cycles;
use gctrace_event::KindName;
use ratatui::text::Line;

/// Characters before a kind or a cycle.
const BEFORE: usize = 17;

/// All lines, for a pane of `width` columns; empty if nothing is known.
pub(super) fn lines(
    process: &ProcessFigures,
    detail: &ProcessDetail,
    width: usize,
) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let grows = process.heap_trend.iter().flat_map(growth);
    lines.extend(grows);
    if !lines.is_empty()
        && let Some(line) = detail.born_at.as_ref()
    {
        lines.push(format!("born at {}", log::place(line, None, width)));
    }
    if let Some(freeze) = process.freeze
        && freeze.freed_since > 0
    {
        lines.push(format!(
            "Froze its heap, yet freed {} (inferred)",
            text::brief_count(freeze.freed_since)
        ));
    }
    let alarm = |line: String| Line::from(styled(text::cut(&line, width), theme::warning()));
    let mut lines: Vec<Line<'static>> = lines.into_iter().map(alarm).collect();
    if let Some(garbage) = &detail.garbage {
        let heading = format!("OBJECTS      /S  WHAT THE COLLECTOR FREES{}", share(process));
        lines.push(Line::from(styled(text::cut(&heading, width), theme::bold())));
        let room = text::rest(width, BEFORE);
        for count in &garbage.kinds {
            let births = match count.births.as_ref() {
                Some(births) => format!(" {}", cycles::births(births)),
                None => String::new(),
            };
            let what = format!("{}{births}", kind(&count.kind));
            lines.push(row(count.objects, count.per_second, &what, room));
        }
        if matches!(&garbage.cycles, Some(cycles) if !cycles.is_empty()) {
            let heading = text::cut(" CYCLES      /S  OF", width);
            lines.push(Line::from(styled(heading, theme::bold())));
        }
        for signature in garbage.cycles.iter().flatten() {
            lines.push(row(signature.count, signature.per_second, &cycle(signature), room));
        }
    }
    if !lines.is_empty() {
        lines.insert(0, Line::default());
    }
    lines
}

/// The share of freed objects that was examined, unless it is all of them.
fn share(process: &ProcessFigures) -> String {
    if let Some(part) = &process.garbage
        && part.examined_collected < part.collected
    {
        let ratio = part.examined_collected as f64 / part.collected.max(1) as f64;
        format!(" ({} EXAMINED)", units::percent(ratio))
    } else {
        String::new()
    }
}

fn row(count: u64, per_second: Option<f64>, what: &str, room: usize) -> Line<'static> {
    let count = text::fill(&text::brief_count(count), 7, false);
    let rate = per_second.map(text::short_rate).or_dash();
    let rate = text::fill(&rate, 7, false);
    let what = text::cut(&text::clean(what), room);
    Line::from(vec![plain(format!("{count} {rate}  {what}"))])
}

/// `train.py:10`, if the kind belongs to code.
fn place(kind: &KindName) -> Option<String> {
    let file = kind.file.as_deref()?;
    let name = file.rsplit('/').next().unwrap_or(file);
    Some(match kind.line {
        Some(line) => format!("{name}:{line}"),
        None => name.to_owned(),
    })
}

/// A kind, file and number first.
fn kind(kind: &KindName) -> String {
    let parts = [place(kind), Some(kind.type_name.clone()), kind.function.clone()];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    parts.join(" ")
}

/// The line of a cycle if it has one, its kind and its objects.
fn cycle(cycle: &CycleFigures) -> String {
    let edges = cycle
        .edges
        .iter()
        .map(|(kind, name)| GarbageEdge { kind: kind.clone(), name: Some(name.clone()) });
    let edges: Vec<GarbageEdge> = edges.collect();
    let place = cycle.edges.iter().find_map(|(kind, _)| place(kind));
    let place = if let Some(place) = place { format!("{place} ") } else { String::new() };
    let shape = cycles::shape(cycle.shape);
    format!("{place}{shape}: {}", cycles::path(&edges))
}

/// A warning that the heap grows, and until when; empty unless it grows for ten minutes: before, it may be set-up.
fn growth(trend: &TrendFigures) -> Vec<String> {
    let objects = trend.objects_rise.then(|| {
        let per_hour = trend.objects_per_hour.unwrap_or_default();
        format!("{} objects/h", text::brief_count(per_hour.max(0.0) as u64))
    });
    let memory = |per_hour: Option<f64>, rises: bool, of: &str| {
        let bytes = if rises { per_hour?.max(0.0) } else { return None };
        Some(format!("{}/h{of}", text::memory(bytes as u64)))
    };
    let resident = memory(trend.resident_bytes_per_hour, trend.resident_rises, "");
    let device = memory(trend.device_bytes_per_hour, trend.device_rises, " of the device");
    let grown: Vec<String> = objects.into_iter().chain(resident).chain(device).collect();
    if !trend.keeps_growing() {
        return Vec::new();
    }
    let what = match trend.outside_python {
        Some(true) => "Memory outside Python",
        _ => "Heap",
    };
    let mut lines = vec![format!("{what} grows {} (inferred)", grown.join(", "))];
    if let (Some(in_ns), Some(limit)) = (trend.reaches_limit_in_ns, trend.memory_limit_bytes) {
        lines.push(format!(
            "reaches {} in {} (predicted)",
            text::memory(limit),
            text::elapsed(in_ns)
        ));
    }
    lines
}
