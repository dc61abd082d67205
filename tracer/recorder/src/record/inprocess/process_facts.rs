//! Known facts of one process that handed over a ring, and the records that result from its rings.
//!
//! Owns the facts from `/proc` and the ids of its threads in both pid namespaces.

use super::InjectedStats;
use super::python::MISSED;
use super::ring_event::{InjectedNotice, NoticeLevel, RingEvent};
use crate::record::described::DescribedProcess;
use crate::record::examination::Unexamined;
use crate::record::output::{RecordSink as _, memory_interval_ns};
use crate::record::trace::RecordingTrace;
use gctrace_event::{Interpreter, NamedMarker, Pressure, ProcessOrigin, Record, UnseenCollections};
use gctrace_probes::{proc_status, process_memory};
use gctrace_ring::{Absence, RingHello};
use std::collections::{HashMap, HashSet};

/// The process as it is written to the trace.
pub(super) struct InjectedProcessFacts {
    pub(super) process: DescribedProcess,
    /// Its record must be written (again).
    is_new: bool,
    /// It was forked, and has executed no program since.
    pub(super) is_fork: bool,
    /// Its pid in its own pid namespace.
    own_pid: u32,
    threads: ProcessThreads,
    /// The library switched recording off.
    is_off: bool,
    /// Garbage of the next pause.
    garbage: Option<gctrace_event::Garbage>,
    /// When its resident memory was first and last written, in ns.
    memory_written_ns: Option<(u64, u64)>,
}

/// The threads of a process, with their ids in both pid namespaces.
#[derive(Default)]
struct ProcessThreads {
    /// By their ids in the process's pid namespace; empty if that is gctrace's own.
    by_own: HashMap<u32, u32>,
    /// Threads, by gctrace's ids, with their own ids already read.
    asked: HashSet<u32>,
    /// A thread id was not found since the last read.
    missed: bool,
}

impl InjectedProcessFacts {
    pub(super) fn look(pid: u32, hello: &RingHello, origin: ProcessOrigin) -> Self {
        let command = proc_status::command_or_name(pid);
        let mut process = DescribedProcess::new(pid, origin, hello.at_ns, command);
        process.parent = process.look().and_then(|status| status.parent);
        Self {
            process,
            is_new: true,
            is_fork: hello.is_fork,
            own_pid: hello.own_pid,
            threads: ProcessThreads::default(),
            is_off: false,
            garbage: None,
            memory_written_ns: None,
        }
    }

    /// The facts of a process that has executed another program.
    pub(super) fn look_again(&self, hello: &RingHello) -> Self {
        let mut facts = Self::look(self.process.pid, hello, self.process.origin);
        facts.process.unseen = self.process.unseen;
        facts
    }

    /// The facts of a child that was forked from a process of these facts, or from such a child: it
    /// is a copy of it.
    fn forked(&self, at_ns: u64, pid: u32, parent: u32) -> Self {
        Self {
            process: DescribedProcess::of(gctrace_event::Process {
                pid,
                parent: Some(parent),
                origin: ProcessOrigin::Child,
                since_ns: at_ns,
                torch: None,
                // It inherited the hook.
                unseen: self.process.unseen.map(|_| UnseenCollections::default()),
                ..(*self.process).clone()
            }),
            is_new: true,
            is_fork: true,
            own_pid: pid,
            threads: ProcessThreads::default(),
            is_off: false,
            garbage: None,
            memory_written_ns: None,
        }
    }

    /// The library switched recording off in the process, because of a fault in itself: reported
    /// and counted once, although each ring has it.
    pub(super) fn switched_off(
        &mut self,
        at_ns: u64,
        reason: &str,
        trace: &mut RecordingTrace,
        stats: &mut InjectedStats,
    ) {
        if std::mem::replace(&mut self.is_off, true) {
            return;
        }
        let pid = self.process.pid;
        let notice = InjectedNotice {
            at_ns,
            weight: NoticeLevel::Warning,
            text: format!(
                "recording in process {pid} was switched off: gctrace's library is faulty at {reason}"
            ),
        };
        trace.examination.unexamined(pid, Unexamined::Absent(Absence::SwitchedOff));
        stats.notices.report(pid, notice, &mut trace.output);
    }

