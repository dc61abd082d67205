//! The figures of a running recording: records in, a [`Snapshot`] at any time out.
//!
//! Pure, with bounded memory however long it runs: the state of each process has a fixed size, and
//! processes that ended are added to the totals after some seconds. For a process that pauses ten
//! times a second that is some 45 KiB; at most 1.6 MiB, and 1.2 MiB more for each GPU that it keeps
//! busy, with 6 MiB for all of them together. Names of lines take at most some 20 MiB in total. When and how a snapshot is shown is up
//! to the caller.
//!
//! Records may arrive late and out of order, as records of GPUs and of pauses do: they change the
//! figures of their own time. Totals count every record once, whenever it arrives.

mod device_work;
#[rustfmt::skip] // A figure is two lines.
pub mod figure_table;
mod figures;
mod garbage;
mod gpus;
mod history;
mod idle;
mod live_process;
mod live_processes;
mod locations;
mod long_pauses;
mod process_gpus;
mod recorder_cost;
mod ring;
mod snapshot;
mod steps;

pub use snapshot::{
    AutoFigures, CodeLine, CollectionCounts, CycleFigures, FreezeFigures, GENERATION_NAMES,
    GENERATIONS, GarbageFigures, GpuBusy, GpuFigures, GpuIdle, HeapObjects, Histogram, KindFigures,
    LineFigures, LongPause, Notice, PAUSE_CLASSES_NS, PauseFigures, PauseOutcomes, PressureFigures,
    ProcessDetail, ProcessEnd, ProcessFigures, ProcessGpu, RecorderCost, SCHEMA, SavedTime,
    SelectedGarbage, Snapshot, SnapshotTotals, StepFigures, TimelineCell, TrendFigures, ppm,
};

use crate::time::beyond;
pub use crate::turns::live::{LastLongTurn, LoopFigures};
use figures::BucketRange;
use gctrace_event::{ForeignTimes, NotebookCells, Pause, Record, TraceHeader};
use gpus::LiveGpus;
use live_processes::{ENDED_SHOWN_NS, LiveProcesses};
use locations::{LocationTable, brief_cycle, brief_kind};
use long_pauses::LongPauses;
use recorder_cost::{LiveCost, LiveNotes, WallClock};
use ring::{BUCKET_NS, bucket};

/// Largest number of long pauses that are kept, the most recent ones by start.
pub const LONG_PAUSES: usize = 200;
/// Largest number of entries in [`ProcessFigures::history_ns`], one per second. Also the longest
/// interval of a snapshot, in seconds.
pub const HISTORY_SECONDS: usize = 60;
/// Largest number of lines listed in a [`ProcessDetail`]; the others are in `other_lines`.
pub const LINES: usize = 20;
/// Largest number of steps listed in a [`ProcessDetail`], the most recent ones.
pub const STEPS: usize = 60;
/// Intervals end this long before now, when everything has been read. Sources are read at least
/// every 40 ms, and a pause that two sources report (`--mode both`) waits for the other.
pub const SETTLE_NS: u64 = 200_000_000;

/// The interval and the process of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotRequest {
    /// Time of the snapshot, in ns of CLOCK_MONOTONIC; the interval ends at the last multiple of
    /// 100 ms that is at least [`SETTLE_NS`] before it.
    pub now_ns: u64,
    /// Length of the interval: from 100 ms to [`HISTORY_SECONDS`]; rounded down to 100 ms and limited to the recorded
    /// time.
    pub interval_ns: u64,
    /// The process with details; `None` for none.
    pub detail: Option<u32>,
}

/// Everything that the live view shows, updated record by record; [`Live::snapshot`] computes the
/// figures at a time.
#[derive(Debug)]
pub struct Live {
    header: TraceHeader,
    processes: LiveProcesses,
    places: LocationTable,
    long_pauses: LongPauses,
    gpus: LiveGpus,
    cost: LiveCost,
    notes: LiveNotes,
    foreign: ForeignTimes,
    cells: NotebookCells,
    /// The latest timestamp of a record.
    last_ns: u64,
}

impl Live {
    /// Starts with no records. Pauses of at least `long_pause_ns` are kept individually.
    pub fn new(header: TraceHeader, long_pause_ns: u64) -> Self {
        let last_ns = header.started_ns;
        Self {
            header,
            processes: LiveProcesses::default(),
            places: LocationTable::default(),
            long_pauses: LongPauses::new(long_pause_ns),
            gpus: LiveGpus::default(),
            cost: LiveCost::default(),
            notes: LiveNotes::default(),
            foreign: ForeignTimes::default(),
            cells: NotebookCells::default(),
            last_ns,
        }
    }

    /// Adds one record, as it is written to the trace.
    pub fn record(&mut self, record: &Record) {
        match record {
            Record::Pause(pause) => {
                let mut pause = pause.clone();
                self.foreign.without(&mut pause);
                self.pause(&pause);
            }
            Record::Process(process) => self.describe(process),
            Record::ProcessExit(exit) => {
                self.last_ns = exit.at_ns;
                self.processes.end(exit);
            }
            Record::Frame(frame) => match self.cells.name(&frame.file) {
                Some(file) => self.frame(&gctrace_event::Frame { file, ..frame.clone() }),
                None => self.frame(frame),
            },
            Record::GpuDevice(device) => self.gpus.describe(device),
            Record::GpuSample(sample) => self.gpus.add(sample),
            Record::ObjectKind(kind) => {
                let mut kind = brief_kind(kind);
                kind.name.file = kind.name.file.map(|file| self.cells.name(&file).unwrap_or(file));
                self.add_to_process(&Record::ObjectKind(kind));
            }
            Record::CycleSignature(cycle) => {
                self.add_to_process(&Record::CycleSignature(brief_cycle(cycle)));
            }
            Record::Note(note) => self.notes.add(note.at_ns, note.pid, &note.message),
            _ => {
                self.foreign.note(record);
                self.add_to_process(record);
            }
        }
    }

