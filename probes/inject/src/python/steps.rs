//! Marks of training steps.
//!
//! - `optimizer`: the end of a step of torch's optimizer, by torch's own hook;
//! - `backward`: backward passes of torch, by an interposed function;
//! - `monitoring`: calls of the function that the user named, and of the `__next__` of torch's
//!   `DataLoader`, by `sys.monitoring` (3.12 and later).
//!
//! Nothing is imported for this, and `sys.meta_path` stays as it is: `look` checks the modules that the program itself
//! has imported, at collections and at the first backward passes. Collections run all the time while torch is imported.

mod backward;
mod function;
mod monitoring;
mod optimizer;

use super::api::{PythonApi, api};
use super::object::OwnedRef;
use super::{apply, empty_cache, layers};
use crate::process_ring::{PythonRing, now_ns, options, ring, thread_cpu_ns, tid};
use crate::recording::guarded;
use gctrace_ring::{HookState, NO_TEXT, PythonMessage, StepMarker, TextId, WorkKind};
use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicIsize, AtomicU8, Ordering};

pub(crate) use function::begin;

/// A marker to watch once the program has imported the modules that it needs.
struct SoughtModules {
    /// The bit in [`SOUGHT`].
    bit: u8,
    names: &'static [&'static CStr],
    /// Called with the modules; `None` if this version of them lacks a needed part.
    watch: fn(&'static PythonApi, &[OwnedRef]) -> Option<()>,
}

const MODULES: [SoughtModules; 3] = [
    SoughtModules {
        bit: OPTIMIZER,
        names: &[c"torch.optim.optimizer", c"torch.compiler"],
        watch: optimizer::watch,
    },
    SoughtModules {
        bit: DATA_LOADER,
        names: &[c"torch.utils.data.dataloader"],
        watch: monitoring::watch_data_loader,
    },
    SoughtModules {
        bit: TORCH,
        names: &[c"torch._C"],
        watch: |api, modules| if are_recorded() { empty_cache::watch(api, modules) } else { None },
    },
];

const OPTIMIZER: u8 = 1;
const DATA_LOADER: u8 = 2;
const TORCH: u8 = 4;

/// Modules that the main interpreter has not imported yet. Torch supports no other interpreter.
static SOUGHT: AtomicU8 = AtomicU8::new(0);

/// Number of the imported modules at the last look.
static IMPORTED: AtomicIsize = AtomicIsize::new(0);

/// Whether marks are wanted.
#[inline]
fn are_wanted() -> bool {
    apply::is_active() || are_recorded()
}

/// Whether they are written.
#[inline]
fn are_recorded() -> bool {
    let Some(options) = options() else { return false };
    options.steps
}

/// Writes a mark. Needs no lock. [`apply::step`] follows, outside of [`guarded`]: it may run Python
/// code.
fn write(marker: StepMarker, name: &str) {
    if let Some(mark) = StartedMark::now(marker, name) {
        mark.write(mark.at_ns);
        mark.ring.spend(WorkKind::Step, mark.cpu_ns);
    }
}

/// A call that marks a step and has not returned.
#[derive(Clone, Copy)]
struct StartedMark {
    ring: &'static PythonRing,
    at_ns: u64,
    tid: u32,
    cpu_ns: u64,
    marker: StepMarker,
    name: TextId,
}

impl StartedMark {
    /// `None` if marks are not recorded.
    fn now(marker: StepMarker, name: &str) -> Option<Self> {
        if !are_recorded() {
            return None;
        }
        let (at_ns, cpu_ns) = (now_ns(), thread_cpu_ns());
        let ring = ring::<PythonMessage>()?;
        let name = match name {
            "" => NO_TEXT,
            _ => ring.text(name),
        };
        Some(Self { ring, at_ns, tid: tid(), cpu_ns, marker, name })
    }

    fn write(&self, end_ns: u64) {
        let Self { at_ns, tid, cpu_ns, marker, name, .. } = *self;
        self.ring.push(&PythonMessage::StepMark { at_ns, end_ns, tid, cpu_ns, marker, name });
    }
}

// Without a destructor: threads end in any order.
thread_local! {
    /// The request for a batch that has not returned. A request that raises, at the end of the data, never returns, and
    /// is written without a length before the next.
    static BATCH: Cell<Option<StartedMark>> = const { Cell::new(None) };
}

