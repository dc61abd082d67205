//! Calls of Python functions, by `sys.monitoring` (3.12 and later): of the function that the user
//! named, and of the `__next__` of torch's `DataLoader`.
//!
//! Only their own code objects have events. Events of all code, disabled at its first start, would be
//! simpler, but in 3.12 each code object that was instrumented once has lost its superinstructions
//! (`LOAD_FAST__LOAD_FAST`): loops take 2 % more instructions for the rest of the run. So the named
//! function is found as its code object is made (`PyCode_AddWatcher`).

use super::function;
use crate::python::api::{MethodDef, NULL, Object, PythonApi, api};
use crate::python::interpreter::method;
use crate::python::object::OwnedRef;
use crate::python::{apply, empty_cache, layers};
use crate::recording::{expected, guarded};
use gctrace_ring::StepMarker;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

static STARTED: MethodDef = method(c"gctrace_started", started);
static RETURNED: MethodDef = method(c"gctrace_returned", returned);

/// Ids of tools, in the order of trying: the documentation gives 0, 1, 2 and 5 to debuggers, coverage, profilers and
/// optimizers.
const TOOLS: [i64; 6] = [3, 4, 5, 2, 0, 1];

/// Name of our tool in each interpreter.
const TOOL_NAME: &CStr = c"gctrace";

/// The code object of `_BaseDataLoaderIter.__next__`, never released.
static DATA_LOADER: AtomicPtr<c_void> = AtomicPtr::new(NULL);

/// A tool that is ours, in one interpreter.
struct MonitoringTool {
    monitoring: OwnedRef,
    id: OwnedRef,
    /// `events.PY_START` and `events.PY_RETURN`.
    start: OwnedRef,
    end: OwnedRef,
}

/// Watches the calls of the functions of the name that are made from now on; `Err`: why not.
pub(super) fn watch_function(api: &'static PythonApi) -> Result<(), &'static str> {
    MonitoringTool::take(api)?;
    let add = api.PyCode_AddWatcher.ok_or("there is no PyCode_AddWatcher")?;
    // SAFETY: the lock is held; the function is static.
    if unsafe { add(code_event) } < 0 {
        // SAFETY: as above.
        unsafe { (api.PyErr_Clear)() };
        return Err("all watchers of code objects are in use");
    }
    Ok(())
}

/// `PyCode_WatchCallback`: a code object was made, or is about to go. The interpreter's lock is held.
unsafe extern "C" fn code_event(event: c_int, code: Object) -> c_int {
    /// `PY_CODE_EVENT_CREATE` (Include/cpython/code.h, 3.12 to 3.15).
    const CREATED: c_int = 0;
    if event == CREATED
        && let Some(api) = api()
    {
        guarded(|| {
            // SAFETY: the lock is held, the object alive.
            let code = unsafe { OwnedRef::share(api, code) };
            function::named()?.qualified_name(&code)?;
            let tool = MonitoringTool::ours(api)?;
            tool.watch(&code, &tool.start)
        });
    }
    0
}

/// Watches the calls of the iterator's `__next__`.
pub(super) fn watch_data_loader(api: &'static PythonApi, modules: &[OwnedRef]) -> Option<()> {
    let [module] = modules else { return None };
    let iterator = module.attribute(c"_BaseDataLoaderIter")?;
    let code = iterator.attribute(c"__next__")?.attribute(c"__code__")?;
    let tool = MonitoringTool::take(api).ok()?;
    DATA_LOADER.store(code.object(), Ordering::Relaxed);
    // That it raises is no event of a single code object.
    let both = OwnedRef::integer(api, tool.start.number()? | tool.end.number()?)?;
    tool.watch(&code, &both)?;
    code.release();
    Some(())
}

/// The interpreter is gone, and its code.
pub(super) fn forget() {
    DATA_LOADER.store(NULL, Ordering::Relaxed);
}

impl MonitoringTool {
    /// Ours in this interpreter, or a free tool with our callback.
    fn take(api: &'static PythonApi) -> Result<Self, &'static str> {
        if let Some(tool) = Self::ours(api) {
            return Ok(tool);
        }
        let sys = OwnedRef::import(api, c"sys").ok_or("there is no module sys")?;
        let monitoring = sys.attribute(c"monitoring");
        let monitoring = monitoring.ok_or("it needs CPython 3.12 or later (sys.monitoring)")?;
        let tool = Self::find(api, monitoring, |tool| tool.is_none());
        let tool = tool.ok_or("all tool ids of sys.monitoring are in use")?;
        tool.begin(api).ok_or("sys.monitoring rejects the tool")?;
        Ok(tool)
    }

    /// The tool taken before in this interpreter.
    fn ours(api: &'static PythonApi) -> Option<Self> {
        let monitoring = OwnedRef::import(api, c"sys")?.attribute(c"monitoring")?;
        Self::find(api, monitoring, |tool| tool.text() == TOOL_NAME.to_str().ok())
    }

    /// The first id with a wanted tool name.
    fn find(
        api: &'static PythonApi,
        monitoring: OwnedRef,
        is_wanted: fn(&OwnedRef) -> bool,
    ) -> Option<Self> {
        let get = monitoring.attribute(c"get_tool")?;
        let mut ids = TOOLS.into_iter().filter_map(|id| OwnedRef::integer(api, id));
        let id = ids.find(|id| get.call(Some(id)).as_ref().is_some_and(is_wanted))?;
        let events = monitoring.attribute(c"events")?;
        let (start, end) = (events.attribute(c"PY_START")?, events.attribute(c"PY_RETURN")?);
        Some(Self { monitoring, id, start, end })
    }

    fn begin(&self, api: &'static PythonApi) -> Option<()> {
        let name = OwnedRef::interned(api, TOOL_NAME)?;
        self.monitoring.attribute(c"use_tool_id")?.call_all(&[&self.id, &name])?;
        let register = self.monitoring.attribute(c"register_callback")?;
        for (event, method) in [(&self.start, &raw const STARTED), (&self.end, &raw const RETURNED)]
        {
            // SAFETY: the lock is held; the method is static.
            let callback =
                unsafe { OwnedRef::new(api, (api.PyCFunction_NewEx)(method, NULL, NULL)) }?;
            register.call_all(&[&self.id, event, &callback])?;
        }
        Some(())
    }

    /// Has these events of a code object reported.
    fn watch(&self, code: &OwnedRef, events: &OwnedRef) -> Option<()> {
        let set = self.monitoring.attribute(c"set_local_events")?;
        set.call_all(&[&self.id, code, events]).map(drop)
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
            super::batch_begins(class);
            return Some(StepMarker::DataLoader);
        }
        empty_cache::look();
        let named = function::named()?;
        // No other code has events.
        if super::are_recorded() {
            super::write(StepMarker::Function, &named.qualified_name(&code)?);
        }
        Some(StepMarker::Function)
    });
    if let Some(marker) = marked.flatten() {
        apply::step(api, marker);
        if !layers::step(api, marker, None) {
            return NULL;
        }
    }
    api.none()
}

/// `callback(code, offset, value)`: a `DataLoader` returns a batch.
unsafe extern "C" fn returned(_: Object, _: *const Object, _: isize) -> Object {
    guarded(super::batch_ends);
    // The function was created by it.
    if let Some(api) = expected(api()) { api.none() } else { NULL }
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
