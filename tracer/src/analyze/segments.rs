//! The segments of a directory, read as one recording.
//!
//! Owns their joining: each segment repeats what its records need, and its header has the totals of all before it. By
//! these, every pause in none of the segments is counted and stated.

use crate::files::open_regular;
use crate::files::segments::segments_in;
use crate::units::{counted, duration};
use anyhow::Context as _;
use gctrace_event::read::{
    Anomalies, DecodedItem, EventReader, TraceCompletion, TraceInput, TraceReader,
};
use gctrace_event::{
    FrameId, Note, OmittedPauses, Process, Record, RecordedTotals, TraceEnd, TraceHeader,
};
use gctrace_units::{add_to, after, beyond, duration_ns};
use std::collections::{HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};

/// Steps of the clock that are stated: more than any adjustment of its rate, in ns.
const CLOCK_STEP_NS: u64 = 1_000_000_000;

/// Reads the segments of one recording.
pub(crate) struct SegmentReader {
    name: String,
    /// Segments not read yet.
    left: VecDeque<(u64, PathBuf)>,
    current: TraceReader,
    /// Bytes of the segments that were read to their end.
    consumed: u64,
    /// Start of the first segment that was read, in ns of CLOCK_MONOTONIC.
    first_ns: Option<u64>,
    /// The last header that was read.
    last: Option<TraceHeader>,
    /// Pauses of the segment that is read, in its own count.
    read: OmittedPauses,
    /// Its last line.
    end: Option<TraceEnd>,
    /// Pauses only counted in the segment before it; `None` without a last line.
    omitted: Option<OmittedPauses>,
    /// Omitted and lost records of segments before.
    before: TraceEnd,
    processes: HashMap<u32, Process>,
    frames: HashSet<FrameId>,
    /// Items that the reader adds.
    added: VecDeque<DecodedItem<'static>>,
    completion: TraceCompletion,
    is_finished: bool,
    failures: Vec<anyhow::Error>,
}

impl SegmentReader {
    /// Opens the segments of a directory; `None` if it has none.
    ///
    /// # Errors
    /// None of them can be opened.
    pub(crate) fn open(directory: &Path) -> Option<anyhow::Result<Self>> {
        let mut left: VecDeque<(u64, PathBuf)> = segments_in(directory).into();
        let mut failure = None;
        while let Some((_, path)) = left.pop_front() {
            match open(&path) {
                Ok(current) => {
                    return Some(Ok(Self {
                        name: directory.display().to_string(),
                        left,
                        current,
                        consumed: 0,
                        first_ns: None,
                        last: None,
                        read: OmittedPauses::default(),
                        end: None,
                        omitted: None,
                        before: TraceEnd::default(),
                        processes: HashMap::new(),
                        frames: HashSet::new(),
                        added: VecDeque::new(),
                        completion: TraceCompletion::default(),
                        is_finished: false,
                        failures: Vec::new(),
                    }));
                }
                // The recorder has deleted it since; or it is empty.
                Err(error) => failure = Some(error),
            }
        }
        failure.map(Err)
    }

    /// The directory.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Bytes that were read.
    pub(crate) fn consumed(&self) -> u64 {
        self.consumed + self.current.events().input().consumed()
    }

