//! References that are released when they go out of scope, and the few operations on them. All of
//! them need the interpreter's lock; an exception set by a call here is cleared here.

use super::api::{NULL, Object, PythonApi};
use std::ffi::CStr;

/// An owned reference.
pub(crate) struct OwnedRef {
    api: &'static PythonApi,
    object: Object,
}

impl OwnedRef {
    /// Takes ownership of a new reference; `None`, with the exception cleared, if it is null.
    ///
    /// # Safety
    /// A reference that the caller owns, or null.
    pub(crate) unsafe fn new(api: &'static PythonApi, object: Object) -> Option<Self> {
        if object.is_null() {
            // SAFETY: the lock is held; the failed call is ours, so is its exception.
            unsafe { (api.PyErr_Clear)() };
            return None;
        }
        Some(Self { api, object })
    }

    /// Adds a reference to an object that other code owns.
    ///
    /// # Safety
    /// An object that is alive, not null.
    pub(crate) unsafe fn share(api: &'static PythonApi, object: Object) -> Self {
        // SAFETY: as the caller promises.
        unsafe { (api.Py_IncRef)(object) };
        Self { api, object }
    }

    pub(crate) fn import(api: &'static PythonApi, name: &CStr) -> Option<Self> {
        // SAFETY: the lock is held.
        unsafe { Self::new(api, (api.PyImport_ImportModule)(name.as_ptr())) }
    }

    /// An interned text.
    pub(crate) fn interned(api: &'static PythonApi, text: &CStr) -> Option<Self> {
        // SAFETY: the lock is held.
        unsafe { Self::new(api, (api.PyUnicode_InternFromString)(text.as_ptr())) }
    }

    /// A text.
    pub(crate) fn string(api: &'static PythonApi, text: &CStr) -> Option<Self> {
        // SAFETY: the lock is held.
        unsafe { Self::new(api, (api.PyUnicode_FromString)(text.as_ptr())) }
    }

    /// An empty dictionary.
    pub(crate) fn dictionary(api: &'static PythonApi) -> Option<Self> {
        // SAFETY: the lock is held.
        unsafe { Self::new(api, (api.PyDict_New)()) }
    }

    pub(crate) fn integer(api: &'static PythonApi, value: i64) -> Option<Self> {
        // SAFETY: as above.
        unsafe { Self::new(api, (api.PyLong_FromLong)(value)) }
    }

    pub(crate) fn object(&self) -> Object {
        self.object
    }

    /// Passes ownership of the reference to the caller.
    pub(crate) fn release(self) -> Object {
        let object = self.object;
        std::mem::forget(self);
        object
    }

    pub(crate) fn attribute(&self, name: &CStr) -> Option<Self> {
        // SAFETY: the lock is held, the object alive.
        unsafe {
            Self::new(self.api, (self.api.PyObject_GetAttrString)(self.object, name.as_ptr()))
        }
    }

    /// Calls it with one argument, or with none.
    pub(crate) fn call(&self, argument: Option<&Self>) -> Option<Self> {
        self.call_with(argument.as_slice(), NULL)
    }

    /// Calls it with these arguments.
    pub(crate) fn call_all(&self, arguments: &[&Self]) -> Option<Self> {
        self.call_with(arguments, NULL)
    }

    /// Calls it with these arguments; `None`: it raised an exception, and the exception stays set.
    pub(crate) fn call_raising(&self, arguments: &[&Self]) -> Option<Self> {
        let tuple = Self::tuple(self.api, arguments)?;
        // SAFETY: the lock is held, objects are alive.
        let result = unsafe { (self.api.PyObject_Call)(self.object, tuple.object, NULL) };
        if result.is_null() { None } else { Some(Self { api: self.api, object: result }) }
    }

    /// Calls it with one keyword argument.
    pub(crate) fn call_by_keyword(&self, name: &CStr, value: &Self) -> Option<Self> {
        let keywords = Self::dictionary(self.api)?;
        keywords.insert(name, value)?;
        self.call_with(&[], keywords.object)
    }

    fn call_with(&self, arguments: &[&Self], keywords: Object) -> Option<Self> {
        let tuple = Self::tuple(self.api, arguments)?;
        // SAFETY: the lock is held, objects are alive.
        unsafe {
            let result = (self.api.PyObject_Call)(self.object, tuple.object, keywords);
            Self::new(self.api, result)
        }
    }

