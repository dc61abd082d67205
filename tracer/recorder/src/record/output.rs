//! Writes records to the trace and the live view, or only counts them.
//!
//! Owns the trace file, if there is one, and the totals for the closing line and the summary. Knows
//! nothing of BPF and of `/proc`.

use crate::files::NewTrace;
use crate::invoker::Invoker;
use crate::record::held_frames::HeldFrames;
use crate::record::segments::{Now, SegmentedTrace};
use crate::record::torch_version::TorchVersions;
use gctrace_event::{
    ForeignTimes, GcSettings, Note, OmittedPauses, Pause, Process, Record, TraceCompression,
    TraceEnd, TraceFile, TraceHeader, WriteError,
};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Flushed records survive a killed gctrace; this bounds the time that can be lost.
const FLUSH_EVERY: Duration = Duration::from_millis(100);

/// Time between two readings of the resident memory of a process of an age, both in ns: a second, and from two
/// minutes on a part of the age, up to ten seconds. So a rise is seen soon, and a long trace stays small.
pub(crate) fn memory_interval_ns(age_ns: u64) -> u64 {
    const SECOND: u64 = 1_000_000_000;
    (age_ns / 128).clamp(SECOND, 10 * SECOND)
}

/// Destination of records, in the order of their writing: the trace, the live view, or in tests a list.
pub trait RecordSink {
    /// Takes the next record.
    fn write(&mut self, record: &Record);
}

#[cfg(test)]
impl RecordSink for Vec<Record> {
    fn write(&mut self, record: &Record) {
        self.push(record.clone());
    }
}

/// Writes records to the trace and passes them to the live view; either may be absent.
pub struct RecordOutput {
    trace: Option<TraceOutput>,
    /// The live view: receives every record, whether or not the trace can be written.
    live: Option<Box<dyn RecordSink>>,
    failure: Option<WriteError>,
    /// Records since the failure.
    unwritten: u64,
    min_pause_ns: u64,
    settings: HashMap<u32, ([i32; 3], Option<bool>)>,
    torch: TorchVersions,
    totals: OutputTotals,
    /// Frames of stacks that nothing was written with yet.
    frames: HeldFrames,
    /// The parts of pauses that are not the collector's.
    foreign: ForeignTimes,
}

/// Where the trace is written.
pub enum TraceOutput {
    /// To one file.
    File(Box<OpenTrace>),
    /// To segments; the last ones are kept.
    Segments(Box<SegmentedTrace>),
}

/// The trace being written.
pub struct OpenTrace {
    path: PathBuf,
    file: TraceFile,
    flushed: Instant,
}

/// Figures on pauses for the summary at the end of a recording.
#[derive(Clone, Copy, Debug, Default)]
pub struct OutputTotals {
    /// Number of pauses written to the trace.
    pub pauses: u64,
    /// Total duration of the pauses written, without the parts that are not the collector's, as in a report.
    pub pause_ns: u64,
    /// The longest of these.
    pub longest_ns: u64,
    /// Number and total duration of pauses shorter than `--min-pause`; they are not written.
    pub omitted: OmittedPauses,
}

impl RecordOutput {
    /// Writes to `trace`, if there is to be one; `live` receives the records too.
    pub fn new(
        trace: Option<TraceOutput>,
        header: &TraceHeader,
        invoker: &Invoker,
        live: Option<Box<dyn RecordSink>>,
    ) -> Self {
        Self {
            trace,
            live,
            failure: None,
            unwritten: 0,
            min_pause_ns: header.min_pause_ns,
            settings: HashMap::new(),
            torch: TorchVersions::new(invoker.clone()),
            totals: OutputTotals::default(),
            frames: HeldFrames::default(),
            foreign: ForeignTimes::default(),
        }
    }

    /// Whether a pause is only counted in any case: it is shorter than `--min-pause`.
    pub fn omits(&self, pause: &Pause) -> bool {
        pause.duration_ns() < self.min_pause_ns
    }

    fn segments(&mut self) -> Option<&mut SegmentedTrace> {
        match &mut self.trace {
            Some(TraceOutput::Segments(segments)) => Some(segments),
            Some(TraceOutput::File(_)) | None => None,
        }
    }

    /// Whether the next segment is due ([`RecordOutput::next_segment`]); never without segments.
    pub fn is_segment_due(&mut self) -> bool {
        let Some(segments) = self.segments() else { return false };
        segments.is_due(Now::read())
    }

    /// Starts the next segment. `lost`: events lost since the start, by place.
    pub fn next_segment(&mut self, lost: &BTreeMap<String, u64>) {
        if let Some(segments) = self.segments() {
            segments.turn(Now::read(), lost);
            let min_pause_ns = segments.min_pause_ns();
            self.min_pause_ns = min_pause_ns;
        }
    }

    /// Keeps the segments there are for good, at the next [`RecordOutput::next_segment`]; `who` asks for it.
    pub fn keep_segments(&mut self, who: &'static str) {
        if let Some(segments) = self.segments() {
            segments.ask(who);
        }
    }

