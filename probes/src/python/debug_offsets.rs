//! `_Py_DebugOffsets`: the self-description of memory layout that CPython 3.13 and later have at
//! the start of `_PyRuntime` (Include/internal/pycore_debug_offsets.h, in 3.13 pycore_runtime.h).

use crate::elf::ElfImage;
use gctrace_cpython::offsets::{CODE_VERSION, FIRST_TRACEABLE_BEFORE, InterpreterFrame};
use gctrace_cpython::{FrameLayout, GilHolder, InstructionPointer, LineTableFormat, StackLayout};

/// The magic number at the start of the structure.
const COOKIE: &[u8; 8] = b"xdebugpy";

/// Number of words to read: past the end of the `unicode_object` and `gc` groups of every known
/// version.
const WORDS: u64 = 100;

/// The fields of `_Py_DebugOffsets` that locate the collector's state. In bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DebugOffsets {
    /// `PY_VERSION_HEX`.
    pub(crate) version: u32,
    pub(crate) free_threaded: bool,
    /// Size of `_PyRuntime`.
    pub(crate) runtime_size: u32,
    pub(crate) finalizing: u32,
    pub(crate) interpreters_head: u32,
    pub(crate) interpreter_id: u32,
    pub(crate) interpreter_next: u32,
    pub(crate) interpreter_gc: u32,
    pub(crate) thread_interpreter: u32,
    /// Size of the collector's state: it distinguishes the collectors of one minor version.
    pub(crate) gc_size: u32,
    pub(crate) gc_collecting: u32,
    /// 3.15 and later: size of the statistics and offset of the pointer to them.
    pub(crate) generation_stats: Option<(u32, u32)>,
    /// How to reach the Python stack; `None` if a field is implausible.
    pub(crate) frames: Option<FrameLayout>,
}

/// Where the groups of a [`FrameLayout`] start in one minor version, in words like
/// [`OffsetPositions`]. The order within a group is the same in all versions.
struct FramePositions {
    /// `interpreter_state.ceval_gil`.
    ceval_gil: usize,
    /// `thread_state.next`; `thread_state.current_frame` comes two words later.
    thread_next: usize,
    thread_id: usize,
    /// `interpreter_frame.previous`.
    frame: usize,
    /// `code_object.filename`.
    code: usize,
    /// `interpreter_frame.tlbc_index` and `code_object.co_tlbc`.
    tlbc: Option<(usize, usize)>,
    object_type: usize,
    type_name: usize,
    /// `bytes_object.ob_size`.
    bytes: usize,
    /// `unicode_object.state`.
    unicode: usize,
}

impl FramePositions {
    fn of(minor: u8) -> Option<Self> {
        let (ceval_gil, thread_next, thread_id, frame, code, tlbc, object_type) = match minor {
            13 => (14, 21, 24, 29, 35, None, 45),
            14 => (15, 24, 27, 32, 40, Some((38, 49)), 51),
            15 => (15, 24, 30, 40, 48, Some((46, 57)), 59),
            _ => return None,
        };
        let (bytes, unicode) = match minor {
            13 => (65, 68),
            14 => (75, 78),
            _ => (87, 90),
        };
        Some(Self {
            ceval_gil,
            thread_next,
            thread_id,
            frame,
            code,
            tlbc,
            object_type,
            type_name: object_type + 2,
            bytes,
            unicode,
        })
    }
}

