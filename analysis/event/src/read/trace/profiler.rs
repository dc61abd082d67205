//! Events of the PyTorch profiler: calls, GPU work, waits for it, annotations and device memory. gctrace writes them in
//! the same form.
//!
//! Owns when such an event is usable. The profiler's `pid` of GPU work is the device; in gctrace's
//! events `args.process` is the process.

use super::code::{CodeFilter, overhead};
use super::{ChromeEvent, DecodeError, JsonValue, Problem, id, time};
use crate::{
    Annotation, Collective, CudaCall, CudaLaunches, CudaLayer, DeviceMemory, GpuOp, GpuOpKind,
    GpuSync, GpuSyncKind, NamedMarker, Record, StepMark, Turn,
};

/// The record that a complete event is.
pub(super) fn slice(
    event: &ChromeEvent<'_>,
    codes: &mut CodeFilter,
) -> Result<Record, DecodeError> {
    let category = event.category.raw_text().ok_or(DecodeError::Other)?;
    if let Some(layer) = CudaLayer::from_category(category) {
        return Ok(Record::CudaCall(call(event, layer)?));
    }
    if let Some(kind) = GpuOpKind::from_category(category) {
        return Ok(Record::GpuOp(op(event, kind)?));
    }
    Ok(match category {
        b"gctrace" if event.name.raw_text() == Some(b"cuda launches") => {
            Record::CudaLaunches(launches(event).ok_or(DecodeError::Other)?)
        }
        b"gctrace" if event.name.raw_text() == Some(b"turn") => {
            Record::Turn(turn(event).ok_or(DecodeError::Other)?)
        }
        b"cuda_sync" => Record::GpuSync(sync(event)?),
        b"user_annotation" => marked(annotation(event)?, event.args),
        // Of PyTorch 1.8 to 1.11, where annotations and operators have one category.
        b"Operator"
            if event.name.raw_text().is_some_and(|name| name.starts_with(b"ProfilerStep#")) =>
        {
            marked(annotation(event)?, event.args)
        }
        b"python_function" => codes.function(event)?,
        b"cpu_op" | b"Operator" => codes.operator(event)?,
        b"overhead" => overhead(event)?,
        _ => return Err(DecodeError::Other),
    })
}

/// Start and end. A negative or missing length is not guessed.
pub(super) fn extent(event: &ChromeEvent<'_>) -> Result<(u64, u64), Problem> {
    let start_ns = time(event.ts)?;
    if event.dur.is_missing() {
        return Err("\"dur\" is missing");
    }
    let length_ns = event
        .dur
        .us_as_ns()
        .ok_or("\"dur\" is negative, out of range or not a number of microseconds")?;
    Ok((start_ns, gctrace_units::after(start_ns, length_ns)))
}

fn call(event: &ChromeEvent<'_>, layer: CudaLayer) -> Result<CudaCall, Problem> {
    let (start_ns, end_ns) = extent(event)?;
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
            b"correlation" => call.correlation = correlation(value),
            b"grid" => call.grid = value.parse().ok(),
            b"error" => {
                call.error = match value.signed().map(i32::try_from) {
                    Some(Ok(code)) if code != 0 => Some(code),
                    _ => None,
                };
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

/// Process, thread, start and end.
fn thread_extent(event: &ChromeEvent<'_>) -> Option<(u32, u32, u64, u64)> {
    let start_ns = event.ts.us_as_ns()?;
    let end_ns = start_ns.checked_add(event.dur.us_as_ns()?)?;
    Some((id(event.pid)?, id(event.tid)?, start_ns, end_ns))
}

fn launches(event: &ChromeEvent<'_>) -> Option<CudaLaunches> {
    let (pid, tid, first_ns, last_ns) = thread_extent(event)?;
    Some(CudaLaunches { pid, tid, first_ns, last_ns, ..event.args.parse().ok()? })
}

fn turn(event: &ChromeEvent<'_>) -> Option<Turn> {
    let (pid, tid, start_ns, end_ns) = thread_extent(event)?;
    Some(Turn { pid, tid, start_ns, end_ns, ..event.args.parse().ok()? })
}

/// The record of an annotation: a mark of a training step, by its name, or any other.
fn marked(annotation: Annotation, args: JsonValue<'_>) -> Record {
    match NamedMarker::from_annotation(&annotation.name) {
        Some(marker) => Record::Step(StepMark {
            pid: annotation.pid,
            tid: annotation.tid,
            marker,
            start_ns: annotation.start_ns,
            end_ns: annotation.end_ns,
            cpu_ns: args.member("cpu_ns").unsigned(),
        }),
        None => Record::Annotation(annotation),
    }
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

/// A number that the profiler writes as -1 if there is none.
fn number(value: JsonValue<'_>) -> Option<u64> {
    value.unsigned()
}

/// 0 means that there is none.
fn correlation(value: JsonValue<'_>) -> Option<u64> {
    value.unsigned().filter(|id| *id != 0)
}

fn op(event: &ChromeEvent<'_>, kind: GpuOpKind) -> Result<GpuOp, Problem> {
    let (start_ns, end_ns) = extent(event)?;
    let mut op = GpuOp {
        device: 0,
        stream: 0,
        kind,
        name: gctrace_units::if_known(event.name.text()).into_owned(),
        start_ns,
        end_ns,
        ..GpuOp::default()
    };
    let (mut device, mut stream) = (id(event.pid), number(event.tid));
    let mut collective = Collective::default();
    for (key, value) in event.args.members() {
        match key {
            b"device" => device = id(value).or(device),
            b"stream" => stream = number(value).or(stream),
            b"correlation" => op.correlation = correlation(value),
            b"bytes" => op.bytes = number(value),
            b"process" => op.pid = id(value),
            b"Collective name" => {
                collective.name = gctrace_units::if_known(value.text()).into_owned()
            }
            b"Process Group Name" => collective.group = value.text().map(|text| text.into_owned()),
            b"Seq" => collective.sequence = number(value),
            b"Group size" => collective.size = id(value),
            b"Process Group Ranks" => collective.ranks = value.text().map(|text| text.into_owned()),
            b"Src Rank" => collective.source = id(value),
            b"Dst Rank" => collective.destination = id(value),
            _ => {}
        }
    }
    op.device = device.ok_or("GPU work without a device")?;
    op.stream = stream.ok_or("GPU work without a stream")?;
    op.collective = (collective != Collective::default()).then(|| Box::new(collective));
    Ok(op)
}

fn sync(event: &ChromeEvent<'_>) -> Result<GpuSync, DecodeError> {
    let name = event.name.raw_text().ok_or(DecodeError::Other)?;
    let kind = GpuSyncKind::from_name(name).ok_or(DecodeError::Other)?;
    let (start_ns, end_ns) = extent(event)?;
    let argument = |name: &str| number(event.args.member(name));
    Ok(GpuSync {
        pid: id(event.args.member("process")),
        kind,
        device: id(event.args.member("device")),
        stream: argument("stream"),
        start_ns,
        end_ns,
        correlation: correlation(event.args.member("correlation")),
        event_stream: argument("wait_on_stream"),
        event_correlation: argument("wait_on_cuda_event_record_corr_id"),
    })
}

fn annotation(event: &ChromeEvent<'_>) -> Result<Annotation, DecodeError> {
    let pid = id(event.pid).ok_or(DecodeError::Other)?;
    let tid = id(event.tid).ok_or(DecodeError::Other)?;
    let (start_ns, end_ns) = extent(event)?;
    Ok(Annotation {
        pid,
        tid,
        name: event.name.text().ok_or(DecodeError::Other)?.into_owned(),
        start_ns,
        end_ns,
    })
}
