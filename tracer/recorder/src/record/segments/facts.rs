//! The facts that a segment must repeat to be a trace of its own: processes, threads, settings, GPUs, the frames and
//! kinds that its records name, and layers that are as before.

use gctrace_event::{
    CycleId, CycleSignature, Frame, FrameId, GcSettings, GpuDevice, KindId, LayerRow, Layers,
    ObjectKind, Process, ProcessOrigin, Record, ThreadName,
};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Facts that earlier records stated and that still hold.
#[derive(Default)]
pub(super) struct SegmentFacts {
    processes: BTreeMap<u32, Process>,
    threads: BTreeMap<(u32, u32), String>,
    settings: BTreeMap<u32, GcSettings>,
    gpus: BTreeMap<u32, GpuDevice>,
    frames: NamedRecords<FrameId, Frame>,
    kinds: NamedRecords<(u32, KindId), ObjectKind>,
    cycles: NamedRecords<(u32, CycleId), CycleSignature>,
    /// The last layers of each process.
    layers: NamedRecords<u32, Vec<LayerRow>>,
}

/// Records that others name, and the ids of the segment's own.
struct NamedRecords<I, R> {
    known: HashMap<I, R>,
    written: HashSet<I>,
}

impl<I, R> Default for NamedRecords<I, R> {
    fn default() -> Self {
        Self { known: HashMap::new(), written: HashSet::new() }
    }
}

impl<I: Copy + Eq + std::hash::Hash, R: Clone> NamedRecords<I, R> {
    /// The last of one name counts.
    fn learn(&mut self, id: I, record: &R) {
        self.known.insert(id, record.clone());
        self.written.remove(&id);
    }

    /// The record, unless the segment has it.
    fn take(&mut self, id: I) -> Option<R> {
        let record = self.known.get(&id)?;
        if self.written.insert(id) { Some(record.clone()) } else { None }
    }

    fn forget(&mut self, is_gone: impl Fn(&I) -> bool) {
        self.known.retain(|id, _| !is_gone(id));
        self.written.retain(|id| !is_gone(id));
    }
}

impl SegmentFacts {
    /// Learns from a record. Returns whether it is to be written only once another names it.
    pub(super) fn learn(&mut self, record: &Record) -> bool {
        match record {
            Record::Process(process) => {
                self.processes.insert(process.pid, process.clone());
            }
            Record::ProcessExit(exit) => self.forget(exit.pid),
            Record::ThreadName(ThreadName { pid, tid, name }) => {
                self.threads.insert((*pid, *tid), name.clone());
            }
            Record::Settings(settings) => {
                self.settings.insert(settings.pid, settings.clone());
            }
            Record::GpuDevice(device) => {
                self.gpus.insert(device.index, device.clone());
            }
            Record::Frame(frame) => {
                self.frames.learn(frame.id, frame);
                return true;
            }
            Record::ObjectKind(kind) => {
                self.kinds.learn((kind.pid, kind.id), kind);
                return true;
            }
            Record::CycleSignature(cycle) => {
                self.cycles.learn((cycle.pid, cycle.id), cycle);
                return true;
            }
            Record::Layers(Layers { pid, rows: Some(rows), .. }) => self.layers.learn(*pid, rows),
            _ => {}
        }
        false
    }

    /// The record with its rows, unless the segment has them.
    pub(super) fn with_rows(&mut self, layers: &Layers) -> Layers {
        Layers { rows: self.layers.take(layers.pid), ..layers.clone() }
    }

    fn forget(&mut self, pid: u32) {
        self.processes.remove(&pid);
        self.settings.remove(&pid);
        self.threads.retain(|(of, _), _| *of != pid);
        self.kinds.forget(|(of, _)| *of == pid);
        self.cycles.forget(|(of, _)| *of == pid);
        self.layers.forget(|of| *of == pid);
    }

    /// The records of a segment after its header, if it starts at that time in ns of CLOCK_MONOTONIC.
    pub(super) fn begin(&mut self, start_ns: u64) -> Vec<Record> {
        self.frames.written.clear();
        self.kinds.written.clear();
        self.cycles.written.clear();
        self.layers.written.clear();
        let processes = self.processes.values();
        let processes = processes.map(|process| Record::Process(since(process, start_ns)));
        let threads = self.threads.iter();
        let threads = threads.map(|((pid, tid), name)| {
            Record::ThreadName(ThreadName { pid: *pid, tid: *tid, name: name.clone() })
        });
        let settings = self.settings.values().cloned().map(|mut settings| {
            settings.at_ns = settings.at_ns.max(start_ns);
            Record::Settings(settings)
        });
        let gpus = self.gpus.values().cloned().map(|mut device| {
            device.at_ns = device.at_ns.max(start_ns);
            Record::GpuDevice(device)
        });
        processes.chain(threads).chain(settings).chain(gpus).collect()
    }