    /// Writes the records and applies the other events of a ring.
    pub(super) fn apply(
        &mut self,
        ring_events: &mut Vec<RingEvent>,
        trace: &mut RecordingTrace,
        stats: &mut InjectedStats,
    ) {
        for one in ring_events.drain(..) {
            match one {
                RingEvent::Record(Record::Frame(frame)) => {
                    trace.output.write(&Record::Frame(frame))
                }
                RingEvent::Record(record) => {
                    self.announce(trace, stats);
                    self.write(record, trace, stats);
                }
                RingEvent::Interpreter(interpreter) => {
                    self.set_interpreter(interpreter);
                    if stats.describes_processes {
                        trace.examination.examined(self.process.pid, true);
                    }
                }
                RingEvent::FunctionUnwatched => stats.function_is_settled = true,
                RingEvent::Unhooked => {
                    if stats.describes_processes {
                        let pid = self.process.pid;
                        trace.examination.unexamined(pid, Unexamined::Unhooked);
                    }
                }
                // A forked process missed nothing: it inherited the hook.
                RingEvent::SeenSince(_) if self.is_fork => {}
                RingEvent::SeenSince(at_ns) => {
                    self.is_new |= self.process.since_ns < at_ns;
                    self.process.since_ns = self.process.since_ns.max(at_ns);
                }
                RingEvent::Notice(notice) => {
                    stats.notices.report(self.process.pid, notice, &mut trace.output);
                }
                RingEvent::Missed(MISSED, count) => {
                    self.lose_collections(MISSED, count, trace, stats);
                }
                RingEvent::Missed(what, count) => {
                    stats.lose(self.process.pid, what, count);
                }
                RingEvent::CuptiSince(at_ns) => {
                    trace.calls.reported_by_cupti(self.process.pid, at_ns);
                }
                RingEvent::Unseen(unseen) if stats.describes_processes => {
                    self.process.unseen.get_or_insert_default().add(unseen);
                    stats.unseen.add(unseen);
                    self.is_new = true;
                }
                // Probes see them.
                RingEvent::Unseen(_) => {}
                RingEvent::Forked { at_ns, pid, parent } if stats.describes_processes => {
                    stats.forked.push(self.forked(at_ns, pid, parent));
                }
                RingEvent::Forked { .. } => {}
                RingEvent::NoCupti => trace.calls.without_cupti(self.process.pid),
                RingEvent::Overhead { ns, queue_full } => stats.overhead.add(ns, queue_full),
            }
        }
    }

    /// Counts collections that the library did not record, unless the probes may have.
    pub(super) fn lose_collections(
        &self,
        what: &'static str,
        count: u64,
        trace: &mut RecordingTrace,
        stats: &mut InjectedStats,
    ) {
        let pid = self.process.pid;
        if !trace.lost_in_process(pid, count) {
            stats.lose(pid, what, count);
        }
    }

    fn set_interpreter(&mut self, interpreter: Interpreter) {
        self.process.interpreter = Some(interpreter);
        self.is_new = true;
    }

