//! Answers about heaps as text; `text/paths.rs` has paths and objects.

mod paths;

use super::advice;
use crate::document;
use crate::document::{Block, Style, Table, TableOf, Tone, hanging, paragraph, plain};
use crate::text::{OrDash as _, shell_line};
use crate::units::{bytes, count, counted, duration, percent};
use gctrace_heap::report::{
    DiffAnswer, DominatorsAnswer, HeapAnswer, HeapCount, HeapFacts, HeapObject, HeapReport, Held,
    ShowAnswer, TypeRow, WhyAnswer, WhyGroup,
};
use paths::{path, title};
use std::time::{Duration, SystemTime};

/// Names of the heaps of a comparison.
const NAMES: [&str; 3] = ["A", "B", "C"];
/// The indent of lines that belong to a heap or a suspect.
const BEHIND: &str = "   ";

/// The answer for people.
pub(super) fn answer(report: &HeapReport, style: Style) -> String {
    let mut blocks = Vec::new();
    for (name, facts) in NAMES.iter().zip(&report.heaps) {
        let name = match report.heaps.len() {
            1 => String::new(),
            _ => format!("{name}: {}: ", facts.file),
        };
        blocks.push(hanging(name + &heap(facts), "", BEHIND));
        let notes = facts.header.notes.iter().cloned().chain(doubts(facts));
        blocks.extend(notes.map(|note| hanging(note, BEHIND, BEHIND)));
    }
    blocks.push(Block::Gap);
    blocks.extend(match &report.answer {
        HeapAnswer::Show(show) => self::show(show, report.heaps.first(), style),
        HeapAnswer::Why(why) => self::why(why),
        HeapAnswer::Dominators(found) => dominators(found),
        HeapAnswer::Diff(diff) => self::diff(diff),
    });
    document::blocks_text(&blocks, style)
}

/// The process of the heap, when and how it was taken, and its size.
fn heap(facts: &HeapFacts) -> String {
    let header = &facts.header;
    let command = match header.command.as_slice() {
        [] => "process".to_owned(),
        command => shell_line(command),
    };
    let taken = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(header.taken_s));
    let taken = if header.taken_s > 0 { taken } else { None };
    let taken = taken.map(|taken| {
        let taken = humantime::format_rfc3339_seconds(taken).to_string();
        format!(", {}", taken.trim_end_matches('Z').replace('T', " ") + " UTC")
    });
    let way = if header.in_process { "walked in-process" } else { "copied from outside" };
    let stopped = header.stopped_ns.map(|ns| format!(", stopped for {}", duration(ns)));
    format!(
        "{command} (pid {}, CPython {}){}: {}, {} of their own, {}; {way}{}.",
        header.pid,
        header.version,
        gctrace_units::if_known(taken),
        counted(facts.objects, "object"),
        bytes(facts.bytes),
        counted(facts.references, "reference"),
        gctrace_units::if_known(stopped),
    )
}

/// A thread that is stopped between two counts is off by a few; that is no misreading.
const FEWEST_MISREAD: u64 = 8;

/// Limits of the answers.
fn doubts(facts: &HeapFacts) -> Vec<String> {
    let mut doubts = Vec::new();
    if facts.objects_of_unknown_bytes > 0 {
        doubts.push(format!(
            "The size of {} is unknown: bytes are lower bounds.",
            counted(facts.objects_of_unknown_bytes, "object")
        ));
    }
    if facts.contradictions >= FEWEST_MISREAD {
        doubts.push(format!(
            "{} objects have fewer references than were found: some were misread.",
            count(facts.contradictions)
        ));
    }
    doubts
}

fn show(show: &ShowAnswer, facts: Option<&HeapFacts>, style: Style) -> Vec<Block> {
    // The type matters more than the generations, and these more than untracked objects.
    let mut tables = [(true, true), (false, true), (false, false)]
        .map(|(generations, untracked)| types(show, generations, untracked).strong())
        .into_iter();
    let is_cut = |table: &Table| document::is_cut(table, style);
    let narrow = tables.next_back().unwrap_or_default();
    let mut blocks = vec![tables.find(|table| !is_cut(table)).unwrap_or(narrow).into()];
    if show.other_types > 0 {
        let text =
            format!("And {}: {}.", counted(show.other_types, "more type"), of_count(show.others));
        blocks.push(paragraph(text));
    }
    blocks.push(Block::Gap);
    if let Some(facts) = facts {
        let text = match facts.garbage.objects {
            0 => "No garbage: roots reach every object.".to_owned(),
            _ => format!(
                "Garbage, which no root reaches and the next collection of its generation frees: \
                 {}.",
                of_count(facts.garbage)
            ),
        };
        blocks.push(plain(text));
        if facts.frozen > 0 {
            let text = format!(
                "Frozen (gc.freeze()), so that no collection examines or frees them: {}.",
                counted(facts.frozen, "object")
            );
            blocks.push(plain(text));
        }
    }
    blocks
}

