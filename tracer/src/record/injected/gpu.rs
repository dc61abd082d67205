//! What the ring of CUPTI says -> records of the trace. Pure.
//!
//! Calls and waits are kept until CUPTI has handed over everything of their time: of nested calls the
//! outermost is written, and an event that is waited for was recorded before, in a record that may come later.

use super::said::Notice;
use super::said::Said;
use super::said::Weight;
use super::texts::NAME_LOST;
use super::texts::Texts;
use gctrace_event::CudaCall;
use gctrace_event::CudaLayer;
use gctrace_event::GpuOp;
use gctrace_event::GpuOpKind;
use gctrace_event::GpuSync;
use gctrace_event::GpuSyncKind;
use gctrace_event::Record;
use gctrace_ring::ApiLayer;
use gctrace_ring::CuptiState;
use gctrace_ring::GpuWork;
use gctrace_ring::Moment;
use gctrace_ring::Record as Raw;
use gctrace_ring::TextId;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::HashMap;

/// Where work is counted that CUPTI itself dropped.
pub(super) const DROPPED: &str = "GPU work: dropped by CUPTI";

/// Calls and waits kept for a flush that does not come: what a second of launches makes.
const MOST_KEPT: usize = 1 << 18;
/// Names demangled of one ring.
const MOST_NAMES: usize = 1 << 16;
/// Recordings of one event that are kept: a wait is for the last one before it.
const RECORDINGS: usize = 64;
/// Events that are kept.
const MOST_EVENTS: usize = 1 << 16;
/// `CUpti_ActivityOverheadKind`, COMMAND_BUFFER_FULL (CUDA 12.4 and later).
const QUEUE_FULL: u32 = 6 << 16;

/// What is known of one ring.
#[derive(Debug)]
pub(super) struct GpuRing {
    pid: u32,
    texts: Texts,
    names: HashMap<TextId, String>,
    /// Device of each context.
    devices: HashMap<u32, u32>,
    /// By context and event: what recorded it into which stream, by correlation id.
    events: HashMap<(u32, u32), BTreeMap<u32, u32>>,
    calls: HashMap<u32, Call>,
    waits: Vec<Wait>,
    /// Everything up to then was handed over.
    flushed_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    moment: Moment,
    layer: ApiLayer,
    tid: u32,
    function: u32,
    name: TextId,
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    moment: Moment,
    kind: GpuSyncKind,
    correlation: u32,
    context: u32,
    stream: u32,
    event: u32,
}

impl GpuRing {
    /// Of this process.
    pub(super) fn new(pid: u32) -> Self {
        Self {
            pid,
            texts: Texts::default(),
            names: HashMap::new(),
            devices: HashMap::new(),
            events: HashMap::new(),
            calls: HashMap::new(),
            waits: Vec::new(),
            flushed_ns: 0,
        }
    }

    /// What follows from a record.
    pub(super) fn take(&mut self, record: &Raw, said: &mut Vec<Said>) {
        match *record {
            Raw::Text(piece) => self.texts.take(&piece),
            Raw::Gpu { .. } => self.work(record, said),
            Raw::Sync {
                moment,
                kind,
                correlation,
                context,
                stream,
                event,
            } => {
                if let Some(kind) = wait_kind(kind) {
                    self.waits.push(Wait {
                        moment,
                        kind,
                        correlation,
                        context,
                        stream,
                        event,
                    });
                }
            }
            Raw::Event {
                correlation,
                context,
                stream,
                event,
            } => self.recorded(context, event, correlation, stream),
            Raw::Api {
                moment,
                layer,
                tid,
                correlation,
                function,
                name,
            } => {
                let call = Call {
                    moment,
                    layer,
                    tid,
                    function,
                    name,
                };
                self.call(correlation, call, said);
            }
            Raw::Overhead { moment, kind } => said.push(Said::Overhead {
                ns: moment.end_ns.saturating_sub(moment.begin_ns),
                queue_full: kind == QUEUE_FULL,
            }),
            Raw::Cupti {
                at_ns,
                state,
                code,
                detail,
            } => self.cupti(at_ns, state, code, detail, said),
            Raw::Dropped { count, .. } => said.push(Said::Missed(DROPPED, count)),
            Raw::Flushed { at_ns } => self.flushed(at_ns, said),
            _ => {}
        }
        if self.calls.len() + self.waits.len() > MOST_KEPT {
            self.write_until(u64::MAX, said);
        }
    }