    /// A tuple of these.
    pub(crate) fn tuple(api: &'static PythonApi, items: &[&Self]) -> Option<Self> {
        let count = isize::try_from(items.len()).ok()?;
        // SAFETY: the lock is held, objects are alive; SetItem takes over a reference.
        unsafe {
            let tuple = Self::new(api, (api.PyTuple_New)(count))?;
            for (at, item) in (0..count).zip(items) {
                let shared = Self::share(api, item.object).release();
                (api.PyTuple_SetItem)(tuple.object, at, shared);
            }
            Some(tuple)
        }
    }

    /// Number of entries of a dictionary; -1 if it is not one.
    pub(crate) fn dictionary_size(&self) -> isize {
        // SAFETY: the lock is held, the object alive.
        unsafe {
            let size = (self.api.PyDict_Size)(self.object);
            if size < 0 {
                (self.api.PyErr_Clear)();
            }
            size
        }
    }

    /// `__name__` of its class.
    pub(crate) fn class_name(&self) -> Option<Self> {
        // SAFETY: the lock is held, the object alive.
        let class = unsafe { Self::new(self.api, (self.api.PyObject_Type)(self.object)) }?;
        class.attribute(c"__name__")
    }

    /// Whether it is None.
    pub(crate) fn is_none(&self) -> bool {
        self.api.is_none(self.object)
    }

    /// Number of items of a list or tuple; 0 of anything else.
    pub(crate) fn length(&self) -> isize {
        // SAFETY: the lock is held, the object alive.
        let length = unsafe { (self.api.PySequence_Size)(self.object) };
        if length < 0 {
            // SAFETY: as above.
            unsafe { (self.api.PyErr_Clear)() };
        }
        length.max(0)
    }

    /// The items of a list or tuple; none of anything else.
    pub(crate) fn items(&self) -> impl Iterator<Item = Self> {
        (0..self.length()).map_while(|index| {
            // SAFETY: the lock is held, the object alive.
            unsafe { Self::new(self.api, (self.api.PySequence_GetItem)(self.object, index)) }
        })
    }

    /// The value of a key of a dictionary.
    pub(crate) fn value(&self, key: &Self) -> Option<Self> {
        // SAFETY: the lock is held, objects are alive; the value is borrowed from the dictionary.
        unsafe {
            let value = (self.api.PyDict_GetItemWithError)(self.object, key.object);
            if value.is_null() {
                (self.api.PyErr_Clear)();
                return None;
            }
            Some(Self::share(self.api, value))
        }
    }

    /// Sets the value of a key of a dictionary; `None` if there is no memory for it.
    pub(crate) fn insert(&self, key: &CStr, value: &Self) -> Option<()> {
        // SAFETY: the lock is held, objects are alive.
        unsafe {
            if (self.api.PyDict_SetItemString)(self.object, key.as_ptr(), value.object) != 0 {
                (self.api.PyErr_Clear)();
                return None;
            }
        }
        Some(())
    }

    /// As [`number`].
    pub(crate) fn number(&self) -> Option<i64> {
        number(self.api, self.object)
    }

    /// A text; `None` if it is not one, or has no UTF-8 (lone surrogates).
    pub(crate) fn text(&self) -> Option<&str> {
        let mut length = 0;
        // SAFETY: the lock is held; the bytes live as long as the object.
        unsafe {
            let bytes = (self.api.PyUnicode_AsUTF8AndSize)(self.object, &raw mut length);
            if bytes.is_null() {
                (self.api.PyErr_Clear)();
                return None;
            }
            let bytes = std::slice::from_raw_parts(bytes.cast(), usize::try_from(length).ok()?);
            str::from_utf8(bytes).ok()
        }
    }
}

impl Drop for OwnedRef {
    fn drop(&mut self) {
        // SAFETY: an owned reference, released once, with the lock held.
        unsafe { (self.api.Py_DecRef)(self.object) };
    }
}

/// A borrowed integer; `None` if it is not one, or does not fit.
pub(crate) fn number(api: &PythonApi, object: Object) -> Option<i64> {
    // SAFETY: the lock is held, the object alive.
    unsafe {
        let value = (api.PyLong_AsLong)(object);
        // No exception was set before, see `callback`.
        if value == -1 && !(api.PyErr_Occurred)().is_null() {
            (api.PyErr_Clear)();
            return None;
        }
        Some(value)
    }
}

/// Size of the head that every object has (`PyObject_HEAD`), in bytes: larger in free-threaded builds.
pub(crate) fn object_head(api: &'static PythonApi) -> Option<usize> {
    let plain = OwnedRef::import(api, c"builtins")?.attribute(c"object")?;
    usize::try_from(plain.attribute(c"__basicsize__")?.number()?).ok()
}
