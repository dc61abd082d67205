//! The footer: the last notice; totals, losses and gctrace's overhead; the keys, or a prompt.

use super::{ViewFrame, plain, styled, with_parts};
use crate::record::lost_events;
use crate::text::OrDash as _;
use crate::top::live_handle::LivePhase;
use crate::top::view::state::Overlay;
use crate::top::view::{text, theme};
use crate::units;
use gctrace_analysis::live::{Notice, Snapshot};
use gctrace_event::RecordingMode;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// How long a notice stays on the screen.
const NOTICE_NS: u64 = 60_000_000_000;
/// Minimum screen height for notices and totals.
const WITH_TOTALS: u16 = 8;

pub(super) fn lines(frame: &ViewFrame<'_>, screen: Rect) -> Vec<Line<'static>> {
    let width = usize::from(screen.width);
    let mut lines = Vec::new();
    if screen.height >= WITH_TOTALS {
        if let Some(notice) = notice(frame.snapshot) {
            lines.push(notice_line(frame.snapshot, notice, width));
        }
        lines.push(totals(frame.snapshot, width));
    }
    if screen.height >= 2 {
        lines.push(last_line(frame, width));
    }
    lines
}

/// The newest notice, unless it is older than [`NOTICE_NS`].
fn notice(snapshot: &Snapshot) -> Option<&Notice> {
    let newest = snapshot.notes.last()?;
    let age = snapshot.at_ns.checked_sub(newest.at_ns);
    if age.is_none_or(|age| age < NOTICE_NS) { Some(newest) } else { None }
}

fn notice_line(snapshot: &Snapshot, notice: &Notice, width: usize) -> Line<'static> {
    let hint = match snapshot.notes.len() {
        1 => " (n)".to_owned(),
        all => format!(" (n: {} more)", all - 1),
    };
    let words = super::notice_words(snapshot, notice);
    let room = text::rest(width, text::width(&hint) + 3);
    Line::from(vec![
        styled("! ", theme::warning()),
        plain(text::cut(&words, room)),
        styled(hint, theme::dim()),
    ])
}

fn totals(snapshot: &Snapshot, width: usize) -> Line<'static> {
    let collections = &snapshot.totals.collections;
    let count = collections.pauses.iter().sum();
    let time = units::duration(collections.pause_ns.iter().sum());
    let spans = vec![
        plain(format!("Total {}, {time}", units::counted(count, "pause"))),
        plain(" · "),
        losses(snapshot),
    ];
    with_parts(spans, own_cost(snapshot), width)
}

fn losses(snapshot: &Snapshot) -> Span<'static> {
    let recorder = &snapshot.recorder;
    let lost = lost_events(&recorder.lost);
    match (lost, recorder.unexamined) {
        // Processes that do not load the library, and collections before it, are not counted.
        (0, 0) if snapshot.mode == RecordingMode::Inject => {
            return plain("the library lost no event");
        }
        (0, 0) => return plain("nothing lost"),
        (0, 1) => return styled("1 process UNEXAMINED".to_owned(), theme::bad()),
        (0, many) => return styled(format!("{many} processes UNEXAMINED"), theme::bad()),
        _ => {}
    }
    let places: Vec<String> = recorder.lost.keys().map(|place| text::clean(place)).collect();
    let words = format!("LOST {} ({})", units::counted(lost, "event"), places.join(", "));
    styled(words, theme::bad())
}

fn own_cost(snapshot: &Snapshot) -> Vec<String> {
    let recorder = &snapshot.recorder;
    let known = |figure: Option<String>| figure.or_dash();
    let mut parts = vec![format!(
        "gctrace {} % of a core, {}",
        known(recorder.cpu_ppm.map(text::percent)),
        known(recorder.resident_bytes.map(text::memory))
    )];
    if let Some(trace) = &recorder.trace {
        parts.push(format!("to {}", text::clean(text::file_name(trace))));
    }
    if let Some(cost) = recorder.probe_overhead_ns {
        let place = match snapshot.mode {
            RecordingMode::Inject => "in-process",
            _ => "in probes",
        };
        parts.push(format!("~{} {place}", units::duration(cost)));
    }
    if let Some(cost @ 1..) = recorder.elsewhere_overhead_ns {
        parts.push(format!("~{} in other programs", units::duration(cost)));
    }
    parts
}

