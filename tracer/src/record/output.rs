//! Events -> the trace and those who look on: what is written, what is only counted.
//!
//! Owns the trace file, if there is one, and the totals that the closing line and the user are told. Knows
//! nothing of BPF and of `/proc`.

use crate::files::NewTrace;
use gctrace_event::GcSettings;
use gctrace_event::Note;
use gctrace_event::OmittedPauses;
use gctrace_event::Pause;
use gctrace_event::Record;
use gctrace_event::TraceEnd;
use gctrace_event::TraceFile;
use gctrace_event::TraceHeader;
use gctrace_event::WriteError;
use std::collections::HashMap;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

/// What is flushed survives a killed gctrace; this is the most that can be lost.
const FLUSH_EVERY: Duration = Duration::from_millis(100);

/// What gets each record of a recording while it runs.
pub(crate) trait RecordObserver: Send + Sync {
    /// Takes a record, on the thread that records: returns within microseconds.
    fn observe(&self, record: &Record);
}

/// Where records go.
pub(crate) struct RecordOutput {
    trace: Option<OpenTrace>,
    /// Gets every record, whether or not the trace can be written.
    observer: Option<Arc<dyn RecordObserver>>,
    failure: Option<WriteError>,
    /// Records since then.
    unwritten: u64,
    min_pause_ns: u64,
    settings: HashMap<u32, ([i32; 3], Option<bool>)>,
    totals: OutputTotals,
}

/// The trace being written.
struct OpenTrace {
    path: PathBuf,
    file: TraceFile,
    flushed: Instant,
}

/// What was recorded.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OutputTotals {
    /// Pauses written.
    pub pauses: u64,
    /// Their time together.
    pub pause_ns: u64,
    /// The longest.
    pub longest_ns: u64,
    /// Pauses under the limit.
    pub omitted: OmittedPauses,
}

impl RecordOutput {
    /// Starts the trace, if there is to be one. `observer` gets the same records.
    pub(crate) fn begin(
        trace: Option<&NewTrace>,
        header: &TraceHeader,
        observer: Option<Arc<dyn RecordObserver>>,
    ) -> Result<Self, WriteError> {
        let trace = trace
            .map(|trace| OpenTrace::begin(trace, header))
            .transpose()?;
        Ok(Self {
            trace,
            observer,
            failure: None,
            unwritten: 0,
            min_pause_ns: header.min_pause_ns,
            settings: HashMap::new(),
            totals: OutputTotals::default(),
        })
    }

    /// Writes one record. A failure ends the writing and is kept for [`RecordOutput::failure`].
    pub(crate) fn write(&mut self, record: &Record) {
        if let Some(observer) = &self.observer {
            observer.observe(record);
        }
        if self.failure.is_some() {
            self.unwritten += 1;
            return;
        }
        if let Some(trace) = &mut self.trace
            && let Err(error) = trace.file.write(record)
        {
            self.failure = Some(error);
        }
    }

    /// Writes a pause, or counts it if it is short.
    pub(crate) fn pause(&mut self, pause: &Pause) {
        if pause.duration_ns() < self.min_pause_ns {
            self.totals.omitted.count += 1;
            self.totals.omitted.total_ns += pause.duration_ns();
            return;
        }
        self.totals.pauses += 1;
        self.totals.pause_ns += pause.duration_ns();
        self.totals.longest_ns = self.totals.longest_ns.max(pause.duration_ns());
        self.write(&Record::Pause(pause.clone()));
    }

    /// The collector's settings, written when they are new or changed.
    pub(crate) fn settings(&mut self, settings: GcSettings) {
        let now = (settings.thresholds, settings.enabled);
        if self.settings.insert(settings.pid, now) != Some(now) {
            self.write(&Record::Settings(settings));
        }
    }

    /// Something the reader of the trace should know.
    pub(crate) fn note(&mut self, pid: Option<u32>, at_ns: u64, message: String) {
        self.write(&Record::Note(Note {
            pid,
            at_ns,
            message,
        }));
    }

    /// A process is gone: its settings may be forgotten (its pid may come again).
    pub(crate) fn forget(&mut self, pid: u32) {
        self.settings.remove(&pid);
    }

    /// Hands what was written to the kernel, a few times a second.
    pub(crate) fn tick(&mut self) {
        if self.failure.is_some() {
            return;
        }
        if let Some(trace) = &mut self.trace
            && let Err(error) = trace.flush_if_due()
        {
            self.failure = Some(error);
        }
    }

    /// The trace cannot be written any more.
    pub(crate) fn failure(&self) -> Option<&WriteError> {
        self.failure.as_ref()
    }

    /// What was recorded so far.
    pub(crate) fn totals(&self) -> OutputTotals {
        self.totals
    }

    /// Where the trace is, if there is one.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.trace.as_ref().map(|trace| trace.path.as_path())
    }

    /// Writes what waits. Where that or an earlier write failed: why, and how many records the trace lacks.
    pub(crate) fn settle(&mut self) -> Option<(String, u64)> {
        let trace = self.trace.as_mut()?;
        if self.failure.is_none() {
            self.failure = trace.file.settle().err();
        }
        let reason = self.failure.as_ref()?.reason();
        Some((reason, self.unwritten.saturating_add(trace.file.lost())))
    }

    /// Writes the last line; an earlier failure is returned.
    pub(crate) fn finish(mut self, mut end: TraceEnd) -> Result<u64, WriteError> {
        end.omitted = self.totals.omitted;
        let finished = match self.trace.take() {
            Some(trace) => trace.file.finish(&end),
            None => Ok(0),
        };
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => finished,
        }
    }
}

impl OpenTrace {
    fn begin(trace: &NewTrace, header: &TraceHeader) -> Result<Self, WriteError> {
        let path = trace.path();
        let compressed = gctrace_event::compressed_by_name(path);
        let file = trace.writer().map_err(|source| WriteError::Io {
            path: path.to_owned(),
            bytes: 0,
            cause: source,
        })?;
        let file = match trace.streams() {
            true => TraceFile::stream(file, path, compressed, header)?,
            false => TraceFile::create(file, path, compressed, header)?,
        };
        Ok(Self {
            path: path.to_owned(),
            file,
            flushed: Instant::now(),
        })
    }

    fn flush_if_due(&mut self) -> Result<(), WriteError> {
        if self.flushed.elapsed() < FLUSH_EVERY {
            return Ok(());
        }
        self.flushed = Instant::now();
        self.file.flush()
    }
}
