//! `gctrace export`: GC time by triggering stack, for flame graph viewers; traces as tables; heaps
//! for others.
//!
//! Owns the choice of stacks, their weights, and the output. `export/` has the formats; `analyze.rs`
//! reads traces, `heap.rs` heaps.

mod flamegraph;
pub(crate) mod heap;
mod layers;
#[cfg(feature = "parquet")]
mod parquet;
mod perfetto;
mod pstats;
mod speedscope;

use crate::args::{ExportArgs, ExportFormat, StackWeight};
use crate::files::write_export;
use crate::heap::is_heap;
use crate::invoker::Invoker;
use crate::print::clean;
use crate::{analyze, print};
use gctrace_analysis::report::{Location, PauseTotal};
use gctrace_analysis::{Analysis, ProcessStacks, SampledStack, WeightedStack};
use std::io;
use std::io::Write;

/// The stacks of one process, with weights above 0.
struct ExportedProcess<'a> {
    /// Rank, command and pid.
    name: String,
    /// Sorted by frames, so that the output is deterministic and stacks with common outer frames are
    /// adjacent.
    stacks: Vec<ExportedStack<'a>>,
}

/// One stack.
struct ExportedStack<'a> {
    /// Frames, outermost first.
    frames: Vec<&'a Location>,
    /// Nanoseconds or number of pauses.
    weight: u64,
    /// Number of pauses or samples.
    count: u64,
}

/// Writes the stacks of all traces, or a heap, to one file. Returns the exit code: 0, or 1 if an
/// error kept any trace from being read completely.
///
/// # Errors
/// No trace can be read, none contains stacks (of the requested generation), there is nothing to
/// draw of a heap, the format is for another kind of file, or the output cannot be written.
pub(crate) fn run(config: &ExportArgs) -> anyhow::Result<u8> {
    let of_heap = config.traces.iter().any(|path| is_heap(path));
    let of_pauses = matches!(config.by, StackWeight::Time | StackWeight::Count) && !of_heap;
    anyhow::ensure!(
        config.generation.is_none() || of_pauses,
        "heaps, --by cpu and --by layer have no collections: omit --generation"
    );
    if of_heap {
        return heap::run(config).map(|()| 0);
    }
    anyhow::ensure!(
        config.format() != ExportFormat::Dot && config.path.is_none() && config.cycle.is_none(),
        "dot, --path and --cycle are for heaps: gctrace heap -p PID -o FILE.gcheap"
    );
    if config.format() == ExportFormat::Parquet {
        return tables(config);
    }
    if config.format() == ExportFormat::Csv {
        return layers::run(config);
    }
    if config.format() == ExportFormat::Perfetto {
        return perfetto::run(config);
    }
    let (analysis, code) = analyze::read_all(&config.traces, None)?;
    let processes = processes(&analysis, config);
    if processes.is_empty() {
        return Err(nothing(&analysis, config));
    }
    output(config, &|out| write(&processes, config, out))?;
    Ok(code)
}

#[cfg(feature = "parquet")]
fn tables(config: &ExportArgs) -> anyhow::Result<u8> {
    parquet::run(config)
}

#[cfg(not(feature = "parquet"))]
fn tables(_: &ExportArgs) -> anyhow::Result<u8> {
    anyhow::bail!(
        "this gctrace was built without Parquet: cargo build --release -p gctrace --features parquet"
    )
}

/// Writes to the file that was asked for, or standard output.
fn output(
    config: &ExportArgs,
    content: &(dyn Fn(&mut dyn Write) -> io::Result<()> + Sync),
) -> anyhow::Result<()> {
    match &config.output {
        Some(path) => {
            write_export(path, &Invoker::detect(), &config.traces, config.force, content)?
        }
        None => print::written_answer(content)?,
    }
    Ok(())
}

fn processes<'a>(analysis: &'a Analysis, config: &ExportArgs) -> Vec<ExportedProcess<'a>> {
    let many_traces = config.traces.len() > 1;
    analysis
        .stacks()
        .map(|process| ExportedProcess {
            name: name(&process, many_traces),
            stacks: match config.by {
                StackWeight::Cpu => sampled(process.sampled()),
                StackWeight::Time | StackWeight::Count | StackWeight::Layer => {
                    stacks(process.stacks(), config)
                }
            },
        })
        .filter(|process| !process.stacks.is_empty())
        .collect()
}

