//! Sums of the collections of the main interpreter: an entry in `gc.callbacks`, a C function.

use crate::process_ring::{is_off, now_ns, thread_cpu_ns, tid};
use crate::python::api::{MethodDef, NULL, Object, PythonApi, api};
use crate::python::interpreter::method;
use crate::python::object::OwnedRef;
use crate::recording::guarded;
use gctrace_settings::{CollectionSums, SettledSteps};
use gctrace_units::{add_to, beyond, duration_ns, sum};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Time between two calls of `idle` in ns, at least.
static IDLE_EVERY_NS: AtomicU64 = AtomicU64::new(1_000_000_000);

/// Collections of the main interpreter in this process, and of its ancestors by fork before.
struct Sums {
    /// Collections, cyclic garbage in objects, time and CPU time in ns, of each generation.
    of_generations: [[AtomicU64; 3]; 4],
    /// The longest collection in ns since it was last reset.
    longest_ns: AtomicU64,
    /// Start of the running collection, CLOCK_MONOTONIC in ns, and CPU time of its thread then.
    start_ns: AtomicU64,
    start_cpu_ns: AtomicU64,
    /// CPU time that noting collections took since it was last taken, in ns.
    own_ns: AtomicU64,
    /// When `idle` was last asked for.
    idle_ns: AtomicU64,
}

static SUMS: Sums = Sums {
    of_generations: [const { [const { AtomicU64::new(0) }; 3] }; 4],
    longest_ns: AtomicU64::new(0),
    start_ns: AtomicU64::new(0),
    start_cpu_ns: AtomicU64::new(0),
    own_ns: AtomicU64::new(0),
    idle_ns: AtomicU64::new(0),
};

/// A requested call of `idle` has not run yet. The interpreter has room for 32 of them (`NPENDINGCALLS`, up to 3.12)
/// and runs them in the main thread. That thread may wait in C for long, and the program's own calls need the room.
static IDLE_IS_DUE: AtomicBool = AtomicBool::new(false);
/// After this time it is asked for again, in ns: a fork may have lost it.
const LOST_NS: u64 = 60_000_000_000;

