//! Names of references: which attribute, key or variable of one object is another. Found by
//! comparing addresses in memory; nothing is looked up, so no code of the program runs.

use super::layout::{TypeView, integer, reference, size_of, type_of, word};
use crate::python::api::{NULL, Object, PythonApi};
use crate::python::object::OwnedRef;
use crate::python::raw_frame::RawFrameLayout;
use std::ffi::{CStr, c_char};

/// Maximum length of a key or name, in characters.
const LONGEST: usize = 60;

/// Where references of a kind of object are: their names, and their offsets in bytes.
type Fields = &'static [(&'static str, usize)];

/// Fields that are no members of their types (`PyMemberDef`), equal in 3.8 to 3.15
/// (Include/cpython/cellobject.h, Include/cpython/traceback.h, Include/cpython/object.h).
const CELL: Fields = &[(".cell_contents", 16)];
const TRACEBACK: Fields = &[(".tb_next", 16), (".tb_frame", 24)];
const CLASS: Fields =
    &[(".__base__", 256), (".__bases__", 336), (".__mro__", 344), (".__subclasses__()", 360)];
/// `PyBaseExceptionObject` (Include/cpython/pyerrors.h), before 3.11 and from then on.
const EXCEPTION: Fields = &[
    (".__dict__", 16),
    (".args", 24),
    (".__traceback__", 32),
    (".__context__", 40),
    (".__cause__", 48),
];
const EXCEPTION_WITH_NOTES: Fields = &[
    (".__dict__", 16),
    (".args", 24),
    (".__notes__", 32),
    (".__traceback__", 40),
    (".__context__", 48),
    (".__cause__", 56),
];
/// `PyFunctionObject` (Include/cpython/funcobject.h), before 3.10 and from then on.
const FUNCTION: Fields = &[
    (".__code__", 16),
    (".__globals__", 24),
    (".__defaults__", 32),
    (".__kwdefaults__", 40),
    (".__closure__", 48),
    (".__dict__", 72),
];
const FUNCTION_3_10: Fields = &[
    (".__globals__", 16),
    (".__builtins__", 24),
    (".__code__", 48),
    (".__defaults__", 56),
    (".__kwdefaults__", 64),
    (".__closure__", 72),
    (".__dict__", 88),
];

/// Where the values of instances without a dict of their own are.
#[derive(Clone, Copy)]
enum InlineValues {
    /// Up to 3.10: there are none.
    None,
    /// 3.11: behind a pointer four words before the object; the dict's is three before it.
    Pointer,
    /// 3.12: behind the dict's pointer, then odd.
    Tagged,
    /// 3.13 and later: in the object.
    Within,
}

/// Finds names in one interpreter.
pub(super) struct ReferenceNames {
    api: &'static PythonApi,
    exception: Fields,
    function: Fields,
    values: InlineValues,
    /// Offset of `ht_cached_keys` in heap types; `None` if unknown.
    cached_keys: Option<usize>,
    /// Offset of the first item of a tuple.
    items: usize,
    raw: Option<&'static RawFrameLayout>,
    /// Where frames are objects (before 3.11): offset of their variables.
    variables: Option<usize>,
    /// From 3.11 on: see [`name_list`].
    name_list: Option<usize>,
    /// Before: attributes of code objects with the names of variables, in their order.
    lists: Vec<OwnedRef>,
}

impl ReferenceNames {
    pub(super) fn new(api: &'static PythonApi, raw: Option<&'static RawFrameLayout>) -> Self {
        let series = |name: &str| api.is_series(name);
        let is_old = series("3.8.") || series("3.9.");
        let has_raw_frames = api.PyFrame_GetLasti.is_some();
        // SAFETY: a static type.
        let tuple = unsafe { TypeView::new(api.PyTuple_Type) };
        let lists = [c"co_varnames", c"co_cellvars", c"co_freevars"];
        Self {
            api,
            exception: if has_raw_frames { EXCEPTION_WITH_NOTES } else { EXCEPTION },
            function: if is_old { FUNCTION } else { FUNCTION_3_10 },
            values: match () {
                () if !has_raw_frames => InlineValues::None,
                () if series("3.11.") => InlineValues::Pointer,
                () if series("3.12.") => InlineValues::Tagged,
                () => InlineValues::Within,
            },
            cached_keys: cached_keys(api),
            items: if api.PyTuple_Type.is_null() {
                24
            } else {
                // `tp_basicsize` of a tuple excludes its items (Objects/tupleobject.c).
                tuple.basic_size() as usize
            },
            raw,
            variables: match () {
                () if is_old => Some(360),
                () if series("3.10.") => Some(352),
                () => None,
            },
            name_list: name_list(api),
            lists: lists.into_iter().filter_map(|name| OwnedRef::interned(api, name)).collect(),
        }
    }

