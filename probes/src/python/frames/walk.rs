//! Walks from a thread state along its frames.

use crate::memory::{Memory, MemoryError, MemoryReader};
use gctrace_cpython::{FrameLayout, InstructionPointer};

/// A Python frame found by [`walk`]: its code object and where it is executing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkedFrame {
    /// Address of its code object in the process.
    pub code: u64,
    /// Byte offset in the code of the instruction that it executes; `None` before the first.
    pub byte_offset: Option<u32>,
}

/// Number of steps allowed in addition to the frames themselves. More than one entry from C between
/// two Python frames is rare; memory that changes during the walk may contain cycles.
const EXTRA_STEPS: usize = 64;

/// The Python frames of a thread, innermost first, at most `depth`: those that `sys._getframe()` in
/// that thread would show. `tstate` is the address of its `PyThreadState`.
///
/// The result is exact while the thread is stopped. Otherwise it may be wrong, or an error.
///
/// # Errors
/// If something on the way cannot be read.
pub fn walk<M: Memory + ?Sized>(
    memory: &M,
    tstate: u64,
    layout: &FrameLayout,
    depth: usize,
) -> Result<Vec<WalkedFrame>, MemoryError> {
    let reader = MemoryReader::new(memory);
    let mut next = innermost(&reader, tstate, layout)?;
    let mut frames = Vec::new();
    for _ in 0..depth.saturating_add(EXTRA_STEPS) {
        if next == 0 || frames.len() >= depth {
            break;
        }
        frames.extend(visible(&reader, next, layout)?);
        next = reader.word("frame", next, layout.frame_back)?;
    }
    Ok(frames)
}

/// Address of the innermost frame, 0 if there is none.
fn innermost<M: Memory + ?Sized>(
    reader: &MemoryReader<'_, M>,
    tstate: u64,
    layout: &FrameLayout,
) -> Result<u64, MemoryError> {
    let frame = reader.word("thread state", tstate, layout.tstate_frame)?;
    match layout.frame_indirection {
        Some(offset) if frame != 0 => reader.word("_PyCFrame", frame, offset),
        _ => Ok(frame),
    }
}

/// The frame at that address, if Python would show it.
fn visible<M: Memory + ?Sized>(
    reader: &MemoryReader<'_, M>,
    frame: u64,
    layout: &FrameLayout,
) -> Result<Option<WalkedFrame>, MemoryError> {
    let owner = match layout.frame_owner {
        Some(offset) => reader.byte("frame", frame, offset)?,
        None => 0,
    };
    if owner >= FrameLayout::OWNER_SHIM {
        return Ok(None);
    }
    let code = reader.word("frame", frame, layout.frame_code)? & !layout.code_tag_mask;
    if code == 0 {
        return Ok(None);
    }
    let offset = instruction_offset(reader, frame, code, layout)?;
    if owner != FrameLayout::OWNER_GENERATOR && is_incomplete(reader, code, offset, layout)? {
        return Ok(None);
    }
    Ok(Some(WalkedFrame { code, byte_offset: offset.try_into().ok() }))
}

/// Byte offset from the start of the code; negative before the first instruction.
fn instruction_offset<M: Memory + ?Sized>(
    reader: &MemoryReader<'_, M>,
    frame: u64,
    code: u64,
    layout: &FrameLayout,
) -> Result<i64, MemoryError> {
    match layout.instruction {
        InstructionPointer::Index { offset, scale } => {
            let index = reader.int("frame", frame, offset)?;
            Ok(i64::from(index).saturating_mul(scale.into()))
        }
        InstructionPointer::Pointer { offset } => {
            let instruction = reader.word("frame", frame, offset)?;
            let start = instructions(reader, frame, code, layout)?;
            Ok(instruction.wrapping_sub(start).cast_signed())
        }
    }
}

/// Start of the instructions that the frame executes.
fn instructions<M: Memory + ?Sized>(
    reader: &MemoryReader<'_, M>,
    frame: u64,
    code: u64,
    layout: &FrameLayout,
) -> Result<u64, MemoryError> {
    let copy = match layout.frame_tlbc_index {
        Some(offset) => reader.int("frame", frame, offset)?,
        None => 0,
    };
    match (layout.code_tlbc, u64::try_from(copy)) {
        (Some(array), Ok(copy @ 1..)) => {
            let array = reader.word("code object", code, array)?;
            let entry = array.wrapping_add(copy.wrapping_mul(8));
            reader.word("copies of the code", entry, TLBC_ENTRIES)
        }
        _ => Ok(code.wrapping_add(layout.code_bytes.into())),
    }
}

/// In `_PyCodeArray`: the pointers, after their count (pycore_code.h, 3.14).
const TLBC_ENTRIES: u32 = 8;

/// `_PyFrame_IsIncomplete` (pycore_frame.h, pycore_interpframe.h): the frame is being set up.
fn is_incomplete<M: Memory + ?Sized>(
    reader: &MemoryReader<'_, M>,
    code: u64,
    offset: i64,
    layout: &FrameLayout,
) -> Result<bool, MemoryError> {
    let Some(field) = layout.code_first_traceable else {
        return Ok(false);
    };
    let first = reader.int("code object", code, field)?;
    Ok(offset < i64::from(first).saturating_mul(2))
}
