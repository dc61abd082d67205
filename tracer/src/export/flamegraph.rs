//! A flame graph as SVG, drawn by inferno, and its collapsed stacks as text.

use super::{ExportedProcess, frame_name};
use crate::args::{ExportArgs, StackWeight};
use gctrace_analysis::paths::is_package;
use gctrace_analysis::report::Location;
use inferno::flamegraph;
use inferno::flamegraph::color::{Color, PaletteMap};
use inferno::flamegraph::{Options, TextTruncateDirection};
use std::io;
use std::io::Write;

/// Microseconds per nanosecond, as times are shown in microseconds.
const US_PER_NS: f64 = 1e-3;

/// Draws the stacks. Red frames are the program's, blue frames installed packages', yellow frames
/// the standard library's.
pub(super) fn write(
    processes: &[ExportedProcess<'_>],
    config: &ExportArgs,
    out: &mut impl Write,
) -> io::Result<()> {
    let lines: Vec<String> = lines(processes).collect();
    let mut options = Options::default();
    let of = match config.generation {
        Some(generation) => format!("Garbage collection (generation {generation})"),
        None => "Garbage collection".to_owned(),
    };
    match config.by {
        StackWeight::Time | StackWeight::Layer => {
            options.title = format!("{of}: time by triggering stack");
            options.count_name = "µs".to_owned();
            options.factor = US_PER_NS;
        }
        StackWeight::Cpu => {
            options.title = "CPU time by stack (samples)".to_owned();
            options.count_name = "µs".to_owned();
            options.factor = US_PER_NS;
        }
        StackWeight::Count => {
            options.title = format!("{of}: pauses by triggering stack");
            options.count_name = "pauses".to_owned();
        }
    }
    options.subtitle =
        Some("red: the program, blue: installed packages, yellow: standard library".to_owned());
    let mut colors = colors(processes);
    options.palette_map = Some(&mut colors);
    // Keep the start of names: it is the function.
    options.text_truncate_direction = TextTruncateDirection::Right;
    // The same trace gives the same image.
    options.deterministic = true;
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), out)
}

/// For frames that are not code.
const GRAY: Color = Color { r: 170, g: 170, b: 170 };

/// Colors by frame name.
fn colors(processes: &[ExportedProcess<'_>]) -> PaletteMap {
    let mut map = PaletteMap::default();
    // inferno's root frame has no name.
    map.insert("", GRAY);
    for process in processes {
        map.insert(separated(&process.name), GRAY);
    }
    let stacks = processes.iter().flat_map(|process| &process.stacks);
    for frame in stacks.flat_map(|stack| &stack.frames) {
        map.insert(separated(&frame_name(frame)), color(frame));
    }
    map
}

/// The color of a frame by its kind of code; the brightness varies by line.
fn color(frame: &Location) -> Color {
    /// Step of brightness, and number of steps.
    const STEP: u8 = 11;
    const STEPS: u32 = 5;
    let brighter = (frame.line.unwrap_or(0) % STEPS) as u8 * STEP;
    let (r, g, b) = match frame {
        frame if frame.file.is_empty() => return GRAY,
        frame if !frame.library => (215, 80, 70),
        frame if is_package(&frame.file) => (80, 165, 190),
        _ => (205, 185, 50),
    };
    let bright = |part: u8| part.saturating_add(brighter);
    Color { r: bright(r), g: bright(g), b: bright(b) }
}

/// Writes collapsed stacks: one line per stack with semicolon-separated frames, outermost first, a
/// space, and the weight (github.com/brendangregg/FlameGraph, `flamegraph.pl`); with several
/// processes, each under a root frame with its name.
pub(super) fn write_collapsed(
    processes: &[ExportedProcess<'_>],
    out: &mut impl Write,
) -> io::Result<()> {
    for line in lines(processes) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// One line per stack, frames outermost first, without newline; with several processes, the name of
/// the process comes first.
fn lines<'a>(processes: &'a [ExportedProcess<'_>]) -> impl Iterator<Item = String> + 'a {
    let several = processes.len() > 1;
    processes.iter().flat_map(move |process| {
        let root = if several { Some(separated(&process.name)) } else { None };
        process.stacks.iter().map(move |stack| {
            let frames = stack.frames.iter().map(|frame| separated(&frame_name(frame)));
            let names: Vec<String> = root.iter().cloned().chain(frames).collect();
            format!("{} {}", names.join(";"), stack.weight)
        })
    })
}

/// A name without the characters that would end it in this format.
fn separated(name: &str) -> String {
    let plain = |char: char| match char {
        ';' => ':',
        char if char.is_control() => '\u{fffd}',
        char => char,
    };
    name.chars().map(plain).collect()
}
