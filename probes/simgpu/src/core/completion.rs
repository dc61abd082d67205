//! When an operation ends: unknown at first, then a moment that never changes.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

/// Shared between a stream, the events recorded behind an operation and those who wait for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Completion {
    /// 0 while it is not known.
    end_ns: Arc<AtomicU64>,
}

impl Completion {
    /// Something that has always been done.
    pub(crate) fn done() -> Self {
        let completion = Self::default();
        completion.settle(1);
        completion
    }

    /// The end, once it is known; it may lie in the future.
    pub(crate) fn end_ns(&self) -> Option<u64> {
        match self.end_ns.load(Ordering::Acquire) {
            0 => None,
            end_ns => Some(end_ns),
        }
    }

    /// It has ended by `now_ns`.
    pub(crate) fn has_ended(&self, now_ns: u64) -> bool {
        self.end_ns().is_some_and(|end_ns| end_ns <= now_ns)
    }

    pub(super) fn settle(&self, end_ns: u64) {
        self.end_ns.store(end_ns.max(1), Ordering::Release);
    }
}
