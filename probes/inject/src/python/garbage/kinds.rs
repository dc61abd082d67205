//! The kind of an object: its type and, for objects that belong to code, the code and the line.
//!
//! Everything on the list is alive and whole while it is walked, so addresses identify types and
//! code there, and only there: they can die in the same collection, and others take their place.
//! Names are read once per walk, from strings of CPython's own structures; no code of the program
//! runs.

use super::births::{InstanceTypes, SampledLine};
use super::bytes::Size;
use super::layout::{TypeView, integer, reference, type_of};
use crate::memory::Map;
use crate::process_ring::PythonRing;
use crate::python::api::{NULL, Object, PythonApi};
use crate::python::frames::CodeNames;
use crate::python::object::OwnedRef;
use crate::python::raw_frame::{RawFrameLayout, line_number};
use gctrace_cpython::offsets::{
    CELL_CONTENTS, FrameObject, GENERATOR_FRAME, TRACEBACK_FRAME, TRACEBACK_LAST_INSTRUCTION,
    TRACEBACK_LINE, generator_code, type_qualname,
};
use gctrace_ring::{NO_TEXT, TextId};

/// `type_name` of a type with an unreadable name.
const UNREADABLE: &str = "[type not readable]";

/// The identity of a kind of object during one walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ObjectKey {
    /// Address of the type.
    pub(super) class: Object,
    /// Address of the code object, or of the class that objects of metatypes are; null: none.
    pub(super) code: Object,
    /// Line in that code; 0: its first.
    pub(super) line: u32,
}

/// How the objects of a type lead to code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CodePath {
    /// They do not.
    None,
    Function,
    Method,
    Cell,
    Frame,
    Traceback,
    /// Generators, coroutines, asynchronous generators.
    Generator,
    /// Types: the code of their first method.
    Class,
}

/// Reads kinds in one interpreter.
pub(super) struct KindReader {
    api: &'static PythonApi,
    /// The second number of the version.
    minor: u8,
    /// `__module__`, interned.
    module: OwnedRef,
    names: CodeNames,
    raw: Option<RawFrameLayout>,
    /// `None`: births are not sampled.
    instances: Option<InstanceTypes>,
    /// Static types live for ever: the texts of their names, in the ring of this number.
    fixed: Map<Object, TextId>,
    ring: u32,
    text: String,
}

impl KindReader {
    /// `instances`: types with objects that are found by their blocks.
    pub(super) fn new(
        api: &'static PythonApi,
        minor: u8,
        raw: Option<RawFrameLayout>,
        instances: Option<InstanceTypes>,
    ) -> Option<Self> {
        Some(Self {
            api,
            minor,
            module: OwnedRef::interned(api, c"__module__")?,
            names: CodeNames::new(api),
            raw,
            instances,
            fixed: Map::default(),
            ring: 0,
            text: String::new(),
        })
    }

    /// How objects of this type lead to code.
    pub(super) fn path(&self, class: TypeView) -> CodePath {
        let api = self.api;
        match class.object() {
            of if of == api.PyFunction_Type => CodePath::Function,
            of if of == api.PyMethod_Type => CodePath::Method,
            of if of == api.PyCell_Type => CodePath::Cell,
            of if of == api.PyFrame_Type => CodePath::Frame,
            of if of == api.PyTraceBack_Type => CodePath::Traceback,
            of if [api.PyGen_Type, api.PyCoro_Type, api.PyAsyncGen_Type].contains(&of) => {
                CodePath::Generator
            }
            _ if class.is_metatype() => CodePath::Class,
            _ => CodePath::None,
        }
    }

    /// How to determine the size of objects of this type.
    pub(super) fn size(&self, class: TypeView) -> Size {
        Size::for_type(self.api, self.minor, class)
    }

    /// Whether births are sampled.
    pub(super) fn finds_births(&self) -> bool {
        self.instances.is_some()
    }

    /// From the block of an object of this type to the object; `None` if its birth is unknown, or
    /// is its code's.
    pub(super) fn distance(&self, class: TypeView) -> Option<usize> {
        let instances = self.instances.as_ref()?;
        if self.path(class) == CodePath::None { instances.distance(class) } else { None }
    }

