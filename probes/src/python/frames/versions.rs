//! The frame layout of each version, as data.
//!
//! Sources: the headers of each version, measured with `offsetof` (3.8.18, 3.9.18, 3.10.13, 3.11.7,
//! 3.12.1, 3.13.0, 3.13.18, 3.14.10, 3.15.2, the last four also with `Py_GIL_DISABLED`), and
//! compared with running interpreters by `tests/plain/frames.rs`; for aarch64 with the debug information of
//! Debian's builds, by `tests/plain/aarch64_offsets.rs`. `_Py_DebugOffsets` overrides the table.

use crate::elf::Machine;
use crate::python::debug_offsets::{DebugOffsets, FrameOffsets};
use crate::version::PythonVersion;
use gctrace_abi::{FrameLayout, GilHolder, InstructionPointer, LineTableFormat};

/// The layout of a version; `None` if unknown.
pub(crate) fn frame_layout(
    version: &PythonVersion,
    debug: Option<&DebugOffsets>,
    machine: Machine,
) -> Option<FrameLayout> {
    let layout = match (version.minor, debug) {
        (13..=15, Some(debug)) => from_debug_offsets(version.minor, debug)?,
        (8..=10, None) => by_table(version.minor)?,
        (11, None) => eleven(),
        (12, None) => twelve(),
        _ => return None,
    };
    let mutexes = 2 * mutex_growth(machine);
    Some(FrameLayout {
        runtime_tstate_current: layout.runtime_tstate_current.map(|at| at + mutexes),
        ..layout
    })
}

/// How much larger `pthread_mutex_t` is than on x86-64, where it has 40 bytes (glibc's
/// `__SIZEOF_PTHREAD_MUTEX_T`). The GIL, which comes before the current thread in `_PyRuntime`, has
/// two. No other offset of the tables comes after one.
fn mutex_growth(machine: Machine) -> u32 {
    match machine {
        Machine::X86_64 => 0,
        Machine::Aarch64 => 8,
    }
}

/// 3.8 - 3.10: frames are objects (Include/frameobject.h, Include/cpython/frameobject.h).
fn by_table(minor: u8) -> Option<FrameLayout> {
    let (tstate_current, lasti, scale, line_table_format) = match minor {
        8 => (1368, 104, 1, LineTableFormat::Lnotab),
        9 => (568, 104, 1, LineTableFormat::Lnotab),
        10 => (568, 96, 2, LineTableFormat::LineTable),
        _ => return None,
    };
    Some(FrameLayout {
        runtime_tstate_current: Some(tstate_current),
        interpreter_gil: None,
        interpreter_threads_head: 8,
        tstate_next: 8,
        tstate_thread_id: 176,
        tstate_frame: 24,
        frame_indirection: None,
        frame_code: 32,
        frame_back: 24,
        code_tag_mask: 0,
        instruction: InstructionPointer::Index { offset: lasti, scale },
        frame_owner: None,
        frame_tlbc_index: None,
        code_bytes: 0,
        code_tlbc: None,
        code_first_traceable: None,
        code_version: None,
        code_filename: 104,
        code_name: 112,
        code_first_line: 40,
        code_line_table: 120,
        line_table_format,
        object_type: 8,
        type_name: 24,
        unicode_length: 16,
        unicode_hash: 24,
        unicode_state: 32,
        unicode_state_shift: 2,
        // Both headers have a field `wstr` up to 3.11.
        unicode_ascii_data: 48,
        unicode_compact_data: 72,
        bytes_length: 16,
        bytes_data: 32,
    })
}

/// 3.11: `_PyInterpreterFrame` behind a `_PyCFrame` (pycore_frame.h, cpython/pystate.h).
fn eleven() -> FrameLayout {
    FrameLayout {
        runtime_tstate_current: Some(576),
        interpreter_gil: None,
        interpreter_threads_head: 16,
        tstate_thread_id: 152,
        frame_indirection: Some(8),
        frame_code: 32,
        frame_back: 48,
        frame_owner: Some(69),
        code_bytes: 184,
        code_first_traceable: Some(168),
        code_version: None,
        code_first_line: 72,
        unicode_ascii_data: 48,
        unicode_compact_data: 72,
        ..twelve()
    }
}