    fn add_to_process(&mut self, record: &Record) {
        let head = record.head();
        let at_ns = head.looked_up_ns();
        if let Record::Pressure(pressure) = record {
            self.processes.forget_ended(pressure.at_ns);
        }
        let Some(pid) = head.pid else { return };
        if let Some(process) = self.processes.at(pid, at_ns) {
            process.record(record, &self.places);
        }
    }

    fn pause(&mut self, pause: &Pause) {
        let place = self.places.of(pause.stack);
        let rank = match self.processes.of_pause(pause) {
            Some(process) => {
                process.add_pause(pause, place);
                process.sums.rank()
            }
            None => {
                self.processes.gone.history.add(pause);
                None
            }
        };
        self.last_ns = pause.end_ns;
        self.long_pauses.add(pause, rank, place);
    }

    fn describe(&mut self, process: &gctrace_event::Process) {
        self.processes.describe(process);
        self.last_ns = process.since_ns;
        if self.processes.are_too_many() {
            let message = "Too many processes to show: the least recently active ones are counted \
                           in the totals only.";
            self.notes.add(self.last_ns, None, message);
        }
    }

    fn frame(&mut self, frame: &gctrace_event::Frame) {
        if self.places.add(frame) {
            let message = "Too many Python lines to keep: new ones are not listed here. A trace \
                           (--record FILE) contains all of them.";
            self.notes.add(self.last_ns, None, message);
        }
    }

    /// Resident memory of a process at a time, in ns of CLOCK_MONOTONIC.
    pub fn resident(&mut self, pid: u32, at_ns: u64, bytes: u64) {
        if let Some(process) = self.processes.latest(pid) {
            process.add_resident(at_ns, bytes);
        }
    }

    /// What `gctrace auto` does in a process, as of now.
    pub fn auto(&mut self, pid: u32, figures: AutoFigures) {
        if let Some(process) = self.processes.latest(pid) {
            process.auto = Some(Box::new(figures));
        }
    }

    /// Losses and overhead of gctrace up to a time; `cpu_ppm` is computed here.
    pub fn recorder(&mut self, at_ns: u64, recorder: RecorderCost) {
        self.cost.set(at_ns, recorder);
    }

    /// Computes all figures as of `request.now_ns`, over the requested interval.
    pub fn snapshot(&self, request: &SnapshotRequest) -> Snapshot {
        let interval = self.interval(request);
        let clock = WallClock::new(&self.header);
        let now_ns = request.now_ns;
        let shown = self.processes.iter().filter(|process| {
            let shown_from_ns = beyond(now_ns, ENDED_SHOWN_NS);
            let gone = matches!(process.sums.exit, Some(exit) if exit.at_ns < shown_from_ns);
            process.runs_python() && !gone
        });
        let interval_ns = (interval.until - interval.from) * BUCKET_NS;
        let detail = request.detail.and_then(|pid| self.processes.get(pid));
        Snapshot {
            schema: SCHEMA,
            at_ns: now_ns,
            at_unix_ns: clock.unix_ns(now_ns),
            started_ns: self.header.started_ns,
            host: self.header.host.clone(),
            mode: self.header.mode.clone(),
            interval_ns,
            interval_end_ns: interval.until * BUCKET_NS,
            processes: shown.map(|process| process.figures(now_ns, interval, &self.gpus)).collect(),
            gpus: self.gpus.figures(),
            long_pauses: self.long_pauses.figures(&self.places, clock),
            long_pause_ns: self.long_pauses.from_ns,
            totals: self.totals(interval),
            recorder: self.cost.figures(interval_ns),
            notes: self.notes.figures(),
            detail: detail.map(|process| process.detail(interval.until, &self.places, &self.gpus)),
        }
    }

    /// One bucket at least.
    fn interval(&self, request: &SnapshotRequest) -> BucketRange {
        let until = bucket(beyond(request.now_ns, SETTLE_NS));
        let most = HISTORY_SECONDS as u64 * 1_000_000_000;
        let length = bucket(request.interval_ns.min(most)).max(1);
        let recorded = beyond(until, bucket(self.header.started_ns)).max(1);
        let from = beyond(until, length.min(recorded));
        BucketRange { from, until }
    }

    fn totals(&self, interval: BucketRange) -> SnapshotTotals {
        let gone = &self.processes.gone;
        let mut sums = gone.history.sums.clone();
        let mut bucket_sums = gone.history.bucket_sums(interval.from, interval.until);
        let (mut processes, mut ended) = (gone.ran_python, gone.ended);
        for process in self.processes.iter().filter(|one| one.runs_python()) {
            processes += 1;
            ended += u64::from(process.sums.exit.is_some());
            if let Some(work) = &process.work {
                sums.merge(&work.history.sums);
                bucket_sums.merge(&work.history.bucket_sums(interval.from, interval.until));
            }
        }
        SnapshotTotals {
            collections: sums.figures(),
            processes,
            ended,
            interval_pauses: bucket_sums.pauses,
            interval_pause_ns: bucket_sums.pause_ns,
        }
    }
}
