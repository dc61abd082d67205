//! One process that handed over a ring: who it is, when it ended, what it says.
//!
//! Owns its rings and the facts of `/proc`. What the records of a ring mean is `python.rs` and `gpu.rs`.

use super::Told;
use super::counted::Counted;
use super::gpu::GpuRing;
use super::python::MISSED;
use super::python::PythonRing;
use super::said::Said;
use crate::record::clock;
use crate::record::examined::Unexamined;
use crate::record::frames::Frames;
use crate::record::trace::Trace;
use gctrace_event::Interpreter;
use gctrace_event::Origin;
use gctrace_event::Record;
use gctrace_probes::process;
use gctrace_ring::Consumer;
use gctrace_ring::Hello;
use gctrace_ring::LostKind;
use gctrace_ring::Role;
use std::collections::HashMap;
use std::collections::HashSet;
use std::os::fd::OwnedFd;

/// A process that is recorded from within.
pub(super) struct Process {
    facts: Facts,
    rings: Vec<Ring>,
    /// Readable once it has ended; `None`: it had ended before it could be opened.
    pub(super) pidfd: Option<OwnedFd>,
}

/// What is known about it.
struct Facts {
    process: gctrace_event::Process,
    /// Something of it is to be written (again).
    is_new: bool,
    /// The process as it sees itself.
    own_pid: u32,
    threads: Threads,
}

/// Its threads.
#[derive(Default)]
struct Threads {
    named: HashSet<u32>,
    /// By their ids inside the process's pid namespace; empty where that is gctrace's own.
    by_own: HashMap<u32, u32>,
    /// Those of gctrace's that were asked for the other.
    asked: HashSet<u32>,
    /// An id was looked for in vain since the last look.
    missed: bool,
}

struct Ring {
    role: Role,
    consumer: Consumer,
    /// Of its memory.
    inode: u64,
    meaning: Meaning,
    counted: Option<Counted>,
    damaged: u64,
}

enum Meaning {
    Python(Box<PythonRing>),
    Gpu(Box<GpuRing>),
}

impl Process {
    /// Looks at the process, whose first ring has just come.
    pub(super) fn new(pid: u32, hello: &Hello, origin: Origin, pidfd: Option<OwnedFd>) -> Self {
        Self {
            facts: Facts::look(pid, hello, origin),
            rings: Vec::new(),
            pidfd,
        }
    }

    /// Takes a ring. One of the same role that is there is over: the process runs another program.
    pub(super) fn add(
        &mut self,
        hello: &Hello,
        (consumer, inode): (Consumer, u64),
        trace: &mut Trace,
        told: &mut Told,
    ) {
        if let Some(index) = self.rings.iter().position(|ring| ring.role == hello.role) {
            let mut ring = self.rings.remove(index);
            ring.read(true, &mut self.facts, trace, told);
            ring.close(clock::monotonic_ns(), &mut self.facts, trace, told);
            let origin = self.facts.process.origin;
            self.facts = Facts::look(self.facts.process.pid, hello, origin);
        }
        let pid = self.facts.process.pid;
        self.rings.push(Ring {
            role: hello.role,
            consumer,
            inode,
            meaning: match hello.role {
                Role::Python => Meaning::Python(Box::new(PythonRing::new(pid))),
                Role::Gpu => Meaning::Gpu(Box::new(GpuRing::new(pid))),
            },
            counted: (hello.role == Role::Python).then(|| Counted::new(pid)),
            damaged: 0,
        });
    }

    /// Whether the process still has the ring of this role in its memory: then it runs the program that made it.
    pub(super) fn still_maps(&self, role: Role) -> bool {
        let Some(ring) = self.rings.iter().find(|ring| ring.role == role) else {
            return false;
        };
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.facts.process.pid));
        // `address rights offset device inode path` (proc_pid_maps(5)).
        maps.unwrap_or_default().lines().any(|line| {
            let mut words = line.split_ascii_whitespace().skip(4);
            let inode = words.next().and_then(|inode| inode.parse().ok());
            let is_memory = words.next().is_some_and(|path| path.starts_with("/memfd:"));
            inode == Some(ring.inode) && is_memory
        })
    }

    /// Reads what its rings hold. `dead`: nothing more will come.
    pub(super) fn read(&mut self, dead: bool, trace: &mut Trace, told: &mut Told) {
        self.facts.meet_threads();
        for ring in &mut self.rings {
            ring.read(dead, &mut self.facts, trace, told);
        }
        self.facts.announce(trace, told);
    }

    /// It has ended, or the recording has: what is left of it. Everything was read.
    pub(super) fn close(&mut self, ended_ns: u64, trace: &mut Trace, told: &mut Told) {
        for ring in std::mem::take(&mut self.rings) {
            ring.close(ended_ns, &mut self.facts, trace, told);
        }
        self.facts.announce(trace, told);
    }

    /// The recording has ended and the process has not: what is still on its way.
    pub(super) fn leave(&mut self, trace: &mut Trace, told: &mut Told) {
        for ring in std::mem::take(&mut self.rings) {
            ring.leave(&mut self.facts, trace, told);
        }
    }
}

