//! CPython's structures in memory: where their fields are, each once for all that read them.
//!
//! Offsets in bytes on 64-bit machines, of builds with the GIL, 3.8 - 3.15; `minor` is the version's
//! second number. Measured with `offsetof` in the headers of 3.8.18, 3.9.18, 3.10.13, 3.11.7, 3.12.1,
//! 3.13.0, 3.14.10 and 3.15.2, and compared with running interpreters by the tests of those that use
//! them. What only one place reads is there: `gctrace-probes` has the collector's state and what
//! `_Py_DebugOffsets` overrides, `gctrace-heap` the types that nobody else looks into. The BPF
//! programs' copies are in `ebpf/bpf/garbage_kinds.bpf.h`.

/// References of a kind of object: their offsets, and their names as Python writes them.
pub type Fields = &'static [(u64, &'static str)];

/// `ob_type` of an object; `ob_size` of one with items, and its first item or field after that
/// (Include/object.h).
pub const TYPE: u64 = 8;
/// See [`TYPE`].
pub const SIZE: u64 = 16;
/// See [`TYPE`]: the size of what all objects have.
pub const HEADER: u64 = 16;
/// Size of `PyGC_Head`, which precedes the object: `_gc_next`, `_gc_prev`
/// (Include/internal/pycore_gc.h).
pub const GC_HEAD: u64 = 16;
/// Flags in the low bits of both fields of `PyGC_Head` (`_PyGC_PREV_SHIFT`; of `next` those of 3.14).
pub const GC_FLAGS: u64 = 3;
/// Size of `struct gc_generation`.
pub const GENERATION: u64 = 24;
/// In it: `threshold`.
pub const GENERATION_THRESHOLD: u64 = 16;
/// How far before an object of a type with [`flags::MANAGED_DICT`] the word for its dict is
/// (Include/internal/pycore_object.h of 3.11 and later), and in 3.11 that for its values.
pub const DICT_BEFORE: u64 = 24;
/// See [`DICT_BEFORE`].
pub const VALUES_BEFORE: u64 = 32;

/// Fields of `PyTypeObject` (Include/cpython/object.h).
pub mod type_object {
    /// `tp_name`
    pub const NAME: u64 = 24;
    /// `tp_basicsize`
    pub const BASIC_SIZE: u64 = 32;
    /// `tp_itemsize`
    pub const ITEM_SIZE: u64 = 40;
    /// `tp_dealloc`
    pub const DEALLOCATE: u64 = 48;
    /// `tp_flags`: [`flags`](super::flags)
    pub const FLAGS: u64 = 168;
    /// `tp_traverse`
    pub const TRAVERSE: u64 = 184;
    /// `tp_clear`
    pub const CLEAR: u64 = 192;
    /// `tp_weaklistoffset`
    pub const WEAK_LIST_OFFSET: u64 = 208;
    /// `tp_members`
    pub const MEMBERS: u64 = 240;
    /// `tp_base`
    pub const BASE: u64 = 256;
    /// `tp_dict`
    pub const DICT: u64 = 264;
    /// `tp_dictoffset`
    pub const DICT_OFFSET: u64 = 288;
    /// `tp_alloc`
    pub const ALLOCATE: u64 = 304;
    /// `tp_free`
    pub const FREE: u64 = 320;
    /// `tp_is_gc`
    pub const IS_GC: u64 = 328;
    /// `tp_bases`
    pub const BASES: u64 = 336;
    /// `tp_mro`
    pub const MRO: u64 = 344;
    /// `tp_cache`
    pub const CACHE: u64 = 352;
    /// `tp_subclasses`
    pub const SUBCLASSES: u64 = 360;
}

/// Bits of `tp_flags` (Include/object.h).
pub mod flags {
    /// 3.13 and later: attributes may be stored after the object.
    pub const INLINE_VALUES: u64 = 1 << 2;
    /// 3.12 and later: the weak references are referred to before the object.
    pub const MANAGED_WEAKREF: u64 = 1 << 3;
    /// 3.11 and later: the dict is referred to before the object.
    pub const MANAGED_DICT: u64 = 1 << 4;
    /// Made at run time.
    pub const HEAP_TYPE: u64 = 1 << 9;
    /// The collector knows its instances.
    pub const HAVE_GC: u64 = 1 << 14;
    /// Derived from `int`.
    pub const LONG: u64 = 1 << 24;
    /// Derived from `list`.
    pub const LIST: u64 = 1 << 25;
    /// Derived from `tuple`.
    pub const TUPLE: u64 = 1 << 26;
    /// Derived from `bytes`.
    pub const BYTES: u64 = 1 << 27;
    /// Derived from `str`.
    pub const UNICODE: u64 = 1 << 28;
    /// Derived from `dict`.
    pub const DICT: u64 = 1 << 29;
    /// Derived from `BaseException`.
    pub const EXCEPTION: u64 = 1 << 30;
    /// Derived from `type`.
    pub const TYPE: u64 = 1 << 31;
}

