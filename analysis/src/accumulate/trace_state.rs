//! The state of one trace as a whole: its rank, its clock, and how it was recorded.
//!
//! Owns the difference between timestamps of a trace and Unix time.

use crate::accumulate::unlisted::UnlistedSums;
use crate::cuda::CudaSums;
use crate::distribution::Distribution;
use crate::gpu_samples::GpuSamples;
use crate::report::{PauseTotal, RecordedReport, Sources, TraceWriter};
use crate::spans::FirstToLast;
use crate::time::{add_to, extend};
use gctrace_event::read::{TraceCompletion, TraceProperty};
use gctrace_event::{EventSource, Note, OmittedGpuWork, RecordingMode, TraceEnd, TraceHeader};

/// From here on times count from 1970: it is September 2001 then, and nothing has been up for 31
/// years. The PyTorch profiler wrote such times before torch 2.4.
const UNIX_TIMES_NS: u64 = 1_000_000_000_000_000_000;

/// The state of one trace.
#[derive(Debug, Default)]
pub(crate) struct TraceState {
    pub(crate) file: String,
    pub(crate) header: Option<TraceHeader>,
    /// Metadata of a trace without gctrace's header.
    pub(crate) profiler: ProfilerMetadata,
    pub(crate) end: Option<TraceEnd>,
    /// First and last time of anything.
    pub(crate) span: FirstToLast,
    pub(crate) effort: PauseTotal,
    /// Its processes beyond the listed ones.
    pub(crate) unlisted: UnlistedSums,
    pub(crate) max_ns: Option<u64>,
    pub(crate) sources: SourceCounts,
    pub(crate) notes: Vec<Note>,
    pub(crate) notes_left_out: u64,
    /// The file of the same trace that was given before.
    pub(crate) repeats: Option<String>,
    pub(crate) gpus: GpuSamples,
    pub(crate) ending: TraceCompletion,
    /// The process that wrote it while it was read.
    pub(crate) writer: Option<TraceWriter>,
    pub(crate) cuda: CudaSums,
    /// The GPU work of all its processes that was only counted.
    pub(crate) omitted_gpu_work: OmittedGpuWork,
    /// Whether it contains operations with GPU times.
    pub(crate) gpu_work: bool,
    /// Whether it contains collections that are not counted yet.
    pub(crate) deferred: bool,
    /// Why it could not be read to its end.
    pub(crate) damage: Option<String>,
    /// Number of processes of the traces before it.
    pub(crate) first_process: usize,
}

impl TraceState {
    pub(crate) fn see(&mut self, start_ns: u64, end_ns: u64) {
        extend(&mut self.span, start_ns, end_ns);
    }

    pub(crate) fn has_evidence(&self) -> bool {
        self.header.is_some() || self.effort.count > 0 || self.deferred || self.gpu_work
    }

    /// Its last timestamp.
    pub(crate) fn last_ns(&self) -> u64 {
        if let Some((_, last_ns)) = self.span { last_ns } else { self.started_ns() }
    }

    /// Start of the recording.
    pub(crate) fn started_ns(&self) -> u64 {
        match (&self.header, self.span) {
            (Some(header), _) => header.started_ns,
            (None, Some((first, _))) => first,
            (None, None) => 0,
        }
    }

    /// Rank of the whole trace.
    pub(crate) fn rank(&self) -> Option<u32> {
        match &self.header {
            Some(header) => header.rank,
            None => self.profiler.rank,
        }
    }

    /// Add this to its times to get nanoseconds since 1970 (UTC).
    pub(crate) fn unix_offset_ns(&self) -> Option<i64> {
        if let Some(header) = &self.header {
            if header.started_unix_ns == 0 {
                return None;
            }
            return difference(header.started_unix_ns, header.started_ns);
        }
        let (first_ns, last_ns) = self.span?;
        match self.profiler.base_unix_ns {
            Some(base_ns) if base_ns > 0 && first_ns < UNIX_TIMES_NS => i64::try_from(base_ns).ok(),
            // Single events at 0 do not count.
            _ if last_ns >= UNIX_TIMES_NS => Some(0),
            _ => None,
        }
    }

    /// Its start as Unix time in ns; `None` if unknown.
    pub(crate) fn started_unix_ns(&self) -> Option<u64> {
        let offset_ns = self.unix_offset_ns()?;
        self.started_ns().checked_add_signed(offset_ns)
    }
}

