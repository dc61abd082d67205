//! Full collections of one interpreter, counted, and a wait at the end of the requested one: `gctrace
//! heap --at-full`.
//!
//! An entry in `gc.callbacks` is called with `collecting` set, after the collector has merged its
//! lists and updated its statistics (`gc_collect_with_callback`, `_PyGC_Collect`): gctrace takes
//! the heap as it is then. The interpreter's lock is held while waiting. The entry stays in the
//! list afterwards, as removing it would have the collector skip the next one.

use super::api::{MethodDef, NULL, Object, PythonApi, api};
use super::interpreter::{CAPSULE, OLDEST, method};
use super::object::OwnedRef;
use crate::process_ring::{is_off, options, reports_heap_to};
use crate::recording::guarded;
use gctrace_ring::{HeapNotice, HeapState, report_heap};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

/// How long the program waits at most, whatever happens to gctrace: as long as gctrace may stop a
/// program otherwise (the watchdog of `gctrace_heap`).
const LONGEST_WAIT: Duration = Duration::from_secs(2);

static COLLECTED: MethodDef = method(c"gctrace_heap", collected);

/// Full collections of the interpreter; forked children inherit it, as they do the statistics.
static COUNT: AtomicU64 = AtomicU64::new(0);
/// Nothing is reported any more: the heap was taken, gctrace is gone, or the process is confined.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Counts the full collections of the interpreter that the calling thread runs, if they are wanted.
pub(super) fn install(api: &'static PythonApi) {
    let Some(options) = options() else { return };
    if options.heap == 0 || api.interpreter_id() != i64::from(options.heap_interpreter) {
        return;
    }
    let state = match () {
        () if api.is_free_threaded() => HeapState::FreeThreaded,
        () if count_collections(api).is_none() => HeapState::Uncounted,
        () => HeapState::Counts,
    };
    report(state);
}

/// Reads the count so far and adds the entry.
fn count_collections(api: &'static PythonApi) -> Option<()> {
    let stats = OwnedRef::import(api, c"gc")?.attribute(c"get_stats")?.call(None)?;
    let full = stats.items().nth(OLDEST.into())?;
    let before = full.value(&OwnedRef::interned(api, c"collections")?)?;
    COUNT.store(u64::try_from(before.number()?).ok()?, Relaxed);
    put_in(api)
}

/// Adds the entry to `gc.callbacks`. The list has the only reference to it.
fn put_in(api: &'static PythonApi) -> Option<()> {
    let callbacks = OwnedRef::import(api, c"gc")?.attribute(c"callbacks")?;
    // Its pointer must not be null, and is not used.
    let pointer = std::ptr::from_ref(&COUNT).cast_mut().cast();
    // SAFETY: the lock is held; names and methods are static.
    unsafe {
        let capsule = (api.PyCapsule_New)(pointer, CAPSULE.as_ptr(), Some(removed));
        let capsule = OwnedRef::new(api, capsule)?;
        let entry = (api.PyCFunction_NewEx)(&raw const COLLECTED, capsule.object(), NULL);
        let entry = OwnedRef::new(api, entry)?;
        if (api.PyList_Append)(callbacks.object(), entry.object()) != 0 {
            (api.PyErr_Clear)();
            return None;
        }
    }
    Some(())
}

/// Reports; waits if that is the state. Nothing is reported after that, or if no gctrace listens.
fn report(state: HeapState) {
    if IS_OVER.load(Relaxed) {
        return;
    }
    let notice = HeapNotice { count: COUNT.load(Relaxed), state };
    let is_heard =
        reports_heap_to().is_some_and(|rendezvous| report_heap(rendezvous, notice, LONGEST_WAIT));
    if !is_heard || state == HeapState::Waits {
        IS_OVER.store(true, Relaxed);
    }
}

/// `gctrace_heap(phase, info)`, the entry in `gc.callbacks`.
unsafe extern "C" fn collected(_own: Object, arguments: *const Object, count: isize) -> Object {
    let Some(api) = api() else { return NULL };
    guarded(|| {
        if count == 2 && !is_off() && !IS_OVER.load(Relaxed) {
            // SAFETY: the lock is held; the arguments number `count`.
            unsafe { called(api, *arguments, *arguments.add(1)) };
        }
    });
    api.none()
}

/// # Safety
/// The lock is held, the objects are alive.
unsafe fn called(api: &'static PythonApi, phase: Object, info: Object) -> Option<()> {
    // SAFETY: as the caller promises.
    let (phase, info) = unsafe { (OwnedRef::share(api, phase), OwnedRef::share(api, info)) };
    let generation = info.value(&OwnedRef::interned(api, c"generation")?)?;
    if phase.text()? != "stop" || generation.number()? != i64::from(OLDEST) {
        return None;
    }
    drop((phase, info, generation));
    let count = COUNT.fetch_add(1, Relaxed) + 1;
    let is_reached = count >= u64::from(options()?.heap);
    report(if is_reached { HeapState::Waits } else { HeapState::Counts });
    Some(())
}

/// The entry is destroyed: the program removed it from the list, or the interpreter ends.
unsafe extern "C" fn removed(_capsule: Object) {
    let Some(api) = api() else { return };
    guarded(|| {
        // SAFETY: may be called at any time.
        let is_up = unsafe { (api.Py_IsInitialized)() } != 0;
        // It is unknown whether another interpreter ends.
        if is_up && !is_off() && api.interpreter_id() == 0 {
            report(HeapState::Uncounted);
        }
    });
}