/// The function called as each collection starts.
static LOOK: OnceLock<fn(&'static PythonApi)> = OnceLock::new();

static COLLECTION: MethodDef = method(c"gctrace_apply", collection);

/// The sums at one time.
#[derive(Clone, Copy, Default)]
pub(super) struct Totals(pub(super) [[u64; 3]; 4]);

/// The collections so far.
pub(super) fn totals() -> Totals {
    Totals(SUMS.of_generations.each_ref().map(|sums| sums.each_ref().map(|sum| sum.load(Relaxed))))
}

/// Has `idle` called as often as this from now on, in ns, if that is more often.
pub(super) fn idle_each(ns: u64) {
    IDLE_EVERY_NS.fetch_min(ns, Relaxed);
}

/// A call of `idle` runs.
pub(super) fn idle_runs() {
    IDLE_IS_DUE.store(false, Relaxed);
}

/// CPU time in ns that noting collections took since this was last asked.
pub(super) fn take_own_ns() -> u64 {
    SUMS.own_ns.swap(0, Relaxed)
}

/// The longest collection since the last [`forget_longest`], in ns.
pub(super) fn longest_ns() -> u64 {
    SUMS.longest_ns.load(Relaxed)
}

/// From now on only collections that are still to come count for the longest.
pub(super) fn forget_longest() {
    SUMS.longest_ns.store(0, Relaxed);
}

impl Totals {
    /// The difference to an earlier time.
    pub(super) fn since(self, before: Self) -> Self {
        self.with(before, beyond)
    }

    /// The sums without these.
    pub(super) fn plus(self, other: Self) -> Self {
        self.with(other, |one, other| sum([one, other]))
    }

    fn with(mut self, other: Self, work: fn(u64, u64) -> u64) -> Self {
        let values = self.0.iter_mut().flatten();
        for (value, other) in values.zip(other.0.into_iter().flatten()) {
            *value = work(*value, other);
        }
        self
    }

    /// Adds them to the sums of a time.
    pub(super) fn add_to(self, sums: &mut CollectionSums) {
        let parts = [&mut sums.collections, &mut sums.garbage, &mut sums.pause_ns];
        for (part, addends) in parts.into_iter().zip(self.0) {
            for (value, more) in part.iter_mut().zip(addends) {
                add_to(value, more);
            }
        }
        add_to(&mut sums.cpu_ns, self.cpu_ns());
    }

    /// Number of collections, by generation.
    pub(super) fn collections(self) -> [u64; 3] {
        let [collections, ..] = self.0;
        collections
    }

    /// Garbage of all generations, in objects.
    pub(super) fn garbage(self) -> u64 {
        let [_, garbage, ..] = self.0;
        garbage.into_iter().sum()
    }

    /// Time of all generations, in ns.
    pub(super) fn pause_ns(self) -> u64 {
        let [_, _, pause_ns, _] = self.0;
        pause_ns.into_iter().sum()
    }

    /// CPU time of all generations, in ns.
    pub(super) fn cpu_ns(self) -> u64 {
        let [.., cpu_ns] = self.0;
        cpu_ns.into_iter().sum()
    }
}

/// Work of the agent that makes no system call takes less than this, in ns: where it took longer, others had the CPU.
const SHORT_NS: u64 = 20_000;

/// When the agent began to work.
#[derive(Clone, Copy, Default)]
pub(super) struct WorkBegin {
    pub(super) wall_ns: u64,
    /// CPU time of the thread then, in ns. `None`: no system call was made since. Reading it is one, of a
    /// microsecond, and most steps need no other.
    cpu_ns: Option<u64>,
}

impl WorkBegin {
    pub(super) fn now() -> Self {
        Self { wall_ns: now_ns(), cpu_ns: None }
    }

    /// A system call follows; other threads often get the CPU there.
    pub(super) fn enters_kernel(&mut self) {
        if self.cpu_ns.is_none() {
            let worked_ns = duration_ns(self.wall_ns, now_ns()).min(SHORT_NS);
            self.cpu_ns = Some(beyond(thread_cpu_ns(), worked_ns));
        }
    }

    /// CPU time of the thread since, in ns.
    pub(super) fn cpu_ns_by(self, now: u64) -> u64 {
        match self.cpu_ns {
            None => duration_ns(self.wall_ns, now).min(SHORT_NS),
            Some(cpu_ns) => duration_ns(cpu_ns, thread_cpu_ns()),
        }
    }
}

/// The steps of a program that has settled, measured from the end of the last one before.
#[derive(Default)]
pub(super) struct SettlingSteps(Option<SettledSince>);

struct SettledSince {
    tid: u32,
    cpu_ns: u64,
    wall_ns: u64,
    totals: Totals,
}

impl SettlingSteps {
    /// The given number of steps has ended, at `now_ns`. `own_ns`: time of gctrace's own code; it is subtracted. Reads
    /// the thread's CPU time, a system call of a microsecond.
    pub(super) fn after(
        &mut self,
        steps: u64,
        now_ns: u64,
        own_ns: u64,
        totals: Totals,
    ) -> Option<SettledSteps> {
        /// As long as `gctrace auto` waits before it measures anything.
        const SET_UP: u64 = 50;
        let since_set_up = steps.checked_sub(SET_UP)?;
        let now = SettledSince {
            tid: tid(),
            cpu_ns: beyond(thread_cpu_ns(), own_ns),
            wall_ns: beyond(now_ns, own_ns),
            totals,
        };
        let Some(begun) = &self.0 else {
            self.0 = Some(now);
            return None;
        };
        let during = totals.since(begun.totals);
        Some(SettledSteps {
            steps: since_set_up,
            wall_ns: duration_ns(begun.wall_ns, now.wall_ns),
            cpu_ns: (now.tid == begun.tid).then(|| duration_ns(begun.cpu_ns, now.cpu_ns)),
            pause_ns: during.pause_ns(),
            collecting_ns: during.cpu_ns(),
            collections: during.collections(),
        })
    }
}

/// Adds the entry to `gc.callbacks`. `look` is called as each collection starts.
pub(super) fn install(
    api: &'static PythonApi,
    gc: &OwnedRef,
    look: fn(&'static PythonApi),
) -> Option<()> {
    let _ = LOOK.set(look);
    let callbacks = gc.attribute(c"callbacks")?;
    // SAFETY: the lock is held; the method is static, objects are alive.
    unsafe {
        let entry = (api.PyCFunction_NewEx)(&raw const COLLECTION, NULL, NULL);
        let entry = OwnedRef::new(api, entry)?;
        if (api.PyList_Append)(callbacks.object(), entry.object()) != 0 {
            (api.PyErr_Clear)();
            return None;
        }
    }
    Some(())
}

/// `gctrace_apply(phase, info)`, the entry.
unsafe extern "C" fn collection(_own: Object, arguments: *const Object, count: isize) -> Object {
    let Some(api) = api() else { return NULL };
    guarded(|| {
        let began_ns = now_ns();
        // SAFETY: the lock is held; the arguments number `count`.
        unsafe {
            if count == 2 && !is_off() {
                SUMS.called(api, *arguments, *arguments.add(1));
            }
        }
        let own_ns = duration_ns(began_ns, now_ns()).min(SHORT_NS);
        SUMS.own_ns.fetch_add(own_ns, Relaxed);
    });
    api.none()
}

impl Sums {
    /// # Safety
    /// The lock is held, the objects are alive.
    unsafe fn called(&self, api: &'static PythonApi, phase: Object, info: Object) -> Option<()> {
        let now = now_ns();
        // SAFETY: as the caller promises.
        let (phase, info) = unsafe { (OwnedRef::share(api, phase), OwnedRef::share(api, info)) };
        // SAFETY: may be called at any time. Not so late that modules are gone.
        let is_up = unsafe { (api.Py_IsInitialized)() } != 0;
        if phase.text()? != "stop" {
            if is_up && let Some(look) = LOOK.get() {
                look(api);
            }
            let cpu_ns = thread_cpu_ns();
            super::costs::started();
            self.start_cpu_ns.store(cpu_ns, Relaxed);
            self.start_ns.store(now_ns(), Relaxed);
            return None;
        }
        let cpu_ns = duration_ns(self.start_cpu_ns.load(Relaxed), thread_cpu_ns());
        let pause_ns = duration_ns(self.start_ns.load(Relaxed), now);
        let entry = |key| info.value(&OwnedRef::interned(api, key)?)?.number();
        let generation = usize::try_from(entry(c"generation")?).ok()?;
        let garbage = u64::try_from(entry(c"collected")?).ok()?;
        for (sums, value) in self.of_generations.iter().zip([1, garbage, pause_ns, cpu_ns]) {
            sums.get(generation)?.fetch_add(value, Relaxed);
        }
        self.longest_ns.fetch_max(pause_ns, Relaxed);
        super::costs::stopped(generation, garbage, cpu_ns);
        let since_ns = duration_ns(self.idle_ns.load(Relaxed), now);
        if is_up
            && since_ns > IDLE_EVERY_NS.load(Relaxed)
            && (since_ns > LOST_NS || !IDLE_IS_DUE.swap(true, Relaxed))
        {
            self.idle_ns.store(now, Relaxed);
            // SAFETY: may be called by any thread.
            unsafe { (api.Py_AddPendingCall)(super::idle, NULL) };
        }
        Some(())
    }
}
