//! Records refused by a full disk.
//!
//! Owns their counts, and the segment that could not be written to its end. This segment stays open, with the space
//! reserved for its last line, until the next one starts or the recording ends. So its last line states the records
//! refused after it.

use super::{OpenSegment, SegmentedTrace};
use gctrace_event::{Record, TraceEnd, TraceFile, WriteError};
use std::collections::BTreeMap;
use std::io;
use std::io::ErrorKind;
use std::path::Path;

/// Records not written since the start of the recording.
#[derive(Default)]
pub(super) struct Unwritten {
    /// By place.
    counts: BTreeMap<String, u64>,
    segment: Option<CutSegment>,
}

/// A segment that cannot be written any more.
struct CutSegment {
    segment: OpenSegment,
    /// When that was noticed.
    at_ns: u64,
    why: String,
}

impl Unwritten {
    /// Whether there is a segment without its last line.
    pub(super) fn has_segment(&self) -> bool {
        self.segment.is_some()
    }

    /// Events lost since the start and not written, with `lost`, by place.
    pub(super) fn with(&self, lost: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
        let mut all = lost.clone();
        all.extend(self.counts.clone());
        all
    }

    fn add(&mut self, place: String, count: u64) {
        if count > 0 {
            let sum = self.counts.entry(place).or_default();
            gctrace_units::add_to(sum, count);
        }
    }
}

impl SegmentedTrace {
    /// Makes the file of the next segment, with its first space. First: were gctrace killed between two segments, the
    /// recording would look finished, and a segment that ends states that others follow.
    pub(super) fn begin_next(&mut self) -> Result<(), WriteError> {
        let path = self.folder.segment(self.next);
        if self.begun.is_none() {
            let made = self.folder.create(self.next);
            self.begun = Some(made.map_err(|cause| cannot_create(&path, cause))?);
        }
        self.begun.iter().try_for_each(|file| TraceFile::reserve(file, &path))
    }

    /// The segment cannot be written any more.
    pub(super) fn give_up(&mut self, failure: WriteError) {
        tracing::warn!("{failure}");
        if let Some(segment) = self.current.take() {
            let why = failure.reason();
            self.unwritten.add(format!("not written ({why})"), segment.file.lost());
            self.unwritten.segment =
                Some(CutSegment { segment, at_ns: self.now.monotonic_ns, why });
        }
        self.failure = Some(failure);
        // At once: the oldest may go.
        self.retry_ns = 0;
    }

    /// There is no segment for a record. Facts that the next one repeats are not counted.
    pub(super) fn refuse(&mut self, record: &Record) {
        let what = match record {
            Record::Pause(_) => "collections: ",
            Record::Process(_)
            | Record::ThreadName(_)
            | Record::Settings(_)
            | Record::GpuDevice(_) => return,
            _ => "",
        };
        let why = if let Some(failure) = &self.failure { failure.reason() } else { String::new() };
        self.unwritten.add(format!("{what}not written ({why})"), 1);
    }

    /// The last line of the segment that is written or, if none is, of the last one.
    pub(super) fn last_line(&mut self) -> Option<&mut TraceEnd> {
        let cut = self.unwritten.segment.as_mut().map(|cut| &mut cut.segment);
        self.current.as_mut().or(cut).map(|segment| &mut segment.end)
    }

    /// Writes the last line of a segment that could not be written to its end, if there is one.
    pub(super) fn end_unwritten(
        &mut self,
        describe: impl FnOnce(&mut TraceEnd),
        lost: &BTreeMap<String, u64>,
    ) {
        let Some(CutSegment { segment, at_ns, why }) = self.unwritten.segment.take() else {
            return;
        };
        let why = format!("it could not be written any more: {why}");
        let describe = |end: &mut TraceEnd| {
            end.why = why;
            describe(end);
        };
        self.end(segment, at_ns, describe, lost);
    }
}

/// Why a segment cannot be created.
pub(super) fn cannot_create(path: &Path, cause: io::Error) -> WriteError {
    let path = path.to_owned();
    match cause.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            WriteError::DiskFull { path, bytes: 0 }
        }
        _ => WriteError::Io { path, bytes: 0, cause },
    }
}
