//! One process that handed over a ring: its rings and their draining, and its exit.
//!
//! `python.rs` and `gpu.rs` interpret the records of a ring, `process_facts.rs` writes the results.

use super::InjectedStats;
use super::counted_allocations::CountedAllocations;
use super::gpu::GpuRing;
use super::library_cost::LibraryCost;
use super::process_facts::InjectedProcessFacts;
use super::python::PythonRing;
use crate::clock;
use crate::record::output::RecordSink as _;
use crate::record::trace::RecordingTrace;
use gctrace_event::{ProcessOrigin, Record};
use gctrace_probes::proc_status;
use gctrace_ring::{LostKind, RingConsumer, RingHello, RingRole};
use std::os::fd::OwnedFd;

/// A process that is recorded in-process.
pub(super) struct InjectedProcess {
    pub(super) facts: InjectedProcessFacts,
    rings: Vec<OpenedRing>,
    /// How far its clock is ahead of the trace's, in ns.
    pub(super) ahead_ns: i64,
    /// Readable once it has exited; `None`: it exited before it could be opened.
    pub(super) pidfd: Option<OwnedFd>,
}

struct OpenedRing {
    role: RingRole,
    consumer: RingConsumer,
    /// Inode of its memory; `None` if it is unknown.
    inode: Option<u64>,
    meaning: RingState,
    counted: Option<CountedAllocations>,
    damaged: u64,
    /// The library switched recording off.
    is_off: bool,
}

enum RingState {
    Python(Box<PythonRing>),
    Gpu(Box<GpuRing>),
}

impl InjectedProcess {
    /// Reads the facts of a process when its first ring comes.
    pub(super) fn new(
        pid: u32,
        hello: &RingHello,
        origin: ProcessOrigin,
        pidfd: Option<OwnedFd>,
    ) -> Self {
        let facts = InjectedProcessFacts::look(pid, hello, origin);
        Self { facts, rings: Vec::new(), ahead_ns: 0, pidfd }
    }

    /// A forked child without a ring.
    pub(super) fn forked(facts: InjectedProcessFacts, pidfd: Option<OwnedFd>) -> Self {
        Self { facts, rings: Vec::new(), ahead_ns: 0, pidfd }
    }

    /// Adds a ring. An existing one of the same role is finished: the process executed another
    /// program, as did a forked child that offers its first as if it was not one.
    pub(super) fn add(
        &mut self,
        hello: &RingHello,
        (consumer, inode): (RingConsumer, Option<u64>),
        trace: &mut RecordingTrace,
        stats: &mut InjectedStats,
    ) {
        let mut before = (0, 0);
        if let Some(index) = self.rings.iter().position(|ring| ring.role == hello.role) {
            let mut ring = self.rings.remove(index);
            ring.read(true, &mut self.facts, trace, stats);
            if let RingState::Python(python) = &ring.meaning {
                before = python.last_numbers();
            }
            ring.close(Some(clock::monotonic_ns()), &mut self.facts, trace, stats);
            self.facts = self.facts.look_again(hello);
        } else if self.facts.is_fork && !hello.is_fork {
            self.facts = self.facts.look_again(hello);
        }
        let pid = self.facts.process.pid;
        // If the ids of its children mean the same here, the children are known without rings of their own.
        consumer.take_forks(hello.own_pid == pid);
        self.rings.push(OpenedRing {
            role: hello.role,
            consumer,
            inode,
            meaning: match hello.role {
                RingRole::Python => RingState::Python(Box::new(PythonRing::new(pid, before))),
                RingRole::Gpu => RingState::Gpu(Box::new(GpuRing::new(pid))),
            },
            counted: (hello.role == RingRole::Python).then(|| CountedAllocations::new(pid)),
            damaged: 0,
            is_off: false,
        });
    }

    /// Whether the process still maps its ring of this role: then it runs the program that created
    /// it.
    pub(super) fn still_maps(&self, role: RingRole) -> bool {
        let Some(ring) = self.rings.iter().find(|ring| ring.role == role) else {
            return false;
        };
        let maps = proc_status::maps(self.facts.process.pid);
        // `address rights offset device inode path` (proc_pid_maps(5)).
        String::from_utf8_lossy(&maps).lines().any(|line| {
            let mut words = line.split_ascii_whitespace().skip(4);
            let (Some(inode), Some(path)) = (words.next(), words.next()) else { return false };
            let Ok(inode) = inode.parse() else { return false };
            ring.inode == Some(inode) && path.starts_with("/memfd:")
        })
    }

    /// Adds the library's cost to it so far.
    pub(super) fn add_cost(&self, cost: &mut LibraryCost) {
        for ring in &self.rings {
            cost.add(&ring.consumer);
        }
    }

