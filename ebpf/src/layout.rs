//! The layout of one build of CPython as the BPF programs read it. Pure.

use crate::wire::{FrameWire, InstructionKind, LayoutWire, NO_OFFSET, ObjectsWire};
use gctrace_cpython::{
    CollectorLayout, FrameLayout, GcBase, InstructionPointer, ObjectLayout, StatsLayout,
    StatsLocation,
};

/// `KNOWN_TYPES` of `bpf/event.h`.
const KNOWN_TYPES: usize = 1 + gctrace_cpython::KnownType::ALL.len();

fn or_none(offset: Option<u32>) -> u32 {
    offset.unwrap_or(NO_OFFSET)
}

/// The layout for the programs. The layout of an unknown build reads nothing: its pauses are timed, and described by
/// the function's arguments only.
pub(crate) fn layout(
    collector: Option<&CollectorLayout>,
    stack: Option<&FrameLayout>,
    found: Option<&ObjectLayout>,
) -> LayoutWire {
    let objects = match (found, stack) {
        (Some(found), Some(stack)) => objects((found, stack.unicode_ascii_data)),
        _ => unknown_objects(),
    };
    let known = collector.and_then(|collector| known(collector, stack));
    LayoutWire { objects, ..known.unwrap_or_else(unknown) }
}

/// `ascii_data`: where the text of a `str` is.
fn objects((found, ascii_data): (&ObjectLayout, u32)) -> ObjectsWire {
    let mut types = [0; KNOWN_TYPES];
    // The first stands for all other types.
    for (to, from) in types.iter_mut().skip(1).zip(found.types) {
        *to = from.unwrap_or(0);
    }
    ObjectsWire {
        types,
        type_qualname: found.type_qualname,
        function_code: found.function_code,
        generator_code: or_none(found.generator_code),
        generator_frame: found.generator_frame,
        frame_object_frame: or_none(found.frame_object_frame),
        ascii_data,
        minor: found.minor.into(),
        reserved: 0,
    }
}

/// Objects have only a type and its name.
fn unknown_objects() -> ObjectsWire {
    ObjectsWire { type_qualname: NO_OFFSET, ..ObjectsWire::default() }
}

fn unknown() -> LayoutWire {
    LayoutWire {
        tstate_interpreter: NO_OFFSET,
        interpreters_head: NO_OFFSET,
        finalizing: NO_OFFSET,
        interpreter_id: NO_OFFSET,
        gc_in_runtime: NO_OFFSET,
        gc_in_interpreter: NO_OFFSET,
        collecting: NO_OFFSET,
        enabled: NO_OFFSET,
        thresholds: [NO_OFFSET; 3],
        check_pointer: NO_OFFSET,
        stats: NO_OFFSET,
        long_lived_total: NO_OFFSET,
        heap_size: NO_OFFSET,
        frames: unknown_frames(),
        ..LayoutWire::default()
    }
}

fn unknown_frames() -> FrameWire {
    FrameWire { tstate_frame: NO_OFFSET, ..FrameWire::default() }
}

fn known(found: &CollectorLayout, stack: Option<&FrameLayout>) -> Option<LayoutWire> {
    let (gc_in_runtime, gc_in_interpreter) = match found.gc {
        GcBase::InRuntime(offset) => (offset, NO_OFFSET),
        GcBase::InInterpreter(offset) => (NO_OFFSET, offset),
    };
    let check = found.generations_self_check;
    let mut layout = LayoutWire {
        tstate_interpreter: found.tstate_interpreter,
        interpreters_head: found.interpreters_head,
        finalizing: found.finalizing,
        interpreter_id: or_none(found.interpreter_id),
        gc_in_runtime,
        gc_in_interpreter,
        collecting: found.collecting,
        enabled: found.enabled,
        thresholds: found.thresholds,
        check_pointer: or_none(check.map(|check| check.pointer)),
        check_target: if let Some(check) = check { check.target } else { 0 },
        long_lived_total: or_none(found.long_lived_total),
        heap_size: or_none(found.heap_size),
        collecting_guards: found.tests_collecting.into(),
        stats_incomplete: found.is_incremental.into(),
        frames: stack.map_or_else(unknown_frames, |stack| frames(stack, found.interpreter_next)),
        ..LayoutWire::default()
    };
    if found.is_incremental {
        // In memory, although `gc.get_threshold()` returns 0.
        layout.thresholds[2] = NO_OFFSET;
    }
    statistics(&found.stats, &mut layout)?;
    Some(layout)
}

fn frames(found: &FrameLayout, interpreter_next: u32) -> FrameWire {
    let stack = &found.stack;
    let (kind, instruction, scale) = match stack.instruction {
        InstructionPointer::Index { offset, scale } => {
            (InstructionKind::INSTRUCTION_INDEX, offset, scale)
        }
        InstructionPointer::Pointer { offset } => (InstructionKind::INSTRUCTION_POINTER, offset, 1),
    };
    FrameWire {
        tstate_frame: stack.tstate_frame,
        frame_indirection: or_none(stack.frame_indirection),
        frame_bytes: stack.frame_bytes(),
        frame_code: stack.frame_code,
        frame_back: stack.frame_back,
        frame_instruction: instruction,
        instruction_kind: kind.0,
        instruction_scale: scale,
        frame_owner: or_none(stack.frame_owner),
        frame_tlbc_index: or_none(stack.frame_tlbc_index),
        // only tags: low bits
        code_tag_mask: stack.code_tag_mask as u32,
        code_bytes: stack.code_bytes,
        code_tlbc: or_none(stack.code_tlbc),
        // From 3.12 on (`co_version`) no collection runs in a frame that has not started.
        code_first_traceable: or_none(match found.code_version {
            None => stack.code_first_traceable,
            Some(_) => None,
        }),
        code_filename: found.code_filename,
        code_name: found.code_name,
        code_first_line: found.code_first_line,
        code_line_table: found.code_line_table,
        bytes_length: found.bytes_length,
        bytes_data: found.bytes_data,
        runtime_tstate: or_none(found.runtime_tstate_current),
        interpreter_gil: or_none(found.interpreter_gil.map(|gil| gil.pointer)),
        gil_holder: or_none(found.interpreter_gil.map(|gil| gil.holder)),
        interpreter_threads: found.interpreter_threads_head,
        interpreter_next,
        tstate_next: found.tstate_next,
        tstate_thread_id: found.tstate_thread_id,
    }
}

/// The programs read the three counters of a generation side by side, as every version so far has
/// them; `None` for a build with another layout.
fn statistics(found: &StatsLayout, layout: &mut LayoutWire) -> Option<()> {
    let first = found.collections;
    let side_by_side = (found.collected, found.uncollectable) == (first + 8, first + 16);
    let array = found.generations.map(|generation| (generation.base, generation.index))
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
        to.index = or_none(from.index);
    }
    Some(())
}
