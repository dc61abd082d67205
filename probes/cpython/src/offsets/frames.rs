//! Code objects, frames and generators.
//!
//! Sources and units: see [`offsets`](super).

use super::named;
use crate::{InstructionPointer, StackLayout};

/// In a code object of 3.11 and later: `co_filename` (Include/cpython/code.h).
pub const CODE_FILENAME: u64 = 112;
/// In a code object of 3.11 and later: `co_qualname`, a `str`.
pub const CODE_QUALNAME: u64 = 128;
/// How far before the instructions of a code object `_co_firsttraceable` is, an `int` in units of two
/// bytes (3.11 and later; without thread-local copies of the code).
pub const FIRST_TRACEABLE_BEFORE: u64 = 16;

/// Distance of `co_version` from `co_firstlineno` (3.12 - 3.15).
pub const CODE_VERSION: u64 = 24;

/// Where names of variables are in a code object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableNames {
    /// Three tuples (3.8 - 3.10).
    Tuples {
        /// `co_varnames`: arguments and local variables.
        locals: u64,
        /// `co_cellvars`: variables of inner functions too.
        cells: u64,
        /// `co_freevars`: variables of an outer function.
        free: u64,
    },
    /// One for all of them (3.11 and later).
    Joined {
        /// `co_localsplusnames`, in the order of `localsplus`.
        names: u64,
        /// `co_nfreevars`, an `int`: that many, at the end, are free.
        free_count: u64,
    },
}

impl VariableNames {
    /// Where a version has them.
    pub const fn new(minor: u8) -> Self {
        match minor {
            ..=10 => Self::Tuples { locals: 72, free: 80, cells: 88 },
            11 => Self::Joined { names: 96, free_count: 92 },
            12.. => Self::Joined { names: 96, free_count: 88 },
        }
    }
}

/// Fields of a frame object of 3.8 - 3.10 (Include/frameobject.h, Include/cpython/frameobject.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameObject {
    /// `f_trace`: the trace function, or null.
    pub trace: u64,
    /// `f_stacktop`, a pointer (3.8, 3.9), or `f_stackdepth`, an `int` (3.10).
    pub stack_top: u64,
    /// Whether `stack_top` is a depth.
    pub top_is_depth: bool,
    /// `f_lasti`, an `int`: the last instruction.
    pub last_instruction: u64,
    /// `f_localsplus`: variables, then the stack.
    pub locals: u64,
}

impl FrameObject {
    named! {
        BACK: f_back = 24,
        CODE: f_code = 32,
        BUILTINS: f_builtins = 40,
        GLOBALS: f_globals = 48,
        LOCALS: f_locals = 56,
        VALUE_STACK: f_valuestack = 64,
    }
}

/// Fields of `_PyInterpreterFrame` of 3.11 and later (Include/internal/pycore_frame.h, 3.14:
/// pycore_interpframe_structs.h), and what leads to and from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterpreterFrame {
    /// The path from a thread to it, and from it to its code and the next one. In `PyThreadState`
    /// (Include/cpython/pystate.h) `current_frame`, or `cframe`; in `_PyCFrame` `current_frame`; `f_code`, from 3.14 on
    /// `f_executable`; `previous`; `prev_instr`, from 3.13 on `instr_ptr`; `owner`; in a code object
    /// `co_code_adaptive`.
    pub stack: StackLayout,
    /// `f_func`, from 3.12 on `f_funcobj`.
    pub function: u64,
    /// `f_globals`, a borrowed reference to a dict.
    pub globals: u64,
    /// `f_locals`, a dict, or null.
    pub locals_dict: u64,
    /// `frame_obj`: the frame object, or null.
    pub object: u64,
    /// `stacktop`, an `int` (before 3.14), or `stackpointer`.
    pub stack_top: u64,
    /// `localsplus`: variables, then the stack.
    pub locals: u64,
    /// References have tags in their low bits (3.14 and later): 1 means not counted, 3 a number.
    pub tagged: bool,
    /// In a generator, coroutine or asynchronous generator: `gi_iframe`
    /// (Include/internal/pycore_genobject.h).
    pub in_generator: u64,
    /// In the same objects: `gi_exc_state.previous_item`, the address of no object. The next field is
    /// `cr_origin_or_finalizer` of coroutines and not initialized in generators.
    pub previous_exception: u64,
    /// In the same objects: `gi_frame_state`, one signed byte.
    pub state: u64,
    /// `gi_frame_state` of a cleared frame (`FRAME_CLEARED`).
    pub cleared: i8,
}

