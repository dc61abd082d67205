//! What the program asks of its collector, for the record: whether a thread is in `gc.collect()`, and the
//! line that changed the settings.
//!
//! Called where functions of the module gc are, by `collector_functions.rs`.

use super::collector_functions::{BeforeCall, CallListener, Collector, CollectorFunction};
use super::interpreter::{HookedInterpreter, InterpreterState, OLDEST};
use super::object::OwnedRef;
use crate::process_ring::existing_ring;
use gctrace_ring::{PythonMessage, RingReason};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Whether our functions stand before the module's own.
static IS_WATCHED: AtomicBool = AtomicBool::new(false);

/// The main interpreter, between its start and its end; else null.
static MAIN: AtomicPtr<HookedInterpreter> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    /// Calls of `gc.collect()` that this thread is in.
    static COLLECTS: Cell<u32> = const { Cell::new(0) };
}

/// Starts to watch the functions of the module; all interpreters share it. The lock is held.
pub(super) fn begin(interpreter: &'static HookedInterpreter, gc: &OwnedRef) {
    if let Some(collector) = Collector::find(interpreter.api, gc)
        && collector.watch(&LISTENER).is_some()
    {
        IS_WATCHED.store(true, Ordering::Release);
    }
    if interpreter.id == 0 {
        MAIN.store(std::ptr::from_ref(interpreter).cast_mut(), Ordering::Release);
    }
}

/// The main interpreter ends.
pub(super) fn end(interpreter: &HookedInterpreter) {
    if interpreter.id == 0 {
        MAIN.store(std::ptr::null_mut(), Ordering::Release);
    }
}

/// Whether collections are recorded by reason: our functions stay where they are.
pub(super) fn is_watched() -> bool {
    IS_WATCHED.load(Ordering::Acquire)
}

/// Why a collection begins in this thread.
///
/// `PyGC_Collect()` of C code is a full collection that the count of younger ones does not explain: CPython starts one
/// if that is above the third threshold, and resets it after our entry was called (3.8 to 3.15). The incremental
/// collector starts none (3.14.0 to 3.14.4), and has no such count.
pub(super) fn reason(state: &InterpreterState, generation: u8) -> RingReason {
    let Some(live) = &state.live else {
        return RingReason::Exit;
    };
    // Else the thread's own memory is gone.
    let calls = match COLLECTS.try_with(Cell::get) {
        Ok(calls) if is_watched() => calls,
        _ => return RingReason::Unknown,
    };
    if calls > 0 {
        return RingReason::Explicit;
    }
    if generation == OLDEST
        && let (Some(([.., threshold], _)), Some(younger)) = (state.settings, live.younger())
        && younger <= i64::from(threshold)
    {
        return RingReason::Explicit;
    }
    RingReason::Automatic
}

static LISTENER: CallListener = CallListener { before: begins, after: ended };

fn begins(function: CollectorFunction) -> Option<BeforeCall> {
    if function == CollectorFunction::Collect {
        let _ = COLLECTS.try_with(|calls| calls.set(calls.get().saturating_add(1)));
    }
    None
}

fn ended(function: CollectorFunction, _: Option<&BeforeCall>, succeeded: bool) {
    match function {
        CollectorFunction::Collect => {
            let _ = COLLECTS.try_with(|calls| calls.set(calls.get().saturating_sub(1)));
        }
        CollectorFunction::Enable
        | CollectorFunction::Disable
        | CollectorFunction::SetThreshold
            if succeeded =>
        {
            changed();
        }
        _ => {}
    }
}

/// Writes the settings with the line that set them.
fn changed() -> Option<()> {
    // SAFETY: cleared before the interpreter ends; nothing of it is freed while its functions are called.
    let interpreter = unsafe { MAIN.load(Ordering::Acquire).as_ref() }?;
    if interpreter.api.interpreter_id() != 0 {
        return None;
    }
    let ring = existing_ring::<PythonMessage>()?;
    let mut state = interpreter.state.try_lock().ok()?;
    if state.introduced != ring.number() || state.live.is_none() {
        return None;
    }
    let frame = state.frames.innermost(interpreter.api, ring);
    interpreter.read_settings(ring, &mut state, frame);
    Some(())
}
