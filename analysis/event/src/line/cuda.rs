//! Calls of CUDA and NCCL, device memory and backward passes, as the PyTorch profiler writes them.
//!
//! Owns their text. Categories and names are Kineto's where it has such events.

use super::push_us;
use crate::BackwardStep;
use crate::CudaCall;
use crate::CudaLaunches;
use crate::DeviceMemory;
use crate::PauseMemory;
use std::io;
use std::io::Write;

/// `name` of backward passes.
pub(crate) const BACKWARD: &str = "backward";

/// Appends the start of a complete event, up to its `args`.
pub(super) fn push_slice(
    out: &mut Vec<u8>,
    (category, name): (&str, &str),
    (pid, tid): (u32, u32),
    (start_ns, end_ns): (u64, u64),
) -> io::Result<()> {
    write!(out, r#"{{"ph":"X","cat":"{category}","name":"#)?;
    serde_json::to_writer(&mut *out, name)?;
    write!(out, r#","pid":{pid},"tid":{tid},"ts":"#)?;
    push_us(out, start_ns)?;
    out.extend_from_slice(br#","dur":"#);
    push_us(out, end_ns.saturating_sub(start_ns))
}

pub(super) fn push_call(out: &mut Vec<u8>, call: &CudaCall) -> io::Result<()> {
    push_slice(
        out,
        (call.layer.category(), &call.function),
        (call.pid, call.tid),
        (call.start_ns, call.end_ns),
    )?;
    let mut before = r#","args":{"#;
    let mut member = |key: &str, value: &dyn std::fmt::Display| {
        let written = write!(out, r#"{before}"{key}":{value}"#);
        before = ",";
        written
    };
    if let Some(stream) = call.stream {
        member("stream", &stream)?;
    }
    if let Some(bytes) = call.bytes {
        member("bytes", &bytes)?;
    }
    if let Some([x, y, z]) = call.grid {
        member("grid", &format_args!("[{x},{y},{z}]"))?;
    }
    if let Some(correlation) = call.correlation {
        member("correlation", &correlation)?;
    }
    if let Some(error) = call.error {
        member("error", &error)?;
    }
    // No member: no `args`.
    let close: &[u8] = if before == "," { b"}}" } else { b"}" };
    out.extend_from_slice(close);
    Ok(())
}

pub(super) fn push_launches(out: &mut Vec<u8>, launches: &CudaLaunches) -> io::Result<()> {
    push_slice(
        out,
        ("gctrace", "cuda launches"),
        (launches.pid, launches.tid),
        (launches.first_ns, launches.last_ns),
    )?;
    write!(
        out,
        r#","args":{{"count":{},"stream":{}}}}}"#,
        launches.count, launches.stream
    )
}

pub(super) fn push_memory(out: &mut Vec<u8>, memory: &DeviceMemory) -> io::Result<()> {
    write!(
        out,
        r#"{{"ph":"i","s":"t","cat":"cpu_instant_event","name":"[memory]","pid":{},"tid":{},"ts":"#,
        memory.pid, memory.tid
    )?;
    push_us(out, memory.at_ns)?;
    write!(
        out,
        r#","args":{{"Total Allocated":{},"Total Reserved":{},"Bytes":{},"Device Id":{},"Device Type":{}}}}}"#,
        memory.allocated, memory.reserved, memory.bytes, memory.device, memory.device_type
    )
}

pub(super) fn push_pause_memory(out: &mut Vec<u8>, memory: &PauseMemory) -> io::Result<()> {
    write!(
        out,
        r#"{{"ph":"M","name":"gctrace_pause_memory","pid":{},"tid":{},"ts":"#,
        memory.pid, memory.tid
    )?;
    push_us(out, memory.start_ns)?;
    write!(
        out,
        r#","args":{{"end_ns":{},"device_type":{},"device":{},"freed_bytes":{},"freed_blocks":{}}}}}"#,
        memory.end_ns, memory.device_type, memory.device, memory.freed_bytes, memory.freed_blocks
    )
}

pub(super) fn push_step(out: &mut Vec<u8>, step: &BackwardStep) -> io::Result<()> {
    push_slice(
        out,
        ("user_annotation", BACKWARD),
        (step.pid, step.tid),
        (step.start_ns, step.end_ns),
    )?;
    out.push(b'}');
    Ok(())
}