/// `None` if a field is implausible.
fn frames(
    minor: u8,
    free_threaded: bool,
    offset: impl Fn(usize) -> Option<u32>,
) -> Option<FrameLayout> {
    let at = FramePositions::of(minor)?;
    let (gil_state, last_holder) = (at.ceval_gil + 1, at.ceval_gil + 4);
    // A subinterpreter may share the GIL of another one: `ceval.gil` points to it. The offsets of the GIL's fields are
    // relative to the interpreter that has it: only their difference holds for every GIL.
    let gil = GilHolder {
        pointer: offset(at.ceval_gil)?,
        holder: offset(last_holder)?.checked_sub(offset(gil_state)?)?,
    };
    // They are 0 in builds with the GIL.
    let copies = |(index, array)| Some((offset(index)?, offset(array)?));
    let at_tlbc = if free_threaded { at.tlbc } else { None };
    let (tlbc_index, tlbc) = at_tlbc.and_then(copies).unzip();
    let (first_line, instructions) = (offset(at.code + 4)?, offset(at.code + 8)?);
    // It and `co_extra` come just before the array of thread-local copies or, without that, before
    // the code.
    let first_traceable =
        tlbc.unwrap_or(instructions).checked_sub(FIRST_TRACEABLE_BEFORE as u32)?;
    let (unicode_length, ascii_size) = (offset(at.unicode + 1)?, offset(at.unicode + 2)?);
    Some(FrameLayout {
        runtime_tstate_current: None,
        // The GIL of a free-threaded build is usually disabled; its last holder is then
        // meaningless.
        interpreter_gil: if free_threaded { None } else { Some(gil) },
        interpreter_threads_head: offset(THREADS_HEAD)?,
        tstate_next: offset(at.thread_next)?,
        tstate_thread_id: offset(at.thread_id)?,
        stack: StackLayout {
            tstate_frame: offset(at.thread_next + 2)?,
            frame_indirection: None,
            frame_back: offset(at.frame)?,
            frame_code: offset(at.frame + 1)?,
            code_tag_mask: if minor == 13 { 0 } else { InterpreterFrame::TAG },
            instruction: InstructionPointer::Pointer { offset: offset(at.frame + 2)? },
            frame_owner: Some(offset(at.frame + 4)?),
            frame_tlbc_index: tlbc_index,
            code_bytes: instructions,
            code_tlbc: tlbc,
            code_first_traceable: Some(first_traceable),
        },
        code_filename: offset(at.code)?,
        code_name: offset(at.code + 2)?,
        code_line_table: offset(at.code + 3)?,
        line_table_format: LineTableFormat::Locations,
        code_first_line: first_line,
        code_version: Some(first_line.checked_add(CODE_VERSION as u32)?),
        object_type: offset(at.object_type)?,
        type_name: offset(at.type_name)?,
        bytes_length: offset(at.bytes)?,
        bytes_data: offset(at.bytes + 1)?,
        unicode_state: offset(at.unicode)?,
        unicode_state_shift: if free_threaded && minor > 13 { 8 } else { 2 },
        unicode_length,
        unicode_hash: unicode_length.checked_add(8)?,
        unicode_ascii_data: ascii_size,
        unicode_compact_data: ascii_size.checked_add(UTF8_FIELDS)?,
    })
}

/// `utf8_length` and `utf8`: from 3.12 on, `PyCompactUnicodeObject` is longer than `PyASCIIObject` by these.
const UTF8_FIELDS: u32 = 16;

/// `interpreter_state.threads_head`, as an index of a word.
const THREADS_HEAD: usize = 9;

/// Positions of the fields in one minor version, as indices of 64-bit words, counted in the
/// headers.
struct OffsetPositions {
    interpreter_gc: usize,
    thread_interpreter: usize,
    gc: usize,
    generation_stats: Option<usize>,
}

impl OffsetPositions {
    fn of(minor: u8) -> Option<Self> {
        let (interpreter_gc, thread_interpreter, gc, generation_stats) = match minor {
            13 => (10, 22, 71, None),
            14 => (11, 25, 81, None),
            15 => (11, 25, 94, Some(97)),
            _ => return None,
        };
        Some(Self { interpreter_gc, thread_interpreter, gc, generation_stats })
    }
}

impl DebugOffsets {
    /// Reads them from the file's initial `_PyRuntime`; `None` before 3.13, for unknown versions,
    /// and if a field is implausible.
    pub(crate) fn read(image: &ElfImage<'_>, runtime: u64) -> Option<Self> {
        Self::parse(image.bytes_at(runtime, WORDS * 8)?)
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        if !bytes.starts_with(COOKIE) {
            return None;
        }
        let word = |index: usize| -> Option<u64> {
            let bytes = bytes.get(index * 8..index * 8 + 8)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        // No structure of CPython is larger than 2 MiB (`_PyRuntime` has up to 400 KiB).
        let offset = |index| word(index).filter(|value| *value < 1 << 21)?.try_into().ok();
        let version = u32::try_from(word(1)?).ok()?;
        let [3, minor, ..] = version.to_be_bytes() else { return None };
        let at = OffsetPositions::of(minor)?;
        let stats = |index| Some((offset(index)?, offset(index + 1)?));
        let found = Self {
            version,
            free_threaded: word(2)? != 0,
            runtime_size: offset(3)?,
            finalizing: offset(4)?,
            interpreters_head: offset(5)?,
            interpreter_id: offset(7)?,
            interpreter_next: offset(8)?,
            interpreter_gc: offset(at.interpreter_gc)?,
            thread_interpreter: offset(at.thread_interpreter)?,
            gc_size: offset(at.gc)?,
            gc_collecting: offset(at.gc + 1)?,
            generation_stats: at.generation_stats.and_then(stats),
            frames: frames(minor, word(2)? != 0, offset),
        };
        let fits = found.gc_collecting < found.gc_size
            && found.interpreter_gc.checked_add(found.gc_size)? <= offset(6)?
            && found.interpreters_head < found.runtime_size;
        if fits { Some(found) } else { None }
    }
}
