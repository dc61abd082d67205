//! The functions that the collector calls: the entry in `gc.callbacks`, at the start and the end of each collection,
//! and the weak reference of the sentinel, where the list of the unreachable is complete.
//!
//! Called by the collector with the interpreter's lock held and no exception set
//! (`invoke_gc_callback` in Modules/gcmodule.c, Python/gc.c), and with `collecting` set:
//! allocations here trigger no collection.

use super::api::{MethodDef, NULL, Object, PythonApi, api};
use super::interpreter::{HookedInterpreter, InterpreterState, OLDEST, behind, callable, method};
use super::object::{OwnedRef, number};
use super::{apply, asked, empty_cache, steps};
use crate::confined::{is_noticed, is_without_clock};
use crate::process_ring::{
    PythonRing, existing_ring, is_off, lose_without_ring, now_ns, ring, thread_cpu_ns, tid,
};
use crate::recording::{expected, guarded};
use crate::turns;
use gctrace_ring::{HookState, LostKind, PythonMessage, RingPause, TimeInterval, WorkKind};
use gctrace_units::{duration_ns, u32_or_most};
use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Name of the entry.
const NAME: &CStr = c"gctrace_callback";
pub(crate) const NAME_TEXT: &str = "gctrace_callback";

pub(crate) static METHOD: MethodDef = method(NAME, callback);
static FOUND: MethodDef = method(c"gctrace_garbage", found);

/// Minimum length of a pause in ns for reading the whole stack and the settings: a few microseconds more do not matter
/// then.
const LONG: u64 = 50_000;

/// `callback(phase, info)`.
unsafe extern "C" fn callback(capsule: Object, arguments: *const Object, count: isize) -> Object {
    // The function was created by it.
    let Some(api) = expected(api()) else {
        return NULL;
    };
    guarded(|| {
        // SAFETY: the collector holds the lock; the capsule is ours; the arguments number `count`.
        unsafe {
            if let (Some(interpreter), 2) = (behind(api, capsule), count) {
                interpreter.called(*arguments, *arguments.add(1));
            }
        }
    });
    api.none()
}

/// The callback of the sentinel's weak reference.
unsafe extern "C" fn found(capsule: Object, _: *const Object, _: isize) -> Object {
    // The function was created by it.
    let Some(api) = expected(api()) else {
        return NULL;
    };
    guarded(|| {
        // SAFETY: the collector holds the lock; the capsule is ours.
        if let Some(interpreter) = unsafe { behind(api, capsule) } {
            let done = interpreter.garbage.found(interpreter.api, interpreter.id);
            interpreter.garbage_state(done);
        }
    });
    api.none()
}

impl HookedInterpreter {
    /// Starts to examine its garbage, if that is requested. The lock is held.
    pub(super) fn examine_garbage(&'static self) {
        let found = || callable(self, &FOUND, None);
        self.garbage_state(self.garbage.install(self.api, self.id, found));
    }

    /// Reports why its garbage is not examined, if it is not.
    fn garbage_state(&self, state: Result<(), &str>) {
        if let (Err(reason), Some(ring)) = (state, ring::<PythonMessage>()) {
            self.report(ring, HookState::NotExaminingGarbage, reason, 0);
        }
    }
}

/// The longest call of the entry at a young collection, in ns. A longer call has waited for a CPU: apart from
/// examining, no work at a young collection takes so long. The CPU time is not read then: its clock needs a system
/// call.
const LONGEST_YOUNG: u64 = 100_000;

/// A call of the entry. Its CPU time is the library's.
struct EntryWork {
    called_ns: u64,
    /// CPU time of the thread; `None` at young collections: they are frequent.
    cpu_ns: Option<u64>,
}

impl EntryWork {
    fn begun(called_ns: u64, generation: u8) -> Self {
        let cpu_ns = if generation == OLDEST { thread_cpu_ns() } else { 0 };
        Self { called_ns, cpu_ns: if cpu_ns > 0 { Some(cpu_ns) } else { None } }
    }