/// 3.12, which dropped the fields of `str` that came with `wstr`.
fn twelve() -> FrameLayout {
    FrameLayout {
        runtime_tstate_current: None,
        interpreter_gil: Some(GilHolder { pointer: 384, holder: 8 }),
        interpreter_threads_head: 72,
        tstate_next: 8,
        tstate_thread_id: 136,
        tstate_frame: 56,
        frame_indirection: Some(0),
        frame_code: 0,
        frame_back: 8,
        code_tag_mask: 0,
        instruction: InstructionPointer::Pointer { offset: 56 },
        frame_owner: Some(70),
        frame_tlbc_index: None,
        code_bytes: 192,
        code_tlbc: None,
        code_first_traceable: Some(176),
        code_version: Some(92),
        code_filename: 112,
        code_name: 128,
        code_first_line: 68,
        code_line_table: 136,
        line_table_format: LineTableFormat::Locations,
        object_type: 8,
        type_name: 24,
        unicode_length: 16,
        unicode_hash: 24,
        unicode_state: 32,
        unicode_state_shift: 2,
        unicode_ascii_data: 40,
        unicode_compact_data: 56,
        bytes_length: 16,
        bytes_data: 32,
    }
}

/// 3.13 - 3.15: from the build's own `_Py_DebugOffsets`.
fn from_debug_offsets(minor: u8, debug: &DebugOffsets) -> Option<FrameLayout> {
    let frames = debug.frames?;
    let copies = frames.tlbc;
    Some(FrameLayout {
        runtime_tstate_current: None,
        // The GIL of a free-threaded build is usually disabled; its last holder is then
        // meaningless.
        interpreter_gil: (!debug.free_threaded).then_some(frames.gil),
        interpreter_threads_head: frames.threads_head,
        tstate_next: frames.tstate_next,
        tstate_thread_id: frames.tstate_thread_id,
        tstate_frame: frames.tstate_frame,
        frame_indirection: None,
        frame_code: frames.frame_code,
        frame_back: frames.frame_back,
        code_tag_mask: if minor == 13 { 0 } else { 3 },
        instruction: InstructionPointer::Pointer { offset: frames.frame_instruction },
        frame_owner: Some(frames.frame_owner),
        frame_tlbc_index: copies.map(|(index, _)| index),
        code_bytes: frames.code_bytes,
        code_tlbc: copies.map(|(_, array)| array),
        code_first_traceable: Some(first_traceable(&frames)?),
        code_version: Some(frames.code_first_line.checked_add(CODE_VERSION)?),
        code_filename: frames.code_filename,
        code_name: frames.code_qualname,
        code_first_line: frames.code_first_line,
        code_line_table: frames.code_line_table,
        line_table_format: LineTableFormat::Locations,
        object_type: frames.object_type,
        type_name: frames.type_name,
        unicode_length: frames.unicode_length,
        unicode_hash: frames.unicode_length.checked_add(8)?,
        unicode_state: frames.unicode_state,
        unicode_state_shift: if debug.free_threaded && minor > 13 { 8 } else { 2 },
        unicode_ascii_data: frames.unicode_ascii_size,
        unicode_compact_data: frames.unicode_ascii_size.checked_add(UTF8_FIELDS)?,
        bytes_length: frames.bytes_length,
        bytes_data: frames.bytes_data,
    })
}

/// Distance of `co_version` from `co_firstlineno` (3.12 - 3.15).
const CODE_VERSION: u32 = 24;

/// `utf8_length` and `utf8`, by which `PyCompactUnicodeObject` is longer than `PyASCIIObject` from
/// 3.12 on.
const UTF8_FIELDS: u32 = 16;

/// `_co_firsttraceable` with its padding and `co_extra` come just before the array of thread-local
/// copies or, without that, before the code (3.13 - 3.15).
fn first_traceable(frames: &FrameOffsets) -> Option<u32> {
    let end = frames.tlbc.map_or(frames.code_bytes, |(_, array)| array);
    end.checked_sub(16)
}
