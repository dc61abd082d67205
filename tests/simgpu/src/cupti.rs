//! libcupti: activity records in the layout of a chosen version (`SIMGPU_CUPTI`: 11.8, 12.4, 13.0,
//! 13.2 or future). The collector lives in the driver's copy of this library; other copies forward
//! calls.
//!
//! Callbacks of API calls can be enabled but are never called: only the activity API is simulated.

mod collector;
mod ids;
mod layout;
mod records;

pub(crate) use collector::{call, deliver_full_buffers, full_queue, operations};

use crate::c;
use crate::error::{CudaError, Status, guarded};
use crate::settings::SimFault;
use collector::{ActivityCollector, BufferCompleted, RequestBuffer, TimestampClock};
use std::ffi::{c_char, c_void};

// `CUptiResult`.
const INVALID_PARAMETER: CudaError = CudaError(1);
const MAX_LIMIT_REACHED: CudaError = CudaError(12);
const NOT_INITIALIZED: CudaError = CudaError(15);
const INVALID_KIND: CudaError = CudaError(21);
const MULTIPLE_SUBSCRIBERS: CudaError = CudaError(39);
const UNKNOWN: CudaError = CudaError(999);

/// The handle passed to a subscriber.
const SUBSCRIBER: u64 = 0x5800_0000_0001;

/// Exported functions: in a copy other than the driver's, they call the driver's.
macro_rules! exported {
    ($($(#[$meta:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) => $body:expr;)*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $type),*) -> i32 {
            type Function = extern "C" fn($($type),*) -> i32;
            static ELSEWHERE: std::sync::OnceLock<Option<Function>> = std::sync::OnceLock::new();
            let elsewhere = ELSEWHERE.get_or_init(|| {
                let name = concat!(stringify!($name), "\0").as_bytes();
                let address = crate::link::address(std::ffi::CStr::from_bytes_with_nul(name).ok()?)?;
                let here: Function = $name;
                // SAFETY: a function of this name in another copy of this library: the same type.
                let other = unsafe {
                    std::mem::transmute::<*const c_void, Function>(std::ptr::with_exposed_provenance(address))
                };
                (here as usize != address).then_some(other)
            });
            match elsewhere {
                Some(function) => function($($argument),*),
                None => guarded(move || $body),
            }
        }
    )*};
}

/// Runs on the collector, unless a fault disables CUPTI.
fn collecting(work: impl FnOnce(&mut ActivityCollector) -> Status) -> Status {
    collector::with(|collector| {
        if collector.settings.has(SimFault::Cupti15) {
            return Err(NOT_INITIALIZED);
        }
        if collector.settings.has(SimFault::Cupti999) {
            return Err(UNKNOWN);
        }
        work(collector)
    })
}

fn subscribe(collector: &mut ActivityCollector, target: *mut u64) -> Status {
    if collector.subscribed || collector.settings.has(SimFault::SubscribeBusy) {
        return Err(MULTIPLE_SUBSCRIBERS);
    }
    collector.subscribed = true;
    c::write(target, SUBSCRIBER)
}

fn unsubscribe(collector: &mut ActivityCollector, subscriber: u64) -> Status {
    let known = collector.subscribed && subscriber == SUBSCRIBER;
    collector.subscribed = false;
    known.then_some(()).ok_or(INVALID_PARAMETER)
}

fn enable(collector: &mut ActivityCollector, kind: u32) -> Status {
    let refused = [layout::EVENT, layout::SYNCHRONIZATION];
    let is_partial = collector.settings.has(SimFault::CuptiPartial);
    let is_later = kind == layout::HOST_LAUNCH && collector.version.size(kind).is_none();
    // Kinds that are never written can be enabled like the others: 12, 3, 51 and so on.
    if kind == 0 || is_later || (is_partial && refused.contains(&kind)) {
        return Err(INVALID_KIND);
    }
    collector.enabled.insert(kind);
    Ok(())
}

fn mute(collector: &mut ActivityCollector, kind: u32, id: u32, enable: u8) -> Status {
    if enable == 0 {
        collector.muted.insert((kind, id));
    } else {
        collector.muted.remove(&(kind, id));
    }
    Ok(())
}

fn flush(forced: bool) -> Status {
    collecting(|_| Ok(()))?;
    collector::deliver(forced);
    Ok(())
}

