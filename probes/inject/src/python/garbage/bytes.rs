//! An object's own memory: `tp_basicsize`, its items, and the tables of lists and dicts.
//!
//! What `__sizeof__` returns for the types known here, without a call: on objects that die it may
//! be the program's.

use super::layout::{TypeView, reference, size_of, word};
use crate::python::api::{Object, PythonApi};

/// How to determine the size of the objects of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// All have the same, in bytes.
    Fixed(u64),
    /// This, and as much again for each item.
    Items(u64, u64),
    List(u64),
    Dict(u64, DictTable),
    Unknown,
}

/// Format of a dict's table (`PyDictKeysObject`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DictTable {
    /// 3.8 - 3.10 (Objects/dict-common.h).
    Slots,
    /// 3.11 and later (Include/internal/pycore_dict.h).
    Logarithms,
}

impl DictTable {
    pub(super) fn of(api: &PythonApi) -> Self {
        match api.PyType_GetQualName {
            Some(_) => Self::Logarithms,
            None => Self::Slots,
        }
    }

    /// Number of values in a table of values for these keys.
    unsafe fn values(self, keys: Object) -> u64 {
        // SAFETY: a table of keys of this format, by the caller's promise.
        unsafe {
            match self {
                Self::Slots => word(keys, 8) as u64 * 2 / 3,
                // `dk_usable` and `dk_nentries`.
                Self::Logarithms => (word(keys, 16) as u64).wrapping_add(word(keys, 24) as u64),
            }
        }
    }

    /// Size of the table of keys in bytes.
    unsafe fn bytes(self, keys: Object) -> u64 {
        /// Size of an entry with the hash, and without it.
        const ENTRY: u64 = 24;
        const NAME_ENTRY: u64 = 16;
        let usable = |slots: u64| slots * 2 / 3;
        // SAFETY: a table of keys of this format, by the caller's promise.
        unsafe {
            match self {
                Self::Slots => {
                    let slots = word(keys, 8) as u64;
                    let width = match slots {
                        0..=0xff => 1,
                        0x100..=0xffff => 2,
                        0x1_0000..=0xffff_ffff => 4,
                        _ => 8,
                    };
                    40 + slots * width + usable(slots) * ENTRY
                }
                Self::Logarithms => {
                    // Three bytes: of the slots, of the size of their table, the kind of keys.
                    let [slots, table, kind, ..] = word(keys, 8).to_le_bytes();
                    let entry = if kind == 0 { ENTRY } else { NAME_ENTRY };
                    let power = |exponent: u8| 1_u64.checked_shl(exponent.into()).unwrap_or(0);
                    32 + power(table) + usable(power(slots)) * entry
                }
            }
        }
    }
}

impl Size {
    /// For the objects of a type.
    pub(super) fn for_type(api: &PythonApi, table: DictTable, class: TypeView) -> Self {
        let (basic, item) = (class.basic_size(), class.item_size());
        // Which of the other types store a number of items, and where, is unknown: frames of 3.11
        // and later have other things there.
        let has_items = class.is_tuple() || class.is_metatype();
        match class.object() {
            of if of == api.PyList_Type => Self::List(basic),
            of if of == api.PyDict_Type => Self::Dict(basic, table),
            _ if item == 0 => Self::Fixed(basic),
            _ if has_items => Self::Items(basic, item),
            _ => Self::Unknown,
        }
    }

    /// The size of an object in bytes; `None` if unknown.
    ///
    /// # Safety
    /// It is alive, and of the type that this was made for.
    #[inline]
    pub(super) unsafe fn of(self, object: Object) -> Option<u64> {
        /// `allocated` of a list, in items.
        const ALLOCATED: usize = 32;
        /// `ma_keys` of a dict; `ma_values` comes after it.
        const KEYS: usize = 32;
        // SAFETY: as the caller promises.
        unsafe {
            Some(match self {
                Self::Fixed(bytes) => bytes,
                Self::Items(basic, item) => basic + (size_of(object) as u64).wrapping_mul(item),
                Self::List(basic) => basic + word(object, ALLOCATED) as u64 * 8,
                Self::Dict(basic, table) => {
                    let keys = reference(object, KEYS);
                    let is_shared = word(object, KEYS + 8) != 0;
                    match () {
                        () if keys.is_null() => basic,
                        // With the keys of other instances: the values alone are its own.
                        () if is_shared => basic + table.values(keys) * 8,
                        () => basic + table.bytes(keys),
                    }
                }
                Self::Unknown => return None,
            })
        }
    }
}
