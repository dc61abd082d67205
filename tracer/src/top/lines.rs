//! Snapshots as lines: of text, in columns that fit 100 characters, or of JSON.

use crate::clock::{offset_s, time_of_day};
use crate::print;
use crate::print::clean;
use crate::record::lost_events;
use crate::text::{OrDash as _, rank_or_pid};
use crate::top::view::text;
use gctrace_analysis::live::figure_table::{LAST, LONGEST, SHARE};
use gctrace_analysis::live::{LineFigures, ProcessFigures, Snapshot};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::io;

/// On a terminal, the head is repeated after this number of lines, so that one is always visible.
const HEADER_EVERY: u64 = 20;

/// Maximum characters per line.
const WIDTH: usize = 100;

/// Title, width and text of a figure; `None` if unknown. The process is the busiest.
type LineFigure = (&'static str, usize, fn(&Snapshot, Option<&ProcessFigures>) -> Option<String>);

/// The figures of a line, from left to right.
#[rustfmt::skip]
const FIGURES: [LineFigure; 10] = [
    ("time", 8, |snapshot, _| Some(local(snapshot.at_unix_ns))),
    ("proc", 4, |snapshot, _| Some((snapshot.totals.processes - snapshot.totals.ended).to_string())),
    ("GC ms/s", 7, |snapshot, _|
        Some(number(snapshot.totals.interval_pause_ns as f64 / 1e6 / seconds(snapshot)))),
    (SHARE.line.0, SHARE.line.1, |_, process| Some(percent(SHARE.whole(process?)?))),
    ("gen0/1/2 per s", 14, |snapshot, _| {
        let [young, middle, old, _] = snapshot.totals.interval_pauses;
        let rate = |count| text::short_rate(count as f64 / seconds(snapshot));
        Some([young, middle, old].map(rate).join("/"))
    }),
    (LAST.line.0, LAST.line.1, |_, process| Some(time(LAST.whole(process?)?))),
    (LONGEST.line.0, LONGEST.line.1, |_, process| Some(time(LONGEST.whole(&process?.collections)?))),
    ("GPU", 4, |snapshot, process| gpu(snapshot, process?)),
    ("lost", 4, |snapshot, _| Some(lost_events(&snapshot.recorder.lost).to_string())),
    ("own", 5, |snapshot, _| snapshot.recorder.cpu_ppm.map(percent)),
];

/// Formats snapshots as lines below a head.
#[derive(Debug)]
pub(super) struct LineOutput {
    on_terminal: bool,
    lines: u64,
    /// The process with the most time in pauses in the last snapshot.
    busiest: Option<u32>,
}

impl LineOutput {
    /// `on_terminal`: repeat the head every [`HEADER_EVERY`] lines.
    pub(super) fn new(on_terminal: bool) -> Self {
        Self { on_terminal, lines: 0, busiest: None }
    }

    /// The process that needs details in the next snapshot.
    pub(super) fn busiest(&self) -> Option<u32> {
        self.busiest
    }

    /// The line for a snapshot, below the head if that is due.
    pub(super) fn text(&mut self, snapshot: &Snapshot) -> String {
        let mut text = String::new();
        let is_due =
            self.lines == 0 || (self.on_terminal && self.lines.is_multiple_of(HEADER_EVERY));
        if is_due {
            text.push_str(&aligned(|(title, _, _)| title.to_owned()));
            text.push_str("  busiest and its line\n");
        }
        self.lines += 1;
        let busiest = busiest(snapshot);
        self.busiest = busiest.map(|process| process.pid);
        let mut line = aligned(|(_, _, text)| text(snapshot, busiest).or_dash());
        if let Some(process) = busiest {
            let _ = write!(line, "  {}", place(snapshot, process));
        }
        text.extend(clean::line(line.trim_end()).chars().take(WIDTH));
        text.push('\n');
        text
    }
}

/// The process with the most time in pauses in the interval, or else since the start.
fn busiest(snapshot: &Snapshot) -> Option<&ProcessFigures> {
    snapshot.processes.iter().max_by_key(|process| {
        let total: u64 = process.collections.pause_ns.iter().sum();
        (process.interval_pause_ns, process.ended.is_none(), total)
    })
}

/// The local time of day.
fn local(unix_ns: u64) -> String {
    time_of_day(unix_ns, offset_s(unix_ns))
}

/// A text of each figure, right-aligned.
fn aligned(text: impl Fn(LineFigure) -> String) -> String {
    FIGURES.map(|figure| format!("{:>1$}", text(figure), figure.1)).join(" ")
}

/// Length of the interval.
fn seconds(snapshot: &Snapshot) -> f64 {
    (snapshot.interval_ns.max(1) as f64) / 1e9
}

/// The process, if there are several, and its costliest line.
fn place(snapshot: &Snapshot, process: &ProcessFigures) -> String {
    let mut words = Vec::new();
    if let Some(ended) = &process.ended {
        words.push(match (ended.code, ended.signal) {
            (_, Some(signal)) => format!("{} killed by signal {signal}", process.pid),
            (Some(code), None) => format!("{} ended with {code}", process.pid),
            (None, None) => format!("{} ended", process.pid),
        });
    } else if snapshot.processes.len() > 1 {
        words.push(rank_or_pid(process.rank, process.pid));
    }
    if let Some(detail) = &snapshot.detail
        && detail.pid == process.pid
        && let Some(LineFigures { line, .. }) = detail.lines.first()
    {
        let file = text::file_name(&line.file);
        let number = if let Some(at) = line.line { format!(":{at}") } else { String::new() };
        words.push(format!("{file}{number} {}", line.function));
    }
    words.join(" ")
}

/// GPU utilization of the process as measured by CUPTI, or else of the whole GPU by NVML, marked `~`.
fn gpu(snapshot: &Snapshot, process: &ProcessFigures) -> Option<String> {
    let busy = process.gpus.iter().filter_map(|gpu| gpu.busy).next();
    if let Some(busy) = busy
        && busy.window_ns > 0
    {
        return Some(format!("{:.0}%", busy.busy_ns as f64 * 100.0 / busy.window_ns as f64));
    }
    let gpus = process.gpus.iter().find(|gpu| gpu.by_nvml)?;
    let device = snapshot.gpus.iter().find(|gpu| gpu.index == gpus.device)?;
    Some(format!("~{}%", device.utilization_percent?))
}

/// At least three digits: `0`, `0.25`, `2.50`, `25.0`, `250`.
fn number(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if value < 9.995 => format!("{value:.2}"),
        value if value < 99.95 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

fn percent(ppm: u64) -> String {
    match ppm as f64 / 1e4 {
        percent if percent < 9.95 => format!("{percent:.1}%"),
        percent => format!("{percent:.0}%"),
    }
}

fn time(ns: u64) -> String {
    match ns as f64 {
        ns if ns < 999_500.0 => format!("{}us", number(ns / 1e3)),
        ns if ns < 999_500_000.0 => format!("{}ms", number(ns / 1e6)),
        ns => format!("{}s", number(ns / 1e9)),
    }
}

/// Writes snapshots, each long pause once.
#[derive(Debug, Default)]
pub(super) struct JsonOutput {
    /// Long pauses of the previous snapshot: pid, tid, start.
    printed: HashSet<(u32, u32, u64)>,
}

impl JsonOutput {
    /// The line for a snapshot. Long pauses of the previous snapshot are left out.
    pub(super) fn text(&mut self, snapshot: &Snapshot) -> io::Result<Vec<u8>> {
        let name =
            |pause: &gctrace_analysis::live::LongPause| (pause.pid, pause.tid, pause.start_ns);
        let mut shown = snapshot.clone();
        shown.long_pauses.retain(|pause| !self.printed.contains(&name(pause)));
        self.printed = snapshot.long_pauses.iter().map(name).collect();
        Ok((print::escaped_json(&serde_json::to_string(&shown)?) + "\n").into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_analysis::live::{
        CodeLine, CollectionCounts, GpuBusy, GpuFigures, LongPause, PauseFigures, PauseOutcomes,
        ProcessDetail, ProcessEnd, ProcessGpu,
    };
    use gctrace_analysis::report::PauseTotal;
    use gctrace_event::GcReason;
    use proptest::prelude::*;
    use serde_json::Value;

    fn process(pid: u32, pause_ns: u64) -> ProcessFigures {
        let pause = |duration_ns| PauseFigures { duration_ns, ..PauseFigures::default() };
        ProcessFigures {
            pid,
            share_ppm: 123_456,
            interval_pause_ns: pause_ns,
            last: Some(pause(1_234_567)),
            collections: CollectionCounts {
                outcomes: PauseOutcomes { longest_ns: 123_456_789, ..Default::default() },
                ..CollectionCounts::default()
            },
            ..ProcessFigures::default()
        }
    }

    fn snapshot(processes: Vec<ProcessFigures>) -> Snapshot {
        let mut snapshot = Snapshot {
            at_unix_ns: 1_770_000_000_000_000_000,
            interval_ns: 2_000_000_000,
            ..Snapshot::default()
        };
        snapshot.totals.processes = processes.len() as u64;
        snapshot.totals.interval_pauses = [20_000, 150, 3, 0];
        snapshot.totals.interval_pause_ns = 246_900_000;
        snapshot.recorder.cpu_ppm = Some(12_345);
        snapshot.detail = processes.first().map(|process| ProcessDetail {
            pid: process.pid,
            lines: vec![LineFigures {
                line: CodeLine {
                    function: "Loader.__iter__".to_owned(),
                    file: "/home/ann/project/data.py".to_owned(),
                    line: Some(120),
                },
                pauses: PauseTotal::default(),
                below: None,
            }],
            ..ProcessDetail::default()
        });
        snapshot.processes = processes;
        snapshot
    }

    /// The lines, with the time of day (dependent on the time zone) replaced.
    fn shown(snapshots: &[Snapshot]) -> String {
        let mut lines = LineOutput::new(false);
        let texts = snapshots.iter().map(|snapshot| lines.text(snapshot));
        let text: String = texts.collect();
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
        text.replace(&local(1_770_000_000_000_000_000), "hh:mm:ss")
    }

    #[test]
    fn lines_for_people() {
        let alone = snapshot(vec![process(4242, 246_900_000)]);
        let mut several = snapshot(vec![process(4243, 2), process(4242, 1)]);
        several.recorder.lost.insert("somewhere".to_owned(), 12);
        if let Some(first) = several.processes.first_mut() {
            first.rank = Some(3);
            first.gpus = vec![ProcessGpu { by_nvml: true, ..ProcessGpu::default() }];
        }
        several.gpus = vec![GpuFigures { utilization_percent: Some(97), ..GpuFigures::default() }];
        let mut ended = snapshot(vec![process(4242, 0)]);
        if let Some(first) = ended.processes.first_mut() {
            first.ended = Some(ProcessEnd { signal: Some(9), ..ProcessEnd::default() });
            first.gpus = vec![ProcessGpu {
                busy: Some(GpuBusy { window_ns: 200, busy_ns: 100, ..GpuBusy::default() }),
                ..ProcessGpu::default()
            }];
        }
        ended.totals.ended = 1;
        let empty = Snapshot { at_unix_ns: alone.at_unix_ns, ..Snapshot::default() };
        insta::assert_snapshot!(shown(&[empty, alone, several, ended]));
    }

    proptest! {
        #[test]
        fn names_cannot_steer_the_terminal_or_forge_a_line(name in any::<String>()) {
            let mut named = snapshot(vec![process(1, 2), process(2, 1)]);
            let line = named.detail.as_mut().and_then(|detail| detail.lines.first_mut());
            let line = &mut line.expect("a line").line;
            line.function = format!("{name}\x1b[2J\u{9b}\u{202e}\n");
            line.file = format!("/x/\u{7}{name}");
            let text = LineOutput::new(false).text(&named);
            prop_assert_eq!(text.lines().count(), 2);
            prop_assert!(!text.contains(|char| char != '\n' && clean::is_harmful(char)));
        }
    }

    #[test]
    fn the_head_is_repeated_on_a_terminal() {
        let headers = |on_terminal| {
            let mut lines = LineOutput::new(on_terminal);
            let texts = (0..45).map(|_| lines.text(&Snapshot::default()));
            texts.filter(|text| text.starts_with("    time proc")).count()
        };
        assert_eq!((headers(true), headers(false)), (3, 1));
    }

    fn long(start_ns: u64) -> LongPause {
        LongPause { start_ns, reason: GcReason::Automatic, ..LongPause::default() }
    }

    fn starts(line: &[u8]) -> Vec<u64> {
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        let value: Value = serde_json::from_slice(line).expect("an object");
        let pauses = value["long_pauses"].as_array().expect("long pauses");
        let start = |pause: &Value| pause["start_ns"].as_u64().expect("a number");
        pauses.iter().map(start).collect()
    }

    #[test]
    fn long_pauses_are_written_once() {
        let mut json = JsonOutput::default();
        let mut snapshot = Snapshot { long_pauses: vec![long(1), long(5)], ..Snapshot::default() };
        assert_eq!(starts(&json.text(&snapshot).expect("text")), [1, 5]);
        assert_eq!(starts(&json.text(&snapshot).expect("text")), [0; 0]);
        // A pause that was read late, with an earlier start.
        snapshot.long_pauses = vec![long(5), long(4)];
        assert_eq!(starts(&json.text(&snapshot).expect("text")), [4]);
    }
}