/// The table of types, without columns that would be 0 everywhere.
fn types(show: &ShowAnswer, generations: bool, untracked: bool) -> TableOf<&TypeRow> {
    let any = |of: fn(&TypeRow) -> u64| show.types.iter().any(|row| of(row) > 0);
    Table::of(&show.types)
        .right("objects", |row| count(row.all.objects))
        .right("bytes", |row| bytes(row.all.bytes))
        .right_if(generations && any(|row| row.generations[0]), "gen 0", |row| {
            count(row.generations[0])
        })
        .right_if(generations && any(|row| row.generations[1]), "gen 1", |row| {
            count(row.generations[1])
        })
        .right_if(generations && any(|row| row.generations[2]), "gen 2", |row| {
            count(row.generations[2])
        })
        .right_if(untracked && any(|row| row.untracked), "untracked", |row| count(row.untracked))
        .right_if(any(|row| row.frozen), "frozen", |row| count(row.frozen))
        .right_if(any(|row| row.garbage.objects), "garbage", |row| count(row.garbage.objects))
        .left("type", |row| row.type_name.clone())
}

fn why(why: &WhyAnswer) -> Vec<Block> {
    let mut blocks = vec![Block::Line("", format!("{}: {}", why.target, of_count(why.found)))];
    for group in &why.groups {
        blocks.push(Block::Gap);
        blocks.extend(self::group(group, why.found.objects));
    }
    if why.other_groups > 0 {
        blocks.push(Block::Gap);
        let text = format!(
            "And {} held in {}; -n shows more.",
            of_count(why.others),
            counted(why.other_groups, "other way")
        );
        blocks.push(plain(text));
    }
    blocks
}

fn group(group: &WhyGroup, of: u64) -> Vec<Block> {
    let many = match (group.count.objects, of) {
        (_, 1) => String::new(),
        (1, _) => "1 object: ".to_owned(),
        (objects, _) => format!("{}, for example ", counted(objects, "object")),
    };
    let heading = match (group.held, &group.place) {
        (Held::Nothing, _) if group.example.steps.is_empty() => format!(
            "{}garbage: no root reaches it, only other garbage does",
            many.trim_end_matches(", for example ")
        ),
        (Held::Nothing, _) => format!(
            "{}garbage, in a cycle of {}",
            many,
            counted(group.example.steps.len() as u64 + group.example.omitted, "object")
        ),
        (_, Some(place)) => format!("{many}{place}"),
        (_, None) => many,
    };
    let mut blocks = vec![Block::Heading(heading)];
    blocks.extend(path(&group.example));
    if group.held == Held::Outside {
        let unknown = "It has more references than the heap shows, or their number is unknown.";
        blocks.extend([unknown, super::OUTSIDE].map(paragraph));
    }
    blocks
}

