//! The section on idle time of devices: its causes, and the longest gaps; on a page it has bars.

use super::gpu_devices::{DEVICES_SHOWN, more, name};
use super::pauses::{after_start, started_ns};
use crate::document::{BarPart, Block, Cell, INDENT, Section, Table, hanging, paragraph};
use crate::text::{OrDash as _, mark};
use crate::units::{count, counted, duration, percent, signed_duration};
use gctrace_analysis::paths::{self, common_directory};
use gctrace_analysis::report::{
    CodePlace, DeviceId, IdleCause, IdleGap, IdleLedger, IdlePlace, IdleRow, RankWait, Report,
};
use std::cmp::Reverse;

/// Maximum number of gaps shown; the report has twenty.
const GAPS_SHOWN: usize = 5;
/// Minimum share of a gap for a cause to be named, and of a cause for a place.
const WORTH_NAMING: f64 = 0.1;
/// Less idle time than this share of the device's time is no subject of the first screen.
const WORTH_TELLING: f64 = 0.05;
/// Minimum share of the idle time for a cause to be named there.
const CAUSE_TOLD: f64 = 0.01;
/// Causes named there.
const CAUSES_TOLD: usize = 4;
/// A place with at least this share of a row is named without its share.
const NEARLY_ALL: f64 = 0.9;

/// The page's first color for a cause of idle time; the colors before are for activities of a device, or a thread.
pub(super) const FIRST_CAUSE: usize = 4;

/// The page's color of a cause.
pub(super) fn color(cause: IdleCause) -> usize {
    FIRST_CAUSE + cause as usize
}

/// The device that idled the longest.
pub(super) fn idlest(report: &Report) -> Option<&IdleLedger> {
    let ledgers = report.gpu.as_ref()?.idle.iter();
    ledgers.filter(|ledger| ledger.idle_ns > 0).max_by_key(|ledger| ledger.idle_ns)
}

/// The ledger of the device that idled the longest, and its longest gaps.
pub(crate) fn idle(report: &Report) -> Section {
    let mut blocks = Vec::new();
    if let Some(ledger) = idlest(report) {
        blocks.extend(devices(report));
        blocks.push(paragraph(format!("{} {}:", device(report, ledger), idled(ledger))));
        blocks.extend(explained(report, ledger));
        blocks.extend(gaps(report, ledger));
    }
    Section::new("Why the GPU was idle", blocks)
}

/// The causes of a device's idle time, and the changes to make.
pub(super) fn explained(report: &Report, ledger: &IdleLedger) -> Vec<Block> {
    let mut blocks = vec![rows(ledger), Block::Note(notes(ledger))];
    blocks.extend(place_lines(ledger));
    blocks.extend(longest_waits(report).map(paragraph));
    blocks.extend(remedies(ledger));
    blocks
}

/// The longest gaps of a device.
pub(super) fn gaps(report: &Report, ledger: &IdleLedger) -> Vec<Block> {
    let started_ns = started_ns(report, ledger.id.trace);
    let longest = ledger.longest.iter().take(GAPS_SHOWN).enumerate();
    longest.flat_map(|(at, gap)| one_gap(at + 1, gap, started_ns)).collect()
}

/// The same for the first screen; empty if the device is seldom idle.
pub(crate) fn idle_in_short(report: &Report) -> Vec<Block> {
    let worth = |ledger: &&IdleLedger| share(ledger.idle_ns, ledger.span_ns) >= WORTH_TELLING;
    let ledger = idlest(report).filter(worth);
    let sentences = ledger.map(|ledger| in_a_sentence(report, ledger)).into_iter();
    sentences.chain(longest_waits(report)).map(|text| hanging(text, "", INDENT)).collect()
}

fn in_a_sentence(report: &Report, ledger: &IdleLedger) -> String {
    let rows = ledger.rows.iter().filter(|row| share(row.time_ns, ledger.idle_ns) >= CAUSE_TOLD);
    let rows = rows.take(CAUSES_TOLD).map(|row| {
        let places = if let Some(of) = largest(row) { format!(" ({of})") } else { String::new() };
        format!("{} {}{places}", percent(share(row.time_ns, ledger.span_ns)), row.cause)
    });
    let rows = without_folder(ledger, &rows.collect::<Vec<_>>().join("; "));
    let sample = if ledger.sample { " The trace is only a sample." } else { "" };
    format!("{} {}: {rows}{}.{sample}", device(report, ledger), idled(ledger), mark(ledger.basis))
}

