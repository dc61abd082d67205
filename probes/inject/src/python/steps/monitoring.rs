//! Calls of Python functions, by `sys.monitoring` (3.12 and later): of the function that the user
//! named, and of the `__next__` of torch's `DataLoader`.
//!
//! For the first, the start of every code object is an event once; then it is disabled for all
//! others. For the second, only its own code object has events.

use super::function;
use crate::python::api::{MethodDef, NULL, Object, PythonApi, api};
use crate::python::apply;
use crate::python::interpreter::method;
use crate::python::object::OwnedRef;
use crate::recording::{expected, guarded};
use gctrace_ring::StepMarker;
use std::ffi::c_void;
use std::sync::atomic::{AtomicI64, AtomicPtr, Ordering};

static STARTED: MethodDef = method(c"gctrace_started", started);

/// Ids of tools, in the order in which they are tried: the documentation gives 0, 1, 2 and 5 to
/// debuggers, coverage, profilers and optimizers.
const TOOLS: [i64; 6] = [3, 4, 5, 2, 0, 1];

/// The main interpreter's tool; -1: none is taken.
static MAIN_TOOL: AtomicI64 = AtomicI64::new(-1);

/// `sys.monitoring.DISABLE`: one object for all interpreters.
static DISABLE: AtomicPtr<c_void> = AtomicPtr::new(NULL);

/// The code object of `_BaseDataLoaderIter.__next__`, which is never released.
static DATA_LOADER: AtomicPtr<c_void> = AtomicPtr::new(NULL);

/// A tool that is ours, in one interpreter.
struct MonitoringTool {
    monitoring: OwnedRef,
    id: OwnedRef,
    /// `events.PY_START`.
    start: OwnedRef,
}

/// Watches the calls of the function; `Err`: why not.
pub(super) fn watch_function(api: &'static PythonApi) -> Result<(), &'static str> {
    let tool = MonitoringTool::take(api)?;
    let set = tool.monitoring.attribute(c"set_events");
    let is_set = set.and_then(|set| set.call_all(&[&tool.id, &tool.start]));
    is_set.map(drop).ok_or("sys.monitoring.set_events failed")
}

/// Watches the calls of the iterator's `__next__`.
pub(super) fn watch_data_loader(api: &'static PythonApi, modules: &[OwnedRef]) -> Option<()> {
    let [module] = modules else { return None };
    let iterator = module.attribute(c"_BaseDataLoaderIter")?;
    let code = iterator.attribute(c"__next__")?.attribute(c"__code__")?;
    let tool = MonitoringTool::take(api).ok()?;
    let set = tool.monitoring.attribute(c"set_local_events")?;
    DATA_LOADER.store(code.object(), Ordering::Relaxed);
    set.call_all(&[&tool.id, &code, &tool.start])?;
    code.release();
    Some(())
}

impl MonitoringTool {
    /// Takes a free tool of the interpreter and sets our callback.
    fn take(api: &'static PythonApi) -> Result<Self, &'static str> {
        let sys = OwnedRef::import(api, c"sys").ok_or("there is no module sys")?;
        let monitoring = sys.attribute(c"monitoring");
        let monitoring = monitoring.ok_or("it needs CPython 3.12 or later (sys.monitoring)")?;
        let is_main = api.interpreter_id() == 0;
        let known = is_main.then(|| MAIN_TOOL.load(Ordering::Relaxed));
        let tool = match known.filter(|id| *id >= 0) {
            Some(id) => Self::of(api, monitoring, id),
            None => Self::free(api, monitoring),
        };
        let tool = tool.ok_or("all tool ids of sys.monitoring are in use")?;
        if let Some(id) = tool.id.number().filter(|_| is_main) {
            MAIN_TOOL.store(id, Ordering::Relaxed);
        }
        tool.listen(api).ok_or("sys.monitoring rejects the callback")?;
        Ok(tool)
    }

    fn of(api: &'static PythonApi, monitoring: OwnedRef, id: i64) -> Option<Self> {
        let start = monitoring.attribute(c"events")?.attribute(c"PY_START")?;
        Some(Self { id: OwnedRef::integer(api, id)?, monitoring, start })
    }

    /// The first free one, which is ours from now on.
    fn free(api: &'static PythonApi, monitoring: OwnedRef) -> Option<Self> {
        let get = monitoring.attribute(c"get_tool")?;
        let ids = TOOLS.into_iter().filter_map(|id| OwnedRef::integer(api, id));
        let is_free = |id: &OwnedRef| get.call(Some(id)).is_some_and(|tool| tool.is_none());
        let id = ids.into_iter().find(is_free)?;
        let name = OwnedRef::interned(api, c"gctrace")?;
        monitoring.attribute(c"use_tool_id")?.call_all(&[&id, &name])?;
        Self::of(api, monitoring, id.number()?)
    }

    fn listen(&self, api: &'static PythonApi) -> Option<()> {
        // SAFETY: the lock is held; the method is static.
        let callback =
            unsafe { OwnedRef::new(api, (api.PyCFunction_NewEx)(&raw const STARTED, NULL, NULL)) }?;
        let disable = self.monitoring.attribute(c"DISABLE")?;
        DISABLE.store(disable.release(), Ordering::Relaxed);
        let register = self.monitoring.attribute(c"register_callback")?;
        register.call_all(&[&self.id, &self.start, &callback]).map(drop)
    }
}

/// `callback(code, offset)`: a code object starts.
unsafe extern "C" fn started(_: Object, arguments: *const Object, count: isize) -> Object {
    // The function was created by it.
    let Some(api) = expected(api()) else {
        return NULL;
    };
    let marked = guarded(|| {
        if count < 1 || !super::are_wanted() {
            return None;
        }
        // SAFETY: called by the interpreter, with its lock and this many arguments.
        let code = unsafe { OwnedRef::share(api, *arguments) };
        if code.object() == DATA_LOADER.load(Ordering::Relaxed) {
            let class = class_of_self(api);
            let class = class.as_ref().and_then(OwnedRef::text).unwrap_or_default();
            super::write(StepMarker::DataLoader, class);
            return Some(StepMarker::DataLoader);
        }
        let named = function::named().and_then(|named| named.qualified_name(&code));
        super::write(StepMarker::Function, &named?);
        Some(StepMarker::Function)
    });
    if let Some(marker) = marked.flatten() {
        apply::step(api, marker);
        return api.none();
    }
    let disable = DISABLE.load(Ordering::Relaxed);
    if disable.is_null() {
        return api.none();
    }
    // SAFETY: the lock is held; our reference to the object is never released.
    unsafe { (api.Py_IncRef)(disable) };
    disable
}

/// Name of the class of the running function's `self`.
fn class_of_self(api: &'static PythonApi) -> Option<OwnedRef> {
    // SAFETY: the lock is held; the frame that starts is the current one, and borrowed.
    unsafe {
        let get = api.PyFrame_GetVarString?;
        let frame = (api.PyEval_GetFrame)();
        if frame.is_null() {
            return None;
        }
        OwnedRef::new(api, get(frame, c"self".as_ptr()))?.class_name()
    }
}