    /// Drains its rings. `dead`: no more records will come.
    pub(super) fn read(
        &mut self,
        dead: bool,
        trace: &mut RecordingTrace,
        stats: &mut InjectedStats,
    ) {
        self.facts.map_threads();
        for ring in &mut self.rings {
            ring.read(dead, &mut self.facts, trace, stats);
        }
        self.facts.announce(trace, stats);
    }

    /// Writes the rest after the process exited, at `ended_ns`, or else the recording ended. All rings of the process
    /// were drained.
    pub(super) fn close(
        &mut self,
        ended_ns: Option<u64>,
        trace: &mut RecordingTrace,
        stats: &mut InjectedStats,
    ) {
        for ring in std::mem::take(&mut self.rings) {
            ring.close(ended_ns, &mut self.facts, trace, stats);
        }
        self.facts.announce(trace, stats);
    }
}

impl OpenedRing {
    fn read(
        &mut self,
        dead: bool,
        facts: &mut InjectedProcessFacts,
        trace: &mut RecordingTrace,
        stats: &mut InjectedStats,
    ) {
        let Self { consumer, meaning, .. } = self;
        let mut ring_events = Vec::new();
        // An exited process leaves at most one ringful, whatever the shared memory claims.
        for _ in 0..if dead { 2 } else { 1 } {
            let read = match meaning {
                RingState::Python(ring) => consumer.read(dead, |message| {
                    ring.take(message, &mut trace.frames, &mut ring_events);
                    facts.apply(&mut ring_events, trace, stats);
                }),
                RingState::Gpu(ring) => consumer.read(dead, |message| {
                    ring.take(message, &mut ring_events);
                    facts.apply(&mut ring_events, trace, stats);
                }),
            };
            self.damaged += read.damaged;
        }
        if let Some((at_ns, reason)) = self.consumer.switched_off() {
            self.is_off = true;
            facts.switched_off(at_ns, &reason, trace, stats);
        }
        if let Some(counted) = &mut self.counted
            && let Some(record) = counted.look(&self.consumer, false)
        {
            trace.output.write(&Record::Allocations(record));
        }
    }

    /// Writes pending records and the last allocation counts, and counts the losses.
    fn close(
        mut self,
        ended_ns: Option<u64>,
        facts: &mut InjectedProcessFacts,
        trace: &mut RecordingTrace,
        stats: &mut InjectedStats,
    ) {
        let mut ring_events = Vec::new();
        self.consumer.take_forks(false);
        let (lost, torn) = (self.consumer.lost(), self.consumer.torn());
        stats.cost.add(&self.consumer);
        match (&mut self.meaning, ended_ns) {
            (RingState::Python(ring), ended_ns) => {
                let lost_pauses = lost.of(LostKind::Pauses) + torn.of(LostKind::Pauses);
                let may_have_ended = self.is_off || lost_pauses > 0;
                match ended_ns {
                    Some(ended_ns) => ring.ended(ended_ns, may_have_ended, &mut ring_events),
                    None => ring.left(clock::monotonic_ns(), may_have_ended, &mut ring_events),
                }
            }
            (RingState::Gpu(ring), _) => ring.finish(&mut ring_events),
        }
        facts.apply(&mut ring_events, trace, stats);
        if let Some(counted) = &mut self.counted
            && let Some(record) = counted.look(&self.consumer, true)
        {
            trace.output.write(&Record::Allocations(record));
        }
        for kind in LostKind::ALL {
            for (what, count) in lost_names(kind).into_iter().zip([lost.of(kind), torn.of(kind)]) {
                match (kind, count) {
                    (_, 0) => {}
                    (LostKind::Pauses, _) => facts.lose_collections(what, count, trace, stats),
                    _ => stats.lose(facts.process.pid, what, count),
                }
            }
        }
        if self.damaged > 0 {
            let what = "incomplete or invalid records";
            stats.lose(facts.process.pid, what, self.damaged);
        }
        stats.report_lost(&mut trace.output);
    }
}

/// Lost messages as the user knows them: without room, and incomplete.
fn lost_names(kind: LostKind) -> [&'static str; 2] {
    macro_rules! names {
        ($what:literal $remedy:literal) => {
            [
                concat!($what, ": the ring of the process was full", $remedy),
                concat!($what, ": incomplete or invalid in the ring of the process"),
            ]
        };
    }
    match kind {
        LostKind::Pauses => names!("collections" ""),
        LostKind::Descriptions => names!("names and lines of code" ""),
        LostKind::GpuWork => names!("GPU work" " (--ring-size)"),
        LostKind::Steps => names!("marks of steps" ""),
        LostKind::Garbage => names!("garbage of collections" ""),
        LostKind::Turns => names!("turns of loops" ""),
        LostKind::Calls => names!("CUDA calls" " (--ring-size)"),
        LostKind::WithoutRing => ["collections: the forked process could not create a ring"; 2],
    }
}