/// Names of places without the folder that the files of all have in common.
fn without_folder(ledger: &IdleLedger, names: &str) -> String {
    let places = ledger.rows.iter().flat_map(|row| &row.places);
    let folder = common_directory(places.filter_map(|place| place.code.python.as_ref()));
    if folder.is_empty() { names.to_owned() } else { names.replace(folder, "") }
}

/// The waits of the device that waited for other ranks the longest, and why those were late; `None` if the device
/// seldom waits.
fn longest_waits(report: &Report) -> Option<String> {
    let waited_ns =
        |ledger: &IdleLedger| ledger.rank_waits.iter().map(|wait| wait.time_ns).sum::<u64>();
    let ledgers = report.gpu.iter().flat_map(|work| &work.idle);
    let ledger = ledgers.max_by_key(|ledger| waited_ns(ledger))?;
    if share(waited_ns(ledger), ledger.span_ns) < WORTH_TELLING {
        return None;
    }
    let waits = ledger.rank_waits.iter().take(CAUSES_TOLD);
    let waits = waits.filter(|wait| share(wait.time_ns, ledger.span_ns) >= CAUSE_TOLD);
    let waits: Vec<String> = waits.map(|wait| waited(ledger, wait)).collect();
    let (device, span) = (device(report, ledger), duration(ledger.span_ns));
    let (waits, mark) = (waits.join("; "), mark(ledger.basis));
    Some(format!("{device} waited for other ranks, of {span}: {waits}{mark}."))
}

/// `4.1 % for rank 3 (late: waiting for data, train.py:40 in load)`.
fn waited(ledger: &IdleLedger, wait: &RankWait) -> String {
    let late = wait.late.as_ref().map(|late| {
        let of_it = match late.ratio {
            ratio if ratio < NEARLY_ALL => format!("{} ", percent(ratio)),
            _ => String::new(),
        };
        let cause = match late.cause {
            Some(cause) => cause.to_string(),
            None => "more work on its GPU".to_owned(),
        };
        let place = late.place.as_ref().map(|place| format!(", {}", text(place)));
        format!(" (late: {of_it}{cause}{})", gctrace_units::if_known(place))
    });
    let share = percent(share(wait.time_ns, ledger.span_ns));
    format!("{share} for rank {}{}", wait.rank, gctrace_units::if_known(late))
}

/// The changes to make, the largest saving first.
fn remedies(ledger: &IdleLedger) -> Vec<Block> {
    let rows = ledger.rows.iter().filter_map(|row| Some((row.saves_ns?, row, row.remedy?)));
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by_key(|(saves_ns, row, _)| (Reverse(*saves_ns), row.cause));
    let lines = rows.into_iter().map(|(saves_ns, row, remedy)| {
        // No host is infinitely fast.
        let most = if ledger.at_most || row.cause == IdleCause::Host { "up to " } else { "" };
        let (cause, saves) = (row.cause, duration(saves_ns));
        let sentence = format!("{cause}: {remedy}; saves {most}{saves}{}.", mark(ledger.basis));
        hanging(sentence, INDENT, "    ")
    });
    lines.collect()
}

/// The largest cause of each device, where there are several.
pub(super) fn devices(report: &Report) -> Vec<Block> {
    let ledgers = if let Some(work) = &report.gpu { work.idle.as_slice() } else { &[][..] };
    if ledgers.len() < 2 {
        return Vec::new();
    }
    let largest = |ledger: &IdleLedger| ledger.rows.first().map(|row| (row.cause, row.time_ns));
    let table = Table::of(ledgers.iter().take(DEVICES_SHOWN))
        .left("device", |ledger| device(report, ledger))
        .right("idle", |ledger| duration(ledger.idle_ns))
        .right("", |ledger| percent(share(ledger.idle_ns, ledger.span_ns)))
        .left("most of it", |ledger| match largest(ledger) {
            Some((cause, ns)) => format!("{cause}, {}", percent(share(ns, ledger.idle_ns))),
            None => String::new(),
        });
    let mut blocks = vec![table.into()];
    blocks.extend(more(ledgers.len(), DEVICES_SHOWN));
    blocks
}

/// `GPU 0 was`, with its rank or process where there are several.
pub(super) fn device(report: &Report, ledger: &IdleLedger) -> String {
    let devices = report.gpu.iter().flat_map(|work| &work.devices);
    let ids: Vec<DeviceId> = devices.map(|device| device.id).collect();
    name(ledger.id, &ids)
}

pub(super) fn idled(ledger: &IdleLedger) -> String {
    format!(
        "was idle {} of {}",
        percent(share(ledger.idle_ns, ledger.span_ns)),
        duration(ledger.span_ns)
    )
}

pub(super) fn share(part_ns: u64, whole_ns: u64) -> f64 {
    part_ns as f64 / whole_ns.max(1) as f64
}

