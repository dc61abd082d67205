//! Profiles for Python's `pstats` and the tools that read its files, such as snakeviz.
//!
//! The file is one dictionary in the format of the module marshal (Python/marshal.c, every version from 3.4
//! on), as `profile.Profile.dump_stats` writes it: `{(file, line, function): (primitive calls, calls, own time, time
//! with callees, {caller: the same})}`. Stacks have no calls: the number of samples, or of pauses, takes the place of
//! their number.

use super::{ExportedProcess, ExportedStack};
use gctrace_units::{add_to, i32_or_most, u32_or_most};
use std::collections::BTreeMap;
use std::io;
use std::io::Write;

/// A function, by file and name.
type Function<'a> = (&'a str, &'a str);

/// Weight of one function, or of its calls by another.
#[derive(Clone, Copy, Default)]
struct Weights {
    count: u64,
    own: u64,
    all: u64,
}

#[derive(Default)]
struct Row<'a> {
    /// The lowest line seen; the first line of the function is unknown.
    line: Option<u32>,
    weights: Weights,
    callers: BTreeMap<Function<'a>, Weights>,
}

/// Writes the file; `unit`: of weights, in seconds.
pub(super) fn write(
    processes: &[ExportedProcess<'_>],
    unit: f64,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut rows: BTreeMap<Function<'_>, Row<'_>> = BTreeMap::new();
    for stack in processes.iter().flat_map(|process| &process.stacks) {
        add(&mut rows, stack);
    }
    out.write_all(b"{")?;
    for (function, row) in &rows {
        write_function(out, *function, row.line)?;
        out.write_all(b"(")?;
        out.write_all(&5u32.to_le_bytes())?;
        write_weights(out, row.weights, unit)?;
        out.write_all(b"{")?;
        for (caller, weights) in &row.callers {
            write_function(out, *caller, rows.get(caller).and_then(|row| row.line))?;
            out.write_all(b"(")?;
            out.write_all(&4u32.to_le_bytes())?;
            write_weights(out, *weights, unit)?;
        }
        out.write_all(b"0")?;
    }
    out.write_all(b"0")
}

/// Adds a stack: to each of its functions once, also if it is recursive.
fn add<'a>(rows: &mut BTreeMap<Function<'a>, Row<'a>>, stack: &ExportedStack<'a>) {
    let mut seen: Vec<(Function<'a>, Option<Function<'a>>)> = Vec::new();
    let mut caller = None;
    for (at, frame) in stack.frames.iter().enumerate() {
        let function = (frame.file.as_str(), frame.function.as_str());
        let row = rows.entry(function).or_default();
        row.line = match (row.line, frame.line) {
            (Some(known), Some(line)) => Some(known.min(line)),
            (known, line) => known.or(line),
        };
        let own = if at + 1 == stack.frames.len() { stack.weight } else { 0 };
        let is_new = !seen.iter().any(|(of, _)| *of == function);
        row.weights.add(own, stack, is_new);
        if let Some(caller) = caller {
            let is_new = !seen.contains(&(function, Some(caller)));
            let by = row.callers.entry(caller).or_default();
            by.add(own, stack, is_new);
        }
        seen.push((function, caller));
        caller = Some(function);
    }
}

impl Weights {
    fn add(&mut self, own: u64, stack: &ExportedStack<'_>, is_new: bool) {
        add_to(&mut self.own, own);
        if is_new {
            add_to(&mut self.all, stack.weight);
            add_to(&mut self.count, stack.count);
        }
    }
}

fn write_function(
    out: &mut impl Write,
    (file, name): Function<'_>,
    line: Option<u32>,
) -> io::Result<()> {
    out.write_all(b"(")?;
    out.write_all(&3u32.to_le_bytes())?;
    // The name that pstats gives to files that are none.
    write_text(out, if file.is_empty() { "~" } else { file })?;
    write_number(out, line.map_or(0, u64::from))?;
    write_text(out, name)
}

fn write_weights(out: &mut impl Write, weights: Weights, unit: f64) -> io::Result<()> {
    write_number(out, weights.count)?;
    write_number(out, weights.count)?;
    for weight in [weights.own, weights.all] {
        out.write_all(b"g")?;
        out.write_all(&(weight as f64 * unit).to_le_bytes())?;
    }
    Ok(())
}

fn write_number(out: &mut impl Write, number: u64) -> io::Result<()> {
    out.write_all(b"i")?;
    out.write_all(&i32_or_most(number).to_le_bytes())
}

fn write_text(out: &mut impl Write, text: &str) -> io::Result<()> {
    out.write_all(b"u")?;
    out.write_all(&u32_or_most(text.len()).to_le_bytes())?;
    out.write_all(text.as_bytes())
}
