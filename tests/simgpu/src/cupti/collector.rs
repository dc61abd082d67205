//! Which activities CUPTI collects, and the collected ones.

use super::layout::{CuptiVersion, RecordBuilder};
use super::records;
use super::records::RecordFormat;
use crate::core::FinishedOperation;
use crate::log::CallLine;
use crate::settings::{SimFault, SimSettings};
use crate::sync::LockExt;
use crate::{clock, link, thread};
use nix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{CString, c_char, c_void};
use std::sync::{Mutex, MutexGuard};

/// `CUpti_BuffersCallbackRequestFunc`.
pub(super) type RequestBuffer = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// `CUpti_BuffersCallbackCompleteFunc`.
pub(super) type BufferCompleted = extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
/// `CUpti_TimestampCallbackFunc`.
pub(super) type TimestampClock = extern "C" fn() -> u64;

/// With the fault `dropped-records`, every Nth record is dropped.
const DROPPED: u64 = 10;
/// With `never-completing`, every Nth kernel.
const NEVER_COMPLETING: u64 = 100;

#[derive(Debug)]
struct PendingRecord {
    /// Not delivered earlier, unless forced.
    end_ns: u64,
    bytes: RecordBuilder,
}

#[derive(Debug)]
pub(super) struct ActivityCollector {
    pub(super) settings: SimSettings,
    pub(super) version: CuptiVersion,
    pub(super) subscribed: bool,
    pub(super) enabled: BTreeSet<u32>,
    /// API functions with disabled records: kind of record and id.
    pub(super) muted: BTreeSet<(u32, u32)>,
    pub(super) callbacks: Option<(RequestBuffer, BufferCompleted)>,
    /// Whether records contain system thread ids instead of ids of pthreads.
    pub(super) system_threads: bool,
    pub(super) dropped: u64,
    /// Offset from CLOCK_MONOTONIC to the clock of the records.
    offset_ns: i128,
    pending: VecDeque<PendingRecord>,
    names: BTreeMap<String, CString>,
    seen: u64,
    kernels: u64,
}

static COLLECTOR: Mutex<Option<ActivityCollector>> = Mutex::new(None);

/// The one collector, created when CUPTI is first called.
pub(super) fn with<R>(work: impl FnOnce(&mut ActivityCollector) -> R) -> R {
    let mut guard: MutexGuard<'_, Option<ActivityCollector>> = COLLECTOR.hold();
    work(guard.get_or_insert_with(ActivityCollector::new))
}

/// The collector, if CUPTI collects anything.
fn active(work: impl FnOnce(&mut ActivityCollector)) {
    if let Some(collector) = COLLECTOR.hold().as_mut()
        && !collector.enabled.is_empty()
    {
        work(collector);
    }
}

/// CLOCK_REALTIME minus CLOCK_MONOTONIC.
fn realtime_offset_ns() -> i128 {
    let now_ns = i128::from(clock::now_ns());
    clock_gettime(ClockId::CLOCK_REALTIME).map_or(0, |time| {
        i128::from(time.tv_sec()) * 1_000_000_000 + i128::from(time.tv_nsec()) - now_ns
    })
}

impl ActivityCollector {
    fn new() -> Self {
        Self {
            settings: SimSettings::from_environment(&link::folder()),
            version: CuptiVersion::from_name(&std::env::var("SIMGPU_CUPTI").unwrap_or_default()),
            subscribed: false,
            enabled: BTreeSet::new(),
            muted: BTreeSet::new(),
            callbacks: None,
            system_threads: false,
            dropped: 0,
            offset_ns: realtime_offset_ns(),
            pending: VecDeque::new(),
            names: BTreeMap::new(),
            seen: 0,
            kernels: 0,
        }
    }

    /// Takes the clock of the records from a callback.
    pub(super) fn set_clock(&mut self, clock: TimestampClock) {
        if self.settings.has(SimFault::WrongClock) {
            return;
        }
        let before_ns = clock::now_ns();
        let reported_ns = clock();
        let after_ns = clock::now_ns();
        let same = (before_ns..=after_ns).contains(&reported_ns);
        self.offset_ns = if same { 0 } else { i128::from(reported_ns) - i128::from(after_ns) };
    }

    pub(super) fn now(&self) -> u64 {
        shifted(self.offset_ns, clock::now_ns())
    }

    /// A C string that is never freed.
    pub(super) fn interned(&mut self, text: &str) -> *const c_char {
        std::ptr::with_exposed_provenance(interned(&mut self.names, text) as usize)
    }

    /// Creates a record if its kind is enabled.
    fn add(
        &mut self,
        kind: u32,
        end_ns: u64,
        make: impl FnOnce(&mut RecordFormat) -> Option<RecordBuilder>,
    ) {
        if !self.enabled.contains(&kind) {
            return;
        }
        self.seen += 1;
        if self.settings.has(SimFault::DroppedRecords) && self.seen.is_multiple_of(DROPPED) {
            self.dropped += 1;
            return;
        }
        let offset_ns = self.offset_ns;
        let names = &mut self.names;
        let mut writing = RecordFormat {
            version: self.version,
            timestamp: &|timestamp_ns| shifted(offset_ns, timestamp_ns),
            name: &mut |name| interned(names, name),
        };
        if let Some(bytes) = make(&mut writing) {
            self.pending.push_back(PendingRecord { end_ns, bytes });
        }
    }

