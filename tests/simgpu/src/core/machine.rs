//! All streams of all devices of one process.

use super::stream::SimStream;
use super::{Completion, FinishedOperation, HardwareTiming, Operation, StreamKind};
use std::collections::BTreeMap;

#[derive(Debug)]
pub(crate) struct SimMachine {
    timing: HardwareTiming,
    streams: BTreeMap<u32, SimStream>,
    finished: Vec<FinishedOperation>,
}

impl SimMachine {
    pub(crate) fn new(timing: HardwareTiming) -> Self {
        Self { timing, streams: BTreeMap::new(), finished: Vec::new() }
    }

    /// Adds a stream with an unused number.
    pub(crate) fn add_stream(&mut self, id: u32, device: u32, kind: StreamKind) {
        self.streams.insert(id, SimStream::new(id, device, kind));
    }

    /// `None` if the stream has room for one more launch, otherwise the completion to wait for.
    pub(crate) fn full(&mut self, stream: u32, now_ns: u64) -> Option<Completion> {
        self.streams.get_mut(&stream)?.full(now_ns)
    }

    /// Enqueues the operations of one launch; returns the end of the last. `None`: no such stream.
    pub(crate) fn launch(
        &mut self,
        stream: u32,
        mut operations: Vec<Operation>,
    ) -> Option<Completion> {
        let after = self.default_stream_joins(stream)?;
        if let Some(first) = operations.first_mut() {
            first.after.extend(after);
        }
        let target = self.streams.get_mut(&stream)?;
        for operation in operations {
            target.push(operation);
        }
        target.count_launch();
        let end = target.last();
        if !target.settle(self.timing, &mut self.finished) || !self.all_settled() {
            self.settle();
        }
        Some(end)
    }

    /// The ends that a launch must wait for by the rules of the legacy default stream.
    fn default_stream_joins(&self, stream: u32) -> Option<Vec<Completion>> {
        let target = self.streams.get(&stream)?;
        let joined = match target.kind {
            StreamKind::Legacy => StreamKind::Blocking,
            StreamKind::Blocking => StreamKind::Legacy,
            StreamKind::NonBlocking => return Some(Vec::new()),
        };
        let others = self
            .streams
            .values()
            .filter(|other| other.device == target.device && other.kind == joined);
        Some(others.map(SimStream::last).collect())
    }

    /// Schedules all operations that can be scheduled by now.
    pub(crate) fn settle(&mut self) {
        let mut progress = true;
        while progress {
            progress = false;
            for stream in self.streams.values_mut() {
                progress |= stream.settle(self.timing, &mut self.finished);
            }
        }
    }

    /// Whether no operation waits for something unknown.
    pub(crate) fn all_settled(&self) -> bool {
        self.streams.values().all(SimStream::is_settled)
    }

    /// The operations scheduled since the last call.
    pub(crate) fn take_finished(&mut self) -> Vec<FinishedOperation> {
        std::mem::take(&mut self.finished)
    }

    /// The end of everything enqueued so far in a stream.
    pub(crate) fn last(&self, stream: u32) -> Option<Completion> {
        self.streams.get(&stream).map(SimStream::last)
    }

    /// The same for all streams of a device.
    pub(crate) fn lasts(&self, device: u32) -> Vec<Completion> {
        let streams = self.streams.values();
        streams.filter(|stream| stream.device == device).map(SimStream::last).collect()
    }

    /// Since when the device has been executing an operation with an unknown end.
    pub(crate) fn running_since(&self, device: u32) -> Option<u64> {
        let streams = self.streams.values();
        streams.filter(|stream| stream.device == device).filter_map(SimStream::running_since).min()
    }
}
