//! Decodes CUDA and NCCL calls, device memory and backward passes: ours, and the PyTorch profiler's
//! if they have the same form.

use super::ChromeEvent;
use super::DecodeError;
use super::JsonValue;
use super::Problem;
use super::gpu_work;
use super::id;
use super::time;
use crate::BackwardStep;
use crate::CudaCall;
use crate::CudaLaunches;
use crate::CudaLayer;
use crate::DeviceMemory;
use crate::PauseMemory;
use crate::Record;
use crate::line::BACKWARD;
use serde::Deserialize;

/// The record that a complete event is.
pub(super) fn slice(event: &ChromeEvent<'_>) -> Result<Record, DecodeError> {
    let category = event.category.raw_text().unwrap_or_default();
    let name = event.name.raw_text().unwrap_or_default();
    if let Some(layer) = CudaLayer::from_category(category) {
        return Ok(Record::CudaCall(call(event, layer)?));
    }
    match (category, name) {
        (b"gctrace", b"cuda launches") => launches(event).map(Record::CudaLaunches),
        (b"user_annotation", name) if name == BACKWARD.as_bytes() => step(event).map(Record::Step),
        _ => return gpu_work::slice(event),
    }
    .ok_or(DecodeError::Other)
}

/// Process, thread, start and end.
fn extent(event: &ChromeEvent<'_>) -> Option<(u32, u32, u64, u64)> {
    let start_ns = event.ts.us_as_ns()?;
    let end_ns = start_ns.checked_add(event.dur.us_as_ns()?)?;
    Some((id(event.pid)?, id(event.tid)?, start_ns, end_ns))
}

fn call(event: &ChromeEvent<'_>, layer: CudaLayer) -> Result<CudaCall, Problem> {
    let (start_ns, end_ns) = gpu_work::extent(event)?;
    let name = event.name.text().ok_or("a call has no name")?;
    let mut call = CudaCall {
        pid: id(event.pid).ok_or("a call's \"pid\" is missing or not a process id")?,
        tid: thread_id(event.tid).ok_or("a call's \"tid\" is missing or not a thread id")?,
        layer,
        function: name.into_owned().into(),
        start_ns,
        end_ns,
        ..CudaCall::default()
    };
    for (key, value) in event.args.members() {
        match key {
            b"stream" => call.stream = value.unsigned(),
            b"bytes" => call.bytes = value.unsigned(),
            b"correlation" => call.correlation = value.unsigned().filter(|id| *id != 0),
            b"grid" => call.grid = value.parse().ok(),
            b"error" => {
                let code = value.signed().and_then(|code| i32::try_from(code).ok());
                call.error = code.filter(|code| *code != 0);
            }
            _ => {}
        }
    }
    Ok(call)
}

/// The PyTorch profiler writes threads that it does not know, NCCL's for example, by the lower half
/// of their `pthread_t`, as a number with sign.
fn thread_id(value: JsonValue<'_>) -> Option<u32> {
    let negative = || Some(i32::try_from(value.signed()?).ok()?.cast_unsigned());
    id(value).or_else(negative)
}

fn launches(event: &ChromeEvent<'_>) -> Option<CudaLaunches> {
    let (pid, tid, first_ns, last_ns) = extent(event)?;
    Some(CudaLaunches {
        pid,
        tid,
        stream: event.args.member("stream").unsigned()?,
        first_ns,
        last_ns,
        count: event.args.member("count").unsigned()?,
    })
}

fn step(event: &ChromeEvent<'_>) -> Option<BackwardStep> {
    let (pid, tid, start_ns, end_ns) = extent(event)?;
    Some(BackwardStep {
        pid,
        tid,
        start_ns,
        end_ns,
    })
}

fn small(value: JsonValue<'_>) -> Option<i8> {
    i8::try_from(value.signed()?).ok()
}

/// The record that an instant event `[memory]` is.
pub(super) fn memory(event: &ChromeEvent<'_>) -> Option<DeviceMemory> {
    let argument = |name: &str| event.args.member(name);
    Some(DeviceMemory {
        pid: id(event.pid)?,
        tid: id(event.tid)?,
        at_ns: event.ts.us_as_ns()?,
        device_type: small(argument("Device Type"))?,
        device: small(argument("Device Id"))?,
        bytes: argument("Bytes").signed()?,
        allocated: argument("Total Allocated").unsigned()?,
        reserved: argument("Total Reserved").unsigned()?,
    })
}

#[derive(Deserialize)]
struct DecodedPauseMemory {
    end_ns: u64,
    device_type: i8,
    device: i8,
    freed_bytes: u64,
    freed_blocks: u64,
}

/// Only in gctrace's traces.
pub(super) fn pause_memory(event: &ChromeEvent<'_>) -> Result<PauseMemory, super::Problem> {
    let args: DecodedPauseMemory = event
        .args
        .parse()
        .or(Err("the device memory of a pause is damaged"))?;
    Ok(PauseMemory {
        pid: id(event.pid).ok_or("the \"pid\" of a pause's memory is not a process id")?,
        tid: id(event.tid).ok_or("the \"tid\" of a pause's memory is not a thread id")?,
        start_ns: time(event.ts)?,
        end_ns: args.end_ns,
        device_type: args.device_type,
        device: args.device,
        freed_bytes: args.freed_bytes,
        freed_blocks: args.freed_blocks,
    })
}
