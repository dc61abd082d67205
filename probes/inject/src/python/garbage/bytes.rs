//! An object's own memory: `tp_basicsize`, its items, and the tables of lists and dicts.
//!
//! What `__sizeof__` returns for the types known here, without a call: on objects that die it may
//! be the program's.

use super::layout::{TypeView, reference, size_of, word};
use crate::python::api::{Object, PythonApi};
use gctrace_abi::cpython::dict_keys::usable;
use gctrace_abi::cpython::{DICT_KEYS, DICT_VALUES, LIST_ALLOCATED, dict_keys};

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
    /// 3.8 - 3.10.
    Slots,
    /// 3.11 and later.
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
                Self::Slots => usable(word(keys, dict_keys::SLOTS) as u64),
                Self::Logarithms => (word(keys, dict_keys::USABLE) as u64).wrapping_add(word(
                    keys,
                    dict_keys::count(true),
                )
                    as u64),
            }
        }
    }

    /// Size of the table of keys in bytes.
    unsafe fn bytes(self, keys: Object) -> u64 {
        // SAFETY: a table of keys of this format, by the caller's promise.
        unsafe {
            match self {
                Self::Slots => {
                    let slots = word(keys, dict_keys::SLOTS) as u64;
                    dict_keys::indices(false)
                        + slots * dict_keys::index_bytes(slots)
                        + usable(slots) * dict_keys::ENTRY
                }
                Self::Logarithms => {
                    let [slots, table, kind, ..] = word(keys, dict_keys::SLOTS).to_le_bytes();
                    let entry = if kind == 0 { dict_keys::ENTRY } else { dict_keys::NAME_ENTRY };
                    let power = |exponent: u8| 1_u64.checked_shl(exponent.into()).unwrap_or(0);
                    dict_keys::indices(true) + power(table) + usable(power(slots)) * entry
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
        // SAFETY: as the caller promises.
        unsafe {
            Some(match self {
                Self::Fixed(bytes) => bytes,
                Self::Items(basic, item) => basic + (size_of(object) as u64).wrapping_mul(item),
                Self::List(basic) => basic + word(object, LIST_ALLOCATED) as u64 * 8,
                Self::Dict(basic, table) => {
                    let keys = reference(object, DICT_KEYS);
                    let is_shared = word(object, DICT_VALUES) != 0;
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
