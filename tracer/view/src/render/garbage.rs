//! The section on the objects that the collector frees (`--garbage`).

use crate::document::{Block, Cell, INDENT, Section, Table, hanging, paragraph};
use crate::text::{OrDash as _, mark};
use crate::units::{bytes, count, counted, duration, percent, short_count};
use gctrace_analysis::report::{
    Basis, GarbageEstimate, GarbageKind, GarbageReport, Level, PerStep, PhaseReport, ProcessReport,
    Report,
};
use gctrace_analysis::words::cycles;
use std::collections::BTreeSet;

/// Kinds and cycles shown; the others are in the JSON.
const KINDS_SHOWN: usize = 10;
const CYCLES_SHOWN: usize = 5;
/// Characters of a line that are reserved for the figures beside a kind.
const BESIDE_KIND: usize = 42;
/// A kind with at least this part of the most frequent kind is about as frequent.
const NEARLY: f64 = 0.5;
/// A class with at least this share of all objects is named in place of the most frequent kind.
const GOOD_PART: f64 = 0.1;

pub(crate) fn garbage(report: &Report) -> Section {
    let mut blocks = Vec::new();
    if let Some(garbage) = &report.garbage {
        blocks.push(paragraph(examined(garbage)));
        blocks.extend(kinds(garbage));
        if let Some(verdict) = &garbage.verdict {
            blocks.push(paragraph(&verdict.sentence));
        }
        blocks.extend(cycles(garbage));
        if garbage.cycles.is_none() {
            blocks.push(paragraph(SUGGESTION));
        }
    }
    for process in &report.processes {
        blocks.extend(given_back(process).into_iter().chain(after_freeze(process)).map(paragraph));
    }
    Section::new("What the collector frees", blocks)
}

/// Memory that collections gave back, with the memory that their garbage owned.
fn given_back(process: &ProcessReport) -> Option<String> {
    let memory = &process.memory;
    let freed = memory.freed_bytes?;
    if freed == 0 {
        return None;
    }
    Some(format!(
        "In process {}, memory was measured before and after {}: they freed {}, with what these \
         owned {}, at most {} at once.",
        process.pid,
        counted(memory.collections, "collection"),
        counted(memory.freed_objects?, "object"),
        bytes(freed),
        bytes(memory.most_freed_bytes?),
    ))
}

/// How to learn more, if only kinds were recorded.
/// Also for a recording with cycles if its budget was too small for any collection.
const SUGGESTION: &str = "Record with --garbage cycles --garbage-budget 100 to see the cycles that make it garbage: all \
                          of each collection, which takes time.";

fn examined(garbage: &GarbageReport) -> String {
    let share = match garbage.examined_ratio {
        Some(1.0) | None => String::new(),
        Some(ratio) => format!(", with {} of all freed objects", percent(ratio)),
    };
    let size =
        garbage.bytes.map_or(String::new(), |size| format!(", {} of their own", bytes(size)));
    let device = if let Some(size) = garbage.device_bytes {
        format!(" Device memory freed during all pauses: {}.", bytes(size))
    } else {
        String::new()
    };
    let cost = if let Some(cost_ns) = garbage.cost_ns {
        format!(" Examining took {}; no pause includes this time.", duration(cost_ns))
    } else {
        String::new()
    };
    let shutdown = match garbage.shutdown_objects {
        0 => String::new(),
        objects => format!(" Left out: {} of the interpreter's end.", counted(objects, "object")),
    };
    format!(
        "{} of {} that freed objects examined{share}: {}{size}.{shutdown}{device}{cost}",
        count(garbage.examined),
        counted(garbage.collections, "collection"),
        counted(garbage.objects, "object"),
    )
}

/// The head of the column with a rate.
fn rate_head(garbage: &GarbageReport) -> &'static str {
    match garbage.steps {
        Some(_) => "per step",
        None => "per second",
    }
}

/// The basis of rates.
fn rate_basis(garbage: &GarbageReport) -> Basis {
    let estimates = garbage.kinds.iter().filter_map(|kind| kind.estimate);
    let measured = estimates.into_iter().all(|estimate| estimate.basis == Basis::Measured);
    if measured { Basis::Measured } else { Basis::Inferred }
}

fn rate(per_step: Option<PerStep>, estimate: Option<GarbageEstimate>, steps: bool) -> String {
    let rate = if steps {
        per_step.map(cycles::mean)
    } else {
        estimate.and_then(|estimate| estimate.per_s).map(cycles::figure)
    };
    rate.or_dash()
}

