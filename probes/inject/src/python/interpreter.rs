//! One interpreter (main or sub): the hooks in it, and its state.

use super::api::{FASTCALL, FastCall, MethodDef, NULL, Object, PythonApi};
use super::collector_state::CollectorState;
use super::frames::FrameCache;
use super::garbage::GarbageHook;
use super::memory_use::MemoryMeter;
use super::object::OwnedRef;
use super::pause_sums::PauseSums;
use crate::process_ring::{PythonRing, is_forked, now_ns, ring, thread_cpu_ns};
use crate::recording::expected;
use gctrace_ring::{HookState, NO_TEXT, PythonMessage, RingCacheMemory, RingReason, WorkKind};
use std::ffi::{CStr, c_void};
use std::sync::Mutex;

/// The oldest generation: its collections are rare, and settings are read then as well. They are read when a collection
/// starts. The collection then resets `gc.get_count()` to 0, so the objects created for the reading do not appear in
/// the program's count.
pub(super) const OLDEST: u8 = 2;

/// Thresholds, and whether automatic collection is enabled.
pub(crate) type Settings = ([i32; 3], bool);

/// The mutable part. Behind a lock that is never waited for: it can be contended only in
/// free-threaded builds, or by user code that ours calls.
pub(crate) struct InterpreterState {
    /// Start of the running collection; 0: none is running.
    pub(crate) start_ns: u64,
    /// CPU time of its thread at its start; 0: unknown.
    pub(crate) start_cpu_ns: u64,
    /// Time that the call at its start took, in ns.
    pub(crate) start_work_ns: u64,
    /// Why the running collection began.
    pub(crate) reason: RingReason,
    /// The ring that knows this interpreter.
    pub(crate) introduced: u32,
    pub(crate) settings: Option<Settings>,
    /// Read the settings when the next collection starts.
    pub(crate) settings_are_due: bool,
    /// Collections in the interpreter's statistics when the hook was added, and collections seen or reported as missed
    /// since.
    pub(crate) before: Option<u64>,
    pub(crate) seen: u64,
    pub(crate) sums: PauseSums,
    pub(crate) was_restored: bool,
    pub(crate) frames: FrameCache,
    pub(crate) memory: MemoryMeter,
    /// Memory of devices before the running full collection; empty: unknown.
    pub(crate) device_memory: Vec<RingCacheMemory>,
    /// CPU time of the thread when the interpreter began to end, in ns.
    pub(crate) ending_cpu_ns: u64,
    /// `None` once the interpreter ends.
    pub(crate) live: Option<InterpreterObjects>,
}

/// Objects of the interpreter, referenced until it ends.
pub(crate) struct InterpreterObjects {
    /// The list that the collector reads, whatever `gc.callbacks` names by now.
    pub(crate) callbacks: OwnedRef,
    /// Our entry in it. Not an owned reference: its destruction shows that the program removed it.
    pub(crate) entry: Object,
    pub(super) get_threshold: OwnedRef,
    pub(super) is_enabled: OwnedRef,
    pub(super) get_stats: OwnedRef,
    pub(super) get_count: OwnedRef,
    pub(super) collections: OwnedRef,
}

// SAFETY: objects are only used with the interpreter's lock held, whatever the thread.
unsafe impl Send for InterpreterState {}

/// One interpreter. Lives until its entry in `gc.callbacks` is gone for good.
pub(crate) struct HookedInterpreter {
    pub(crate) api: &'static PythonApi,
    pub(crate) id: i64,
    pub(crate) stack_depth: u32,
    pub(crate) state: Mutex<InterpreterState>,
    pub(crate) garbage: GarbageHook,
    pub(crate) collector: CollectorState,
    /// Whether the calls of its collections are watched.
    pub(crate) watches_calls: bool,
}

/// Distinguishes our capsules from others'.
pub(crate) const CAPSULE: &CStr = c"gctrace";

/// A C function for Python to call, with the interpreter as its self. `end`: called when the last
/// reference to it is released.
pub(crate) fn callable(
    interpreter: &'static HookedInterpreter,
    method: &'static MethodDef,
    end: Option<unsafe extern "C" fn(Object)>,
) -> Option<OwnedRef> {
    let api = interpreter.api;
    let pointer = std::ptr::from_ref(interpreter).cast_mut().cast::<c_void>();
    // SAFETY: the lock is held; name and method are static.
    unsafe {
        let capsule = OwnedRef::new(api, (api.PyCapsule_New)(pointer, CAPSULE.as_ptr(), end))?;
        OwnedRef::new(api, (api.PyCFunction_NewEx)(method, capsule.object(), NULL))
    }
}