    /// Nothing more comes: what is kept is written.
    pub(super) fn finish(&mut self, said: &mut Vec<Said>) {
        self.write_until(u64::MAX, said);
    }

    fn work(&mut self, record: &Raw, said: &mut Vec<Said>) {
        let Raw::Gpu {
            moment,
            work,
            copy_kind,
            device,
            context,
            stream,
            correlation,
            bytes,
            name,
            ..
        } = *record
        else {
            return;
        };
        self.devices.insert(context, device);
        let kind = match work {
            GpuWork::Kernel => GpuOpKind::Kernel,
            GpuWork::Memcpy | GpuWork::PeerCopy => GpuOpKind::Memcpy,
            GpuWork::Memset => GpuOpKind::Memset,
        };
        said.push(Said::Record(Record::GpuOp(GpuOp {
            pid: Some(self.pid),
            device,
            stream: u64::from(stream),
            kind,
            name: match work {
                GpuWork::Kernel => self.kernel(name),
                GpuWork::Memcpy => copy_name(copy_kind).to_owned(),
                GpuWork::PeerCopy => copy_name(PEER).to_owned(),
                GpuWork::Memset => "Memset (Device)".to_owned(),
            },
            begin_ns: moment.begin_ns,
            end_ns: moment.end_ns.max(moment.begin_ns),
            correlation: (correlation != 0).then_some(u64::from(correlation)),
            bytes: (work != GpuWork::Kernel).then_some(bytes),
            collective: None,
        })));
    }

    /// The kernel's name as its author wrote it.
    fn kernel(&mut self, id: TextId) -> String {
        if let Some(name) = self.names.get(&id) {
            return name.clone();
        }
        let Some(mangled) = self.texts.get(id).filter(|text| *text != NAME_LOST) else {
            return NAME_LOST.to_owned();
        };
        let name = demangled(mangled);
        if self.names.len() < MOST_NAMES {
            self.names.insert(id, name.clone());
        }
        name
    }

    fn recorded(&mut self, context: u32, event: u32, correlation: u32, stream: u32) {
        let key = (context, event);
        if self.events.len() >= MOST_EVENTS && !self.events.contains_key(&key) {
            self.events.clear();
        }
        let recordings = self.events.entry(key).or_default();
        recordings.insert(correlation, stream);
        if recordings.len() > RECORDINGS {
            recordings.pop_first();
        }
    }

    /// Driver and runtime records of nested calls have one correlation id; 0 is none.
    fn call(&mut self, correlation: u32, call: Call, said: &mut Vec<Said>) {
        if correlation == 0 {
            said.push(Said::Record(call.record(self.pid, None, &self.texts)));
            return;
        }
        let known = self.calls.entry(correlation).or_insert(call);
        if call.moment.begin_ns < known.moment.begin_ns || call.layer == ApiLayer::Runtime {
            *known = call;
        }
    }

    /// What ended before the flush before: a call may have ended after one, and those within it before.
    fn flushed(&mut self, at_ns: u64, said: &mut Vec<Said>) {
        let until_ns = std::mem::replace(&mut self.flushed_ns, at_ns);
        self.write_until(until_ns, said);
    }

    fn write_until(&mut self, until_ns: u64, said: &mut Vec<Said>) {
        let (pid, texts) = (self.pid, &self.texts);
        self.calls.retain(|correlation, call| {
            let is_due = call.moment.end_ns <= until_ns;
            if is_due {
                said.push(Said::Record(call.record(pid, Some(*correlation), texts)));
            }
            !is_due
        });
        let due = self
            .waits
            .extract_if(.., |wait| wait.moment.end_ns <= until_ns);
        for wait in due.collect::<Vec<_>>() {
            said.push(Said::Record(Record::GpuSync(self.wait(&wait))));
        }
    }