    /// Time that it took by now, without examining.
    fn took_ns(&self, examined_ns: u64) -> u64 {
        match self.cpu_ns {
            Some(cpu_ns) => duration_ns(cpu_ns + examined_ns, thread_cpu_ns()),
            None => duration_ns(self.called_ns, now_ns()).min(LONGEST_YOUNG),
        }
    }
}

/// The bytes of a text; `None`: the object is not a text.
///
/// # Safety
/// The lock is held, and the object stays alive as long as the bytes are used.
unsafe fn bytes_of<'a>(api: &PythonApi, text: Object) -> Option<&'a [u8]> {
    let mut length = 0;
    // SAFETY: as the caller promises; the bytes live as long as the object.
    unsafe {
        let bytes = (api.PyUnicode_AsUTF8AndSize)(text, &raw mut length);
        if bytes.is_null() {
            (api.PyErr_Clear)();
            return None;
        }
        Some(std::slice::from_raw_parts(bytes.cast(), usize::try_from(length).ok()?))
    }
}

impl HookedInterpreter {
    /// # Safety
    /// The lock is held, the objects are alive.
    unsafe fn called(&'static self, phase: Object, info: Object) {
        // SAFETY: as the caller promises.
        let is_end = match unsafe { bytes_of(self.api, phase) } {
            Some(b"start") => false,
            Some(b"stop") => true,
            Some(b"summary") => {
                // SAFETY: as the caller promises.
                let into = unsafe { OwnedRef::share(self.api, info) };
                let _untold = self.tell_sums(&into);
                return;
            }
            _ => return,
        };
        if is_off() {
            if is_without_clock() && is_end {
                lose_without_ring();
            }
            return;
        }
        // At the end of a collection, its end. The start is read last, when all other work is done.
        let mut called_ns = now_ns();
        let end_ns = called_ns;
        let end_cpu_ns = if is_end { thread_cpu_ns() } else { 0 };
        let Ok(mut state) = self.state.try_lock() else {
            if is_end && let Some(ring) = existing_ring::<PythonMessage>() {
                ring.lose(LostKind::Pauses, 1);
            }
            return;
        };
        // SAFETY: as above.
        let numbers = unsafe { CollectionNumbers::of(self.api, info, is_end) };
        // Missing only if the program calls the entry itself.
        let Some(Ok(generation)) = numbers.generation.map(u8::try_from) else {
            return;
        };
        let introduced = state.introduced;
        let Some(ring) = self.own_ring(&mut state) else {
            if is_end {
                state.sums.missed += 1;
                lose_without_ring();
            }
            return;
        };
        if state.introduced != introduced {
            // The time of that work is not the collection's.
            called_ns = now_ns();
        }
        let work = EntryWork::begun(called_ns, generation);
        if !is_end {
            self.report_calls(&mut state, ring);
            let examined_ns = self.begun(&mut state, ring, generation);
            state.start_work_ns = work.took_ns(examined_ns);
            self.watch_calls(&state);
            return;
        }
        self.unwatch_calls();
        self.report_calls(&mut state, ring);
        let examined_ns = self.garbage.end();
        let interval = TimeInterval { start_ns: state.start_ns, end_ns };
        let start_cpu_ns = std::mem::take(&mut state.start_cpu_ns);
        let cpu_ns = if start_cpu_ns > 0 { end_cpu_ns.checked_sub(start_cpu_ns) } else { None };
        let objects = |count: Option<i64>| count.map(u32_or_most);
        let pause = RingPause {
            interval,
            tid: tid(),
            generation,
            interpreter: self.id,
            collected: objects(numbers.collected),
            uncollectable: objects(numbers.uncollectable),
            frame: 0,
            reason: state.reason,
            oldest_objects: match generation {
                OLDEST => self.collector.oldest_objects(),
                _ => None,
            },
            freed_bytes: state.memory.end(),
            cpu_ns,
        };
        if state.start_ns > 0 {
            turns::collected(duration_ns(state.start_ns, end_ns), cpu_ns);
        }
        empty_cache::collected(&std::mem::take(&mut state.device_memory), ring, pause.interval);
        self.ended(&mut state, ring, pause);
        let start_ns = std::mem::take(&mut state.start_work_ns);
        ring.producer().spend(WorkKind::Collection, start_ns + work.took_ns(examined_ns));
        ring.producer().spend(WorkKind::Calls, 2 * call_ns());
    }

