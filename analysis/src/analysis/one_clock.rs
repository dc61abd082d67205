//! All processes of all traces on one clock, for timelines that show them together.
//!
//! Owns that clock: of the first of gctrace's traces, or of the first trace. Clocks are related as
//! measured where they were: by the same calls or pauses in gctrace's and the profiler's trace, by
//! collectives among ranks; otherwise by the wall clock, and where that is unknown by the starts.

use super::Analysis;
use crate::gpu::kept::KeptTimeline;
use crate::gpu::merge::{MergedTimelines, merge};
use crate::gpu::ranks::jobs_of;
use crate::time::timestamp;
use std::collections::HashMap;

/// A process: index of its trace, and its id there.
pub type ProcessOnClock = (usize, u32);

/// The work of all processes, and their times on one clock.
#[derive(Debug)]
pub struct OneClock<'a> {
    analysis: &'a Analysis,
    merged: MergedTimelines<'a>,
    /// From the profiler's processes to the same processes in gctrace's traces.
    same: HashMap<ProcessOnClock, ProcessOnClock>,
    /// From a process with another known clock than its trace's to the Unix time of that clock's zero, in ns.
    unix: HashMap<ProcessOnClock, i128>,
    base: usize,
    base_unix_ns: Option<i128>,
}

impl Analysis {
    /// The processes of all traces on one clock. To be called after [`Analysis::settle`].
    pub fn on_one_clock(&self) -> OneClock<'_> {
        let ours = self.traces.iter().position(|trace| trace.header.is_some());
        let mut one = OneClock {
            analysis: self,
            merged: merge(&self.timelines, &self.spans()),
            same: HashMap::new(),
            unix: HashMap::new(),
            base: ours.unwrap_or(0),
            base_unix_ns: None,
        };
        one.relate_profiles();
        one.relate_ranks();
        let first = self.timelines.iter().find(|timeline| timeline.trace == one.base);
        let pid = if let Some(first) = first { first.pid } else { 0 };
        one.base_unix_ns = one.unix_of((one.base, pid));
        one
    }
}

impl OneClock<'_> {
    /// The work of each process once. If both the profiler and gctrace recorded it, it is on the profiler's clock.
    pub fn timelines(&self) -> &[KeptTimeline] {
        &self.merged.timelines
    }

    /// A time of a process on the common clock, in ns, at most `i64::MAX`.
    pub fn time(&self, process: ProcessOnClock, at_ns: u64) -> u64 {
        let later_ns = match (self.unix_of(process), self.base_unix_ns) {
            (Some(unix_ns), Some(base_ns)) => unix_ns - base_ns,
            _ => i128::from(self.started_ns(self.base)) - i128::from(self.started_ns(process.0)),
        };
        timestamp(i128::from(at_ns) + later_ns).min(i64::MAX.unsigned_abs())
    }

    /// The process in gctrace's trace that one in the profiler's is; any other is itself.
    pub fn process(&self, process: ProcessOnClock) -> ProcessOnClock {
        self.same.get(&process).copied().unwrap_or(process)
    }

    /// The id in gctrace's trace of the main thread of a process in the profiler's; any other is itself.
    pub fn thread(&self, trace: usize, tid: u32) -> u32 {
        if let Some((_, pid)) = self.same.get(&(trace, tid)) { *pid } else { tid }
    }

    /// Whether a pause of the profiler's is gctrace's, too.
    pub fn is_repeated(&self, (trace, pid): ProcessOnClock, start_ns: u64) -> bool {
        self.merged.repeated.contains(&(trace, pid, start_ns))
    }

    /// When the first recording on the clock's own time began, in ns.
    pub fn first_ns(&self) -> u64 {
        self.started_ns(self.base).min(i64::MAX.unsigned_abs())
    }

    /// Unix time of the clock's zero, in ns; `None` if unknown.
    pub fn unix_ns(&self) -> Option<i128> {
        self.base_unix_ns
    }

    /// Whether the clock is `CLOCK_MONOTONIC` of the machine that gctrace recorded.
    pub fn is_monotonic(&self) -> bool {
        let Some(trace) = self.analysis.traces.get(self.base) else { return false };
        trace.header.is_some()
    }

    /// Command line of a process, or the name given by another tool; empty if neither is known.
    pub fn command(&self, (trace, pid): ProcessOnClock) -> String {
        let mut all = self.analysis.processes.iter();
        let found = all.rfind(|process| process.trace == trace && process.sums.pid == pid);
        let Some(process) = found else { return String::new() };
        match &process.sums.described {
            Some(described) => described.command.join(" "),
            None => gctrace_units::if_known(process.name.clone()),
        }
    }

    fn started_ns(&self, trace: usize) -> u64 {
        if let Some(trace) = self.analysis.traces.get(trace) { trace.started_ns() } else { 0 }
    }

    fn unix_of(&self, process: ProcessOnClock) -> Option<i128> {
        let of_trace = || self.analysis.traces.get(process.0)?.unix_offset_ns().map(i128::from);
        self.unix.get(&process).copied().or_else(of_trace)
    }

    /// Relates the profiler's clocks to gctrace's of the same processes.
    fn relate_profiles(&mut self) {
        for clock in &self.merged.clocks {
            let ours = (clock.gc_trace, clock.pid);
            self.same.insert((clock.trace, clock.profiler_pid), ours);
            if let Some(unix_ns) = self.unix_of(ours) {
                let unix_ns = unix_ns - i128::from(clock.offset_ns);
                // A joined timeline has the process id on the host.
                self.unix.insert((clock.trace, clock.profiler_pid), unix_ns);
                self.unix.insert((clock.trace, clock.pid), unix_ns);
            }
        }
    }

    /// Relates the clocks of ranks that share collectives.
    fn relate_ranks(&mut self) {
        let timelines: Vec<&KeptTimeline> = self.merged.timelines.iter().collect();
        let mut found = Vec::new();
        for job in &jobs_of(&timelines).jobs {
            let Some(first) = job.members.first() else { continue };
            let place = |at: usize| (timelines[at].trace, timelines[at].pid);
            let Some(first_ns) = self.unix_of(place(first.timeline)) else { continue };
            for member in job.members.iter().filter(|member| member.aligned_by > 0) {
                let later_ns = i128::from(member.offset_ns) - i128::from(first.offset_ns);
                found.push((place(member.timeline), first_ns + later_ns));
            }
        }
        for (place, unix_ns) in found {
            self.unix.insert(place, unix_ns);
            let joined = self.merged.clocks.iter();
            for clock in joined.filter(|clock| (clock.trace, clock.pid) == place) {
                self.unix.insert((clock.trace, clock.profiler_pid), unix_ns);
                let ours_ns = unix_ns + i128::from(clock.offset_ns);
                self.unix.insert((clock.gc_trace, clock.pid), ours_ns);
            }
        }
    }
}
