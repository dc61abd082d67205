//! Python code of the program that a collection calls: finalizers (`__del__`, callbacks of weak
//! references, generators that are closed) and the functions in `gc.callbacks`. How long each runs.
//!
//! From the first callback of a collection to the last, the interpreter's function that evaluates frames (PEP 523; 3.9
//! and later) is ours. It reads the clock before and after the real one. While the real function runs it is in place
//! again: only calls by C, the collector, are seen, and everything that it calls runs as without gctrace. Nothing is
//! watched where another tool has replaced the function (TorchDynamo, debuggers), with the JIT compiler of 3.14 and
//! later (it would discard its code), and in free-threaded builds (all threads would stop).

use super::api::{EvaluateFrame, NULL, Object, PythonApi, api};
use super::interpreter::{HookedInterpreter, InterpreterState};
use super::local_memory::address;
use super::object::OwnedRef;
use super::raw_frame::RawFrameLayout;
use crate::process_ring::{PythonRing, is_off, now_ns, tid};
use crate::recording::guarded;
use gctrace_ring::{PythonMessage, RingCalled};
use std::cell::RefCell;
use std::ffi::c_int;

/// Functions distinguished in one collection; the others are summed up without a name.
const MOST: usize = 8;

/// Calls of one code object.
#[derive(Clone, Copy)]
struct CodeCalls {
    /// Owned; null: of any.
    code: Object,
    is_callback: bool,
    /// Start of the first call.
    at_ns: u64,
    time_ns: u64,
    calls: u32,
}

/// Watches the calls of the thread's collection.
struct CallWatch {
    /// The interpreter that collects; null: nothing is watched.
    interpreter: Object,
    layout: Option<RawFrameLayout>,
    /// Code of the functions in `gc.callbacks`, not owned: the list has it.
    callbacks: [Object; MOST],
    /// How many of them follow our entry.
    following: usize,
    /// Calls of callbacks that are still to come; `None` before the end of the collection.
    awaited: Option<usize>,
    calls: [Option<CodeCalls>; MOST],
}

// Without a destructor: threads end in any order.
thread_local! {
    static WATCH: RefCell<CallWatch> = const {
        RefCell::new(CallWatch {
            interpreter: NULL,
            layout: None,
            callbacks: [NULL; MOST],
            following: 0,
            awaited: None,
            calls: [None; MOST],
        })
    };
}

/// A call that is running.
#[derive(Clone, Copy)]
struct RunningCall {
    code: Object,
    begun_ns: u64,
}

/// Whether frames can be watched in this interpreter.
pub(super) fn is_possible(api: &'static PythonApi) -> bool {
    let known = api._PyInterpreterState_SetEvalFrameFunc.is_some()
        && api._PyInterpreterState_GetEvalFrameFunc.is_some()
        && api._PyEval_EvalFrameDefault.is_some();
    known && !api.is_free_threaded() && !has_jit(api)
}

fn has_jit(api: &'static PythonApi) -> bool {
    if matches!(api.minor(), Some(..14)) {
        return false;
    }
    let enabled = || {
        let jit = OwnedRef::import(api, c"sys")?.attribute(c"_jit")?;
        jit.attribute(c"is_enabled")?.call(None)?.number()
    };
    enabled() != Some(0)
}

/// In place of the interpreter's own function.
unsafe extern "C-unwind" fn evaluate(thread: Object, frame: Object, thrown: c_int) -> Object {
    // Ours is only set where there is one.
    let Some(api) = api() else { return NULL };
    let Some(real) = api._PyEval_EvalFrameDefault else { return NULL };
    let call = guarded(|| enter(api, frame)).flatten();
    // SAFETY: called as the interpreter would have called it.
    let result = unsafe { real(thread, frame, thrown) };
    if let Some(call) = call {
        guarded(|| leave(api, call));
    }
    result
}

