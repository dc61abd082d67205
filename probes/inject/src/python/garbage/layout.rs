//! Reads the collector's list and the objects on it from memory: no attribute is looked up, and
//! nothing is written.
//!
//! The offsets ([`gctrace_cpython::offsets`]) are trusted only if they yield what Python itself reports
//! about a type ([`is_as_expected`], once per interpreter).

use crate::python::api::Object;
use crate::python::object::OwnedRef;
use gctrace_cpython::offsets::{GC_FLAGS, SIZE, TYPE, flags, type_object};
use std::ffi::{CStr, c_char, c_int, c_void};

/// `PyGC_Head`, directly before each object that the collector knows. The heads of its lists are part of the
/// interpreter's state. Some builds align that state to four bytes only (Debian's 3.13).
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
pub(super) struct GcHead {
    /// The next head; in its two lowest bits flags.
    pub(super) next: usize,
    /// The previous head; in its two lowest bits flags.
    pub(super) previous: usize,
}

/// Bits of both fields that are flags.
pub(super) const FLAGS: usize = GC_FLAGS as usize;

/// `_PyGC_PREV_MASK_COLLECTING`: the object is being collected. Set on everything unreachable from the handling of
/// weakrefs until finalizers have run.
pub(super) const COLLECTING: usize = 2;

/// The head of an object.
pub(super) fn head_of(object: Object) -> *mut GcHead {
    object.cast::<GcHead>().wrapping_sub(1)
}

/// The object behind a head.
pub(super) fn object_of(head: *const GcHead) -> Object {
    head.wrapping_add(1).cast_mut().cast()
}

/// The head that a field refers to.
pub(super) fn head_at(field: usize) -> *const GcHead {
    std::ptr::with_exposed_provenance(field & !FLAGS)
}

/// Maximum distance on the stack to the list's own head: it is a local variable of the function that runs the
/// collection, our caller's caller.
const STACK: usize = 1 << 20;

/// Visits every object on the list that contains `first`, but not `first` itself. `None` if
/// something on it is neither an object being collected nor, once, a local variable of a caller:
/// then the collector is not as it is known.
///
/// # Safety
/// Called while the collector calls weakrefs' callbacks, from such a callback, with `first` among
/// the unreachable objects.
pub(super) unsafe fn walk(first: Object, mut visit: impl FnMut(Object)) -> Option<()> {
    let local = 0_u8;
    let floor = std::ptr::from_ref(&local).addr();
    let first = head_of(first).cast_const();
    let mut list = None;
    // SAFETY: the list is a ring of valid heads.
    let mut head = head_at(unsafe { (*first).next });
    while head != first {
        // SAFETY: as above.
        let GcHead { next, previous } = unsafe { head.read() };
        if previous & COLLECTING != 0 {
            visit(object_of(head));
        } else {
            let is_local = (floor..floor + STACK).contains(&head.addr());
            if !is_local || list.replace(head).is_some() {
                return None;
            }
        }
        if next & !FLAGS == 0 {
            return None;
        }
        head = head_at(next);
    }
    list.map(drop)
}

/// Takes a head off the list that it is on, if any. Unlike `PyObject_GC_UnTrack` of 3.14 not counted
/// as an object that the collector lost.
///
/// # Safety
/// The neighbors on the list are linked both ways.
pub(super) unsafe fn unlink(head: *mut GcHead) {
    // SAFETY: as the caller promises.
    unsafe {
        let GcHead { next, previous } = head.read();
        if next == 0 {
            return;
        }
        let (after, before) = (head_at(next).cast_mut(), head_at(previous).cast_mut());
        (*before).next = (*before).next & FLAGS | next & !FLAGS;
        (*after).previous = (*after).previous & FLAGS | previous & !FLAGS;
        (*head).next = 0;
        // `_PyGC_PREV_MASK_FINALIZED`.
        (*head).previous &= 1;
    }
}

/// A word of an object.
///
/// # Safety
/// The object is alive and has a word there.
pub(super) unsafe fn word(object: Object, offset: u64) -> usize {
    // SAFETY: as the caller promises.
    unsafe { object.byte_add(offset as usize).cast::<usize>().read() }
}

