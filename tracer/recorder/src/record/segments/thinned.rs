//! Records only counted beyond the bytes of a day, except GPU work: pauses with their records, short times off the CPU,
//! and all but one in several of the records stated again and again.
//!
//! Owns the records that wait for their pause, and the records that a later one of the same segment stands for. Does
//! not own how much is written (`thinning.rs`).

use super::requests::LongEvent;
use super::thinning::Kind;
use super::{SegmentedTrace, gpu};
use crate::clock;
use crate::units::duration;
use gctrace_event::{
    CpuSamples, LayersRemark, LoopPlace, NamedMarker, OmittedPauses, Pause, Record, SpacedClass,
    TraceEnd, Turn, Turns, waits_for_many,
};
use gctrace_units::{after, beyond, duration_ns, sum};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Maximum number of threads with records that wait for a pause; records of ended threads stay until there are so many.
const THREADS: usize = 4096;
/// Maximum number of records of a thread that wait for a pause: calls and freed objects. More belong to no pause.
const MOST_HELD: usize = 64;

/// Counts of turns of this time are one record: they are lost if gctrace is killed. A minute, in ns.
const TURNS_TOGETHER_NS: u64 = 60_000_000_000;

/// Records that are not written yet.
#[derive(Default)]
pub(super) struct WaitingRecords {
    /// Calls and freed objects of collections, by process and thread: they come before the pause and are written if the
    /// pause is.
    of_pauses: HashMap<(u32, u32), Vec<Record>>,
    /// Samples of a process, in collections or not, to be counted at the place of a later one: the last of them with
    /// the number of all, and its own.
    samples: BTreeMap<(u32, bool), (CpuSamples, u64)>,
    /// The last counts of allocations of a process; they contain the counts before.
    allocations: BTreeMap<u32, Record>,
    /// Counts of loops' turns, to be written together.
    turns: BTreeMap<(u32, u32, LoopPlace), Turns>,
    /// Processes with a step marked since their last backward pass: the pass is not needed to mark it.
    stepped: HashSet<u32>,
}

impl WaitingRecords {
    /// Returns records that belong to no pause, as too many followed.
    fn hold(&mut self, pid: u32, tid: u32, record: &Record) -> Vec<Record> {
        let is_new = !self.of_pauses.contains_key(&(pid, tid));
        let mut of_none = Vec::new();
        if is_new && self.of_pauses.len() >= THREADS {
            of_none = self.of_pauses.drain().flat_map(|(_, records)| records).collect();
        }
        let of_thread = self.of_pauses.entry((pid, tid)).or_default();
        if of_thread.len() >= MOST_HELD {
            of_none.append(of_thread);
        }
        of_thread.push(record.clone());
        of_none
    }
}

impl SegmentedTrace {
    /// Counts a pause; it was written, except if it `is_omitted`.
    pub fn see(&mut self, pause: &Pause, is_omitted: bool) {
        let duration_ns = pause.duration_ns();
        let mut is_part = self.thinning.see(duration_ns, self.gpu.len());
        if is_omitted {
            self.omit_with_pause(pause.pid, pause.tid);
            self.totals.add_omitted(pause);
        } else {
            self.totals.add(pause);
        }
        if is_omitted {
            let one = OmittedPauses::of(1, duration_ns);
            if let Some(end) = self.last_line() {
                end.omitted.add(one);
            }
        } else if let Some(current) = &mut self.current {
            current.written.count(Kind::Pauses, 1);
        }
        let limit = self.keep.on_pause;
        if matches!(limit, Some(limit) if duration_ns >= clock::nanoseconds(limit)) {
            is_part = true;
            self.notice(LongEvent {
                length_ns: duration_ns,
                at_ns: pause.end_ns,
                what: format!("a pause of {} in process {}", duration(duration_ns), pause.pid),
            });
        }
        if is_part {
            self.begin_gpu_part(after(pause.end_ns, gpu::AFTER_NS));
        }
    }

    /// Writes or counts a record of a kind that is thinned; `false` if it is of another.
    pub(super) fn takes_thinned(&mut self, record: &Record) -> bool {
        match record {
            Record::Called(called) => self.hold(called.pid, called.tid, record),
            Record::Garbage(garbage) => self.hold(garbage.pid, garbage.tid, record),
            Record::Pause(pause) => {
                for held in self.take_held(pause.pid, pause.tid) {
                    self.write_with_names(&held, Kind::Pauses);
                }
                self.write_with_names(record, Kind::Pauses);
            }
            Record::Step(mark) => match mark.marker {
                NamedMarker::Backward if self.waiting.stepped.remove(&mark.pid) => {
                    if self.thinning.takes(Kind::Backward, 1) {
                        self.write_counted(record, Kind::Backward);
                    } else {
                        let total_ns = duration_ns(mark.start_ns, mark.end_ns);
                        self.omit(TraceEnd::BACKWARD, OmittedPauses::of(1, total_ns));
                    }
                }
                NamedMarker::Function(_) | NamedMarker::Optimizer(_) => {
                    self.waiting.stepped.insert(mark.pid);
                    return false;
                }
                NamedMarker::Backward | NamedMarker::DataLoader(_) => return false,
            },
            Record::OffCpu(off) => {
                let thinned = self.thinning.thin(off);
                self.totals.waits.add(thinned.all);
                self.totals.omitted_waits.add(thinned.omitted);
                if let Some(current) = &mut self.current {
                    let count = thinned.all.count - thinned.omitted.count;
                    current.written.count(Kind::Waits, count.0);
                }
                if let Some(end) = self.last_line() {
                    end.omitted_waits.add(thinned.omitted);
                }
                if let Some(off) = thinned.left {
                    self.write_with_names(&Record::OffCpu(off), Kind::Waits);
                }
            }
            Record::Turns(turns) => self.add_turns(turns),
            Record::Turn(turn) => {
                self.notice_turn(turn);
                return self.takes_spaced(record);
            }
            _ => return self.takes_spaced(record),
        }
        true
    }

