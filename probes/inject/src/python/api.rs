//! CPython's C API, resolved by name in the interpreter of the process. Only exported functions,
//! with the types of the headers of 3.8 to 3.15; no structure layouts are used here.

use std::ffi::{CStr, c_char, c_int, c_long, c_longlong, c_void};
use std::sync::OnceLock;

/// `PyObject *`.
pub(crate) type Object = *mut c_void;

/// The null reference.
pub(crate) const NULL: Object = std::ptr::null_mut();

/// `PyMethodDef` (Include/methodobject.h).
#[repr(C)]
pub(crate) struct MethodDef {
    pub(crate) name: *const c_char,
    pub(crate) function: FastCall,
    pub(crate) flags: c_int,
    pub(crate) doc: *const c_char,
}

// SAFETY: points to static text only.
unsafe impl Sync for MethodDef {}

/// `_PyCFunctionFast`: self, arguments, their number.
pub(crate) type FastCall = unsafe extern "C" fn(Object, *const Object, isize) -> Object;

/// `_PyFrameEvalFunction`: the thread's state, the frame, whether an exception is thrown into it. A daemon thread can
/// end in it; that unwinds its stack.
pub(crate) type EvaluateFrame = unsafe extern "C-unwind" fn(Object, Object, c_int) -> Object;

/// `METH_FASTCALL`.
pub(crate) const FASTCALL: c_int = 0x0080;

/// `PyMemAllocatorEx` (Include/cpython/pymem.h).
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct MemAllocator {
    pub(crate) context: *mut c_void,
    pub(crate) malloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    pub(crate) calloc: unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void,
    pub(crate) realloc: unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void,
    pub(crate) free: unsafe extern "C" fn(*mut c_void, *mut c_void),
}

/// `PYMEM_DOMAIN_OBJ`: the allocator of objects.
pub(crate) const OBJECTS: i32 = 2;

macro_rules! functions {
    (
        required { $(fn $name:ident($($type:ty),*) $(-> $result:ty)?;)* }
        optional { $(fn $optional:ident($($optional_type:ty),*) $(-> $optional_result:ty)?;)* }
        types { $($kind:ident)* }
    ) => {
        /// The functions, to be called as CPython's manual states; most need the interpreter's lock. And the addresses
        /// of types, null if there are none.
        #[expect(non_snake_case, reason = "names of the C API")]
        pub(crate) struct PythonApi {
            $(pub(crate) $name: unsafe extern "C" fn($($type),*) $(-> $result)?,)*
            $(pub(crate) $optional: Option<unsafe extern "C" fn($($optional_type),*) $(-> $optional_result)?>,)*
            $(pub(crate) $kind: Object,)*
            /// As optional functions. In 3.8 it has other arguments, and the two above are missing.
            pub(crate) _PyEval_EvalFrameDefault: Option<EvaluateFrame>,
            none: Object,
        }

        impl PythonApi {
            fn find(library: *mut c_void) -> Option<Self> {
                // SAFETY: functions of these names have these types in every CPython since 3.8.
                unsafe {
                    Some(Self {
                        $($name: std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn($($type),*) $(-> $result)?>>(
                            symbol(library, concat!(stringify!($name), "\0"))
                        )?,)*
                        $($optional: std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn($($optional_type),*) $(-> $optional_result)?>>(
                            symbol(library, concat!(stringify!($optional), "\0"))
                        ),)*
                        $($kind: symbol(library, concat!(stringify!($kind), "\0")),)*
                        _PyEval_EvalFrameDefault: std::mem::transmute::<*mut c_void, Option<EvaluateFrame>>(
                            symbol(library, "_PyEval_EvalFrameDefault\0")
                        ),
                        none: Some(symbol(library, "_Py_NoneStruct\0")).filter(|none| !none.is_null())?,
                    })
                }
            }
        }
    };
}

