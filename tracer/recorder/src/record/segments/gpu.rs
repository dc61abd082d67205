//! GPU work beyond the bytes of a day: written whole around some pauses and steps, only counted elsewhere.
//!
//! Owns the work held back until it is known whether it is written. The cause of GPU idle time, and the cost of a
//! pause, follow from all work of a time, so a part is complete. Work that is only counted is stated with its first
//! start and last end, and the time between two such statements is a part. Does not own the choice of pauses with a
//! part (`thinning.rs`).

use super::SegmentedTrace;
use super::thinning::Kind;
use gctrace_event::{GpuApi, OmittedGpuWork, OmittedPauses, Record};
use gctrace_units::{beyond, duration_ns};
use std::collections::{BTreeMap, VecDeque};

/// Work held back, in ns before the newest: some training steps, and a second for CUPTI to hand over. Before the newest
/// work, not before now: there is none during a pause that the GPU waits for.
const HELD_NS: u64 = 3_000_000_000;
/// Work after a pause or step that belongs to its part, in ns.
pub(super) const AFTER_NS: u64 = 1_000_000_000;
/// Most records held back, 432 bytes each and a name: some 60 MB.
const MOST_HELD: usize = 1 << 17;

/// GPU work that is not written yet.
#[derive(Default)]
pub(super) struct HeldGpuWork {
    held: VecDeque<(GpuSpan, Record)>,
    newest_ns: u64,
    /// Work that starts later does not belong to the last part.
    part_until_ns: u64,
    /// Work only counted since the last statement, by process.
    omitted: BTreeMap<u32, OmittedGpuWork>,
}

/// When work of a process was, in ns.
#[derive(Clone, Copy)]
struct GpuSpan {
    pid: u32,
    start_ns: u64,
    end_ns: u64,
}

impl GpuSpan {
    /// `None` for other records, and for calls about memory: these are few, and each matters.
    fn of(record: &Record) -> Option<Self> {
        let (pid, start_ns, end_ns) = match record {
            Record::GpuOp(op) => (op.pid?, op.start_ns, op.end_ns),
            Record::GpuSync(sync) => (sync.pid?, sync.start_ns, sync.end_ns),
            Record::CudaLaunches(launches) => (launches.pid, launches.first_ns, launches.last_ns),
            Record::CudaCall(call) => {
                let name = GpuApi::of(&call.function).map(|(_, name)| name);
                let is_memory = name.is_some_and(|name| {
                    ["Malloc", "Free", "MemAlloc", "MemFree", "MemCreate", "MemRelease", "MemUnmap"]
                        .iter()
                        .any(|of_memory| name.starts_with(of_memory))
                });
                if is_memory || call.error.is_some() {
                    return None;
                }
                (call.pid, call.start_ns, call.end_ns)
            }
            _ => return None,
        };
        Some(Self { pid, start_ns, end_ns })
    }
}

/// A record's operations and calls, with their times.
fn count(record: &Record) -> OmittedGpuWork {
    let one = |start_ns: u64, end_ns: u64| OmittedPauses::of(1, duration_ns(start_ns, end_ns));
    let mut work = OmittedGpuWork::default();
    match record {
        Record::GpuOp(op) => work.operations = one(op.start_ns, op.end_ns),
        Record::CudaCall(call) => work.calls = one(call.start_ns, call.end_ns),
        Record::CudaLaunches(launches) => work.calls = OmittedPauses::of(launches.count, 0),
        _ => {}
    }
    work
}

impl HeldGpuWork {
    /// Number of records held back.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether the record is to be written now; otherwise it is held back, and the oldest only counted.
    fn is_of_part(&mut self, span: GpuSpan, record: &Record) -> bool {
        if span.start_ns <= self.part_until_ns {
            return true;
        }
        self.newest_ns = self.newest_ns.max(span.end_ns);
        self.held.push_back((span, record.clone()));
        let old_ns = beyond(self.newest_ns, HELD_NS);
        while let Some((oldest, _)) = self.held.front()
            && (oldest.end_ns < old_ns || self.held.len() > MOST_HELD)
        {
            if let Some((span, record)) = self.held.pop_front() {
                let GpuSpan { pid, start_ns, end_ns } = span;
                let work =
                    OmittedGpuWork { since_ns: start_ns, until_ns: end_ns, ..count(&record) };
                let of_process = self.omitted.entry(pid);
                of_process
                    .and_modify(|sum| sum.add(&work))
                    .or_insert(OmittedGpuWork { pid, ..work });
            }
        }
        false
    }

    /// Begins a part with the work held back, or makes the last one longer. Returns the records to write.
    fn begin_part(&mut self, until_ns: u64) -> Vec<Record> {
        self.part_until_ns = self.part_until_ns.max(until_ns);
        self.held.drain(..).map(|(_, record)| record).collect()
    }

    /// States the work only counted since the last time.
    fn omitted(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.omitted).into_values().map(Record::OmittedGpuWork).collect()
    }
}

impl SegmentedTrace {
    /// Counts GPU work, and writes it unless it is to wait; `false` if it is none.
    pub(super) fn takes_gpu_work(&mut self, record: &Record) -> bool {
        let Some(span) = GpuSpan::of(record) else { return false };
        let work = count(record);
        self.totals.operations.add(work.operations);
        self.totals.calls.add(work.calls);
        if !self.thinning.see_gpu() || self.gpu.is_of_part(span, record) {
            self.write_gpu_work(record);
        }
        true
    }

    /// Writes the work held back, and work that begins until then.
    pub(super) fn begin_gpu_part(&mut self, until_ns: u64) {
        self.state_omitted();
        for record in self.gpu.begin_part(until_ns) {
            self.write_gpu_work(&record);
        }
    }

    /// States the work that was only counted.
    pub(super) fn state_omitted(&mut self) {
        if self.current.is_none() {
            return;
        }
        for record in self.gpu.omitted() {
            self.put(&record);
        }
    }

    fn write_gpu_work(&mut self, record: &Record) {
        if let Some(current) = &mut self.current {
            current.written.count(Kind::Gpu, 1);
            self.thinning.spend_gpu();
        }
        self.write_with_names(record, Kind::Gpu);
    }
}