    /// Writes a pause, or only counts it if it is short.
    pub fn pause(&mut self, pause: &Pause) {
        let mut own = pause.clone();
        self.foreign.without(&mut own);
        let duration_ns = own.duration_ns();
        // Segments leave out pauses by their length without the parts that are not the collector's.
        let is_short = match &self.trace {
            Some(TraceOutput::Segments(_)) => duration_ns < self.min_pause_ns,
            Some(TraceOutput::File(_)) | None => self.omits(pause),
        };
        if is_short {
            self.totals.omitted.add(OmittedPauses::of(1, duration_ns));
        } else {
            self.write(&Record::Pause(pause.clone()));
            self.totals.pauses += 1;
            self.totals.pause_ns += duration_ns;
            self.totals.longest_ns = self.totals.longest_ns.max(duration_ns);
        }
        if let Some(segments) = self.segments() {
            segments.see(&own, is_short);
        }
    }

    /// Writes the collector's settings if they are new or changed.
    pub fn settings(&mut self, settings: GcSettings) {
        let now = (settings.thresholds, settings.enabled);
        if self.settings.insert(settings.pid, now) != Some(now) {
            self.write(&Record::Settings(settings));
        }
    }

    /// Writes a note for the reader of the trace.
    pub fn note(&mut self, pid: Option<u32>, at_ns: u64, message: String) {
        self.write(&Record::Note(Note { pid, at_ns, message }));
    }

    /// Forgets the facts of an exited process (its pid may be reused).
    pub fn forget(&mut self, pid: u32) {
        self.torch.forget(pid);
        self.settings.remove(&pid);
    }

    /// Flushes to the kernel, a few times per second, and describes processes again once their version of PyTorch is
    /// found.
    pub fn tick(&mut self) {
        for process in self.torch.due() {
            self.pass_on(&Record::Process(process));
        }
        if self.failure.is_some() {
            return;
        }
        if let Some(TraceOutput::File(trace)) = &mut self.trace
            && let Err(error) = trace.flush_if_due()
        {
            self.failure = Some(error);
        }
    }

    /// Why the trace cannot be written any more, if so.
    pub fn failure(&self) -> Option<&WriteError> {
        self.failure.as_ref()
    }

    /// Totals of the recording so far.
    pub fn totals(&self) -> OutputTotals {
        self.totals
    }

    /// The path of the trace, if there is one.
    pub fn path(&self) -> Option<&Path> {
        self.trace.as_ref().map(|trace| match trace {
            TraceOutput::File(trace) => trace.path.as_path(),
            TraceOutput::Segments(segments) => segments.path(),
        })
    }

    fn pass_on(&mut self, record: &Record) {
        self.foreign.note(record);
        if let Some(live) = &mut self.live {
            live.write(record);
        }
        if self.failure.is_some() {
            self.unwritten += 1;
            return;
        }
        match &mut self.trace {
            Some(TraceOutput::File(trace)) => self.failure = trace.file.write(record).err(),
            Some(TraceOutput::Segments(segments)) => segments.write(record),
            None => {}
        }
    }

    /// Writes buffered records. If that or an earlier write failed: the reason, and the number of unwritten records by
    /// place.
    pub fn settle(&mut self) -> (Option<String>, BTreeMap<String, u64>) {
        let trace = match &mut self.trace {
            None => return (None, BTreeMap::new()),
            Some(TraceOutput::Segments(segments)) => {
                return (segments.settle(), segments.unwritten());
            }
            Some(TraceOutput::File(trace)) => trace,
        };
        if self.failure.is_none() {
            self.failure = trace.file.settle().err();
        }
        let reason = self.failure.as_ref().map(WriteError::reason);
        let count = self.unwritten + trace.file.lost();
        let mut unwritten = BTreeMap::new();
        if let Some(reason) = &reason
            && count > 0
        {
            unwritten.insert(format!("not written ({reason})"), count);
        }
        (reason, unwritten)
    }

    /// Writes the last line; returns an earlier failure.
    pub fn finish(mut self, mut end: TraceEnd) -> Result<u64, WriteError> {
        end.omitted = self.totals.omitted;
        let finished = match self.trace.take() {
            Some(TraceOutput::File(trace)) => trace.file.finish(&end),
            Some(TraceOutput::Segments(segments)) => segments.finish(end),
            None => Ok(0),
        };
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => finished,
        }
    }
}

impl RecordSink for RecordOutput {
    /// Writes one record, a frame when something refers to it. A failure ends writing and is kept for
    /// [`RecordOutput::failure`].
    fn write(&mut self, record: &Record) {
        if let Record::Frame(frame) = record
            && self.frames.hold(frame)
        {
            return;
        }
        for frame in self.frames.needed_by(record) {
            self.pass_on(&Record::Frame(frame));
        }
        if let Record::Process(process) = record
            && let Some(torch) = self.torch.described(process)
        {
            return self
                .pass_on(&Record::Process(Process { torch: Some(torch), ..process.clone() }));
        }
        self.pass_on(record);
    }
}

impl OpenTrace {
    /// Writes the header.
    pub fn start(trace: &NewTrace, header: &TraceHeader) -> Result<Self, WriteError> {
        let path = trace.path();
        let compression = TraceCompression::by_name(path);
        let file = trace.writer().map_err(|source| WriteError::Io {
            path: path.to_owned(),
            bytes: 0,
            cause: source,
        })?;
        let file = if trace.streams() {
            TraceFile::stream(file, path, compression, header)?
        } else {
            TraceFile::create(file, path, compression, header)?
        };
        Ok(Self { path: path.to_owned(), file, flushed: Instant::now() })
    }

    fn flush_if_due(&mut self) -> Result<(), WriteError> {
        if self.flushed.elapsed() < FLUSH_EVERY {
            return Ok(());
        }
        self.flushed = Instant::now();
        self.file.flush()
    }
}
