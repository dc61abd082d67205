//! The state of one trace as a whole.

use super::profiler_metadata::ProfilerMetadata;
use super::unlisted::UnlistedSums;
use crate::accumulate::cuda::CudaSums;
use crate::accumulate::gpu_samples::GpuSamples;
use crate::recorded::SourceCounts;
use crate::report::PauseTotal;
use gctrace_event::read::TraceCompletion;
use gctrace_event::{Note, TraceEnd, TraceHeader};

/// The state of one trace.
#[derive(Debug, Default)]
pub(crate) struct TraceState {
    pub(crate) file: String,
    pub(crate) header: Option<TraceHeader>,
    /// Metadata of a trace without gctrace's header.
    pub(crate) profiler: ProfilerMetadata,
    pub(crate) end: Option<TraceEnd>,
    /// First and last time of anything.
    pub(crate) span: Option<(u64, u64)>,
    pub(crate) effort: PauseTotal,
    /// Its processes beyond those that are listed.
    pub(crate) unlisted: UnlistedSums,
    pub(crate) max_ns: Option<u64>,
    pub(crate) sources: SourceCounts,
    pub(crate) notes: Vec<Note>,
    pub(crate) notes_left_out: u64,
    /// The file of the same trace that was given before.
    pub(crate) repeats: Option<String>,
    pub(crate) gpus: GpuSamples,
    pub(crate) ending: TraceCompletion,
    pub(crate) cuda: CudaSums,
    /// Whether it contains operations with GPU times.
    pub(super) gpu_work: bool,
    /// Whether it contains collections that are not counted yet.
    pub(super) deferred: bool,
    /// Why it could not be read to its end.
    pub(crate) damage: Option<String>,
    /// Number of processes of the traces before it.
    pub(super) first_process: usize,
}

impl TraceState {
    pub(super) fn see(&mut self, start_ns: u64, end_ns: u64) {
        let (first, last) = self.span.get_or_insert((start_ns, end_ns));
        *first = start_ns.min(*first);
        *last = end_ns.max(*last);
    }

    pub(super) fn has_evidence(&self) -> bool {
        self.header.is_some() || self.effort.count > 0 || self.deferred || self.gpu_work
    }

    /// Its last timestamp.
    pub(crate) fn last_ns(&self) -> u64 {
        self.span.map_or(self.started_ns(), |(_, last_ns)| last_ns)
    }

    /// Start of the recording.
    pub(crate) fn started_ns(&self) -> u64 {
        match &self.header {
            Some(header) => header.started_ns,
            None => self.span.map_or(0, |(first, _)| first),
        }
    }
}