fn rows(ledger: &IdleLedger) -> Block {
    Table::of(&ledger.rows)
        .left("cause", |row| Cell { color: Some(color(row.cause)), ..row.cause.to_string().into() })
        .right("idle", |row| Cell::figure(duration(row.time_ns), row.time_ns))
        .right("of idle", |row| {
            let of_idle = share(row.time_ns, ledger.idle_ns);
            Cell { value: of_idle.to_string(), ..percent(of_idle).into() }
        })
        .right("saves", |row| {
            Cell::figure(row.saves_ns.map(duration).or_dash(), row.saves_ns.unwrap_or(0))
        })
        .right("by order", |row| by_order(row).or_dash())
        .sortable()
        .into()
}

/// The idle time that goes without a cause if it is the last to be removed, and the first.
fn by_order(row: &IdleRow) -> Option<String> {
    let (last_ns, alone_ns) = (row.last_ns?, row.alone_ns?);
    let ends = [last_ns.min(alone_ns), last_ns.max(alone_ns)].map(signed_duration);
    let [least, most] = &ends;
    let least = match least.rsplit_once(' ') {
        Some((number, unit)) if most.ends_with(unit) => number,
        _ => least.as_str(),
    };
    Some(if ends[0] == *most { most.clone() } else { format!("{least}..{most}") })
}

/// The places of each cause.
fn place_lines(ledger: &IdleLedger) -> Vec<Block> {
    if ledger.rows.iter().all(|row| placed(row).next().is_none()) {
        return Vec::new();
    }
    let places = |row| placed(row).map(move |place| (row, place));
    let table = Table::of(ledger.rows.iter().flat_map(places))
        .left("cause", |(row, _)| row.cause.to_string())
        .right("gaps", |(_, place)| place.gaps.map(count).or_dash())
        .right("idle", |(_, place)| duration(place.time_ns))
        .right("saves", |(_, place)| place.saves_ns.map(duration).or_dash())
        .left("place", |(_, place)| without_folder(ledger, &line_first(&place.code)));
    let legend = "Gaps: all with a part of the place; saves: without it alone.";
    vec![table.into(), paragraph(legend)]
}

/// The places of a row worth naming.
fn placed(row: &IdleRow) -> impl Iterator<Item = &IdlePlace> {
    row.places.iter().filter(|place| share(place.time_ns, row.time_ns) >= CAUSE_TOLD)
}

/// The two places that cost the most, as in [`most`]: the second only where it is a part worth naming, without the call
/// if it is the same. The host's activity is named only where much of it is at one place.
fn largest(row: &IdleRow) -> Option<String> {
    let first = match most(row) {
        Some(first) => first,
        None if row.cause == IdleCause::Host => return None,
        None => {
            let place = row.places.first()?;
            format!("{} {}", percent(share(place.time_ns, row.time_ns)), text(&place.code))
        }
    };
    let of_row = |place: &IdlePlace| share(place.time_ns, row.time_ns);
    let [one, other, ..] = row.places.as_slice() else { return Some(first) };
    if of_row(one) >= NEARLY_ALL || of_row(other) < WORTH_NAMING {
        return Some(first);
    }
    let mut code = other.code.clone();
    let same = (&one.code.function, &one.code.operator) == (&code.function, &code.operator);
    if same && code.python.is_some() {
        (code.function, code.operator) = (None, None);
    }
    Some(format!("{first}, {} {}", percent(of_row(other)), text(&code)))
}

/// The place that costs the most, if it is a part worth naming; its share of the row where it is not nearly
/// all of it.
fn most(row: &IdleRow) -> Option<String> {
    let place = row.places.first()?;
    let of_row = share(place.time_ns, row.time_ns);
    let name = text(&place.code);
    match of_row {
        NEARLY_ALL.. => Some(name),
        WORTH_NAMING.. => Some(format!("{} {name}", percent(of_row))),
        _ => None,
    }
}

/// `cudaStreamSynchronize by aten::item at train.py:88 in step`.
fn text(place: &CodePlace) -> String {
    let (call, around) = (call(place), around(place));
    let word = if place.python.is_some() { "at" } else { "in" };
    match around {
        Some(around) if call.is_empty() => around,
        Some(around) => format!("{call} {word} {around}"),
        None => call,
    }
}

/// `train.py:88 in step: cudaStreamSynchronize by aten::item`: when cut, it keeps the line.
fn line_first(place: &CodePlace) -> String {
    match around(place) {
        Some(around) if call(place).is_empty() => around,
        Some(around) => format!("{around}: {}", call(place)),
        None => call(place),
    }
}

