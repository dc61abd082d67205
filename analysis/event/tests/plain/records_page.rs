//! docs/records.md, made from the declarations of the kinds and from the code that names them.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use crate::members::DeclaredTypes;
use gctrace_event::{Phase, Record};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use test_kit::schema;

const HEAD: &str = "\
# Records

Everything that a recording can contain, one kind a row, made from the declarations (`analysis/event/src/record.rs`;
[how lines are written](trace-format.md)) and from the code that names them. *Line*: `name` and `ph` of its event; of
slices the category. *Has*: the process, the thread, the time and the stack, as far as a record of the kind states them.
*Option*: what decides whether there are any. *Spaced*: beyond `--per-day` a recorder writes one of some; the kinds of a
class share their bytes. *Made in*: the files that construct it. *Summed up in*: files below `analysis/src/` with a
function that takes it, for reports and tables, and below `live/` for `gctrace top`. Kinds that nothing makes are read
from the traces of profilers.

| record | line | what it is | has | option | spaced | made in | summed up in |
|---|---|---|---|---|---|---|---|
";

/// Slices that no other tool writes.
const OURS: [&str; 2] = ["gc", "cuda launches"];

const MEMBERS: &str = "
## Members

What `args` of each line contain, and what its `ts`, `dur` (both in µs) and `sf` (the number of a frame) mean. A member
is missing where its meaning says so, and mostly where it is empty, `false` or 0.
";

/// A source file: its path from the checkout, and its text without tests.
type Source = (String, String);

/// The sources below a folder of the checkout.
fn sources(folder: &str) -> Vec<Source> {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut folders, mut found) = (vec![PathBuf::from(folder)], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(checkout.join(&folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let path = folder.join(&name);
            if checkout.join(&path).is_dir() {
                folders.extend((name != "tests").then_some(path));
            } else if name.ends_with(".rs") && name != "tests.rs" {
                let text = std::fs::read_to_string(checkout.join(&path)).unwrap();
                let (code, _) = text.split_once("#[cfg(test)]").unwrap_or((&text, ""));
                found.push((path.into_os_string().into_string().unwrap(), code.to_owned()));
            }
        }
    }
    found.sort();
    found
}

/// The type of each kind, by its name, as `record.rs` lists them.
fn types() -> BTreeMap<String, String> {
    let list = include_str!("../../src/record.rs");
    let entry = |line: &str| {
        let (name, rest) = line.trim().split_once('(')?;
        let (of, _) = rest.split_once("),")?;
        Some((name.to_owned(), of.to_owned()))
    };
    list.lines().filter_map(entry).collect()
}

fn declared() -> DeclaredTypes {
    DeclaredTypes::of(sources("analysis/event/src").into_iter().map(|(_, code)| code))
}

/// Whether the code constructs the type.
fn constructs(code: &str, of: &str) -> bool {
    code.match_indices(&format!("{of} {{")).any(|(at, _)| {
        let before = &code[..at];
        let is_whole = !before.ends_with(|letter: char| letter.is_alphanumeric() || letter == '_');
        is_whole && !["-> ", "impl ", "for ", "struct "].iter().any(|word| before.ends_with(word))
    })
}

/// Whether a function in the code takes the type.
fn takes(code: &str, of: &str) -> bool {
    code.split("fn ").skip(1).any(|function| {
        let arguments = function.split(['{', ';']).next().unwrap_or_default();
        let arguments = arguments.split(" -> ").next().unwrap_or_default();
        [format!(": {of}"), format!(": &{of}")].iter().any(|argument| {
            arguments
                .match_indices(argument.as_str())
                .any(|(at, _)| arguments[at + argument.len()..].starts_with([',', ')']))
        })
    })
}

fn named(sources: &[Source], prefix: &str, is_named: impl Fn(&str) -> bool) -> String {
    let files = sources.iter().filter(|(_, code)| is_named(code));
    let files = files.map(|(path, _)| format!("`{}`", path.strip_prefix(prefix).unwrap_or(path)));
    files.collect::<Vec<_>>().join(", ")
}

#[test]
fn the_page_of_records_is_made_from_their_declarations() {
    let folders = ["tracer/recorder/src/record", "ebpf/src", "probes/src"];
    let makers: Vec<Source> = folders.into_iter().flat_map(sources).collect();
    let folds = sources("analysis/src");
    let types = types();
    let declared = declared();
    let mut done = Vec::new();
    let header = declared.tables("TraceHeader", &mut done);
    let mut members = format!("{MEMBERS}\n### gctrace_header\n{header}");
    let mut page = HEAD.to_owned();
    for (record, doc, kind) in Record::KINDS {
        let phase = match kind.phase {
            Phase::Meta => "M",
            Phase::Instant(_) => "i",
            Phase::Slice => "X",
        };
        let has = kind.members;
        let has =
            [(has.pid, "process"), (has.tid, "thread"), (has.ts, "time"), (has.stack, "stack")];
        let has: Vec<&str> = has.into_iter().filter(|(is, _)| *is).map(|(_, what)| what).collect();
        let spaced = kind.spaced.map_or(String::new(), |class| format!("{class:?}").to_lowercase());
        let of = &types[*record];
        writeln!(
            page,
            "| `{record}` | `{}` {phase} |{doc} | {} | {} | {spaced} | {} | {} |",
            kind.name,
            has.join(", "),
            kind.options.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
            named(&makers, "tracer/recorder/src/record/", |code| constructs(code, of)),
            named(&folds, "analysis/src/", |code| takes(code, of)),
        )
        .unwrap();
        let tables = declared.tables(of, &mut done);
        // Slices but pauses and launches are as the PyTorch profiler writes them.
        if !tables.is_empty() && (phase != "X" || OURS.contains(&kind.name)) {
            write!(members, "\n### {}\n{tables}", kind.name).unwrap();
        }
    }
    page += &members;
    let file = schema::published("any").with_file_name("records.md");
    schema::assert_made(&file, &page, "-p gctrace-event records_page");
}

/// What libFuzzer puts into the traces that it makes up.
#[test]
fn the_fuzz_dictionary_has_every_name_of_the_declarations() {
    let mut dictionary = "# Made by the tests of gctrace-event from the declarations.\n".to_owned();
    let kinds = Record::KINDS.iter().map(|(_, _, kind)| kind.name.to_owned());
    for name in kinds.chain(declared().names()).collect::<BTreeSet<String>>() {
        writeln!(dictionary, "\"\\\"{name}\\\"\"").unwrap();
    }
    let checkout = schema::published("any").parent().unwrap().join("..");
    let file = checkout.join("analysis/fuzz/records.dict");
    schema::assert_made(&file, &dictionary, "-p gctrace-event records_page");
}
