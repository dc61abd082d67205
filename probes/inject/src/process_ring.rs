//! This process: its options, its rings, and whether it was forked.
//!
//! Owns the rings and their numbers for texts and frames. Knows nothing of Python or CUPTI.
//! Everything here may be called from any thread at any time, also in a forked child; nothing
//! unwinds, and nothing waits except for another thread that writes a name.

use crate::names::{CycleKey, ObjectKindKey, RingNames};
use crate::seccomp;
use gctrace_ring::{
    Absence, InjectOptions, LostKind, NO_TEXT, OwnerMark, RingHello, RingProducer, RingRecord,
    RingRole, TextId, offer, pieces,
};
use std::cell::Cell;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, TryLockError};

/// The options, and where gctrace listens.
struct RecordingRequest {
    options: InjectOptions,
    rendezvous: Vec<u8>,
    /// Null in a forked child.
    mark: OwnerMark,
}

static REQUEST: OnceLock<RecordingRequest> = OnceLock::new();

/// Stores the options of this process. Called once, before anything else here.
pub(crate) fn begin(options: InjectOptions, rendezvous: Vec<u8>) {
    if let Some(mark) = OwnerMark::new() {
        let _ = REQUEST.set(RecordingRequest { options, rendezvous, mark });
    }
}

/// The request; `None` if there is none, or recording was switched off.
fn request() -> Option<&'static RecordingRequest> {
    REQUEST.get().filter(|_| !is_off())
}

/// The options; `None` if gctrace did not set them, or recording was switched off.
pub(crate) fn options() -> Option<&'static InjectOptions> {
    request().map(|request| &request.options)
}

/// Where programs started from here are reported; `None` if not requested.
pub(crate) fn follows_to() -> Option<&'static [u8]> {
    let request = request()?;
    let options = &request.options;
    (options.follow && (options.collections || options.heap > 0)).then_some(&request.rendezvous)
}

/// Where full collections are reported; `None` if not requested, or if this process has confined
/// itself since, which is reported.
pub(crate) fn reports_heap_to() -> Option<&'static [u8]> {
    let request = request().filter(|request| request.options.heap > 0)?;
    if seccomp::is_confined(request.options.filters) {
        Absence::Confined.report(&request.rendezvous);
        return None;
    }
    Some(&request.rendezvous)
}

/// Reports why this process hands over no ring, if gctrace asked for one.
pub(crate) fn report_absence(why: Absence) {
    if let Some(request) = request() {
        why.report(&request.rendezvous);
    }
}

/// Whether this process was forked, without an exec since, from one in which this library was
/// active.
pub(crate) fn is_forked() -> bool {
    REQUEST.get().is_some_and(|request| !request.mark.is_mine())
}

/// Nanoseconds of CLOCK_MONOTONIC.
#[inline]
pub(crate) fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to a variable of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Number of rings created in this process and its ancestors: also the number of the latest.
static RINGS: AtomicU32 = AtomicU32::new(0);

/// A ring of this process, with numbers for the texts and frames in it.
pub(crate) struct ProcessRing {
    producer: RingProducer,
    mark: OwnerMark,
    number: u32,
    names: Mutex<RingNames>,
}

/// Pointer to the ring of each role: null before it is requested. A forked child finds its
/// parent's, with the owner mark wiped. Never freed: a thread may be writing.
static PYTHON: AtomicPtr<ProcessRing> = AtomicPtr::new(std::ptr::null_mut());
static GPU: AtomicPtr<ProcessRing> = AtomicPtr::new(std::ptr::null_mut());

/// Stands for a ring that could not be created; not retried, in children neither.
fn refused() -> *mut ProcessRing {
    std::ptr::without_provenance_mut(align_of::<ProcessRing>())
}

/// This process's ring for a role, created and handed over at the first call; `None` if gctrace did
/// not request it or no longer listens.
#[inline]
pub(crate) fn ring(role: RingRole) -> Option<&'static ProcessRing> {
    existing_ring(role).or_else(|| first_ring(role))
}

/// The ring, if it has been created already.
#[inline]
pub(crate) fn existing_ring(role: RingRole) -> Option<&'static ProcessRing> {
    published(place(role).load(Ordering::Acquire))
}

