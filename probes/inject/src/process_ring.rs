//! This process: its options, its rings, and whether it was forked.
//!
//! Owns the rings; `names.rs` in this folder has their numbers for texts and
//! frames. Knows nothing of Python or CUPTI.
//! Everything here may be called from any thread at any time, also in a forked child; nothing
//! unwinds, and nothing waits except for another thread that writes a name.

mod names;

use crate::confined;
use crate::names::RingNames;
use gctrace_ring::{
    Absence, GpuMessage, InjectOptions, LostKind, Message, OwnerMark, PythonMessage, RingHello,
    RingProducer, RingRole, WorkKind, offer,
};
use std::cell::Cell;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

/// The options, and where gctrace listens.
struct RecordingRequest {
    options: InjectOptions,
    rendezvous: Vec<u8>,
    /// Null in a forked child.
    mark: OwnerMark,
    /// The process that has the mark.
    pid: u32,
}

static REQUEST: OnceLock<RecordingRequest> = OnceLock::new();

/// Stores the options of this process. Called once, before anything else here.
pub(crate) fn begin(options: InjectOptions, rendezvous: Vec<u8>) {
    if let Some(mark) = OwnerMark::new() {
        let pid = std::process::id();
        let _ = REQUEST.set(RecordingRequest { options, rendezvous, mark, pid });
    }
}

/// The request; `None` if there is none, or recording was switched off.
fn request() -> Option<&'static RecordingRequest> {
    if is_off() { None } else { REQUEST.get() }
}

/// The options; `None` if gctrace did not set them, or recording was switched off.
pub(crate) fn options() -> Option<&'static InjectOptions> {
    request().map(|request| &request.options)
}

/// Where programs started from here are reported; `None` if not requested.
pub(crate) fn follows_to() -> Option<&'static [u8]> {
    let request = request()?;
    let options = &request.options;
    if !options.follow || (!options.collections && options.heap == 0) {
        return None;
    }
    Some(&request.rendezvous)
}

/// Where full collections are reported; `None` if not requested, or if this process has confined itself since; that is
/// reported.
pub(crate) fn reports_heap_to() -> Option<&'static [u8]> {
    let request = request()?;
    if request.options.heap == 0 {
        return None;
    }
    if confined::is_confined(request.options.filters) {
        request.report(Absence::Confined);
        return None;
    }
    Some(&request.rendezvous)
}

/// Reports why this process hands over no ring, if gctrace asked for one.
pub(crate) fn report_absence(why: Absence) {
    if let Some(request) = request() {
        request.report(why);
    }
}

impl RecordingRequest {
    fn report(&self, why: Absence) {
        if !confined::is_noticed() {
            why.report(&self.rendezvous);
        }
    }
}

/// Whether this process was forked from a process with this library active, without an exec since.
pub(crate) fn is_forked() -> bool {
    let Some(request) = REQUEST.get() else { return false };
    !request.mark.is_mine()
}

/// Whether this process shares the memory of its parent (vfork).
pub(crate) fn shares_memory() -> bool {
    let is_borrowed =
        |request: &RecordingRequest| request.mark.is_mine() && request.pid != std::process::id();
    REQUEST.get().is_some_and(is_borrowed)
}

/// Nanoseconds of CLOCK_MONOTONIC.
#[inline]
pub(crate) fn now_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Number of the time namespace that [`now_ns`] is of; 0 if the system has none or no `/proc`. One system call.
fn time_namespace() -> u64 {
    let mut name = [0_u8; 32];
    // SAFETY: writes to a variable of ours, at most its length.
    let length = unsafe {
        let path = c"/proc/self/ns/time".as_ptr();
        libc::readlink(path, name.as_mut_ptr().cast(), name.len())
    };
    // `time:[4026531834]`
    let name = usize::try_from(length).ok().and_then(|length| name.get(..length));
    let number = name.and_then(|name| name.strip_prefix(b"time:[")?.strip_suffix(b"]"));
    let number = number.and_then(|number| std::str::from_utf8(number).ok()?.parse().ok());
    number.unwrap_or(0)
}

/// CPU time of the calling thread, in ns; 0 if it cannot be read. A system call.
#[inline]
pub(crate) fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of the process, in ns; 0 if it cannot be read.
#[inline]
pub(crate) fn process_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

