//! One stream: a FIFO that schedules its operations in order.

use super::{Completion, FinishedOperation, HardwareTiming, Operation, QUEUE_LIMIT};
use std::collections::VecDeque;

/// Relation of a stream to the legacy default stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamKind {
    /// The default stream itself.
    Legacy,
    /// Waits for it and vice versa.
    Blocking,
    /// `CU_STREAM_NON_BLOCKING`.
    NonBlocking,
}

#[derive(Debug)]
struct QueuedOperation {
    operation: Operation,
    start_ns: Option<u64>,
    completion: Completion,
}

#[derive(Debug)]
pub(crate) struct SimStream {
    pub(crate) id: u32,
    pub(crate) device: u32,
    pub(crate) kind: StreamKind,
    /// Operations with an unknown end.
    waiting: VecDeque<QueuedOperation>,
    /// One entry per possibly unfinished launch, oldest first.
    launches: VecDeque<Completion>,
    last: Completion,
    /// Latest end so far, and the earliest start of the next operation.
    end_ns: u64,
    free_ns: u64,
}

impl SimStream {
    pub(super) fn new(id: u32, device: u32, kind: StreamKind) -> Self {
        Self {
            id,
            device,
            kind,
            waiting: VecDeque::new(),
            launches: VecDeque::new(),
            last: Completion::done(),
            end_ns: 0,
            free_ns: 0,
        }
    }

    /// The end of everything enqueued so far.
    pub(super) fn last(&self) -> Completion {
        self.last.clone()
    }

    pub(super) fn is_settled(&self) -> bool {
        self.waiting.is_empty()
    }

    /// `None` if there is room for one more launch at `now_ns`, otherwise the completion to wait
    /// for.
    pub(super) fn full(&mut self, now_ns: u64) -> Option<Completion> {
        while self.launches.front().is_some_and(|launch| launch.has_ended(now_ns)) {
            self.launches.pop_front();
        }
        if self.launches.len() < QUEUE_LIMIT {
            return None;
        }
        self.launches.front().cloned()
    }

    pub(super) fn push(&mut self, operation: Operation) -> Completion {
        let completion = Completion::default();
        self.last = completion.clone();
        self.waiting.push_back(QueuedOperation {
            operation,
            start_ns: None,
            completion: completion.clone(),
        });
        completion
    }

    /// The operations pushed since the last call of this take one slot of the queue.
    pub(super) fn count_launch(&mut self) {
        self.launches.push_back(self.last.clone());
    }

    /// Schedules the operations at the front as far as possible; returns whether any was scheduled.
    pub(super) fn settle(
        &mut self,
        timing: HardwareTiming,
        finished: &mut Vec<FinishedOperation>,
    ) -> bool {
        let mut progress = false;
        while let Some((start_ns, end_ns)) = self.front_times(timing) {
            let Some(front) = self.waiting.pop_front() else {
                break;
            };
            self.end_ns = end_ns;
            self.free_ns = if front.operation.kind.is_mark() {
                self.free_ns.max(end_ns)
            } else {
                end_ns.saturating_add(timing.gap_ns)
            };
            front.completion.settle(end_ns);
            progress = true;
            finished.push(FinishedOperation {
                operation: front.operation,
                device: self.device,
                stream: self.id,
                start_ns,
                end_ns,
            });
        }
        progress
    }

    /// Start and end of the first operation, if they can be determined.
    fn front_times(&mut self, timing: HardwareTiming) -> Option<(u64, u64)> {
        let earliest_ns = (self.end_ns, self.free_ns);
        let front = self.waiting.front_mut()?;
        let start_ns = match front.start_ns {
            Some(start_ns) => start_ns,
            None => {
                let start_ns = start(&front.operation, timing, earliest_ns)?;
                if let Some(meeting) = &mut front.operation.meeting {
                    meeting.arrive(start_ns);
                }
                *front.start_ns.insert(start_ns)
            }
        };
        let base_ns = match &mut front.operation.meeting {
            Some(meeting) => meeting.last_start_ns()?.max(start_ns),
            None => start_ns,
        };
        Some((start_ns, base_ns.saturating_add(front.operation.duration_ns)))
    }

    /// Since when an operation with an unknown end has been running.
    pub(super) fn running_since(&self) -> Option<u64> {
        self.waiting.front().and_then(|front| front.start_ns)
    }
}

/// When an operation at the front starts; `None` while something it waits for is unknown.
fn start(
    operation: &Operation,
    timing: HardwareTiming,
    (end_ns, free_ns): (u64, u64),
) -> Option<u64> {
    let previous_ns = if operation.kind.is_mark() { end_ns } else { free_ns };
    let launched_ns = operation.launched_ns.saturating_add(timing.latency_ns);
    operation.after.iter().try_fold(previous_ns.max(launched_ns), |latest, completion| {
        Some(latest.max(completion.end_ns()?))
    })
}
