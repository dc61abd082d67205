//! What collections find unreachable, by kind of object (`--garbage`).
//!
//! The objects are counted while they are still whole, on the collector's own list, where a
//! [`Sentinel`] leads to them (facts about the collector there and in `layout`). Everything is read
//! from memory; nothing of the program runs, and no object that the collector knows is created.
//!
//! - `sentinel`: our way into a collection;
//! - `layout`: the collector's list, objects and types in memory;
//! - `births`: the lines that allocated objects, both garbage and live objects;
//! - `samples`: the sampled blocks, thinned without bias; `reused`: blocks of types with free lists;
//! - `kinds`: types, code and lines; `bytes`: sizes; `tally`: the counts of one collection;
//! - `cycles`: what refers to what; `graph`: its components; `references`: names of references;
//! - `budget`: decides which collections are examined.

mod births;
mod budget;
mod bytes;
mod cycles;
mod graph;
mod kinds;
mod layout;
mod references;
mod reused;
mod samples;
mod sentinel;
mod tally;

use super::api::{Object, PythonApi};
use super::builtin::Builtin;
use super::object::OwnedRef;
use super::raw_frame::RawFrameLayout;
use crate::process_ring::{
    PythonRing, is_off, now_ns, options, process_cpu_ns, ring, thread_cpu_ns, tid,
};
pub(super) use births::{allocated, forget, freed, moved};
pub(super) use budget::Budget;
pub(super) use reused::wrapped_by;

use births::InstanceTypes;
use cycles::CycleReader;
use gctrace_ring::{
    GarbageDetail, InjectOptions, PythonMessage, RingAliveLine, RingGarbage, WorkKind,
};
use kinds::KindReader;
use references::ReferenceNames;
use sentinel::{Planted, Sentinel, take_back};
use std::sync::Mutex;
use tally::Tally;

/// Lines of live objects that are written at once, with most objects first: of 4,096 samples at most, the other lines
/// have 16 each on average.
const ALIVE_LINES: usize = 128;

/// Minimum time between two looks at live objects, in ns, and as a part of the time since the first look: 150 looks in
/// an hour.
const ALIVE_APART_NS: u64 = 2_000_000_000;
const ALIVE_APART_PART: u64 = 64;

/// When to look at live objects.
#[derive(Default)]
struct AliveLooks {
    /// Number of the ring with the looks, and the time of the first look, in ns.
    ring: u32,
    first_ns: u64,
    next_ns: u64,
    /// After the collection in progress.
    is_due: bool,
}

/// Examines the garbage of one interpreter.
pub(crate) struct GarbageHook {
    /// Not behind the lock: it must be taken back.
    planted: Planted,
    /// `None`: nothing is examined, or no longer. Never waited for.
    examiner: Mutex<Option<GarbageExaminer>>,
}

struct GarbageExaminer {
    api: &'static PythonApi,
    sentinel: Sentinel,
    get_debug: Builtin,
    budget: Budget,
    /// CPU time of examining in the call of the collector's entry that is running, in ns.
    spent_ns: u64,
    reader: KindReader,
    tally: Tally,
    /// `None`: not requested.
    cycles: Option<CycleReader>,
    alive: AliveLooks,
    /// The collector is not as it is known: nothing is examined any more.
    gave_up: bool,
}

