//! CPython's structures in memory: where their fields are, each once for all readers.
//!
//! Offsets in bytes on 64-bit machines, of builds with the GIL, 3.8 - 3.15; `minor` is the version's second number.
//! Measured with `offsetof` in the headers of 3.8.18, 3.9.18, 3.10.13, 3.11.7, 3.12.1 and 3.13.0, for frames also
//! 3.14.10 and 3.15.2. Tests of the crates that use them compare all with running interpreters. `gctrace-probes` has
//! the collector's state and the offsets that `_Py_DebugOffsets` overrides, `gctrace-heap` the types that only heaps
//! need. The BPF programs' copies are in `ebpf/bpf/garbage_kinds.bpf.h`.

mod frames;

pub use frames::*;

/// Constants, each documented by its name in CPython's headers.
macro_rules! named {
    ($($name:ident: $theirs:ident = $value:expr),* $(,)?) => {
        $(#[doc = concat!("`", stringify!($theirs), "` in the headers of CPython.")] pub const $name: u64 = $value;)*
    };
}
use named;

/// References of a kind of object: their offsets, and their names as Python writes them.
pub type Fields = &'static [(u64, &'static str)];

/// `ob_type` of an object; `ob_size` of one with items, and its first item or field after that
/// (Include/object.h).
pub const TYPE: u64 = 8;
/// `ob_size`: number of items, see [`TYPE`].
pub const SIZE: u64 = 16;
/// See [`TYPE`]: the size of the fields of all objects.
pub const HEADER: u64 = 16;
/// Size of `PyGC_Head`, just before the object: `_gc_next`, `_gc_prev` (Include/internal/pycore_gc.h).
pub const GC_HEAD: u64 = 16;
/// Flags in the low bits of both fields of `PyGC_Head` (`_PyGC_PREV_SHIFT`; `next` as in 3.14).
pub const GC_FLAGS: u64 = 3;
/// Size of `struct gc_generation`, the head of a list of objects.
pub const GENERATION: u64 = 24;
/// `threshold` in `struct gc_generation`.
pub const GENERATION_THRESHOLD: u64 = 16;
/// How far before an object of a type with [`flags::MANAGED_DICT`] the word for its dict is
/// (Include/internal/pycore_object.h of 3.11 and later), and in 3.11 the word for its values.
pub const DICT_BEFORE: u64 = 24;
/// The word for values of 3.11, see [`DICT_BEFORE`].
pub const VALUES_BEFORE: u64 = 32;

/// Bytes before an object of a type with these flags: the head of the collector, and from 3.11 on two
/// words for the dict and its values, or for weak references (`_PyType_PreHeaderSize` in
/// Include/internal/pycore_object.h), as `sys.getsizeof` adds them.
#[inline]
pub const fn pre_header(minor: u8, type_flags: u64) -> u64 {
    let managed = match minor {
        ..=10 => 0,
        11 => flags::MANAGED_DICT,
        12.. => flags::MANAGED_DICT | flags::MANAGED_WEAKREF,
    };
    let collected = if type_flags & flags::HAVE_GC != 0 { GC_HEAD } else { 0 };
    collected + if type_flags & managed != 0 { 16 } else { 0 }
}

/// Bytes of inline values of this capacity, behind the object (3.13 and later):
/// `values_size_from_count` in Objects/dictobject.c: the head, the values, and a byte each for the order
/// of insertion.
#[inline]
pub const fn inline_values(capacity: u8) -> u64 {
    let capacity = capacity as u64;
    VALUES_HEAD + capacity * 8 + capacity.next_multiple_of(8)
}

/// Fields of `PyTypeObject` (Include/cpython/object.h).
pub mod type_object {
    super::named! {
        NAME: tp_name = 24,
        BASIC_SIZE: tp_basicsize = 32,
        ITEM_SIZE: tp_itemsize = 40,
        DEALLOCATE: tp_dealloc = 48,
        FLAGS: tp_flags = 168,
        TRAVERSE: tp_traverse = 184,
        CLEAR: tp_clear = 192,
        WEAK_LIST_OFFSET: tp_weaklistoffset = 208,
        MEMBERS: tp_members = 240,
        BASE: tp_base = 256,
        DICT: tp_dict = 264,
        DICT_OFFSET: tp_dictoffset = 288,
        ALLOCATE: tp_alloc = 304,
        FREE: tp_free = 320,
        IS_GC: tp_is_gc = 328,
        BASES: tp_bases = 336,
        MRO: tp_mro = 344,
        CACHE: tp_cache = 352,
        SUBCLASSES: tp_subclasses = 360,
    }
}

