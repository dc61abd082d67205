//! Turns the records of CUPTI's ring into records of the trace. Pure.
//!
//! Calls and waits are kept until CUPTI has handed over everything of their time: only the outermost of nested calls is
//! written, and the recording of an event may come in a later record than the wait for it.

use super::ring_event::{InjectedNotice, NoticeLevel, RingEvent};
use super::texts::{NAME_LOST, RingTexts};
use gctrace_event::{CudaCall, CudaLayer, GpuOp, GpuOpKind, GpuSync, GpuSyncKind, Record};
use gctrace_ring::{
    ApiLayer, CuptiState, GpuMessage, GpuRecord, RingCall, RingGpuOp, RingSync, TextId,
};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

/// Place where losses by CUPTI itself are counted.
pub(super) const DROPPED: &str = "GPU work: dropped by CUPTI";

/// Calls and waits kept for an overdue flush: about a second of launches.
const MAX_KEPT: usize = 1 << 18;
/// Demangled names kept per ring.
const MAX_NAMES: usize = 1 << 16;
/// Recordings kept per event: a wait is for the last one before it.
const RECORDINGS: usize = 64;
/// Maximum number of contexts with known devices.
const MAX_CONTEXTS: usize = 1 << 16;
/// Maximum number of events kept.
const MAX_EVENTS: usize = 1 << 16;
/// `CUpti_ActivityOverheadKind`, COMMAND_BUFFER_FULL (CUDA 12.4 and later).
const QUEUE_FULL: u32 = 6 << 16;

/// Decoder of one process's ring of GPU work: the facts that later records refer to, by id.
#[derive(Debug, Default)]
pub(super) struct GpuRing {
    pid: u32,
    texts: RingTexts,
    names: HashMap<TextId, String>,
    /// Device of each context.
    devices: HashMap<u32, u32>,
    /// By context and event: the stream that recorded it, by correlation id.
    events: HashMap<(u32, u32), BTreeMap<u32, u32>>,
    calls: HashMap<u32, RingCall>,
    waits: Vec<RingSync>,
    /// Everything up to then was handed over.
    flushed_ns: u64,
}

impl GpuRing {
    /// Starts to decode a new ring of the process; all its texts and contexts are still to come.
    pub(super) fn new(pid: u32) -> Self {
        Self { pid, ..Self::default() }
    }

    /// Decodes one message; appends the events that it completes, if any.
    pub(super) fn take(&mut self, message: GpuMessage, ring_events: &mut Vec<RingEvent>) {
        use GpuMessage as Raw;
        match message {
            Raw::Text { id, text } => self.texts.take(id, text),
            Raw::Gpu(op) => self.work(&op, ring_events),
            Raw::Sync(wait) => self.waits.push(wait),
            Raw::Event { correlation, context, stream, event } => {
                self.recorded(context, event, correlation, stream)
            }
            Raw::Api(call) => self.call(call, ring_events),
            Raw::Overhead { interval, kind } => ring_events.push(RingEvent::Overhead {
                ns: gctrace_units::duration_ns(interval.start_ns, interval.end_ns),
                queue_full: kind == QUEUE_FULL,
            }),
            Raw::Cupti { at_ns, state, code, detail } => {
                self.cupti(at_ns, state, code, detail, ring_events)
            }
            Raw::Dropped { count, .. } => ring_events.push(RingEvent::Missed(DROPPED, count)),
            Raw::Flushed { at_ns } => self.flushed(at_ns, ring_events),
        }
        if self.calls.len() + self.waits.len() > MAX_KEPT {
            self.write_until(u64::MAX, ring_events);
        }
    }

    /// No more records will come: writes all kept events.
    pub(super) fn finish(&mut self, ring_events: &mut Vec<RingEvent>) {
        self.write_until(u64::MAX, ring_events);
    }

    fn work(&mut self, op: &RingGpuOp, ring_events: &mut Vec<RingEvent>) {
        if self.devices.len() < MAX_CONTEXTS {
            self.devices.insert(op.context, op.device);
        }
        let kind = match op.work {
            GpuRecord::Kernel => GpuOpKind::Kernel,
            GpuRecord::Memcpy | GpuRecord::PeerCopy => GpuOpKind::Memcpy,
            GpuRecord::Memset => GpuOpKind::Memset,
            GpuRecord::HostFunction => GpuOpKind::HostFunction,
        };
        ring_events.push(RingEvent::of(GpuOp {
            pid: Some(self.pid),
            device: op.device,
            stream: u64::from(op.stream),
            kind,
            name: match op.work {
                GpuRecord::Kernel => self.kernel(op.name),
                GpuRecord::Memcpy => copy_name(op.copy_kind).to_owned(),
                GpuRecord::PeerCopy => copy_name(PEER).to_owned(),
                GpuRecord::Memset => "Memset (Device)".to_owned(),
                GpuRecord::HostFunction => "Host function".to_owned(),
            },
            start_ns: op.interval.start_ns,
            end_ns: op.interval.end_ns.max(op.interval.start_ns),
            correlation: if op.correlation != 0 { Some(u64::from(op.correlation)) } else { None },
            bytes: match op.work {
                GpuRecord::Kernel | GpuRecord::HostFunction => None,
                _ => Some(op.bytes),
            },
            collective: None,
        }));
    }