impl GarbageExaminer {
    /// `found` makes the callback of the sentinel's weak reference.
    fn new(
        api: &'static PythonApi,
        interpreter: i64,
        options: &InjectOptions,
        found: impl FnOnce() -> Option<OwnedRef>,
    ) -> Result<Self, &'static str> {
        if api.is_free_threaded() {
            return Err("free-threaded builds have no list of it");
        }
        let unknown = "gctrace does not know this build";
        let callback = found().ok_or(unknown)?;
        let gc = OwnedRef::import(api, c"gc");
        let get_debug =
            gc.and_then(|gc| Builtin::find(api, &gc, c"get_debug", |function| function));
        let minor = api.minor().ok_or(unknown)?;
        let raw = RawFrameLayout::verified(api);
        // Others' allocations are not sampled.
        let samples = options.allocations && interpreter == 0;
        let types = if samples { InstanceTypes::new(api) } else { None };
        let instances = match types {
            Some(types) if births::begin(api, minor, raw).is_some() => Some(types),
            _ => None,
        };
        let cycles = match options.garbage {
            GarbageDetail::Cycles => Some(CycleReader::new(ReferenceNames::new(api, minor, raw))),
            _ => None,
        };
        Ok(Self {
            api,
            sentinel: Sentinel::new(api, callback).ok_or(unknown)?,
            get_debug: get_debug.ok_or(unknown)?,
            budget: Budget::new(options.garbage_budget_ppm, 0),
            spent_ns: 0,
            reader: KindReader::new(api, minor, raw, instances).ok_or(unknown)?,
            tally: Tally::new(),
            cycles,
            alive: AliveLooks::default(),
            gave_up: false,
        })
    }

    /// Adds the CPU time of the work since the thread's CPU time was `begun_ns`; the budget is a share of CPU time.
    /// Clock time would be longer beside other programs.
    fn spend(&mut self, begun_ns: u64) {
        let cost_ns = gctrace_units::duration_ns(begun_ns, thread_cpu_ns());
        self.budget.spend(cost_ns, process_cpu_ns);
        self.spent_ns += cost_ns;
        if let Some(ring) = ring::<PythonMessage>() {
            ring.producer().spend(WorkKind::Garbage, cost_ns);
        }
    }

    /// Gives fresh births their lines.
    fn settle_births(&mut self) {
        if self.reader.finds_births() {
            let begun_ns = thread_cpu_ns();
            if births::settle() {
                self.spend(begun_ns);
            }
        }
    }

    /// Whether to look at live objects after the collection that starts.
    fn looks_at_alive(&mut self) -> bool {
        self.alive.is_due = self.reader.finds_births() && now_ns() >= self.alive.next_ns;
        self.alive.is_due
    }

    /// Writes live objects by line of birth, if it is time.
    fn look_at_alive(&mut self) {
        if !std::mem::take(&mut self.alive.is_due) {
            return;
        }
        let (now, begun_ns) = (now_ns(), thread_cpu_ns());
        let Some(ring) = ring::<PythonMessage>() else { return };
        if self.alive.ring != ring.number() {
            self.alive = AliveLooks { ring: ring.number(), first_ns: now, ..AliveLooks::default() };
        }
        let apart_ns = ALIVE_APART_NS.max((now - self.alive.first_ns) / ALIVE_APART_PART);
        self.alive.next_ns = now + apart_ns;
        let lines = births::alive(ALIVE_LINES);
        let lines = lines.iter().map(|(line, objects, bytes)| {
            let (function, file) = (ring.text(&line.function), ring.text(&line.file));
            let frame = ring.frame(0, function, file, line.line);
            RingAliveLine { frame, objects: *objects, bytes: *bytes }
        });
        ring.push(&PythonMessage::Alive { at_ns: now, lines: lines.collect() });
        self.spend(begun_ns);
    }

    /// Whether the collector prints or keeps the garbage that it finds (`gc.set_debug`): then the sentinel would be
    /// seen.
    fn is_debugging(&self) -> bool {
        let Some(flags) = self.get_debug.call(self.api, &[]) else { return true };
        flags.number() != Some(0)
    }

    /// Walks the list of the unreachable. `None` if it is not as expected.
    fn examine(
        &mut self,
        interpreter: i64,
        ring: &PythonRing,
        [sentinel, other]: [Object; 2],
    ) -> Option<()> {
        let (at_ns, begun_ns) = (now_ns(), thread_cpu_ns());
        self.tally.clear();
        let (tally, reader) = (&mut self.tally, &self.reader);
        let mut cycles = self.cycles.as_mut();
        // SAFETY: called by the weak reference of the sentinel, with the lock; so its list is the
        // collector's, and everything on it is whole.
        unsafe {
            layout::walk(sentinel, |object| {
                if object != other {
                    let kind = tally.count(reader, object);
                    if let Some(cycles) = &mut cycles {
                        cycles.add(object, kind);
                    }
                }
            })
        }?;
        if self.tally.objects() > 0 {
            // SAFETY: as above.
            let garbage = unsafe { self.garbage(interpreter, ring, at_ns) };
            ring.push(&PythonMessage::Garbage(garbage));
        }
        self.spend(begun_ns);
        Some(())
    }

    /// The counts since `at_ns`, with cycles.
    ///
    /// # Safety
    /// The lock is held; the objects are still on the collector's list.
    unsafe fn garbage(&mut self, interpreter: i64, ring: &PythonRing, at_ns: u64) -> RingGarbage {
        // SAFETY: as the caller promises.
        let numbers = unsafe { self.tally.numbers(&mut self.reader, ring) };
        // SAFETY: as above.
        let births = unsafe { self.tally.births(&mut self.reader, ring) };
        let kinds = self.tally.by_kind(&numbers);
        let (tally, budget) = (&self.tally, &mut self.budget);
        let cycles = self.cycles.as_mut().and_then(|cycles| {
            let found = match budget.affords(cycles.estimate_ns(), process_cpu_ns) {
                // SAFETY: as above.
                true => unsafe { cycles.examine(ring, tally, &numbers) },
                false => None,
            };
            cycles.clear();
            found
        });
        RingGarbage {
            at_ns,
            tid: tid(),
            interpreter,
            objects: self.tally.objects(),
            cost_ns: gctrace_units::duration_ns(at_ns, now_ns()),
            kinds,
            births,
            cycles,
        }
    }
}

