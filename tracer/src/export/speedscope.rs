//! The speedscope file format (<https://www.speedscope.app/file-format-schema.json>): one `sampled`
//! profile per process, one sample per stack.
//!
//! A sample stands for all pauses of its stack, so the file grows with the number of stacks and not
//! of pauses; the trace has the time of each pause.

use super::ExportedProcess;
use crate::args::StackWeight;
use crate::text::file_name;
use gctrace_analysis::report::Location;
use serde::Serialize;
use std::collections::HashMap;
use std::io;
use std::io::Write;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SpeedscopeFile<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: &'static str,
    name: &'static str,
    active_profile_index: usize,
    shared: SpeedscopeShared<'a>,
    profiles: Vec<SpeedscopeProfile<'a>>,
}

#[derive(Serialize)]
struct SpeedscopeShared<'a> {
    frames: Vec<SpeedscopeFrame<'a>>,
}

#[derive(Serialize)]
struct SpeedscopeFrame<'a> {
    name: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    file: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SpeedscopeProfile<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'a str,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    /// Indices of frames, outermost first.
    samples: Vec<Vec<usize>>,
    weights: Vec<u64>,
}

/// Writes the file as one line.
pub(super) fn write(
    processes: &[ExportedProcess<'_>],
    by: StackWeight,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut frames = SpeedscopeFrames::default();
    let profiles = processes.iter().map(|process| profile(process, by, &mut frames)).collect();
    let file = SpeedscopeFile {
        schema: "https://www.speedscope.app/file-format-schema.json",
        exporter: concat!("gctrace ", env!("CARGO_PKG_VERSION")),
        name: match by {
            StackWeight::Cpu => "CPU time by stack (samples)",
            StackWeight::Time | StackWeight::Count | StackWeight::Layer => {
                "Garbage collection by triggering stack"
            }
        },
        active_profile_index: 0,
        shared: SpeedscopeShared { frames: frames.list.into_iter().map(frame).collect() },
        profiles,
    };
    serde_json::to_writer(&mut *out, &file)?;
    writeln!(out)
}

/// All frames, without duplicates.
#[derive(Default)]
struct SpeedscopeFrames<'a> {
    list: Vec<&'a Location>,
    indices: HashMap<&'a Location, usize>,
}

impl<'a> SpeedscopeFrames<'a> {
    fn index(&mut self, frame: &'a Location) -> usize {
        let next = self.list.len();
        let index = *self.indices.entry(frame).or_insert(next);
        if index == next {
            self.list.push(frame);
        }
        index
    }
}

fn frame(location: &Location) -> SpeedscopeFrame<'_> {
    SpeedscopeFrame { name: name(location), file: &location.file, line: location.line }
}

/// `load (job.py:11)`: includes the line, as the viewer shows only names by default.
fn name(location: &Location) -> String {
    match (file_name(&location.file), location.line) {
        ("", _) => location.function.clone(),
        (file, Some(line)) => format!("{} ({file}:{line})", location.function),
        (file, None) => format!("{} ({file})", location.function),
    }
}

fn profile<'a>(
    process: &'a ExportedProcess<'a>,
    by: StackWeight,
    frames: &mut SpeedscopeFrames<'a>,
) -> SpeedscopeProfile<'a> {
    let mut index = |frame: &&'a Location| frames.index(frame);
    let samples = process.stacks.iter();
    let samples = samples.map(|stack| stack.frames.iter().map(&mut index).collect());
    let samples = samples.collect();
    let weights: Vec<u64> = process.stacks.iter().map(|stack| stack.weight).collect();
    SpeedscopeProfile {
        kind: "sampled",
        name: &process.name,
        unit: match by {
            StackWeight::Time | StackWeight::Cpu | StackWeight::Layer => "nanoseconds",
            StackWeight::Count => "none",
        },
        start_value: 0,
        end_value: gctrace_units::sum(&weights),
        samples,
        weights,
    }
}
