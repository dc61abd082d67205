//! Converts operations and calls to records.

use super::ids::callback_id;
use super::layout;
use super::layout::{CuptiVersion, RecordBuilder};
use crate::core::{FinishedOperation, OperationKind};
use crate::log::CallLine;
use crate::{handles, simulator};

/// `CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL`.
const COMMAND_BUFFER_FULL: u32 = 6 << 16;
/// `CUPTI_ACTIVITY_OBJECT_THREAD`, kind of the object of an overhead record.
const OBJECT_THREAD: u32 = 2;
/// `CUPTI_SYNCHRONIZATION_INVALID_VALUE`.
const NO_ID: u32 = u32::MAX;

/// `CUpti_ActivityMemcpyKind` of a copy between devices.
const PEER: u8 = 10;

/// How timestamps and names are written.
pub(super) struct RecordFormat<'a> {
    pub(super) version: CuptiVersion,
    /// From CLOCK_MONOTONIC to CUPTI's clock.
    pub(super) timestamp: &'a dyn Fn(u64) -> u64,
    /// Address of a name that is never freed.
    pub(super) name: &'a mut dyn FnMut(&str) -> u64,
}

/// The kind of an operation's record; markers have none.
pub(super) fn kind(operation: &FinishedOperation) -> Option<u32> {
    match operation.operation.kind {
        OperationKind::Kernel | OperationKind::Collective => Some(layout::KERNEL),
        OperationKind::Memcpy(PEER) => Some(layout::PEER_MEMCPY),
        OperationKind::Memcpy(_) => Some(layout::MEMCPY),
        OperationKind::Memset => Some(layout::MEMSET),
        OperationKind::HostFunction => Some(layout::HOST_LAUNCH),
        OperationKind::Event | OperationKind::Wait => None,
    }
}

/// The contexts are the devices' primary ones.
fn context(device: u32) -> u32 {
    device + 1
}

pub(super) fn operation(
    finished: &FinishedOperation,
    writing: &mut RecordFormat,
) -> Option<RecordBuilder> {
    let kind = kind(finished)?;
    let operation = &finished.operation;
    let (start, end) =
        ((writing.timestamp)(finished.start_ns), (writing.timestamp)(finished.end_ns));
    if kind == layout::HOST_LAUNCH {
        return Some(
            RecordBuilder::new(writing.version, kind)?
                .u32(4, finished.stream)
                .u32(8, context(finished.device))
                .u32(12, finished.device)
                .u32(16, operation.correlation)
                .u32(20, std::process::id())
                .u64(32, start)
                .u64(40, end),
        );
    }
    let record = RecordBuilder::new(writing.version, kind)?.u64(16, start).u64(24, end);
    if kind == layout::KERNEL {
        return Some(
            record
                .u64(32, end)
                .u32(40, finished.device)
                .u32(44, context(finished.device))
                .u32(48, finished.stream)
                .triple(52, operation.grid)
                .triple(64, operation.block)
                .u32(92, operation.correlation)
                .u64(104, (writing.name)(&operation.name))
                .u64(144, 0)
                .u32(156, 0),
        );
    }
    let copy_kind = match operation.kind {
        OperationKind::Memcpy(kind) => kind,
        _ => 0,
    };
    let correlation_at = if kind == layout::PEER_MEMCPY { 60 } else { 44 };
    Some(
        record
            .u8(4, copy_kind)
            .u64(8, operation.bytes)
            .u32(32, finished.device)
            .u32(36, context(finished.device))
            .u32(40, finished.stream)
            .u32(correlation_at, operation.correlation),
    )
}

/// The record of a host call: its kind and its id in the API, if CUPTI has one.
pub(super) fn call_kind(call: &CallLine) -> Option<(u32, u32)> {
    let kind = match call.layer {
        "driver" => layout::DRIVER,
        "runtime" => layout::RUNTIME,
        _ => return None,
    };
    Some((kind, callback_id(call.function)?))
}

pub(super) fn call(
    call: &CallLine,
    thread: u32,
    writing: &mut RecordFormat,
) -> Option<RecordBuilder> {
    let (kind, id) = call_kind(call)?;
    Some(
        RecordBuilder::new(writing.version, kind)?
            .u32(4, id)
            .u64(8, (writing.timestamp)(call.start_ns))
            .u64(16, (writing.timestamp)(call.end_ns))
            .u32(24, std::process::id())
            .u32(28, thread)
            .u32(32, call.correlation)
            .u32(36, u32::from_ne_bytes(call.result.to_ne_bytes())),
    )
}

/// `CUpti_ActivitySynchronizationType` of a driver call.
fn synchronization_type(function: &str) -> Option<u32> {
    match function.trim_end_matches("_ptsz") {
        "cuEventSynchronize" => Some(1),
        "cuStreamWaitEvent" => Some(2),
        "cuStreamSynchronize" => Some(3),
        "cuCtxSynchronize" => Some(4),
        _ => None,
    }
}

pub(super) fn is_synchronization(call: &CallLine) -> bool {
    synchronization_type(call.function).is_some()
}

pub(super) fn is_event_record(call: &CallLine) -> bool {
    call.function.starts_with("cuEventRecord")
}

/// The record of a synchronization, if the call was one.
pub(super) fn synchronization(
    call: &CallLine,
    writing: &mut RecordFormat,
) -> Option<RecordBuilder> {
    let kind = synchronization_type(call.function)?;
    let stream = if matches!(kind, 2 | 3) { stream_id(call) } else { NO_ID };
    Some(
        RecordBuilder::new(writing.version, layout::SYNCHRONIZATION)?
            .u32(4, kind)
            .u64(8, (writing.timestamp)(call.start_ns))
            .u64(16, (writing.timestamp)(call.end_ns))
            .u32(24, call.correlation)
            .u32(28, context(call.device))
            .u32(32, stream)
            .u32(36, handles::EVENT.id(call.event).unwrap_or(NO_ID)),
    )
}

/// The record of a call that recorded an event.
pub(super) fn event(call: &CallLine, writing: &mut RecordFormat) -> Option<RecordBuilder> {
    Some(
        RecordBuilder::new(writing.version, layout::EVENT)?
            .u32(4, call.correlation)
            .u32(8, context(call.device))
            .u32(12, stream_id(call))
            .u32(16, handles::EVENT.id(call.event).unwrap_or(NO_ID)),
    )
}

/// The record of a launch that waited for room in the queue.
pub(super) fn full_queue(
    start_ns: u64,
    end_ns: u64,
    thread: u32,
    writing: &RecordFormat,
) -> Option<RecordBuilder> {
    Some(
        RecordBuilder::new(writing.version, layout::OVERHEAD)?
            .u32(4, COMMAND_BUFFER_FULL)
            .u32(8, OBJECT_THREAD)
            .u32(12, std::process::id())
            .u32(16, thread)
            .u64(24, (writing.timestamp)(start_ns))
            .u64(32, (writing.timestamp)(end_ns)),
    )
}

fn stream_id(call: &CallLine) -> u32 {
    handles::STREAM.id(call.stream).unwrap_or(simulator::default_stream(call.device))
}