/// A reference in an object; may be null.
///
/// # Safety
/// The object is alive and has a reference there.
pub(super) unsafe fn reference(object: Object, offset: u64) -> Object {
    // SAFETY: as the caller promises.
    unsafe { object.byte_add(offset as usize).cast::<Object>().read() }
}

/// A C `int` in an object.
///
/// # Safety
/// The object is alive and has one there.
pub(super) unsafe fn integer(object: Object, offset: u64) -> i32 {
    // SAFETY: as the caller promises.
    unsafe { object.byte_add(offset as usize).cast::<i32>().read() }
}

/// `ob_type`.
///
/// # Safety
/// The object is alive.
pub(super) unsafe fn type_of(object: Object) -> Object {
    // SAFETY: as the caller promises.
    unsafe { reference(object, TYPE) }
}

/// `ob_size` of an object of variable size.
///
/// # Safety
/// The object is alive and of a variable size.
pub(super) unsafe fn size_of(object: Object) -> usize {
    // SAFETY: as the caller promises.
    unsafe { word(object, SIZE) }
}

/// `visitproc`: a reference, and the argument of `tp_traverse`.
pub(super) type Visit = unsafe extern "C" fn(Object, *mut c_void) -> c_int;

/// `traverseproc`.
pub(super) type Traverse = unsafe extern "C" fn(Object, Visit, *mut c_void) -> c_int;

/// `inquiry`, of `tp_is_gc`.
type IsGc = unsafe extern "C" fn(Object) -> c_int;

/// A type, read by the layout of `PyTypeObject`.
#[derive(Clone, Copy)]
pub(super) struct TypeView(Object);

/// A size, never negative: 0 if damaged.
fn positive(size: usize) -> u64 {
    u64::try_from(size.cast_signed()).unwrap_or(0)
}

impl TypeView {
    /// # Safety
    /// A type that stays alive as long as the view is used.
    pub(super) unsafe fn new(of: Object) -> Self {
        Self(of)
    }

    /// Its address.
    pub(super) fn object(self) -> Object {
        self.0
    }

    /// `tp_name`: of static types and extensions' types with the module's name before it.
    pub(super) fn name<'a>(self) -> &'a CStr {
        // SAFETY: a type, by the promise of `new`; every type has a name, as long as it lives.
        unsafe { CStr::from_ptr(reference(self.0, type_object::NAME).cast::<c_char>()) }
    }

    /// `tp_dealloc`.
    pub(super) fn deallocate(self) -> usize {
        // SAFETY: a type, by the promise of `new`.
        unsafe { word(self.0, type_object::DEALLOCATE) }
    }

    /// `tp_alloc`.
    pub(super) fn allocate(self) -> usize {
        // SAFETY: as above.
        unsafe { word(self.0, type_object::ALLOCATE) }
    }

    /// `tp_free`.
    pub(super) fn free(self) -> usize {
        // SAFETY: as above.
        unsafe { word(self.0, type_object::FREE) }
    }

    /// `tp_basicsize` in bytes; 0 if it is negative.
    pub(super) fn basic_size(self) -> u64 {
        // SAFETY: a type, by the promise of `new`.
        positive(unsafe { word(self.0, type_object::BASIC_SIZE) })
    }

    /// `tp_itemsize` in bytes.
    pub(super) fn item_size(self) -> u64 {
        // SAFETY: as above.
        positive(unsafe { word(self.0, type_object::ITEM_SIZE) })
    }

    /// `tp_flags`.
    pub(super) fn flags(self) -> u64 {
        // SAFETY: as above.
        unsafe { word(self.0, type_object::FLAGS) as u64 }
    }

    /// Whether it was made at run time, and can be freed.
    pub(super) fn is_heap(self) -> bool {
        self.flags() & flags::HEAP_TYPE != 0
    }

    /// Whether the collector knows its instances.
    pub(super) fn is_collected(self) -> bool {
        self.flags() & flags::HAVE_GC != 0
    }

