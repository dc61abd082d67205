//! `gctrace dump`: `--keep DIR` is in `dump/keep.rs`; `-p PID`: the present state of a program. `gctrace_heap` looks,
//! and here is the text.

mod keep;
mod last_pauses;

use crate::args::{DumpArgs, OutputFormat};
use crate::document::{Block, INDENT, Style, Table, hanging, line, paragraph};
use crate::record::kernel::permission;
use crate::record::nvml;
use crate::text::{OrDash as _, shell_line};
use crate::units::{bytes, count, counted, duration};
use crate::{document, print};
use anyhow::Context as _;
use gctrace_analysis::paths;
use gctrace_heap::state::{InterpreterState, ProgramState, StackFrame, ThreadState};
use gctrace_heap::{StateOptions, look};
use gctrace_probes::nvml::{ExtraQueries, NvmlAbsences, NvmlLibrary, NvmlSampler};
use gctrace_probes::{ResolveOptions, proc_status};
use gctrace_units::if_known;
use last_pauses::RecordedPauses;
use serde::Serialize;
use std::collections::BTreeMap;

/// In the name of NVIDIA's driver library.
const DRIVER: &[u8] = b"libcuda";

/// Prints the state of a process. Returns the exit code: 0.
///
/// # Errors
/// It may not be stopped and read, runs no known CPython, or the output cannot be written.
pub(crate) fn run(config: &DumpArgs) -> anyhow::Result<u8> {
    if let Some(directory) = &config.keep {
        return keep::run(directory);
    }
    let pid = config.pid.context("no process is named: gctrace dump -p PID")?;
    permission::attachable(pid)?;
    let options = StateOptions {
        resolve: ResolveOptions::default(),
        depth: usize::from(config.stack_depth.get()),
        reason: gctrace_ebpf::waits_for,
    };
    let (state, gpus) = (look(pid, &options)?, gpus(pid));
    match config.form.of(None) {
        OutputFormat::Text => {
            // The known state first: a recorder may have much.
            print::answer(&text(&state, &gpus))?;
            if let Some(recorded) = last_pauses::of(pid) {
                print::answer(&last_lines(&recorded))?;
            }
        }
        OutputFormat::Json => {
            let report = DumpReport { state, gpus, recorded: last_pauses::of(pid) };
            print::exact_answer(&print::json(&report)?)?;
        }
    }
    Ok(0)
}

/// The JSON that `gctrace dump` prints.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct DumpReport {
    #[serde(flatten)]
    state: ProgramState,
    /// Memory of the process on each of its GPUs, by NVML; empty without NVIDIA's driver.
    gpus: Vec<GpuUse>,
    /// Its last pauses, if a recorder has it (`gctrace record --keep`); `null` if no recorder can be found.
    recorded: Option<RecordedPauses>,
}

/// Memory of a process on a GPU.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct GpuUse {
    /// Its index in NVML.
    gpu: u32,
    /// In bytes; `null`: the driver does not state it (MIG, WSL).
    bytes: Option<u64>,
}

/// For a process that has loaded NVIDIA's driver: asking for it takes a while.
fn gpus(pid: u32) -> Vec<GpuUse> {
    let maps = proc_status::maps(pid);
    if !maps.windows(DRIVER.len()).any(|window| window == DRIVER) {
        return Vec::new();
    }
    let Ok(library) = NvmlLibrary::open(nvml::library().as_deref()) else { return Vec::new() };
    let Ok((mut sampler, devices)) = NvmlSampler::new(&library) else { return Vec::new() };
    let extras = ExtraQueries { processes: true, ..ExtraQueries::default() };
    let mut absences = NvmlAbsences::default();
    let mut used = Vec::new();
    for (place, device) in devices.iter().enumerate() {
        let sample = sampler.sample(place, 0, extras, &mut absences);
        let Ok(Some(sample)) = sample else { continue };
        for process in sample.processes.unwrap_or_default() {
            if process.pid == pid {
                used.push(GpuUse { gpu: device.index, bytes: process.memory_bytes });
            }
        }
    }
    used
}

