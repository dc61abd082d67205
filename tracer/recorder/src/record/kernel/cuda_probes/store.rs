//! Turns calls and device memory events into records: counts launches, thins out device memory.
//!
//! Pure except for the trace that it writes to.

use crate::args::CudaMode;
use crate::record::output::RecordSink;
use gctrace_ebpf::{CallKind, CudaCallEvent as Call};
use gctrace_event::{
    CudaCall, CudaLaunches, DeviceMemory, NamedMarker, Pause, PauseMemory, Record, StepMark,
};
use gctrace_probes::cuda::{
    BytesArgument, CudaLibrary, GridArgument, ProbedEnds, ProbedFunction, StreamArgument,
};
use std::collections::{HashMap, VecDeque};

const MILLISECOND_NS: u64 = 1_000_000;
/// Counted launches are complete after this time: they arrive in time order per thread.
const SETTLED_NS: u64 = 10 * MILLISECOND_NS;
/// Device memory events kept for pauses that have not ended, per device of a process: several
/// seconds of a heavily used allocator.
const KEPT: usize = 1 << 16;

/// State between two events: open launch counts, memory and backward passes.
#[derive(Default)]
pub(super) struct CudaStore {
    counts_launches: bool,
    /// By process, thread and stream.
    launches: HashMap<(u32, u32, u64), CudaLaunches>,
    devices: HashMap<MemoryKey, MemoryState>,
    /// Backward passes of threads that have started and not returned.
    steps: HashMap<(u32, u32), StepMark>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct MemoryKey {
    pid: u32,
    device_type: i8,
    device: i8,
}

#[derive(Default)]
struct MemoryState {
    written_ns: Option<u64>,
    recent: VecDeque<MemorySample>,
}

#[derive(Clone, Copy)]
struct MemorySample {
    event: DeviceMemory,
    written: bool,
}

impl CudaStore {
    pub(super) fn new(mode: CudaMode) -> Self {
        Self { counts_launches: mode != CudaMode::All, ..Self::default() }
    }

    pub(super) fn call(&mut self, call: &Call, sink: &mut impl RecordSink) {
        let Some(function) = super::function(call.function) else { return };
        if function.kind == CallKind::Launch && self.counts_launches {
            self.launch(call, sink);
        } else if function.kind == CallKind::Step {
            self.step(call, sink);
        } else if let Some(record) = record(call, function) {
            sink.write(&record);
        }
    }

    /// A backward pass starts, or has returned. A pass that raised an exception never returns: it is written, without
    /// its end, when the thread's next one starts or no more events can come.
    fn step(&mut self, call: &Call, sink: &mut impl RecordSink) {
        let step = StepMark {
            marker: NamedMarker::Backward,
            pid: call.pid,
            tid: call.tid,
            start_ns: call.start_ns,
            end_ns: call.end_ns,
            cpu_ns: if call.cpu_ns > 0 { Some(call.cpu_ns) } else { None },
        };
        let before = self.steps.remove(&(call.pid, call.tid));
        if let Some(before) = before
            && before.start_ns != step.start_ns
        {
            sink.write(&Record::Step(before));
        }
        if step.end_ns > step.start_ns {
            sink.write(&Record::Step(step));
        } else {
            self.steps.insert((call.pid, call.tid), step);
        }
    }

    fn write_steps(&mut self, sink: &mut impl RecordSink, which: impl Fn(&StepMark) -> bool) {
        for (_, step) in self.steps.extract_if(|_, step| which(step)) {
            sink.write(&Record::Step(step));
        }
    }

    fn launch(&mut self, call: &Call, sink: &mut impl RecordSink) {
        let fresh = CudaLaunches {
            pid: call.pid,
            tid: call.tid,
            stream: call.stream,
            first_ns: call.start_ns,
            last_ns: call.start_ns,
            count: 0,
        };
        let key = (call.pid, call.tid, call.stream);
        let counted = self.launches.entry(key).or_insert(fresh);
        if counted.first_ns / MILLISECOND_NS != call.start_ns / MILLISECOND_NS {
            sink.write(&Record::CudaLaunches(*counted));
            *counted = fresh;
        }
        counted.last_ns = call.start_ns.max(counted.first_ns);
        counted.count += 1;
    }