fn stacks<'a>(
    all: impl Iterator<Item = WeightedStack<'a>>,
    config: &ExportArgs,
) -> Vec<ExportedStack<'a>> {
    let mut stacks: Vec<ExportedStack<'a>> = all
        .map(|stack| {
            let pauses = pauses(&stack, config);
            let weight =
                if config.by == StackWeight::Count { pauses.count } else { pauses.time_ns };
            ExportedStack { frames: stack.frames(), weight, count: pauses.count }
        })
        .filter(|stack| stack.weight > 0)
        .collect();
    stacks.sort_by(|a, b| a.frames.cmp(&b.frames));
    stacks
}

fn sampled<'a>(all: impl Iterator<Item = SampledStack<'a>>) -> Vec<ExportedStack<'a>> {
    let mut stacks: Vec<ExportedStack<'a>> = all
        .map(|stack| ExportedStack {
            frames: stack.frames,
            weight: stack.cpu_ns,
            count: stack.samples,
        })
        .collect();
    stacks.sort_by(|a, b| a.frames.cmp(&b.frames));
    stacks
}

fn pauses(stack: &WeightedStack<'_>, config: &ExportArgs) -> PauseTotal {
    match config.generation {
        Some(generation) => stack.of_generation(generation),
        None => stack.pauses(),
    }
}

/// `rank 3: python train.py (4242)`.
fn name(process: &ProcessStacks<'_>, many_traces: bool) -> String {
    let command = match process.command() {
        command if command.is_empty() => "process".to_owned(),
        command => command,
    };
    let trace = if many_traces { format!("#{} ", process.trace() + 1) } else { String::new() };
    let rank =
        if let Some(rank) = process.rank() { format!("rank {rank}: ") } else { String::new() };
    format!("{trace}{rank}{command} ({})", process.pid())
}

/// The error if there is nothing to export.
fn nothing(analysis: &Analysis, config: &ExportArgs) -> anyhow::Error {
    if config.by == StackWeight::Cpu {
        return anyhow::anyhow!(
            "no samples with a Python stack. To have them: sudo gctrace record -- COMMAND"
        );
    }
    let any = analysis.stacks().next().is_some();
    match config.generation {
        Some(generation) if any => anyhow::anyhow!(
            "no collection of generation {generation} has a stack. To export other generations, \
             omit --generation"
        ),
        _ => anyhow::anyhow!(
            "no stack in {}: recorded with --stack-depth 0, by an older gctrace or another tool, or \
             no collection ran. To record stacks: sudo gctrace -- python SCRIPT.py",
            match config.traces.as_slice() {
                [trace] => trace.display().to_string(),
                traces => format!("{} traces", traces.len()),
            }
        ),
    }
}

fn write(
    processes: &[ExportedProcess<'_>],
    config: &ExportArgs,
    mut out: impl Write,
) -> io::Result<()> {
    match config.format() {
        ExportFormat::Collapsed => flamegraph::write_collapsed(processes, &mut out),
        ExportFormat::Speedscope => speedscope::write(processes, config.by, &mut out),
        ExportFormat::Pstats => {
            let unit = if config.by == StackWeight::Count { 1.0 } else { 1e-9 };
            pstats::write(processes, unit, &mut out)
        }
        ExportFormat::Svg => flamegraph::write(processes, config, &mut out),
        // Done or refused before.
        ExportFormat::Dot | ExportFormat::Csv | ExportFormat::Perfetto | ExportFormat::Parquet => {
            Ok(())
        }
    }
}

/// `build_batch (train.py:57)`, on one line.
fn frame_name(frame: &Location) -> String {
    let name = match (frame.file.as_str(), frame.line) {
        ("", _) => frame.function.clone(),
        (file, Some(line)) => format!("{} ({file}:{line})", frame.function),
        (file, None) => format!("{} ({file})", frame.function),
    };
    clean::line(&name).into_owned()
}