fn enter(api: &'static PythonApi, frame: Object) -> Option<RunningCall> {
    WATCH.with(|watch| {
        let mut watch = watch.try_borrow_mut().ok()?;
        // Another thread's frame, while a finalizer has released the lock.
        if watch.interpreter.is_null() {
            return None;
        }
        replace(api, watch.interpreter, ours(), real(api));
        let code = watch.code_of(api, frame);
        let is_callback = watch.callbacks.contains(&code) && !code.is_null();
        if is_off() || watch.awaited.is_some() && !is_callback {
            watch.interpreter = NULL;
            return None;
        }
        if !code.is_null() {
            // SAFETY: alive, its frame runs.
            unsafe { (api.Py_IncRef)(code) };
        }
        Some(RunningCall { code, begun_ns: now_ns() })
    })
}

fn leave(api: &'static PythonApi, call: RunningCall) {
    let ended_ns = now_ns();
    WATCH.with(|watch| {
        let Ok(mut watch) = watch.try_borrow_mut() else { return };
        let is_callback = watch.callbacks.contains(&call.code) && !call.code.is_null();
        watch.add(api, is_callback, call, gctrace_units::duration_ns(call.begun_ns, ended_ns));
        if watch.awaited == Some(1) {
            watch.interpreter = NULL;
        }
        watch.awaited = watch.awaited.map(|awaited| awaited.saturating_sub(1));
        replace(api, watch.interpreter, real(api), ours());
    });
}

fn ours() -> Option<EvaluateFrame> {
    Some(evaluate)
}

/// The interpreter's own.
fn real(api: &PythonApi) -> Option<EvaluateFrame> {
    api._PyEval_EvalFrameDefault
}

/// Has another function evaluate frames, unless the program or a tool has set a third one: that stays.
/// Whether it was replaced.
fn replace(
    api: &PythonApi,
    interpreter: Object,
    from: Option<EvaluateFrame>,
    to: Option<EvaluateFrame>,
) -> bool {
    let (Some(get), Some(set), Some(from), Some(to)) = (
        api._PyInterpreterState_GetEvalFrameFunc,
        api._PyInterpreterState_SetEvalFrameFunc,
        from,
        to,
    ) else {
        return false;
    };
    // SAFETY: the lock is held.
    let is_from = !interpreter.is_null() && unsafe { get(interpreter) } as usize == from as usize;
    if is_from {
        // SAFETY: as above.
        unsafe { set(interpreter, to) };
    }
    is_from
}

impl CallWatch {
    /// The code that a frame runs, not owned; null if unknown.
    fn code_of(&self, api: &'static PythonApi, frame: Object) -> Object {
        match (api.PyFrame_GetLasti, api.PyFrame_GetCode) {
            (Some(_), _) => self.layout.map_or(NULL, |layout| layout.code_of(address(frame))),
            // SAFETY: before 3.11 it is a frame object; the lock is held. It has another reference.
            (None, Some(get)) => unsafe {
                if let Some(code) = OwnedRef::new(api, get(frame)) { code.object() } else { NULL }
            },
            (None, None) => NULL,
        }
    }

    /// Takes over the call's reference to its code.
    fn add(&mut self, api: &PythonApi, is_callback: bool, call: RunningCall, time_ns: u64) {
        let is_place = |known: &Option<CodeCalls>| {
            known.is_none_or(|known| known.code == call.code && known.is_callback == is_callback)
        };
        let place = self.calls.iter().position(is_place).unwrap_or(MOST - 1);
        let Some(place) = self.calls.get_mut(place) else { return };
        let Some(known) = place else {
            let (code, at_ns) = (call.code, call.begun_ns);
            *place = Some(CodeCalls { code, is_callback, at_ns, time_ns, calls: 1 });
            return;
        };
        known.calls = known.calls.saturating_add(1);
        gctrace_units::add_to(&mut known.time_ns, time_ns);
        if known.code != call.code {
            // More functions than are told apart.
            release(api, std::mem::replace(&mut known.code, NULL));
        }
        release(api, call.code);
    }
}

fn release(api: &PythonApi, code: Object) {
    if !code.is_null() {
        // SAFETY: an owned reference; the lock is held.
        unsafe { (api.Py_DecRef)(code) };
    }
}