impl Ring {
    fn read(&mut self, dead: bool, facts: &mut Facts, trace: &mut Trace, told: &mut Told) {
        let Self {
            consumer, meaning, ..
        } = self;
        let mut said = Vec::new();
        // All that the dead have left is one ringful, whatever else the memory says.
        for _ in 0..if dead { 2 } else { 1 } {
            let read = consumer.read(dead, |record| {
                if let Ok(record) = record {
                    meaning.take(&record, &mut trace.frames, &mut said);
                    facts.apply(&mut said, trace, told);
                }
            });
            self.damaged += read.damaged;
        }
        if let Some(counted) = &mut self.counted
            && let Some(record) = counted.look(&self.consumer, false)
        {
            trace.output.write(&Record::Allocations(record));
        }
    }

    fn close(mut self, ended_ns: u64, facts: &mut Facts, trace: &mut Trace, told: &mut Told) {
        let mut said = Vec::new();
        let lost_pauses = self.consumer.lost().of(LostKind::Pauses) > 0;
        match &mut self.meaning {
            Meaning::Python(ring) => ring.ended(ended_ns, lost_pauses, &mut said),
            Meaning::Gpu(ring) => ring.finish(&mut said),
        }
        facts.apply(&mut said, trace, told);
        self.account(facts, trace, told);
    }

    fn leave(mut self, facts: &mut Facts, trace: &mut Trace, told: &mut Told) {
        let mut said = Vec::new();
        if let Meaning::Gpu(ring) = &mut self.meaning {
            ring.finish(&mut said);
        }
        facts.apply(&mut said, trace, told);
        self.account(facts, trace, told);
    }

    /// Nothing more is read: the last count of allocations, and what was lost.
    fn account(&mut self, facts: &Facts, trace: &mut Trace, told: &mut Told) {
        if let Some(counted) = &mut self.counted
            && let Some(record) = counted.look(&self.consumer, true)
        {
            trace.output.write(&Record::Allocations(record));
        }
        let lost = self.consumer.lost();
        let kinds = LostKind::ALL.map(|kind| (lost_name(kind), lost.of(kind)));
        let damaged = (
            "records that were begun and never finished, or make no sense",
            self.damaged,
        );
        for (what, count) in kinds.into_iter().chain([damaged]) {
            if count > 0 {
                told.lose(facts.process.pid, what, count);
            }
        }
        told.say_lost(&mut trace.output);
    }
}

impl Meaning {
    fn take(&mut self, record: &gctrace_ring::Record, frames: &mut Frames, said: &mut Vec<Said>) {
        match self {
            Self::Python(ring) => ring.take(record, frames, said),
            Self::Gpu(ring) => ring.take(record, said),
        }
    }
}

/// What the user knows lost records as.
fn lost_name(kind: LostKind) -> &'static str {
    match kind {
        LostKind::Pauses => "collections: the ring of the process was full",
        LostKind::Descriptions => "names and lines of code: the ring of the process was full",
        LostKind::GpuWork => "GPU work: the ring of the process was full (--ring-size)",
        LostKind::Calls => "calls of CUDA: the ring of the process was full (--ring-size)",
    }
}

impl Facts {
    fn look(pid: u32, hello: &Hello, origin: Origin) -> Self {
        let status = process::status(pid).ok();
        let command = process::command_line(pid).unwrap_or_default();
        let name = || process::thread_name(pid, pid).map(|name| vec![name]);
        let parent = status.as_ref().map(|status| status.parent);
        Self {
            process: gctrace_event::Process {
                pid,
                namespace_pid: status.as_ref().and_then(process::Status::inner_pid),
                parent: parent.filter(|parent| *parent > 0),
                origin,
                since_ns: hello.at_ns,
                command: match command.is_empty() {
                    true => name().unwrap_or_default(),
                    false => command,
                },
                rank: process::rank(pid).ok().flatten(),
                interpreter: None,
            },
            is_new: true,
            own_pid: hello.own_pid,
            threads: Threads::default(),
        }
    }