    /// Writes the resident memory, for its trend: each second at first, see [`memory_interval_ns`]. With probes
    /// the intervals of the allocation pressure have it.
    pub(super) fn write_memory(
        &mut self,
        at_ns: u64,
        trace: &mut RecordingTrace,
        stats: &mut InjectedStats,
    ) {
        let (first_ns, last_ns) = self.memory_written_ns.unwrap_or((at_ns, 0));
        let age_ns = gctrace_units::duration_ns(first_ns, at_ns);
        let is_due = gctrace_units::duration_ns(last_ns, at_ns) >= memory_interval_ns(age_ns);
        if !stats.describes_processes || self.is_new {
            return;
        }
        let pid = self.process.pid;
        let private_bytes = if self.is_fork {
            stats.private.forked(pid, at_ns);
            stats.private.look(pid, at_ns)
        } else {
            None
        };
        if !is_due && private_bytes.is_none() {
            return;
        }
        let Some(resident_bytes) = process_memory::resident_bytes(pid) else { return };
        self.memory_written_ns = Some((first_ns, at_ns));
        self.is_new |= self.process.is_retitled();
        let kept_bytes = stats.kept.look(pid, Some(resident_bytes), at_ns);
        trace.output.write(&Record::Pressure(Pressure {
            pid: self.process.pid,
            since_ns: at_ns,
            at_ns,
            resident_bytes: Some(resident_bytes),
            private_bytes,
            kept_bytes,
            ..Pressure::default()
        }));
    }

    fn write(&mut self, mut record: Record, trace: &mut RecordingTrace, stats: &mut InjectedStats) {
        // The ring has the thread ids of the program's pid namespace.
        if let Some(tid) = record.tid_mut() {
            *tid = self.thread(*tid);
            let tid = *tid;
            self.name_thread(tid, trace, stats);
        }
        match record {
            Record::Pause(pause) => {
                stats.collections += 1;
                // First: readers show the pause without the time of examining it.
                if let Some(mut garbage) = self.garbage.take()
                    && !trace.output.omits(&pause)
                {
                    garbage.tid = pause.tid;
                    trace.output.write(&Record::Garbage(garbage));
                }
                trace.pause(&pause);
            }
            Record::CudaCall(_) => {
                stats.calls += 1;
                trace.output.write(&record);
            }
            // Probes record them with their lengths.
            Record::Step(step)
                if step.marker == NamedMarker::Backward && stats.probes_see_torch => {}
            // And each block.
            Record::PauseMemory(_) if stats.probes_see_torch => {}
            Record::Step(step) => {
                stats.steps += 1;
                stats.function_is_settled |= matches!(step.marker, NamedMarker::Function(_));
                trace.output.write(&Record::Step(step));
            }
            Record::Layers(layers) => {
                stats.layers += 1;
                trace.output.write(&Record::Layers(layers));
            }
            // Its pause is next.
            Record::Garbage(garbage) => self.garbage = Some(garbage),
            Record::Settings(settings) => trace.output.settings(settings),
            other => trace.output.write(&other),
        }
    }

    /// Writes the known facts about the process, if it is new, unless the probes do that.
    pub(super) fn announce(&mut self, trace: &mut RecordingTrace, stats: &InjectedStats) {
        if std::mem::take(&mut self.is_new) && stats.describes_processes {
            self.process.write(&mut trace.output);
        }
    }

    fn name_thread(&mut self, tid: u32, trace: &mut RecordingTrace, stats: &InjectedStats) {
        if stats.describes_processes {
            self.process.name_thread(tid, &mut trace.output);
        }
    }

    /// Maps the thread ids of a process in another pid namespace, while its threads exist.
    pub(super) fn map_threads(&mut self) {
        self.threads.missed = false;
        if self.own_pid != self.process.pid {
            self.threads.look(self.process.pid);
        }
    }

    /// The thread's id in gctrace's own pid namespace; the process's own id if that is unknown.
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

impl ProcessThreads {
    /// Reads the ids of new threads in the process's own pid namespace.
    fn look(&mut self, pid: u32) {
        for tid in proc_status::threads(pid).into_iter().flatten() {
            if self.asked.insert(tid) {
                let inner_tid = proc_status::status(tid).ok().and_then(|status| status.inner_pid());
                self.by_own.extend(inner_tid.map(|inner_tid| (inner_tid, tid)));
            }
        }
    }
}
