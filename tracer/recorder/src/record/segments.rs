//! A recording that keeps its last part (`--keep`): numbered traces, each readable alone.
//!
//! Owns when a segment ends, is deleted, or is kept for good. A segment repeats what its records need
//! (`segments/facts.rs`), and its header has exact totals of all before it. So every event seen is counted: also in
//! deleted segments, left out by `segments/thinning.rs`, or refused by a full disk. Times are passed in, of
//! CLOCK_MONOTONIC: numbers order segments, and the clock of the day may be set at any time.

mod facts;
mod gpu;
mod requests;
mod steps;
mod thinned;
mod thinning;
mod unwritten;

use crate::args::KeepConfig;
use crate::clock;
use crate::files::segments::SegmentFolder;
use crate::units::duration;
use facts::SegmentFacts;
use gctrace_event::{
    Note, Record, RecordedTotals, Segment, TraceCompression, TraceEnd, TraceFile, TraceHeader,
    WriteError,
};
use gctrace_units::{after, beyond, duration_ns, met, sum};
use gpu::HeldGpuWork;
use requests::{KeepRequests, LongEvent};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::path::Path;
use std::time::Duration;
use steps::StepTimes;
use thinned::WaitingRecords;
use thinning::{Kind, Thinning, WrittenSegment};
use unwritten::{Unwritten, cannot_create};

/// Number of parts of the time to keep.
const PARTS_OF_TIME: u32 = 10;
/// Number of parts of the size to keep.
const PARTS_OF_SIZE: u64 = 16;
/// Longest and shortest segment.
const LONGEST: Duration = Duration::from_secs(600);
const SHORTEST: Duration = Duration::from_millis(100);
/// The longest time that a killed gctrace can lose. If more frequent, flushes would take two bytes of each pause.
const FLUSH_NS: u64 = 1_000_000_000;
/// After a write failed, the next attempt.
const RETRY_NS: u64 = 10_000_000_000;
/// Why a segment ended that others follow.
const GOES_ON: &str = "the next segment goes on";

/// The current time by both clocks, in ns.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// CLOCK_MONOTONIC.
    pub monotonic_ns: u64,
    /// CLOCK_REALTIME, Unix time.
    pub unix_ns: u64,
}

impl Now {
    pub fn read() -> Self {
        Self { monotonic_ns: clock::monotonic_ns(), unix_ns: clock::unix_ns() }
    }
}

/// The segments of one recording.
pub struct SegmentedTrace {
    folder: SegmentFolder,
    keep: KeepConfig,
    /// Of the recording.
    header: TraceHeader,
    /// `None` while none can be written.
    current: Option<OpenSegment>,
    unwritten: Unwritten,
    /// The file of the next one, where it is there already.
    begun: Option<File>,
    closed: VecDeque<ClosedSegment>,
    /// Number of the next segment.
    next: u64,
    facts: SegmentFacts,
    totals: RecordedTotals,
    /// Events lost until the current segment, by place.
    lost: BTreeMap<String, u64>,
    thinning: Thinning,
    waiting: WaitingRecords,
    gpu: HeldGpuWork,
    steps: StepTimes,
    requests: KeepRequests,
    /// Why nothing can be written now.
    failure: Option<WriteError>,
    retry_ns: u64,
    /// The last time that was passed in.
    now: Now,
}

struct OpenSegment {
    number: u64,
    file: TraceFile,
    start_ns: u64,
    flushed_ns: u64,
    written: WrittenSegment,
    /// Totals of records that were only counted.
    end: TraceEnd,
}

struct ClosedSegment {
    number: u64,
    end_ns: u64,
    bytes: u64,
}

