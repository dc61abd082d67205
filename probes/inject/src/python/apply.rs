//! Settings of the collector, applied in the program at its steps: `gctrace apply`.
//!
//! Native code, called through the C API: no Python code of ours runs in the program, and no attribute of a module is
//! replaced. Only collections run the program's own code here, as the collector may at any allocation.
//!
//! - `agent`: the work at a step;
//! - `settings`: applies them, holds them, gives them back;
//! - `collector`: the functions of the module gc, called and watched;
//! - `calls`: the program's calls of these functions, and its wishes;
//! - `auto`: the search for a setting; `search`: its state; `costs`: the cost of collections to it;
//! - `sums`: collections, by an entry in `gc.callbacks`; `quiet`: marks that need no work;
//! - `report`: the report.
//!
//! Here: the callers of these modules, and the end of the process.

mod agent;
mod auto;
mod calls;
mod costs;
mod quiet;
mod report;
mod search;
mod settings;
mod sums;

use super::api::{MethodDef, NULL, Object, PythonApi, api};
use super::collector_functions::{self, CollectCall, Collector};
use super::interpreter::method;
use super::object::OwnedRef;
use crate::apply::ApplyOptions;
use crate::apply::files::say;
use crate::confined::{is_confined, is_noticed, is_without_clock};
use crate::loaded::place_of;
use crate::process_ring::is_off;
use crate::recording::{fault, guarded};
use agent::Agent;
use gctrace_ring::StepMarker;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError};

/// The settings to apply, or why there are none.
static OPTIONS: OnceLock<Result<ApplyOptions, String>> = OnceLock::new();

/// The agent of the main interpreter. Locked while it works; it runs no Python code and waits for nothing. A second
/// thread of a free-threaded build does not wait for the lock.
static AGENT: Mutex<Option<Agent>> = Mutex::new(None);

/// Whether there is one.
static IS_ACTIVE: AtomicBool = AtomicBool::new(false);

/// The process that has the agent: not a child that shares its memory (vfork).
static PID: AtomicU32 = AtomicU32::new(0);

/// Addresses of the interpreter's code and data.
static INTERPRETER: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

static FORKED: MethodDef = method(c"gctrace_apply_forked", forked);
static ENDING: MethodDef = method(c"gctrace_apply_ending", ending);

/// Forgets the agent of an interpreter that has ended: its objects are gone, and are not released.
pub(super) fn forget() {
    IS_ACTIVE.store(false, Ordering::Relaxed);
    if let Some(mut agent) = locked()
        && let Some(agent) = agent.take()
    {
        std::mem::forget(agent.collector);
    }
}

/// Has interpreters that start run the agent.
pub(crate) fn request(options: Result<ApplyOptions, String>) {
    let _ = OPTIONS.set(options);
}

/// Whether the agent runs in this process.
#[inline]
pub(super) fn is_active() -> bool {
    IS_ACTIVE.load(Ordering::Relaxed)
}

/// Starts the agent in the interpreter that the calling thread runs, if that is the main one. `look` is
/// called as each collection starts: a program that has made none of its steps may import torch late.
pub(super) fn install(api: &'static PythonApi, look: fn(&'static PythonApi)) {
    let options = match OPTIONS.get() {
        Some(options) if api.interpreter_id() == 0 && !is_noticed() => options,
        _ => return,
    };
    match options {
        Err(why) => say(why),
        Ok(options) => {
            if start(api, options, look).is_none() {
                say("GCTRACE_APPLY is not applied: this CPython is not as it is known");
            }
        }
    }
}

