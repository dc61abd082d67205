//! The end of an operation: unknown at first, then constant.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Shared between a stream, the events recorded after an operation and the calls that wait for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Completion {
    /// 0 while unknown.
    end_ns: Arc<AtomicU64>,
}

impl Completion {
    /// An operation that is complete from the start.
    pub(crate) fn done() -> Self {
        let completion = Self::default();
        completion.settle(1);
        completion
    }

    /// The end, once known; it may be in the future.
    pub(crate) fn end_ns(&self) -> Option<u64> {
        match self.end_ns.load(Ordering::Acquire) {
            0 => None,
            end_ns => Some(end_ns),
        }
    }

    /// Whether it has ended by `now_ns`.
    pub(crate) fn has_ended(&self, now_ns: u64) -> bool {
        self.end_ns().is_some_and(|end_ns| end_ns <= now_ns)
    }

    pub(super) fn settle(&self, end_ns: u64) {
        self.end_ns.store(end_ns.max(1), Ordering::Release);
    }
}