    fn add_operation(&mut self, finished: &FinishedOperation) {
        let Some(kind) = records::kind(finished) else {
            return;
        };
        let mut never = false;
        if kind == super::layout::KERNEL {
            self.kernels += 1;
            let fault = self.settings.has(SimFault::NeverCompleting);
            never = fault && self.kernels.is_multiple_of(NEVER_COMPLETING);
        }
        let end_ns = if never { u64::MAX } else { finished.end_ns };
        self.add(kind, end_ns, |writing| records::operation(finished, writing));
    }

    fn add_call(&mut self, call: &CallLine) {
        let thread = self.thread(call.tid);
        if let Some((kind, id)) = records::call_kind(call)
            && !self.muted.contains(&(kind, id))
        {
            self.add(kind, call.end_ns, |writing| records::call(call, thread, writing));
        }
        if call.layer == "driver" {
            self.add_synchronization(call);
        }
    }

    fn add_synchronization(&mut self, call: &CallLine) {
        if records::is_synchronization(call) {
            self.add(super::layout::SYNCHRONIZATION, call.end_ns, |writing| {
                records::synchronization(call, writing)
            });
        } else if records::is_event_record(call) {
            self.add(super::layout::EVENT, call.end_ns, |writing| records::event(call, writing));
        }
    }

    /// The id of the calling thread, of the requested kind.
    fn thread(&self, system: i32) -> u32 {
        if self.system_threads {
            return system as u32;
        }
        // SAFETY: has no preconditions.
        let pthread = unsafe { nix::libc::pthread_self() };
        // The record has 32 bits for it: the low ones, as in CUPTI.
        pthread as u32
    }

    /// Records that may be delivered now.
    fn take_ready(&mut self, forced: bool) -> VecDeque<RecordBuilder> {
        let now_ns = clock::now_ns();
        let pending = std::mem::take(&mut self.pending);
        let (ready, waiting): (VecDeque<_>, VecDeque<_>) =
            pending.into_iter().partition(|record| forced || record.end_ns <= now_ns);
        self.pending = waiting;
        let delivered = ready.into_iter().map(|record| {
            if record.end_ns > now_ns { record.bytes.without_end() } else { record.bytes }
        });
        delivered.collect()
    }
}

fn shifted(offset_ns: i128, timestamp_ns: u64) -> u64 {
    u64::try_from(i128::from(timestamp_ns) + offset_ns).unwrap_or(0)
}

/// The address of a name; names are never freed, just as CUPTI does not free them while it is
/// active.
fn interned(names: &mut BTreeMap<String, CString>, name: &str) -> u64 {
    let kept =
        names.entry(name.to_owned()).or_insert_with(|| CString::new(name).unwrap_or_default());
    kept.as_ptr().expose_provenance() as u64
}

/// Records scheduled operations.
pub(crate) fn operations(finished: &[FinishedOperation]) {
    active(|collector| finished.iter().for_each(|one| collector.add_operation(one)));
}

/// Records a completed host call, on its own thread.
pub(crate) fn call(line: &CallLine) {
    active(|collector| collector.add_call(line));
}

/// Records that a launch waited for room in its stream's queue, on its own thread.
pub(crate) fn full_queue(start_ns: u64, end_ns: u64) {
    active(|collector| {
        if collector.version.reports_full_queues() {
            let thread = collector.thread(thread::id());
            collector.add(super::layout::OVERHEAD, end_ns, |writing| {
                records::full_queue(start_ns, end_ns, thread, writing)
            });
        }
    });
}

/// Delivers what has accumulated, if it is enough to fill a buffer.
pub(crate) fn deliver_full_buffers() {
    /// About a megabyte of kernel records.
    const MANY: usize = 5_000;
    let mut many = false;
    active(|collector| many = collector.pending.len() >= MANY);
    if many {
        deliver(false);
    }
}

/// Deliveries in progress: a flush returns once other threads' have arrived too.
static DELIVERY: Mutex<()> = Mutex::new(());

/// Passes completed records to the buffers' callbacks; `forced`: all records. The collector is not
/// locked while they run.
pub(super) fn deliver(forced: bool) {
    let _delivering = DELIVERY.hold();
    let (ready, callbacks) = with(|collector| (collector.take_ready(forced), collector.callbacks));
    let Some((request, complete)) = callbacks else {
        return;
    };
    let mut ready = ready;
    while !ready.is_empty() {
        let (mut buffer, mut size, mut most) = (std::ptr::null_mut(), 0, 0);
        request(&raw mut buffer, &raw mut size, &raw mut most);
        let most = if most == 0 { usize::MAX } else { most };
        let written = if buffer.is_null() { 0 } else { fill(buffer, size, most, &mut ready) };
        if written == 0 {
            with(|collector| collector.dropped += ready.len() as u64);
            ready.clear();
        }
        if !buffer.is_null() {
            complete(std::ptr::null_mut(), 0, buffer, size, written);
        }
    }
}

/// Writes records while they fit; returns the bytes written.
fn fill(buffer: *mut u8, size: usize, most: usize, ready: &mut VecDeque<RecordBuilder>) -> usize {
    // SAFETY: the buffer and its size come from the request callback, whose contract this is; it
    // belongs to CUPTI until the completion callback.
    let target = unsafe { std::slice::from_raw_parts_mut(buffer, size) };
    let mut written = 0;
    for _ in 0..most {
        let Some(record) = ready.front().map(RecordBuilder::as_slice) else {
            break;
        };
        let Some(place) = target.get_mut(written..written + record.len()) else {
            break;
        };
        place.copy_from_slice(record);
        written += record.len();
        ready.pop_front();
    }
    written
}
