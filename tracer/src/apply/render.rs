//! The report of a command that applied settings: JSON, and lines for people.

use super::session::{ApplySession, CommandProcesses};
use crate::launch::CommandEnd;
use crate::text::file_name;
use crate::units::{bytes, count, counted, duration};
use gctrace_settings::{
    AppliedProcess, ApplyRequest, CollectionSums, GcChange, GcSetting, MAX_PROCESSES, SettingItem,
};
use gctrace_units::{beyond, sum};
use serde::Serialize;
use std::ffi::OsString;

/// Name and version of the JSON report.
const SCHEMA: &str = "gctrace.apply/1";
/// Lines that undid settings or asked for collections, per process.
const SHOWN_LINES: usize = 3;

/// Fewest steps with the settings that say whether there is something to gain.
const JUDGED: u64 = 10;
/// Steps before the settings that are worth a line.
const COMPARABLE: u64 = 5;

/// A command's run with the settings.
#[derive(Debug, Serialize)]
pub(super) struct CommandReport {
    schema: &'static str,
    gctrace: &'static str,
    command: Vec<String>,
    settings: String,
    /// `None`: it still ran.
    exit_code: Option<u8>,
    /// By rank and pid.
    processes: Vec<AppliedProcess>,
    /// Processes with unreadable reports.
    unreadable: Vec<u32>,
    /// Number of processes that wrote none.
    left_out: u64,
}

impl CommandReport {
    pub(super) fn new(
        request: &ApplyRequest,
        words: &[OsString],
        ended: Option<CommandEnd>,
        session: &ApplySession,
    ) -> Self {
        let CommandProcesses { processes, unreadable, left_out } = session.processes();
        let words = words.iter().map(|word| word.to_string_lossy().into_owned());
        Self {
            schema: SCHEMA,
            gctrace: gctrace_ring::VERSION,
            command: words.collect(),
            settings: request.text(),
            exit_code: ended.map(CommandEnd::exit_code),
            processes,
            unreadable,
            left_out,
        }
    }

    /// Why no process has any of the settings; `None`: one has, or may have.
    pub(super) fn failure(&self, setting: &GcSetting) -> Option<String> {
        let first = setting.items().iter().map(SettingItem::step).min()?;
        let is_unknown = self.left_out > 0 || !self.unreadable.is_empty();
        let has_any = |process: &AppliedProcess| !process.applied.is_empty() || process.taken_back;
        if is_unknown || self.processes.iter().any(has_any) {
            return None;
        }
        let most_steps = self.processes.iter().map(|process| process.steps).max();
        let why = match most_steps {
            None => "no CPython of this command loaded the library (gctrace doctor; -v shows more)"
                .to_owned(),
            _ if first == 0 || self.processes.iter().any(|process| process.failure.is_some()) => {
                "gctrace's code in the command failed".to_owned()
            }
            Some(0) => {
                let from_start = match setting.has(&GcChange::Disable) {
                    true => ", or apply disable@start",
                    false => "",
                };
                format!(
                    "{setting} is applied after a step, and no step was seen; name the function of a step with \
                     --step-function{from_start}"
                )
            }
            Some(steps) => format!(
                "{setting} is applied after step {}, and {} made",
                count(first.into()),
                match steps {
                    1 => "1 was".to_owned(),
                    steps => format!("{} were", count(steps)),
                }
            ),
        };
        Some(format!("nothing was applied: {why}"))
    }

    /// The report for people.
    pub(super) fn lines(&self) -> Vec<String> {
        let (stepping, others): (Vec<_>, Vec<_>) =
            self.processes.iter().partition(|process| process.steps > 0);
        let mut lines = Vec::new();
        for process in &stepping {
            lines.extend(process_lines(process));
        }
        lines.extend(others_lines(&others, stepping.is_empty()));
        if !self.unreadable.is_empty() {
            lines.push(format!(
                "the reports of {} cannot be read",
                counted(self.unreadable.len() as u64, "process")
            ));
        }
        if self.left_out > 0 {
            lines.push(format!(
                "{} wrote no report: at most {} do, and only while their folder has room",
                counted(self.left_out, "other process"),
                count(MAX_PROCESSES),
            ));
        }
        lines
    }
}