impl SegmentedTrace {
    /// Starts the first segment.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn start(
        folder: SegmentFolder,
        keep: &KeepConfig,
        header: &TraceHeader,
        now: Now,
    ) -> Result<Self, WriteError> {
        let mut trace = Self {
            folder,
            keep: keep.clone(),
            header: header.clone(),
            current: None,
            unwritten: Unwritten::default(),
            begun: None,
            closed: VecDeque::new(),
            next: 1,
            facts: SegmentFacts::default(),
            totals: RecordedTotals::default(),
            lost: BTreeMap::new(),
            thinning: Thinning::new(keep.per_day.0),
            waiting: WaitingRecords::default(),
            gpu: HeldGpuWork::default(),
            steps: StepTimes::default(),
            requests: KeepRequests::default(),
            failure: None,
            retry_ns: 0,
            now,
        };
        trace.open(now, &BTreeMap::new());
        match trace.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(trace),
        }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Shorter pauses are only counted, in ns.
    pub fn min_pause_ns(&self) -> u64 {
        self.thinning.min_pause_ns().max(self.header.min_pause_ns)
    }

    /// Writes a record, after the records that it names.
    pub fn write(&mut self, record: &Record) {
        if let Record::ProcessExit(exit) = record {
            self.write_held(Some(exit.pid));
        }
        if self.facts.learn(record) {
            return;
        }
        if let (Record::Step(mark), Some(factor)) = (record, self.keep.on_step_slower)
            && let Some(slow) = self.steps.add(mark, factor)
        {
            let (length, usual) = (duration(slow.length_ns), duration(slow.usual_ns));
            self.notice(LongEvent {
                length_ns: slow.length_ns,
                at_ns: mark.at_ns(),
                what: format!("a step of {length} in process {}, usually {usual}", mark.pid),
            });
            self.begin_gpu_part(after(mark.at_ns(), gpu::AFTER_NS));
        }
        if self.takes_gpu_work(record) || self.takes_thinned(record) {
            return;
        }
        let Some(current) = &self.current else { return self.refuse(record) };
        if let Record::Process(process) = record
            && process.since_ns < current.start_ns
        {
            return self.put(&Record::Process(facts::since(process, current.start_ns)));
        }
        self.write_with_names(record, Kind::Rest);
    }

    fn write_with_names(&mut self, record: &Record, kind: Kind) {
        let Some(current) = &self.current else { return self.refuse(record) };
        let text = current.file.text();
        for needed in self.facts.needed_by(record) {
            self.put(&needed);
        }
        if self.current.is_none() {
            return self.refuse(record);
        }
        self.put(record);
        if let Some(current) = &mut self.current {
            current.written.add_text(kind, current.file.text() - text);
        }
    }

    fn put(&mut self, record: &Record) {
        if let Some(current) = &mut self.current
            && let Err(error) = current.file.write(record)
        {
            self.give_up(error);
        }
    }

    /// Keeps everything there is at the next turn; `who` asks for it.
    pub fn ask(&mut self, who: &'static str) {
        self.requests.asked = Some(who);
    }

    /// Whether [`SegmentedTrace::turn`] has something to do; flushes waiting records.
    pub fn is_due(&mut self, now: Now) -> bool {
        let now_ns = now.monotonic_ns;
        self.now = now;
        if let Some(current) = &mut self.current
            && duration_ns(current.flushed_ns, now_ns) >= FLUSH_NS
        {
            current.flushed_ns = now_ns;
            self.state_omitted();
            self.flush();
        }
        let Some(current) = &self.current else { return now_ns >= self.retry_ns };
        let is_full = matches!(self.largest(), Some(largest) if current.file.bytes() >= largest);
        is_full
            || duration_ns(current.start_ns, now_ns) >= self.longest_ns()
            || self.requests.is_due(self.oldest())
    }

    fn flush(&mut self) {
        if let Some(current) = &mut self.current
            && let Err(error) = current.file.flush()
        {
            self.give_up(error);
        }
    }

    /// Ends the segment and starts the next one; keeps and deletes segments as due. `lost`: events lost since the
    /// start, by place.
    pub fn turn(&mut self, now: Now, lost: &BTreeMap<String, u64>) {
        let end_ns = now.monotonic_ns;
        let is_kept = self.requests.is_due(self.oldest());
        if is_kept {
            self.prepare_kept(end_ns);
        }
        if self.current.is_some() {
            match self.begin_next() {
                Ok(()) => self.close(end_ns, |end| GOES_ON.clone_into(&mut end.why), lost),
                Err(failure) => self.give_up(failure),
            }
        }
        if is_kept {
            self.keep(now);
        }
        while self.is_beyond(end_ns) {
            if !self.delete_oldest() {
                break;
            }
            if self.requests.is_due(self.oldest()) {
                self.keep(now);
            }
        }
        self.open(now, lost);
    }

    /// The end of the recording. Returns the bytes of all segments that are left.
    ///
    /// # Errors
    /// The last segment could not be written to its end.
    pub fn finish(mut self, end: TraceEnd) -> Result<u64, WriteError> {
        let lost = end.lost.clone();
        let ended_ns = end.ended_ns;
        self.begin_gpu_part(ended_ns);
        self.write_held(None);
        let is_kept = self.requests.is_waiting();
        if is_kept {
            self.prepare_kept(ended_ns);
        }
        self.state_let_go();
        let describe = move |last: &mut TraceEnd| {
            let own = std::mem::take(last);
            *last = TraceEnd {
                ended_ns: own.ended_ns,
                omitted: own.omitted,
                omitted_waits: own.omitted_waits,
                omitted_others: own.omitted_others,
                lost: own.lost,
                totals: own.totals,
                ..end
            };
        };
        if self.current.is_some() {
            self.close(ended_ns, describe, &lost);
        } else {
            self.end_unwritten(describe, &lost);
        }
        if is_kept {
            self.keep(self.now);
        }
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(self.closed.iter().map(|segment| segment.bytes).sum()),
        }
    }

    /// Writes buffered records. If nothing can be written: the reason.
    pub fn settle(&mut self) -> Option<String> {
        if let Some(current) = &mut self.current
            && let Err(error) = current.file.settle()
        {
            self.give_up(error);
        }
        self.failure.as_ref().map(WriteError::reason)
    }

    /// Records not written since the start, by place.
    pub fn unwritten(&self) -> BTreeMap<String, u64> {
        self.unwritten.with(&BTreeMap::new())
    }

    fn close(
        &mut self,
        ended_ns: u64,
        describe: impl FnOnce(&mut TraceEnd),
        lost: &BTreeMap<String, u64>,
    ) {
        self.write_waiting();
        self.state_omitted();
        if let Some(current) = self.current.take() {
            self.end(current, ended_ns, describe, lost);
        }
    }

    /// Writes the last line of a segment.
    fn end(
        &mut self,
        segment: OpenSegment,
        ended_ns: u64,
        describe: impl FnOnce(&mut TraceEnd),
        lost: &BTreeMap<String, u64>,
    ) {
        let lost = self.unwritten.with(lost);
        self.totals.lost = sum(lost.values());
        self.totals.not_kept = self.requests.not_kept();
        let before = std::mem::replace(&mut self.lost, lost);
        let newly = self.lost.iter().map(|(place, count)| {
            let earlier = met(before.get(place));
            (place.clone(), beyond(*count, earlier))
        });
        let newly: BTreeMap<String, u64> = newly.filter(|(_, count)| *count > 0).collect();
        let OpenSegment { number, file, start_ns, written, end, .. } = segment;
        let totals = Some(self.totals.clone());
        let mut end = TraceEnd { ended_ns, lost: newly, totals, ..end };
        describe(&mut end);
        let (flushed, text) = (file.bytes(), file.text());
        let bytes = match file.finish(&end) {
            Ok(bytes) => bytes,
            Err(failure) => {
                self.failure = Some(failure);
                flushed
            }
        };
        let took_ns = duration_ns(start_ns, ended_ns);
        self.thinning.decide(&WrittenSegment { bytes, took_ns, text, ..written });
        self.closed.push_back(ClosedSegment { number, end_ns: ended_ns, bytes });
    }

    /// Starts a segment. If the disk is full, it replaces the oldest ones; the last one stays.
    fn open(&mut self, now: Now, lost: &BTreeMap<String, u64>) {
        loop {
            match self.try_open(now) {
                Ok(()) => {
                    self.end_unwritten(|_| {}, lost);
                    if let Some(failure) = self.failure.take() {
                        let message = format!("recording goes on after: {}", failure.reason());
                        tracing::warn!("{message}");
                        let at_ns = now.monotonic_ns;
                        self.put(&Record::Note(Note { pid: None, at_ns, message }));
                    }
                    return;
                }
                Err(failure) => {
                    let is_full = matches!(failure, WriteError::DiskFull { .. });
                    if self.failure.is_none() {
                        tracing::warn!("{failure}");
                    }
                    self.failure = Some(failure);
                    let others = self.closed.len() + usize::from(self.unwritten.has_segment());
                    if !(is_full && others > 1 && self.delete_oldest()) {
                        self.retry_ns = after(now.monotonic_ns, RETRY_NS);
                        return;
                    }
                }
            }
        }
    }

    fn try_open(&mut self, now: Now) -> Result<(), WriteError> {
        let (number, path) = (self.next, self.folder.segment(self.next));
        let start_ns = now.monotonic_ns;
        let file = match self.begun.take() {
            Some(begun) => begun,
            None => self.folder.create(number).map_err(|cause| cannot_create(&path, cause))?,
        };
        let header = TraceHeader {
            started_ns: start_ns,
            started_unix_ns: now.unix_ns,
            min_pause_ns: self.min_pause_ns(),
            segment: Some(Segment {
                number,
                recording_started_ns: self.header.started_ns,
                recording_started_unix_ns: self.header.started_unix_ns,
                min_wait_ns: self.thinning.min_wait_ns(),
                before: self.totals.clone(),
            }),
            ..self.header.clone()
        };
        let begun =
            TraceFile::create(file, &path, TraceCompression::Zstd, &header).and_then(|mut file| {
                for record in self.facts.begin(start_ns) {
                    file.write(&record)?;
                }
                Ok(file)
            });
        let file = match begun {
            Ok(file) => file,
            Err(error) => {
                // Nothing was recorded in it.
                let _ = self.folder.remove(number);
                return Err(error);
            }
        };
        self.next += 1;
        self.current = Some(OpenSegment {
            number,
            file,
            start_ns,
            flushed_ns: start_ns,
            written: WrittenSegment::default(),
            end: TraceEnd::default(),
        });
        Ok(())
    }

    /// Deletes the oldest segment; returns whether there was one.
    fn delete_oldest(&mut self) -> bool {
        let Some(oldest) = self.closed.front() else { return false };
        if let Err(error) = self.folder.remove(oldest.number) {
            tracing::warn!(
                "cannot delete {}: {error}",
                self.folder.segment(oldest.number).display()
            );
        }
        self.requests.deleted(oldest.number);
        self.closed.pop_front();
        true
    }

    fn oldest(&self) -> u64 {
        let current = self.current.as_ref().map(|current| current.number);
        self.closed.front().map(|segment| segment.number).or(current).unwrap_or(self.next)
    }

    /// Whether the oldest segment is beyond the limits to keep.
    fn is_beyond(&self, now_ns: u64) -> bool {
        let Some(oldest) = self.closed.front() else { return false };
        let is_old = match self.keep.time() {
            Some(time) => duration_ns(oldest.end_ns, now_ns) > clock::nanoseconds(time),
            None => false,
        };
        let bytes = self.closed.iter().map(|segment| segment.bytes).chain(self.largest());
        is_old || self.keep.bytes().is_some_and(|most| sum(bytes) > most)
    }

    fn largest(&self) -> Option<u64> {
        self.keep.bytes().map(|bytes| bytes / PARTS_OF_SIZE)
    }

    fn longest_ns(&self) -> u64 {
        let part = if let Some(time) = self.keep.time() { time / PARTS_OF_TIME } else { LONGEST };
        clock::nanoseconds(part.clamp(SHORTEST, LONGEST))
    }
}

#[cfg(test)]
mod tests;
