//! Changes to the hook: the program removes it, forks, or ends the interpreter.
//!
//! Needs no thread (`os.fork` of 3.12 and later would warn the program's user about it): only the list references our
//! entry, so removing it destroys it, and that is noticed at once. If a program removes it and keeps it (to restore it
//! later, for example), that is noticed at the end, by the collector's own statistics.

use super::api::{MethodDef, Object, api};
use super::interpreter::{HookedInterpreter, InterpreterState, behind, callable, method};
use super::object::OwnedRef;
use super::{asked, callback, layers, steps};
use crate::confined::is_noticed;
use crate::process_ring::{announce_fork, existing_ring, shared_ring, thread_cpu_ns};
use crate::recording::{expected, guarded};
use gctrace_ring::{HookState, PythonMessage, WorkKind};

static FORKED: MethodDef = method(c"gctrace_forked", forked);
static ENDING: MethodDef = method(c"gctrace_ending", ending);

/// Registers for forked children and for the end. An interpreter without these modules does not
/// fork, or does not end.
pub(crate) fn begin(interpreter: &'static HookedInterpreter) {
    let api = interpreter.api;
    if let Some(posix) = OwnedRef::import(api, c"posix")
        && let Some(register) = posix.attribute(c"register_at_fork")
        && let Some(forked) = callable(interpreter, &FORKED, None)
    {
        register.call_by_keyword(c"after_in_child", &forked);
    }
    if let Some(atexit) = OwnedRef::import(api, c"atexit")
        && let Some(register) = atexit.attribute(c"register")
        && let Some(ending) = callable(interpreter, &ENDING, None)
    {
        register.call(Some(&ending));
    }
}

/// In a child of `os.fork`: makes it known, whether or not it ever collects.
unsafe extern "C" fn forked(capsule: Object, _: *const Object, _: isize) -> Object {
    // SAFETY: called by the interpreter, with its lock.
    unsafe { with(capsule, HookedInterpreter::fork) }
}

/// The interpreter ends (`atexit`): reports missing collections, and releases its objects while it can take them.
unsafe extern "C" fn ending(capsule: Object, _: *const Object, _: isize) -> Object {
    // SAFETY: as above.
    unsafe { with(capsule, HookedInterpreter::end) }
}

unsafe fn with(capsule: Object, act: impl FnOnce(&'static HookedInterpreter)) -> Object {
    // The function was created by it.
    let Some(api) = expected(api()) else { return super::api::NULL };
    guarded(|| {
        // SAFETY: the lock is held; the capsule is ours.
        if let Some(interpreter) = unsafe { behind(api, capsule) } {
            act(interpreter);
        }
    });
    api.none()
}

/// Our entry is destroyed: the program removed it from the list. An exception that is set stays
/// set.
pub(crate) unsafe extern "C" fn removed_by_program(capsule: Object) {
    let Some(api) = expected(api()) else { return };
    guarded(|| {
        let mut exception = [std::ptr::null_mut(); 3];
        let [kind, value, traceback] = &mut exception;
        // SAFETY: code that destroys objects holds the lock; the capsule is ours.
        unsafe {
            (api.PyErr_Fetch)(kind, value, traceback);
            if let Some(interpreter) = behind(api, capsule) {
                interpreter.removed_by_program();
            }
            (api.PyErr_Restore)(*kind, *value, *traceback);
        }
    });
}

impl HookedInterpreter {
    /// Adds our entry to the list.
    pub(super) fn put_in(&'static self, state: &mut InterpreterState) -> Option<()> {
        let live = state.live.as_mut()?;
        let entry = callable(self, &callback::METHOD, Some(removed_by_program))?;
        // SAFETY: the lock is held, both are alive; the list holds the entry from now on.
        let failed =
            unsafe { (self.api.PyList_Append)(live.callbacks.object(), entry.object()) } != 0;
        if failed {
            // SAFETY: as above.
            unsafe { (self.api.PyErr_Clear)() };
            return None;
        }
        live.entry = entry.object();
        Some(())
    }

    fn removed_by_program(&'static self) {
        let Ok(mut state) = self.state.try_lock() else { return };
        if state.live.is_none() {
            return self.released(&state);
        }
        let missed = state.missed();
        let Some(ring) = self.introduce(&mut state) else { return };
        state.start_ns = 0;
        state.seen += missed;
        if state.was_restored || self.put_in(&mut state).is_none() {
            self.report(ring, HookState::GivenUp, "", missed);
            state.frames.forget();
        } else {
            state.was_restored = true;
            self.report(ring, HookState::Restored, "", missed);
        }
    }

    fn fork(&'static self) {
        if is_noticed() {
            return;
        }
        let begun_ns = thread_cpu_ns();
        let Ok(mut state) = self.state.try_lock() else { return };
        if state.live.is_none() {
            return;
        }
        if !announce_fork() {
            self.introduce(&mut state);
        } else if let Some(ring) = shared_ring() {
            ring.spend(WorkKind::Fork, begun_ns);
        }
    }

    fn end(&'static self) {
        if self.id == 0 {
            steps::end();
            layers::end(self.api);
            asked::end(self);
        }
        let Ok(mut state) = self.state.try_lock() else { return };
        if let (Some(live), Some(ring)) = (&state.live, existing_ring::<PythonMessage>()) {
            let missed = state.missed();
            let has_entry = live.has_entry();
            // 3.8 also counts collections without callbacks, at the ends of subinterpreters.
            if missed > 0 && !(has_entry && self.api.minor() == Some(8)) {
                if has_entry {
                    self.report(ring, HookState::Bypassed, "", missed);
                } else {
                    let kept = "removed by the program and kept by it";
                    self.report(ring, HookState::GivenUp, kept, missed);
                }
                state.seen += missed;
            }
            self.read_settings(ring, &mut state, 0);
            self.report_calls(&mut state, ring);
            if has_entry {
                self.report(ring, HookState::Ending, "", 0);
            }
        }
        self.garbage.finish(self.api);
        state.frames.forget();
        // Released outside the lock: the list may have the last reference to our entry.
        let live = state.live.take();
        state.ending_cpu_ns = thread_cpu_ns();
        drop(state);
        drop(live);
    }

    /// The collector releases its list of callbacks, with our entry, after the interpreter's last
    /// collection (`_PyGC_Fini`). No object may be created any more.
    fn released(&self, state: &InterpreterState) {
        let counts = (self.collector.collections(), state.before);
        if let (Some(all), Some(before)) = counts
            && let Some(ring) = shared_ring()
        {
            let unseen = gctrace_units::beyond(all, before + state.seen);
            let took_ns = gctrace_units::duration_ns(state.ending_cpu_ns, thread_cpu_ns());
            if state.ending_cpu_ns > 0 {
                self.report(ring, HookState::EndTook, "", took_ns);
            }
            self.report(ring, HookState::Ended, "", unseen);
        }
    }
}
