//! An object's own memory: `tp_basicsize`, its items, and the tables of lists and dicts.
//!
//! Equals `sys.getsizeof` for the types known here, with the head of the collector, and also the values of instances;
//! `sys.getsizeof` leaves them out. Without a call: on objects that die `__sizeof__` may be the program's.

use super::layout::{TypeView, reference, size_of, word};
use crate::python::api::{Object, PythonApi};
use crate::python::local_memory::{LocalMemory, address};
use gctrace_cpython::offsets::{DICT_KEYS, LIST_ALLOCATED, flags, pre_header, type_qualname};
use gctrace_cpython::{Dict, InstanceLayout};

/// How to determine the size of the objects of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// All have the same, in bytes.
    Fixed(u64),
    /// This, and as much again for each item.
    Items(u64, u64),
    List(u64),
    /// This, and the tables of a dict of a version with this second number.
    Dict(u64, u8),
    /// This, and the values of an instance.
    Instance(u64, InstanceLayout),
    Unknown,
}

impl Size {
    /// For the objects of a type.
    pub(super) fn for_type(api: &PythonApi, minor: u8, class: TypeView) -> Self {
        let item = class.item_size();
        let basic = class.basic_size() + pre_header(minor, class.flags());
        let has_values = match minor {
            ..=10 => 0,
            11 | 12 => flags::MANAGED_DICT,
            13.. => flags::INLINE_VALUES,
        } & class.flags()
            != 0;
        // The other types may store a number of items, at an unknown place: frames of 3.11 and later have other things
        // there.
        let has_items = class.is_tuple() || class.is_metatype();
        match class.object() {
            of if of == api.PyList_Type => Self::List(basic),
            of if of == api.PyDict_Type => Self::Dict(basic, minor),
            of if item == 0 && has_values => {
                // SAFETY: such types are heap types, and these have that field.
                let keys = unsafe { word(of, type_qualname(minor) + 8) } as u64;
                let (basic_size, flags) = (class.basic_size(), class.flags());
                Self::Instance(basic, InstanceLayout { minor, basic_size, flags, keys })
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
                Self::Instance(basic, instances) => {
                    basic + instances.bytes(&mut LocalMemory::new(), address(object))?
                }
                Self::Dict(basic, _) if reference(object, DICT_KEYS).is_null() => basic,
                Self::Dict(basic, minor) => {
                    basic + Dict::read(&mut LocalMemory::new(), minor, address(object))?.bytes()
                }
                Self::Unknown => return None,
            })
        }
    }
}
