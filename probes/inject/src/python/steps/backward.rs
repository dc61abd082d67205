//! Backward passes: torch's `torch::autograd::Engine::execute`, interposed.
//!
//! Like `dlopen` of this library: it looks, then jumps to the real function with registers and stack unchanged. That
//! also lets exceptions pass. It is always part of the library's table of symbols; without a recording it only jumps,
//! and without torch nothing calls it.

use crate::arch::stand_before;
use crate::dlopen;
use crate::recording::guarded;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// `torch::autograd::Engine::execute(const edge_list&, const variable_list&, bool, bool, bool,
/// const edge_list&)`: the same in all torch versions since 1.8.
const EXECUTE: &CStr = c"_ZN5torch8autograd6Engine7executeERKSt6vectorINS0_4EdgeESaIS3_EERKS2_IN2at6TensorESaIS9_EEbbbS7_";

/// `int torch::autograd::get_current_graph_task_id()` (2.0 and later): not -1 on a thread that
/// computes a backward pass.
const CURRENT_TASK: &CStr = c"_ZN5torch8autograd25get_current_graph_task_idEv";

type CurrentTask = unsafe extern "C" fn() -> c_int;

static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static TASK: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Interposes torch's.
///
/// # Safety
/// As of that function.
#[unsafe(naked)]
#[unsafe(export_name = "_ZN5torch8autograd6Engine7executeERKSt6vectorINS0_4EdgeESaIS3_EERKS2_IN2at6TensorESaIS9_EEbbbS7_")]
pub(crate) unsafe extern "C" fn execute() {
    stand_before!(before)
}

/// Marks a pass, and returns the real function's address.
unsafe extern "C" fn before(
    _engine: *const c_void,
    _edges: *const c_void,
    caller: *const c_void,
) -> *const c_void {
    let mut real = REAL.load(Ordering::Acquire);
    if real.is_null() {
        real = guarded(|| find(caller)).unwrap_or(std::ptr::null_mut());
    }
    if real.is_null() {
        return missing as *const c_void;
    }
    guarded(|| {
        if super::are_wanted() && !is_nested() {
            super::backward_begins();
        }
    });
    real
}

/// Whether the thread already computes a backward pass and this one is part of it; `false` with older versions of
/// torch.
fn is_nested() -> bool {
    let task = TASK.load(Ordering::Relaxed);
    // SAFETY: null, or torch's function of this name and type.
    let task = unsafe { std::mem::transmute::<*mut c_void, Option<CurrentTask>>(task) };
    // SAFETY: reads a variable of the thread.
    task.is_some_and(|task| unsafe { task() } != -1)
}

/// Finds torch's own functions: among the libraries of the caller (torch opens them without making them visible to
/// others), or in everything visible. Null if there is none.
fn find(caller: *const c_void) -> *mut c_void {
    let interposed = execute as *mut c_void;
    for library in [dlopen::library_of(caller), libc::RTLD_NEXT] {
        if library.is_null() {
            continue;
        }
        // SAFETY: handles of the loader, C strings.
        let (real, task) = unsafe {
            (libc::dlsym(library, EXECUTE.as_ptr()), libc::dlsym(library, CURRENT_TASK.as_ptr()))
        };
        if !real.is_null() && real != interposed {
            TASK.store(task, Ordering::Relaxed);
            REAL.store(real, Ordering::Release);
            return real;
        }
    }
    std::ptr::null_mut()
}

/// Called instead if no library of the process has the function: as the loader does with a symbol that nothing defines;
/// this library hid that from it.
unsafe extern "C" fn missing() {
    // SAFETY: ends the process.
    unsafe { libc::_exit(127) }
}