fn start(
    api: &'static PythonApi,
    options: &'static ApplyOptions,
    look: fn(&'static PythonApi),
) -> Option<()> {
    let gc = OwnedRef::import(api, c"gc")?;
    let collector = Collector::find(api, &gc)?;
    let (thresholds, is_enabled) = (collector.thresholds()?, collector.is_enabled()?);
    let interpreter = place_of(api.Py_IsInitialized as usize)?.object;
    calls::begin(api, thresholds, is_enabled);
    collector.watch(&calls::LISTENER)?;
    let Some(()) = sums::install(api, &gc, look) else {
        collector_functions::unwatch(&calls::LISTENER);
        return None;
    };
    let agent = Agent::new(api, collector, options)?;
    for (place, address) in INTERPRETER.iter().zip([interpreter.start, interpreter.end]) {
        place.store(address, Ordering::Relaxed);
    }
    PID.store(std::process::id(), Ordering::Relaxed);
    *AGENT.try_lock().ok()? = Some(agent);
    IS_ACTIVE.store(true, Ordering::Release);
    register(api);
    Some(())
}

/// Registers for forked children and for the end of the interpreter. Without these modules it does
/// not fork, or its end is the process's.
fn register(api: &'static PythonApi) {
    // SAFETY: the lock is held; the methods are static.
    let make = |method| unsafe { OwnedRef::new(api, (api.PyCFunction_NewEx)(method, NULL, NULL)) };
    let forks = OwnedRef::import(api, c"posix");
    if let Some(posix) = forks
        && let Some(register) = posix.attribute(c"register_at_fork")
        && let Some(forked) = make(&raw const FORKED)
    {
        register.call_by_keyword(c"after_in_child", &forked);
    }
    let ends = OwnedRef::import(api, c"atexit");
    if let Some(atexit) = ends
        && let Some(register) = atexit.attribute(c"register")
        && let Some(ending) = make(&raw const ENDING)
    {
        register.call(Some(&ending));
    }
}

/// Has the agent do something, unless another thread or a fault prevents it. The interpreter's lock is
/// held, and no exception is set.
fn act<T>(work: impl FnOnce(&mut Agent) -> Option<T>) -> Option<T> {
    if is_without_clock() {
        return None;
    }
    let done = guarded(|| {
        let mut agent = AGENT.try_lock().ok()?;
        let agent = agent.as_mut()?;
        if !agent.is_mine() {
            if agent.forked().is_none() {
                IS_ACTIVE.store(false, Ordering::Relaxed);
                return None;
            }
            PID.store(std::process::id(), Ordering::Relaxed);
        }
        if is_off() { None } else { Some(work(agent)) }
    });
    if is_off() {
        guarded(fail);
    }
    done.flatten().flatten()
}

/// Ends the agent: an invariant of this library is broken, or it has panicked.
fn fail() {
    if let Some(mut agent) = locked()
        && let Some(agent) = agent.as_mut()
    {
        agent.fail(fault().unwrap_or_else(|| "unknown".to_owned()));
    }
}

/// The agent, also after a panic; `None` if it is at work.
fn locked() -> Option<MutexGuard<'static, Option<Agent>>> {
    match AGENT.try_lock() {
        Ok(agent) => Some(agent),
        Err(TryLockError::Poisoned(agent)) => Some(agent.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Makes the collections that the agent asks for, one after the other.
fn run(mut call: Option<CollectCall>) {
    while let Some(next) = call.take() {
        next.run();
        call = act(Agent::collected);
    }
}

/// Passes a mark of a step to the agent, if there is one. Called outside of [`guarded`], with the
/// interpreter's lock held and no exception set.
pub(super) fn step(api: &'static PythonApi, marker: StepMarker) {
    if is_active() && api.interpreter_id() == 0 && !quiet::count(marker) {
        run(act(|agent| agent.marked(marker)));
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
    let all =
        [StepMarker::Function, StepMarker::Optimizer, StepMarker::Backward, StepMarker::DataLoader];
    let marker = all.into_iter().find(|one| *one as usize == marker.addr());
    if let (Some(api), Some(marker)) = (api(), marker) {
        step(api, marker);
    }
    0
}

/// Has the agent do its periodic work. Runs in the main thread.
unsafe extern "C" fn idle(_argument: *mut c_void) -> c_int {
    sums::idle_runs();
    // SAFETY: may be called at any time.
    let is_up = api().is_some_and(|api| unsafe { (api.Py_IsInitialized)() } != 0);
    if is_active() && is_up {
        run(act(Agent::idle));
    }
    0
}

/// In a child of `os.fork`.
unsafe extern "C" fn forked(_own: Object, _: *const Object, _: isize) -> Object {
    act(|_| None::<()>);
    if let Some(api) = api() { api.none() } else { NULL }
}

/// The interpreter ends (`atexit`).
unsafe extern "C" fn ending(_own: Object, _: *const Object, _: isize) -> Object {
    act(|agent| {
        agent.end(true);
        None::<()>
    });
    if let Some(api) = api() { api.none() } else { NULL }
}

/// The process ends by `exit`, or by returning from `main`. The interpreter has ended before, if it
/// did.
pub(crate) fn process_ends() {
    if is_active() && may_report() {
        guarded(|| {
            if let Some(mut agent) = locked()
                && let Some(agent) = agent.as_mut()
            {
                agent.end(false);
                agent.line().as_deref().map(say);
            }
        });
    }
}

/// The process is about to end by `_exit`, called at this address. If the interpreter does that
/// (`os._exit()`), it is reported as its end. Not for another caller: it may be a signal handler that
/// interrupts anything.
pub(crate) fn process_exits(caller: *const c_void) {
    let [start, end] = INTERPRETER.each_ref().map(|place| place.load(Ordering::Relaxed));
    let is_interpreters = (start..end).contains(&caller.addr());
    if is_active()
        && is_interpreters
        && may_report()
        && let Some(api) = api()
        && api.runs_main_interpreter()
    {
        act(|agent| {
            agent.end(true);
            agent.line().as_deref().map(say)
        });
    }
}

/// Whether this process has the agent itself (not a child that shares its memory), and may still make system calls that
/// the program does not.
fn may_report() -> bool {
    let Some(Ok(options)) = OPTIONS.get() else { return false };
    !is_confined(options.filters) && PID.load(Ordering::Relaxed) == std::process::id()
}