/// A process with steps.
fn process_lines(process: &AppliedProcess) -> Vec<String> {
    let rank =
        if let Some(rank) = process.rank { format!(" (rank {rank})") } else { String::new() };
    let mut lines = vec![format!(
        "process {}{rank}: {}, by {}: {}",
        process.pid,
        counted(process.steps, "step"),
        process.marker.as_deref().unwrap_or("nothing"),
        applied(process),
    )];
    let mut add = |text: String| lines.push(format!("  {text}"));
    if process.before.steps >= COMPARABLE && process.after.is_some() {
        add(format!("before: {}", sums(&process.before)));
    }
    if let Some(after) = &process.after {
        add(format!("after: {}{}", sums(after), planned(process)));
    } else {
        add(format!("collections: {}", sums(&process.before)));
    }
    if let Some(gain) = nothing_to_gain(process) {
        add(gain);
    }
    held(process).into_iter().for_each(&mut add);
    add(memory(process));
    faults(process).into_iter().for_each(&mut add);
    lines
}

fn applied(process: &AppliedProcess) -> String {
    let point = |step| match step {
        0 => "from the start".to_owned(),
        step => format!("after step {}", count(step)),
    };
    let mut parts: Vec<String> = process
        .applied
        .iter()
        .take(4)
        .map(|one| format!("{} {}", one.setting, point(one.step)))
        .collect();
    if let Some(more) = process.applied.len().checked_sub(5) {
        parts.push(format!("and {} more", more + 1));
    }
    if parts.is_empty() {
        format!("nothing was applied of {}", process.setting)
    } else {
        parts.join("; ")
    }
}

fn sums(sums: &CollectionSums) -> String {
    let [young, middle, old] = sums.collections;
    if sums.count() == 0 {
        return format!("no collection in {}", counted(sums.steps, "step"));
    }
    let each = match sums.all_pause_ns().checked_div(sums.steps) {
        Some(ns) => format!(" ({} per step)", duration(ns)),
        None => String::new(),
    };
    format!(
        "{} in {}, {} + {} + {} of generations 0, 1, 2; {}{each}; {} of garbage",
        counted(sums.count(), "collection"),
        counted(sums.steps, "step"),
        count(young),
        count(middle),
        count(old),
        duration(sums.all_pause_ns()),
        counted(sums.all_garbage(), "object"),
    )
}

fn planned(process: &AppliedProcess) -> String {
    match process.planned.count() {
        0 => String::new(),
        planned => format!("; {} of them planned", count(planned)),
    }
}

/// Whether the settings changed nothing, as far as the process shows.
fn nothing_to_gain(process: &AppliedProcess) -> Option<String> {
    let after = process.after.as_ref()?;
    if after.steps < JUDGED {
        return None;
    }
    let ran = beyond(after.count(), process.planned.count());
    let is_quiet = process.most_waiting <= process.own_threshold;
    let freezes_only = process.planned.count() == 0 && process.frozen_objects.is_some();
    let step = process.applied.iter().map(|one| one.step).max()?;
    match (ran, is_quiet || freezes_only) {
        (0, true) => Some(format!(
            "nothing to gain: after step {} no collection ran{}",
            count(step),
            match process.planned.count() {
                0 => " at all",
                _ =>
                    " but the planned ones, and at most \
                      as many objects waited as the program's own threshold allows",
            }
        )),
        _ => None,
    }
}