/// A request for the next batch of a `DataLoader` starts.
fn batch_begins(class: &str) {
    batch_raised();
    if let Some(mark) = StartedMark::now(StepMarker::DataLoader, class) {
        BATCH.set(Some(mark));
        mark.ring.spend(WorkKind::Step, mark.cpu_ns);
    }
}

/// It returns.
fn batch_ends() {
    if let Some(mark) = own_batch() {
        let (end_ns, cpu_ns) = (now_ns(), thread_cpu_ns());
        mark.write(end_ns);
        mark.ring.spend(WorkKind::Step, cpu_ns);
    }
}

/// It has raised, if there was one.
fn batch_raised() {
    if let Some(mark) = own_batch() {
        mark.write(mark.at_ns);
    }
}

/// This thread's request; not the request of the parent that forked it: its name is in the parent's ring.
fn own_batch() -> Option<StartedMark> {
    let mark = BATCH.take()?;
    if mark.tid == tid() { Some(mark) } else { None }
}

/// Begins to watch in a new interpreter. Its lock is held.
pub(super) fn install(api: &'static PythonApi) {
    if !are_wanted() {
        return;
    }
    let id = api.interpreter_id();
    if id == 0 {
        IMPORTED.store(0, Ordering::Relaxed);
        SOUGHT.store(OPTIMIZER | DATA_LOADER | TORCH, Ordering::Relaxed);
    }
    if function::named().is_some()
        && let Err(reason) = monitoring::watch_function(api)
        && let Some(ring) = ring::<PythonMessage>()
    {
        ring.push(&PythonMessage::Hook {
            at_ns: now_ns(),
            state: HookState::NotWatchingFunction,
            interpreter: id,
            detail: ring.text(reason),
            count: 0,
        });
    }
}

/// The main interpreter ends: its modules are about to go.
pub(super) fn end() {
    batch_raised();
    empty_cache::end();
    SOUGHT.store(0, Ordering::Relaxed);
}

/// A main interpreter is gone: nothing of it is used any more.
pub(super) fn forget() {
    empty_cache::forget();
    monitoring::forget();
    optimizer::forget();
}

/// Watches the modules that the program has imported since the last look. The main interpreter's
/// lock is held, and no exception is set.
#[inline]
pub(super) fn look(api: &'static PythonApi) {
    if SOUGHT.load(Ordering::Relaxed) != 0 {
        search(api);
    }
    empty_cache::look();
}

fn search(api: &'static PythonApi) {
    // SAFETY: the lock is held; the interpreter has its modules until `end`.
    let modules = unsafe { OwnedRef::share(api, (api.PyImport_GetModuleDict)()) };
    let count = modules.dictionary_size();
    if IMPORTED.swap(count, Ordering::Relaxed) == count {
        return;
    }
    for sought in MODULES {
        let imported = |name: &&CStr| modules.value(&OwnedRef::interned(api, name)?);
        let found: Option<Vec<OwnedRef>> = sought.names.iter().map(imported).collect();
        let Some(found) = found else { continue };
        if found.iter().any(is_initializing) {
            IMPORTED.store(0, Ordering::Relaxed);
        } else if SOUGHT.fetch_and(!sought.bit, Ordering::Relaxed) & sought.bit != 0 {
            let _ = (sought.watch)(api, &found);
        }
    }
}

/// Whether a module's code is still running (`importlib._bootstrap._load_unlocked`).
fn is_initializing(module: &OwnedRef) -> bool {
    let state = || module.attribute(c"__spec__")?.attribute(c"_initializing")?.number();
    state() == Some(1)
}

/// A backward pass starts, on a thread that need not hold the interpreter's lock.
fn backward_begins() {
    /// Passes that look for modules: the program may have collected nothing so far.
    const LOOKS: u8 = 8;
    static LOOKED: AtomicU8 = AtomicU8::new(0);
    write(StepMarker::Backward, "");
    apply::step_without_lock(StepMarker::Backward);
    layers::backward_begins();
    if SOUGHT.load(Ordering::Relaxed) & OPTIMIZER != 0
        && LOOKED.load(Ordering::Relaxed) < LOOKS
        && let Some(api) = api()
    {
        LOOKED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: may be called by any thread.
        unsafe { (api.Py_AddPendingCall)(pending_look, std::ptr::null_mut()) };
    }
}

/// Runs in the main thread of the main interpreter.
unsafe extern "C" fn pending_look(_argument: *mut c_void) -> c_int {
    guarded(|| {
        if let Some(api) = api() {
            look(api);
        }
    });
    0
}