impl HookedInterpreter {
    /// A collection begins: watches its calls. The lock is held.
    pub(super) fn watch_calls(&self, state: &InterpreterState) {
        let (true, Some(live)) = (self.watches_calls, &state.live) else { return };
        WATCH.with(|watch| {
            let Ok(mut watch) = watch.try_borrow_mut() else { return };
            let interpreter = self.api.current_interpreter();
            if !replace(self.api, interpreter, real(self.api), ours()) {
                watch.interpreter = NULL;
                return;
            }
            watch.interpreter = interpreter;
            watch.layout = state.frames.layout();
            watch.awaited = None;
            watch.following = 0;
            watch.callbacks = [NULL; MOST];
            if live.callbacks.length() > 1 {
                let mut known = 0;
                for item in live.callbacks.items() {
                    if item.object() == live.entry {
                        watch.following = 0;
                    } else if let Some(code) = code_of_callable(self.api, &item)
                        && let Some(place) = watch.callbacks.get_mut(known)
                    {
                        *place = code;
                        known += 1;
                        watch.following += 1;
                    }
                }
            }
        });
    }

    /// The collection ended: only the callbacks after ours are still to come.
    pub(super) fn unwatch_calls(&self) {
        WATCH.with(|watch| {
            let Ok(mut watch) = watch.try_borrow_mut() else { return };
            if watch.interpreter.is_null() {
                return;
            }
            watch.awaited = Some(watch.following);
            if watch.following == 0 {
                replace(self.api, watch.interpreter, ours(), real(self.api));
                watch.interpreter = NULL;
            }
        });
    }

    /// Writes the calls seen by this thread, and releases their code. Most collections call nothing.
    #[inline]
    pub(super) fn report_calls(&self, state: &mut InterpreterState, ring: &PythonRing) {
        let has_any = |watch: &CallWatch| matches!(watch.calls.first(), Some(Some(_)));
        if WATCH.with(|watch| watch.try_borrow().is_ok_and(|watch| has_any(&watch))) {
            self.report_some(state, ring);
        }
    }

    #[cold]
    fn report_some(&self, state: &mut InterpreterState, ring: &PythonRing) {
        let calls = WATCH.with(|watch| {
            let calls = watch.try_borrow_mut().ok();
            calls.map(|mut watch| std::mem::take(&mut watch.calls))
        });
        for calls in calls.into_iter().flatten().flatten() {
            let code = match calls.code.is_null() {
                true => None,
                // SAFETY: an owned reference.
                false => unsafe { OwnedRef::new(self.api, calls.code) },
            };
            let frame = code.map_or(0, |code| state.frames.of_code(self.api, ring, &code));
            ring.push(&PythonMessage::Called(RingCalled {
                is_callback: calls.is_callback,
                tid: tid(),
                calls: calls.calls,
                frame,
                at_ns: calls.at_ns,
                time_ns: calls.time_ns,
            }));
        }
    }
}

/// The code of a function, of a method, or of `__call__` of an instance, not owned. Runs no code of the
/// program.
fn code_of_callable(api: &'static PythonApi, item: &OwnedRef) -> Option<Object> {
    // SAFETY: the lock is held, the object alive.
    let type_of = |object: Object| unsafe { OwnedRef::new(api, (api.PyObject_Type)(object)) };
    let is =
        |object: Object, kind: Object| matches!(type_of(object), Some(of) if of.object() == kind);
    let function = if is(item.object(), api.PyFunction_Type) {
        item.object()
    } else if is(item.object(), api.PyMethod_Type) {
        // SAFETY: as above; borrowed.
        unsafe { (api.PyMethod_Function?)(item.object()) }
    } else {
        let name = OwnedRef::interned(api, c"__call__")?;
        // SAFETY: as above; borrowed from the type.
        unsafe { (api._PyType_Lookup?)(type_of(item.object())?.object(), name.object()) }
    };
    if function.is_null() || !is(function, api.PyFunction_Type) {
        return None;
    }
    // SAFETY: as above; borrowed.
    unsafe { api.PyFunction_GetCode.map(|get| get(function)) }
}