    /// Whether two words are before its instances, for their dicts and weak references (3.11 and
    /// later).
    pub(super) fn has_words_before(self) -> bool {
        self.flags() & (flags::MANAGED_DICT | flags::MANAGED_WEAKREF) != 0
    }

    /// Whether its instances are tuples.
    pub(super) fn is_tuple(self) -> bool {
        self.flags() & flags::TUPLE != 0
    }

    /// Whether its instances are types.
    pub(super) fn is_metatype(self) -> bool {
        self.flags() & flags::TYPE != 0
    }

    /// Whether its instances are dicts.
    pub(super) fn is_dict(self) -> bool {
        self.flags() & flags::DICT != 0
    }

    /// Whether its instances are lists.
    pub(super) fn is_list(self) -> bool {
        self.flags() & flags::LIST != 0
    }

    /// Whether its instances are texts.
    pub(super) fn is_text(self) -> bool {
        self.flags() & flags::UNICODE != 0
    }

    /// Whether its instances are exceptions.
    pub(super) fn is_exception(self) -> bool {
        self.flags() & flags::EXCEPTION != 0
    }

    /// Whether the dicts of its instances are before them (3.11 and later).
    pub(super) fn has_managed_dictionary(self) -> bool {
        self.flags() & flags::MANAGED_DICT != 0
    }

    /// `tp_dictoffset` in bytes; 0: none.
    pub(super) fn dictionary_offset(self) -> isize {
        // SAFETY: as above.
        unsafe { word(self.0, type_object::DICT_OFFSET) }.cast_signed()
    }

    /// `tp_members`; null: none.
    pub(super) fn members(self) -> Object {
        // SAFETY: as above.
        unsafe { reference(self.0, type_object::MEMBERS) }
    }

    /// `tp_base`, borrowed.
    pub(super) fn base(self) -> Option<Object> {
        // SAFETY: as above.
        let base = unsafe { reference(self.0, type_object::BASE) };
        if base.is_null() { None } else { Some(base) }
    }

    /// `tp_traverse`, if the collector knows its instances.
    pub(super) fn traverse(self) -> Option<Traverse> {
        // SAFETY: as above; a function of this type, or null.
        unsafe {
            std::mem::transmute::<usize, Option<Traverse>>(word(self.0, type_object::TRAVERSE))
        }
    }

    /// Whether the collector knows one of its instances (`PyObject_IS_GC`).
    ///
    /// # Safety
    /// An instance that is alive.
    pub(super) unsafe fn knows(self, object: Object) -> bool {
        if self.flags() & flags::HAVE_GC == 0 {
            return false;
        }
        // SAFETY: `tp_is_gc`, a function of this type or null.
        let is_gc =
            unsafe { std::mem::transmute::<usize, Option<IsGc>>(word(self.0, type_object::IS_GC)) };
        // SAFETY: as the caller promises.
        is_gc.is_none_or(|is_gc| unsafe { is_gc(object) } != 0)
    }

    /// `tp_dict`, borrowed; null in static types from 3.12 on.
    pub(super) fn dictionary(self) -> Object {
        // SAFETY: as above.
        unsafe { reference(self.0, type_object::DICT) }
    }
}

/// Whether objects and types are where this file expects them. Checks with an untracked object of a type with the full
/// name `name`.
pub(super) fn is_as_expected(object: &OwnedRef, name: &CStr) -> Option<bool> {
    let class = object.attribute(c"__class__")?;
    let number = |attribute| class.attribute(attribute)?.number();
    // SAFETY: alive; this function checks the layout: objects are longer than their type.
    let seen = unsafe { type_of(object.object()) };
    if seen != class.object() {
        return Some(false);
    }
    // SAFETY: a type, as just seen.
    let view = unsafe { TypeView::new(seen) };
    // SAFETY: only addresses are compared: the flags were found where they are.
    let head = unsafe { head_of(object.object()).read() };
    Some(
        u64::try_from(number(c"__basicsize__")?) == Ok(view.basic_size())
            && u64::try_from(number(c"__itemsize__")?) == Ok(view.item_size())
            && number(c"__flags__")? == view.flags().cast_signed()
            && view.name() == name
            && head.next == 0,
    )
}