/// Whether the settings held, and changes by the program itself.
fn held(process: &AppliedProcess) -> Vec<String> {
    let mut lines: Vec<String> = process
        .undone
        .iter()
        .take(SHOWN_LINES)
        .map(|undone| {
            format!(
                "{} was undone {} by {} (first seen after step {}), and applied again",
                undone.setting,
                times(undone.times),
                undone.by,
                count(undone.step)
            )
        })
        .collect();
    if let Some(more) = process.undone.len().checked_sub(SHOWN_LINES + 1) {
        lines.push(format!("and by {}", counted(more as u64 + 1, "other line")));
    }
    if process.undone.is_empty() && !process.applied.is_empty() && process.failure.is_none() {
        lines.push("held at every step".to_owned());
    }
    let mut asked: Vec<_> = process.asked.iter().collect();
    asked.sort_by_key(|line| std::cmp::Reverse(line.pause_ns));
    lines.extend(asked.iter().take(SHOWN_LINES).map(|line| {
        format!(
            "the program itself collects, and no setting changes that: {} at {}, {}, {} of garbage",
            times(line.times),
            line.by,
            duration(line.pause_ns),
            counted(line.garbage, "object")
        )
    }));
    if process.taken_back {
        lines.push("taken back when asked".to_owned());
    }
    lines
}

fn times(times: u64) -> String {
    match times {
        1 => "once".to_owned(),
        times => format!("{} times", count(times)),
    }
}

fn memory(process: &AppliedProcess) -> String {
    let mut parts = Vec::new();
    if let (Some(start), Some(end)) = (process.rss_bytes_at_start, process.rss_bytes_at_end) {
        parts.push(format!("{}, then {} at the end", bytes(start), bytes(end)));
    }
    parts.extend(process.peak_rss_bytes.map(|peak| format!("peak {}", bytes(peak))));
    if let Some(frozen) = process.frozen_objects {
        let left = if process.taken_back { None } else { process.frozen_objects_at_end };
        let left = if let Some(left) = left {
            format!(", {} of them freed since", count(beyond(frozen, left)))
        } else {
            String::new()
        };
        parts.push(format!("{} frozen{left}", counted(frozen, "object")));
    }
    if let (Some(start), Some(end)) =
        (process.tracked_objects_at_start, process.tracked_objects_at_end)
    {
        parts.push(format!("{} tracked, then {}", counted(start, "object"), count(end)));
    }
    if parts.is_empty() {
        "memory: unknown".to_owned()
    } else {
        format!("memory: {}", parts.join("; "))
    }
}

fn faults(process: &AppliedProcess) -> Vec<String> {
    let mut lines: Vec<String> =
        process.warnings.iter().map(|text| format!("note: {text}")).collect();
    lines.extend(process.failure.as_ref().map(|why| {
        format!("gctrace's code in the process failed, and took the settings back: {why}")
    }));
    if !process.ended {
        lines.push(
            "the process ended without its interpreter's end: \
                    up to a second is missing"
                .to_owned(),
        );
    }
    lines
}

/// A sum over a process that has no steps.
fn without_steps(process: &AppliedProcess, of: fn(&CollectionSums) -> u64) -> u64 {
    sum(process.after.iter().chain([&process.before]).map(of))
}

/// Processes without steps, summed up. `alone`: there are no others.
fn others_lines(others: &[&AppliedProcess], alone: bool) -> Vec<String> {
    if others.is_empty() {
        return Vec::new();
    }
    let total = |of: fn(&AppliedProcess) -> u64| sum(others.iter().map(|process| of(process)));
    let collections = total(|process| without_steps(process, CollectionSums::count));
    let pause_ns = total(|process| without_steps(process, CollectionSums::all_pause_ns));
    let applied = total(|process| u64::from(!process.applied.is_empty()));
    let mut lines = vec![format!(
        "{} without steps: {}, {}; settings that need no step applied in {}",
        counted(others.len() as u64, "process"),
        counted(collections, "collection"),
        duration(pause_ns),
        count(applied),
    )];
    if alone && others.iter().any(|process| process.after.is_some()) {
        lines.push("no step was seen; the settings hold from the start".to_owned());
    } else if alone && applied > 0 {
        lines.push(
            "no step was seen: nothing was applied at a step; \
             name the function of a step with --step-function"
                .to_owned(),
        );
    }
    for process in others {
        if process.failure.is_none() {
            continue;
        }
        let name = file_name(process.command.split(' ').nth(1).unwrap_or_default());
        for fault in faults(process) {
            lines.push(format!("  process {} ({name}): {fault}", process.pid));
        }
    }
    lines
}
