//! Two strips over time: the last steps, and GPU busy time, each with GC below; then why the GPU was
//! idle.

use super::{bar, plain, styled};
use crate::top::view::{text, theme};
use crate::units;
use gctrace_analysis::live::figure_table::OVERLAP;
use gctrace_analysis::live::{ProcessDetail, ProcessFigures, StepFigures, TimelineCell, ppm};
use gctrace_analysis::report::IdleCause;
use ratatui::text::{Line, Span};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Width of the labels on the left.
const LABEL: usize = 6;
/// Width of the legend on the right.
const WORDS: usize = 32;
/// Minimum time span of the GPU strip; wider screens show more. Below one second per column, so that
/// single long pauses are visible.
const SPAN_NS: u64 = 8_000_000_000;
/// A cause of less than this part of the time is not named.
const WORTH_NAMING: u64 = 200;
/// Minimum width for the legend.
const NARROW: usize = 60;

/// All lines, for a screen of `width` columns.
pub(super) fn lines(
    process: &ProcessFigures,
    detail: &ProcessDetail,
    width: usize,
) -> Vec<Line<'static>> {
    let words = if width < NARROW { 0 } else { WORDS };
    let room = text::rest(width, LABEL + words);
    let mut lines = steps(detail, room);
    lines.extend(timeline(process, detail, room));
    lines.extend(idle(process, width));
    lines
}

fn label(words: &str) -> Span<'static> {
    styled(text::fill(words, LABEL, true), theme::dim())
}

fn steps(detail: &ProcessDetail, room: usize) -> Vec<Line<'static>> {
    let shown = &detail.steps[text::rest(detail.steps.len(), room)..];
    let longest = shown.iter().map(|step| step.duration_ns).max();
    let (Some(last), Some(longest)) = (shown.last(), longest) else { return Vec::new() };
    let mut bars = vec![label("steps")];
    let mut marks = vec![label("GC")];
    for step in shown {
        let with_gc = step.pauses.time_ns > 0;
        let style = if with_gc { theme::warning() } else { theme::gpu() };
        bars.push(styled(bar(step.duration_ns, longest), style));
        let share = bar(step.pauses.time_ns, step.duration_ns);
        marks.push(styled(share, theme::warning()));
    }
    let (first, second) = step_words(detail, shown, last);
    bars.push(plain(format!("  {first}")));
    marks.push(plain(format!("  {second}")));
    vec![Line::from(bars), Line::from(marks)]
}

fn step_words(
    detail: &ProcessDetail,
    shown: &[StepFigures],
    last: &StepFigures,
) -> (String, String) {
    let basis = if let Some(source) = detail.step_basis { source.basis() } else { "step" };
    let first = format!("last {}: {}", basis, units::duration(last.duration_ns));
    let with_gc = shown.iter().filter(|step| step.pauses.count > 0).count();
    let second = format!(
        "GC in it: {}; in {with_gc} of {}",
        units::duration(last.pauses.time_ns),
        shown.len()
    );
    (first, second)
}

fn timeline(process: &ProcessFigures, detail: &ProcessDetail, room: usize) -> Vec<Line<'static>> {
    if detail.timeline.is_empty() || room == 0 || detail.cell_ns == 0 {
        return Vec::new();
    }
    let all = &detail.timeline;
    let together = ((SPAN_NS / detail.cell_ns) as usize).div_ceil(room).max(1);
    let shown = &all[text::rest(all.len(), together * room)..];
    let cells = shown.rchunks(together).rev();
    let cells = cells.map(|cells| StripCell::of(cells, detail.cell_ns));
    let cells: Vec<StripCell> = cells.collect();
    let mut lines = Vec::new();
    let exact = cells.iter().any(|cell| cell.busy.is_some());
    let sampled = cells.iter().any(|cell| cell.percent.is_some());
    let span = units::duration(detail.cell_ns * shown.len() as u64);
    if exact || sampled {
        let mut gpu = vec![label(if exact { "GPU" } else { "~GPU" })];
        gpu.extend(cells.iter().map(|cell| cell.gpu(exact)));
        gpu.push(plain(format!("  {}", gpu_words(process, exact))));
        lines.push(Line::from(gpu));
    }
    let mut gc = vec![label("GC")];
    let bars = cells.iter().map(|cell| bar(cell.gc_ns, cell.length_ns));
    gc.extend(bars.map(|bar| styled(bar, theme::warning())));
    gc.push(plain(format!("  last {span}, now on the right")));
    lines.push(Line::from(gc));
    lines
}

