//! Passes calls from CUPTI's buffer-completing threads to the sorting thread, without a lock: a thread that completes a
//! buffer never waits.

use gctrace_ring::RingCall;
use std::sync::atomic::{AtomicPtr, Ordering};

struct CallBatch {
    calls: Vec<RingCall>,
    next: *mut CallBatch,
}

/// Batches of calls, the newest first. Emptied only as a whole, so a batch cannot reappear while
/// another thread still looks at it (no ABA problem).
pub(super) struct CallBatches(AtomicPtr<CallBatch>);

impl CallBatches {
    pub(super) const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    pub(super) fn push(&self, calls: Vec<RingCall>) {
        if calls.is_empty() {
            return;
        }
        let mut next = self.0.load(Ordering::Relaxed);
        let batch = Box::into_raw(Box::new(CallBatch { calls, next }));
        while let Err(now) =
            self.0.compare_exchange_weak(next, batch, Ordering::Release, Ordering::Relaxed)
        {
            next = now;
            // SAFETY: not in the list yet: exclusively ours.
            unsafe { (*batch).next = next };
        }
    }

    /// All calls, in no particular order.
    pub(super) fn take(&self) -> Vec<RingCall> {
        let mut batch = self.0.swap(std::ptr::null_mut(), Ordering::Acquire);
        let mut all = Vec::new();
        while !batch.is_null() {
            // SAFETY: created by `push`, and removed from the list by this thread alone.
            let taken = unsafe { Box::from_raw(batch) };
            all.extend_from_slice(&taken.calls);
            batch = taken.next;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_ring::{ApiLayer, NO_TEXT, TimeInterval};

    #[test]
    fn nothing_is_lost_or_doubled_between_threads() {
        let batches = CallBatches::new();
        let call = |correlation| RingCall {
            interval: TimeInterval { start_ns: 1, end_ns: 2 },
            layer: ApiLayer::Driver,
            function: 0,
            tid: 1,
            correlation,
            name: NO_TEXT,
        };
        let mut all = Vec::new();
        std::thread::scope(|scope| {
            for thread in 0..4_u32 {
                let batches = &batches;
                scope.spawn(move || {
                    for at in 0..500 {
                        batches.push(vec![
                            call(thread * 1000 + 2 * at),
                            call(thread * 1000 + 2 * at + 1),
                        ]);
                    }
                });
            }
            while all.len() < 2000 {
                all.extend(batches.take());
            }
        });
        all.extend(batches.take());
        let mut correlations: Vec<_> = all.iter().map(|call| call.correlation).collect();
        correlations.sort_unstable();
        assert!(
            correlations
                .into_iter()
                .eq((0..4).flat_map(|thread| (0..1000).map(move |at| thread * 1000 + at)))
        );
    }
}
