//! The loops of one thread, and when their counts are sent. Its memory is mapped, not allocated: a signal handler that
//! waits may have interrupted the heap.

use super::counts::{CollectedTime, LongTurn, LoopCounts};
use crate::confined::is_noticed;
use crate::memory;
use crate::process_ring::{PythonRing, now_ns, thread_cpu_ns, tid};
use gctrace_ring::{
    PythonMessage, RingLengthCount, RingLoop, RingTurn, RingTurns, TimeInterval, WaitCall, WorkKind,
};
use gctrace_units::{duration_ns, sum};
use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU64, compiler_fence};

/// Places of a thread where it may have a loop.
const PLACES: usize = 8;
/// With fewer turns a place is given up for a new one: requests wait at many.
const LEAST_TURNS: u64 = 20;
/// Counts are sent once a second at most, in ns.
const SENT_NS: u64 = 1_000_000_000;

/// Where a thread waits.
#[derive(Clone, Copy)]
pub(super) struct WaitPlace {
    pub(super) call: WaitCall,
    pub(super) argument: u32,
}

/// The loops of a thread, for that thread only. Its signal handlers find them in use.
pub(super) struct ThreadLoops {
    is_used: Cell<bool>,
    loops: UnsafeCell<Loops>,
}

/// All zeroes are none.
pub(super) struct Loops {
    /// Number of the ring that gets the counts. A forked child has another one, or none.
    ring: u32,
    sent_ns: u64,
    collected: CollectedTime,
    places: [LoopCounts; PLACES],
}

/// Time of a turn and of a reading of the CPU time in this library, with warm caches, in ns; 0: not yet timed.
static TURN_NS: AtomicU64 = AtomicU64::new(0);
static READING_NS: AtomicU64 = AtomicU64::new(0);

impl ThreadLoops {
    /// Memory for the loops of a thread; null: there is none.
    pub(super) fn map() -> *mut Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let size = size_of::<Self>();
        // SAFETY: a new mapping, placed by the kernel.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), size, rights, flags, -1, 0) };
        if memory == libc::MAP_FAILED { std::ptr::null_mut() } else { memory.cast() }
    }

    /// # Safety
    /// Mapped by [`ThreadLoops::map`], and not used any more.
    pub(super) unsafe fn unmap(loops: *mut Self) {
        if !is_noticed() {
            // SAFETY: as the caller promises.
            unsafe { libc::munmap(loops.cast(), size_of::<Self>()) };
        }
    }

    /// Runs `work`, unless they are in use.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Loops) -> T) -> Option<T> {
        if self.is_used.replace(true) {
            return None;
        }
        // for signal handlers of this thread
        compiler_fence(SeqCst);
        // SAFETY: of this thread alone, and not in use.
        let result = work(unsafe { &mut *self.loops.get() });
        compiler_fence(SeqCst);
        self.is_used.set(false);
        Some(result)
    }
}

impl Loops {
    /// The thread enters a call. Returns the index of its place if it may wait there.
    pub(super) fn enters(
        &mut self,
        place: WaitPlace,
        timeout_ns: u64,
        ring: &PythonRing,
    ) -> Option<usize> {
        let now_ns = now_ns();
        if now_ns == 0 {
            return None;
        }
        if self.ring != ring.number() {
            self.begin(ring.number(), now_ns);
        }
        let index = self.index(place, now_ns);
        let counts = self.places.get_mut(index)?;
        if let Some(long) = counts.waits(now_ns, timeout_ns, self.collected, thread_cpu_ns) {
            send_turn(place, &long, ring);
        }
        if duration_ns(self.sent_ns, now_ns) >= SENT_NS {
            self.send(now_ns, ring);
        }
        if timeout_ns > 0 { Some(index) } else { None }
    }

    /// The call at a place has returned.
    pub(super) fn returned(&mut self, index: usize, is_interrupted: bool) {
        match self.places.get_mut(index) {
            Some(counts) if is_interrupted => counts.interrupted(now_ns()),
            Some(counts) => counts.returns(now_ns(), self.collected),
            None => {}
        }
    }

    /// A collection of the thread took this time.
    pub(super) fn collected(&mut self, ns: u64, cpu_ns: u64) {
        self.collected.ns = sum([self.collected.ns, ns]);
        self.collected.cpu_ns = sum([self.collected.cpu_ns, cpu_ns]);
    }