/// Metadata of a trace of the PyTorch profiler.
#[derive(Debug, Default)]
pub(crate) struct ProfilerMetadata {
    /// Unix time of timestamp 0, in ns.
    base_unix_ns: Option<u64>,
    pub(crate) trace_id: Option<String>,
    pub(crate) host: Option<String>,
    pub(crate) rank: Option<u32>,
    /// Number of ranks in its job.
    pub(crate) world_size: Option<u32>,
}

impl ProfilerMetadata {
    pub(crate) fn set(&mut self, property: TraceProperty) {
        match property {
            TraceProperty::BaseTime(base_ns) => self.base_unix_ns = Some(base_ns),
            TraceProperty::Host(host) => self.host = Some(host),
            TraceProperty::Rank(rank) => self.rank = Some(rank),
            TraceProperty::TraceId(id) => self.trace_id = Some(id),
            TraceProperty::WorldSize(size) => self.world_size = Some(size),
        }
    }
}

/// Significant digits of percentiles over more than 4,096 values.
const DIGITS: u8 = 2;

/// Number of pauses by source.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceCounts {
    probes: u64,
    injected: u64,
    /// Difference between the two sources for pauses recorded by both, in ns.
    apart: Option<Distribution>,
}

impl SourceCounts {
    /// A pause with these times, seen by `source`.
    pub(crate) fn add(&mut self, source: EventSource, start_ns: u64, end_ns: u64) {
        let counted = match source {
            EventSource::Probes => &mut self.probes,
            EventSource::Injected => &mut self.injected,
            EventSource::Both { start_ns: start, end_ns: end } => {
                let apart_ns = start.abs_diff(start_ns).max(end.abs_diff(end_ns));
                let apart = self.apart.get_or_insert_with(|| Distribution::new(DIGITS));
                apart.add(apart_ns);
                return;
            }
        };
        add_to(counted, 1);
    }

    fn report(&self) -> Sources {
        let apart = self.apart.as_ref();
        let percentiles = apart.and_then(|apart| apart.percentiles([50.0, 99.0]));
        Sources {
            probes: self.probes,
            injected: self.injected,
            both: apart.map_or(0, Distribution::count),
            both_apart_p50_ns: percentiles.map(|[half, _]| half),
            both_apart_p99_ns: percentiles.map(|[_, most]| most),
            both_apart_max_ns: apart.and_then(Distribution::max),
        }
    }
}

/// How a trace was recorded; `None` for traces of other tools.
pub(crate) fn report(trace: &TraceState) -> Option<RecordedReport> {
    let header = trace.header.as_ref()?;
    Some(RecordedReport {
        mode: header.mode.clone(),
        sources: trace.sources.report(),
        not_recorded: not_recorded(&header.mode).iter().map(|what| (*what).to_owned()).collect(),
    })
}

/// What a mode of recording does not record.
fn not_recorded(mode: &RecordingMode) -> &'static [&'static str] {
    match mode {
        RecordingMode::Inject => &[
            "Why a collection ran: CPython passes the generation and counts to its callbacks, not \
             the reason.",
            "Collections before the library is loaded, in the first milliseconds of a program, \
             and the last ones at shutdown.",
            "Programs into which no library can be preloaded: statically linked ones, and those \
             with privileges that their user lacks (setuid, capabilities).",
        ],
        RecordingMode::Ebpf => {
            &["Functions of the program that collections call: finalizers are part of the pauses, \
             and so are those in gc.callbacks from CPython 3.13 on; before, these run between the \
             pauses (in-process recording measures both)."]
        }
        _ => &[],
    }
}

/// `to` minus `from`; `None` if out of range.
fn difference(to: u64, from: u64) -> Option<i64> {
    i64::try_from(i128::from(to) - i128::from(from)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_pauses_by_source() {
        let mut counts = SourceCounts::default();
        assert_eq!(counts.report().both_apart_max_ns, None);
        counts.add(EventSource::Probes, 1000, 2000);
        counts.add(EventSource::Injected, 1000, 2000);
        for (start_ns, end_ns) in [(1002, 2001), (996, 1999)] {
            counts.add(EventSource::Both { start_ns, end_ns }, 1000, 2000);
        }
        let expected = Sources {
            probes: 1,
            injected: 1,
            both: 2,
            both_apart_p50_ns: Some(2),
            both_apart_p99_ns: Some(4),
            both_apart_max_ns: Some(4),
        };
        assert_eq!(counts.report(), expected);
    }
}