    /// This process's ring; the interpreter has been reported to it.
    #[inline]
    fn own_ring(&self, state: &mut InterpreterState) -> Option<&'static PythonRing> {
        match existing_ring::<PythonMessage>() {
            Some(ring) if ring.number() == state.introduced => Some(ring),
            _ => self.introduce(state),
        }
    }

    /// Returns the CPU time of examining, in ns.
    fn begun(&self, state: &mut InterpreterState, ring: &PythonRing, generation: u8) -> u64 {
        if self.id == 0 && state.live.is_some() {
            steps::look(self.api);
        }
        if std::mem::take(&mut state.settings_are_due) || generation == OLDEST {
            self.read_settings(ring, state, 0);
        }
        if generation == OLDEST {
            // Code that only the cache still references must be gone after a full collection, as it
            // is without gctrace.
            state.frames.forget();
        }
        state.reason = asked::reason(state, generation);
        let mut examined_ns = 0;
        if state.live.is_some() && !is_noticed() {
            examined_ns = self.garbage.begin(generation == OLDEST);
            state.memory.begin(generation == OLDEST);
            if self.id == 0 && generation == OLDEST {
                state.device_memory = empty_cache::before_collection();
            }
        }
        let tid = tid();
        state.start_cpu_ns = thread_cpu_ns();
        let at_ns = now_ns();
        state.start_ns = at_ns;
        ring.push(&PythonMessage::PauseStart { at_ns, tid, generation, interpreter: self.id });
        examined_ns
    }

    fn ended(&self, state: &mut InterpreterState, ring: &PythonRing, mut pause: RingPause) {
        let interval = &mut pause.interval;
        // Its start was not seen: the entry was added during the collection.
        if std::mem::take(&mut state.start_ns) == 0 {
            interval.start_ns = interval.end_ns;
        }
        let is_long = duration_ns(interval.start_ns, interval.end_ns) > LONG;
        if state.live.is_some() && self.stack_depth > 0 {
            pause.frame = if is_long && self.stack_depth > 1 {
                state.frames.stack(self.api, ring, self.stack_depth)
            } else {
                state.frames.innermost(self.api, ring)
            };
        }
        state.seen += 1;
        state.sums.add(&pause);
        ring.push(&PythonMessage::Pause(pause));
        state.settings_are_due |= is_long && !self.sees_settings();
    }

    /// Whether changes of the settings are noticed when they are made. Changes by C code are not: full collections show
    /// them.
    fn sees_settings(&self) -> bool {
        self.id == 0 && asked::is_watched() && !apply::is_active()
    }
}

impl HookedInterpreter {
    /// The phase `summary`: the Python package asks for this entry's sums, and gets them in the dictionary. Without an
    /// answer it has nothing, as with an older library.
    fn tell_sums(&self, into: &OwnedRef) -> Option<()> {
        let since = OwnedRef::interned(self.api, c"since")?;
        let since = into.value(&since).and_then(|since| since.number()).unwrap_or(0);
        // Not locked while Python allocates.
        let (generations, missed, longest_ns) = {
            let sums = &self.state.try_lock().ok()?.sums;
            (sums.generations, sums.missed, sums.longest_since(since.cast_unsigned()))
        };
        let insert = |key: &CStr, value: u64| {
            into.insert(key, &OwnedRef::integer(self.api, value.cast_signed())?)
        };
        for ([pauses, time, collected], sums) in SUM_KEYS.iter().zip(generations) {
            insert(pauses, sums.pauses)?;
            insert(time, sums.time_ns)?;
            insert(collected, sums.collected)?;
        }
        insert(c"missed", missed + u64::from(is_off()))?;
        insert(c"longest_ns", longest_ns)
    }
}