/// Advances to the next record of a buffer.
fn next_record(buffer: *mut u8, valid: usize, record: *mut *mut u8) -> Status {
    let current = c::read(record.cast_const())?;
    let offset = if current.is_null() {
        0
    } else {
        let kind = c::read(current.cast::<u32>().cast_const())?;
        let size = collector::with(|collector| collector.version.size(kind));
        let start = current.addr().checked_sub(buffer.addr()).ok_or(INVALID_PARAMETER)?;
        start.saturating_add(size.ok_or(INVALID_KIND)?)
    };
    if offset >= valid {
        return Err(MAX_LIMIT_REACHED);
    }
    c::write(record, buffer.wrapping_add(offset))
}

exported! {
    fn cuptiGetVersion(version: *mut u32) => collecting(|collector| c::write(version, collector.version.api()));
    fn cuptiGetTimestamp(timestamp: *mut u64) => collecting(|collector| c::write(timestamp, collector.now()));
    fn cuptiGetResultString(code: i32, text: *mut *const c_char) => c::write(text, match code {
        0 => c"CUPTI_SUCCESS",
        1 => c"CUPTI_ERROR_INVALID_PARAMETER",
        12 => c"CUPTI_ERROR_MAX_LIMIT_REACHED",
        15 => c"CUPTI_ERROR_NOT_INITIALIZED",
        21 => c"CUPTI_ERROR_INVALID_KIND",
        39 => c"CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
        _ => c"CUPTI_ERROR_UNKNOWN",
    }.as_ptr());
    fn cuptiSubscribe(subscriber: *mut u64, _callback: *const c_void, _data: *mut c_void) =>
        collecting(|collector| subscribe(collector, subscriber));
    fn cuptiUnsubscribe(subscriber: u64) => collecting(|collector| unsubscribe(collector, subscriber));
    fn cuptiEnableCallback(_enable: u32, _subscriber: u64, _domain: u32, _id: u32) => collecting(|_| Ok(()));
    fn cuptiEnableDomain(_enable: u32, _subscriber: u64, _domain: u32) => collecting(|_| Ok(()));
    fn cuptiActivityEnable(kind: u32) => collecting(|collector| enable(collector, kind));
    fn cuptiActivityDisable(kind: u32) => collecting(|collector| {
        collector.enabled.remove(&kind);
        Ok(())
    });
    fn cuptiActivityEnableDriverApi(id: u32, enable: u8) =>
        collecting(|collector| mute(collector, layout::DRIVER, id, enable));
    fn cuptiActivityEnableRuntimeApi(id: u32, enable: u8) =>
        collecting(|collector| mute(collector, layout::RUNTIME, id, enable));
    fn cuptiActivityRegisterCallbacks(request: Option<RequestBuffer>, complete: Option<BufferCompleted>) =>
        collecting(|collector| {
            collector.callbacks = Some((request.ok_or(INVALID_PARAMETER)?, complete.ok_or(INVALID_PARAMETER)?));
            Ok(())
        });
    fn cuptiActivityRegisterTimestampCallback(clock: Option<TimestampClock>) => collecting(|collector| {
        collector.set_clock(clock.ok_or(INVALID_PARAMETER)?);
        Ok(())
    });
    fn cuptiActivityFlushAll(flag: u32) => flush(flag & 1 != 0);
    fn cuptiActivityFlushPeriod(_milliseconds: u32) => collecting(|_| Ok(()));
    fn cuptiActivityGetNextRecord(buffer: *mut u8, valid: usize, record: *mut *mut u8) =>
        next_record(buffer, valid, record);
    fn cuptiActivityGetNumDroppedRecords(_context: u64, _stream: u32, dropped: *mut usize) =>
        collecting(|collector| {
            let count = std::mem::take(&mut collector.dropped);
            c::write(dropped, count as usize)
        });
    fn cuptiActivitySetAttribute(_attribute: u32, _size: *mut usize, _value: *mut c_void) =>
        collecting(|_| Ok(()));
    fn cuptiSetThreadIdType(kind: u32) => collecting(|collector| {
        collector.system_threads = kind == 1;
        Ok(())
    });
    fn cuptiGetThreadIdType(kind: *mut u32) => collecting(|collector| c::write(kind, u32::from(collector.system_threads)));
    fn cuptiGetCallbackName(domain: u32, id: u32, name: *mut *const c_char) => {
        let known = ids::callback_name(domain, id).ok_or(INVALID_PARAMETER)?;
        c::write(name, collector::with(|collector| collector.interned(&known)))
    };
    fn cuptiFinalize() => collecting(|collector| {
        collector.enabled.clear();
        collector.subscribed = false;
        Ok(())
    });
}