/// The ring of this process behind a pointer of `PYTHON` or `GPU`.
#[inline]
fn published(pointer: *mut ProcessRing) -> Option<&'static ProcessRing> {
    if pointer.is_null() || pointer == refused() {
        return None;
    }
    // SAFETY: published by `first_ring`, never freed.
    let ring = unsafe { &*pointer };
    ring.mark.is_mine().then_some(ring)
}

/// Recording was switched off, in this process or an ancestor by fork.
static OFF: AtomicBool = AtomicBool::new(false);

/// Whether recording was switched off.
#[inline]
pub(crate) fn is_off() -> bool {
    OFF.load(Ordering::Relaxed)
}

/// Records nothing more in this process and the processes that it forks, because of a fault at
/// `place` in this library. Reports the first one to gctrace, in the rings or, without any, as an
/// absence. Allocates nothing, and takes no lock: may be called anywhere, also between fork and
/// exec.
#[cold]
pub(crate) fn switch_off(place: &Location<'_>) {
    if OFF.swap(true, Ordering::AcqRel) {
        return;
    }
    let mut has_ring = false;
    for ring in [&PYTHON, &GPU] {
        // Never freed: threads that have it finish what they write.
        if let Some(ring) = published(ring.swap(refused(), Ordering::AcqRel)) {
            ring.producer.switch_off(now_ns(), format_args!("{}:{}", place.file(), place.line()));
            has_ring = true;
        }
    }
    if let Some(request) = REQUEST.get().filter(|_| !has_ring) {
        Absence::SwitchedOff.report(&request.rendezvous);
    }
}

fn place(role: RingRole) -> &'static AtomicPtr<ProcessRing> {
    match role {
        RingRole::Python => &PYTHON,
        RingRole::Gpu => &GPU,
    }
}

#[cold]
fn first_ring(role: RingRole) -> Option<&'static ProcessRing> {
    let request = request()?;
    let place = place(role);
    let before = place.load(Ordering::Acquire);
    if before == refused() || (is_forked() && !request.options.follow) {
        return None;
    }
    // A process may have confined itself since, or its parent before the fork.
    if seccomp::is_confined(request.options.filters) {
        Absence::Confined.report(&request.rendezvous);
        place.store(refused(), Ordering::Release);
        return None;
    }
    let made = make(role, &request.options)
        .map(|(ring, descriptor)| (Box::into_raw(Box::new(ring)), descriptor));
    let after = made.as_ref().map_or(refused(), |(pointer, _)| *pointer);
    let exchanged = place.compare_exchange(before, after, Ordering::AcqRel, Ordering::Acquire);
    let (pointer, descriptor) = made?;
    if exchanged.is_err() {
        // SAFETY: created above and not published: another thread was faster.
        drop(unsafe { Box::from_raw(pointer) });
        return existing_ring(role);
    }
    let hello = RingHello {
        role,
        own_pid: std::process::id(),
        at_ns: now_ns(),
        is_fork: !before.is_null(),
    };
    if !offer(&request.rendezvous, descriptor.as_fd(), &hello) {
        place.store(refused(), Ordering::Release);
        return None;
    }
    // SAFETY: published, never freed.
    Some(unsafe { &*pointer })
}

/// Whether allocations are counted in the Python ring.
static COUNTS_ALLOCATIONS: AtomicBool = AtomicBool::new(false);

/// Counts allocations from now on, in this process and in forked children.
pub(crate) fn count_allocations() {
    COUNTS_ALLOCATIONS.store(true, Ordering::Relaxed);
    if let Some(ring) = existing_ring(RingRole::Python) {
        ring.producer.count_allocations_since(now_ns());
    }
}

fn make(role: RingRole, options: &InjectOptions) -> Option<(ProcessRing, OwnedFd)> {
    let (producer, descriptor) = RingProducer::create(role.records(options))?;
    if role == RingRole::Python && COUNTS_ALLOCATIONS.load(Ordering::Relaxed) {
        producer.count_allocations_since(now_ns());
    }
    let ring = ProcessRing {
        producer,
        mark: OwnerMark::new()?,
        number: RINGS.fetch_add(1, Ordering::Relaxed) + 1,
        names: Mutex::new(RingNames::default()),
    };
    Some((ring, descriptor))
}

impl ProcessRing {
    /// Distinguishes it from all other rings of this process and its ancestors; from 1.
    #[inline]
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Pushes a record; returns `false`, and counts it as lost, if there is no room.
    #[inline]
    pub(crate) fn push(&self, record: &RingRecord) -> bool {
        self.producer.push(record)
    }