    /// The demangled name of a kernel.
    fn kernel(&mut self, id: TextId) -> String {
        if let Some(name) = self.names.get(&id) {
            return name.clone();
        }
        let mangled = match self.texts.get(id) {
            Some(text) if text != NAME_LOST => text,
            _ => return NAME_LOST.to_owned(),
        };
        let name = demangled(mangled);
        if self.names.len() < MAX_NAMES {
            self.names.insert(id, name.clone());
        }
        name
    }

    fn recorded(&mut self, context: u32, event: u32, correlation: u32, stream: u32) {
        let key = (context, event);
        if self.events.len() >= MAX_EVENTS && !self.events.contains_key(&key) {
            self.events.clear();
        }
        let recordings = self.events.entry(key).or_default();
        recordings.insert(correlation, stream);
        if recordings.len() > RECORDINGS {
            recordings.pop_first();
        }
    }

    /// Driver and runtime records of nested calls share a correlation id; 0 is none.
    fn call(&mut self, call: RingCall, ring_events: &mut Vec<RingEvent>) {
        if call.correlation == 0 {
            ring_events.push(RingEvent::Record(call_record(&call, self.pid, &self.texts)));
            return;
        }
        let known = self.calls.entry(call.correlation).or_insert(call);
        if call.interval.start_ns < known.interval.start_ns || call.layer == ApiLayer::Runtime {
            *known = call;
        }
    }

    /// Writes calls and waits that ended before the previous flush: a call may have ended after a flush, and calls
    /// nested in it before.
    fn flushed(&mut self, at_ns: u64, ring_events: &mut Vec<RingEvent>) {
        let until_ns = std::mem::replace(&mut self.flushed_ns, at_ns);
        self.write_until(until_ns, ring_events);
    }

    fn write_until(&mut self, until_ns: u64, ring_events: &mut Vec<RingEvent>) {
        let (pid, texts) = (self.pid, &self.texts);
        let due = self.calls.extract_if(|_, call| call.interval.end_ns <= until_ns);
        ring_events.extend(due.map(|(_, call)| RingEvent::Record(call_record(&call, pid, texts))));
        let due = self.waits.extract_if(.., |wait| wait.interval.end_ns <= until_ns);
        for wait in due.collect::<Vec<_>>() {
            let record = self.wait(&wait).map(Record::GpuSync);
            ring_events.extend(record.map(RingEvent::Record));
        }
    }

    /// `None` if it is of an unknown kind.
    fn wait(&self, wait: &RingSync) -> Option<GpuSync> {
        let kind = wait_kind(wait.kind)?;
        let for_event = matches!(kind, GpuSyncKind::Event | GpuSyncKind::StreamWaitEvent);
        let recording = match self.events.get(&(wait.context, wait.event)) {
            Some(recordings) if for_event => recordings.range(..=wait.correlation).next_back(),
            _ => None,
        };
        let has_stream = wait.stream != u32::MAX && kind != GpuSyncKind::Context;
        Some(GpuSync {
            pid: Some(self.pid),
            kind,
            device: self.devices.get(&wait.context).copied(),
            stream: if has_stream { Some(u64::from(wait.stream)) } else { None },
            start_ns: wait.interval.start_ns,
            end_ns: wait.interval.end_ns.max(wait.interval.start_ns),
            correlation: Some(u64::from(wait.correlation)),
            event_stream: recording.map(|(_, stream)| u64::from(*stream)),
            event_correlation: recording.map(|(correlation, _)| u64::from(*correlation)),
        })
    }

    fn cupti(
        &self,
        at_ns: u64,
        state: CuptiState,
        code: i64,
        detail: TextId,
        ring_events: &mut Vec<RingEvent>,
    ) {
        match state {
            CuptiState::Recording => ring_events.push(RingEvent::CuptiSince(at_ns)),
            CuptiState::Calibrated | CuptiState::Partial => {}
            _ => ring_events.push(RingEvent::NoCupti),
        }
        let detail = self.texts.or_empty(detail);
        ring_events.push(RingEvent::Notice(InjectedNotice {
            at_ns,
            weight: match state {
                CuptiState::Recording => NoticeLevel::Detail,
                CuptiState::Calibrated | CuptiState::Yielded => NoticeLevel::Note,
                _ => NoticeLevel::Warning,
            },
            text: cupti_text(state, code, detail),
        }));
    }
}

