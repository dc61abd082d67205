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

#[derive(Args, Debug)]
pub(super) struct ExportArgs {
    /// Traces written by `gctrace record`, of which several give one file, and with `--format parquet`
    /// or `perfetto` those of the PyTorch profiler too; their summaries, or directories of summaries; or a heap
    /// written by `gctrace heap`
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// File format [default: by extension: .svg, .json (speedscope), .txt or .collapsed, .pstats,
    /// .pftrace (perfetto), .csv, .dot; otherwise svg, with `--path` or `--cycle` dot, with `--by layer` csv]
    #[arg(long, value_enum)]
    format: Option<ExportFormat>,
    /// File to write; `-` is standard output, the default. An existing file is not overwritten. With
    /// `--format parquet`, a directory for one file per table
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite FILE, or the tables of gctrace in that directory, if it exists
    #[arg(short, long, requires = "output")]
    force: bool,
    /// Weight of a stack; or memory by layer instead of stacks
    #[arg(long, group = CONFIGURABLE, value_enum, default_value = "time")]
    by: StackWeight,
    /// Only collections of this generation
    #[arg(long, group = CONFIGURABLE, value_name = "GENERATION", value_parser = clap::value_parser!(u8).range(0..=2))]
    generation: Option<u8>,
    /// Of a heap: draw the shortest path from a root to this object, or to one of this type, for
    /// graphviz
    #[arg(long, value_name = "TYPE|ADDRESS", conflicts_with = "cycle")]
    path: Option<HeapTarget>,
    /// Of a heap: draw the cycle that this object, or one of this type, is in, for graphviz
    #[arg(long, value_name = "TYPE|ADDRESS")]
    cycle: Option<HeapTarget>,
}

/// File format, by the program that reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
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

/// What to draw of a heap.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum HeapPicture {
    /// The shortest path from a root.
    Path(HeapTarget),
    /// A cycle.
    Cycle(HeapTarget),
}

/// Weight of a stack in a flame graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StackWeight {
    /// Total length of its pauses
    Time,
    /// Number of its pauses
    Count,
    /// CPU time of its samples (by kernel probes), whether in pauses or not
    Cpu,
    /// No stacks: PyTorch's memory by layer (`gctrace record --layers`)
    Layer,
}

/// Options of `gctrace export`, validated, with defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExportConfig {
    /// Traces or summaries to read, at least one, whose stacks go into one file, `-` is standard input; or one
    /// heap.
    pub traces: Vec<PathBuf>,
    /// Format as requested, else by the extension of `output`, else SVG, or DOT of a picture of a heap.
    pub format: ExportFormat,
    /// File to write, of tables the directory; `None` is standard output.
    pub output: Option<PathBuf>,
    /// Replace an existing `output`; without it, one with content is an error.
    pub force: bool,
    /// Weight of a stack: time or number of pauses, or CPU time of samples.
    pub by: StackWeight,
    /// Include only collections of this generation.
    pub generation: Option<u8>,
    /// What to draw, if it is a heap.
    pub picture: Option<HeapPicture>,
}

/// Fills in defaults; rejects an unknown extension of the output, and an SVG for a terminal.
pub(super) fn config(args: ExportArgs) -> Result<ExportConfig, clap::Error> {
    let output = args.output.filter(|path| !is_stdout(path));
    let picture = args.path.map(HeapPicture::Path).or(args.cycle.map(HeapPicture::Cycle));
    let format = match (args.format, &output) {
        (Some(format), _) => format,
        (None, Some(path)) => by_name(path)?,
        (None, None) if picture.is_some() => ExportFormat::Dot,
        (None, None) if args.by == StackWeight::Layer => ExportFormat::Csv,
        (None, None) => ExportFormat::Svg,
    };
    if (format == ExportFormat::Csv) != (args.by == StackWeight::Layer) {
        return Err(usage_error(
            ErrorKind::ArgumentConflict,
            match args.by {
                StackWeight::Layer => {
                    "memory by layer is written as CSV, not as a graph: --by layer --format csv"
                }
                _ => {
                    "only memory by layer is written as CSV (--by layer). Pauses and everything else are tables for \
                      pandas, polars and SQL: --format parquet -o DIRECTORY"
                }
            },
        ));
    }
    if format == ExportFormat::Perfetto && output.is_none() && crate::print::on_terminal() {
        return Err(usage_error(
            ErrorKind::MissingRequiredArgument,
            "standard output is a terminal, which cannot show a timeline: write it to a file (-o run.pftrace)",
        ));
    }
    if format == ExportFormat::Svg && output.is_none() && crate::print::on_terminal() {
        return Err(usage_error(
            ErrorKind::MissingRequiredArgument,
            "standard output is a terminal, which cannot show an SVG: write it to a file (-o gc.svg), \
             or print the stacks as text (--format collapsed)",
        ));
    }
    Ok(ExportConfig {
        traces: args.traces,
        format,
        output,
        force: args.force,
        by: args.by,
        generation: args.generation,
        picture,
    })
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