fn kinds(garbage: &GarbageReport) -> Vec<Block> {
    let steps = garbage.steps.is_some();
    let known = |size: Option<u64>| size.map(bytes).or_dash();
    let largest = if let Some(kind) = garbage.kinds.first() { kind.ratio } else { 0.0 };
    let table = Table::of(garbage.kinds.iter().take(KINDS_SHOWN))
        .right("objects", |kind| short_count(kind.objects))
        .right(rate_head(garbage), |kind| rate(kind.per_step, kind.estimate, steps))
        .right("bytes", |kind| known(kind.bytes))
        .right("share", |kind| Cell::share(percent(kind.ratio), kind.ratio, largest))
        .left("kind", |kind| {
            let kind = kind.name.clone();
            Cell::fitted(move |width| cycles::kind_within(&kind, width.saturating_sub(BESIDE_KIND)))
        });
    let mut table = table.table();
    let more = garbage.kinds.iter().skip(KINDS_SHOWN).map(|kind| kind.objects);
    let other = gctrace_units::sum(more.chain([garbage.other_objects]));
    if other > 0 {
        table.row([
            short_count(other),
            String::new(),
            String::new(),
            percent(other as f64 / garbage.objects.max(1) as f64),
            "all other kinds".to_owned(),
        ]);
    }
    let mut blocks = vec![table.into()];
    for kind in garbage.kinds.iter().take(KINDS_SHOWN) {
        if let Some(births) = &kind.births {
            let sentence = format!("{} {}", kind.name.type_name, cycles::births(births));
            blocks.push(hanging(sentence, INDENT, "      "));
        }
    }
    let shown = garbage.kinds.iter().take(KINDS_SHOWN);
    let explained: BTreeSet<String> =
        shown.filter_map(|kind| cycles::explanation(&kind.name.type_name)).collect();
    if !explained.is_empty() {
        let sentences: Vec<String> = explained.into_iter().collect();
        blocks.push(paragraph(sentences.join(" ")));
    }
    if rate_basis(garbage) != Basis::Measured {
        blocks.push(paragraph(format!(
            "Figures {} are inferred: they assume that the other collections of a generation freed \
             the same mixture.",
            rate_head(garbage)
        )));
    }
    blocks
}

fn cycles(garbage: &GarbageReport) -> Vec<Block> {
    let Some(list) = &garbage.cycles else { return Vec::new() };
    if list.is_empty() {
        return Vec::new();
    }
    let shown = || list.iter().take(CYCLES_SHOWN);
    let table = Table::of(shown().enumerate())
        .right("cycles", |(_, cycle)| short_count(cycle.count))
        .right(rate_head(garbage), |(_, cycle)| {
            rate(cycle.per_step, cycle.estimate, garbage.steps.is_some())
        })
        .right("objects", |(_, cycle)| short_count(cycle.objects))
        .right("held", |(_, cycle)| short_count(cycle.held_objects))
        .right("bytes", |(_, cycle)| cycle.bytes.map(bytes).or_dash())
        .right("share", |(_, cycle)| percent(cycle.ratio))
        .left("line", |(number, cycle)| {
            format!(
                "({}) {}",
                number + 1,
                gctrace_units::if_known(cycle.location.as_ref().map(cycles::place))
            )
        });
    let mut blocks = vec![table.into()];
    for (number, cycle) in shown().enumerate() {
        let start = format!("{INDENT}({}) ", number + 1);
        let sentence = format!("{}: {}", cycles::shape(cycle.shape), cycles::path(&cycle.edges));
        blocks.push(hanging(sentence, start, "      "));
    }
    let more = list.iter().skip(CYCLES_SHOWN).count();
    if more > 0 {
        blocks.push(paragraph(format!(
            "and {} (--format json lists them)",
            counted(more as u64, "other signature")
        )));
    }
    blocks
}

/// A sentence that a frozen process still frees objects; `None` if it does not.
fn after_freeze(process: &ProcessReport) -> Option<String> {
    let after = process.after_freeze.filter(|after_freeze| after_freeze.freed > 0)?;
    Some(format!(
        "Process {} froze its heap ({} objects{}), and its collections still freed {}: cycles that \
         arise after the freeze. Cycles among the frozen objects are never freed.",
        process.pid,
        count(after.frozen_objects),
        mark(after.basis),
        counted(after.freed, "object"),
    ))
}