    /// The name of the reference of one object to another, as Python writes it; `None` if it has
    /// none that is known.
    ///
    /// # Safety
    /// The lock is held, both are whole.
    pub(super) unsafe fn name(&self, from: Object, to: Object) -> Option<String> {
        let api = self.api;
        // SAFETY: as the caller promises; fields belong to the object's type.
        unsafe {
            let class = TypeView::new(type_of(from));
            let field = |fields: Fields| {
                let found = fields.iter().find(|(_, at)| reference(from, *at) == to);
                found.map(|(name, _)| (*name).to_owned())
            };
            let name = match class.object() {
                of if of == api.PyCell_Type => field(CELL),
                of if of == api.PyTraceBack_Type => field(TRACEBACK),
                of if of == api.PyFunction_Type => field(self.function),
                of if of == api.PyFrame_Type => self.variable_of_frame(from, to),
                of if of == api.PyGen_Type => self.variable_of_generator(from, to, ".gi_frame"),
                of if of == api.PyCoro_Type => self.variable_of_generator(from, to, ".cr_frame"),
                of if of == api.PyAsyncGen_Type => {
                    self.variable_of_generator(from, to, ".ag_frame")
                }
                _ if class.is_metatype() => self.class_field(from, to).or_else(|| field(CLASS)),
                _ if class.is_exception() => field(self.exception),
                _ if class.is_dict() => self.key(from, to),
                _ if class.is_tuple()
                    && self.has_item(from.wrapping_byte_add(self.items), from, to) =>
                {
                    Some("[]".to_owned())
                }
                _ if class.is_list() && self.has_item(reference(from, 24), from, to) => {
                    Some("[]".to_owned())
                }
                _ => None,
            };
            name.or_else(|| member(class, from, to))
                .or_else(|| self.attribute(class, from, to))
                .or_else(|| (class.object() == to).then(|| ".__class__".to_owned()))
        }
    }

    /// Whether one of the items of a list or tuple is another object.
    unsafe fn has_item(&self, items: Object, of: Object, to: Object) -> bool {
        // SAFETY: the items of a list or tuple, by the caller's promise.
        let at = |index: usize| unsafe { reference(items, index * 8) };
        // SAFETY: as above.
        !items.is_null() && (0..unsafe { size_of(of) }).any(|index| at(index) == to)
    }

    /// The key of a value in a dict.
    unsafe fn key(&self, dictionary: Object, to: Object) -> Option<String> {
        let next = self.api.PyDict_Next?;
        let (mut at, mut key, mut value) = (0, NULL, NULL);
        // SAFETY: the dict is whole and not changed meanwhile; key and value are borrowed.
        unsafe {
            while next(dictionary, &raw mut at, &raw mut key, &raw mut value) != 0 {
                if value == to {
                    let class = TypeView::new(type_of(key));
                    return match () {
                        () if class.is_text() => Some(format!("['{}']", self.text(key)?)),
                        () if class.object() == self.api.PyLong_Type => {
                            let number = crate::python::object::number(self.api, key)?;
                            Some(format!("[{number}]"))
                        }
                        () => None,
                    };
                }
            }
        }
        None
    }

