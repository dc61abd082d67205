//! GPU work, waits for it and annotations, as the PyTorch profiler writes them.
//!
//! Owns their text. gctrace's events have the process as `pid`, and `process` in `args`
//! distinguishes them from the profiler's, whose `pid` is the device.

use super::cuda::push_slice;
use super::push_us;
use crate::Annotation;
use crate::GpuOp;
use crate::GpuSync;
use std::fmt::Display;
use std::io;
use std::io::Write;

/// Members of `args`, one after the other.
struct GpuWorkArgs<'a> {
    out: &'a mut Vec<u8>,
    before: &'static str,
}

impl GpuWorkArgs<'_> {
    fn member(&mut self, key: &str, value: Option<impl Display>) -> io::Result<()> {
        let Some(value) = value else { return Ok(()) };
        write!(self.out, r#"{}"{key}":{value}"#, self.before)?;
        self.before = ",";
        Ok(())
    }

    fn text(&mut self, key: &str, value: Option<&str>) -> io::Result<()> {
        self.member(key, value.map(serde_json::Value::from))
    }

    fn close(self) {
        // No member: no `args`.
        let close: &[u8] = if self.before == "," { b"}}" } else { b"}" };
        self.out.extend_from_slice(close);
    }
}

fn args(out: &mut Vec<u8>) -> GpuWorkArgs<'_> {
    GpuWorkArgs {
        out,
        before: r#","args":{"#,
    }
}

pub(super) fn push_op(out: &mut Vec<u8>, op: &GpuOp) -> io::Result<()> {
    write!(out, r#"{{"ph":"X","cat":"{}","name":"#, op.kind.category())?;
    serde_json::to_writer(&mut *out, &op.name)?;
    write!(
        out,
        r#","pid":{},"tid":{},"ts":"#,
        op.pid.unwrap_or(op.device),
        op.stream
    )?;
    push_us(out, op.start_ns)?;
    out.extend_from_slice(br#","dur":"#);
    push_us(out, op.end_ns.saturating_sub(op.start_ns))?;
    let mut args = args(out);
    args.member("device", Some(op.device))?;
    args.member("stream", Some(op.stream))?;
    args.member("correlation", op.correlation)?;
    args.member("bytes", op.bytes)?;
    args.member("process", op.pid)?;
    if let Some(collective) = &op.collective {
        args.text("Collective name", Some(&collective.name))?;
        args.text("Process Group Name", collective.group.as_deref())?;
        args.member("Seq", collective.sequence)?;
        args.member("Group size", collective.size)?;
    }
    args.close();
    Ok(())
}

pub(super) fn push_sync(out: &mut Vec<u8>, sync: &GpuSync) -> io::Result<()> {
    let kind = sync.kind.name();
    write!(
        out,
        r#"{{"ph":"X","cat":"cuda_sync","name":"{kind}","pid":{},"tid":{},"ts":"#,
        sync.pid.or(sync.device).unwrap_or(0),
        sync.stream.unwrap_or(0)
    )?;
    push_us(out, sync.start_ns)?;
    out.extend_from_slice(br#","dur":"#);
    push_us(out, sync.end_ns.saturating_sub(sync.start_ns))?;
    let mut args = args(out);
    args.text("cuda_sync_kind", Some(kind))?;
    args.member("stream", sync.stream)?;
    args.member("correlation", sync.correlation)?;
    args.member("device", sync.device)?;
    args.member("wait_on_stream", sync.event_stream)?;
    args.member("wait_on_cuda_event_record_corr_id", sync.event_correlation)?;
    args.member("process", sync.pid)?;
    args.close();
    Ok(())
}

pub(super) fn push_annotation(out: &mut Vec<u8>, annotation: &Annotation) -> io::Result<()> {
    push_slice(
        out,
        ("user_annotation", &annotation.name),
        (annotation.pid, annotation.tid),
        (annotation.start_ns, annotation.end_ns),
    )?;
    out.push(b'}');
    Ok(())
}