impl InterpreterFrame {
    /// In a frame object: `f_back`, a frame object.
    pub const OBJECT_BACK: u64 = 16;
    /// In a frame object: `f_frame`, the frame itself.
    pub const OBJECT_FRAME: u64 = 24;
    /// Tag bits of a reference (`Py_TAG_BITS`, pycore_stackref.h of 3.14).
    pub const TAG: u64 = 3;

    /// The layouts of 3.11 - 3.15, by minor version.
    pub const ALL: [(u8, Self); 5] = [
        (
            11,
            Self {
                stack: StackLayout {
                    frame_indirection: Some(8),
                    frame_code: 32,
                    frame_back: 48,
                    frame_owner: Some(69),
                    ..stack(56, 184)
                },
                function: 0,
                globals: 8,
                locals_dict: 24,
                object: 40,
                in_generator: 80,
                previous_exception: 56,
                state: 75,
                ..TWELVE
            },
        ),
        (12, TWELVE),
        (13, THIRTEEN),
        (14, FOURTEEN),
        (15, Self { cleared: 5, ..FOURTEEN }),
    ];
}

/// Fields that lead along frames, as in 3.13. Parameters: the place of the innermost frame in `PyThreadState`, and the
/// place of the instructions in a code object.
const fn stack(in_thread: u32, code_instructions: u32) -> StackLayout {
    StackLayout {
        tstate_frame: in_thread,
        frame_indirection: None,
        frame_code: 0,
        frame_back: 8,
        code_tag_mask: 0,
        instruction: InstructionPointer::Pointer { offset: 56 },
        frame_owner: Some(70),
        frame_tlbc_index: None,
        code_bytes: code_instructions,
        code_tlbc: None,
        code_first_traceable: Some(code_instructions - FIRST_TRACEABLE_BEFORE as u32),
    }
}

const TWELVE: InterpreterFrame = InterpreterFrame {
    stack: StackLayout { frame_indirection: Some(0), ..stack(56, 192) },
    function: 16,
    globals: 24,
    locals_dict: 40,
    object: 48,
    stack_top: 64,
    locals: 72,
    tagged: false,
    in_generator: 72,
    previous_exception: 48,
    state: 67,
    cleared: 4,
};

const THIRTEEN: InterpreterFrame = InterpreterFrame { stack: stack(72, 200), ..TWELVE };

const FOURTEEN: InterpreterFrame = InterpreterFrame {
    stack: StackLayout {
        frame_owner: Some(74),
        code_tag_mask: InterpreterFrame::TAG,
        ..stack(72, 208)
    },
    locals: 80,
    tagged: true,
    ..THIRTEEN
};

/// How a version stores frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frames {
    /// As objects on the heap (3.8 - 3.10).
    Objects(FrameObject),
    /// On the thread's own stack of frames (3.11 and later).
    Interpreter(InterpreterFrame),
}

impl Frames {
    /// How a version stores frames; `None` if unknown.
    pub fn new(minor: u8) -> Option<Self> {
        let object = FrameObject {
            trace: 80,
            stack_top: 72,
            top_is_depth: false,
            last_instruction: 104,
            locals: 360,
        };
        match minor {
            8 | 9 => Some(Self::Objects(object)),
            10 => Some(Self::Objects(FrameObject {
                trace: 72,
                stack_top: 80,
                top_is_depth: true,
                last_instruction: 96,
                locals: 352,
            })),
            _ => {
                let known = InterpreterFrame::ALL.iter().find(|(version, _)| *version == minor);
                known.map(|(_, frame)| Self::Interpreter(*frame))
            }
        }
    }
}

/// In a generator, coroutine or asynchronous generator of 3.8 - 3.10: `gi_frame`, null once it has
/// ended (Include/genobject.h). Later ones: [`InterpreterFrame::in_generator`].
pub const GENERATOR_FRAME: u64 = 16;

/// In a generator, coroutine or asynchronous generator: `gi_code`, removed in 3.12. Before 3.10 `gi_running` precedes
/// it.
pub const fn generator_code(minor: u8) -> Option<u64> {
    match minor {
        ..=9 => Some(32),
        10 => Some(24),
        11 => Some(16),
        12.. => None,
    }
}
