//! The frame layout of each version, as data.
//!
//! Sources: the headers of each version, measured with `offsetof` (3.8.18, 3.9.18, 3.10.13, 3.11.7,
//! 3.12.1, 3.13.0, 3.13.18, 3.14.10, 3.15.2, the last four also with `Py_GIL_DISABLED`), and
//! compared with running interpreters by `probes/tests/plain/frames.rs`; for aarch64 with the debug
//! information of Debian's builds, by `probes/tests/plain/aarch64_offsets.rs`.

use crate::offsets::{
    CODE_FILENAME, CODE_QUALNAME, CODE_VERSION, FrameObject, Frames, SIZE, TYPE, type_object,
};
use crate::{FrameLayout, GilHolder, InstructionPointer, LineTableFormat, StackLayout};

impl FrameLayout {
    /// The layout of a version without `_Py_DebugOffsets` (3.8 - 3.12) on x86-64; `None` of any other.
    pub fn of_version(minor: u8) -> Option<Self> {
        match minor {
            8..=10 => with_objects(minor),
            11 | 12 => without_objects(minor),
            _ => None,
        }
    }
}

/// 3.8 - 3.10: frames are objects.
fn with_objects(minor: u8) -> Option<FrameLayout> {
    let Frames::Objects(frame) = Frames::new(minor)? else { return None };
    let (tstate_current, scale, line_table_format) = match minor {
        8 => (1368, 1, LineTableFormat::Lnotab),
        9 => (568, 1, LineTableFormat::Lnotab),
        _ => (568, 2, LineTableFormat::LineTable),
    };
    let (lasti, eleven) = (frame.last_instruction as u32, without_objects(11)?);
    Some(FrameLayout {
        runtime_tstate_current: Some(tstate_current),
        interpreter_threads_head: 8,
        tstate_thread_id: 176,
        stack: StackLayout {
            tstate_frame: 24,
            frame_indirection: None,
            frame_code: FrameObject::CODE as u32,
            frame_back: FrameObject::BACK as u32,
            instruction: InstructionPointer::Index { offset: lasti, scale },
            frame_owner: None,
            code_bytes: 0,
            code_first_traceable: None,
            ..eleven.stack
        },
        code_filename: 104,
        code_name: 112,
        code_first_line: 40,
        code_line_table: 120,
        line_table_format,
        ..eleven
    })
}

/// 3.11 and 3.12.
fn without_objects(minor: u8) -> Option<FrameLayout> {
    let Frames::Interpreter(frame) = Frames::new(minor)? else { return None };
    // Up to 3.11 both headers of `str` have a field `wstr`.
    let (threads_head, thread_id, first_line, ascii_data, compact_data) = match minor {
        11 => (16, 152, 72, 48, 72),
        _ => (72, 136, 68, 40, 56),
    };
    Some(FrameLayout {
        runtime_tstate_current: if minor == 11 { Some(576) } else { None },
        interpreter_gil: (minor == 12).then_some(GilHolder { pointer: 384, holder: 8 }),
        interpreter_threads_head: threads_head,
        tstate_next: 8,
        tstate_thread_id: thread_id,
        stack: frame.stack,
        code_version: if minor == 12 { Some(first_line + CODE_VERSION as u32) } else { None },
        code_filename: CODE_FILENAME as u32,
        code_name: CODE_QUALNAME as u32,
        code_first_line: first_line,
        code_line_table: 136,
        line_table_format: LineTableFormat::Locations,
        object_type: TYPE as u32,
        type_name: type_object::NAME as u32,
        unicode_length: 16,
        unicode_hash: 24,
        unicode_state: 32,
        unicode_state_shift: 2,
        unicode_ascii_data: ascii_data,
        unicode_compact_data: compact_data,
        bytes_length: SIZE as u32,
        bytes_data: 32,
    })
}