    /// The records to write before this one, each after the records that it names.
    pub(super) fn needed_by(&mut self, record: &Record) -> Vec<Record> {
        let mut needed = Vec::new();
        for innermost in record.stacks() {
            let before = needed.len();
            let mut next = Some(innermost);
            while let Some(frame) = next.and_then(|id| self.frames.take(id)) {
                next = frame.parent;
                needed.push(Record::Frame(frame));
            }
            needed[before..].reverse();
        }
        if let Record::Garbage(garbage) = record {
            let pid = garbage.pid;
            let cycles = garbage.cycles.iter().flatten();
            let cycles: Vec<CycleSignature> =
                cycles.filter_map(|count| self.cycles.take((pid, count.cycle))).collect();
            let of_cycles = cycles.iter().flat_map(|cycle| &cycle.edges).map(|edge| edge.kind);
            let own = garbage.kinds.iter().map(|count| count.kind);
            let births = garbage.births.iter().map(|count| count.kind);
            let kinds = own.chain(births).chain(of_cycles);
            let kinds = kinds.filter_map(|kind| self.kinds.take((pid, kind)));
            needed.extend(kinds.map(Record::ObjectKind));
            needed.extend(cycles.into_iter().map(Record::CycleSignature));
        }
        needed
    }
}

/// The process in a segment that starts at that time: the segment has nothing from before.
pub(super) fn since(process: &Process, start_ns: u64) -> Process {
    let mut process = process.clone();
    if process.since_ns < start_ns {
        process.origin = ProcessOrigin::Attached;
        process.since_ns = start_ns;
    }
    process
}

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_event::{Garbage, KindCount, KindName, Pause, ProcessExit};

    fn pause(stack: FrameId) -> Record {
        Record::Pause(Pause { stack: Some(stack), ..Pause::default() })
    }

    #[test]
    fn each_segment_has_what_its_records_name_once() {
        let mut facts = SegmentFacts::default();
        for (id, parent) in [(1, None), (2, Some(1)), (3, Some(1))] {
            assert!(facts.learn(&Record::Frame(Frame { id, parent, ..Frame::default() })));
        }
        assert!(facts.learn(&Record::ObjectKind(ObjectKind {
            pid: 7,
            id: 5,
            name: KindName { type_name: "dict".into(), ..KindName::default() },
        })));
        let garbage = Record::Garbage(Garbage {
            pid: 7,
            kinds: vec![KindCount { kind: 5, objects: 1, bytes: None }],
            ..Garbage::default()
        });
        for _ in 0..2 {
            facts.begin(0);
            assert_eq!(facts.needed_by(&pause(2)).len(), 2);
            assert_eq!(facts.needed_by(&pause(2)).len(), 0);
            assert_eq!(facts.needed_by(&pause(3)).len(), 1);
            assert_eq!(facts.needed_by(&garbage).len(), 1);
            assert_eq!(facts.needed_by(&garbage).len(), 0);
        }
    }

    #[test]
    fn processes_are_described_from_the_start_of_the_segment_until_they_exit() {
        let mut facts = SegmentFacts::default();
        let process =
            Process { pid: 7, origin: ProcessOrigin::Launched, since_ns: 10, ..Process::default() };
        assert!(!facts.learn(&Record::Process(process.clone())));
        facts.learn(&Record::ThreadName(ThreadName { pid: 7, tid: 7, name: "main".into() }));
        facts.learn(&Record::Settings(GcSettings { pid: 7, ..GcSettings::default() }));
        assert_eq!(facts.begin(10).first(), Some(&Record::Process(process.clone())));
        let later = facts.begin(50);
        let attached = Process { origin: ProcessOrigin::Attached, since_ns: 50, ..process };
        assert_eq!((later.len(), later.first()), (3, Some(&Record::Process(attached))));
        facts.learn(&Record::ProcessExit(ProcessExit { pid: 7, ..ProcessExit::default() }));
        assert!(facts.begin(60).is_empty());
    }
}