/// The lines of the most frequent functions that were freed: `; functions of train.py:61`.
fn functions(garbage: &GarbageReport) -> String {
    /// Lines named.
    const LINES: usize = 2;
    /// Functions below this share of all objects are not named.
    const LEAST: f64 = 0.01;
    let functions = garbage.kinds.iter().filter(|kind| {
        kind.name.type_name == "function" && kind.name.file.is_some() && kind.ratio >= LEAST
    });
    let mut lines: Vec<String> = functions
        .filter_map(|kind| {
            let file = kind.name.file.as_deref()?.rsplit('/').next()?;
            Some(format!("{file}:{}", kind.name.line?))
        })
        .collect();
    lines.dedup();
    lines.truncate(LINES);
    if lines.is_empty() { String::new() } else { format!("; functions of {}", lines.join(" and ")) }
}

/// A sentence that the freed objects of a process are unknown, if it frees some; `None` also if its build has no list
/// of them.
fn unexamined(process: &ProcessReport) -> Option<String> {
    let interpreter = process.interpreter.as_ref()?;
    let frees = process.pauses.collected > 0;
    if !frees || interpreter.free_threaded {
        return None;
    }
    Some("What it frees is unknown: the garbage of no collection was examined. Record longer, or with --garbage types \
         --garbage-budget 100."
            .to_owned())
}

/// `What it frees: almost nothing: 1,025 of 1,031 collections freed no object.`; `None` if it frees more.
fn almost_nothing(phase: &PhaseReport) -> Option<String> {
    /// From this part of the collections on.
    const NEARLY_ALL: f64 = 0.9;
    let (nothing, automatic) = (phase.freed_nothing.count, phase.causes.automatic());
    let all = automatic.count;
    // Others may free much.
    let is_most = automatic.time_ns >= phase.causes.manual.time_ns;
    if !is_most || all == 0 || (nothing as f64) < NEARLY_ALL * all as f64 {
        return None;
    }
    let freed = count(nothing);
    Some(format!(
        "What it frees: almost nothing: {freed} of {} freed no object.",
        counted(all, "collection")
    ))
}

/// The objects that the collector frees, in a line or two, if collections matter.
///
/// `width`: characters of the line.
pub(super) fn in_short(report: &Report, width: usize) -> Option<String> {
    let matters =
        !matches!(report.verdict.level, Level::None | Level::Negligible | Level::TooShort);
    if !matters {
        return None;
    }
    let phase = if report.frees_nothing() == Some(true) { report.judged_phase() } else { None };
    if let Some(nothing) = phase.and_then(almost_nothing) {
        return Some(nothing);
    }
    let process = report.judged_process();
    let garbage = process.and_then(|process| process.garbage.as_ref());
    let Some(garbage) = garbage.or(report.garbage.as_ref()) else {
        return unexamined(process?);
    };
    if let Some(verdict) = &garbage.verdict {
        return Some(format!("What it frees: {}", verdict));
    }
    let of = |kind: &GarbageKind| match garbage.steps {
        Some(_) => kind.per_step.map(|per_step| per_step.mean),
        None => kind.estimate?.per_s,
    };
    let rates = garbage.kinds.iter().filter_map(of);
    let all: f64 = rates.clone().sum();
    let most = rates.fold(0.0, f64::max);
    // Among about equally frequent kinds, a kind with a line.
    let reaches = |kind: &GarbageKind, least: f64| matches!(of(kind), Some(rate) if rate >= least);
    let is_named = |kind: &&GarbageKind| kind.name.file.is_some() && reaches(kind, most * NEARLY);
    let kind = garbage.kinds.iter().find(is_named);
    // Else a class of the program or of a library, if it is a good part: lists say nothing.
    let is_class =
        |kind: &&GarbageKind| kind.name.type_name.contains('.') && reaches(kind, all * GOOD_PART);
    let class = || garbage.kinds.iter().find(is_class);
    if most <= 0.0 {
        return None;
    }
    let kind = kind.or_else(class).or(garbage.kinds.first())?;
    let suggestion = match garbage.cycles {
        None => " Which cycles: record with --garbage cycles --garbage-budget 100.",
        Some(_) => "",
    };
    // A type may say nothing about the program, as cell: where it was born, or the functions beside
    // it, do.
    let lines = match (&kind.name.file, &kind.births) {
        (Some(_), _) => String::new(),
        (None, Some(births)) => format!(", {}", cycles::births(births)),
        (None, None) => functions(garbage),
    };
    let explanation = match cycles::explanation(&kind.name.type_name) {
        Some(sentence) => format!(" {sentence}"),
        None => String::new(),
    };
    Some(format!(
        "What it frees: {} objects {}, {} of them {}{}{lines}.{explanation}{suggestion}",
        cycles::figure(all),
        rate_head(garbage),
        cycles::figure(of(kind)?),
        cycles::kind_within(&kind.name, width / 2),
        mark(rate_basis(garbage)),
    ))
}
