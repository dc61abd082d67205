//! The layout of objects by version, as data.
//!
//! Sources: the headers of each version (Include/cpython/*.h, Include/internal/*.h), measured with
//! `offsetof` for 3.8.18, 3.9.18, 3.10.13, 3.11.7, 3.12.1 and 3.13.0; every line is compared with
//! `gc.get_objects` and `gc.get_referents` of running interpreters by `tests/plain/truth.rs`. Builds with
//! the GIL on 64-bit machines. What is the same in all versions is a constant.

mod fields;

pub(crate) use fields::{BORROWED, BUILT_IN};

use crate::take::image::Image;
use fields::{EXCEPTION, OLD_EXCEPTION, function};
use gctrace_probes::frames::FrameLayout;
use gctrace_probes::{CollectorKind, CollectorLayout, Resolution};

/// `ob_type` of an object; `ob_size` of one with items, and its first item or field after that.
pub(crate) const TYPE: u64 = 8;
pub(crate) const SIZE: u64 = 16;
pub(crate) const HEADER: u64 = 16;
/// `PyGC_Head` precedes the object: `_gc_next`, `_gc_prev`, both with flags in the low bits.
pub(crate) const GC_HEAD: u64 = 16;
pub(crate) const GC_FLAGS: u64 = 3;

/// Fields of `PyTypeObject`, in every version (Include/cpython/object.h).
pub(crate) mod type_object {
    pub(crate) const NAME: u64 = 24;
    pub(crate) const BASIC_SIZE: u64 = 32;
    pub(crate) const ITEM_SIZE: u64 = 40;
    pub(crate) const FLAGS: u64 = 168;
    pub(crate) const WEAK_LIST_OFFSET: u64 = 208;
    pub(crate) const MEMBERS: u64 = 240;
    pub(crate) const BASE: u64 = 256;
    pub(crate) const DICT: u64 = 264;
    pub(crate) const DICT_OFFSET: u64 = 288;
    /// References that `type_traverse` visits, and their names.
    pub(crate) const REFERENCES: [(u64, &str); 5] = [
        (DICT, ".__dict__"),
        (352, ".tp_cache"),
        (344, ".__mro__"),
        (336, ".__bases__"),
        (BASE, ".__base__"),
    ];
}

/// Bits of `tp_flags` (Include/object.h).
pub(crate) mod flags {
    /// 3.13 and later: attributes may be stored after the object.
    pub(crate) const INLINE_VALUES: u64 = 1 << 2;
    /// 3.11 and later: the dict is referred to before the object.
    pub(crate) const MANAGED_DICT: u64 = 1 << 4;
    pub(crate) const HEAP_TYPE: u64 = 1 << 9;
    pub(crate) const LONG: u64 = 1 << 24;
    pub(crate) const LIST: u64 = 1 << 25;
    pub(crate) const TUPLE: u64 = 1 << 26;
    pub(crate) const BYTES: u64 = 1 << 27;
    pub(crate) const UNICODE: u64 = 1 << 28;
    pub(crate) const DICT: u64 = 1 << 29;
    pub(crate) const EXCEPTION: u64 = 1 << 30;
    pub(crate) const TYPE: u64 = 1 << 31;
}

/// `ob_item` of a list.
pub(crate) const LIST_ITEMS: u64 = 24;
pub(crate) const LIST_ALLOCATED: u64 = 32;
/// `ma_keys` and `ma_values` of a dict.
pub(crate) const DICT_KEYS: u64 = 32;
pub(crate) const DICT_VALUES: u64 = 40;
/// `mask`, `table` and `smalltable` of a set; a slot is a key and its hash.
pub(crate) const SET_MASK: u64 = 32;
pub(crate) const SET_TABLE: u64 = 40;
pub(crate) const SET_SMALL_TABLE: u64 = 64;
/// Blocks of a deque: a link, 64 items, a link (Modules/_collectionsmodule.c).
pub(crate) const DEQUE_LEFT: u64 = 24;
pub(crate) const DEQUE_LEFT_INDEX: u64 = 40;
pub(crate) const DEQUE_RIGHT_INDEX: u64 = 48;
pub(crate) const DEQUE_BLOCK: u64 = 64;
/// `wr_callback`: the only reference of a weakref.
pub(crate) const WEAKREF_CALLBACK: u64 = 24;
/// `md_dict` of a module.
pub(crate) const MODULE_DICT: u64 = 16;
/// Fields of a traceback.
pub(crate) const TRACEBACK_FRAME: u64 = 24;
pub(crate) const TRACEBACK_LAST_INSTRUCTION: u64 = 32;
pub(crate) const TRACEBACK_LINE: u64 = 36;
/// `ob_ref` of a cell; `im_func` of a method.
pub(crate) const CELL_CONTENTS: u64 = 16;
pub(crate) const METHOD_FUNCTION: u64 = 16;