fn call_record(call: &RingCall, pid: u32, texts: &RingTexts) -> Record {
    Record::CudaCall(CudaCall {
        pid,
        tid: call.tid,
        layer: layer(call.layer),
        function: function(call, texts),
        start_ns: call.interval.start_ns,
        end_ns: call.interval.end_ns.max(call.interval.start_ns),
        correlation: if call.correlation != 0 { Some(u64::from(call.correlation)) } else { None },
        ..CudaCall::default()
    })
}

/// The state of CUPTI, as a sentence.
fn cupti_text(state: CuptiState, code: i64, detail: &str) -> String {
    let because = match detail {
        "" => String::new(),
        detail => format!(": {detail}"),
    };
    match state {
        CuptiState::Recording => {
            format!("GPU work is recorded by CUPTI (version {code}){because}")
        }
        CuptiState::Absent => format!(
            "GPU work is not recorded: found no libcupti in the process or near its libraries{because}"
        ),
        CuptiState::TooOld => {
            format!("GPU work is not recorded: this CUPTI is too old; it lacks {detail}")
        }
        CuptiState::Busy => format!(
            "GPU work is not recorded: another profiler in the program uses CUPTI (error {code}){because}"
        ),
        CuptiState::NoDriver => {
            format!("GPU work is not recorded: CUPTI finds no driver (error {code}){because}")
        }
        CuptiState::Refused => {
            format!("GPU work is not recorded: CUPTI refused {detail} (error {code})")
        }
        CuptiState::Yielded => {
            format!("CUPTI was left to the program's own profiler (--gpu-yield){because}")
        }
        CuptiState::Calibrated => format!(
            "GPU timestamps were calibrated against CLOCK_MONOTONIC; they are off by at most {code} ns{because}"
        ),
        CuptiState::Partial => {
            format!("CUPTI does not provide records of kind {code}{because}")
        }
    }
}

/// `CUpti_ActivitySynchronizationType`.
fn wait_kind(kind: u8) -> Option<GpuSyncKind> {
    match kind {
        1 => Some(GpuSyncKind::Event),
        2 => Some(GpuSyncKind::StreamWaitEvent),
        3 => Some(GpuSyncKind::Stream),
        4 => Some(GpuSyncKind::Context),
        _ => None,
    }
}

fn layer(layer: ApiLayer) -> CudaLayer {
    match layer {
        ApiLayer::Driver => CudaLayer::Driver,
        ApiLayer::Runtime => CudaLayer::Runtime,
    }
}

/// The function's name without the version that CUPTI adds (`cudaLaunchKernel_v7000`); its number
/// if CUPTI has no name.
fn function(call: &RingCall, texts: &RingTexts) -> Cow<'static, str> {
    let Some(name) = texts.get(call.name) else {
        let library = match call.layer {
            ApiLayer::Driver => "driver",
            ApiLayer::Runtime => "runtime",
        };
        return format!("{library} function {}", call.function).into();
    };
    let plain = match name.rsplit_once("_v") {
        Some((plain, version)) if is_cuda_version(version) => plain,
        _ => name,
    };
    plain.to_owned().into()
}

/// `3020` is CUDA 3.2. In the driver's names, `_v2` is part of the name.
fn is_cuda_version(text: &str) -> bool {
    text.len() >= 4 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A name as the PyTorch profiler shows it; unchanged if it is not a mangled C++ name, or one of some hundred bytes
/// that repeats its parts until it has gigabytes.
fn demangled(mangled: &str) -> String {
    let options = cpp_demangle::DemangleOptions::default();
    let mut name = ShortName(String::new());
    let symbol = cpp_demangle::Symbol::new(mangled).ok();
    match symbol.map(|symbol| symbol.structured_demangle(&mut name, &options)) {
        Some(Ok(())) => name.0,
        _ => mangled.to_owned(),
    }
}

/// A text that does not become longer than a kernel's name may be.
struct ShortName(String);

impl std::fmt::Write for ShortName {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        const LONGEST: usize = 1 << 16;
        if self.0.len() + text.len() > LONGEST {
            return Err(std::fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// `CUPTI_ACTIVITY_MEMCPY_KIND_PTOP`.
const PEER: u8 = 10;

/// `CUpti_ActivityMemcpyKind`, as the PyTorch profiler starts the names of copies.
fn copy_name(kind: u8) -> &'static str {
    match kind {
        1 => "Memcpy HtoD",
        2 => "Memcpy DtoH",
        3 => "Memcpy HtoA",
        4 => "Memcpy AtoH",
        5 => "Memcpy AtoA",
        6 => "Memcpy AtoD",
        7 => "Memcpy DtoA",
        8 => "Memcpy DtoD",
        9 => "Memcpy HtoH",
        PEER => "Memcpy PtoP",
        _ => "Memcpy",
    }
}

#[cfg(test)]
mod tests;