/// The call of a place; empty if it is none.
fn call(place: &CodePlace) -> String {
    match (&place.function, &place.operator) {
        (Some(function), Some(operator)) => format!("{function} by {operator}"),
        (Some(one), None) | (None, Some(one)) => one.clone(),
        (None, None) => String::new(),
    }
}

/// The line of a place, else its annotation.
fn around(place: &CodePlace) -> Option<String> {
    if let Some(at) = &place.python { Some(paths::place(at)) } else { place.annotation.clone() }
}

fn notes(ledger: &IdleLedger) -> String {
    let mut notes = format!(
        "{}. Idle: what goes when the causes are removed one after the other, in the order of what can \
         be switched off first; saves: how much shorter the time from first to last \
         operation is without this cause alone{} (inferred, by replay).",
        counted(ledger.gaps, "gap"),
        if ledger.at_most { ", at most" } else { "" },
    );
    notes.push_str(" By order: the idle time that goes without it, if it is the last to be removed or the first.");
    if ledger.rows.iter().any(replaced) {
        notes.push_str(
            " Where these differ, another cause takes the place of the removed one: they go only together.",
        );
    }
    if ledger.sample {
        notes.push_str(
            " The trace contains launches and copies only: it is a sample, and nobody can be seen \
             waiting in it.",
        );
    }
    notes
}

/// Whether much less idle time goes without a cause where the others are gone already.
fn replaced(row: &IdleRow) -> bool {
    let (Some(alone_ns), Some(last_ns)) = (row.alone_ns, row.last_ns) else { return false };
    alone_ns > 1_000_000 && last_ns < alone_ns / 2
}

fn one_gap(number: usize, gap: &IdleGap, started_ns: u64) -> [Block; 3] {
    let causes = gap.causes.iter();
    let parts = causes.filter(|part| share(part.time_ns, gap.duration_ns) >= WORTH_NAMING);
    let parts: Vec<String> =
        parts.map(|part| format!("{} {}", duration(part.time_ns), part.cause)).collect();
    let sentence = format!(
        "{number}. {} idle, {} after start: {}.",
        duration(gap.duration_ns),
        after_start(started_ns, gap.start_ns),
        parts.join(", "),
    );
    const BELOW: &str = "     ";
    let operation = |what: &str, name: &str| {
        Block::Line(BELOW, format!("{what} {}", if name.is_empty() { "(no name)" } else { name }))
    };
    let [before, after] = [operation("after ", &gap.before), operation("before", &gap.after)];
    [hanging(sentence, INDENT, BELOW), before, after]
}

/// Colors for activities of a device, or a thread; the first cause of idle time follows.
pub(super) const WORK: usize = 0;
pub(super) const IDLE: usize = 3;
/// Color of the rest, without a cause: gray.
pub(super) const REST: usize = 16;

/// Why the GPU with the most idle time was idle, and the activity of the others.
pub(crate) fn on_page(report: &Report) -> Section {
    let Some(ledger) = idlest(report) else { return Section::default() };
    let use_of = [
        ("compute", ledger.compute_ns, WORK),
        ("communication alone", ledger.communication_ns, 1),
        ("copies alone", ledger.copies_ns, 2),
        ("idle", ledger.idle_ns, IDLE),
    ];
    let use_of = use_of.map(|(name, ns, color)| (name.to_owned(), ns, color));
    let mut all = vec![
        Block::Bar("GPU time".to_owned(), parts(&use_of, ledger.span_ns)),
        Block::Bar("Idle time by cause".to_owned(), causes(ledger)),
    ];
    all.extend(explained(report, ledger));
    all.extend(devices(report));
    let gaps = gaps(report, ledger);
    if !gaps.is_empty() {
        all.push(Block::More("The longest gaps".to_owned(), gaps));
    }
    let about = format!("{} {}", device(report, ledger), idled(ledger));
    Section::new("Why the GPU was idle", all).id("idle").about(about)
}

pub(super) fn parts(times: &[(String, u64, usize)], whole_ns: u64) -> Vec<BarPart> {
    let part = |(name, ns, color): &(String, u64, usize)| {
        let ratio = share(*ns, whole_ns);
        BarPart {
            name: name.clone(),
            share: percent(ratio),
            width: format!("{:.3}", ratio * 100.0),
            color: *color,
        }
    };
    times.iter().filter(|(_, ns, _)| *ns > 0).map(part).collect()
}

fn causes(ledger: &IdleLedger) -> Vec<BarPart> {
    let time = |row: &IdleRow| (row.cause.to_string(), row.time_ns, color(row.cause));
    let times: Vec<_> = ledger.rows.iter().map(time).collect();
    parts(&times, ledger.idle_ns)
}