    /// A text, cut if it is long.
    unsafe fn text(&self, object: Object) -> Option<String> {
        // SAFETY: alive, by the caller's promise.
        let shared = unsafe { OwnedRef::share(self.api, object) };
        let text = shared.text()?;
        Some(match text.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{}...", text.get(..end)?),
            None => text.to_owned(),
        })
    }

    /// An attribute in a class's own dict, or that dict.
    unsafe fn class_field(&self, class: Object, to: Object) -> Option<String> {
        // SAFETY: a type, by the caller's promise.
        let dictionary = unsafe { TypeView::new(class) }.dictionary();
        (dictionary == to && !to.is_null()).then(|| ".__dict__".to_owned())
    }

    /// The dict of an instance, or an attribute that is stored without one.
    unsafe fn attribute(&self, class: TypeView, from: Object, to: Object) -> Option<String> {
        // SAFETY: the places are those that the type's flags promise.
        unsafe {
            let dictionary = match (class.dictionary_offset(), class.has_managed_dictionary()) {
                (_, true) => {
                    let before = from.wrapping_byte_sub(24);
                    reference(before, 0)
                }
                (offset, false) if offset > 0 => reference(from, offset.cast_unsigned()),
                // From the end: of variable-sized types before 3.12.
                (offset, false) if offset < 0 && class.is_tuple() => {
                    let end = class.basic_size() as usize + size_of(from) * 8;
                    reference(from, end.checked_add_signed(offset)?)
                }
                _ => NULL,
            };
            if dictionary == to {
                return Some(".__dict__".to_owned());
            }
            if !class.has_managed_dictionary() {
                return None;
            }
            let values = match self.values {
                InlineValues::Pointer => reference(from.wrapping_byte_sub(32), 0),
                InlineValues::Tagged if dictionary.addr() & 1 == 1 => {
                    dictionary.wrapping_byte_add(1)
                }
                InlineValues::Within if class.has_inline_values() => {
                    let values = from.wrapping_byte_add(class.basic_size() as usize);
                    // Four bytes: capacity, size, embedded, valid.
                    let [.., valid] = integer(values, 0).to_le_bytes();
                    if valid == 0 {
                        return None;
                    }
                    values.wrapping_byte_add(8)
                }
                _ => NULL,
            };
            if values.is_null() {
                return None;
            }
            let keys = reference(class.object(), self.cached_keys?);
            self.name_in(keys, |at| reference(values, at * 8) == to)
        }
    }

    /// The name at the first place in a table of shared keys (3.11 and later) that `is_it`.
    unsafe fn name_in(&self, keys: Object, is_it: impl Fn(usize) -> bool) -> Option<String> {
        if keys.is_null() {
            return None;
        }
        // SAFETY: a table of keys, by the caller's promise: see `bytes::DictTable`.
        unsafe {
            let [_, table, kind, ..] = word(keys, 8).to_le_bytes();
            // Only keys that are all texts are shared.
            if kind == 0 {
                return None;
            }
            let entries = keys.wrapping_byte_add(32 + (1_usize.checked_shl(table.into())?));
            let at = (0..word(keys, 24)).find(|at| is_it(*at))?;
            let name = reference(entries, at * 16);
            (!name.is_null()).then(|| self.text(name))?.map(|name| format!(".{name}"))
        }
    }

    unsafe fn variable_of_frame(&self, frame: Object, to: Object) -> Option<String> {
        /// `f_back`, from 3.11 on and before; in 3.11 and later after it `f_frame`.
        const BACK: [usize; 2] = [16, 24];
        // SAFETY: a frame, by the caller's promise; variables are as many as its code names.
        unsafe {
            if let Some(variables) = self.variables {
                if reference(frame, BACK[1]) == to {
                    return Some(".f_back".to_owned());
                }
                let code = reference(frame, 32);
                let names = self.variable_names(code);
                let at = |index: &usize| reference(frame, variables + index * 8) == to;
                let found = (0..names.len()).find(at)?;
                return names.get(found).map(|name| format!(".f_locals['{name}']"));
            }
            if reference(frame, BACK[0]) == to {
                return Some(".f_back".to_owned());
            }
            let raw = self.raw?;
            self.variable(raw, reference(frame, BACK[1]), to)
                .map(|name| format!(".f_locals['{name}']"))
        }
    }

    unsafe fn variable_of_generator(
        &self,
        from: Object,
        to: Object,
        frame: &str,
    ) -> Option<String> {
        // SAFETY: a generator, by the caller's promise.
        unsafe {
            if self.variables.is_some() {
                return (reference(from, 16) == to).then(|| frame.to_owned());
            }
            let code = match self.api.PyGen_GetCode {
                Some(code) => OwnedRef::new(self.api, code(from))?,
                // `gi_code` of 3.11.
                None => OwnedRef::share(self.api, reference(from, 16)),
            };
            let raw = self.raw?;
            let within = raw.frame_within(from, code.object())?;
            self.variable(raw, within.cast_mut(), to)
                .map(|name| format!("{frame}.f_locals['{name}']"))
        }
    }

    /// The name of a variable in a frame of 3.11 and later.
    unsafe fn variable(&self, raw: &RawFrameLayout, frame: Object, to: Object) -> Option<String> {
        /// Tag bits of a reference (3.14).
        const TAG: usize = 3;
        if frame.is_null() {
            return None;
        }
        let variables = frame.wrapping_byte_add(raw.variables());
        // SAFETY: a frame whose code names its variables.
        unsafe {
            let names = self.variable_names(raw.code_of(frame));
            let at = |index: &usize| {
                let reference = reference(variables, index * 8);
                reference.map_addr(|address| address & !TAG) == to
            };
            let found = (0..names.len()).find(at)?;
            names.get(found).cloned()
        }
    }

    /// Names of a code object's variables, in the order in which frames store them.
    unsafe fn variable_names(&self, code: Object) -> Vec<String> {
        let mut names = Vec::new();
        if code.is_null() {
            return names;
        }
        let lists: Vec<OwnedRef> = match self.name_list {
            // SAFETY: a code object that is alive, with a tuple there.
            Some(at) => vec![unsafe { OwnedRef::share(self.api, reference(code, at)) }],
            // Found in none of the versions known; without names there is nothing to allocate.
            None if self.variables.is_none() => Vec::new(),
            None => {
                let get = self.api.PyObject_GetAttr;
                let lists = self.lists.iter();
                // SAFETY: alive; it has no Python code of its own.
                let list =
                    |name: &OwnedRef| unsafe { OwnedRef::new(self.api, get(code, name.object())) };
                lists.filter_map(list).collect()
            }
        };
        for name in lists.iter().flat_map(OwnedRef::items) {
            names.push(name.text().unwrap_or("?").to_owned());
        }
        names
    }
}