/// `PyMemberDef` (Include/structmember.h; 3.12: descrobject.h): an array that ends with one without
/// a name.
pub mod member {
    /// Size of one.
    pub const BYTES: u64 = 40;
    /// `type`, an `int`.
    pub const KIND: u64 = 8;
    /// `offset`
    pub const OFFSET: u64 = 16;
    /// `T_OBJECT` and `T_OBJECT_EX`.
    pub const OBJECTS: [i32; 2] = [6, 16];
}

/// In a heap type: `ht_qualname`, followed by `ht_cached_keys` and, from 3.9 on, `ht_module`. It
/// follows `ht_name` and `ht_slots`: `PyTypeObject` is longer in 3.8 (`tp_print`) and from 3.12 on
/// (`tp_watched`), `PyAsyncMethods` from 3.10 on (`am_send`); 3.15 inserted a slot.
#[must_use]
pub const fn type_qualname(minor: u8) -> u64 {
    match minor {
        9 => 856,
        ..=11 => 864,
        12..=14 => 872,
        15.. => 880,
    }
}

/// `ob_item` of a list.
pub const LIST_ITEMS: u64 = 24;
/// `allocated` of a list, in items.
pub const LIST_ALLOCATED: u64 = 32;
/// `ma_keys` of a dict.
pub const DICT_KEYS: u64 = 32;
/// `ma_values` of a dict.
pub const DICT_VALUES: u64 = 40;

/// `PyDictKeysObject` (Objects/dict-common.h; 3.11: Include/internal/pycore_dict.h).
pub mod dict_keys {
    /// `dk_size` (3.8 - 3.10); from then on three bytes: the logarithms of the slots and of the bytes
    /// of their table, and the kind of keys, 0 for those with hashes.
    pub const SLOTS: u64 = 8;
    /// `dk_usable`, before `dk_nentries` (3.11 and later).
    pub const USABLE: u64 = 16;
    /// Size of an entry: hash, key, value.
    pub const ENTRY: u64 = 24;
    /// Size of an entry of keys that are all texts (3.11 and later): key, value.
    pub const NAME_ENTRY: u64 = 16;

    /// `dk_nentries`.
    #[must_use]
    pub const fn count(has_logarithms: bool) -> u64 {
        if has_logarithms { 24 } else { 32 }
    }

    /// `dk_indices`, which the entries follow.
    #[must_use]
    pub const fn indices(has_logarithms: bool) -> u64 {
        count(has_logarithms) + 8
    }

    /// Bytes of an index in a table of this many slots (3.8 - 3.10).
    #[must_use]
    pub const fn index_bytes(slots: u64) -> u64 {
        match slots {
            0..=0xff => 1,
            0x100..=0xffff => 2,
            0x1_0000..=0xffff_ffff => 4,
            _ => 8,
        }
    }

    /// `USABLE_FRACTION`: number of entries in a table of this many slots.
    #[must_use]
    pub const fn usable(slots: u64) -> u64 {
        slots * 2 / 3
    }
}

/// In an object with inline values (3.13 and later): whether they are `valid`, a byte of the head of
/// `PyDictValues`.
pub const VALUES_VALID: u64 = 3;

/// Size of the head of `PyDictValues`: capacity, size, embedded, valid, four bytes padded to 8 (3.13
/// and later; before, of shared keys, there is none).
pub const VALUES_HEAD: u64 = 8;

/// First item of a tuple: `ob_hash` comes before it from 3.14 on (Include/cpython/tupleobject.h).
#[must_use]
pub const fn tuple_items(minor: u8) -> u64 {
    if minor >= 14 { 32 } else { 24 }
}

/// `ob_ref` of a cell (Include/cpython/cellobject.h).
pub const CELL: Fields = &[(CELL_CONTENTS, ".cell_contents")];
/// See [`CELL`].
pub const CELL_CONTENTS: u64 = 16;

/// Fields of a traceback (Include/cpython/traceback.h).
pub const TRACEBACK: Fields = &[(16, ".tb_next"), (TRACEBACK_FRAME, ".tb_frame")];
/// `tb_frame`
pub const TRACEBACK_FRAME: u64 = 24;
/// `tb_lasti`, an `int`.
pub const TRACEBACK_LAST_INSTRUCTION: u64 = 32;
/// `tb_lineno`, an `int`; from 3.12 on negative until somebody asks for it.
pub const TRACEBACK_LINE: u64 = 36;

