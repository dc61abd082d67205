//! Translates what `probes` found into what `ebpf` places. Pure.

use gctrace_ebpf::ArgumentRegisters;
use gctrace_ebpf::FrameOffsets;
use gctrace_ebpf::InstructionKind;
use gctrace_ebpf::Layout;
use gctrace_ebpf::NO_OFFSET;
use gctrace_ebpf::PlannedPoint;
use gctrace_ebpf::PointKind;
use gctrace_ebpf::unknown_frames;
use gctrace_ebpf::unknown_layout;
use gctrace_event::Interpreter;
use gctrace_probes::ArgumentRegister;
use gctrace_probes::CollectorArguments;
use gctrace_probes::CollectorKind;
use gctrace_probes::GcBase;
use gctrace_probes::ProbePoint;
use gctrace_probes::ProbePointKind as Found;
use gctrace_probes::Resolution;
use gctrace_probes::StatsLayout;
use gctrace_probes::StatsLocation;
use gctrace_probes::frames::FrameLayout;
use gctrace_probes::frames::InstructionPointer;
use std::path::Path;

/// From 3.13 on `gc_collect_main` itself tests `collecting` and returns if it is set.
const GUARDED_SINCE: (u8, u8) = (3, 13);

/// The layout for the BPF programs. For a build with an unknown layout, one that reads nothing:
/// pauses are timed, and described by the function's arguments only.
pub(crate) fn layout(resolution: &Resolution) -> Layout {
    known_layout(resolution).unwrap_or_else(unknown_layout)
}

fn known_layout(resolution: &Resolution) -> Option<Layout> {
    let found = resolution.layout.as_ref()?;
    let (gc_in_runtime, gc_in_interpreter) = match found.gc {
        GcBase::InRuntime(offset) => (offset, NO_OFFSET),
        GcBase::InInterpreter(offset) => (NO_OFFSET, offset),
    };
    let check = found.generations_self_check;
    let version = (resolution.version.major, resolution.version.minor);
    let mut layout = Layout {
        tstate_interpreter: found.tstate_interpreter,
        interpreters_head: found.interpreters_head,
        finalizing: found.finalizing,
        interpreter_id: found.interpreter_id.unwrap_or(NO_OFFSET),
        gc_in_runtime,
        gc_in_interpreter,
        collecting: found.collecting,
        enabled: found.enabled,
        thresholds: found.thresholds,
        check_pointer: check.map_or(NO_OFFSET, |check| check.pointer),
        check_target: check.map_or(0, |check| check.target),
        long_lived_total: found.long_lived_total.unwrap_or(NO_OFFSET),
        heap_size: found.heap_size.unwrap_or(NO_OFFSET),
        collecting_guards: u32::from(version >= GUARDED_SINCE),
        stats_incomplete: u32::from(resolution.collector == CollectorKind::Incremental),
        frames: resolution
            .frames
            .as_ref()
            .map_or_else(unknown_frames, frames),
        ..Layout::default()
    };
    if resolution.collector == CollectorKind::Incremental {
        // In memory, although `gc.get_threshold()` returns 0.
        layout.thresholds[2] = NO_OFFSET;
    }
    statistics(&found.stats, &mut layout)?;
    Some(layout)
}

/// The layout of stacks, if lines can be resolved: the freeing of code objects must be seen.
pub(crate) fn lines(resolution: &Resolution) -> Option<&FrameLayout> {
    let deaths_seen = resolution
        .points
        .iter()
        .any(|point| point.kind == Found::CodeDealloc);
    resolution.frames.as_ref().filter(|_| deaths_seen)
}

fn frames(found: &FrameLayout) -> FrameOffsets {
    let or_none = |offset: Option<u32>| offset.unwrap_or(NO_OFFSET);
    let (kind, instruction, scale) = match found.instruction {
        InstructionPointer::Index { offset, scale } => {
            (InstructionKind::INSTRUCTION_INDEX, offset, scale)
        }
        InstructionPointer::Pointer { offset } => (InstructionKind::INSTRUCTION_POINTER, offset, 1),
    };
    FrameOffsets {
        tstate_frame: found.tstate_frame,
        frame_indirection: or_none(found.frame_indirection),
        frame_bytes: found.frame_bytes(),
        frame_code: found.frame_code,
        frame_back: found.frame_back,
        frame_instruction: instruction,
        instruction_kind: kind.0,
        instruction_scale: scale,
        frame_owner: or_none(found.frame_owner),
        frame_tlbc_index: or_none(found.frame_tlbc_index),
        // only tags: low bits
        code_tag_mask: found.code_tag_mask as u32,
        code_bytes: found.code_bytes,
        code_tlbc: or_none(found.code_tlbc),
        // From 3.12 on (`co_version`) no collection runs in a frame that has not started.
        code_first_traceable: or_none(
            found
                .code_first_traceable
                .filter(|_| found.code_version.is_none()),
        ),
        code_filename: found.code_filename,
        code_name: found.code_name,
        code_first_line: found.code_first_line,
        code_line_table: found.code_line_table,
        bytes_length: found.bytes_length,
        bytes_data: found.bytes_data,
        runtime_tstate: or_none(found.runtime_tstate_current),
        interpreter_gil: or_none(found.interpreter_gil.map(|gil| gil.pointer)),
        gil_holder: or_none(found.interpreter_gil.map(|gil| gil.holder)),
    }
}