#[inline]
fn clock_ns(clock: libc::clockid_t) -> u64 {
    // The vDSO reads one of them.
    let needs_call = clock != libc::CLOCK_MONOTONIC;
    if confined::is_noticed() && (needs_call || confined::is_without_clock()) {
        return 0;
    }
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to a variable of ours.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Number of rings created in this process and its ancestors: also the number of the latest.
static RINGS: AtomicU32 = AtomicU32::new(0);

/// A ring of this process, with numbers for the texts and frames in it.
pub(crate) struct ProcessRing<M> {
    producer: RingProducer<M>,
    mark: OwnerMark,
    /// The process that created it, as it sees its id.
    pid: u32,
    number: u32,
    names: Mutex<RingNames>,
}

/// The ring of an interpreter's events.
pub(crate) type PythonRing = ProcessRing<PythonMessage>;
/// The ring of the process's GPU work.
pub(crate) type GpuRing = ProcessRing<GpuMessage>;

/// A pointer to a ring: null before it is requested. A forked child finds its parent's, with the owner mark wiped.
/// Never freed: a thread may be writing.
type RingPlace<M> = AtomicPtr<ProcessRing<M>>;

static PYTHON: RingPlace<PythonMessage> = AtomicPtr::new(std::ptr::null_mut());
static GPU: RingPlace<GpuMessage> = AtomicPtr::new(std::ptr::null_mut());

/// Messages with a ring in this process.
pub(crate) trait Placed: Message + 'static {
    /// Its place.
    fn place() -> &'static RingPlace<Self>;
}

impl Placed for PythonMessage {
    fn place() -> &'static RingPlace<Self> {
        &PYTHON
    }
}

impl Placed for GpuMessage {
    fn place() -> &'static RingPlace<Self> {
        &GPU
    }
}

/// Stands for a ring that could not be created; not retried, in children neither.
fn refused<M>() -> *mut ProcessRing<M> {
    std::ptr::without_provenance_mut(align_of::<ProcessRing<M>>())
}

/// This process's ring of these messages, created and handed over at the first call; `None` if gctrace did
/// not request it or no longer listens.
#[inline]
pub(crate) fn ring<M: Placed>() -> Option<&'static ProcessRing<M>> {
    existing_ring().or_else(first_ring)
}

/// The ring, if it has been created already.
#[inline]
pub(crate) fn existing_ring<M: Placed>() -> Option<&'static ProcessRing<M>> {
    published(M::place().load(Ordering::Acquire))
}

/// The ring of this process behind a pointer of [`Placed::place`].
#[inline]
fn published<M>(pointer: *mut ProcessRing<M>) -> Option<&'static ProcessRing<M>> {
    let ring = any_published(pointer)?;
    if ring.mark.is_mine() { Some(ring) } else { None }
}

/// The ring behind such a pointer, of this process or of an ancestor.
#[inline]
fn any_published<M>(pointer: *mut ProcessRing<M>) -> Option<&'static ProcessRing<M>> {
    if pointer.is_null() || pointer == refused() {
        return None;
    }
    // SAFETY: published by `first_ring`, never freed.
    Some(unsafe { &*pointer })
}

/// The fork that started a process and ran Python's hook. A child forked by other code finds its parent's.
struct LastFork {
    /// Process id as it sees it; 0: none.
    pid: AtomicU32,
    at_ns: AtomicU64,
    /// The ring that announces it; null: it had to create one at once.
    announced_in: RingPlace<PythonMessage>,
}

static LAST_FORK: LastFork = LastFork {
    pid: AtomicU32::new(0),
    at_ns: AtomicU64::new(0),
    announced_in: AtomicPtr::new(std::ptr::null_mut()),
};