/// References of `BaseException` (`PyException_HEAD`, Include/cpython/pyerrors.h): 3.11 inserted
/// `notes`.
#[must_use]
pub const fn exception(minor: u8) -> Fields {
    match minor {
        ..=10 => &[
            (16, ".__dict__"),
            (24, ".args"),
            (32, ".__traceback__"),
            (40, ".__context__"),
            (48, ".__cause__"),
        ],
        11.. => &[
            (16, ".__dict__"),
            (24, ".args"),
            (32, ".__notes__"),
            (40, ".__traceback__"),
            (48, ".__context__"),
            (56, ".__cause__"),
        ],
    }
}

/// In a function: `func_code` (Include/cpython/funcobject.h), after globals, builtins, name and
/// qualified name from 3.10 on.
#[must_use]
pub const fn function_code(minor: u8) -> u64 {
    if minor < 10 { 16 } else { 48 }
}

/// In a function: `func_closure`.
#[must_use]
pub const fn function_closure(minor: u8) -> u64 {
    if minor < 10 { 48 } else { 72 }
}

/// All references of a function.
#[must_use]
pub const fn function(minor: u8) -> Fields {
    match minor {
        ..=9 => &[
            (16, ".__code__"),
            (24, ".__globals__"),
            (32, ".__defaults__"),
            (40, ".__kwdefaults__"),
            (48, ".__closure__"),
            (56, ".__doc__"),
            (64, ".__name__"),
            (72, ".__dict__"),
            (88, ".__module__"),
            (96, ".__annotations__"),
            (104, ".__qualname__"),
        ],
        10 | 11 => &FUNCTION,
        12 | 13 => &FUNCTION_12,
        14.. => &FUNCTION_14,
    }
}

/// 3.10 and 3.11; later versions add to it.
const FUNCTION: [(u64, &str); 12] = [
    (16, ".__globals__"),
    (24, ".__builtins__"),
    (32, ".__name__"),
    (40, ".__qualname__"),
    (48, ".__code__"),
    (56, ".__defaults__"),
    (64, ".__kwdefaults__"),
    (72, ".__closure__"),
    (80, ".__doc__"),
    (88, ".__dict__"),
    (104, ".__module__"),
    (112, ".__annotations__"),
];
const FUNCTION_12: [(u64, &str); 13] = joined(FUNCTION, [(120, ".__type_params__")]);
const FUNCTION_14: [(u64, &str); 14] =
    joined(FUNCTION, [(120, ".__annotate__"), (128, ".__type_params__")]);