/// Overlap of idle time and GC does not imply cause; `gctrace analyze` determines that.
fn gpu_words(process: &ProcessFigures, exact: bool) -> String {
    match OVERLAP.whole(process) {
        Some(ppm) if exact => format!("idle in GC {} % (overlap)", text::percent(ppm)),
        _ if exact => "busy, by CUPTI".to_owned(),
        _ => "sampled by NVML".to_owned(),
    }
}

/// The idle share of time of a process's GPUs, by cause.
fn idle(process: &ProcessFigures, width: usize) -> Option<Line<'static>> {
    let gpus = process.gpus.iter().filter_map(|gpu| gpu.idle.as_ref());
    let whole_ns: u64 = gpus.clone().map(|idle| idle.window_ns).sum();
    let longest_ns = gpus.clone().map(|idle| idle.window_ns).max().filter(|ns| *ns > 0)?;
    let mut causes: BTreeMap<IdleCause, u64> = BTreeMap::new();
    for part in gpus.flat_map(|idle| &idle.causes) {
        *causes.entry(part.cause).or_default() += part.time_ns;
    }
    let share = |ns: u64| ppm(ns, whole_ns).map_or_else(String::new, text::percent);
    let mut largest: Vec<(IdleCause, u64)> = causes.into_iter().collect();
    largest.sort_by_key(|(cause, ns)| (Reverse(*ns), *cause));
    let shown = largest.iter().filter(|(_, ns)| *ns >= whole_ns / WORTH_NAMING);
    let parts = shown.map(|(cause, ns)| {
        // Waiting for data or another rank looks the same.
        let most = if *cause == IdleCause::Host { "up to " } else { "" };
        format!("{} {most}{} %", cause.as_ref().replace('_', " "), share(*ns))
    });
    let parts = parts.collect::<Vec<_>>().join(", ");
    let all = share(largest.iter().map(|(_, ns)| ns).sum());
    let span = units::duration(longest_ns);
    let words = format!("~{all} % of {span}: {parts}");
    let words = text::cut(&words, text::rest(width, LABEL));
    Some(Line::from(vec![label("idle"), plain(words)]))
}

/// Several adjacent cells, merged.
struct StripCell {
    length_ns: u64,
    gc_ns: u64,
    /// Busy time, and the total length of the cells with a known busy time.
    busy: Option<(u64, u64)>,
    percent: Option<u32>,
}

impl StripCell {
    fn of(cells: &[TimelineCell], cell_ns: u64) -> Self {
        let known = cells.iter().filter_map(|cell| cell.gpu_busy_ns);
        let busy = known.clone().sum();
        let reported = known.count() as u64;
        Self {
            length_ns: cell_ns * cells.len() as u64,
            gc_ns: cells.iter().map(|cell| cell.gc_ns).sum(),
            busy: if reported > 0 { Some((busy, cell_ns * reported)) } else { None },
            percent: cells.iter().filter_map(|cell| cell.gpu_utilization_percent).max(),
        }
    }

    /// The bar of GPU busy time; a dot if it is unknown.
    fn gpu(&self, exact: bool) -> Span<'static> {
        let bars = match (exact, self.busy, self.percent) {
            (true, Some((busy, length)), _) => bar(busy, length),
            (false, _, Some(percent)) => bar(u64::from(percent), 100),
            _ => return styled("·", theme::dim()),
        };
        styled(bars, theme::gpu())
    }
}