    /// The next item, or `None` at the end of the last segment. A segment that cannot be read to its end
    /// counts as far as it can, and is stated.
    pub(crate) fn next_item(&mut self) -> Option<DecodedItem<'_>> {
        loop {
            if let Some(item) = self.added.pop_front() {
                return Some(item);
            }
            let taken = match self.current.next_item() {
                // Items of other tools are in no segment.
                Ok(Some(DecodedItem::Other(_) | DecodedItem::Unusable)) => continue,
                Ok(Some(DecodedItem::Header(header))) => Taken::Header(header),
                Ok(Some(DecodedItem::Record(record))) => Taken::Record(record.into()),
                Ok(Some(
                    DecodedItem::ProcessName { .. }
                    | DecodedItem::Property(_)
                    | DecodedItem::Work { .. },
                )) => continue,
                Ok(None) => Taken::End,
                Err(error) => {
                    self.failures.push(error.into());
                    Taken::End
                }
            };
            match taken {
                Taken::Header(header) if self.is_of_another(&header) => {
                    let position = if let Some(of) = &header.segment { of.number } else { 0 };
                    self.failures.push(anyhow::anyhow!(
                        "{}: segment {position} is of another recording and left out",
                        self.name
                    ));
                    if !self.next_segment() {
                        return None;
                    }
                }
                Taken::Header(header) => {
                    if let Some(header) = self.begin(*header) {
                        return Some(DecodedItem::Header(header.into()));
                    }
                }
                Taken::Record(record) => {
                    if let Some(record) = self.record(*record) {
                        return Some(DecodedItem::Record(record));
                    }
                }
                Taken::End => {
                    if !self.next_segment() {
                        self.finish_last();
                        return self.added.pop_front();
                    }
                }
            }
        }
    }

    /// How the last segment ended, with the sums of all, and why some could not be read.
    pub(crate) fn finish(mut self) -> (TraceCompletion, Option<anyhow::Error>) {
        let last = self.current.finish();
        self.completion.cut = last.cut;
        add(&mut self.completion, last);
        (self.completion, self.failures.into_iter().next())
    }

    fn is_of_another(&self, header: &TraceHeader) -> bool {
        let start = |header: &TraceHeader| {
            let segment = header.segment.as_ref()?;
            Some((segment.recording_started_ns, segment.recording_started_unix_ns))
        };
        let Some(last) = &self.last else { return false };
        start(last) != start(header)
    }

    /// The first header stands for all.
    fn begin(&mut self, header: TraceHeader) -> Option<TraceHeader> {
        let is_first = self.last.is_none();
        if let Some(last) = self.last.take() {
            self.note_gap(&last, &header);
            note_clock(&last, &header).into_iter().for_each(|note| self.note(&header, note));
        }
        self.read = OmittedPauses::default();
        self.first_ns.get_or_insert(header.started_ns);
        self.last = Some(header.clone());
        if is_first { Some(header) } else { None }
    }

    /// States pauses that were recorded between two segments and are in neither.
    fn note_gap(&mut self, last: &TraceHeader, next: &TraceHeader) {
        let (Some(before), Some(after)) = (&last.segment, &next.segment) else { return };
        let gone = beyond(beyond(after.number, before.number), 1);
        let (then, now) = (before.before.omitted, after.before.omitted);
        let counted_since = now.since(then);
        let omitted = match (self.omitted.take(), gone) {
            (Some(omitted), 1..) => omitted,
            (None, 1..) => OmittedPauses::default(),
            (stated, 0) => {
                let more = counted_since.since(stated.unwrap_or_default());
                let unstated = TraceEnd { omitted: more, ..TraceEnd::default() };
                join_ends(&mut self.before, &unstated);
                counted_since
            }
        };
        let all = |of: &RecordedTotals| OmittedPauses::of(of.count(), of.total_ns());
        let missing = all(&after.before).since(all(&before.before)).since(self.read).since(omitted);
        let (missing, time) = (missing.count.0, duration(missing.total_ns.0));
        let why = match gone {
            0 => "could not be written",
            1 => "were in a segment that is gone",
            _ => "were in segments that are gone",
        };
        if missing > 0 {
            let pauses = counted(missing, "pause");
            self.note(next, format!("{pauses} ({time}) before segment {} {why}", after.number));
        } else if gone > 0 {
            let segments = counted(gone, "segment");
            self.note(next, format!("{segments} without pauses before {} are gone", after.number));
        }
    }

    fn note(&mut self, header: &TraceHeader, message: String) {
        let note = Note { pid: None, at_ns: header.started_ns, message };
        self.added.push_back(DecodedItem::Record(Record::Note(note)));
    }

    /// The record, unless a segment before had it.
    fn record(&mut self, record: Record) -> Option<Record> {
        match record {
            Record::Pause(pause) => {
                self.read.add(OmittedPauses::of(1, pause.duration_ns()));
                Some(Record::Pause(pause))
            }
            Record::Frame(frame) => self.frames.insert(frame.id).then_some(Record::Frame(frame)),
            Record::Process(mut process) => {
                let started_ns = self.last.as_ref().map(|header| header.started_ns);
                if let Some(known) = self.processes.get(&process.pid)
                    && started_ns == Some(process.since_ns)
                {
                    process.since_ns = known.since_ns;
                    process.origin = known.origin;
                }
                self.processes.insert(process.pid, process.clone());
                Some(Record::Process(process))
            }
            Record::ProcessExit(exit) => {
                self.processes.remove(&exit.pid);
                Some(Record::ProcessExit(exit))
            }
            Record::End(end) => {
                self.end = Some(end);
                None
            }
            record => Some(record),
        }
    }

    /// Goes on with the next segment that can be opened; `false`: there is none.
    fn next_segment(&mut self) -> bool {
        while let Some((_, path)) = self.left.pop_front() {
            let next = match open(&path) {
                Ok(next) => next,
                Err(error) => {
                    // An empty one was only just begun by a recorder: the one before it is not the end.
                    if path.metadata().is_ok_and(|found| found.is_file() && found.len() == 0) {
                        self.pass_end();
                    } else {
                        self.failures.push(error);
                    }
                    continue;
                }
            };
            self.consumed = self.consumed();
            let mut done = std::mem::replace(&mut self.current, next);
            self.current.go_on_after(&mut done);
            add(&mut self.completion, done.finish());
            self.pass_end();
            return true;
        }
        false
    }

    /// Another segment follows the one just read.
    fn pass_end(&mut self) {
        if let Some(end) = self.end.take() {
            self.omitted = Some(end.omitted);
            join_ends(&mut self.before, &end);
        }
    }

    /// Probes count hits of the whole recording: the remaining segments get a part, by time.
    fn scale_cost(&self, end: &mut TraceEnd) {
        let (Some(last), Some(first_ns)) = (&self.last, self.first_ns) else { return };
        let Some(segment) = &last.segment else { return };
        let since = |start_ns: u64| duration_ns(start_ns, end.ended_ns);
        let (left, all) = (since(first_ns), since(segment.recording_started_ns).max(1));
        for probe in &mut end.probes {
            let part = u128::from(probe.hits) * u128::from(left) / u128::from(all);
            probe.hits = u64::try_from(part).unwrap_or(probe.hits);
        }
    }

    /// The last line of the last segment is the last line of all, with the sums.
    fn finish_last(&mut self) {
        if std::mem::replace(&mut self.is_finished, true) {
            return;
        }
        if let Some(mut end) = self.end.take() {
            join_ends(&mut end, &self.before);
            self.scale_cost(&mut end);
            self.added.push_back(DecodedItem::Record(Record::End(end)));
        } else {
            self.completion.before_end = Some(std::mem::take(&mut self.before));
        }
    }
}