/// The name of a slot (`__slots__`), or of a member of a type of an extension.
unsafe fn member(class: TypeView, from: Object, to: Object) -> Option<String> {
    /// `T_OBJECT`, `T_OBJECT_EX` (Include/structmember.h).
    const OBJECTS: [i32; 2] = [6, 16];
    /// Size of a `PyMemberDef`.
    const SIZE: usize = 40;
    /// More members, or bases, than any type has.
    const MANY: usize = 1000;
    let mut class = Some(class);
    for _ in 0..MANY {
        let view = class?;
        let members = view.members();
        // SAFETY: an array of `PyMemberDef` ended by one without a name; the objects of the type
        // have these members.
        unsafe {
            for at in 0..if members.is_null() { 0 } else { MANY } {
                let member = members.wrapping_byte_add(at * SIZE);
                let name = reference(member, 0).cast::<c_char>();
                if name.is_null() {
                    break;
                }
                let offset = word(member, 16);
                if OBJECTS.contains(&integer(member, 8)) && reference(from, offset) == to {
                    return Some(format!(".{}", CStr::from_ptr(name).to_str().ok()?));
                }
            }
            class = view.base().map(|base| TypeView::new(base));
        }
    }
    None
}

/// A class that every interpreter has when it starts, and its first method's code.
fn known_class(api: &'static PythonApi) -> Option<(OwnedRef, OwnedRef)> {
    let class = OwnedRef::import(api, c"_frozen_importlib")?.attribute(c"ModuleSpec")?;
    let code = class.attribute(c"__init__")?.attribute(c"__code__")?;
    Some((class, code))
}

/// Offset of `ht_cached_keys`, which follows `ht_qualname` in every version: found by what
/// `PyType_GetQualName` returns. `None` before 3.11, where it is not needed.
fn cached_keys(api: &'static PythonApi) -> Option<usize> {
    /// Where `ht_qualname` is in the versions known: 856 - 872.
    const PLACES: std::ops::Range<usize> = 840..904;
    let (class, _) = known_class(api)?;
    // SAFETY: the lock is held; a heap type, which is longer than that (from 3.11 on).
    unsafe {
        let name = OwnedRef::new(api, (api.PyType_GetQualName?)(class.object()))?;
        let mut places = PLACES.step_by(8);
        // The name of a class that is not nested is the same object, and comes before it.
        let found = places.rfind(|at| reference(class.object(), *at) == name.object());
        found.map(|at| at + 8)
    }
}

/// Offset in code objects of the names of all variables (`co_localsplusnames`,
/// Include/cpython/code.h), if what is around it is where 3.11 - 3.13 have it. `None` before 3.11,
/// where there are three lists.
fn name_list(api: &'static PythonApi) -> Option<usize> {
    const PLACE: usize = 96;
    const AROUND: [(&CStr, usize); 2] = [(c"co_filename", 112), (c"co_qualname", 128)];
    api.PyFrame_GetLasti?;
    let (_, code) = known_class(api)?;
    let is_there = |(name, at): &(&CStr, usize)| {
        let attribute = code.attribute(name);
        // SAFETY: a code object, which is longer than that; only addresses are compared.
        attribute
            .is_some_and(|attribute| attribute.object() == unsafe { reference(code.object(), *at) })
    };
    AROUND.iter().all(is_there).then_some(PLACE)
}