fn dominators(found: &DominatorsAnswer) -> Vec<Block> {
    let mut blocks = Vec::new();
    let share = percent(found.suspect_share);
    let alive = bytes(found.alive_bytes);
    if found.suspects.is_empty() {
        let text = format!(
            "No leak suspect: no object retains {share} of {alive} or more. If the process has much more memory, it \
             is C code's, which counts for no object: tensors (a sum of losses keeps each step's graph: add \
             loss.item()), tables of libraries, or what malloc keeps after it was freed (malloc_trim(0)). \
             What grows by number: gctrace heap diff A B."
        );
        blocks.push(plain(text));
    } else {
        let text = format!("Leak suspects: each retains {share} of {alive} or more:");
        blocks.push(Tone::Strong.of(text));
    }
    for (number, suspect) in (1..).zip(&found.suspects) {
        blocks.push(Block::Gap);
        let row = &suspect.row;
        let what = match suspect.alike {
            1 => format!("{} ({}) retains", row.place, of_container(&row.object)),
            many => format!("{} such as {} retain", counted(many, "object"), row.place),
        };
        let what = format!(
            "{what} {} ({}) in {}",
            bytes(row.retained.bytes),
            percent(ratio(row.retained.bytes, found.alive_bytes)),
            counted(row.retained.objects, "object"),
        );
        blocks.push(hanging(what, format!("{number}. "), BEHIND));
        let types: Vec<String> = suspect
            .mostly
            .iter()
            .map(|mostly| {
                let (objects, size) = (count(mostly.count.objects), bytes(mostly.count.bytes));
                format!("{objects} {} ({size})", mostly.type_name)
            })
            .collect();
        let mostly = format!("Most of it: {}.", types.join(", "));
        let advice = advice(suspect.holder).to_owned();
        blocks.extend([mostly, advice].map(|text| hanging(text, BEHIND, BEHIND)));
    }
    blocks.push(Block::Gap);
    blocks.push(Block::Heading("Objects that depend on no other one alone:".to_owned()));
    let table = Table::of(&found.largest)
        .right("retained", |row| bytes(row.retained.bytes))
        .right("share", |row| percent(ratio(row.retained.bytes, found.alive_bytes)))
        .right("objects", |row| count(row.retained.objects))
        .right("own", |row| row.object.bytes.map(bytes).or_dash())
        .left("object", |row| format!("{} ({})", row.place, row.object.kind.type_name));
    blocks.push(table.into());
    let text = "Retained: what would be freed with an object, itself included; own memory of the \
                objects, not of what lies outside the heap, such as data of tensors.";
    blocks.push(Block::Gap);
    blocks.push(plain(text));
    blocks
}

/// `list, refers to 48,000 objects`.
fn of_container(object: &HeapObject) -> String {
    match object.refers_to {
        0 => title(object),
        refers_to => format!("{}, {}", title(object), counted(refers_to, "reference")),
    }
}

fn diff(diff: &DiffAnswer) -> Vec<Block> {
    let heaps = if let Some(row) = diff.types.first() { row.heaps.len() } else { 2 };
    let names = NAMES.get(..heaps).unwrap_or(&NAMES);
    let last = names.last().copied().unwrap_or("B");
    let born = match heaps {
        3 => "born between A and B and alive in C".to_owned(),
        _ => format!("born after A and alive in {last}"),
    };
    let text = format!(
        "{}: {}. Gone since A: {}.",
        capitalized(&born),
        of_count(diff.born),
        of_count(diff.gone)
    );
    let mut blocks = vec![plain(text)];
    blocks.push(Block::Gap);
    let changed = diff.types.iter().filter(|row| row.born.objects + row.gone.objects > 0);
    let mut table = Table::of(changed);
    for (index, name) in names.iter().enumerate() {
        table = table.right(name, |row| {
            if let Some(heap) = row.heaps.get(index) { count(heap.objects) } else { String::new() }
        });
    }
    let table = table
        .right("born", |row| count(row.born.objects))
        .right("bytes born", |row| bytes(row.born.bytes))
        .right("gone", |row| count(row.gone.objects))
        .left("type", |row| row.type_name.clone());
    blocks.push(table.strong().into());
    if !diff.owners.is_empty() {
        blocks.push(Block::Gap);
        let heading = "What holds those born, the nearest object that was there before:";
        blocks.push(Block::Heading(heading.to_owned()));
        let table = Table::of(&diff.owners)
            .right("born", |owner| count(owner.born.objects))
            .right("bytes", |owner| bytes(owner.born.bytes))
            .left("mostly", |owner| owner.mostly.clone())
            .left("held by", |owner| match &owner.owner {
                Some(object) => format!("{} ({})", owner.place, object.kind.type_name),
                None => "several objects".to_owned(),
            });
        blocks.push(table.into());
    }
    blocks.push(Block::Gap);
    let text = "The same object: address, type and name are equal, and its place in the collector's \
                lists, which are in order of age, does not contradict it (inferred; an address can \
                be used again).";
    blocks.push(plain(text));
    if diff.reused_addresses > 0 {
        let text = format!(
            "{} at the address of one of its type {} taken for new by age.",
            counted(diff.reused_addresses, "object"),
            match diff.reused_addresses {
                1 => "is",
                _ => "are",
            }
        );
        blocks.push(plain(text));
    }
    blocks
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + chars.as_str()
}

fn of_count(of: HeapCount) -> String {
    format!("{}, {}", counted(of.objects, "object"), bytes(of.bytes))
}

fn ratio(part: u64, whole: u64) -> f64 {
    gctrace_stats::ratio(part, whole).unwrap_or(0.0)
}

#[cfg(test)]
mod tests;
