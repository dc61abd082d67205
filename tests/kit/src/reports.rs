//! Traces for tests: records in, a report out.

use gctrace_analysis::Analysis;
use gctrace_analysis::report::Report;
use gctrace_event::read::{DecodedItem, ReadError, TraceCompletion, TraceReader};
use gctrace_event::{
    CollectorKind, FORMAT, GcReason, Interpreter, Pause, Process, ProcessExit, ProcessOrigin,
    Record, TraceEnd, TraceHeader,
};

/// Start of the recordings; one millisecond is `MS`.
pub const START: u64 = 1_000_000_000;
/// Nanoseconds of a millisecond.
pub const MS: u64 = 1_000_000;

/// A header that names the format, the start, and 100 samples a second.
pub fn header() -> TraceHeader {
    TraceHeader {
        format: FORMAT.to_owned(),
        started_ns: START,
        started_unix_ns: 1_700_000_000_000_000_000,
        sample_hz: Some(100),
        ..TraceHeader::default()
    }
}

/// A process with an interpreter of this collector (`generational`, `incremental`, `free-threaded`).
pub fn process(pid: u32, since_ms: u64, collector: &str) -> Record {
    Record::Process(Process {
        pid,
        origin: ProcessOrigin::Launched,
        since_ns: START + since_ms * MS,
        command: vec!["python".to_owned()],
        interpreter: Some(Interpreter {
            collector: match collector {
                "generational" => CollectorKind::Generational,
                "incremental" => CollectorKind::Incremental,
                "free-threaded" => CollectorKind::FreeThreaded,
                other => CollectorKind::Other(other.to_owned()),
            },
            free_threaded: collector == "free-threaded",
            ..Interpreter::default()
        }),
        ..Process::default()
    })
}

/// The exit of a process, with code 0.
pub fn exit(pid: u32, at_ms: u64) -> Record {
    Record::ProcessExit(ProcessExit { pid, at_ns: START + at_ms * MS, code: Some(0), signal: None })
}

/// A pause of a process's main thread, from and to in milliseconds.
pub fn pause(pid: u32, from_ms: u64, to_ms: u64) -> Pause {
    Pause {
        pid,
        tid: pid,
        start_ns: START + from_ms * MS,
        end_ns: START + to_ms * MS,
        generation: 0,
        reason: GcReason::Automatic,
        collected: Some(1),
        uncollectable: Some(0),
        interpreter: Some(0),
        ..Pause::default()
    }
}

/// The end of a recording of one process, without losses.
pub fn end(at_ms: u64) -> TraceEnd {
    TraceEnd {
        ended_ns: START + at_ms * MS,
        why: "the command ended".to_owned(),
        processes: Some(gctrace_event::ExaminedProcesses {
            python: 1,
            other: Some(0),
            unexamined: Default::default(),
        }),
        ..TraceEnd::default()
    }
}

/// Adds a whole trace; without `end` it is a trace that was cut off.
pub fn add(analysis: &mut Analysis, file: &str, records: Vec<Record>, end: Option<TraceEnd>) {
    analysis.begin_trace(file);
    analysis.add(DecodedItem::Header(Box::new(header())));
    for record in records {
        analysis.add(DecodedItem::Record(record));
    }
    if let Some(end) = end {
        analysis.add(DecodedItem::Record(Record::End(end)));
    }
    analysis.end_trace(TraceCompletion::default(), None);
}

/// Adds all that a reader reads, as the trace `name`.
///
/// # Errors
/// Those of the reader.
pub fn read(analysis: &mut Analysis, name: &str, mut reader: TraceReader) -> Result<(), ReadError> {
    analysis.begin_trace(name);
    while let Some(item) = reader.next_item()? {
        analysis.add(item);
    }
    analysis.end_trace(reader.finish(), None);
    Ok(())
}

/// The report on one trace.
pub fn report(records: Vec<Record>, end: Option<TraceEnd>) -> Report {
    let mut analysis = Analysis::default();
    add(&mut analysis, "t.json", records, end);
    analysis.settle();
    analysis.report()
}
