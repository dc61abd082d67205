//! What the thread that records and those that show have in common.

use crate::record::RecordObserver;
use gctrace_analysis::live::Live;
use gctrace_analysis::live::Snapshot;
use gctrace_analysis::live::SnapshotRequest;
use gctrace_event::Record;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;

/// What the user asked for by a key or click, for the thread that records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UserCommand {
    /// To leave; a command goes on.
    Quit,
    /// Ctrl-C was typed where the terminal makes no signal of it: meant for the command, or to leave where
    /// there is none (`launch::Policy` decides, as for a signal of the terminal).
    Interrupt,
}

/// Whether there is still something to come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum LivePhase {
    /// Recording.
    #[default]
    Recording,
    /// Nothing changes any more: why, in sentences (`the command ended with exit code 0`, what is in the trace).
    Ended(Vec<String>),
}

/// Shared by all threads.
#[derive(Debug)]
pub(crate) struct LiveHandle {
    live: Mutex<Live>,
    requests: Mutex<Vec<UserCommand>>,
    phase: Mutex<LivePhase>,
}

impl LiveHandle {
    /// Nothing has happened yet.
    pub(crate) fn new(live: Live) -> Self {
        Self {
            live: Mutex::new(live),
            requests: Mutex::default(),
            phase: Mutex::default(),
        }
    }

    /// The figures, for the thread that records; held for as short as possible.
    pub(crate) fn live(&self) -> MutexGuard<'_, Live> {
        locked(&self.live)
    }

    /// The figures now.
    pub(crate) fn snapshot(&self, interval: Duration, detail: Option<u32>) -> Snapshot {
        let request = SnapshotRequest {
            now_ns: crate::record::monotonic_ns(),
            interval_ns: u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX),
            detail,
        };
        self.live().snapshot(&request)
    }

    /// The user wants something.
    pub(crate) fn submit(&self, submit: UserCommand) {
        locked(&self.requests).push(submit);
    }

    /// What the user wanted since the last call.
    pub(crate) fn take_requests(&self) -> Vec<UserCommand> {
        std::mem::take(&mut *locked(&self.requests))
    }

    /// Whether there is still something to come.
    pub(crate) fn phase(&self) -> LivePhase {
        locked(&self.phase).clone()
    }

    /// Nothing comes any more.
    pub(crate) fn end(&self, sentences: Vec<String>) {
        *locked(&self.phase) = LivePhase::Ended(sentences);
    }
}

impl RecordObserver for LiveHandle {
    fn observe(&self, record: &Record) {
        self.live().record(record);
    }
}

/// A thread that failed while it held a lock leaves figures behind that are at worst one record short.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
