//! The line table decoder against the interpreters: every instruction of some thousand code objects
//! must have the line that the interpreter reports.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use gctrace_cpython::LineTableFormat;
use gctrace_cpython::line_table::line;
use serde::Deserialize;
use std::path::Path;
use std::process::{Command, Stdio};
use test_kit::interpreters;
use test_kit::limit::WithTimeout as _;

/// A code object as the script describes it.
#[derive(Deserialize)]
struct Code {
    name: String,
    first_line: i32,
    table: Vec<u8>,
    size: u32,
    /// Start, end, line.
    ranges: Vec<(u32, u32, Option<u32>)>,
}

fn format(version: (u8, u8)) -> LineTableFormat {
    match version {
        (3, 8 | 9) => LineTableFormat::Lnotab,
        (3, 10) => LineTableFormat::LineTable,
        _ => LineTableFormat::Locations,
    }
}

/// Compares all its instructions, of two bytes each; returns their number.
fn compare(code: &Code, format: LineTableFormat, interpreter: &str) -> usize {
    let mut compared = 0;
    for (start, end, printed) in &code.ranges {
        for offset in (*start..(*end).min(code.size)).step_by(2) {
            let found = line(format, &code.table, code.first_line, offset);
            assert_eq!(found, *printed, "{interpreter}: {} at {offset}", code.name);
            compared += 1;
        }
    }
    if format != LineTableFormat::Lnotab {
        let beyond = line(format, &code.table, code.first_line, code.size);
        assert_eq!(beyond, None, "{interpreter}: {}", code.name);
    }
    compared
}

/// Compares the script's report; returns the numbers of code objects and instructions.
fn codes(python: &Path, interpreter: &str) -> (usize, usize) {
    let printed = Command::new(python)
        .args(["-X", "utf8", "-c", include_str!("line_tables.py")])
        .stderr(Stdio::inherit())
        .output_in_time()
        .unwrap();
    assert!(printed.status.success(), "{interpreter}");
    let text = String::from_utf8(printed.stdout).unwrap();
    let mut lines = text.lines();
    let format = format(serde_json::from_str(lines.next().unwrap()).unwrap());
    let codes: Vec<Code> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    let instructions = codes.iter().map(|code| compare(code, format, interpreter)).sum();
    (codes.len(), instructions)
}

#[test]
fn lines_agree_with_the_interpreter() {
    let mut interpreters = 0;
    for interpreter in interpreters::interpreters("lines_agree_with_the_interpreter") {
        let (codes, instructions) = codes(&interpreter.path, &interpreter.name);
        // All of these have most of the modules, with 700 functions and classes and more.
        assert!(codes > 500, "{}: {codes} code objects", interpreter.name);
        assert!(instructions > 25_000, "{}", interpreter.name);
        eprintln!(
            "compared {}: {codes} code objects, {instructions} instructions",
            interpreter.name
        );
        interpreters += 1;
    }
    eprintln!("{interpreters} interpreters compared");
}
