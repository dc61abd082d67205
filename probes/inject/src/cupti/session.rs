//! A running CUPTI session: buffers in, records out, periodic flushes.
//!
//! Three kinds of thread run this code. CUPTI's and the program's threads request and complete buffers and never wait;
//! our thread flushes; one thread ends the program. No thread holds a lock of ours while it is in CUPTI.

use super::api::{Code, CuptiApi};
use super::batches::CallBatches;
use super::buffers::{BUFFER_BYTES, BufferPool};
use super::calls::OutermostFilter;
use super::clock::CuptiClock;
use super::decode::{ActivityRecord, KINDS, decode};
use super::functions::FunctionClasses;
use super::report;
use crate::cupti::KernelNames;
use crate::process_ring;
use crate::process_ring::GpuRing;
use crate::recording::guarded;
use gctrace_ring::{CuptiState, GpuMessage, RingCall, TimeInterval};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// `CUPTI_ACTIVITY_FLAG_FLUSH_FORCED`: also returns buffers with work that has not ended.
const FORCED: u32 = 1;

/// State kept while CUPTI records.
pub(super) struct CuptiSession {
    pub(super) api: CuptiApi,
    pub(super) ring: &'static GpuRing,
    pub(super) clock: CuptiClock,
    pub(super) functions: FunctionClasses,
    /// Whether calls carry the kernel's thread ids.
    names_threads: bool,
    calls: CallBatches,
    outermost: Mutex<OutermostFilter>,
    /// Number of threads that are reading a buffer.
    readers: AtomicU32,
    /// Operations without an end or without timestamps: not reported yet.
    unmeasured: AtomicU64,
    flush_failed: AtomicBool,
    reported_error_ns: AtomicU64,
}

static POOL: BufferPool = BufferPool::new();
static SESSION: OnceLock<CuptiSession> = OnceLock::new();

impl CuptiSession {
    pub(super) fn new(
        api: CuptiApi,
        ring: &'static GpuRing,
        clock: CuptiClock,
        functions: FunctionClasses,
        names_threads: bool,
    ) -> Self {
        Self {
            api,
            ring,
            clock,
            functions,
            names_threads,
            calls: CallBatches::new(),
            outermost: Mutex::new(OutermostFilter::default()),
            readers: AtomicU32::new(0),
            unmeasured: AtomicU64::new(0),
            flush_failed: AtomicBool::new(false),
            reported_error_ns: AtomicU64::new(0),
        }
    }

