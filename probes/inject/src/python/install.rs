//! Hooks into an interpreter: finds its objects, adds the entry in `gc.callbacks`.

use super::api::{NULL, PythonApi};
use super::collector_state::CollectorState;
use super::frames::FrameCache;
use super::garbage::GarbageHook;
use super::interpreter::{CAPSULE, HookedInterpreter, InterpreterObjects, InterpreterState};
use super::memory_use::MemoryMeter;
use super::object::OwnedRef;
use super::pause_sums::PauseSums;
use super::{asked, callback, called, watch};
use crate::process_ring::options;
use gctrace_ring::RingReason;
use std::sync::Mutex;

/// Hooks into the interpreter that the calling thread runs; `Err`: why not.
pub(crate) fn install(api: &'static PythonApi) -> Result<(), &'static str> {
    let options = options().ok_or("not requested")?;
    let gc = OwnedRef::import(api, c"gc").ok_or("there is no module gc")?;
    let missing = "the module gc lacks a function";
    let callbacks = gc.attribute(c"callbacks").ok_or(missing)?;
    let id = api.interpreter_id();
    if id != 0 && has_entry(&callbacks) {
        return Err(
            "it shares the list gc.callbacks of the main interpreter, but its collector does not read it (3.9)",
        );
    }
    let live = InterpreterObjects {
        callbacks,
        entry: NULL,
        get_threshold: gc.attribute(c"get_threshold").ok_or(missing)?,
        is_enabled: gc.attribute(c"isenabled").ok_or(missing)?,
        get_count: gc.attribute(c"get_count").ok_or(missing)?,
        get_stats: gc.attribute(c"get_stats").ok_or(missing)?,
        collections: OwnedRef::interned(api, c"collections").ok_or(missing)?,
    };
    let before = live.collections();
    let interpreter = HookedInterpreter {
        api,
        id,
        stack_depth: options.stack_depth,
        state: Mutex::new(InterpreterState {
            start_ns: 0,
            start_cpu_ns: 0,
            start_work_ns: 0,
            reason: RingReason::Unknown,
            introduced: 0,
            settings: None,
            settings_are_due: false,
            before,
            seen: 0,
            sums: PauseSums::default(),
            was_restored: false,
            frames: FrameCache::new(api),
            memory: MemoryMeter::new(),
            device_memory: Vec::new(),
            ending_cpu_ns: 0,
            live: Some(live),
        }),
        garbage: GarbageHook::new(),
        collector: CollectorState::find(api, &gc, before),
        watches_calls: called::is_possible(api),
    };
    // From now on its capsule owns it.
    let interpreter: &'static HookedInterpreter = Box::leak(Box::new(interpreter));
    // Runs Python code; a collection may be due in it, and the entry would find the state in use.
    watch::begin(interpreter);
    asked::begin(interpreter, &gc);
    let mut state = interpreter.state.try_lock().map_err(|_| "it is in use")?;
    state.before = state.live.as_ref().and_then(InterpreterObjects::collections);
    if interpreter.put_in(&mut state).is_none() {
        // At the end there is nothing to report.
        state.live = None;
        return Err("gc.callbacks rejects the entry");
    }
    interpreter.time_calls(&state);
    interpreter.introduce(&mut state);
    drop(state);
    interpreter.examine_garbage();
    Ok(())
}

/// Whether this is the first call in the interpreter: a module can be imported again.
pub(super) fn is_first_time(api: &'static PythonApi) -> bool {
    let dictionary = api.interpreter_dictionary();
    let Some(mark) = OwnedRef::interned(api, CAPSULE) else {
        return true;
    };
    if dictionary.is_null() {
        return true;
    }
    // SAFETY: the lock is held; the interpreter owns the dictionary.
    unsafe {
        let dictionary = OwnedRef::share(api, dictionary);
        let is_first = dictionary.value(&mark).is_none();
        dictionary.insert(CAPSULE, &mark);
        is_first
    }
}

/// Whether a list of callbacks contains an entry of ours, of any interpreter.
fn has_entry(callbacks: &OwnedRef) -> bool {
    callbacks.items().any(|item| {
        let name = item.attribute(c"__name__");
        name.as_ref().and_then(OwnedRef::text) == Some(callback::NAME_TEXT)
    })
}