/// To be called in a forked child, at its start. Announces the child in the ring of the ancestor whose memory it
/// inherited. The child then creates a ring only once it has something else to write. `false`: it must create a ring at
/// once, because gctrace does not read the ancestor's ring, would not know the child by its id (the id may be from
/// another pid namespace), or allocations are counted.
pub(crate) fn announce_fork() -> bool {
    let (pid, at_ns) = (std::process::id(), now_ns());
    let parent = LAST_FORK.pid.swap(pid, Ordering::Relaxed);
    LAST_FORK.at_ns.store(at_ns, Ordering::Relaxed);
    let inherited = PYTHON.load(Ordering::Acquire);
    let is_announced = any_published(inherited).is_some_and(|ring| {
        let is_lazy = options().is_some_and(|options| options.follow)
            && ALLOCATION_PS.load(Ordering::Relaxed) == 0;
        // The parent is the process that had the ring, or was announced in it. Otherwise the parent is gone, or the ids
        // are from different namespaces.
        let (known, parent) = ([ring.pid, parent], std::os::unix::process::parent_id());
        is_lazy
            && ring.producer.takes_forks()
            && known.contains(&parent)
            && ring.push(&PythonMessage::Fork { at_ns, pid, parent })
    });
    let announced_in = if is_announced { inherited } else { std::ptr::null_mut() };
    LAST_FORK.announced_in.store(announced_in, Ordering::Relaxed);
    is_announced
}

/// The ring of an ancestor that announces this process.
fn announced_in() -> Option<&'static PythonRing> {
    let ring = any_published(LAST_FORK.announced_in.load(Ordering::Relaxed))?;
    if LAST_FORK.pid.load(Ordering::Relaxed) == std::process::id() { Some(ring) } else { None }
}

/// A collection ended in a process without a ring: counts it where the process is announced. If no system call may
/// identify this process, counts it in the inherited ring of an ancestor.
#[cold]
pub(crate) fn lose_without_ring() {
    let inherited = || any_published(PYTHON.load(Ordering::Acquire));
    if let Some(ring) = if confined::is_noticed() { inherited() } else { announced_in() } {
        ring.lose(LostKind::WithoutRing, 1);
    }
}

/// The process is about to give up rights needed to hand over a ring: creates the ring now if the process is only
/// announced.
pub(crate) fn settle() {
    if announced_in().is_some() {
        ring::<PythonMessage>();
    }
}

/// The ring, if it has been created already, or the ring that announces this process: for sums that both processes may
/// add to.
pub(crate) fn shared_ring() -> Option<&'static PythonRing> {
    existing_ring().or_else(|| if confined::is_noticed() { None } else { announced_in() })
}

/// The process is about to forbid itself system calls: prepares now what its rings need later. A process with a CPython
/// gets its ring.
pub(crate) fn prepare_for_filters(has_python: bool) {
    if has_python && options().is_some_and(|options| options.collections) {
        ring::<PythonMessage>();
    }
    if let Some(ring) = existing_ring::<PythonMessage>() {
        ring.producer.settle();
    }
    if let Some(ring) = existing_ring::<GpuMessage>() {
        ring.producer.settle();
    }
}

/// Recording was switched off, in this process or an ancestor by fork.
static OFF: AtomicBool = AtomicBool::new(false);

/// Whether recording was switched off, or the process forbids itself to read the clock.
#[inline]
pub(crate) fn is_off() -> bool {
    OFF.load(Ordering::Relaxed) || confined::is_without_clock()
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
    let has_ring = withdraw(&PYTHON, place) | withdraw(&GPU, place);
    if !has_ring && let Some(request) = REQUEST.get() {
        request.report(Absence::SwitchedOff);
    }
}

/// Takes the ring away; `false` if there is none. Never freed: threads that have it finish their writes.
fn withdraw<M: Placed>(ring: &RingPlace<M>, fault: &Location<'_>) -> bool {
    let Some(ring) = published(ring.swap(refused(), Ordering::AcqRel)) else { return false };
    ring.producer.switch_off(now_ns(), format_args!("{}:{}", fault.file(), fault.line()));
    true
}