impl GarbageHook {
    /// Examines nothing until it is installed.
    pub(super) const fn new() -> Self {
        Self { planted: Planted::new(std::ptr::null_mut()), examiner: Mutex::new(None) }
    }

    /// Starts to examine the garbage of an interpreter, if that is requested; `Err`: why that is
    /// impossible. The lock is held. `found` makes the function that calls [`Self::found`].
    pub(super) fn install(
        &self,
        api: &'static PythonApi,
        interpreter: i64,
        found: impl FnOnce() -> Option<OwnedRef>,
    ) -> Result<(), &'static str> {
        let options = match options() {
            Some(options) if options.garbage != GarbageDetail::Off => options,
            _ => return Ok(()),
        };
        let made = GarbageExaminer::new(api, interpreter, options, found)?;
        if let Ok(mut examiner) = self.examiner.try_lock() {
            *examiner = Some(made);
        }
        Ok(())
    }

    /// A collection starts; the last moment before it looks at objects. The lock is held. Returns the counted CPU time
    /// of examining, in ns.
    pub(super) fn begin(&self, is_oldest: bool) -> u64 {
        if let Ok(mut examiner) = self.examiner.try_lock()
            && let Some(examiner) = &mut *examiner
            && !examiner.gave_up
        {
            let looks = examiner.looks_at_alive();
            let examines = examiner.budget.is_due(is_oldest) && !examiner.is_debugging();
            if looks || examines || births::is_crowded() {
                examiner.settle_births();
            }
            if examines {
                examiner.sentinel.plant(&self.planted);
            }
            return std::mem::take(&mut examiner.spent_ns);
        }
        0
    }

    /// A collection ended. The lock is held. Returns the same.
    pub(super) fn end(&self) -> u64 {
        if let Ok(mut examiner) = self.examiner.try_lock()
            && let Some(examiner) = &mut *examiner
        {
            examiner.sentinel.end(&self.planted);
            // The time for the list of unreachable objects belongs to the collection.
            examiner.spent_ns = 0;
            if !is_off() {
                examiner.look_at_alive();
            }
            return std::mem::take(&mut examiner.spent_ns);
        }
        0
    }

    /// The list of the unreachable is complete: called by the weak reference of the sentinel. The
    /// lock is held. `Err`: why nothing is examined any more.
    pub(super) fn found(
        &self,
        api: &'static PythonApi,
        interpreter: i64,
    ) -> Result<(), &'static str> {
        // First of all, and whatever happens: the collection must not free it.
        let Some(taken) = take_back(api, &self.planted) else { return Ok(()) };
        let Ok(mut place) = self.examiner.try_lock() else { return Ok(()) };
        let Some(examiner) = &mut *place else { return Ok(()) };
        examiner.sentinel.was_called();
        if is_off() {
            return Ok(());
        }
        let Some(ring) = ring::<PythonMessage>() else { return Ok(()) };
        if examiner.examine(interpreter, ring, taken.objects()).is_none() {
            examiner.gave_up = true;
            return Err("its list in memory is not as expected");
        }
        Ok(())
    }

    /// Examines nothing more, and releases objects of the ending interpreter. The lock is held.
    pub(super) fn finish(&self, api: &'static PythonApi) {
        let is_whole = !is_off();
        if is_whole {
            drop(take_back(api, &self.planted));
        }
        if let Ok(mut examiner) = self.examiner.try_lock() {
            let last = examiner.take();
            drop(examiner);
            if is_whole && matches!(&last, Some(last) if last.reader.finds_births()) {
                births::end();
            }
            if is_whole {
                drop(last);
            } else {
                // Whether the sentinel was taken back the last time is unknown.
                std::mem::forget(last);
            }
        }
    }
}