functions! {
    required {
        fn Py_IsInitialized() -> c_int;
        fn Py_GetVersion() -> *const c_char;
        fn Py_AddPendingCall(unsafe extern "C" fn(*mut c_void) -> c_int, *mut c_void) -> c_int;
        fn Py_IncRef(Object);
        fn Py_DecRef(Object);
        fn PyErr_Clear();
        fn PyErr_Occurred() -> Object;
        fn PyErr_Fetch(*mut Object, *mut Object, *mut Object);
        fn PyErr_Restore(Object, Object, Object);
        fn PyImport_ImportModule(*const c_char) -> Object;
        fn PyImport_GetModuleDict() -> Object;
        fn PyObject_GetAttr(Object, Object) -> Object;
        fn PyObject_GetAttrString(Object, *const c_char) -> Object;
        fn PyObject_Call(Object, Object, Object) -> Object;
        fn PyUnicode_InternFromString(*const c_char) -> Object;
        fn PyUnicode_FromString(*const c_char) -> Object;
        fn PyUnicode_AsUTF8AndSize(Object, *mut isize) -> *const c_char;
        fn PyLong_FromLong(c_long) -> Object;
        fn PyLong_AsLong(Object) -> c_long;
        fn PyTuple_New(isize) -> Object;
        fn PyTuple_SetItem(Object, isize, Object) -> c_int;
        fn PyDict_New() -> Object;
        fn PyDict_Size(Object) -> isize;
        fn PyDict_GetItemWithError(Object, Object) -> Object;
        fn PyDict_Next(Object, *mut isize, *mut Object, *mut Object) -> c_int;
        fn PyDict_SetItemString(Object, *const c_char, Object) -> c_int;
        fn PyList_Append(Object, Object) -> c_int;
        fn PySequence_Size(Object) -> isize;
        fn PySequence_GetItem(Object, isize) -> Object;
        fn PyCapsule_New(*mut c_void, *const c_char, Option<unsafe extern "C" fn(Object)>) -> Object;
        fn PyCapsule_GetPointer(Object, *const c_char) -> *mut c_void;
        fn PyCFunction_NewEx(*const MethodDef, Object, Object) -> Object;
        fn PyEval_GetFrame() -> Object;
        fn PyFrame_GetLineNumber(Object) -> c_int;
        fn PyInterpreterState_GetID(*mut c_void) -> c_longlong;
        fn PyInterpreterState_GetDict(*mut c_void) -> Object;
        fn PyObject_Type(Object) -> Object;
    }
    optional {
        // 3.9
        fn PyInterpreterState_Get() -> *mut c_void;
        fn PyFrame_GetCode(Object) -> Object;
        fn PyFrame_GetBack(Object) -> Object;
        fn _PyInterpreterState_GetEvalFrameFunc(Object) -> EvaluateFrame;
        fn _PyInterpreterState_SetEvalFrameFunc(Object, EvaluateFrame);
        // 3.8
        fn _PyInterpreterState_Get() -> *mut c_void;
        // Up to 3.12, and from 3.13 on.
        fn _PyThreadState_UncheckedGet() -> *mut c_void;
        fn PyThreadState_GetUnchecked() -> *mut c_void;
        // 3.11
        fn PyFrame_GetLasti(Object) -> c_int;
        fn PyFrame_GetGlobals(Object) -> Object;
        // 3.12
        fn PyFrame_GetVarString(Object, *const c_char) -> Object;
        // All versions.
        fn PyThreadState_Get() -> *mut c_void;
        fn PyCode_Addr2Line(Object, c_int) -> c_int;
        fn PyGILState_Check() -> c_int;
        fn PyGILState_GetThisThreadState() -> *mut c_void;
        fn PyType_GenericAlloc(Object, isize) -> Object;
        fn PyObject_GC_Del(*mut c_void);
        fn PyMem_GetAllocator(c_int, *mut MemAllocator);
        fn PyMem_SetAllocator(c_int, *const MemAllocator);
        fn _PyType_Lookup(Object, Object) -> Object;
        fn PyObject_GC_Track(Object);
        fn PyObject_GC_UnTrack(Object);
        fn PyWeakref_NewRef(Object, Object) -> Object;
        fn PyFunction_GetCode(Object) -> Object;
        fn PyMethod_New(Object, Object) -> Object;
        fn PyMethod_Function(Object) -> Object;
        fn PyMethod_Self(Object) -> Object;
        fn PyList_New(isize) -> Object;
        // 3.11
        fn PyType_GetQualName(Object) -> Object;
        // 3.12
        fn PyGen_GetCode(Object) -> Object;
        fn PyCode_AddWatcher(unsafe extern "C" fn(c_int, Object) -> c_int) -> c_int;
        fn PyUnstable_GC_VisitObjects(unsafe extern "C" fn(Object, *mut c_void) -> c_int, *mut c_void);
    }
    types {
        PyFunction_Type
        PyCFunction_Type
        PyMethod_Type
        PyCell_Type
        PyFrame_Type
        PyTraceBack_Type
        PyGen_Type
        PyCoro_Type
        PyAsyncGen_Type
        PyDict_Type
        PyList_Type
        PyLong_Type
        PyTuple_Type
        PyFloat_Type
    }
}

// SAFETY: addresses of functions, of types that live for ever, and of None; None is only handed out.
unsafe impl Send for PythonApi {}
// SAFETY: as above.
unsafe impl Sync for PythonApi {}

static API: OnceLock<PythonApi> = OnceLock::new();

