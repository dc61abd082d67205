//! Decodes GPU work, waits for it and annotations: gctrace's and the PyTorch profiler's.
//!
//! Owns when such an event is usable. The profiler's `pid` is the device; in gctrace's events
//! `args.process` is the process.

use super::ChromeEvent;
use super::DecodeError;
use super::JsonValue;
use super::Problem;
use super::id;
use super::time;
use crate::Annotation;
use crate::Collective;
use crate::GpuOp;
use crate::GpuOpKind;
use crate::GpuSync;
use crate::GpuSyncKind;
use crate::Record;

/// The record that a complete event is.
pub(super) fn slice(event: &ChromeEvent<'_>) -> Result<Record, DecodeError> {
    let category = event.category.raw_text().unwrap_or_default();
    if let Some(kind) = GpuOpKind::from_category(category) {
        return Ok(Record::GpuOp(op(event, kind)?));
    }
    match category {
        b"cuda_sync" => sync(event).map(Record::GpuSync),
        b"user_annotation" => annotation(event).map(Record::Annotation),
        _ => Err(DecodeError::Other),
    }
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
    Ok((start_ns, start_ns.saturating_add(length_ns)))
}

/// A number that the profiler writes as -1 if there is none.
fn number(value: JsonValue<'_>) -> Option<u64> {
    value.unsigned()
}

fn op(event: &ChromeEvent<'_>, kind: GpuOpKind) -> Result<GpuOp, Problem> {
    let (start_ns, end_ns) = extent(event)?;
    let mut op = GpuOp {
        device: 0,
        stream: 0,
        kind,
        name: event.name.text().unwrap_or_default().into_owned(),
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
            b"correlation" => op.correlation = number(value).filter(|id| *id != 0),
            b"bytes" => op.bytes = number(value),
            b"process" => op.pid = id(value),
            b"Collective name" => collective.name = value.text().unwrap_or_default().into_owned(),
            b"Process Group Name" => collective.group = value.text().map(|text| text.into_owned()),
            b"Seq" => collective.sequence = number(value),
            b"Group size" => collective.size = id(value),
            _ => {}
        }
    }
    op.device = device.ok_or("GPU work without a device")?;
    op.stream = stream.ok_or("GPU work without a stream")?;
    op.collective = (collective != Collective::default()).then(|| Box::new(collective));
    Ok(op)
}

fn sync(event: &ChromeEvent<'_>) -> Result<GpuSync, DecodeError> {
    let name = event.name.raw_text().unwrap_or_default();
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
        correlation: argument("correlation").filter(|id| *id != 0),
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