#[cold]
fn first_ring<M: Placed>() -> Option<&'static ProcessRing<M>> {
    if confined::is_noticed() {
        return None;
    }
    let request = request()?;
    let (role, place) = (M::ROLE, M::place());
    let before = place.load(Ordering::Acquire);
    if before == refused() || (is_forked() && !request.options.follow) {
        return None;
    }
    // A process may have confined itself unnoticed, or its parent before the fork.
    if confined::is_confined(request.options.filters) {
        request.report(Absence::Confined);
        place.store(refused(), Ordering::Release);
        return None;
    }
    let made = make(&request.options)
        .map(|(ring, descriptor)| (Box::into_raw(Box::new(ring)), descriptor));
    let after = if let Some((pointer, _)) = &made { *pointer } else { refused() };
    let exchanged = place.compare_exchange(before, after, Ordering::AcqRel, Ordering::Acquire);
    let Some((pointer, descriptor)) = made else {
        if role == RingRole::Python {
            request.report(Absence::Limited);
        }
        return None;
    };
    if exchanged.is_err() {
        // SAFETY: created above and not published: another thread was faster.
        drop(unsafe { Box::from_raw(pointer) });
        return existing_ring();
    }
    let hello = RingHello {
        role,
        time_namespace: time_namespace(),
        own_pid: std::process::id(),
        at_ns: match announced_in() {
            Some(_) => LAST_FORK.at_ns.load(Ordering::Relaxed),
            None => now_ns(),
        },
        is_fork: !before.is_null(),
    };
    if !offer(&request.rendezvous, descriptor.as_fd(), &hello) {
        place.store(refused(), Ordering::Release);
        return None;
    }
    // SAFETY: published, never freed.
    Some(unsafe { &*pointer })
}

/// Time that counting an allocation and its free takes, in ps; 0: they are not counted in the Python
/// ring.
static ALLOCATION_PS: AtomicU64 = AtomicU64::new(0);

/// Counts allocations from now on, in this process and in forked children; earlier counts are dropped.
pub(crate) fn count_allocations(allocation_ps: u64) {
    ALLOCATION_PS.store(allocation_ps, Ordering::Relaxed);
    if let Some(ring) = existing_ring::<PythonMessage>() {
        ring.producer.count_allocations_since(now_ns(), allocation_ps);
    }
}

fn make<M: Message>(options: &InjectOptions) -> Option<(ProcessRing<M>, OwnedFd)> {
    let (producer, descriptor) = RingProducer::create(M::ROLE.records(options))?;
    let allocation_ps = ALLOCATION_PS.load(Ordering::Relaxed);
    if M::ROLE == RingRole::Python && allocation_ps > 0 {
        producer.count_allocations_since(now_ns(), allocation_ps);
    }
    let ring = ProcessRing {
        producer,
        mark: OwnerMark::new()?,
        pid: std::process::id(),
        number: RINGS.fetch_add(1, Ordering::Relaxed) + 1,
        names: Mutex::new(RingNames::default()),
    };
    Some((ring, descriptor))
}

impl<M: Message> ProcessRing<M> {
    /// Distinguishes it from all other rings of this process and its ancestors; from 1.
    #[inline]
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Pushes a message; returns `false`, and counts it as lost, if there is no room.
    #[inline]
    pub(crate) fn push(&self, message: &M) -> bool {
        self.producer.push(message)
    }

    /// Counts messages that could not be pushed.
    pub(crate) fn lose(&self, kind: LostKind, count: u64) {
        self.producer.lose(kind, count);
    }

    /// Adds the CPU time that the library has taken from the calling thread since its CPU time was `begun_ns`. Clock
    /// time would include other programs.
    pub(crate) fn spend(&self, kind: WorkKind, begun_ns: u64) {
        self.producer.spend(kind, gctrace_units::duration_ns(begun_ns, thread_cpu_ns()));
    }

    /// The producer, for counting allocations and for the cost of collections.
    #[inline]
    pub(crate) fn producer(&self) -> &RingProducer<M> {
        &self.producer
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
    let tid = if confined::is_noticed() {
        tid_without_call()
    } else {
        // SAFETY: has no arguments and cannot fail.
        unsafe { libc::syscall(libc::SYS_gettid) as u32 }
    };
    KNOWN.set((latest, tid));
    tid
}

/// The same from the C library: it notes which thread has a mutex (the third number of `struct __pthread_mutex_s`, in
/// all versions and on all processors).
fn tid_without_call() -> u32 {
    let mut mutex = libc::PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    // SAFETY: of this function alone; no other thread waits for it, so no system call is made.
    unsafe {
        libc::pthread_mutex_lock(&raw mut mutex);
        let owner = (&raw const mutex).cast::<u32>().add(2).read_volatile();
        libc::pthread_mutex_unlock(&raw mut mutex);
        owner
    }
}