/// Fields of a frame object of 3.8 - 3.10 (Include/frameobject.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OldFrame {
    pub(crate) trace: u64,
    /// `f_stacktop`, a pointer (3.8, 3.9), or `f_stackdepth`, an `int` (3.10).
    pub(crate) stack_top: u64,
    pub(crate) top_is_depth: bool,
    pub(crate) locals: u64,
}

/// Fields of `_PyInterpreterFrame`, 3.11 and later (pycore_frame.h, pycore_interpframe.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewFrame {
    pub(crate) code: u64,
    pub(crate) function: u64,
    pub(crate) globals: u64,
    pub(crate) locals_dict: u64,
    pub(crate) object: u64,
    /// `stacktop`, an `int` (before 3.14), or `stackpointer`.
    pub(crate) stack_top: u64,
    pub(crate) owner: u64,
    pub(crate) locals: u64,
    /// References carry tags in their low bits (3.14 and later): 1 means not counted, 3 a number.
    pub(crate) tagged: bool,
    /// `gi_iframe` of a generator.
    pub(crate) in_generator: u64,
    /// `gi_exc_state.previous_item`, which is the address of no object; the next field is
    /// coroutines' (`cr_origin_or_finalizer`) and not initialized in generators.
    pub(crate) previous_exception: u64,
    /// `gi_frame_state`, and its value for a cleared frame (pycore_frame.h).
    pub(crate) state: u64,
    pub(crate) cleared: i8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frames {
    Objects(OldFrame),
    Interpreter(NewFrame),
}

/// Where names of variables are in a code object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VariableNames {
    /// Three tuples: `co_varnames`, `co_cellvars`, `co_freevars`.
    Tuples { locals: u64, cells: u64, free: u64 },
    /// `co_localsplusnames`; the last `co_nfreevars` are free.
    Joined { names: u64, free_count: u64 },
}

/// Fields of a function (Include/cpython/funcobject.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) code: u64,
    pub(crate) closure: u64,
    /// Every reference and its name.
    pub(crate) references: &'static [(u64, &'static str)],
}

/// Other fields of a module (pycore_moduleobject.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Module {
    pub(crate) name: u64,
    pub(crate) state: u64,
    /// `md_def`, which has the size of the state and the function that visits it (before 3.15:
    /// Include/moduleobject.h).
    pub(crate) definition: Option<u64>,
    pub(crate) state_size: u64,
    pub(crate) traverse: u64,
}

/// Fields of `PyInterpreterState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interpreter {
    pub(crate) size: u64,
    pub(crate) modules: u64,
    pub(crate) sys_dict: u64,
    pub(crate) builtins: u64,
}

/// Everything that depends on the version.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) minor: u8,
    pub(crate) collector: CollectorLayout,
    pub(crate) frame: FrameLayout,
    /// Lists of objects, relative to the collector's state; with their generation, `None` for the
    /// permanent one. Oldest first.
    pub(crate) lists: Vec<(u64, Option<u8>)>,
    pub(crate) interpreter: Interpreter,
    pub(crate) thread_size: u64,
    pub(crate) tuple_items: u64,
    pub(crate) qualified_name: u64,
    pub(crate) cached_keys: u64,
    /// `ht_module` (3.9 and later).
    pub(crate) type_module: Option<u64>,
    pub(crate) function: Function,
    pub(crate) module: Module,
    pub(crate) variables: VariableNames,
    pub(crate) frames: Frames,
    /// References of `BaseException`.
    pub(crate) exception: &'static [(u64, &'static str)],
}

impl Layout {
    /// The layout of an interpreter whose `_PyRuntime` is at `runtime`; `None` if it is unknown.
    pub(crate) fn of(found: &Resolution, image: &mut Image, runtime: u64) -> Option<Self> {
        let collector = found.layout.clone()?;
        let frame = found.frames.clone()?;
        let minor = found.version.minor;
        (found.version.major == 3 && (8..=15).contains(&minor)).then_some(())?;
        Some(Self {
            minor,
            lists: lists(minor, found.collector, &collector)?,
            collector,
            frame,
            interpreter: interpreter(minor, image, runtime)?,
            // At least this much, in every version.
            thread_size: 256,
            tuple_items: if minor >= 14 { 32 } else { 24 },
            qualified_name: match minor {
                9 => 856,
                8 | 10 | 11 => 864,
                12..=14 => 872,
                _ => 880,
            },
            cached_keys: match minor {
                9 => 864,
                8 | 10 | 11 => 872,
                12..=14 => 880,
                _ => 888,
            },
            type_module: match minor {
                8 => None,
                9 => Some(872),
                10 | 11 => Some(880),
                12..=14 => Some(888),
                _ => Some(896),
            },
            function: function(minor),
            module: match minor {
                ..=14 => Module {
                    name: 48,
                    state: 32,
                    definition: Some(24),
                    state_size: 56,
                    traverse: 80,
                },
                _ => Module { name: 40, state: 24, definition: None, state_size: 56, traverse: 64 },
            },
            variables: variables(minor),
            frames: frames(minor),
            exception: if minor >= 11 { &EXCEPTION } else { &OLD_EXCEPTION },
        })
    }
}