/// The kind of an item, without a borrow of the reader.
enum Taken {
    Header(Box<TraceHeader>),
    Record(Box<Record>),
    End,
}

/// Adds the counts.
fn join_ends(end: &mut TraceEnd, more: &TraceEnd) {
    end.omitted.add(more.omitted);
    end.omitted_waits.add(more.omitted_waits);
    for (name, omitted) in &more.omitted_others {
        end.omitted_others.entry(name.clone()).or_default().add(*omitted);
    }
    for (place, count) in &more.lost {
        let lost = end.lost.entry(place.clone()).or_default();
        add_to(lost, *count);
    }
}

fn add(sum: &mut TraceCompletion, more: TraceCompletion) {
    sum.events += more.events;
    sum.recorded_twice += more.recorded_twice;
    let (all, more) = (&mut sum.anomalies, more.anomalies);
    all.count += more.count;
    all.first.extend(more.first);
    all.first.truncate(Anomalies::KEPT);
}

/// A sentence if the clock of the day was set between two segments.
fn note_clock(last: &TraceHeader, next: &TraceHeader) -> Option<String> {
    let passed_ns = duration_ns(last.started_ns, next.started_ns);
    let expected = after(last.started_unix_ns, passed_ns);
    let step_ns = next.started_unix_ns.abs_diff(expected);
    let direction = if next.started_unix_ns > expected { "forward" } else { "back" };
    if step_ns < CLOCK_STEP_NS {
        return None;
    }
    Some(format!(
        "the clock of the day went {direction} by {} (set, or the machine slept); times within the \
             recording are exact",
        duration(step_ns)
    ))
}

/// Opens a segment. Only a file: the user did not name the directory's contents.
pub(crate) fn open(path: &Path) -> anyhow::Result<TraceReader> {
    let name = path.display().to_string();
    let file = open_regular(path).with_context(|| name.clone())?;
    anyhow::ensure!(file.metadata()?.len() > 0, "{name}: is empty");
    Ok(TraceReader::new(EventReader::new(TraceInput::new(&name, file)?)))
}