/// Bits of `tp_flags` (Include/object.h).
pub mod flags {
    super::named! {
        // 3.13 and later: attributes may be stored after the object.
        INLINE_VALUES: Py_TPFLAGS_INLINE_VALUES = 1 << 2,
        // 3.12 and later: before the object is a word for its weak references.
        MANAGED_WEAKREF: Py_TPFLAGS_MANAGED_WEAKREF = 1 << 3,
        // 3.11 and later: before the object is a word for its dict.
        MANAGED_DICT: Py_TPFLAGS_MANAGED_DICT = 1 << 4,
        HEAP_TYPE: Py_TPFLAGS_HEAPTYPE = 1 << 9,
        HAVE_GC: Py_TPFLAGS_HAVE_GC = 1 << 14,
        LONG: Py_TPFLAGS_LONG_SUBCLASS = 1 << 24,
        LIST: Py_TPFLAGS_LIST_SUBCLASS = 1 << 25,
        TUPLE: Py_TPFLAGS_TUPLE_SUBCLASS = 1 << 26,
        BYTES: Py_TPFLAGS_BYTES_SUBCLASS = 1 << 27,
        UNICODE: Py_TPFLAGS_UNICODE_SUBCLASS = 1 << 28,
        DICT: Py_TPFLAGS_DICT_SUBCLASS = 1 << 29,
        EXCEPTION: Py_TPFLAGS_BASE_EXC_SUBCLASS = 1 << 30,
        TYPE: Py_TPFLAGS_TYPE_SUBCLASS = 1 << 31,
    }
}

/// `PyMemberDef` (Include/structmember.h; 3.12: descrobject.h): an array that ends with one without
/// a name.
pub mod member {
    /// Size of one element of the array.
    pub const BYTES: u64 = 40;
    /// `type`, an `int`: one of [`OBJECTS`] for a reference.
    pub const KIND: u64 = 8;
    /// `offset` in the objects of the type.
    pub const OFFSET: u64 = 16;
    /// `T_OBJECT` and `T_OBJECT_EX`: kinds of members that are references.
    pub const OBJECTS: [i32; 2] = [6, 16];
}

/// In a heap type: `ht_qualname`, followed by `ht_cached_keys` and, from 3.9 on, `ht_module`. It
/// follows `ht_name` and `ht_slots`: `PyTypeObject` is longer in 3.8 (`tp_print`) and from 3.12 on
/// (`tp_watched`), `PyAsyncMethods` from 3.10 on (`am_send`); 3.15 inserted a slot.
pub const fn type_qualname(minor: u8) -> u64 {
    match minor {
        9 => 856,
        ..=11 => 864,
        12..=14 => 872,
        15.. => 880,
    }
}

// Lists and dicts. A list's `allocated` counts items.
named! {
    LIST_ITEMS: ob_item = 24,
    LIST_ALLOCATED: allocated = 32,
    DICT_KEYS: ma_keys = 32,
    DICT_VALUES: ma_values = 40,
}

/// `PyDictKeysObject` (Objects/dict-common.h; 3.11: Include/internal/pycore_dict.h).
pub mod dict_keys {
    /// `dk_size` (3.8 - 3.10); from then on three bytes: the logarithms of the slots and of the bytes of their table,
    /// and the kind of keys, 0 for keys with hashes.
    pub const SLOTS: u64 = 8;
    /// `dk_usable`, before `dk_nentries` (3.11 and later).
    pub const USABLE: u64 = 16;
    /// Size of an entry: hash, key, value.
    pub const ENTRY: u64 = 24;
    /// Size of an entry of keys that are all texts (3.11 and later): key, value.
    pub const NAME_ENTRY: u64 = 16;

    /// `dk_nentries`: number of entries, unused ones included.
    #[inline]
    pub const fn count(has_logarithms: bool) -> u64 {
        if has_logarithms { 24 } else { 32 }
    }

    /// `dk_indices`, a table that the entries follow.
    #[inline]
    pub const fn indices(has_logarithms: bool) -> u64 {
        count(has_logarithms) + 8
    }

    /// Bytes of an index in a table of this many slots (3.8 - 3.10).
    #[inline]
    pub const fn index_bytes(slots: u64) -> u64 {
        match slots {
            0..=0xff => 1,
            0x100..=0xffff => 2,
            0x1_0000..=0xffff_ffff => 4,
            _ => 8,
        }
    }

    /// `USABLE_FRACTION`: number of entries in a table of this many slots.
    #[inline]
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
pub const fn tuple_items(minor: u8) -> u64 {
    if minor >= 14 { 32 } else { 24 }
}

/// `ob_ref` of a cell (Include/cpython/cellobject.h).
pub const CELL: Fields = &[(CELL_CONTENTS, ".cell_contents")];
/// `ob_ref` of a cell, see [`CELL`].
pub const CELL_CONTENTS: u64 = 16;

/// Fields of a traceback (Include/cpython/traceback.h).
pub const TRACEBACK: Fields = &[(16, ".tb_next"), (TRACEBACK_FRAME, ".tb_frame")];
/// `tb_frame`: the frame object.
pub const TRACEBACK_FRAME: u64 = 24;
/// `tb_lasti`, an `int`: a byte offset.
pub const TRACEBACK_LAST_INSTRUCTION: u64 = 32;
/// `tb_lineno`, an `int`; from 3.12 on negative until it is requested.
pub const TRACEBACK_LINE: u64 = 36;

/// References of `BaseException` (`PyException_HEAD`, Include/cpython/pyerrors.h): 3.11 inserted
/// `notes`.
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
pub const fn function_code(minor: u8) -> u64 {
    if minor < 10 { 16 } else { 48 }
}

/// In a function: `func_closure`, a tuple of cells or null.
pub const fn function_closure(minor: u8) -> u64 {
    if minor < 10 { 48 } else { 72 }
}

/// All references of a function, and their names.
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
