//! Names of references: decides which attribute, key or variable of one object is another. Found by comparing addresses
//! in memory; nothing is looked up, so no code of the program runs.

use super::layout::{TypeView, integer, reference, size_of, type_of, word};
use crate::python::api::{NULL, Object, PythonApi};
use crate::python::local_memory::{LocalMemory, address, object};
use crate::python::object::OwnedRef;
use crate::python::raw_frame::RawFrameLayout;
use gctrace_cpython::InstanceLayout;
use gctrace_cpython::offsets::{
    CELL, CODE_FILENAME, CODE_QUALNAME, Fields, FrameObject, Frames, GENERATOR_FRAME,
    InterpreterFrame, LIST_ITEMS, TRACEBACK, VariableNames, exception, function, generator_code,
    member, tuple_items, type_object, type_qualname,
};
use std::ffi::{CStr, c_char};

/// Maximum length of a key or name, in characters.
const LONGEST: usize = 60;

/// References of a class, beside its own dict.
const CLASS: Fields = &[
    (type_object::BASE, ".__base__"),
    (type_object::BASES, ".__bases__"),
    (type_object::MRO, ".__mro__"),
    (type_object::SUBCLASSES, ".__subclasses__()"),
];

/// Finds names in one interpreter.
pub(super) struct ReferenceNames {
    api: &'static PythonApi,
    /// The second number of the version.
    minor: u8,
    /// Offset of `ht_cached_keys` in heap types; `None` if unknown.
    cached_keys: Option<u64>,
    raw: Option<RawFrameLayout>,
    /// Where frames are objects (before 3.11): offset of their variables.
    variables: Option<u64>,
    /// From 3.11 on: see [`name_list`].
    name_list: Option<u64>,
    /// Before: attributes of code objects with the names of variables, in their order.
    lists: Vec<OwnedRef>,
}