/// The keys, a prompt, or a message.
fn last_line(frame: &ViewFrame<'_>, width: usize) -> Line<'static> {
    let state = frame.state;
    match &state.overlay {
        Overlay::Filter(_) => {
            return prompt("Filter: ", &state.filter, "Enter: apply  Esc: cancel", width);
        }
        Overlay::Interval(typed) => {
            let now = text::seconds(state.interval);
            let label = format!("Refresh interval in seconds (now {now}): ");
            return prompt(&label, typed, "Enter: apply  Esc: cancel", width);
        }
        _ => {}
    }
    if let Some(message) = &state.message {
        return Line::from(styled(text::clean(message), theme::warning()));
    }
    match frame.phase {
        LivePhase::Ended(sentences) => {
            let sentences: Vec<String> = sentences.iter().map(|words| sentence(words)).collect();
            let words = format!(" {} Press q to quit. ", sentences.join(" "));
            Line::from(styled(ended_in(&words, width), theme::reversed()))
        }
        LivePhase::Recording => keys(frame, width),
    }
}

/// A clause as a sentence, with a capital and a period.
fn sentence(words: &str) -> String {
    let words = text::clean(words);
    let mut chars = words.trim_end_matches('.').chars();
    let first = chars.next().into_iter().flat_map(char::to_uppercase);
    first.chain(chars).chain(['.']).collect()
}

/// Cuts the text to `width`, but keeps the hint on how to quit at its end.
fn ended_in(words: &str, width: usize) -> String {
    const OUT: &str = "Press q to quit. ";
    if text::width(words) <= width {
        return words.to_owned();
    }
    let sentence = words.strip_suffix(OUT).unwrap_or(words).trim_end();
    text::cut(sentence, text::rest(width, text::width(OUT) + 1)) + " " + OUT
}

fn prompt(label: &str, typed: &str, hint: &str, width: usize) -> Line<'static> {
    let room = text::rest(width, text::width(label) + 1);
    // Keep the end of the typed text visible.
    let mut shown = text::clean(typed);
    while text::width(&shown) > room && !shown.is_empty() {
        shown.remove(0);
    }
    let hint = if room > text::width(&shown) + text::width(hint) + 2 {
        format!("  {hint}")
    } else {
        String::new()
    };
    Line::from(vec![
        styled(label.to_owned(), theme::bold()),
        plain(shown),
        styled("_", theme::reversed()),
        styled(hint, theme::dim()),
    ])
}

fn keys(frame: &ViewFrame<'_>, width: usize) -> Line<'static> {
    let state = frame.state;
    let filters = !state.filter.is_empty();
    let filter = format!("Filter: {}", text::cut(&text::clean(&state.filter), 20));
    let keys = [
        (filters, "/", filter.as_str()),
        (true, "?", "Help"),
        (true, "q", "Quit"),
        (true, "Enter", "Expand"),
        (!filters, "/", "Filter"),
        (true, "< >", "Sort"),
        (true, "Space", if state.paused { "Resume" } else { "Pause" }),
        (frame.tail.is_some(), "o", "Output"),
        (true, "l", "Log"),
        (true, "d", "Interval"),
        (true, "← →", "Columns"),
    ];
    let mut spans = Vec::new();
    let mut used = 0;
    for (_, key, words) in keys.into_iter().filter(|(shown, ..)| *shown) {
        used += text::width(key) + text::width(words) + 3;
        if used > width + 2 {
            break;
        }
        spans.push(styled(key, theme::key()));
        spans.push(plain(format!(" {words}  ")));
    }
    Line::from(spans)
}