/// The BPF programs read the three counters of a generation side by side, as every version so far
/// has them; `None` for a build with another layout.
fn statistics(found: &StatsLayout, layout: &mut Layout) -> Option<()> {
    let first = found.collections;
    let side_by_side = (found.collected, found.uncollectable) == (first + 8, first + 16);
    let array = found
        .generations
        .map(|generation| (generation.base, generation.index))
        == [(0, None), (24, None), (48, None)];
    match found.place {
        StatsLocation::Inline(offset) if side_by_side && array => layout.stats = offset + first,
        StatsLocation::Behind(offset) if side_by_side => {
            layout.stats = offset;
            layout.stats_is_pointer = 1;
        }
        _ => return None,
    }
    for (to, from) in layout.generations.iter_mut().zip(&found.generations) {
        to.base = from.base + first;
        to.stride = from.stride;
        to.index = from.index.unwrap_or(NO_OFFSET);
    }
    Some(())
}

/// Translates the points found in an interpreter for `ebpf`. `layout`: index of its memory layout
/// in the BPF programs, if it has one.
pub(crate) fn points(resolution: &Resolution, layout: Option<u32>) -> Vec<PlannedPoint> {
    resolution
        .points
        .iter()
        .map(|found| point(found, resolution.runtime, layout))
        .collect()
}

fn point(found: &ProbePoint, runtime: u64, layout: Option<u32>) -> PlannedPoint {
    let (kind, both_ends) = kind(&found.kind);
    let arguments = match &found.kind {
        Found::Collect(arguments) => *arguments,
        _ => CollectorArguments::default(),
    };
    PlannedPoint {
        kind,
        layout,
        registers: ArgumentRegisters {
            tstate: arguments.tstate.map(number),
            generation: arguments.generation.map(number),
            reason: arguments.reason.map(number),
            nofail: arguments.no_fail.map(number),
        },
        fixed_generation: arguments.fixed_generation,
        runtime_delta: runtime.wrapping_sub(found.probe_address).cast_signed(),
        entry: Some(found.file_offset),
        on_return: both_ends.then(|| found.return_file_offset()),
        semaphore: found.semaphore_file_offset,
    }
}

/// The kind of a point, and whether its return is probed too.
fn kind(found: &Found) -> (PointKind, bool) {
    match found {
        Found::Collect(_) => (PointKind::POINT_COLLECT, true),
        Found::GcCollectBuiltin => (PointKind::POINT_GC_COLLECT, true),
        Found::PyGcCollect => (PointKind::POINT_PYGC_COLLECT, true),
        Found::StopTheWorld => (PointKind::POINT_STOP_WORLD, false),
        Found::StartTheWorld => (PointKind::POINT_START_WORLD, false),
        Found::CodeDealloc => (PointKind::POINT_CODE_DEALLOC, false),
        Found::UsdtStart { .. } => (PointKind::POINT_USDT_START, false),
        Found::UsdtDone { .. } => (PointKind::POINT_USDT_DONE, false),
    }
}

/// The number of the argument in this register, from 1.
fn number(register: ArgumentRegister) -> u8 {
    match register {
        ArgumentRegister::Rdi => 1,
        ArgumentRegister::Rsi => 2,
        ArgumentRegister::Rdx => 3,
        ArgumentRegister::Rcx => 4,
        ArgumentRegister::R8 => 5,
        ArgumentRegister::R9 => 6,
    }
}

/// The trace's description of an interpreter.
pub(crate) fn describe(resolution: &Resolution, shown: &Path) -> Interpreter {
    Interpreter {
        file: shown.to_string_lossy().into_owned(),
        version: resolution.version.to_string(),
        free_threaded: resolution.free_threaded,
        collector: resolution.collector.to_string(),
        found_by: resolution.rung.to_string(),
        build_id: resolution.build_id.clone(),
    }
}
