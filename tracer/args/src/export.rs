//! The command line of `gctrace export`.

use super::{CONFIGURABLE, HeapTarget, usage_error};
use crate::files::is_stdout;
use clap::error::ErrorKind;
use clap::{Args, ValueEnum};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

pub(super) const EXAMPLES: &str = "\
Examples:
  gctrace export trace.json -o gc.svg        a flame graph for the browser
  gctrace export trace.json -o gc.json       for www.speedscope.app
  gctrace export trace.json --by cpu -o cpu.svg          what used the CPU (kernel probes)
  gctrace export trace.json --by cpu -o cpu.pstats       the same for snakeviz and python -m pstats
  gctrace export rank*.json* -o run.pftrace  a timeline for ui.perfetto.dev, GPU work included
  gctrace export rank*.json.gz --format parquet -o tables       for DuckDB, polars, pandas, ...
  gctrace export rank*.json --format collapsed --generation 2 | flamegraph.pl > full.svg
  gctrace export trace.json --by layer > layers.csv       PyTorch's memory by layer, step by step
  gctrace export train.gcheap --path Trainer | dot -Tsvg -o why.svg       what keeps it alive
  gctrace export train.gcheap --cycle 0x7f3a5c012340 | dot -Tsvg -o cycle.svg

With several processes, each is a root frame of its own, or with speedscope a profile.";

/// Options of `gctrace export`.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct ExportArgs {
    /// Traces written by `gctrace record`; several give one file. With `--format parquet` or `perfetto` also traces of
    /// the PyTorch profiler; their summaries, or directories of summaries; or a heap written by `gctrace heap`
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// File format [default: by extension: .svg, .json (speedscope), .txt or .collapsed, .pstats,
    /// .pftrace (perfetto), .csv, .dot; otherwise svg, with `--path` or `--cycle` dot, with `--by layer` csv]
    #[arg(long, value_enum)]
    pub format: Option<ExportFormat>,
    /// File to write; `-` is standard output, the default. An existing file is not overwritten. With
    /// `--format parquet`, a directory for one file per table
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Overwrite FILE, or the tables of gctrace in that directory, if it exists
    #[arg(short, long, requires = "output")]
    pub force: bool,
    /// Weight of a stack; or memory by layer instead of stacks
    #[arg(long, group = CONFIGURABLE, value_enum, default_value = "time")]
    pub by: StackWeight,
    /// Only collections of this generation
    #[arg(long, value_name = "GENERATION", value_parser = clap::value_parser!(u8).range(0..=2))]
    pub generation: Option<u8>,
    /// Of a heap: draw the shortest path from a root to this object, or to one of this type, for
    /// graphviz
    #[arg(long, value_name = "TYPE|ADDRESS", conflicts_with = "cycle")]
    pub path: Option<HeapTarget>,
    /// Of a heap: draw the cycle that this object, or one of this type, is in, for graphviz
    #[arg(long, value_name = "TYPE|ADDRESS")]
    pub cycle: Option<HeapTarget>,
}

/// File format, by the program that reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// One line per stack, weights in nanoseconds or pauses (input of flamegraph.pl)
    Collapsed,
    /// JSON for www.speedscope.app
    Speedscope,
    /// For `python -m pstats` and snakeviz; calls are samples, or pauses
    Pstats,
    /// Image for the browser
    Svg,
    /// Memory by layer as text for spreadsheets: a line per step, layer and kind
    Csv,
    /// A path or cycle of a heap for graphviz
    Dot,
    /// Timeline for ui.perfetto.dev: pauses, steps, calls and GPU work by rank, thread and stream; arrows
    /// from pauses to the operations that they delayed; why the GPU was idle
    Perfetto,
    /// Tables for DuckDB, polars, pandas, DataFusion: pauses, GPU operations, calls, collectives, ...
    Parquet,
}

/// Weight of a stack in a flame graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum StackWeight {
    /// Total length of its pauses
    #[default]
    Time,
    /// Number of its pauses
    Count,
    /// CPU time of its samples (by kernel probes), whether in pauses or not
    Cpu,
    /// No stacks: PyTorch's memory by layer (`gctrace record --layers`)
    Layer,
}

impl ExportArgs {
    /// The format as requested, else by the extension of the output, else SVG, or DOT of a picture of a heap.
    pub fn format(&self) -> ExportFormat {
        self.format.unwrap_or(ExportFormat::Svg)
    }

    /// With its format; `-` is no output.
    ///
    /// # Errors
    /// An unknown extension of the output, a picture for a terminal, or a format without the requested contents.
    pub(super) fn check(&mut self) -> Result<(), clap::Error> {
        self.output.take_if(|path| is_stdout(path));
        let is_picture = self.path.is_some() || self.cycle.is_some();
        let format = match (self.format, &self.output) {
            (Some(format), _) => format,
            (None, Some(path)) => by_name(path)?,
            (None, None) if is_picture => ExportFormat::Dot,
            (None, None) if self.by == StackWeight::Layer => ExportFormat::Csv,
            (None, None) => ExportFormat::Svg,
        };
        self.format = Some(format);
        let is_on_terminal = self.output.is_none() && crate::print::on_terminal();
        let problem = match (format, self.by) {
            (ExportFormat::Csv, StackWeight::Layer) => return Ok(()),
            (_, StackWeight::Layer) => (
                ErrorKind::ArgumentConflict,
                "memory by layer is written as CSV, not as a graph: --by layer --format csv",
            ),
            (ExportFormat::Csv, _) => (
                ErrorKind::ArgumentConflict,
                "only memory by layer is written as CSV (--by layer). Pauses and everything else are tables for \
                 pandas, polars and SQL: --format parquet -o DIRECTORY",
            ),
            (ExportFormat::Perfetto, _) if is_on_terminal => (
                ErrorKind::MissingRequiredArgument,
                "standard output is a terminal and cannot show a timeline: write it to a file (-o run.pftrace)",
            ),
            (ExportFormat::Svg, _) if is_on_terminal => (
                ErrorKind::MissingRequiredArgument,
                "standard output is a terminal, which cannot show an SVG: write it to a file (-o gc.svg), \
                 or print the stacks as text (--format collapsed)",
            ),
            _ => return Ok(()),
        };
        Err(usage_error(problem.0, problem.1))
    }
}

fn by_name(path: &Path) -> Result<ExportFormat, clap::Error> {
    match path.extension().and_then(OsStr::to_str) {
        None | Some("svg") => Ok(ExportFormat::Svg),
        Some("json") => Ok(ExportFormat::Speedscope),
        Some("pstats" | "prof") => Ok(ExportFormat::Pstats),
        Some("csv") => Ok(ExportFormat::Csv),
        Some("pftrace" | "perfetto-trace") => Ok(ExportFormat::Perfetto),
        Some("dot" | "gv") => Ok(ExportFormat::Dot),
        Some("txt" | "collapsed" | "folded") => Ok(ExportFormat::Collapsed),
        Some("html") => Err(usage_error(
            ErrorKind::InvalidValue,
            "a page is a report: gctrace report TRACE -o FILE.html",
        )),
        Some("parquet") => Err(usage_error(
            ErrorKind::InvalidValue,
            "tables are several files: name a directory for them, --format parquet -o DIRECTORY",
        )),
        Some(unknown) => Err(usage_error(
            ErrorKind::InvalidValue,
            &format!(
                "no format has the extension .{unknown}: use .svg, .json (speedscope), .txt, \
                 .collapsed, .pstats, .pftrace (perfetto), .csv or .dot, or pass --format"
            ),
        )),
    }
}
