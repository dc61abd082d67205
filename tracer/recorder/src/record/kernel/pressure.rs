//! Allocation pressure of each process, from signals that cost next to nothing.
//!
//! Owns the intervals. Containers come from the collector's counts, reported by each pause; arenas come from the
//! kernel's count of mappings.

use crate::record::kept_memory::KeptMemory;
use crate::record::output::{RecordOutput, RecordSink as _, memory_interval_ns};
use crate::record::private_memory::PrivateMemory;
use gctrace_ebpf::{Arenas, BpfSession, PauseEvent};
use gctrace_event::{Pressure, Record};
use gctrace_probes::process_memory;
use gctrace_units::{add_if_known, beyond, duration_ns};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Length of an interval: one point on the timeline per second.
const INTERVAL: Duration = Duration::from_secs(1);

/// The first version with arenas of 1 MiB instead of 256 KiB (obmalloc.c, ARENA_BITS).
const LARGE_ARENAS_SINCE: (u32, u32) = (3, 10);

pub(crate) struct PressureIntervals {
    processes: HashMap<u32, PressureInterval>,
    /// Processes that exited since the last drain, and when: their last pauses may still be in the
    /// ring.
    ended: Vec<(u32, u64)>,
    written: Instant,
    private: PrivateMemory,
    kept: KeptMemory,
}

/// Allocations of a process since its last record.
struct PressureInterval {
    pressure: Pressure,
    /// Arenas at its start.
    arenas: Option<Arenas>,
    /// Size of the interpreter's arenas; `None`: it has none, or there is no interpreter.
    size: Option<ArenaSize>,
    /// Resident memory as last written, in bytes.
    resident_bytes: Option<u64>,
    /// Start of its first interval, in ns.
    first_ns: u64,
}

/// Size of the arenas of an interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArenaSize {
    /// 256 KiB.
    Small,
    /// 1 MiB.
    Large,
}

impl ArenaSize {
    /// The arenas of an interpreter; free-threaded builds allocate with mimalloc and have none.
    pub(crate) fn of(interpreter: &gctrace_event::Interpreter) -> Option<Self> {
        if interpreter.free_threaded {
            return None;
        }
        let mut numbers = interpreter.version.split('.').map(str::parse::<u32>);
        let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
            return None;
        };
        Some(if (major, minor) >= LARGE_ARENAS_SINCE { Self::Large } else { Self::Small })
    }

    /// Arenas mapped and unmapped so far.
    fn counts(self, arenas: &Arenas) -> (u64, u64) {
        match self {
            Self::Small => (arenas.small_mapped, arenas.small_unmapped),
            Self::Large => (arenas.large_mapped, arenas.large_unmapped),
        }
    }
}

impl PressureIntervals {
    pub(crate) fn new() -> Self {
        Self {
            processes: HashMap::new(),
            ended: Vec::new(),
            written: Instant::now(),
            private: PrivateMemory::default(),
            kept: KeptMemory::default(),
        }
    }

    /// The process has this interpreter from now on.
    pub(crate) fn interpreter(&mut self, pid: u32, size: Option<ArenaSize>, now_ns: u64) {
        let interval =
            self.processes.entry(pid).or_insert_with(|| PressureInterval::start(pid, now_ns));
        interval.size = size;
    }

    /// A process was forked: looks at the copies it makes of shared memory.
    pub(crate) fn forked(&mut self, pid: u32, at_ns: u64) {
        self.private.forked(pid, at_ns);
        self.processes.entry(pid).or_insert_with(|| PressureInterval::start(pid, at_ns));
    }

    /// A process executed another program.
    pub(crate) fn executed(&mut self, pid: u32) {
        self.private.executed(pid);
    }

    /// Adds a pause's net containers to the current interval of its process.
    pub(crate) fn pause(&mut self, event: &PauseEvent) {
        let pause = &event.pause;
        let interval = self
            .processes
            .entry(pause.pid)
            .or_insert_with(|| PressureInterval::start(pause.pid, pause.start_ns));
        interval.pressure.collections += 1;
        add_if_known(&mut interval.pressure.net_containers, pause.young_count);
        interval.pressure.counts = event.counts.or(interval.pressure.counts);
    }