    /// Makes it the session of this process; there is only one.
    pub(super) fn publish(self) -> &'static Self {
        SESSION.get_or_init(|| self)
    }

    /// The session of this process, unless the process was forked since.
    pub(super) fn current() -> Option<&'static Self> {
        if process_ring::existing_ring::<GpuMessage>().is_some() { SESSION.get() } else { None }
    }

    /// Reads CUPTI's clock.
    pub(super) fn read_clock(api: &CuptiApi) -> Option<u64> {
        let mut timestamp = 0;
        let code = (api.get_timestamp?)(&raw mut timestamp);
        if code == 0 && timestamp != 0 { Some(timestamp) } else { None }
    }

    /// Makes CUPTI deliver everything that has ended, and writes records that can only be decided together. `last`:
    /// also records of unfinished work, and nothing is held back.
    ///
    /// CUPTI keeps a buffer until everything in it has ended: operations in it that ended earlier arrive with it, later
    /// than `Flushed` states. Buffers are small for that reason.
    pub(super) fn flush(&self, last: bool) {
        let at_ns = process_ring::now_ns();
        self.clock.calibrate(&|| Self::read_clock(&self.api));
        let mut code = (self.api.flush_all)(0);
        if last {
            code = code.max((self.api.flush_all)(FORCED));
        }
        self.await_readers();
        self.write_calls(last);
        self.count_dropped();
        self.report_calibration();
        if code == 0 {
            self.ring.push(&GpuMessage::Flushed { at_ns });
        } else if !self.flush_failed.swap(true, Ordering::Relaxed) {
            self.refused("cuptiActivityFlushAll", code);
        }
    }

    /// Makes CUPTI stop recording, for a process with recording switched off.
    pub(super) fn disable(&self) {
        if let Some(disable) = self.api.disable {
            for (kind, _) in KINDS {
                // If CUPTI records all the same, those records are not read.
                let _ = disable(kind);
            }
        }
    }

    /// Waits for other threads that are reading buffers: milliseconds.
    fn await_readers(&self) {
        const STEP: Duration = Duration::from_micros(200);
        const STEPS: u32 = 5_000;
        let mut steps = 0..STEPS;
        while self.readers.load(Ordering::Acquire) > 0 && steps.next().is_some() {
            std::thread::sleep(STEP);
        }
    }

    fn refused(&self, function: &str, code: Code) {
        report(self.ring, CuptiState::Refused, i64::from(code), function);
    }

    fn write_calls(&self, last: bool) {
        let calls = self.calls.take();
        let mut outermost = self.outermost.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = outermost.turn(calls, last);
        drop(outermost);
        for call in kept {
            self.write_call(call);
        }
    }

    fn write_call(&self, mut call: RingCall) {
        let wanted = self.functions.wanted(call.layer, call.function, &self.api, self.ring);
        let Some(name) = wanted else { return };
        call.name = name;
        if !self.names_threads {
            call.tid = 0;
        }
        self.ring.push(&GpuMessage::Api(call));
    }

    fn count_dropped(&self) {
        let mut dropped: usize = 0;
        if let Some(get) = self.api.dropped
            && get(std::ptr::null_mut(), 0, &raw mut dropped) != 0
        {
            dropped = 0;
        }
        let count = self.unmeasured.swap(0, Ordering::Relaxed) + dropped as u64;
        if count > 0 {
            let at_ns = process_ring::now_ns();
            self.ring.push(&GpuMessage::Dropped { at_ns, count });
        }
    }

    /// Reports that timestamps are converted: once, and again when their error has doubled.
    pub(super) fn report_calibration(&self) {
        let Some(error_ns) = self.clock.error_ns() else { return };
        let last_error_ns = self.reported_error_ns.load(Ordering::Relaxed);
        if last_error_ns == 0 || error_ns >= gctrace_units::times(last_error_ns, 2) {
            self.reported_error_ns.store(error_ns.max(1), Ordering::Relaxed);
            let error_ns = gctrace_units::i64_or_most(error_ns);
            report(self.ring, CuptiState::Calibrated, error_ns, "");
        }
    }

    /// Writes the records of a buffer to the ring.
    fn read_buffer(&self, buffer: *mut u8, valid: usize) {
        // SAFETY: of the pool, of this length, initialized, and ours until it is given back.
        let bytes = unsafe { std::slice::from_raw_parts(buffer, valid) };
        let mut reading = BufferReading {
            names: KernelNames::default(),
            calls: Vec::new(),
            // A calibrated clock may be off by a little.
            latest_ns: process_ring::now_ns() + 1_000_000_000,
        };
        let mut record = std::ptr::null_mut();
        let mut before = None;
        while (self.api.next_record)(buffer, valid, &raw mut record) == 0 {
            let offset = record.addr().wrapping_sub(buffer.addr());
            // Advances, and stays within the buffer, whatever CUPTI returns.
            if matches!(before, Some(before) if offset <= before) {
                break;
            }
            before = Some(offset);
            let Some(rest) = bytes.get(offset..) else { break };
            if let Some(activity) = decode(rest) {
                self.take(activity, &mut reading);
            }
        }
        self.calls.push(reading.calls);
    }

    fn take(&self, activity: ActivityRecord, reading: &mut BufferReading) {
        if let Some(record) = self.converted(activity, reading) {
            self.ring.push(&record);
        }
    }

    /// The record with our times; `None` if it has no times, and for calls: they wait for other calls.
    fn converted(
        &self,
        activity: ActivityRecord,
        reading: &mut BufferReading,
    ) -> Option<GpuMessage> {
        Some(match activity.record {
            GpuMessage::Gpu(mut op) => {
                op.interval = self.measured(op.interval, reading)?;
                // SAFETY: the address comes from a record that CUPTI has just handed over.
                op.name = unsafe { reading.names.text(activity.name, self.ring) };
                GpuMessage::Gpu(op)
            }
            GpuMessage::Api(mut call) => {
                call.interval = self.measured(call.interval, reading)?;
                reading.calls.push(call);
                return None;
            }
            GpuMessage::Sync(mut sync) => {
                sync.interval = self.interval(sync.interval, reading)?;
                GpuMessage::Sync(sync)
            }
            GpuMessage::Overhead { interval, kind } => {
                GpuMessage::Overhead { interval: self.interval(interval, reading)?, kind }
            }
            other => other,
        })
    }

    /// As [`interval`](Self::interval); a missing timestamp is counted.
    fn measured(&self, cuptis: TimeInterval, reading: &BufferReading) -> Option<TimeInterval> {
        let interval = self.interval(cuptis, reading);
        if interval.is_none() {
            self.unmeasured.fetch_add(1, Ordering::Relaxed);
        }
        interval
    }

    /// Converts to our clock; `None` for operations without timestamps, because they have not ended
    /// or CUPTI had no memory for them, and for implausible timestamps.
    fn interval(&self, cuptis: TimeInterval, reading: &BufferReading) -> Option<TimeInterval> {
        if cuptis.start_ns == 0 || cuptis.end_ns == 0 {
            return None;
        }
        let start_ns = self.clock.convert(cuptis.start_ns);
        let end_ns = self.clock.convert(cuptis.end_ns);
        let is_plausible = |timestamp_ns| self.clock.is_plausible(timestamp_ns, reading.latest_ns);
        let is_measured = is_plausible(start_ns) && is_plausible(end_ns);
        if is_measured { Some(TimeInterval { start_ns, end_ns }) } else { None }
    }
}

/// State kept while a buffer is read.
struct BufferReading {
    names: KernelNames,
    calls: Vec<RingCall>,
    /// No timestamp in the buffer is later.
    latest_ns: u64,
}

/// CUPTI requests a buffer, on any thread.
pub(super) extern "C" fn request(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
    if buffer.is_null() || size.is_null() || most.is_null() {
        return;
    }
    let taken = guarded(|| POOL.take()).unwrap_or(std::ptr::null_mut());
    // SAFETY: CUPTI's output parameters, of these types. 0: as many records as fit.
    unsafe {
        buffer.write(taken);
        size.write(if taken.is_null() { 0 } else { BUFFER_BYTES });
        most.write(0);
    }
}

/// CUPTI returns a buffer, on any thread.
pub(super) extern "C" fn complete(
    _context: *mut c_void,
    _stream: u32,
    buffer: *mut u8,
    _size: usize,
    valid: usize,
) {
    if buffer.is_null() {
        return;
    }
    guarded(|| {
        if let Some(session) = CuptiSession::current() {
            session.readers.fetch_add(1, Ordering::AcqRel);
            session.read_buffer(buffer, valid.min(BUFFER_BYTES));
            session.readers.fetch_sub(1, Ordering::AcqRel);
        }
    });
    // SAFETY: CUPTI only returns what `request` gave it, and does not use it afterwards.
    unsafe { POOL.give_back(buffer) };
}
