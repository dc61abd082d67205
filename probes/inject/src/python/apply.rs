//! Settings of the collector, applied in the program at its steps: `gctrace apply`.
//!
//! Owns the agent, Python source that runs in the main interpreter before any user code, and the
//! sums of collections that it reads. The sums are written by a C function: Python code in
//! `gc.callbacks` would run the program's signal handlers where their exceptions are lost.

use super::api::{MethodDef, NULL, Object, PythonApi, api};
use super::interpreter::method;
use super::object::{OwnedRef, number};
use crate::process_ring::{is_off, now_ns};
use crate::recording::guarded;
use gctrace_ring::StepMarker;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};

/// The agent's files, run in this order in one namespace.
const SOURCES: [(&CStr, &str); 3] = [
    (c"<gctrace settings.py>", concat!(include_str!("../apply/settings.py"), "\0")),
    (c"<gctrace report.py>", concat!(include_str!("../apply/report.py"), "\0")),
    (c"<gctrace agent.py>", concat!(include_str!("../apply/agent.py"), "\0")),
];

/// `Py_file_input`.
const WHOLE_FILE: c_int = 257;

/// `__name__` in the agent's namespace.
const NAMESPACE: &CStr = c"gctrace_apply";

/// Time between two calls of the agent's `idle` in ns, at least.
const IDLE_EVERY_NS: u64 = 1_000_000_000;

/// Whether `GCTRACE_APPLY` is set.
static IS_REQUESTED: AtomicBool = AtomicBool::new(false);

/// The agent of the main interpreter: null if there is none. Never freed.
static AGENT: AtomicPtr<Agent> = AtomicPtr::new(std::ptr::null_mut());

/// The agent's functions.
struct Agent {
    step: Object,
    idle: Object,
}

/// Collections of the main interpreter in this process, and of its ancestors by fork before.
struct Sums {
    /// Collections, cyclic garbage in objects and time in ns, of each generation.
    of_generations: [[AtomicU64; 3]; 3],
    /// The longest collection in ns since it was last reset.
    longest_ns: AtomicU64,
    /// Start of the running collection, CLOCK_MONOTONIC in ns.
    start_ns: AtomicU64,
    /// When `idle` was last asked for.
    idle_ns: AtomicU64,
}

static SUMS: Sums = Sums {
    of_generations: [const { [const { AtomicU64::new(0) }; 3] }; 3],
    longest_ns: AtomicU64::new(0),
    start_ns: AtomicU64::new(0),
    idle_ns: AtomicU64::new(0),
};

static COLLECTION: MethodDef = method(c"gctrace_apply", collection);
static TOTALS: MethodDef = method(c"gctrace_totals", totals);

/// Has interpreters that start run the agent.
pub(crate) fn request() {
    IS_REQUESTED.store(true, Relaxed);
}

/// Whether the agent runs in this process.
#[inline]
pub(super) fn is_active() -> bool {
    !AGENT.load(Relaxed).is_null()
}

/// Starts the agent in the interpreter that the calling thread runs, if that is the main one.
pub(super) fn install(api: &'static PythonApi) {
    if IS_REQUESTED.load(Relaxed) && api.interpreter_id() == 0 {
        start(api);
    }
}

fn start(api: &'static PythonApi) -> Option<()> {
    // SAFETY: the lock is held; names and methods are static.
    let make =
        |function| unsafe { OwnedRef::new(api, (api.PyCFunction_NewEx)(function, NULL, NULL)) };
    let (entry, native) = (make(&raw const COLLECTION)?, make(&raw const TOTALS)?);
    let callbacks = OwnedRef::import(api, c"gc")?.attribute(c"callbacks")?;
    // SAFETY: the lock is held, objects are alive.
    unsafe {
        if (api.PyList_Append)(callbacks.object(), entry.object()) != 0 {
            (api.PyErr_Clear)();
            return None;
        }
    }
    let namespace = namespace(api)?;
    for (name, source) in SOURCES {
        execute(api, name, source, &namespace)?;
    }
    let begin = namespace.value(&OwnedRef::interned(api, c"begin")?)?;
    let functions = begin.call(Some(&native))?;
    let mut functions = functions.items();
    let agent = Agent { step: functions.next()?.release(), idle: functions.next()?.release() };
    AGENT.store(Box::into_raw(Box::new(agent)), Relaxed);
    Some(())
}