const fn joined<const A: usize, const B: usize, const C: usize>(
    first: [(u64, &'static str); A],
    second: [(u64, &'static str); B],
) -> [(u64, &'static str); C] {
    assert!(A + B == C);
    let mut all = [(0, ""); C];
    let mut index = 0;
    while index < C {
        all[index] = if index < A { first[index] } else { second[index - A] };
        index += 1;
    }
    all
}

/// In a code object of 3.11 and later: `co_filename` (Include/cpython/code.h).
pub const CODE_FILENAME: u64 = 112;
/// In a code object of 3.11 and later: `co_qualname`.
pub const CODE_QUALNAME: u64 = 128;
/// How far before the instructions of a code object `_co_firsttraceable` is, an `int` in units of two
/// bytes (3.11 and later; without thread-local copies of the code).
pub const FIRST_TRACEABLE_BEFORE: u64 = 16;

/// Where names of variables are in a code object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableNames {
    /// Three tuples (3.8 - 3.10).
    Tuples {
        /// `co_varnames`
        locals: u64,
        /// `co_cellvars`
        cells: u64,
        /// `co_freevars`
        free: u64,
    },
    /// One for all of them (3.11 and later).
    Joined {
        /// `co_localsplusnames`
        names: u64,
        /// `co_nfreevars`, an `int`: so many of them, at the end, are free.
        free_count: u64,
    },
}

impl VariableNames {
    /// Of a version.
    #[must_use]
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
    /// `f_trace`
    pub trace: u64,
    /// `f_stacktop`, a pointer (3.8, 3.9), or `f_stackdepth`, an `int` (3.10).
    pub stack_top: u64,
    /// Whether it is the latter.
    pub top_is_depth: bool,
    /// `f_lasti`, an `int`.
    pub last_instruction: u64,
    /// `f_localsplus`
    pub locals: u64,
}

impl FrameObject {
    /// `f_back`
    pub const BACK: u64 = 24;
    /// `f_code`
    pub const CODE: u64 = 32;
    /// `f_builtins`
    pub const BUILTINS: u64 = 40;
    /// `f_globals`
    pub const GLOBALS: u64 = 48;
    /// `f_locals`
    pub const LOCALS: u64 = 56;
    /// `f_valuestack`
    pub const VALUE_STACK: u64 = 64;
}

/// Fields of `_PyInterpreterFrame` of 3.11 and later (Include/internal/pycore_frame.h, 3.14:
/// pycore_interpframe_structs.h), and what leads to and from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterpreterFrame {
    /// In `PyThreadState`: pointer to the innermost frame, or to the `_PyCFrame` that points to it
    /// (Include/cpython/pystate.h).
    pub in_thread: u64,
    /// In `_PyCFrame` (3.11, 3.12).
    pub in_cframe: Option<u64>,
    /// `f_code`, from 3.14 on `f_executable`
    pub code: u64,
    /// `f_func`, from 3.12 on `f_funcobj`
    pub function: u64,
    /// `f_globals`
    pub globals: u64,
    /// `f_locals`
    pub locals_dict: u64,
    /// `frame_obj`
    pub object: u64,
    /// `previous`
    pub previous: u64,
    /// `prev_instr`, from 3.13 on `instr_ptr`: an address.
    pub instruction: u64,
    /// `stacktop`, an `int` (before 3.14), or `stackpointer`.
    pub stack_top: u64,
    /// `owner`, a byte.
    pub owner: u64,
    /// `localsplus`
    pub locals: u64,
    /// References have tags in their low bits (3.14 and later): 1 means not counted, 3 a number.
    pub tagged: bool,
    /// In a generator, coroutine or asynchronous generator: `gi_iframe`
    /// (Include/internal/pycore_genobject.h).
    pub in_generator: u64,
    /// In those: `gi_exc_state.previous_item`, which is the address of no object; the next field is
    /// `cr_origin_or_finalizer` of coroutines and not initialized in generators.
    pub previous_exception: u64,
    /// In those: `gi_frame_state`.
    pub state: u64,
    /// Its value for a cleared frame (`FRAME_CLEARED`).
    pub cleared: i8,
    /// In a code object: its instructions.
    pub code_instructions: u64,
}

impl InterpreterFrame {
    /// In a frame object: `f_back`.
    pub const OBJECT_BACK: u64 = 16;
    /// In a frame object: `f_frame`.
    pub const OBJECT_FRAME: u64 = 24;
    /// Tag bits of a reference (`Py_TAG_BITS`, pycore_stackref.h of 3.14).
    pub const TAG: u64 = 3;

    /// 3.11 - 3.15.
    pub const ALL: [(u8, Self); 5] = [
        (
            11,
            Self {
                in_cframe: Some(8),
                code: 32,
                function: 0,
                globals: 8,
                locals_dict: 24,
                object: 40,
                previous: 48,
                owner: 69,
                in_generator: 80,
                previous_exception: 56,
                state: 75,
                code_instructions: 184,
                ..TWELVE
            },
        ),
        (12, TWELVE),
        (13, THIRTEEN),
        (14, FOURTEEN),
        (15, Self { cleared: 5, ..FOURTEEN }),
    ];
}

const TWELVE: InterpreterFrame = InterpreterFrame {
    in_thread: 56,
    in_cframe: Some(0),
    code: 0,
    function: 16,
    globals: 24,
    locals_dict: 40,
    object: 48,
    previous: 8,
    instruction: 56,
    stack_top: 64,
    owner: 70,
    locals: 72,
    tagged: false,
    in_generator: 72,
    previous_exception: 48,
    state: 67,
    cleared: 4,
    code_instructions: 192,
};

const THIRTEEN: InterpreterFrame =
    InterpreterFrame { in_thread: 72, in_cframe: None, code_instructions: 200, ..TWELVE };

const FOURTEEN: InterpreterFrame =
    InterpreterFrame { owner: 74, locals: 80, tagged: true, code_instructions: 208, ..THIRTEEN };

/// How a version stores frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frames {
    /// As objects (3.8 - 3.10).
    Objects(FrameObject),
    /// 3.11 and later.
    Interpreter(InterpreterFrame),
}

impl Frames {
    /// Of a version; `None` if unknown.
    #[must_use]
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

/// In a generator, coroutine or asynchronous generator: `gi_code`, which 3.12 removed. Before 3.10
/// `gi_running` precedes it.
#[must_use]
pub const fn generator_code(minor: u8) -> Option<u64> {
    match minor {
        ..=9 => Some(32),
        10 => Some(24),
        11 => Some(16),
        12.. => None,
    }
}