/// For people, without [`last_lines`].
fn text(state: &ProgramState, gpus: &[GpuUse]) -> String {
    let mut blocks = vec![hanging(
        format!(
            "{} (pid {}, CPython {}, {} collector), stopped for {}",
            if state.command.is_empty() {
                "process".to_owned()
            } else {
                shell_line(&state.command)
            },
            state.pid,
            state.version,
            state.collector.as_ref(),
            duration(state.stopped_ns)
        ),
        "",
        INDENT,
    )];
    blocks.extend(state.notes.iter().map(paragraph));
    blocks.push(Block::Gap);
    blocks.push(hanging(memory(state, gpus), "Memory: ", INDENT));
    blocks.push(hanging(small_objects(state), "Small objects: ", INDENT));
    for interpreter in &state.interpreters {
        blocks.extend(collector(interpreter, state.interpreters.len() > 1));
    }
    let (python, others): (Vec<_>, Vec<_>) =
        state.threads.iter().partition(|thread| thread.interpreter.is_some());
    for thread in python {
        blocks.push(Block::Gap);
        blocks.push(Block::Line("", title(thread, state)));
        blocks.extend(thread.frames.iter().map(|frame| line(place(frame))));
        match (thread.frames.is_empty(), thread.is_cut) {
            (true, _) => blocks.push(line("no Python code")),
            (_, true) => blocks.push(line("... (--stack-depth)")),
            _ => {}
        }
    }
    blocks.extend(without_python(&others));
    document::blocks_text(&blocks, Style::OF_FILES)
}

/// A recorder's data on it.
fn last_lines(recorded: &RecordedPauses) -> String {
    let pauses = hanging(last_pauses::words(recorded), "Last pauses: ", INDENT);
    document::blocks_text(&[Block::Gap, pauses], Style::OF_FILES)
}

fn memory(state: &ProgramState, gpus: &[GpuUse]) -> String {
    let memory = state.memory;
    let mut parts = vec![format!("{} resident", memory.resident_bytes.map(bytes).or_dash())];
    parts.extend(memory.anonymous_bytes.map(|of| format!("{} of them its own", bytes(of))));
    parts.extend(memory.peak_bytes.map(|most| format!("{} at most", bytes(most))));
    if let Some(swapped @ 1..) = memory.swapped_bytes {
        parts.push(format!("{} swapped out", bytes(swapped)));
    }
    parts.extend(gpus.iter().map(|used| match used.bytes {
        Some(of) => format!("{} on GPU {}", bytes(of), used.gpu),
        None => format!("some on GPU {}", used.gpu),
    }));
    parts.join(", ")
}

/// `12.3 MiB in 200,000 blocks, in 15 arenas of pymalloc (15.0 MiB); most in blocks of 64 bytes (4.1 MiB), ...`.
fn small_objects(state: &ProgramState) -> String {
    /// Sizes of blocks that are listed.
    const LISTED: usize = 3;
    let Some(pymalloc) = &state.pymalloc else {
        let why = if_known(state.without_pymalloc.as_deref());
        return format!("unknown: {why}");
    };
    let arenas = counted(pymalloc.arenas, "arena");
    let of = match pymalloc.allocators {
        0 | 1 => String::new(),
        many => format!(" of {many} interpreters"),
    };
    let all = format!("{arenas} of pymalloc ({}){of}", bytes(pymalloc.arena_bytes));
    let (Some(blocks), Some(used)) = (pymalloc.used_blocks, pymalloc.used_bytes) else {
        return format!("{all}, too many to count the memory in use");
    };
    let mut sizes: Vec<(u64, u64)> = pymalloc
        .sizes
        .iter()
        .map(|of| (gctrace_units::times(of.used_blocks, of.block_bytes), of.block_bytes))
        .collect();
    sizes.sort_unstable_by(|one, other| other.cmp(one));
    let most = sizes.iter().take(LISTED);
    let most: Vec<String> =
        most.map(|(of, size)| format!("{size} bytes ({})", bytes(*of))).collect();
    let most = match most.is_empty() {
        true => String::new(),
        false => format!("; most in blocks of {}", most.join(", ")),
    };
    format!("{} in {}, in {all}{most}", bytes(used), counted(blocks, "block"))
}

