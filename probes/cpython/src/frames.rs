//! Walks from a thread state along its frames.

use crate::memory::Memory;
use crate::{InstructionPointer, StackLayout};

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

/// The Python frames of a thread, innermost first, at most `depth`: as `sys._getframe()` in that thread would show
/// them. `tstate` is the address of its `PyThreadState`.
///
/// The result is exact while the thread is stopped. Otherwise it may be wrong, or `None`: something on
/// the way cannot be read.
pub fn walk(
    memory: &mut impl Memory,
    tstate: u64,
    layout: &StackLayout,
    depth: usize,
) -> Option<Vec<WalkedFrame>> {
    let mut next = innermost(memory, tstate, layout)?;
    let mut frames = Vec::new();
    for _ in 0..depth.saturating_add(EXTRA_STEPS) {
        if next == 0 || frames.len() >= depth {
            break;
        }
        if let Some((code, offset)) = shown(memory, next, layout)? {
            frames.push(WalkedFrame { code, byte_offset: offset.try_into().ok() });
        }
        next = memory.field(next, layout.frame_back)?;
    }
    Some(frames)
}

/// Address of the innermost frame of a thread, 0 if there is none; `None` if it cannot be read.
#[inline]
pub fn innermost(memory: &mut impl Memory, tstate: u64, layout: &StackLayout) -> Option<u64> {
    let frame = memory.field(tstate, layout.tstate_frame)?;
    match layout.frame_indirection {
        Some(offset) if frame != 0 => memory.field(frame, offset),
        _ => Some(frame),
    }
}

/// The code object of a frame and its instruction ([`instruction`]), if `sys._getframe()` shows it: it is one of
/// Python code, and complete (`_PyFrame_IsIncomplete`; pycore_frame.h, pycore_interpframe.h). `None` if it cannot be read.
#[inline]
pub fn shown(
    memory: &mut impl Memory,
    frame: u64,
    layout: &StackLayout,
) -> Option<Option<(u64, i64)>> {
    let owner = owner(memory, frame, layout)?;
    if owner >= StackLayout::OWNER_SHIM {
        return Some(None);
    }
    let code = code(memory, frame, layout)?;
    if code == 0 {
        return Some(None);
    }
    let offset = instruction(memory, frame, code, layout)?;
    if let Some(first) = layout.code_first_traceable
        && owner != StackLayout::OWNER_GENERATOR
        && offset < i64::from(memory.int_field(code, first)?) * 2
    {
        return Some(None);
    }
    Some(Some((code, offset)))
}

/// `enum _frameowner` of a frame, 0 before 3.11.
#[inline]
pub fn owner(memory: &mut impl Memory, frame: u64, layout: &StackLayout) -> Option<u8> {
    match layout.frame_owner {
        Some(offset) => memory.byte(frame.wrapping_add(offset.into())),
        None => Some(0),
    }
}

/// Address of the code object of a frame, 0 if it has none.
#[inline]
pub fn code(memory: &mut impl Memory, frame: u64, layout: &StackLayout) -> Option<u64> {
    Some(memory.field(frame, layout.frame_code)? & !layout.code_tag_mask)
}

/// Byte offset, from the start of this code, of the instruction that a frame executes; negative before the
/// first.
#[inline]
pub fn instruction(
    memory: &mut impl Memory,
    frame: u64,
    code: u64,
    layout: &StackLayout,
) -> Option<i64> {
    match layout.instruction {
        InstructionPointer::Index { offset, scale } => {
            let index = memory.int_field(frame, offset)?;
            Some(i64::from(index) * i64::from(scale))
        }
        InstructionPointer::Pointer { offset } => {
            let instruction = memory.field(frame, offset)?;
            let start = instructions(memory, frame, code, layout)?;
            Some(instruction.wrapping_sub(start).cast_signed())
        }
    }
}

/// Start of the instructions that the frame executes.
#[inline]
fn instructions(
    memory: &mut impl Memory,
    frame: u64,
    code: u64,
    layout: &StackLayout,
) -> Option<u64> {
    let copy = match layout.frame_tlbc_index {
        Some(offset) => memory.int_field(frame, offset)?,
        None => 0,
    };
    match (layout.code_tlbc, u64::try_from(copy)) {
        (Some(array), Ok(copy @ 1..)) => {
            let array = memory.field(code, array)?;
            memory.field(array.wrapping_add(copy.wrapping_mul(8)), TLBC_ENTRIES)
        }
        _ => Some(code.wrapping_add(layout.code_bytes.into())),
    }
}

/// In `_PyCodeArray`: the pointers, after their count (pycore_code.h, 3.14).
const TLBC_ENTRIES: u32 = 8;
