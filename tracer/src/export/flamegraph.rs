//! A flame graph as SVG, drawn by inferno.

use super::Process;
use super::collapsed;
use crate::args::ExportConfig;
use crate::args::Weight;
use inferno::flamegraph;
use inferno::flamegraph::Options;
use inferno::flamegraph::color::MultiPalette;
use inferno::flamegraph::color::Palette;
use std::io;
use std::io::Write;

/// Microseconds per nanosecond: times are shown in microseconds.
const US_PER_NS: f64 = 1e-3;

/// Draws the stacks. Red frames are the program's own, blue ones of installed packages, yellow ones
/// of the standard library.
pub(super) fn write(
    processes: &[Process<'_>],
    config: &ExportConfig,
    out: &mut impl Write,
) -> io::Result<()> {
    let lines: Vec<String> = collapsed::lines(processes).collect();
    let mut options = Options::default();
    let of = match config.generation {
        Some(generation) => format!("Garbage collection (generation {generation})"),
        None => "Garbage collection".to_owned(),
    };
    match config.by {
        Weight::Time => {
            options.title = format!("{of}: time by triggering stack");
            options.count_name = "µs".to_owned();
            options.factor = US_PER_NS;
        }
        Weight::Count => {
            options.title = format!("{of}: pauses by triggering stack");
            options.count_name = "pauses".to_owned();
        }
    }
    options.subtitle =
        Some("red: the program, blue: installed packages, yellow: standard library".to_owned());
    options.colors = Palette::Multi(MultiPalette::Python);
    // The same trace gives the same picture.
    options.deterministic = true;
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), out)
}