/// A namespace for a module's code.
fn namespace(api: &'static PythonApi) -> Option<OwnedRef> {
    let builtins = OwnedRef::import(api, c"builtins")?;
    let name = OwnedRef::interned(api, NAMESPACE)?;
    // SAFETY: the lock is held, objects are alive.
    unsafe {
        let namespace = OwnedRef::new(api, (api.PyDict_New)())?;
        for (key, value) in [(c"__builtins__", &builtins), (c"__name__", &name)] {
            if (api.PyDict_SetItemString)(namespace.object(), key.as_ptr(), value.object()) != 0 {
                (api.PyErr_Clear)();
                return None;
            }
        }
        Some(namespace)
    }
}

/// Runs a source, which ends in a zero.
fn execute(
    api: &'static PythonApi,
    name: &CStr,
    source: &str,
    namespace: &OwnedRef,
) -> Option<OwnedRef> {
    let (source, namespace) = (source.as_ptr().cast(), namespace.object());
    // SAFETY: the lock is held; C strings, and a dictionary.
    unsafe {
        let code = (api.Py_CompileString)(source, name.as_ptr(), WHOLE_FILE);
        let code = OwnedRef::new(api, code)?;
        let result = (api.PyEval_EvalCode)(code.object(), namespace, namespace);
        OwnedRef::new(api, result)
    }
}

/// The name of a marker in the agent.
fn marker_name(marker: StepMarker) -> &'static CStr {
    match marker {
        StepMarker::Function => c"function",
        StepMarker::Optimizer => c"optimizer",
        StepMarker::Backward => c"backward",
        StepMarker::DataLoader => c"dataloader",
    }
}

/// Passes a mark of a step to the agent, if there is one. The interpreter's lock is held, and no
/// exception is set before or after: those of the program's signal handlers are raised soon after.
pub(super) fn step(api: &'static PythonApi, marker: StepMarker) {
    let agent = AGENT.load(Relaxed);
    if agent.is_null() || is_off() || api.interpreter_id() != 0 {
        return;
    }
    // SAFETY: never freed.
    let step = unsafe { OwnedRef::share(api, (*agent).step) };
    if let Some(name) = OwnedRef::interned(api, marker_name(marker))
        && let Some(arguments) = tuple(api, [name])
    {
        // SAFETY: the lock is held, objects are alive.
        unsafe {
            let result = (api.PyObject_Call)(step.object(), arguments.object(), NULL);
            match result.is_null() {
                true => raise_later(api),
                false => (api.Py_DecRef)(result),
            }
        }
    }
}

/// The same on a thread without the lock: the main thread passes it on.
pub(super) fn step_without_lock(marker: StepMarker) {
    if is_active()
        && let Some(api) = api()
    {
        let marker = std::ptr::without_provenance_mut(marker as usize);
        // SAFETY: may be called by any thread.
        unsafe { (api.Py_AddPendingCall)(passed_on, marker) };
    }
}

/// Runs in the main thread.
unsafe extern "C" fn passed_on(marker: *mut c_void) -> c_int {
    guarded(|| {
        let all = [
            StepMarker::Function,
            StepMarker::Optimizer,
            StepMarker::Backward,
            StepMarker::DataLoader,
        ];
        let marker = all.into_iter().find(|one| *one as usize == marker.addr());
        if let (Some(api), Some(marker)) = (api(), marker) {
            step(api, marker);
        }
    });
    0
}

fn tuple<const N: usize>(api: &'static PythonApi, items: [OwnedRef; N]) -> Option<OwnedRef> {
    // SAFETY: the lock is held; SetItem takes over a reference.
    unsafe {
        let tuple = OwnedRef::new(api, (api.PyTuple_New)(items.len().cast_signed()))?;
        for (index, item) in (0..).zip(items) {
            (api.PyTuple_SetItem)(tuple.object(), index, item.release());
        }
        Some(tuple)
    }
}

/// Moves the exception that is set to where Python code of the main thread runs next.
unsafe fn raise_later(api: &'static PythonApi) {
    let mut exception = Box::new((NULL, NULL, NULL));
    let (kind, value, trace) = &mut *exception;
    // SAFETY: the lock is held; `raise` frees what it is passed.
    unsafe {
        (api.PyErr_Fetch)(kind, value, trace);
        let exception = Box::into_raw(exception);
        if (api.Py_AddPendingCall)(raise, exception.cast()) != 0 {
            drop(Box::from_raw(exception));
        }
    }
}