    /// The code that an object belongs to, and the line; null and 0 without code.
    ///
    /// # Safety
    /// The lock is held; the object is whole, and `path` its type's.
    pub(super) unsafe fn code(&self, object: Object, path: CodePath) -> (Object, u32) {
        // SAFETY: as the caller promises; offsets belong to the types that `path` stands for.
        unsafe {
            match path {
                CodePath::None => (NULL, 0),
                CodePath::Class => (object, 0),
                CodePath::Function => match self.api.PyFunction_GetCode {
                    Some(code) => (code(object), 0),
                    None => (NULL, 0),
                },
                CodePath::Method => match self.api.PyMethod_Function {
                    Some(function) => self.content(function(object)),
                    None => (NULL, 0),
                },
                CodePath::Cell => self.content(reference(object, CELL_CONTENTS)),
                CodePath::Frame => self.frame(object),
                CodePath::Traceback => self.traceback(object),
                CodePath::Generator => self.generator(object),
            }
        }
    }

    /// The code of the object that a cell or a bound method refers to.
    unsafe fn content(&self, object: Object) -> (Object, u32) {
        if object.is_null() {
            return (NULL, 0);
        }
        // SAFETY: alive, the caller's object refers to it.
        unsafe {
            match self.path(TypeView::new(type_of(object))) {
                CodePath::Cell | CodePath::Method => (NULL, 0),
                path => self.code(object, path),
            }
        }
    }

    unsafe fn frame(&self, frame: Object) -> (Object, u32) {
        if frame.is_null() {
            return (NULL, 0);
        }
        // SAFETY: a frame that is alive, by the caller's promise.
        unsafe {
            let code = match self.api.PyFrame_GetCode {
                Some(code) => match OwnedRef::new(self.api, code(frame)) {
                    // The frame refers to it too.
                    Some(code) => code.object(),
                    None => return (NULL, 0),
                },
                // 3.8
                None => reference(frame, FrameObject::CODE),
            };
            (code, line_number((self.api.PyFrame_GetLineNumber)(frame)))
        }
    }

    unsafe fn traceback(&self, traceback: Object) -> (Object, u32) {
        // SAFETY: a traceback that is alive, by the caller's promise.
        unsafe {
            let (code, _) = self.frame(reference(traceback, TRACEBACK_FRAME));
            let known = integer(traceback, TRACEBACK_LINE);
            // From 3.12 on it is found when it is asked for.
            let known = match (known, self.api.PyCode_Addr2Line) {
                (..0, Some(line)) if !code.is_null() => {
                    line(code, integer(traceback, TRACEBACK_LAST_INSTRUCTION))
                }
                _ => known,
            };
            (code, line_number(known))
        }
    }

    unsafe fn generator(&self, generator: Object) -> (Object, u32) {
        // SAFETY: a generator that is alive, by the caller's promise.
        unsafe {
            if self.minor <= 10
                && let frame = reference(generator, GENERATOR_FRAME)
                && !frame.is_null()
            {
                return self.frame(frame);
            }
            let code = match (generator_code(self.minor), self.api.PyGen_GetCode) {
                (Some(at), _) => reference(generator, at),
                (None, Some(code)) => match OwnedRef::new(self.api, code(generator)) {
                    // The generator refers to it too.
                    Some(code) => code.object(),
                    None => NULL,
                },
                (None, None) => NULL,
            };
            let line = self.raw.map_or(0, |raw| raw.line_of(self.api, generator, code));
            (code, line)
        }
    }

    /// The number of a kind in a ring; 0 if there is no room.
    ///
    /// # Safety
    /// The lock is held; type and code are whole.
    pub(super) unsafe fn kind(&mut self, ring: &PythonRing, key: ObjectKey) -> u32 {
        if self.ring != ring.number() {
            self.ring = ring.number();
            self.fixed.clear();
        }
        // SAFETY: as the caller promises.
        let class = unsafe { TypeView::new(key.class) };
        let type_name = self.type_name(ring, class);
        if type_name == NO_TEXT {
            return 0;
        }
        if key.code.is_null() {
            return ring.kind((type_name, NO_TEXT, NO_TEXT, 0), !class.is_heap());
        }
        let (code, function) = if self.is_class(key.code) {
            // SAFETY: a type, as just seen.
            let view = unsafe { TypeView::new(key.code) };
            self.qualified_name(view);
            let name = ring.text_of_kind(&self.text);
            // SAFETY: as above.
            (unsafe { self.first_method(view) }, name)
        } else {
            (key.code, NO_TEXT)
        };
        if code.is_null() {
            return ring.kind((type_name, function, NO_TEXT, 0), false);
        }
        let (code_name, file) = self.names.of(code, |text| ring.text_of_kind(text));
        let function = if function == NO_TEXT { code_name } else { function };
        if function == NO_TEXT || file == NO_TEXT {
            return 0;
        }
        let line = match (key.line, self.api.PyCode_Addr2Line) {
            // Of no instruction: the first (`co_firstlineno`).
            // SAFETY: a code object that is alive.
            (0, Some(first)) => line_number(unsafe { first(code, -1) }),
            (known, _) => known,
        };
        ring.kind((type_name, function, file, line), false)
    }