impl ReferenceNames {
    /// `minor`: of the version, the second number.
    pub(super) fn new(api: &'static PythonApi, minor: u8, raw: Option<RawFrameLayout>) -> Self {
        let lists = [c"co_varnames", c"co_cellvars", c"co_freevars"];
        Self {
            api,
            minor,
            cached_keys: cached_keys(api, minor),
            raw,
            variables: match Frames::new(minor) {
                Some(Frames::Objects(frame)) => Some(frame.locals),
                _ => None,
            },
            name_list: name_list(api, minor),
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
                let found = fields.iter().find(|(at, _)| reference(from, *at) == to);
                found.map(|(_, name)| (*name).to_owned())
            };
            let name = match class.object() {
                of if of == api.PyCell_Type => field(CELL),
                of if of == api.PyTraceBack_Type => field(TRACEBACK),
                of if of == api.PyFunction_Type => field(function(self.minor)),
                of if of == api.PyFrame_Type => self.variable_of_frame(from, to),
                of if of == api.PyGen_Type => self.variable_of_generator(from, to, ".gi_frame"),
                of if of == api.PyCoro_Type => self.variable_of_generator(from, to, ".cr_frame"),
                of if of == api.PyAsyncGen_Type => {
                    self.variable_of_generator(from, to, ".ag_frame")
                }
                _ if class.is_metatype() => self.class_field(from, to).or_else(|| field(CLASS)),
                _ if class.is_exception() => field(exception(self.minor)),
                _ if class.is_dict() => self.key(from, to),
                _ if class.is_tuple() && self.has_item(self.first_item(from), from, to) => {
                    Some("[]".to_owned())
                }
                _ if class.is_list() && self.has_item(reference(from, LIST_ITEMS), from, to) => {
                    Some("[]".to_owned())
                }
                _ => None,
            };
            let name = name.or_else(|| member(class, from, to));
            match name.or_else(|| self.attribute(class, from, to)) {
                None if class.object() == to => Some(".__class__".to_owned()),
                name => name,
            }
        }
    }

    /// Where a tuple's items begin.
    fn first_item(&self, tuple: Object) -> Object {
        tuple.wrapping_byte_add(tuple_items(self.minor) as usize)
    }

    /// Whether one of the items of a list or tuple is another object.
    unsafe fn has_item(&self, items: Object, of: Object, to: Object) -> bool {
        // SAFETY: the items of a list or tuple, by the caller's promise.
        let at = |index: usize| unsafe { reference(items, index as u64 * 8) };
        // SAFETY: as above.
        !items.is_null() && (0..unsafe { size_of(of) }).any(|index| at(index) == to)
    }

    /// The key of a value in a dict.
    unsafe fn key(&self, dictionary: Object, to: Object) -> Option<String> {
        let next = self.api.PyDict_Next;
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
        if dictionary == to && !to.is_null() { Some(".__dict__".to_owned()) } else { None }
    }

    /// The dict of an instance, or an attribute that is stored without one.
    unsafe fn attribute(&self, class: TypeView, from: Object, to: Object) -> Option<String> {
        // SAFETY: the type's flags promise these places.
        unsafe {
            if !class.has_managed_dictionary() {
                let dictionary = match class.dictionary_offset() {
                    offset if offset > 0 => reference(from, offset.cast_unsigned() as u64),
                    // From the end: of variable-sized types before 3.12.
                    offset if offset < 0 && class.is_tuple() => {
                        let end = class.basic_size() as usize + size_of(from) * 8;
                        reference(from, end.checked_add_signed(offset)? as u64)
                    }
                    _ => NULL,
                };
                return if dictionary == to { Some(".__dict__".to_owned()) } else { None };
            }
            let instances = InstanceLayout {
                minor: self.minor,
                basic_size: class.basic_size(),
                flags: class.flags(),
                keys: self.cached_keys.map_or(0, |at| word(class.object(), at) as u64),
            };
            let memory = &mut LocalMemory::new();
            let (values, dictionary) = instances.places(memory, address(from))?;
            if dictionary == address(to) {
                return Some(".__dict__".to_owned());
            }
            if values == 0 {
                return None;
            }
            let attributes = instances.entries(memory, values)?;
            let found = attributes.iter().find(|attribute| attribute.value == address(to))?;
            if found.key == 0 {
                return None;
            }
            Some(format!(".{}", self.text(object(found.key))?))
        }
    }

    unsafe fn variable_of_frame(&self, frame: Object, to: Object) -> Option<String> {
        // SAFETY: a frame, by the caller's promise; variables are as many as its code names.
        unsafe {
            if let Some(variables) = self.variables {
                if reference(frame, FrameObject::BACK) == to {
                    return Some(".f_back".to_owned());
                }
                let code = reference(frame, FrameObject::CODE);
                let names = self.variable_names(code);
                let at = |index: &usize| reference(frame, variables + *index as u64 * 8) == to;
                let found = (0..names.len()).find(at)?;
                return names.get(found).map(|name| format!(".f_locals['{name}']"));
            }
            if reference(frame, InterpreterFrame::OBJECT_BACK) == to {
                return Some(".f_back".to_owned());
            }
            let raw = self.raw?;
            self.variable(raw, word(frame, InterpreterFrame::OBJECT_FRAME) as u64, to)
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
                return (reference(from, GENERATOR_FRAME) == to).then(|| frame.to_owned());
            }
            let code = match self.api.PyGen_GetCode {
                Some(code) => OwnedRef::new(self.api, code(from))?,
                None => OwnedRef::share(self.api, reference(from, generator_code(self.minor)?)),
            };
            let raw = self.raw?;
            let within = raw.frame_within(from, code.object())?;
            self.variable(raw, within, to).map(|name| format!("{frame}.f_locals['{name}']"))
        }
    }

    /// The name of a variable in a frame of 3.11 and later.
    unsafe fn variable(&self, raw: RawFrameLayout, frame: u64, to: Object) -> Option<String> {
        if frame == 0 {
            return None;
        }
        let variables = object(frame + raw.variables());
        // SAFETY: a frame with code that names its variables.
        unsafe {
            let names = self.variable_names(raw.code_of(frame));
            let at = |index: &usize| {
                let reference = reference(variables, *index as u64 * 8);
                reference.map_addr(|address| address & !(InterpreterFrame::TAG as usize)) == to
            };
            let found = (0..names.len()).find(at)?;
            names.get(found).cloned()
        }
    }

    /// Names of a code object's variables, in the order of a frame's variables.
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
    /// More than the members, or bases, of any type.
    const MANY: u64 = 1000;
    let mut class = Some(class);
    for _ in 0..MANY {
        let view = class?;
        let members = view.members();
        // SAFETY: an array of `PyMemberDef` ended by one without a name; the objects of the type
        // have these members.
        unsafe {
            for at in 0..if members.is_null() { 0 } else { MANY } {
                let field = |field: u64| at * member::BYTES + field;
                let name = reference(members, field(0)).cast::<c_char>();
                if name.is_null() {
                    break;
                }
                let kind = integer(members, field(member::KIND));
                let offset = word(members, field(member::OFFSET)) as u64;
                if member::OBJECTS.contains(&kind) && reference(from, offset) == to {
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

/// Offset of `ht_cached_keys`, if `PyType_GetQualName` returns the `ht_qualname` before it. `None` before 3.11, where
/// it is not needed.
fn cached_keys(api: &'static PythonApi, minor: u8) -> Option<u64> {
    let (class, _) = known_class(api)?;
    let at = type_qualname(minor);
    // SAFETY: the lock is held; a heap type, longer than that. The name of a class that is not nested is the same
    // object.
    unsafe {
        let name = OwnedRef::new(api, (api.PyType_GetQualName?)(class.object()))?;
        if reference(class.object(), at) == name.object() { Some(at + 8) } else { None }
    }
}

/// Offset in code objects of the names of all variables, if the fields around it are at their known places. `None`
/// before 3.11: there are three lists.
fn name_list(api: &'static PythonApi, minor: u8) -> Option<u64> {
    const AROUND: [(&CStr, u64); 2] =
        [(c"co_filename", CODE_FILENAME), (c"co_qualname", CODE_QUALNAME)];
    let VariableNames::Joined { names, .. } = VariableNames::new(minor) else { return None };
    let (_, code) = known_class(api)?;
    let is_there = |(name, at): &(&CStr, u64)| {
        let attribute = code.attribute(name);
        // SAFETY: a code object, longer than that; only addresses are compared.
        attribute
            .is_some_and(|attribute| attribute.object() == unsafe { reference(code.object(), *at) })
    };
    if AROUND.iter().all(is_there) { Some(names) } else { None }
}