/// Keys of the answer, by generation.
const SUM_KEYS: [[&CStr; 3]; 3] = [
    [c"pauses0", c"time_ns0", c"collected0"],
    [c"pauses1", c"time_ns1", c"collected1"],
    [c"pauses2", c"time_ns2", c"collected2"],
];

/// Time that CPython takes to call an entry, in ns.
static CALL_NS: AtomicU64 = AtomicU64::new(0);

fn call_ns() -> u64 {
    CALL_NS.load(Ordering::Relaxed)
}

impl HookedInterpreter {
    /// Times calls of the entry as CPython makes them (`invoke_gc_callback`), with a phase that the
    /// entry ignores, once in a process. The least counts: a few microseconds in total.
    pub(super) fn time_calls(&self, state: &InterpreterState) -> Option<()> {
        const TIMED: usize = 8;
        if call_ns() > 0 {
            return None;
        }
        // SAFETY: the lock is held; the list has the entry, and the entry is alive.
        let entry = unsafe { OwnedRef::share(self.api, state.live.as_ref()?.entry) };
        let phase = OwnedRef::interned(self.api, c"gctrace")?;
        let mut least_ns = u64::MAX;
        for _ in 0..TIMED {
            let start_ns = now_ns();
            let info = OwnedRef::dictionary(self.api)?;
            for name in [c"generation", c"collected", c"uncollectable"] {
                info.insert(name, &OwnedRef::integer(self.api, 0)?)?;
            }
            entry.call_all(&[&phase, &info])?;
            drop(info);
            least_ns = least_ns.min(duration_ns(start_ns, now_ns()));
        }
        CALL_NS.store(least_ns, Ordering::Relaxed);
        Some(())
    }
}

/// `generation`, `collected` and `uncollectable` from the dictionary that the collector passes to callbacks. Two letters
/// distinguish them. `None`: it was not read, or is missing.
#[derive(Default)]
struct CollectionNumbers {
    generation: Option<i64>,
    collected: Option<i64>,
    uncollectable: Option<i64>,
}

impl CollectionNumbers {
    /// At the start of a collection only the generation, at the end all. They are read in order: CPython makes the
    /// dictionary and its keys anew each time, so that looking a key up compares texts.
    ///
    /// # Safety
    /// The lock is held, the objects are alive.
    unsafe fn of(api: &PythonApi, info: Object, is_end: bool) -> Self {
        let mut numbers = Self::default();
        let (mut at, mut key, mut value) = (0, NULL, NULL);
        // SAFETY: as the caller promises; keys and values are borrowed from the dictionary.
        while unsafe { (api.PyDict_Next)(info, &raw mut at, &raw mut key, &raw mut value) } != 0 {
            // SAFETY: as above.
            let (place, is_last) = match unsafe { bytes_of(api, key) } {
                Some([b'g', b'e', ..]) => (&mut numbers.generation, !is_end),
                Some([b'c', b'o', ..]) => (&mut numbers.collected, false),
                Some([b'u', b'n', ..]) => (&mut numbers.uncollectable, true),
                _ => continue,
            };
            *place = number(api, value);
            if is_last {
                break;
            }
        }
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// As beside other programs that have the CPU meanwhile.
    #[test]
    fn waiting_for_a_cpu_is_no_work() {
        for generation in [0, OLDEST] {
            let work = EntryWork::begun(now_ns(), generation);
            std::thread::sleep(Duration::from_millis(200));
            assert!(work.took_ns(0) < 100_000_000, "{generation}");
        }
    }
}
