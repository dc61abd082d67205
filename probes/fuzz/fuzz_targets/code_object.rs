//! Any bytes as the parts of a code object, or as the memory of a process with its thread and
//! frames: a result or an error, no panic, no endless loop.

#![no_main]

use gctrace_cpython::frames::walk;
use gctrace_cpython::{CodeObject, FrameLayout, InstructionPointer, LineTableFormat, StackLayout};
use libfuzzer_sys::fuzz_target;

/// Small structures, so that they overlap and pointers lead from one into another.
fn layout(format: LineTableFormat, pointers: bool) -> FrameLayout {
    FrameLayout {
        runtime_tstate_current: None,
        interpreter_gil: None,
        interpreter_threads_head: 0,
        tstate_next: 0,
        tstate_thread_id: 8,
        stack: StackLayout {
        tstate_frame: 0,
        frame_indirection: pointers.then_some(8),
        frame_code: 0,
        frame_back: 8,
        code_tag_mask: 3,
        instruction: if pointers {
            InstructionPointer::Pointer { offset: 16 }
        } else {
            InstructionPointer::Index { offset: 16, scale: 2 }
        },
        frame_owner: pointers.then_some(24),
        frame_tlbc_index: pointers.then_some(25),
        code_bytes: 48,
        code_tlbc: pointers.then_some(40),
        code_first_traceable: pointers.then_some(24),
        },
        code_version: None,
        code_filename: 0,
        code_name: 16,
        code_first_line: 24,
        code_line_table: 32,
        line_table_format: format,
        object_type: 8,
        type_name: 0,
        unicode_length: 0,
        unicode_hash: 0,
        unicode_state: 8,
        unicode_state_shift: if pointers { 8 } else { 2 },
        unicode_ascii_data: 12,
        unicode_compact_data: 16,
        bytes_length: 0,
        bytes_data: 8,
    }
}

fuzz_target!(|input: (i32, u32, &[u8], &[u8], &[u8])| {
    let (first_line, offset, file, table, memory) = input;
    let mut bytes = |address: u64, into: &mut [u8]| {
        let start = usize::try_from(address).ok()?;
        into.copy_from_slice(memory.get(start..start.saturating_add(into.len()))?);
        Some(())
    };
    for format in [LineTableFormat::Lnotab, LineTableFormat::LineTable, LineTableFormat::Locations]
    {
        for pointers in [false, true] {
            let layout = layout(format, pointers);
            if let Some(code) = CodeObject::from_parts(first_line, file, file, table, &layout) {
                let _any_answer = code.line(offset);
            }
            let walked = walk(&mut bytes, offset.into(), &layout.stack, 64);
            for frame in walked.unwrap_or_default() {
                if let Some(code) = CodeObject::read(&mut bytes, frame.code, &layout) {
                    let _any_answer = code.frame_line(frame.byte_offset);
                }
            }
        }
    }
});