    /// Writes what follows from what the process said.
    fn apply(&mut self, said: &mut Vec<Said>, trace: &mut Trace, told: &mut Told) {
        for one in said.drain(..) {
            match one {
                Said::Record(Record::Frame(frame)) => trace.output.write(&Record::Frame(frame)),
                Said::Record(record) => {
                    self.announce(trace, told);
                    self.write(record, trace, told);
                }
                Said::Interpreter(interpreter) => {
                    self.set_interpreter(interpreter);
                    if told.describes_processes {
                        trace.examination.examined(self.process.pid, true);
                    }
                }
                Said::Unhooked => {
                    if told.describes_processes {
                        let pid = self.process.pid;
                        trace.examination.unexamined(pid, Unexamined::Unhooked);
                    }
                }
                Said::SeenSince(at_ns) => {
                    // Of one that was forked nothing was missed: the hook came with it.
                    self.is_new |= self.process.since_ns < at_ns;
                    self.process.since_ns = self.process.since_ns.max(at_ns);
                }
                Said::Notice(notice) => {
                    told.notices
                        .say(self.process.pid, notice, &mut trace.output);
                }
                // Where probes see collections as well, these are missing only if they saw none of them.
                Said::Missed(MISSED, _) if !told.describes_processes => {}
                Said::Missed(what, count) => {
                    told.lose(self.process.pid, what, count);
                }
                Said::CuptiSince(at_ns) => told.cupti.push((self.process.pid, at_ns)),
                Said::NoCupti => told.without_cupti.push(self.process.pid),
                Said::Overhead { ns, queue_full } => told.overhead.add(ns, queue_full),
            }
        }
    }

    fn set_interpreter(&mut self, interpreter: Interpreter) {
        self.process.interpreter = Some(interpreter);
        self.is_new = true;
    }

    fn write(&mut self, record: Record, trace: &mut Trace, told: &mut Told) {
        match record {
            Record::Pause(mut pause) => {
                told.collections += 1;
                pause.tid = self.thread(pause.tid);
                self.name_thread(pause.tid, trace, told);
                trace.pause(&pause);
            }
            Record::CudaCall(mut call) => {
                told.calls += 1;
                call.tid = self.thread(call.tid);
                self.name_thread(call.tid, trace, told);
                trace.output.write(&Record::CudaCall(call));
            }
            Record::Settings(settings) => trace.output.settings(settings),
            other => trace.output.write(&other),
        }
    }

    /// Writes what is known about the process, if it is new, unless the probes do that.
    fn announce(&mut self, trace: &mut Trace, told: &Told) {
        if std::mem::take(&mut self.is_new) && told.describes_processes {
            trace.output.write(&Record::Process(self.process.clone()));
        }
    }

    /// Writes the name of a thread the first time it is met.
    fn name_thread(&mut self, tid: u32, trace: &mut Trace, told: &Told) {
        let pid = self.process.pid;
        if told.describes_processes
            && self.threads.named.insert(tid)
            && let Ok(name) = process::thread_name(pid, tid)
        {
            trace.output.write(&Record::ThreadName { pid, tid, name });
        }
    }

    /// Of another pid namespace's process: while its threads are there, they can be asked who they are here.
    fn meet_threads(&mut self) {
        self.threads.missed = false;
        if self.own_pid != self.process.pid {
            self.threads.look(self.process.pid);
        }
    }

    /// The thread in gctrace's own pid namespace; as the process sees it where that cannot be found out.
    fn thread(&mut self, own_tid: u32) -> u32 {
        let pid = self.process.pid;
        if self.own_pid == pid {
            return own_tid;
        }
        if own_tid == self.own_pid {
            return pid;
        }
        if !self.threads.by_own.contains_key(&own_tid) && !self.threads.missed {
            self.threads.look(pid);
            self.threads.missed = !self.threads.by_own.contains_key(&own_tid);
        }
        let known = self.threads.by_own.get(&own_tid);
        known.copied().unwrap_or(own_tid)
    }
}

impl Threads {
    /// Asks those that are new for their ids in the process's own pid namespace.
    fn look(&mut self, pid: u32) {
        for tid in process::threads(pid).unwrap_or_default() {
            if self.asked.insert(tid) {
                let own = process::status(tid)
                    .ok()
                    .and_then(|status| status.inner_pid());
                self.by_own.extend(own.map(|own| (own, tid)));
            }
        }
    }
}