fn lists(
    minor: u8,
    kind: CollectorKind,
    collector: &CollectorLayout,
) -> Option<Vec<(u64, Option<u8>)>> {
    /// The threshold's place in `struct gc_generation`, and its size.
    const THRESHOLD: u32 = 16;
    const GENERATION: u64 = 24;
    let first = u64::from(collector.thresholds.first()?.checked_sub(THRESHOLD)?);
    let generation = |number: u8| (first + u64::from(number) * GENERATION, Some(number));
    match kind {
        CollectorKind::Generational => {
            // `generation0` came between them up to 3.13, and is aligned also where the
            // generations are not.
            let permanent = match minor {
                ..=13 => 104,
                _ => first + 3 * GENERATION,
            };
            Some(vec![(permanent, None), generation(2), generation(1), generation(0)])
        }
        // Young, two spaces of the old generation, permanent (pycore_interp_structs.h of 3.14.0).
        CollectorKind::Incremental => Some(vec![
            (first + 3 * GENERATION, None),
            (first + GENERATION, Some(1)),
            (first + 2 * GENERATION, Some(1)),
            generation(0),
        ]),
        CollectorKind::FreeThreaded => None,
    }
}

fn interpreter(minor: u8, image: &mut Image, runtime: u64) -> Option<Interpreter> {
    let (size, modules, sys_dict, builtins) = match minor {
        8 => (2720, 56, 72, 80),
        9 => (5656, 856, 872, 880),
        10 => (113_528, 856, 872, 880),
        11 => (107_752, 888, 904, 912),
        12 => (383_552, 944, 352, 360),
        // `_Py_DebugOffsets`: `interpreter_state.size`, `imports_modules`, `sysdict`, `builtins`
        // (pycore_debug_offsets.h), in words.
        _ => {
            let first = if minor == 13 { 11 } else { 12 };
            let mut offset = |word: u64| {
                let value = image.word(runtime.checked_add(word * 8)?)?;
                (value < 1 << 21).then_some(value)
            };
            (offset(6)?, offset(first)?, offset(first + 1)?, offset(first + 2)?)
        }
    };
    Some(Interpreter { size, modules, sys_dict, builtins })
}

fn variables(minor: u8) -> VariableNames {
    match minor {
        ..=10 => VariableNames::Tuples { locals: 72, free: 80, cells: 88 },
        11 => VariableNames::Joined { names: 96, free_count: 92 },
        _ => VariableNames::Joined { names: 96, free_count: 88 },
    }
}

fn frames(minor: u8) -> Frames {
    let twelve = NewFrame {
        code: 0,
        function: 16,
        globals: 24,
        locals_dict: 40,
        object: 48,
        stack_top: 64,
        owner: 70,
        locals: 72,
        tagged: false,
        in_generator: 72,
        previous_exception: 48,
        state: 67,
        cleared: 4,
    };
    match minor {
        8 | 9 => {
            Frames::Objects(OldFrame { trace: 80, stack_top: 72, top_is_depth: false, locals: 360 })
        }
        ..=10 => {
            Frames::Objects(OldFrame { trace: 72, stack_top: 80, top_is_depth: true, locals: 352 })
        }
        11 => Frames::Interpreter(NewFrame {
            code: 32,
            function: 0,
            globals: 8,
            locals_dict: 24,
            object: 40,
            owner: 69,
            in_generator: 80,
            previous_exception: 56,
            state: 75,
            ..twelve
        }),
        12 | 13 => Frames::Interpreter(twelve),
        14 => Frames::Interpreter(NewFrame { owner: 74, locals: 80, tagged: true, ..twelve }),
        _ => Frames::Interpreter(NewFrame {
            owner: 74,
            locals: 80,
            tagged: true,
            cleared: 5,
            ..twelve
        }),
    }
}