    /// The number of the objects of a class that were born at a line; 0 if there is no room.
    ///
    /// # Safety
    /// The lock is held; the class is whole.
    pub(super) unsafe fn born(
        &mut self,
        ring: &PythonRing,
        class: Object,
        line: &SampledLine,
    ) -> u32 {
        // SAFETY: as the caller promises.
        let type_name = self.type_name(ring, unsafe { TypeView::new(class) });
        let function = ring.text_of_kind(&line.function);
        let file = ring.text_of_kind(&line.file);
        if [type_name, function, file].contains(&NO_TEXT) {
            return 0;
        }
        ring.kind((type_name, function, file, line.line), false)
    }

    /// Whether an address of a key is a class rather than a code object.
    fn is_class(&self, object: Object) -> bool {
        // SAFETY: alive, by the promise of `kind`.
        unsafe { TypeView::new(type_of(object)).is_metatype() }
    }

    /// The code of the first function in a class; null if it has none.
    unsafe fn first_method(&self, class: TypeView) -> Object {
        let (next, Some(code)) = (self.api.PyDict_Next, self.api.PyFunction_GetCode) else {
            return NULL;
        };
        let dictionary = class.dictionary();
        if dictionary.is_null() {
            return NULL;
        }
        let (mut at, mut key, mut value) = (0, NULL, NULL);
        // SAFETY: the dictionary is whole and not changed meanwhile; key and value are borrowed.
        unsafe {
            while next(dictionary, &raw mut at, &raw mut key, &raw mut value) != 0 {
                if type_of(value) == self.api.PyFunction_Type {
                    return code(value);
                }
            }
        }
        NULL
    }

    /// The text of a type's name: as in [`KindReader::qualified_name`], with the module before it.
    fn type_name(&mut self, ring: &PythonRing, class: TypeView) -> TextId {
        if let Some(known) = self.fixed.get(&class.object()) {
            return *known;
        }
        self.qualified_name(class);
        if class.is_heap()
            && let Some(module) = self.module(class)
            && module != "builtins"
        {
            let length = module.len();
            self.text.insert_str(0, module);
            self.text.insert(length, '.');
        }
        if class.is_heap() {
            return ring.text_of_kind(&self.text);
        }
        let text = ring.text(&self.text);
        if text != NO_TEXT {
            self.fixed.insert(class.object(), text);
        }
        text
    }

    /// Writes the qualified name of a heap type, or the name of a static one, into `self.text`.
    fn qualified_name(&mut self, class: TypeView) {
        self.text.clear();
        if !class.is_heap() {
            let name = class.name().to_str().unwrap_or(UNREADABLE);
            return self.text.push_str(name);
        }
        // SAFETY: the lock is held, the type whole; the offset belongs to heap types.
        let name = unsafe {
            match self.api.PyType_GetQualName {
                Some(name) => OwnedRef::new(self.api, name(class.object())),
                None => {
                    let name = reference(class.object(), type_qualname(self.minor));
                    if name.is_null() { None } else { Some(OwnedRef::share(self.api, name)) }
                }
            }
        };
        let name = name.as_ref().and_then(OwnedRef::text);
        self.text.push_str(name.unwrap_or(UNREADABLE));
    }

    /// `__module__` in a class's own dictionary.
    fn module<'a>(&self, class: TypeView) -> Option<&'a str> {
        let dictionary = class.dictionary();
        if dictionary.is_null() {
            return None;
        }
        let mut length = 0;
        // SAFETY: the lock is held; the value is borrowed from a dictionary with names as keys, and lives as long as
        // it.
        unsafe {
            let module = (self.api.PyDict_GetItemWithError)(dictionary, self.module.object());
            if module.is_null() {
                (self.api.PyErr_Clear)();
                return None;
            }
            let bytes = (self.api.PyUnicode_AsUTF8AndSize)(module, &raw mut length);
            if bytes.is_null() {
                (self.api.PyErr_Clear)();
                return None;
            }
            let bytes = std::slice::from_raw_parts(bytes.cast(), usize::try_from(length).ok()?);
            str::from_utf8(bytes).ok()
        }
    }
}