    pub(super) fn memory(&mut self, event: &DeviceMemory, sink: &mut impl RecordSink) {
        let key =
            MemoryKey { pid: event.pid, device_type: event.device_type, device: event.device };
        let device = self.devices.entry(key).or_default();
        let due = device.written_ns.is_none_or(|written| event.at_ns >= written + MILLISECOND_NS);
        if due {
            device.written_ns = Some(event.at_ns);
            sink.write(&Record::DeviceMemory(*event));
        }
        if device.recent.len() >= KEPT {
            device.recent.pop_front();
        }
        device.recent.push_back(MemorySample { event: *event, written: due });
    }

    /// Writes the memory of devices before and at the end of a pause, and the memory freed within it.
    pub(super) fn pause(&mut self, pause: &Pause, sink: &mut impl RecordSink) {
        for (key, device) in &mut self.devices {
            if key.pid == pause.pid {
                device.write_last(gctrace_units::beyond(pause.start_ns, 1), sink);
                device.write_last(pause.end_ns, sink);
                if let Some(freed) = device.freed(pause, *key) {
                    sink.write(&Record::PauseMemory(freed));
                }
            }
        }
    }

    /// Writes counts of launches that are complete.
    pub(super) fn tick(&mut self, now_ns: u64, sink: &mut impl RecordSink) {
        self.write_launches(sink, |launches| launches.first_ns + SETTLED_NS < now_ns);
    }

    pub(super) fn ended(&mut self, pid: u32, sink: &mut impl RecordSink) {
        self.write_launches(sink, |launches| launches.pid == pid);
        self.write_steps(sink, |step| step.pid == pid);
        for (key, device) in &mut self.devices {
            if key.pid == pid {
                device.write_last(u64::MAX, sink);
            }
        }
        self.devices.retain(|key, _| key.pid != pid);
    }

    pub(super) fn finish(&mut self, sink: &mut impl RecordSink) {
        self.write_launches(sink, |_| true);
        self.write_steps(sink, |_| true);
        for device in self.devices.values_mut() {
            device.write_last(u64::MAX, sink);
        }
    }

    fn write_launches(
        &mut self,
        sink: &mut impl RecordSink,
        which: impl Fn(&CudaLaunches) -> bool,
    ) {
        for (_, launches) in self.launches.extract_if(|_, launches| which(launches)) {
            sink.write(&Record::CudaLaunches(launches));
        }
    }
}

impl MemoryState {
    /// Writes the last event before `until_ns`, if it was not written yet.
    fn write_last(&mut self, until_ns: u64, sink: &mut impl RecordSink) {
        let mut latest = self.recent.iter_mut().rev();
        if let Some(sample) = latest.find(|sample| sample.event.at_ns <= until_ns)
            && !sample.written
        {
            sample.written = true;
            sink.write(&Record::DeviceMemory(sample.event));
        }
    }

    fn freed(&self, pause: &Pause, key: MemoryKey) -> Option<PauseMemory> {
        let recent = self.recent.iter().rev().map(|sample| &sample.event);
        let (mut freed_bytes, mut freed_blocks) = (0u64, 0);
        for event in recent.take_while(|event| event.at_ns >= pause.start_ns) {
            if event.at_ns <= pause.end_ns && event.tid == pause.tid && event.bytes < 0 {
                gctrace_units::add_to(&mut freed_bytes, event.bytes.unsigned_abs());
                freed_blocks += 1;
            }
        }
        if freed_blocks == 0 {
            return None;
        }
        Some(PauseMemory {
            pid: pause.pid,
            tid: pause.tid,
            start_ns: pause.start_ns,
            end_ns: pause.end_ns,
            device_type: key.device_type,
            device: key.device,
            freed_bytes,
            freed_blocks: Some(freed_blocks),
        })
    }
}

fn record(call: &Call, function: &ProbedFunction) -> Option<Record> {
    let CudaLibrary::Cuda(layer) = function.layer else { return None };
    let has_failed = function.ends == ProbedEnds::Both && call.result != 0;
    Some(Record::CudaCall(CudaCall {
        pid: call.pid,
        tid: call.tid,
        layer,
        function: function.shown().into(),
        start_ns: call.start_ns,
        end_ns: call.end_ns,
        stream: if function.stream != StreamArgument::None { Some(call.stream) } else { None },
        bytes: if function.bytes != BytesArgument::None { Some(call.bytes) } else { None },
        grid: if function.grid != GridArgument::None { Some(call.grid) } else { None },
        correlation: None,
        error: if has_failed { Some(call.result) } else { None },
    }))
}

#[cfg(test)]
mod tests;
