//! CPython: its collections and its allocations.
//!
//! - `start`, `late`: finding interpreters as they start;
//! - `install`, `interpreter`, `callback`, `watch`: the hook into the collector of one interpreter;
//! - `pause_sums`: its pauses, for the program itself; `called`: the program's functions that collections call;
//! - `frames`, `raw_frame`: the stacks; `local_memory`: this process's memory, for `gctrace_cpython`;
//! - `allocations`: counting;
//! - `garbage`: what collections find unreachable; `memory_use`: memory that they give back;
//! - `heap`: full collections counted, and the wait at the end of one;
//! - `apply`: settings of the collector, applied at steps;
//! - `builtin`: builtins of C modules, and functions of ours before theirs: `empty_cache`, `collector_functions`;
//! - `asked`: what the program asks of its collector;
//! - `steps`: marks of training steps; `layers`: PyTorch's memory in some of them, by layer;
//! - `api`, `object`: CPython's C API.

mod allocations;
pub(crate) mod api;
pub(crate) mod apply;
mod asked;
mod builtin;
mod callback;
mod called;
mod collector_functions;
mod collector_state;
mod empty_cache;
mod frames;
mod garbage;
mod heap;
mod install;
mod interpreter;
mod late;
pub(crate) mod layers;
mod local_memory;
mod memory_use;
mod object;
mod pause_sums;
mod raw_frame;
mod start;
pub(crate) mod steps;
mod watch;

pub(crate) use late::{may_begin, opens};
pub(crate) use start::begin;

use crate::process_ring::{PythonRing, existing_ring, now_ns, options, ring, thread_cpu_ns};
use api::PythonApi;
use gctrace_ring::{HookState, InjectOptions, PythonMessage, WorkKind};
use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Hooks into the interpreter that the calling thread runs and has locked. No exception is set before or after.
fn install(api: &'static PythonApi) {
    let begun_ns = thread_cpu_ns();
    let options = options();
    if matches!(options, Some(options) if options.allocations) {
        allocations::install(api);
    }
    if !install::is_first_time(api) {
        return;
    }
    hook(api, options);
    if let Some(ring) = existing_ring::<PythonMessage>() {
        // The library's own start counts with the first interpreter.
        let loaded_ns = LOADED_NS.swap(0, Ordering::Relaxed);
        ring.spend(WorkKind::Start, gctrace_units::duration_ns(loaded_ns, begun_ns));
    }
}

/// Whether the program has a CPython.
pub(crate) fn is_found() -> bool {
    api::api().is_some()
}

/// CPU time that the library took when it was loaded, in ns; 0 once it is counted.
static LOADED_NS: AtomicU64 = AtomicU64::new(0);

/// The library was loaded. `begun_ns`: the thread's CPU time at the start of that.
pub(crate) fn loaded(begun_ns: u64) {
    LOADED_NS.store(gctrace_units::duration_ns(begun_ns, thread_cpu_ns()), Ordering::Relaxed);
}

fn hook(api: &'static PythonApi, options: Option<&InjectOptions>) {
    if api.interpreter_id() == 0 {
        // An earlier interpreter may have ended without a word.
        apply::forget();
        steps::forget();
        layers::forget();
        garbage::forget();
    }
    apply::install(api, steps::look);
    heap::install(api);
    steps::install(api);
    if matches!(options, Some(options) if options.collections)
        && let Err(reason) = install::install(api)
        && let Some(ring) = ring::<PythonMessage>()
    {
        report_interpreter(api, ring);
        ring.push(&PythonMessage::Hook {
            at_ns: now_ns(),
            state: HookState::Failed,
            interpreter: api.interpreter_id(),
            detail: ring.text(reason),
            count: 0,
        });
    }
}

/// The number that follows a number other than 0: Marsaglia's xorshift (Journal of Statistical Software 8, 2003).
fn next_random(mut number: u32) -> u32 {
    number ^= number << 13;
    number ^= number >> 17;
    number ^ number << 5
}

/// Writes the CPython's version and file, once per ring.
fn report_interpreter(api: &PythonApi, ring: &PythonRing) {
    static REPORTED_TO: AtomicU32 = AtomicU32::new(0);
    if REPORTED_TO.swap(ring.number(), Ordering::Relaxed) == ring.number() {
        return;
    }
    ring.push(&PythonMessage::Interpreter {
        at_ns: now_ns(),
        version: ring.text(&api.version().to_string_lossy()),
        file: ring.text(&file_of(api).to_string_lossy()),
        free_threaded: api.is_free_threaded(),
    });
}

/// The file that contains the interpreter, by the loader's name for it.
fn file_of(api: &PythonApi) -> &'static CStr {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr fills it or leaves it zeroed, and both are valid values.
    let found = unsafe {
        libc::dladdr(api.Py_IsInitialized as *const libc::c_void, found.as_mut_ptr());
        found.assume_init()
    };
    if found.dli_fname.is_null() {
        return c"";
    }
    // SAFETY: a C string that lives as long as the library is loaded; CPython is not unloaded.
    unsafe { CStr::from_ptr(found.dli_fname) }
}
