//! Where the Python stack of a thread is in memory, its code objects and their strings.

mod versions;

use serde::{Deserialize, Serialize};

/// Offsets in bytes of the fields that lead from a thread to file, function and line of its frames.
///
/// `None`: this version has no such field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameLayout {
    /// In `_PyRuntime`: pointer to the thread state that holds the GIL, null while it is free (3.8
    /// - 3.11).
    pub runtime_tstate_current: Option<u32>,
    /// Where a later version stores the holder of the GIL (3.12 and later, not in free-threaded
    /// builds).
    pub interpreter_gil: Option<GilHolder>,
    /// In `PyInterpreterState`: pointer to the newest thread state.
    pub interpreter_threads_head: u32,
    /// In `PyThreadState`: pointer to the next older thread state of the interpreter.
    pub tstate_next: u32,
    /// In `PyThreadState`: 64 bits, what `pthread_self` returns in the thread
    /// (`threading.get_ident()`); with glibc the base address of its `fs` segment.
    pub tstate_thread_id: u32,
    /// From a thread along its frames.
    pub stack: StackLayout,
    /// In the code object: 32 bits, unique for each code object of an interpreter (3.12 and later);
    /// 0 once the counter has overflowed.
    pub code_version: Option<u32>,
    /// In the code object: pointer to the `str` with the file's name.
    pub code_filename: u32,
    /// In the code object: pointer to the `str` with the qualified name, before 3.11 with the name.
    pub code_name: u32,
    /// In the code object: `int co_firstlineno`.
    pub code_first_line: u32,
    /// In the code object: pointer to the `bytes` with the line table.
    pub code_line_table: u32,
    /// Format of the table at `code_line_table`; depends on the version.
    pub line_table_format: LineTableFormat,

    /// In any object: pointer to its type.
    pub object_type: u32,
    /// In a type: pointer to its name, a C string; `code` for code objects.
    pub type_name: u32,
    /// In a `str`: 64 bits, number of code points.
    pub unicode_length: u32,
    /// In a `str`: 64 bits, its hash, -1 if not computed yet.
    pub unicode_hash: u32,
    /// In a `str`: 32 bits. From bit [`FrameLayout::unicode_state_shift`] on: three bits for the
    /// bytes per code point (1, 2 or 4), one bit "compact" (the text follows the header), one bit
    /// "ASCII".
    pub unicode_state: u32,
    /// Bits below the width: 2, and 8 in free-threaded builds from 3.14 on.
    pub unicode_state_shift: u32,
    /// In an ASCII `str`: the text.
    pub unicode_ascii_data: u32,
    /// In any other compact `str`: the text.
    pub unicode_compact_data: u32,
    /// In a `bytes`: 64 bits, its length.
    pub bytes_length: u32,
    /// In a `bytes`: its contents, `bytes_length` of them.
    pub bytes_data: u32,
}

/// Offsets in bytes of the fields that lead from a thread along its frames, to their code objects and
/// instructions.
///
/// `None`: this version has no such field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackLayout {
    /// In `PyThreadState`: pointer to the innermost frame, or to a structure that points to it
    /// ([`StackLayout::frame_indirection`]). Null while no Python code runs.
    pub tstate_frame: u32,
    /// In the structure that `tstate_frame` points to (`_PyCFrame` of 3.11 and 3.12): pointer to
    /// the innermost frame.
    pub frame_indirection: Option<u32>,
    /// In the frame: pointer to the code object, with [`StackLayout::code_tag_mask`] in its low bits.
    pub frame_code: u32,
    /// In the frame: pointer to the frame that called it; null at the outermost.
    pub frame_back: u32,
    /// Bits of `frame_code` that are not part of the address (3.14 and later: 3, `_PyStackRef`).
    pub code_tag_mask: u64,
    /// How the current instruction of the frame is stored.
    pub instruction: InstructionPointer,
    /// In the frame: one byte, `enum _frameowner` (3.11 and later). [`StackLayout::OWNER_SHIM`] and
    /// above: an entry from C, not a Python frame; skip it.
    pub frame_owner: Option<u32>,
    /// In the frame: 32 bits, the index of the thread-local copy of the code it executes (free-threaded 3.14 and
    /// later). 0 is the copy in the code object; copy `i` starts at the pointer at `*(code + code_tlbc) + 8 + 8 * i`.
    pub frame_tlbc_index: Option<u32>,
    /// In the code object: its instructions, if [`InstructionPointer::Pointer`] points into them; 0
    /// otherwise.
    pub code_bytes: u32,
    /// In the code object: pointer to the array of thread-local copies of the code, a 64-bit count
    /// followed by that many pointers.
    pub code_tlbc: Option<u32>,
    /// In the code object: `int _co_firsttraceable`, in code units of two bytes (3.11 and later). A
    /// frame at an instruction before it is incomplete and `sys._getframe()` leaves it out, unless
    /// its owner is [`StackLayout::OWNER_GENERATOR`].
    pub code_first_traceable: Option<u32>,
}

impl StackLayout {
    /// `FRAME_OWNED_BY_GENERATOR` (pycore_frame.h of 3.11 and later).
    pub const OWNER_GENERATOR: u8 = 1;

    /// The lowest owner that is not a Python frame: `FRAME_OWNED_BY_CSTACK` of 3.12 and 3.13,
    /// `FRAME_OWNED_BY_INTERPRETER` of 3.14 and later. 3.11 has none.
    pub const OWNER_SHIM: u8 = 3;

    /// Number of bytes of a frame that cover all fields named here.
    pub fn frame_bytes(&self) -> u32 {
        let instruction = match self.instruction {
            InstructionPointer::Index { offset, .. } => offset.saturating_add(4),
            InstructionPointer::Pointer { offset } => offset.saturating_add(8),
        };
        let ends = [
            self.frame_code.saturating_add(8),
            self.frame_back.saturating_add(8),
            self.frame_owner.map_or(0, |owner| owner.saturating_add(1)),
            self.frame_tlbc_index.map_or(0, |index| index.saturating_add(4)),
        ];
        ends.into_iter().fold(instruction, u32::max)
    }
}

/// How a frame stores the instruction it executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InstructionPointer {
    /// `int f_lasti` (3.8 - 3.10): times `scale` it is the byte offset; -1: not started.
    Index {
        /// Offset in the frame.
        offset: u32,
        /// Bytes per unit: 1, and 2 in 3.10.
        scale: u32,
    },
    /// `prev_instr` (3.11, 3.12) or `instr_ptr` (3.13 and later): an address in the code's
    /// instructions, or in a thread-local copy of them; before their start: not started.
    Pointer {
        /// Offset in the frame.
        offset: u32,
    },
}

/// The thread state that holds the GIL: the pointer at `holder` in the structure that the pointer
/// at `pointer` in `PyInterpreterState` points to. It is not cleared when the GIL is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GilHolder {
    /// Offset in `PyInterpreterState` of the pointer `ceval.gil`.
    pub pointer: u32,
    /// Offset in `struct _gil_runtime_state` of `last_holder`, a pointer to the thread state.
    pub holder: u32,
}

/// Format of a code object's line table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LineTableFormat {
    /// `co_lnotab` of 3.8 and 3.9: pairs of bytes, the increments of offset and line
    /// (Objects/lnotab_notes.txt).
    Lnotab,
    /// `co_linetable` of 3.10 (PEP 626): pairs of bytes, the length of a range and the difference
    /// of its line from the previous one; -128: the range has no line.
    LineTable,
    /// `co_linetable` of 3.11 and later (Objects/locations.md): entries of variable length; only their first byte has
    /// its highest bit set.
    Locations,
}
