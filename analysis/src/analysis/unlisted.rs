//! Which processes of a trace are listed.
//!
//! Owns the bound on memory: a listed process takes some 5 KB, an unlisted one a hundred bytes.

use super::Analysis;
use gctrace_event::{Pause, Record};

/// Processes of one trace that are listed, in order of appearance: far more than anybody reads.
const LISTED: usize = 10_000;

impl Analysis {
    /// Whether the process that has this id is, or would be, one that is not listed.
    pub(super) fn is_unlisted(&self, pid: u32) -> bool {
        let before = self.traces.last().map_or(0, |trace| trace.first_process);
        self.processes.len() - before >= LISTED && self.current.processes.latest(pid).is_none()
    }

    pub(super) fn add_unlisted_pause(&mut self, pause: &Pause) {
        let trace = self.traces.len() - 1;
        let full = self.current.rest.add_pause(trace, pause);
        self.count(trace, None, pause, full);
    }

    /// Uses a record about such a process; returns records that concern no process.
    pub(super) fn add_unlisted(&mut self, record: Record) -> Option<Record> {
        let trace = self.traces.len() - 1;
        let pid = match &record {
            Record::Process(process) => process.pid,
            Record::ProcessExit(exit) => exit.pid,
            Record::Counters(whole) => whole.pid,
            Record::Settings(settings) => settings.pid,
            Record::Pressure(pressure) => pressure.pid,
            Record::Allocations(allocations) => allocations.pid,
            Record::ObjectKind(kind) => kind.pid,
            Record::CycleSignature(cycle) => cycle.pid,
            Record::Garbage(garbage) => garbage.pid,
            Record::Called(called) => called.pid,
            Record::CpuSamples(samples) => samples.pid,
            Record::OffCpu(off) => off.pid,
            Record::Layers(layers) => layers.pid,
            Record::EmptyCache(call) => call.pid,
            Record::AliveLines(alive) => alive.pid,
            _ => return Some(record),
        };
        if !self.is_unlisted(pid) {
            return Some(record);
        }
        let rest = &mut self.current.rest;
        match record {
            Record::Process(process) => {
                self.see(process.since_ns);
                self.current.rest.describe(&process);
            }
            Record::ProcessExit(exit) => {
                self.see(exit.at_ns);
                self.current.rest.end(exit);
            }
            Record::Counters(whole) => rest.add_counters(trace, whole),
            _ => {}
        }
        None
    }

    fn see(&mut self, at_ns: u64) {
        if let Some(trace) = self.traces.last_mut() {
            trace.see(at_ns, at_ns);
        }
    }
}