    fn notice_turn(&mut self, turn: &Turn) {
        let length_ns = turn.length_ns();
        if let Some(limit) = self.keep.on_turn
            && length_ns >= clock::nanoseconds(limit)
            && waits_for_many(&turn.place.call)
        {
            self.notice(LongEvent {
                length_ns,
                at_ns: turn.end_ns,
                what: format!("a turn of {} in process {}", duration(length_ns), turn.pid),
            });
            self.begin_gpu_part(after(turn.end_ns, gpu::AFTER_NS));
        }
    }

    /// Counts of a second take as many bytes as counts of a minute.
    fn add_turns(&mut self, turns: &Turns) {
        let key = (turns.pid, turns.tid, turns.place.clone());
        let mut all = turns.clone();
        if let Some(mut before) = self.waiting.turns.remove(&key) {
            before.append(all);
            all = before;
        }
        if duration_ns(all.at_ns, all.until_ns) >= TURNS_TOGETHER_NS {
            self.write_with_names(&Record::Turns(all), Kind::Rest);
        } else {
            self.waiting.turns.insert(key, all);
        }
    }

    fn takes_spaced(&mut self, record: &Record) -> bool {
        let Some(class) = record.kind().spaced else { return false };
        let kind = Kind::from(class);
        let count = if let Record::CpuSamples(samples) = record { samples.count } else { 1 };
        let is_written = self.thinning.takes(kind, count);
        match record {
            Record::CpuSamples(samples) => {
                let process = (samples.pid, samples.in_pause);
                let before =
                    self.waiting.samples.remove(&process).map_or(0, |(before, _)| before.count);
                let all = CpuSamples { count: sum([count, before]), ..samples.clone() };
                if is_written {
                    self.write_samples(all, count);
                } else {
                    self.waiting.samples.insert(process, (all, count));
                }
            }
            Record::Allocations(allocations) if is_written => {
                self.waiting.allocations.remove(&allocations.pid);
                self.write_counted(record, kind);
            }
            // The next one has them.
            Record::Allocations(allocations) => {
                self.waiting.allocations.insert(allocations.pid, record.clone());
            }
            Record::Layers(layers)
                if is_written || layers.remarks.contains(&LayersRemark::AtEnd) =>
            {
                let whole = self.facts.with_rows(layers);
                self.write_counted(&Record::Layers(whole), kind);
            }
            _ if is_written => self.write_counted(record, kind),
            _ => {
                let span = if class == SpacedClass::Calls { record.head().span_ns } else { None };
                let total_ns = span.map_or(0, |(start_ns, end_ns)| duration_ns(start_ns, end_ns));
                self.omit(class.name(), OmittedPauses::of(1, total_ns));
            }
        }
        true
    }

    /// Writes samples; `own` of them were taken there.
    fn write_samples(&mut self, samples: CpuSamples, own: u64) {
        if let moved @ 1.. = beyond(samples.count, own) {
            self.omit(SpacedClass::Samples.name(), OmittedPauses::of(moved, 0));
        }
        self.write_counted(&Record::CpuSamples(samples), Kind::Samples);
    }

    /// Counts records that this segment does not have, by name.
    fn omit(&mut self, name: &str, more: OmittedPauses) {
        if let Some(end) = self.last_line() {
            end.omitted_others.entry(name.to_owned()).or_default().add(more);
        }
    }

    fn write_counted(&mut self, record: &Record, kind: Kind) {
        if let Some(current) = &mut self.current {
            current.written.count(kind, 1);
        }
        self.write_with_names(record, kind);
    }

    /// Records of no pause are written unchanged.
    fn hold(&mut self, pid: u32, tid: u32, record: &Record) {
        for of_none in self.waiting.hold(pid, tid, record) {
            self.write_with_names(&of_none, Kind::Rest);
        }
    }

    fn take_held(&mut self, pid: u32, tid: u32) -> Vec<Record> {
        self.waiting.of_pauses.remove(&(pid, tid)).unwrap_or_default()
    }

    /// A pause is only counted, and so are its records.
    fn omit_with_pause(&mut self, pid: u32, tid: u32) {
        for held in self.take_held(pid, tid) {
            if let Record::Called(called) = held {
                let more = OmittedPauses::of(called.calls, called.time_ns);
                self.omit(TraceEnd::CALLED, more);
            }
        }
    }

    /// The segment ends: writes records that later ones were to stand for.
    pub(super) fn write_waiting(&mut self) {
        for (samples, own) in std::mem::take(&mut self.waiting.samples).into_values() {
            self.write_samples(samples, own);
        }
        for turns in std::mem::take(&mut self.waiting.turns).into_values() {
            self.write_with_names(&Record::Turns(turns), Kind::Rest);
        }
        for allocations in std::mem::take(&mut self.waiting.allocations).into_values() {
            self.write_counted(&allocations, Kind::Allocations);
        }
    }

    /// No pause of a process comes any more, or of any process: writes the records that wait for one.
    pub(super) fn write_held(&mut self, of: Option<u32>) {
        self.waiting.stepped.retain(|pid| matches!(of, Some(of) if of != *pid));
        let is_of = |pid: u32| of.is_none_or(|of| of == pid);
        let held = self.waiting.of_pauses.extract_if(|(pid, _), _| is_of(*pid));
        let held: Vec<Record> = held.flat_map(|(_, records)| records).collect();
        for record in held {
            self.write_with_names(&record, Kind::Rest);
        }
    }
}