/// Raises an exception in the main thread.
unsafe extern "C" fn raise(exception: *mut c_void) -> c_int {
    guarded(|| {
        if let Some(api) = api() {
            // SAFETY: as `raise_later` passed it; the lock is held.
            unsafe {
                let exception = Box::from_raw(exception.cast::<(Object, Object, Object)>());
                (api.PyErr_Restore)(exception.0, exception.1, exception.2);
            }
        }
    });
    -1
}

/// `gctrace_apply(phase, info)`, the entry in `gc.callbacks`.
unsafe extern "C" fn collection(_own: Object, arguments: *const Object, count: isize) -> Object {
    let Some(api) = api() else { return NULL };
    guarded(|| {
        // SAFETY: the lock is held; the arguments number `count`.
        unsafe {
            if count == 2 && !is_off() {
                SUMS.called(api, *arguments, *arguments.add(1));
            }
        }
    });
    api.none()
}

impl Sums {
    /// # Safety
    /// The lock is held, the objects are alive.
    unsafe fn called(&self, api: &'static PythonApi, phase: Object, info: Object) -> Option<()> {
        let now_ns = now_ns();
        // SAFETY: as the caller promises.
        let (phase, info) = unsafe { (OwnedRef::share(api, phase), OwnedRef::share(api, info)) };
        // SAFETY: may be called at any time. Not so late that modules are gone.
        let is_up = unsafe { (api.Py_IsInitialized)() } != 0;
        if phase.text()? != "stop" {
            if is_up {
                super::steps::look(api);
            }
            self.start_ns.store(crate::process_ring::now_ns(), Relaxed);
            return None;
        }
        let pause_ns = now_ns.saturating_sub(self.start_ns.load(Relaxed));
        let entry = |key| info.value(&OwnedRef::interned(api, key)?)?.number();
        let generation = usize::try_from(entry(c"generation")?).ok()?;
        let garbage = u64::try_from(entry(c"collected")?).ok()?;
        for (sums, value) in self.of_generations.iter().zip([1, garbage, pause_ns]) {
            sums.get(generation)?.fetch_add(value, Relaxed);
        }
        self.longest_ns.fetch_max(pause_ns, Relaxed);
        if is_up && now_ns.saturating_sub(self.idle_ns.load(Relaxed)) > IDLE_EVERY_NS {
            self.idle_ns.store(now_ns, Relaxed);
            // SAFETY: may be called by any thread.
            unsafe { (api.Py_AddPendingCall)(idle, NULL) };
        }
        Some(())
    }
}

/// Has the agent do what is due; an exception is one of the program's signal handlers.
unsafe extern "C" fn idle(_argument: *mut c_void) -> c_int {
    let result = guarded(|| {
        let agent = AGENT.load(Relaxed);
        let api = api()?;
        // SAFETY: may be called at any time.
        if agent.is_null() || is_off() || unsafe { (api.Py_IsInitialized)() } == 0 {
            return None;
        }
        let arguments = tuple(api, [])?;
        // SAFETY: the lock is held; the agent is never freed.
        unsafe {
            let result = (api.PyObject_Call)((*agent).idle, arguments.object(), NULL);
            if result.is_null() {
                return Some(-1);
            }
            (api.Py_DecRef)(result);
        }
        None
    });
    result.flatten().unwrap_or(0)
}

/// `gctrace_totals(reset)`: see agent.py.
unsafe extern "C" fn totals(_own: Object, arguments: *const Object, count: isize) -> Object {
    let Some(api) = api() else { return NULL };
    let made = guarded(|| {
        // SAFETY: the lock is held; the arguments number `count`.
        let resets = count == 1 && unsafe { number(api, *arguments) } == Some(1);
        let longest_ns = match resets {
            true => SUMS.longest_ns.swap(0, Relaxed),
            false => SUMS.longest_ns.load(Relaxed),
        };
        let sums = SUMS.of_generations.iter().flatten();
        let values = sums.map(|sum| sum.load(Relaxed)).chain([longest_ns]);
        // SAFETY: as above; SetItem takes over a reference, also to null.
        unsafe {
            let tuple = (api.PyTuple_New)(10);
            if !tuple.is_null() {
                for (index, value) in (0..).zip(values) {
                    let value = (api.PyLong_FromUnsignedLongLong)(value);
                    if value.is_null() {
                        (api.Py_DecRef)(tuple);
                        return NULL;
                    }
                    (api.PyTuple_SetItem)(tuple, index, value);
                }
            }
            tuple
        }
    });
    made.unwrap_or_else(|| api.none())
}
