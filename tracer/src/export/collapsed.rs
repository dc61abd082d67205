//! Collapsed stacks: one line per stack with semicolon-separated frames, outermost first, a space,
//! and the weight (github.com/brendangregg/FlameGraph, `flamegraph.pl`).

use super::{ExportedProcess, frame_name};
use std::io;
use std::io::Write;

/// Writes the stacks; with several processes, each under a root frame with its name.
pub(super) fn write(processes: &[ExportedProcess<'_>], out: &mut impl Write) -> io::Result<()> {
    for line in lines(processes) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// One line per stack, frames outermost first, without newline; with several processes, the name of
/// the process comes first.
pub(super) fn lines<'a>(processes: &'a [ExportedProcess<'_>]) -> impl Iterator<Item = String> + 'a {
    let several = processes.len() > 1;
    processes.iter().flat_map(move |process| {
        let root = several.then(|| separated(&process.name));
        process.stacks.iter().map(move |stack| {
            let frames = stack.frames.iter().map(|frame| separated(&frame_name(frame)));
            let names: Vec<String> = root.iter().cloned().chain(frames).collect();
            format!("{} {}", names.join(";"), stack.weight)
        })
    })
}

/// A name without the characters that would end it in this format.
pub(super) fn separated(name: &str) -> String {
    let plain = |char: char| match char {
        ';' => ':',
        char if char.is_control() => '\u{fffd}',
        char => char,
    };
    name.chars().map(plain).collect()
}
