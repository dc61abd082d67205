//! State shared by the recording thread and the display threads.

use crate::record::RecordSink;
use gctrace_analysis::live::{Live, Snapshot, SnapshotRequest};
use gctrace_event::Record;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A request of the user to the recording thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UserCommand {
    /// Quit; the command keeps running.
    Quit,
    /// Ctrl-C was typed in raw mode. `launch::Policy` handles it like SIGINT from the terminal: it
    /// goes to the command, or quits if there is none.
    Interrupt,
}

/// Whether the figures still change, or the recording has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum LivePhase {
    /// Recording.
    #[default]
    Recording,
    /// The figures are final. Holds the reason and closing remarks, as clauses (`the command ended
    /// with exit code 0`).
    Ended(Vec<String>),
}

/// State that the recording thread shares with the view, the printer and the metrics server.
#[derive(Debug)]
pub(crate) struct LiveHandle {
    live: Mutex<Live>,
    requests: Mutex<Vec<UserCommand>>,
    phase: Mutex<LivePhase>,
}

impl LiveHandle {
    /// Starts in the phase [`LivePhase::Recording`], without requests.
    pub(crate) fn new(live: Live) -> Self {
        Self { live: Mutex::new(live), requests: Mutex::default(), phase: Mutex::default() }
    }

    /// Locks the figures, for the recording thread. Keep the guard only briefly.
    pub(crate) fn live(&self) -> MutexGuard<'_, Live> {
        locked(&self.live)
    }

    /// Takes a snapshot now; with details of the process `detail`.
    pub(crate) fn snapshot(&self, interval: Duration, detail: Option<u32>) -> Snapshot {
        let request = SnapshotRequest {
            now_ns: crate::clock::monotonic_ns(),
            interval_ns: crate::clock::nanoseconds(interval),
            detail,
        };
        self.live().snapshot(&request)
    }

    /// Queues a request of the user for the recording thread; that thread polls for them.
    pub(crate) fn submit(&self, submit: UserCommand) {
        locked(&self.requests).push(submit);
    }

    /// Takes the requests since the last call.
    pub(crate) fn take_requests(&self) -> Vec<UserCommand> {
        std::mem::take(&mut *locked(&self.requests))
    }

    /// The current phase, copied so that no lock is held.
    pub(crate) fn phase(&self) -> LivePhase {
        locked(&self.phase).clone()
    }

    /// Marks the figures as final; `sentences` are shown with them.
    pub(crate) fn end(&self, sentences: Vec<String>) {
        *locked(&self.phase) = LivePhase::Ended(sentences);
    }
}

/// Where the recording thread puts its records.
pub(crate) struct LiveSink(pub(crate) Arc<LiveHandle>);

impl RecordSink for LiveSink {
    fn write(&mut self, record: &Record) {
        self.0.live().record(record);
    }
}

/// Ignores poisoning: after a panic the figures lack one record at most.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