    fn wait(&self, wait: &Wait) -> GpuSync {
        let for_event = matches!(wait.kind, GpuSyncKind::Event | GpuSyncKind::StreamWaitEvent);
        let recordings = self.events.get(&(wait.context, wait.event));
        let recording = recordings
            .filter(|_| for_event)
            .and_then(|recordings| recordings.range(..=wait.correlation).next_back());
        let has_stream = wait.stream != u32::MAX && wait.kind != GpuSyncKind::Context;
        GpuSync {
            pid: Some(self.pid),
            kind: wait.kind,
            device: self.devices.get(&wait.context).copied(),
            stream: has_stream.then_some(u64::from(wait.stream)),
            begin_ns: wait.moment.begin_ns,
            end_ns: wait.moment.end_ns.max(wait.moment.begin_ns),
            correlation: Some(u64::from(wait.correlation)),
            event_stream: recording.map(|(_, stream)| u64::from(*stream)),
            event_correlation: recording.map(|(correlation, _)| u64::from(*correlation)),
        }
    }

    fn cupti(
        &self,
        at_ns: u64,
        state: CuptiState,
        code: i64,
        detail: TextId,
        said: &mut Vec<Said>,
    ) {
        match state {
            CuptiState::Recording => said.push(Said::CuptiSince(at_ns)),
            CuptiState::Calibrated | CuptiState::Partial => {}
            _ => said.push(Said::NoCupti),
        }
        let detail = self.texts.get(detail).unwrap_or_default();
        said.push(Said::Notice(Notice {
            at_ns,
            weight: match state {
                CuptiState::Recording => Weight::Detail,
                CuptiState::Calibrated | CuptiState::Yielded => Weight::Note,
                _ => Weight::Warning,
            },
            text: cupti_text(state, code, detail),
        }));
    }
}

impl Call {
    fn record(&self, pid: u32, correlation: Option<u32>, texts: &Texts) -> Record {
        Record::CudaCall(CudaCall {
            pid,
            tid: self.tid,
            layer: layer(self.layer),
            function: function(self, texts),
            begin_ns: self.moment.begin_ns,
            end_ns: self.moment.end_ns.max(self.moment.begin_ns),
            stream: None,
            bytes: None,
            grid: None,
            correlation: correlation.map(u64::from),
            error: None,
        })
    }
}

/// What became of CUPTI, in a sentence.
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
            "GPU work is not recorded: there is no libcupti in the process or near its libraries{because}"
        ),
        CuptiState::TooOld => {
            format!("GPU work is not recorded: this CUPTI is too old; it lacks {detail}")
        }
        CuptiState::Busy => format!(
            "GPU work is not recorded: another profiler of the program has CUPTI (error {code}){because}"
        ),
        CuptiState::NoDriver => {
            format!("GPU work is not recorded: CUPTI finds no driver (error {code}){because}")
        }
        CuptiState::Refused => {
            format!("GPU work is not recorded: CUPTI refused {detail} (error {code})")
        }
        CuptiState::Yielded => {
            format!("CUPTI is left to the program's own profiler (--gpu-yield){because}")
        }
        CuptiState::Calibrated => format!(
            "GPU times were calibrated against our clock; they are off by at most {code} ns{because}"
        ),
        CuptiState::Partial => {
            format!("CUPTI does not give records of kind {code}{because}")
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

/// The function's name without the version that CUPTI adds (`cudaLaunchKernel_v7000`); its number where
/// CUPTI tells no name.
fn function(call: &Call, texts: &Texts) -> Cow<'static, str> {
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

/// `3020` is CUDA 3.2. Of the driver, `_v2` is part of the name.
fn is_cuda_version(text: &str) -> bool {
    text.len() >= 4 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A name as the PyTorch profiler shows it; one that is no C++ name as it is.
fn demangled(mangled: &str) -> String {
    let symbol = cpp_demangle::Symbol::new(mangled).ok();
    let name = symbol.and_then(|symbol| symbol.demangle().ok());
    name.unwrap_or_else(|| mangled.to_owned())
}

/// `CUPTI_ACTIVITY_MEMCPY_KIND_PTOP`.
const PEER: u8 = 10;

/// `CUpti_ActivityMemcpyKind`, as the PyTorch profiler begins the names of copies.
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
