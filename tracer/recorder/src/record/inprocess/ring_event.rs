//! Decoded records of a process: records for the trace, and events for gctrace itself.

use crate::record::output::RecordSink;
use gctrace_event::{Interpreter, Record, UnseenCollections};

/// One event decoded from the records of a ring. Thread ids are ids in the process's pid namespace.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "almost all are records, and none is kept")]
pub(super) enum RingEvent {
    Record(Record),
    /// It runs this interpreter.
    Interpreter(Interpreter),
    /// Its collections are recorded from then on.
    SeenSince(u64),
    /// Collections of one of its interpreters that call no callback.
    Unseen(UnseenCollections),
    /// A child was forked that has no ring yet; the ids are in its pid namespace.
    Forked {
        at_ns: u64,
        pid: u32,
        parent: u32,
    },
    /// Collections of one of its interpreters are not recorded, or no longer.
    Unhooked,
    /// Calls of the function of `--step-function` are not recorded.
    FunctionUnwatched,
    /// A sentence for user and reader; reported once for all processes.
    Notice(InjectedNotice),
    /// Lost events: place and number.
    Missed(&'static str, u64),
    /// CUPTI reports its calls from then on.
    CuptiSince(u64),
    /// CUPTI reports none of its calls.
    NoCupti,
    /// CUPTI kept its threads busy.
    Overhead {
        ns: u64,
        queue_full: bool,
    },
}

impl RingEvent {
    pub(super) fn of(record: impl Into<Record>) -> Self {
        Self::Record(record.into())
    }
}

/// A sentence for user and trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InjectedNotice {
    /// When the process wrote it, in nanoseconds of CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// Decides whether the user sees it, and whether the trace contains it.
    pub weight: NoticeLevel,
    pub text: String,
}

/// How serious a notice is: who gets it, and how it is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoticeLevel {
    /// Normal operation: shown on request (`-v`).
    Detail,
    /// Expected, but of interest to a reader of the trace: written to it.
    Note,
    /// A malfunction: printed, and written to the trace.
    Warning,
}

impl RecordSink for Vec<RingEvent> {
    fn write(&mut self, record: &Record) {
        self.push(RingEvent::Record(record.clone()));
    }
}

/// The messages of these kinds at the front of any bytes, for tests.
#[cfg(test)]
pub(super) fn decoded<M: gctrace_ring::Message>(bytes: &[Vec<u8>], kinds: Vec<u8>) -> Vec<M> {
    let first = |(bytes, kind): (&Vec<u8>, u8)| {
        (0..=bytes.len()).find_map(|end| M::unpack(kind, bytes.get(..end)?, 0))
    };
    bytes.iter().zip(kinds).filter_map(first).collect()
}