    /// Forgets all of it: the process was forked. A turn of the child must not have its parent's time.
    fn begin(&mut self, ring: u32, now_ns: u64) {
        self.ring = ring;
        self.sent_ns = now_ns;
        self.places.iter_mut().for_each(|counts| counts.place = 0);
    }

    /// Where the place is; it replaces one of those with the fewest turns that are no loops. Too large: there is no room.
    fn index(&mut self, place: WaitPlace, now_ns: u64) -> usize {
        let key = place.key();
        if let Some(known) = self.places.iter().position(|counts| counts.place == key) {
            return known;
        }
        let turns =
            |counts: &LoopCounts| if counts.place == 0 { 0 } else { counts.all_turns() + 1 };
        // by chance, so that a loop stays among places that are seen once
        let order = |index: usize| index.wrapping_add(now_ns as usize) % PLACES;
        let places = self.places.iter_mut().enumerate();
        let fewest = places.min_by_key(|(index, counts)| (turns(counts), order(*index)));
        match fewest {
            Some((index, counts)) if turns(counts) <= LEAST_TURNS => {
                counts.begin(key, self.collected, thread_cpu_ns());
                index
            }
            _ => PLACES,
        }
    }

    /// Sends the counts, unless the calling thread may have interrupted itself in the heap.
    pub(super) fn send(&mut self, now_ns: u64, ring: &PythonRing) {
        if now_ns == 0 || self.ring != ring.number() || !memory::is_free() {
            return;
        }
        let interval = TimeInterval { start_ns: self.sent_ns, end_ns: now_ns };
        self.sent_ns = now_ns;
        let (mut turns, mut readings) = (0, 0);
        for counts in &mut self.places {
            let Some(place) = WaitPlace::of(counts.place) else { continue };
            if counts.counts.turns == 0 {
                continue;
            }
            let mut lengths = Vec::new();
            let taken =
                counts.take(|bucket, turns| lengths.push(RingLengthCount { bucket, turns }));
            turns += taken.turns;
            readings += taken.readings;
            ring.push(&PythonMessage::Turns(RingTurns {
                place: place.of_this_thread(),
                interval,
                turns: taken.turns,
                total_ns: taken.total_ns,
                longest_ns: taken.longest_ns,
                waits: taken.waits,
                waited_ns: taken.waited_ns,
                longest_busy_ns: taken.longest_busy_ns,
                lengths,
            }));
        }
        let turns_ns = turns * TURN_NS.load(Relaxed);
        let readings_ns = readings * READING_NS.load(Relaxed);
        ring.producer().spend_often(WorkKind::Turn, turns, turns_ns + readings_ns);
    }

    /// Times a turn and a reading of the CPU time, once in a process.
    pub(super) fn time(&mut self) {
        let [counts, ..] = &mut self.places;
        if TURN_NS.load(Relaxed) > 0 {
            return;
        }
        let collected = self.collected;
        counts.begin(0, collected, 0);
        let turn_ns = least_ns(|| {
            counts.waits(now_ns(), 1, collected, || 0);
            counts.returns(now_ns(), collected);
        });
        TURN_NS.store(turn_ns, Relaxed);
        READING_NS.store(least_ns(|| _ = thread_cpu_ns()), Relaxed);
    }
}

/// The shortest time of some work, in ns.
fn least_ns(mut work: impl FnMut()) -> u64 {
    const TIMED: usize = 8;
    let timed = (0..TIMED).map(|_| {
        let start_ns = now_ns();
        work();
        duration_ns(start_ns, now_ns())
    });
    timed.min().unwrap_or_default()
}

fn send_turn(place: WaitPlace, long: &LongTurn, ring: &PythonRing) {
    ring.push(&PythonMessage::Turn(RingTurn {
        place: place.of_this_thread(),
        interval: TimeInterval { start_ns: long.start_ns, end_ns: long.end_ns },
        in_pauses_ns: long.in_pauses_ns,
        cpu_ns: long.cpu_ns,
    }));
}

impl WaitPlace {
    /// As a number other than 0.
    fn key(self) -> u64 {
        (self.call as u64) << 32 | u64::from(self.argument)
    }

    fn of(key: u64) -> Option<Self> {
        let call = WaitCall::ALL.into_iter().find(|call| *call as u64 == key >> 32)?;
        Some(Self { call, argument: key as u32 })
    }

    fn of_this_thread(self) -> RingLoop {
        RingLoop { tid: tid(), call: self.call, argument: self.argument }
    }
}
