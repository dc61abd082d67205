//! The layout of objects by version, as data.
//!
//! Sources: the headers of each version (Include/cpython/*.h, Include/internal/*.h), measured with `offsetof` for
//! 3.8.18, 3.9.18, 3.10.13, 3.11.7, 3.12.1 and 3.13.0; every line is compared with `gc.get_objects` and
//! `gc.get_referents` of running interpreters by `tests/plain/truth.rs`. Builds with the GIL on 64-bit machines.
//! Offsets equal in all versions are constants.

pub(crate) use gctrace_cpython::offsets::*;

use crate::take::image::Image;
use gctrace_cpython::{CollectorLayout, FrameLayout, Memory as _};
use gctrace_event::CollectorKind;
use gctrace_probes::Resolution;

/// References that `type_traverse` visits, and their names.
pub(crate) const TYPE_REFERENCES: [(u64, &str); 5] = [
    (type_object::DICT, ".__dict__"),
    (type_object::CACHE, ".tp_cache"),
    (type_object::MRO, ".__mro__"),
    (type_object::BASES, ".__bases__"),
    (type_object::BASE, ".__base__"),
];

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
/// `im_func` of a method.
pub(crate) const METHOD_FUNCTION: u64 = 16;

/// Names of references of other built-in types, by type: for those without `PyMemberDef`s.
pub(crate) const BUILT_IN: &[(&str, Fields)] = &[
    ("cell", CELL),
    ("method", &[(METHOD_FUNCTION, ".__func__"), (24, ".__self__")]),
    ("builtin_function_or_method", &[(24, ".__self__"), (32, ".__module__")]),
    ("traceback", TRACEBACK),
    ("property", &[(16, ".fget"), (24, ".fset"), (32, ".fdel"), (40, ".__doc__")]),
    ("staticmethod", &[(16, ".__func__"), (24, ".__dict__")]),
    ("classmethod", &[(16, ".__func__"), (24, ".__dict__")]),
    ("mappingproxy", &[(16, ".mapping")]),
    ("functools.partial", &[(16, ".func"), (24, ".args"), (32, ".keywords"), (40, ".__dict__")]),
    ("collections.defaultdict", &[(48, ".default_factory")]),
    ("functools._lru_cache_wrapper", &[(72, ".cache"), (88, ".__wrapped__")]),
    ("types.SimpleNamespace", &[(16, ".__dict__")]),
];

/// Words of objects that are addresses of objects, but no references: type, first minor version,
/// offsets.
pub(crate) const BORROWED: &[(&str, u8, &[u64])] = &[
    // Links of the list; the first link is the cache itself (Modules/_functoolsmodule.c).
    ("functools._lru_cache_wrapper", 8, &[16, 24]),
    // The thread's dict of a `threading.local` (Modules/_threadmodule.c).
    ("_thread._localdummy", 8, &[16]),
    // The placeholder belongs to the module.
    ("functools.partial", 14, &[56]),
];

/// Other fields of a module (pycore_moduleobject.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Module {
    pub(crate) name: u64,
    pub(crate) state: u64,
    /// `md_def`: it has the size of the state and the function that visits it (before 3.15: Include/moduleobject.h).
    pub(crate) definition: Option<u64>,
    pub(crate) state_size: u64,
    pub(crate) traverse: u64,
}

/// Fields of `PyInterpreterState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InterpreterFields {
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
    pub(crate) interpreter: InterpreterFields,
    pub(crate) thread_size: u64,
    pub(crate) tuple_items: u64,
    pub(crate) qualified_name: u64,
    pub(crate) cached_keys: u64,
    /// `ht_module` (3.9 and later).
    pub(crate) type_module: Option<u64>,
    pub(crate) module: Module,
    pub(crate) variables: VariableNames,
    pub(crate) frames: Frames,
}

impl Layout {
    /// The layout of the interpreter with its `_PyRuntime` at `runtime`; `None` if it is unknown.
    pub(crate) fn of(found: &Resolution, image: &mut Image, runtime: u64) -> Option<Self> {
        let collector = found.layout.clone()?;
        let frame = found.frames?;
        let minor = found.version.minor;
        (found.version.major == 3 && (8..=15).contains(&minor)).then_some(())?;
        Some(Self {
            minor,
            lists: lists(minor, &found.collector, &collector)?,
            collector,
            frame,
            interpreter: interpreter(minor, image, runtime)?,
            // At least this much, in every version.
            thread_size: 256,
            tuple_items: tuple_items(minor),
            qualified_name: type_qualname(minor),
            cached_keys: type_qualname(minor) + 8,
            type_module: (minor >= 9).then_some(type_qualname(minor) + 16),
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
            variables: VariableNames::new(minor),
            frames: Frames::new(minor)?,
        })
    }
}

/// The lists of objects of this collector; `None`: it has none.
pub(crate) fn lists(
    minor: u8,
    kind: &CollectorKind,
    collector: &CollectorLayout,
) -> Option<Vec<(u64, Option<u8>)>> {
    let first = u64::from(*collector.thresholds.first()?).checked_sub(GENERATION_THRESHOLD)?;
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
        CollectorKind::FreeThreaded | CollectorKind::Other(_) => None,
    }
}

fn interpreter(minor: u8, image: &mut Image, runtime: u64) -> Option<InterpreterFields> {
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
                let value = image.field(runtime, word * 8)?;
                (value < 1 << 21).then_some(value)
            };
            (offset(6)?, offset(first)?, offset(first + 1)?, offset(first + 2)?)
        }
    };
    Some(InterpreterFields { size, modules, sys_dict, builtins })
}