    /// Writes the interval of every process, once a second.
    pub(crate) fn tick(&mut self, session: &BpfSession, now_ns: u64, output: &mut RecordOutput) {
        if self.written.elapsed() >= INTERVAL {
            self.write_all(session, now_ns, output);
        }
    }

    /// Writes the interval of every process.
    pub(crate) fn write_all(
        &mut self,
        session: &BpfSession,
        now_ns: u64,
        output: &mut RecordOutput,
    ) {
        self.written = Instant::now();
        for (pid, interval) in &mut self.processes {
            interval.pressure.private_bytes = self.private.look(*pid, now_ns);
            interval.pressure.kept_bytes = self.kept.look(*pid, interval.resident_bytes, now_ns);
            interval.write(session.arenas(*pid), now_ns, output);
        }
    }

    /// Notes that a process exited; its last pauses may still be in the ring.
    pub(crate) fn ended(&mut self, pid: u32, at_ns: u64) {
        self.ended.push((pid, at_ns));
    }

    /// Writes the last interval of the exited processes, once every event up to their exit was
    /// handled.
    pub(crate) fn close_ended(&mut self, session: &BpfSession, output: &mut RecordOutput) {
        for (pid, at_ns) in self.ended.drain(..) {
            if let Some(mut interval) = self.processes.remove(&pid) {
                interval.write(session.arenas(pid), at_ns, output);
            }
            session.forget_arenas(pid);
        }
    }
}

impl PressureInterval {
    fn start(pid: u32, since_ns: u64) -> Self {
        Self {
            pressure: Pressure { pid, since_ns, at_ns: since_ns, ..Pressure::default() },
            arenas: None,
            size: None,
            resident_bytes: None,
            first_ns: since_ns,
        }
    }

    /// Ends the interval and starts the next. An interval without allocations is not written but
    /// extended, until the resident memory has changed and [`memory_interval_ns`] is over.
    fn write(&mut self, arenas: Option<Arenas>, now_ns: u64, output: &mut RecordOutput) {
        if let (Some(size), Some(now)) = (self.size, arenas) {
            // The kernel counts from 0.
            let before = self.arenas.unwrap_or_default();
            let ((mapped, unmapped), (mapped_before, unmapped_before)) =
                (size.counts(&now), size.counts(&before));
            self.pressure.arenas_mapped = Some(beyond(mapped, mapped_before));
            self.pressure.arenas_unmapped = Some(beyond(unmapped, unmapped_before));
        }
        let pressure = &mut self.pressure;
        pressure.at_ns = now_ns.max(pressure.since_ns);
        let counts = [pressure.arenas_mapped, pressure.arenas_unmapped];
        let is_idle =
            pressure.collections == 0 && !counts.into_iter().flatten().any(|count| count > 0);
        let age_ns = duration_ns(self.first_ns, pressure.at_ns);
        let is_short = pressure.at_ns - pressure.since_ns < memory_interval_ns(age_ns);
        let is_looked_at = pressure.private_bytes.is_some() || pressure.kept_bytes.is_some();
        if is_idle && !is_looked_at && (is_short || self.size.is_none()) {
            return;
        }
        let resident_bytes = process_memory::resident_bytes(pressure.pid);
        if is_idle
            && !is_looked_at
            && (resident_bytes.is_none() || resident_bytes == self.resident_bytes)
        {
            return;
        }
        self.resident_bytes = resident_bytes;
        pressure.resident_bytes = resident_bytes;
        output.write(&Record::Pressure(pressure.clone()));
        *pressure = Pressure {
            pid: pressure.pid,
            since_ns: pressure.at_ns,
            at_ns: pressure.at_ns,
            counts: pressure.counts,
            ..Pressure::default()
        };
        self.arenas = arenas;
    }
}
