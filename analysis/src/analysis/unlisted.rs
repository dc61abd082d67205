//! Decides which processes of a trace are listed.
//!
//! Owns the bound on memory: a listed process takes some 5 KB, an unlisted one a hundred bytes.

use super::Analysis;
use gctrace_event::{Pause, Record};

/// Processes of one trace that are listed, in order of appearance: far more than anybody reads.
const LISTED: usize = 10_000;

impl Analysis {
    /// Whether the process with this id is, or would be, unlisted.
    pub(super) fn is_unlisted(&self, pid: u32) -> bool {
        let before = if let Some(trace) = self.traces.last() { trace.first_process } else { 0 };
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
        let Some(pid) = record.head().pid else { return Some(record) };
        if !self.is_unlisted(pid) {
            return Some(record);
        }
        match record {
            Record::Process(process) => {
                self.see(process.since_ns);
                self.current.rest.describe(&process);
            }
            Record::ProcessExit(exit) => {
                self.see(exit.at_ns);
                self.current.rest.end(exit);
            }
            Record::Counters(whole) => self.current.rest.add_counters(trace, whole),
            // These make no process.
            Record::GpuSync(_)
            | Record::OmittedGpuWork(_)
            | Record::ThreadName(_)
            | Record::Note(_) => return Some(record),
            // What a GPU did counts, whoever it did it for. Nothing else is kept.
            _ => self.add_cuda(&record),
        }
        None
    }

    fn see(&mut self, at_ns: u64) {
        if let Some(trace) = self.traces.last_mut() {
            trace.see(at_ns, at_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_event::Head;
    use gctrace_event::read::{DecodedItem, TraceCompletion};

    fn of(pid: u32) -> Vec<Record> {
        Record::each(Head { pid: Some(pid), tid: Some(pid), ..Head::default() })
    }

    /// A foreign file may have events of any number of processes.
    #[test]
    fn no_kind_of_record_lists_more_processes_than_the_bound() {
        for kind in 0..of(1).len() {
            let mut analysis = Analysis::default();
            analysis.begin_trace("t.json");
            for pid in 1..=LISTED as u32 + 50 {
                analysis.add(DecodedItem::Record(of(pid).swap_remove(kind)));
            }
            analysis.end_trace(TraceCompletion::default(), None);
            let listed = analysis.processes.len();
            assert!(listed <= LISTED, "{listed} by {:?}", of(1).swap_remove(kind));
        }
    }
}