fn collector(state: &InterpreterState, is_one_of_several: bool) -> [Block; 2] {
    let of =
        if is_one_of_several { format!(" of interpreter {}", state.id) } else { String::new() };
    let numbers = |numbers: &[i32]| {
        let numbers: Vec<String> = numbers.iter().map(i32::to_string).collect();
        numbers.join(", ")
    };
    let is = match (state.is_enabled, state.is_collecting) {
        (_, Some(true)) => "collects now",
        (Some(true), _) => "enabled",
        (Some(false), _) => "disabled (gc.disable())",
        (None, _) => "of unknown state",
    };
    let mut parts = vec![
        is.to_owned(),
        format!("thresholds {}", numbers(&state.thresholds)),
        format!("counts {}", numbers(&state.counts)),
    ];
    parts.extend(state.oldest_objects.map(|left| {
        format!("{} in the oldest generation after its last collection", counted(left, "object"))
    }));
    parts.extend(state.heap_objects.map(|all| format!("{} tracked", counted(all, "object"))));
    parts.extend(state.frozen_objects.map(|frozen| {
        let least = if state.is_more_frozen { "more than " } else { "" };
        format!("{least}{} frozen", counted(frozen, "object"))
    }));
    let table = Table::of(state.generations.iter().enumerate())
        .right("generation", |(number, _)| number.to_string())
        .right("collections", |(_, of)| count(of.collections))
        .right("freed", |(_, of)| count(of.collected))
        .right("uncollectable", |(_, of)| count(of.uncollectable));
    [hanging(parts.join("; "), format!("Collector{of}: "), INDENT), table.into()]
}

/// `Thread 4242 "python" (main, has the GIL or had it last): waiting for a lock`.
fn title(thread: &ThreadState, state: &ProgramState) -> String {
    let mut marks = Vec::new();
    if thread.tid == Some(state.pid) {
        marks.push("main".to_owned());
    }
    if state.interpreters.len() > 1 {
        marks.extend(thread.interpreter.map(|id| format!("interpreter {id}")));
    }
    if thread.has_gil == Some(true) {
        marks.push("has the GIL, or had it last".to_owned());
    }
    let marks = if marks.is_empty() { String::new() } else { format!(" ({})", marks.join(", ")) };
    let tid = if_known(thread.tid.map(|tid| format!(" {tid}")));
    let name = if_known(thread.name.as_ref().map(|name| format!(" {name:?}")));
    format!("Thread{tid}{name}{marks}: {}", doing(thread))
}

fn doing(thread: &ThreadState) -> String {
    match (thread.waits_for, thread.is_running) {
        (Some(what), _) => format!("waiting for {what}"),
        (None, Some(true)) => "running".to_owned(),
        (None, _) => "unknown".to_owned(),
    }
}

fn place(frame: &StackFrame) -> String {
    let function = frame.function.as_deref().unwrap_or("?");
    let line = if_known(frame.line.map(|line| format!(":{line}")));
    match frame.file.as_deref() {
        Some(file) => format!("{}{line} in {function}", paths::short(file)),
        None => function.to_owned(),
    }
}

/// One line for all threads of C code.
fn without_python(threads: &[&ThreadState]) -> Vec<Block> {
    let mut names: BTreeMap<&str, u64> = BTreeMap::new();
    for thread in threads {
        *names.entry(thread.name.as_deref().unwrap_or("?")).or_default() += 1;
    }
    if names.is_empty() {
        return Vec::new();
    }
    let names: Vec<String> = names
        .into_iter()
        .map(|(name, times)| if times == 1 { name.to_owned() } else { format!("{name} ({times})") })
        .collect();
    let threads = counted(threads.len() as u64, "thread");
    let all = hanging(names.join(", "), format!("{threads} without Python: "), INDENT);
    vec![Block::Gap, all]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_published() {
        let schema = schemars::schema_for!(DumpReport);
        test_kit::schema::assert_published("dump", &schema, "-p gctrace dump::");
    }
}