/// A function of ours as seen by Python.
pub(crate) const fn method(name: &'static CStr, function: FastCall) -> MethodDef {
    MethodDef { name: name.as_ptr(), function, flags: FASTCALL, doc: std::ptr::null() }
}

/// The interpreter behind a capsule of ours; each has one.
///
/// # Safety
/// The lock is held; the capsule was made by `callable`.
#[inline]
pub(crate) unsafe fn behind(
    api: &PythonApi,
    capsule: Object,
) -> Option<&'static HookedInterpreter> {
    // SAFETY: as the caller promises; the pointer is to a leaked interpreter.
    unsafe {
        let pointer = (api.PyCapsule_GetPointer)(capsule, CAPSULE.as_ptr());
        if pointer.is_null() {
            (api.PyErr_Clear)();
        }
        expected(pointer.cast::<HookedInterpreter>().as_ref())
    }
}

impl InterpreterState {
    /// Number of collections in the statistics that were neither seen nor reported as missed; 0 if
    /// the statistics are unavailable.
    pub(crate) fn missed(&self) -> u64 {
        let Some(live) = &self.live else { return 0 };
        let (Some(all), Some(before)) = (live.collections(), self.before) else { return 0 };
        gctrace_units::beyond(all, before + self.seen)
    }
}

impl InterpreterObjects {
    /// Number of collections of all generations so far, from the collector's statistics; `None` if
    /// Python has no memory to report them.
    pub(crate) fn collections(&self) -> Option<u64> {
        let all = self.get_stats.call(None)?;
        let count = |one: OwnedRef| u64::try_from(one.value(&self.collections)?.number()?).ok();
        all.items().map(count).sum()
    }

    /// `gc.get_count()[2]`: collections of the middle generation since the last full one.
    pub(crate) fn younger(&self) -> Option<i64> {
        self.get_count.call(None)?.items().nth(2)?.number()
    }

    pub(crate) fn has_entry(&self) -> bool {
        self.callbacks.items().any(|item| item.object() == self.entry)
    }

    fn settings(&self) -> Option<Settings> {
        let thresholds = self.get_threshold.call(None)?;
        let mut values = [0; 3];
        for (value, item) in values.iter_mut().zip(thresholds.items()) {
            *value = i32::try_from(item.number()?).ok()?;
        }
        let is_enabled = self.is_enabled.call(None)?.number()? != 0;
        Some((values, is_enabled))
    }
}

impl HookedInterpreter {
    /// Reports the interpreter in this process's ring, once.
    pub(crate) fn introduce(&self, state: &mut InterpreterState) -> Option<&'static PythonRing> {
        let begun_ns = thread_cpu_ns();
        let ring = ring::<PythonMessage>()?;
        if state.introduced != ring.number() {
            // A forked child inherits what its parent has reported.
            let unseen = match std::mem::replace(&mut state.introduced, ring.number()) {
                0 => self.unseen_before(state),
                _ => 0,
            };
            super::report_interpreter(self.api, ring);
            self.report(ring, HookState::Installed, "", unseen);
            state.settings = None;
            self.read_settings(ring, state, 0);
        }
        if is_forked() {
            ring.spend(WorkKind::Fork, begun_ns);
        }
        Some(ring)
    }

    /// Collections before the hook was added, as [`HookState::Installed`] reports them.
    fn unseen_before(&self, state: &InterpreterState) -> u64 {
        // In a build of unknown layout, the statistics may lack some.
        let counted = self.collector.collections().and(state.before);
        counted.unwrap_or(HookState::UNCOUNTED)
    }

    /// Writes the state of the hook.
    pub(crate) fn report(&self, ring: &PythonRing, hook: HookState, detail: &str, count: u64) {
        ring.push(&PythonMessage::Hook {
            at_ns: now_ns(),
            state: hook,
            interpreter: self.id,
            detail: if detail.is_empty() { NO_TEXT } else { ring.text(detail) },
            count,
        });
    }

    /// Writes the collector's settings if they have changed. `frame`: the frame that set them; 0: unknown.
    pub(crate) fn read_settings(
        &self,
        ring: &PythonRing,
        state: &mut InterpreterState,
        frame: u32,
    ) {
        let Some(live) = &state.live else { return };
        let Some(settings) = live.settings() else { return };
        if state.settings == Some(settings) {
            return;
        }
        state.settings = Some(settings);
        let (thresholds, enabled) = settings;
        ring.push(&PythonMessage::Settings {
            at_ns: now_ns(),
            interpreter: self.id,
            thresholds,
            enabled,
            frame,
        });
    }
}
