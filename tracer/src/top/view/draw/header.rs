//! The header: recording and elapsed time, the answer in one sentence, the GPUs.

use super::{ViewFrame, name, plain, styled, with_parts};
use crate::top::live_handle::LivePhase;
use crate::top::view::{columns, text, theme};
use crate::{clock, units};
use gctrace_analysis::live::{GpuFigures, ProcessFigures, Snapshot};
use gctrace_event::RecordingMode;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use std::time::Duration;

const NAME: &str = "gctrace top";

pub(super) fn lines(frame: &ViewFrame<'_>, screen: Rect) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if screen.height >= 4 {
        lines.push(about(frame, usize::from(screen.width)));
    }
    if screen.height >= 6 {
        lines.push(answer(frame, usize::from(screen.width)));
    }
    if screen.height >= super::WITH_GPUS && !frame.snapshot.gpus.is_empty() {
        lines.push(gpus(frame.snapshot, usize::from(screen.width)));
    }
    lines
}

/// Name, processes, elapsed time, mode and host; on the right the state, interval and time of day.
fn about(frame: &ViewFrame<'_>, width: usize) -> Line<'static> {
    let snapshot = frame.snapshot;
    let state = frame.state;
    let time = clock::time_of_day(snapshot.at_unix_ns, frame.utc_offset_s);
    let every = format!("every {}", text::seconds(state.interval));
    let (mark, style) = match frame.phase {
        LivePhase::Ended(_) => (" ENDED ", theme::reversed()),
        LivePhase::Recording if state.paused => (" PAUSED ", theme::reversed()),
        LivePhase::Recording => ("", theme::dim()),
    };
    let right = format!("  {every}  {time}");
    let fixed = text::width(NAME) + text::width(mark) + text::width(&right);
    let mut left = String::new();
    for part in parts(snapshot) {
        let longer = format!("{left} · {part}");
        if fixed + text::width(&longer) + 1 > width {
            break;
        }
        left = longer;
    }
    let gap = text::rest(width, fixed + text::width(&left));
    Line::from(vec![
        styled(NAME, theme::bold()),
        plain(left),
        plain(" ".repeat(gap)),
        styled(mark, style),
        styled(right, theme::dim()),
    ])
}

fn parts(snapshot: &Snapshot) -> Vec<String> {
    let processes = snapshot.processes.iter();
    let running = processes.filter(|process| process.ended.is_none()).count();
    let mut parts = vec![units::counted(running as u64, "process")];
    if snapshot.totals.ended > 0 {
        parts.push(format!("{} ended", units::count(snapshot.totals.ended)));
    }
    // 0 before the first snapshot.
    parts.push(text::elapsed(gctrace_units::duration_ns(snapshot.started_ns, snapshot.at_ns)));
    parts.push(match snapshot.mode {
        RecordingMode::Inject => "in-process".to_owned(),
        RecordingMode::Both => "eBPF, in-process".to_owned(),
        _ => "eBPF".to_owned(),
    });
    if !snapshot.host.is_empty() {
        parts.push(text::clean(&snapshot.host));
    }
    parts
}

/// The answer in one sentence.
fn answer(frame: &ViewFrame<'_>, width: usize) -> Line<'static> {
    let snapshot = frame.snapshot;
    if let (LivePhase::Ended(_), Some(whole)) = (frame.phase, in_the_end(snapshot)) {
        return whole;
    }
    let living = snapshot.processes.iter().filter(|process| process.ended.is_none());
    let Some(most) = living.max_by_key(|process| process.interval_pause_ns) else {
        return Line::from(plain(no_processes(frame)));
    };
    let spans = sentence(most, snapshot);
    with_parts(spans, more(snapshot, most), width)
}

/// The answer for the whole recording; `None` if no process is left in the snapshot.
fn in_the_end(snapshot: &Snapshot) -> Option<Line<'static>> {
    let processes = snapshot.processes.iter();
    let most = processes.max_by_key(|process| process.share_ppm)?;
    let share = format!("{} %", text::percent(most.share_ppm));
    let worst = most.worst.map(|worst| units::duration(worst.duration_ns));
    let worst = if let Some(worst) = worst { format!(" · worst {worst}") } else { String::new() };
    let of = format!(" of the wall time of {}{worst}", name(most));
    Some(Line::from(vec![
        plain("GC took "),
        styled(share, theme::bold().patch(judged(most.share_ppm))),
        plain(of),
    ]))
}

/// Green if the share is negligible.
fn judged(ppm: u64) -> Style {
    match theme::by_share(ppm) {
        style if style == Style::new() => theme::good(),
        style => style,
    }
}

fn no_processes(frame: &ViewFrame<'_>) -> &'static str {
    match (frame.phase, frame.command) {
        (LivePhase::Ended(_), _) => "No Python process is left.",
        _ if frame.snapshot.totals.processes > 0 => {
            "No Python process is left; waiting for others."
        }
        (_, Some(_)) => "The command has not started Python yet.",
        (_, None) => "Waiting for a Python process.",
    }
}

fn sentence(most: &ProcessFigures, snapshot: &Snapshot) -> Vec<Span<'static>> {
    let interval = text::seconds(Duration::from_nanos(snapshot.interval_ns));
    if snapshot.totals.interval_pause_ns == 0 {
        let words = format!("No collection in the last {interval}");
        return vec![styled(words, theme::good())];
    }
    let ppm = columns::interval_ppm(most, snapshot);
    vec![
        plain("GC takes "),
        styled(format!("{} %", text::percent(ppm)), theme::bold().patch(judged(ppm))),
        plain(format!(" of the wall time of {} (last {interval})", name(most))),
    ]
}

/// Additional figures, over all processes.
fn more(snapshot: &Snapshot, most: &ProcessFigures) -> Vec<String> {
    let mut more = Vec::new();
    let worst = snapshot.processes.iter().filter_map(|process| Some((process, process.worst?)));
    if let Some((process, worst)) = worst.max_by_key(|(_, worst)| worst.duration_ns) {
        let of =
            if process.pid == most.pid { String::new() } else { format!(" ({})", name(process)) };
        more.push(format!("worst {}{of}", units::duration(worst.duration_ns)));
    }
    let pauses = snapshot.totals.interval_pauses.iter().sum();
    let rate = text::rate(columns::per_second(pauses, snapshot));
    let all = if snapshot.processes.len() > 1 { " in total" } else { "" };
    more.push(format!("{rate} GC/s{all}"));
    more
}

/// The GPUs, with as much detail as fits.
fn gpus(snapshot: &Snapshot, width: usize) -> Line<'static> {
    const LABEL: &str = "GPUs (NVML, sampled): ";
    let room = text::rest(width, text::width(LABEL));
    let words = |detail| {
        let words = snapshot.gpus.iter().map(|gpu| gpu_words(gpu, detail));
        words.collect::<Vec<_>>().join(" · ")
    };
    let fitting = (0..=3).rev().map(words).find(|words| text::width(words) <= room);
    let words = fitting.unwrap_or_else(|| text::cut(&words(0), room));
    Line::from(vec![styled(LABEL, theme::dim()), plain(words)])
}

/// `detail`: 0 utilization only, 1 with used memory, 2 with total memory, 3 with the name.
fn gpu_words(gpu: &GpuFigures, detail: u8) -> String {
    let mut words = gpu.index.to_string();
    if detail >= 3
        && let Some(name) = gpu.name.as_deref()
    {
        words += &format!(" {}", text::clean(name));
    }
    if let Some(percent) = gpu.utilization_percent {
        words += &format!(" ~{percent} %");
    }
    if detail >= 1
        && let Some(used) = gpu.memory_used_bytes
    {
        words += &format!(" {}", text::memory(used));
        if detail >= 2
            && let Some(total) = gpu.memory_total_bytes
        {
            words += &format!("/{}", text::memory(total));
        }
    }
    words
}