/// The address of a symbol, given as a NUL-terminated name; null if there is none.
fn symbol(library: *mut c_void, name: &str) -> *mut c_void {
    // SAFETY: the name ends in a zero, the library is a handle of dlopen or RTLD_DEFAULT.
    unsafe { libc::dlsym(library, name.as_ptr().cast()) }
}

/// Resolves a CPython in a library or (`RTLD_DEFAULT`) in everything visible to the program; `None`
/// if there is none, or if it lacks a required function.
pub(crate) fn find(library: *mut c_void) -> Option<&'static PythonApi> {
    if let Some(known) = API.get() {
        return Some(known);
    }
    if symbol(library, "Py_IsInitialized\0").is_null() {
        return None;
    }
    let _ = API.set(PythonApi::find(library)?);
    API.get()
}

/// The CPython that was found.
#[inline]
pub(crate) fn api() -> Option<&'static PythonApi> {
    API.get()
}

/// Whether CPython knows the calling thread. Needs no lock.
pub(crate) fn knows_this_thread() -> bool {
    let Some(api) = api() else { return false };
    let Some(state) = api.PyGILState_GetThisThreadState else { return false };
    // SAFETY: may be called at any time by any thread.
    !unsafe { state() }.is_null()
}

impl PythonApi {
    /// None, as a new reference.
    pub(crate) fn none(&self) -> Object {
        // SAFETY: needs the lock; callbacks have it.
        unsafe { (self.Py_IncRef)(self.none) };
        self.none
    }

    /// Whether an object is None.
    pub(crate) fn is_none(&self, object: Object) -> bool {
        object == self.none
    }

    /// Result of `Py_GetVersion`.
    pub(crate) fn version(&self) -> &'static CStr {
        // SAFETY: a static text, at any time.
        unsafe { CStr::from_ptr((self.Py_GetVersion)()) }
    }

    /// The second number of its version; `None` if it is not 3.x.
    pub(crate) fn minor(&self) -> Option<u8> {
        let rest = self.version().to_str().ok()?.strip_prefix("3.")?;
        rest.split_once('.')?.0.parse().ok()
    }

    /// Whether it is a free-threaded build.
    pub(crate) fn is_free_threaded(&self) -> bool {
        let marker = b"free-threading";
        let version = self.version().to_bytes();
        version.windows(marker.len()).any(|part| part == marker)
    }

    /// The interpreter that the calling thread runs; the thread holds its lock.
    pub(crate) fn current_interpreter(&self) -> *mut c_void {
        match self.PyInterpreterState_Get.or(self._PyInterpreterState_Get) {
            // SAFETY: the lock is held.
            Some(get) => unsafe { get() },
            None => NULL,
        }
    }

    /// The address of the interpreter that the calling thread has locked; `None` if it holds no such lock.
    pub(crate) fn running_interpreter(&self) -> Option<usize> {
        let state = self.PyThreadState_GetUnchecked.or(self._PyThreadState_UncheckedGet)?;
        let has_lock = self.PyGILState_Check?;
        // SAFETY: both may be called at any time by any thread.
        let is_running = unsafe { !state().is_null() && has_lock() != 0 };
        if is_running { Some(self.current_interpreter().addr()) } else { None }
    }

    /// Whether the calling thread runs the main interpreter, with its lock. Certain also in a thread
    /// that CPython does not know.
    pub(crate) fn runs_main_interpreter(&self) -> bool {
        let current = self.PyThreadState_GetUnchecked.or(self._PyThreadState_UncheckedGet);
        let (Some(this_thread), Some(current)) = (self.PyGILState_GetThisThreadState, current)
        else {
            return false;
        };
        // SAFETY: both may be called at any time by any thread. In 3.8 to 3.11 the second is the state
        // of whichever thread has the lock.
        let has_lock = unsafe { !this_thread().is_null() && this_thread() == current() };
        has_lock && self.interpreter_id() == 0
    }

    /// Its id.
    pub(crate) fn interpreter_id(&self) -> i64 {
        let interpreter = self.current_interpreter();
        if interpreter.is_null() {
            return 0;
        }
        // SAFETY: the lock is held.
        let id = unsafe { (self.PyInterpreterState_GetID)(interpreter) };
        if id < 0 {
            // SAFETY: as above; the call has set an exception.
            unsafe { (self.PyErr_Clear)() };
        }
        id
    }

    /// The dictionary for per-interpreter data of extensions; null if unavailable.
    pub(crate) fn interpreter_dictionary(&self) -> Object {
        let interpreter = self.current_interpreter();
        if interpreter.is_null() {
            return NULL;
        }
        // SAFETY: the lock is held; sets no exception.
        unsafe { (self.PyInterpreterState_GetDict)(interpreter) }
    }
}