    /// Counts records that could not be pushed.
    pub(crate) fn lose(&self, kind: LostKind, count: u64) {
        self.producer.lose(kind, count);
    }

    /// The producer, for counting allocations.
    #[inline]
    pub(crate) fn producer(&self) -> &RingProducer {
        &self.producer
    }

    /// The number of a text, which is written before it is first used; [`NO_TEXT`] if there is no
    /// room in the ring (counted as lost) or among the names.
    pub(crate) fn text(&self, text: &str) -> TextId {
        let Some(mut names) = self.names() else {
            return NO_TEXT;
        };
        if let Some(known) = names.text(text) {
            return known;
        }
        let Some(id) = names.next_text() else {
            return NO_TEXT;
        };
        for piece in pieces(id, text) {
            if !self.push(&piece) {
                return NO_TEXT;
            }
        }
        names.keep_text(text, id);
        id
    }

    /// As [`ProcessRing::text`], for the name of a kind of object: once there are too many kinds, only
    /// names that are known have a number.
    pub(crate) fn text_of_kind(&self, text: &str) -> TextId {
        let has_room = self.names().is_some_and(|names| names.has_room_for_kind());
        if has_room {
            return self.text(text);
        }
        let known = self.names().and_then(|names| names.text(text));
        known.unwrap_or(NO_TEXT)
    }

    /// The number of a frame below a caller's (0: none); 0 if there is no room.
    pub(crate) fn frame(&self, parent: u32, function: TextId, file: TextId, line: u32) -> u32 {
        let Some(mut names) = self.names() else {
            return 0;
        };
        let node = (parent, function, file, line);
        if let Some(known) = names.frame(node) {
            return known;
        }
        let Some(id) = names.next_frame() else {
            return 0;
        };
        let record = RingRecord::Frame { id, parent, function, file, line };
        if !self.push(&record) {
            return 0;
        }
        names.keep_frame(node, id);
        id
    }

    /// The number of a kind of object; 0 if there is no room, of which there is more if `is_fixed`, for
    /// a type that lives for ever.
    pub(crate) fn kind(&self, key: ObjectKindKey, is_fixed: bool) -> u32 {
        let Some(mut names) = self.names() else {
            return 0;
        };
        if let Some(known) = names.kind(key) {
            return known;
        }
        let Some(id) = names.next_kind(is_fixed) else {
            return 0;
        };
        let (type_name, function, file, line) = key;
        let record = RingRecord::ObjectKind { id, type_name, function, file, line };
        if !self.push(&record) {
            return 0;
        }
        names.keep_kind(key, id);
        id
    }

    /// The number of a cycle; 0 if there is no room. Its edges are written without those of others
    /// in between.
    pub(crate) fn cycle(&self, key: &CycleKey) -> u32 {
        let Some(mut names) = self.names() else {
            return 0;
        };
        if let Some(known) = names.cycle(key) {
            return known;
        }
        let Some(cycle) = names.next_cycle() else {
            return 0;
        };
        for (at, (kind, name)) in key.iter().enumerate() {
            let edge = RingRecord::CycleEdge {
                cycle,
                at: at as u16,
                length: key.len() as u16,
                kind: *kind,
                name: *name,
            };
            if !self.push(&edge) {
                return 0;
            }
        }
        names.keep_cycle(key, cycle);
        cycle
    }

    /// Waits for another thread that writes a name: a few hundred nanoseconds.
    fn names(&self) -> Option<std::sync::MutexGuard<'_, RingNames>> {
        match self.names.try_lock() {
            Ok(names) => Some(names),
            Err(TryLockError::Poisoned(_)) => None,
            Err(TryLockError::WouldBlock) => self.names.lock().ok(),
        }
    }
}

/// The calling thread's kernel id.
#[inline]
pub(crate) fn tid() -> u32 {
    thread_local! {
        /// Tagged with the number of the latest ring: a fork creates a new one before it asks here.
        static KNOWN: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
    }
    let latest = RINGS.load(Ordering::Relaxed);
    let known = KNOWN.get();
    if known.0 == latest && known.1 != 0 {
        return known.1;
    }
    // SAFETY: has no arguments and cannot fail.
    let tid = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    KNOWN.set((latest, tid));
    tid
}
