//! Metadata of a trace: its process, its rank and its clock.
//!
//! Owns the difference between timestamps of a trace and Unix time.

use super::{Analysis, CurrentTrace, TraceState};
use crate::gpu::collect::TimelineContext;
use gctrace_event::read::TraceProperty;

/// From here on times count from 1970: it is September 2001 then, and nothing has been up for 31
/// years. The PyTorch profiler wrote such times before torch 2.4.
const UNIX_TIMES_NS: u64 = 1_000_000_000_000_000_000;

/// Metadata of a trace of the PyTorch profiler.
#[derive(Debug, Default)]
pub(crate) struct ProfilerMetadata {
    /// Unix time, in ns, from which its timestamps count.
    base_unix_ns: Option<u64>,
    trace_id: Option<String>,
    pub(crate) host: Option<String>,
    pub(crate) rank: Option<u32>,
    /// Number of ranks in its job.
    world_size: Option<u32>,
}

impl Analysis {
    /// Completes the metadata from the processes and the header of the trace that ends.
    pub(super) fn about(&self, index: usize, current: &CurrentTrace) -> TimelineContext {
        let described = || {
            let mine = self.processes.iter().rev();
            let mine = mine.take_while(|process| process.trace == index);
            mine.filter_map(|process| process.sums.described.as_ref())
        };
        let trace = self.traces.get(index);
        TimelineContext {
            trace: index,
            is_ours: trace.is_some_and(|trace| trace.header.is_some()),
            rank: trace.and_then(TraceState::rank),
            world_size: trace.and_then(|trace| trace.profiler.world_size),
            ranks: described().filter_map(|process| Some((process.pid, process.rank?))).collect(),
            namespace_pids: described()
                .filter_map(|process| Some((process.pid, process.namespace_pid?)))
                .collect(),
            thread_names: current.thread_names.clone(),
            unix_offset_ns: trace.and_then(TraceState::unix_offset_ns),
        }
    }
}

impl Analysis {
    /// Notes if the trace that ends was given before, judged by the profiler's id of it.
    pub(super) fn note_repetition(&mut self, index: usize) {
        let Some((before, rest)) = self.traces.split_at_mut_checked(index) else {
            return;
        };
        let Some(trace) = rest.first_mut() else {
            return;
        };
        let same = |other: &&TraceState| {
            trace.profiler.trace_id.is_some() && other.profiler.trace_id == trace.profiler.trace_id
        };
        if let Some(same) = before.iter().find(same) {
            trace.repeats = Some(same.file.clone());
        }
    }
}

impl TraceState {
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
            let known = header.started_unix_ns > 0;
            return known.then(|| difference(header.started_unix_ns, header.started_ns))?;
        }
        let (first_ns, last_ns) = self.span?;
        match self.profiler.base_unix_ns.filter(|base_ns| *base_ns > 0) {
            Some(base_ns) if first_ns < UNIX_TIMES_NS => i64::try_from(base_ns).ok(),
            // Single events at 0 do not count.
            _ => (last_ns >= UNIX_TIMES_NS).then_some(0),
        }
    }

    /// Its start as Unix time in ns; `None` if unknown.
    pub(crate) fn started_unix_ns(&self) -> Option<u64> {
        let offset_ns = self.unix_offset_ns()?;
        self.started_ns().checked_add_signed(offset_ns)
    }
}

impl ProfilerMetadata {
    pub(super) fn set(&mut self, property: TraceProperty) {
        match property {
            TraceProperty::BaseTime(base_ns) => self.base_unix_ns = Some(base_ns),
            TraceProperty::Host(host) => self.host = Some(host),
            TraceProperty::Rank(rank) => self.rank = Some(rank),
            TraceProperty::TraceId(id) => self.trace_id = Some(id),
            TraceProperty::WorldSize(size) => self.world_size = Some(size),
        }
    }
}

/// `to` minus `from`; `None` if out of range.
fn difference(to: u64, from: u64) -> Option<i64> {
    i64::try_from(i128::from(to) - i128::from(from)).ok()
}
