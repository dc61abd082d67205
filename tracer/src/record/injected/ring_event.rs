//! What a process says, decoded: records of the trace, and what gctrace itself must know.

use crate::record::sink::RecordSink;
use gctrace_event::Interpreter;
use gctrace_event::Record;

/// One thing that follows from the records of a ring. Threads are named as the process sees them.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "almost all are records, and none is kept"
)]
pub(super) enum RingEvent {
    /// For the trace.
    Record(Record),
    /// It runs this interpreter.
    Interpreter(Interpreter),
    /// Its collections are seen from then on.
    SeenSince(u64),
    /// Collections of an interpreter of it are not seen, or not any more.
    Unhooked,
    /// Something that user and reader should know; told once however many processes say it.
    Notice(InjectedNotice),
    /// Events that were missed, and where.
    Missed(&'static str, u64),
    /// CUPTI tells of its calls from then on.
    CuptiSince(u64),
    /// CUPTI tells of none of its calls.
    NoCupti,
    /// CUPTI kept its threads busy: how long, and whether because the launch queue was full.
    Overhead {
        /// In nanoseconds.
        ns: u64,
        /// The launch queue was full.
        queue_full: bool,
    },
}

/// A sentence for user and trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InjectedNotice {
    /// When.
    pub at_ns: u64,
    /// Whom it is for.
    pub weight: NoticeLevel,
    /// The sentence.
    pub text: String,
}

/// Whom a sentence is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoticeLevel {
    /// All is well: for who asks for details.
    Detail,
    /// As asked for, but a reader of the trace should know.
    Note,
    /// Something does not work as it should: for user and reader.
    Warning,
}

impl RecordSink for Vec<RingEvent> {
    fn write(&mut self, record: Record) {
        self.push(RingEvent::Record(record));
    }
}
