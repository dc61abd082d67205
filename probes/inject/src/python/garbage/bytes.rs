//! An object's own memory: `tp_basicsize`, its items, and the tables of lists and dicts.
//!
//! What `sys.getsizeof` returns for the types known here, with the head of the collector, and the values
//! of instances, which it leaves out. Without a call: on objects that die `__sizeof__` may be the
//! program's.

use super::layout::{TypeView, reference, size_of, word};
use crate::python::api::{Object, PythonApi};
use gctrace_cpython::offsets::dict_keys::usable;
use gctrace_cpython::offsets::{
    DICT_BEFORE, DICT_KEYS, DICT_VALUES, LIST_ALLOCATED, VALUES_BEFORE, dict_keys, flags,
    inline_values, pre_header, type_qualname,
};

/// How to determine the size of the objects of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// All have the same, in bytes.
    Fixed(u64),
    /// This, and as much again for each item.
    Items(u64, u64),
    List(u64),
    Dict(u64, DictTable),
    /// This, and the values of an instance.
    Instance(u64, ValuesPlace),
    Unknown,
}

/// Where the values of the instances of a class are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ValuesPlace {
    /// Second number of the version: 11 or later.
    minor: u8,
    class: Object,
    /// `tp_basicsize`.
    basic_size: usize,
}

impl ValuesPlace {
    /// Their size in bytes; 0 if there are none.
    ///
    /// # Safety
    /// The object is alive, and of the class that this was made for.
    unsafe fn bytes(self, object: Object) -> u64 {
        // SAFETY: as the caller promises; the words before the object are there for its class.
        unsafe {
            let before = |bytes: u64| reference(object.wrapping_byte_sub(bytes as usize), 0);
            let values = match self.minor {
                ..=11 => before(VALUES_BEFORE),
                12 if before(DICT_BEFORE).addr() & 1 == 1 => {
                    before(DICT_BEFORE).wrapping_byte_add(1)
                }
                12 => return 0,
                13.. => {
                    let capacity = object.wrapping_byte_add(self.basic_size).cast::<u8>();
                    return inline_values(capacity.read());
                }
            };
            if values.is_null() {
                return 0;
            }
            // `new_values` in Objects/dictobject.c: before them are two bytes and one for each value,
            // the size of which, padded, is `values[-1]`. There were more when the class had fewer
            // instances.
            let head = u64::from(values.wrapping_byte_sub(1).cast::<u8>().read());
            let keys = reference(self.class, type_qualname(self.minor) + 8);
            let capacity =
                if keys.is_null() { 0 } else { DictTable::Logarithms.values(keys).min(30) };
            head + capacity.max(head.saturating_sub(9)) * 8
        }
    }
}

/// Format of a dict's table (`PyDictKeysObject`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DictTable {
    /// 3.8 - 3.10.
    Slots,
    /// 3.11 and 3.12.
    Logarithms,
    /// 3.13 and later: values of instances have a head.
    Within,
}

impl DictTable {
    /// `minor`: of the version, the second number.
    pub(super) fn of(minor: u8) -> Self {
        match minor {
            ..=10 => Self::Slots,
            11 | 12 => Self::Logarithms,
            13.. => Self::Within,
        }
    }

    /// Number of values in a table of values for these keys.
    unsafe fn values(self, keys: Object) -> u64 {
        // SAFETY: a table of keys of this format, by the caller's promise.
        unsafe {
            match self {
                Self::Slots => usable(word(keys, dict_keys::SLOTS) as u64),
                Self::Logarithms | Self::Within => (word(keys, dict_keys::USABLE) as u64)
                    .wrapping_add(word(keys, dict_keys::count(true)) as u64),
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
                Self::Logarithms | Self::Within => {
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
    pub(super) fn for_type(api: &PythonApi, table: DictTable, minor: u8, class: TypeView) -> Self {
        let item = class.item_size();
        let basic = class.basic_size() + pre_header(minor, class.flags());
        let has_values = match minor {
            ..=10 => 0,
            11 | 12 => flags::MANAGED_DICT,
            13.. => flags::INLINE_VALUES,
        } & class.flags()
            != 0;
        // Which of the other types store a number of items, and where, is unknown: frames of 3.11
        // and later have other things there.
        let has_items = class.is_tuple() || class.is_metatype();
        match class.object() {
            of if of == api.PyList_Type => Self::List(basic),
            of if of == api.PyDict_Type => Self::Dict(basic, table),
            of if item == 0 && has_values => {
                let basic_size = class.basic_size() as usize;
                Self::Instance(basic, ValuesPlace { minor, class: of, basic_size })
            }
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
                Self::Instance(basic, values) => basic + values.bytes(object),
                Self::Dict(basic, table) => {
                    let keys = reference(object, DICT_KEYS);
                    let values = reference(object, DICT_VALUES);
                    match () {
                        () if keys.is_null() => basic,
                        // The keys belong to the class, and from 3.13 on the values may be in the
                        // instance (`embedded`, the third byte of their head).
                        () if !values.is_null() => {
                            let is_inside = table == DictTable::Within
                                && values.wrapping_byte_add(2).cast::<u8>().read() != 0;
                            basic + if is_inside { 0 } else { table.values(keys) * 8 }
                        }
                        // `dk_refcnt`: the empty table belongs to no dict.
                        () if word(keys, 0) != 1 => basic,
                        () => basic + table.bytes(keys),
                    }
                }
                Self::Unknown => return None,
            })
        }
    }
}
