//! Programs that are stopped until their probes are placed: resuming them, and reporting programs that could not be
//! stopped.
//!
//! Owns gctrace's end of the map of stopped processes, and how long they were stopped. The BPF
//! programs decide whether to stop a program (`ebpf/bpf/stop.bpf.c`); the guardian has the same map and resumes
//! programs that gctrace does not.

use crate::clock;
use crate::record::examination::Unexamined;
use crate::record::trace::RecordingTrace;
use gctrace_ebpf::{BpfSession, NotStopped, StopState, StoppedProcesses};
use gctrace_probes::proc_status;
use std::time::{Duration, Instant};

/// How long after each poll of the rings programs may be stopped: while gctrace does not poll (it
/// was stopped, it waits for a disk), none is.
const AFTER_POLL_NS: u64 = 1_000_000_000;

/// A stop of at most this length was not ended by the guardian (`LONGEST` there).
const GUARDIANS_PATIENCE_NS: u64 = 1_500_000_000;

/// How long to watch a parent that may have stopped itself because its child was stopped.
const PARENTS: Duration = Duration::from_millis(250);

/// A parent stopped for this long is reported.
const STOPPED_LONG: Duration = Duration::from_secs(2);

/// Time that programs were stopped for their probes.
#[derive(Clone, Copy, Debug, Default)]
pub struct StopTimes {
    /// Stops that were still in effect when gctrace ended them.
    pub count: u64,
    /// Nanoseconds from the event of each of these stops to its end, summed.
    pub total_ns: u64,
}

/// An event that stops a process, unless that is not needed or not possible.
#[derive(Clone, Copy)]
pub struct StopPoint {
    pub pid: u32,
    pub state: StopState,
    /// Time of the event, CLOCK_MONOTONIC in ns.
    pub at_ns: u64,
}

/// A process that may stop itself because its child was stopped.
struct StoppedParent {
    pid: u32,
    child: u32,
    /// When the child was resumed.
    since: Instant,
}

/// Whether no parent or debugger sees a new child of this process stop, as far as /proc shows it: the
/// rules of `would_be_seen` in `ebpf/bpf/stop.bpf.c`.
pub(crate) fn children_can_stop(pid: u32) -> bool {
    /// Number of ancestors that are checked there.
    const MOST_ANCESTORS: usize = 16;
    let Ok(process) = proc_status::stat(pid) else {
        return false;
    };
    let mut parent = process.parent;
    for _ in 0..MOST_ANCESTORS {
        if parent <= 1 {
            return true;
        }
        let Ok(ancestor) = proc_status::stat(parent) else {
            return false;
        };
        if ancestor.group != process.group {
            return ancestor.session != process.session;
        }
        parent = ancestor.parent;
    }
    false
}

/// The stopped programs of a recording.
pub struct StoppedPrograms {
    map: StoppedProcesses,
    /// Number and total time of all stops.
    pub times: StopTimes,
    /// When the recording began to end, CLOCK_MONOTONIC in ns: no program is stopped any more, and stopped ones are
    /// resumed at once. Events from before may still be in the rings.
    ending_since_ns: Option<u64>,
    /// Parents of stopped processes that were running at the time.
    parents: Vec<StoppedParent>,
}

impl StoppedPrograms {
    pub fn new(map: StoppedProcesses) -> Self {
        Self { map, times: StopTimes::default(), ending_since_ns: None, parents: Vec::new() }
    }

    /// Whether the recording is ending: programs are resumed without being examined.
    pub fn is_ending(&self) -> bool {
        self.ending_since_ns.is_some()
    }

    /// Allows stopping programs that start within the next second; to be called at each poll of the
    /// rings.
    pub fn allow(&self, session: &mut BpfSession) {
        if !self.is_ending() {
            session.may_stop_until(clock::monotonic_ns() + AFTER_POLL_NS);
        }
    }

    /// Ends stopping of programs and resumes stopped ones. Programs just being stopped are resumed by their events, or
    /// by the guardian.
    pub fn end(&mut self, session: &mut BpfSession) {
        self.ending_since_ns = Some(clock::monotonic_ns());
        session.may_stop_until(0);
        self.map.resume_all();
    }

    /// Resumes all programs still stopped; returns whether there was any.
    pub fn resume(&self) -> bool {
        self.map.resume_all()
    }

    /// Whether a process is stopped now.
    pub fn contains(&self, pid: u32) -> bool {
        self.map.since(pid).is_some()
    }

    /// Resumes the process of an event of that time, if it was stopped.
    pub fn release(&mut self, trace: &mut RecordingTrace, stop: StopPoint) {
        let StopState::Stopped { parent_was_stopped } = stop.state else {
            return;
        };
        let StopPoint { pid, at_ns, .. } = stop;
        let until_ns = self.ending_since_ns.unwrap_or_else(clock::monotonic_ns);
        let stopped_ns = gctrace_units::duration_ns(at_ns, until_ns);
        match self.map.release(pid, at_ns) {
            Ok(true) => {
                self.times.count += 1;
                self.times.total_ns += stopped_ns;
            }
            // `end` resumed it, or its event found it resumed.
            Ok(false) if self.is_ending() && stopped_ns < GUARDIANS_PATIENCE_NS => {}
            // It exited (this ends a stop too), or there is a fault: the guardian waits longer.
            Ok(false) if stopped_ns < GUARDIANS_PATIENCE_NS => {
                if is_running(pid) {
                    let _ = self.map.resume(pid);
                }
            }
            Ok(false) => {
                let message = "gctrace's guardian resumed the process, which was stopped for 1.5 s, before its probes were in \
                               place: its first collections may be missing";
                trace.output.note(Some(pid), at_ns, message.to_owned());
                trace.examination.unexamined(pid, Unexamined::Late);
                tracing::warn!("process {pid}: {message}");
            }
            Err(errno) => tracing::error!(
                "process {pid} was stopped at exec and cannot be resumed ({errno}); run: kill -CONT {pid}"
            ),
        }
        if !parent_was_stopped
            && let Ok(status) = proc_status::status(pid)
            && let Some(parent) = status.parent
        {
            self.watch_parent(parent, pid);
        }
    }

    /// Reports a process that ran Python before `probed_ns`, when its probes were in place, because
    /// it was not stopped at its event.
    pub fn ran_unstopped(
        &self,
        trace: &mut RecordingTrace,
        StopPoint { pid, state, at_ns }: StopPoint,
        probed_ns: u64,
    ) {
        if probed_ns <= at_ns {
            return;
        }
        let why = match state {
            StopState::Stopped { .. } | StopState::NotNeeded => return,
            StopState::Refused(NotStopped::OtherUser) => "it runs as another user",
            StopState::Refused(NotStopped::NotNow) => "gctrace was busy",
            StopState::Refused(NotStopped::Failed) => "too many programs are stopped",
            StopState::Refused(NotStopped::Seen) => {
                "it was already running, or its parent handles stopped children: sudo, su, a debugger, a shell with job \
                 control"
            }
        };
        let message = format!(
            "the program was not stopped until its probes were in place ({why}): its first collections may be missing"
        );
        trace.output.note(Some(pid), at_ns, message);
        trace.examination.unexamined(pid, Unexamined::Late);
    }

    /// Resumes the process of an event that is read while the recording is ending, and reports it if it may have run
    /// Python before the end.
    pub fn release_at_end(&mut self, trace: &mut RecordingTrace, stop: StopPoint) {
        let was_running = matches!(stop.state, StopState::Refused(_));
        if was_running && self.ending_since_ns.is_some_and(|since_ns| stop.at_ns < since_ns) {
            trace.examination.unexamined(stop.pid, Unexamined::Ended);
        }
        self.release(trace, stop);
    }

    fn watch_parent(&mut self, parent: u32, child: u32) {
        if parent > 1 && parent != std::process::id() {
            self.parents.retain(|other| other.pid != parent);
            self.parents.push(StoppedParent { pid: parent, child, since: Instant::now() });
        }
    }

    /// Resumes parents that stopped themselves because their child was stopped: sudo, su and the like propagate their
    /// child's stop that way, but not its resumption. If the child is stopped again later, the user did that.
    pub fn tick(&mut self) {
        let map = &self.map;
        self.parents.retain(|parent| {
            let (pid, since) = (parent.pid, parent.since.elapsed());
            let is_stopped = is_stopped(pid) && !is_stopped(parent.child);
            if is_stopped && since <= PARENTS {
                let _ = map.resume(pid);
            } else if is_stopped && since >= STOPPED_LONG {
                tracing::warn!(
                    "process {pid} is stopped, perhaps because gctrace briefly stopped a child of it; to resume it: kill -CONT {pid}"
                );
            }
            since < STOPPED_LONG
        });
    }
}

/// Whether a process exists and has not exited; a zombie has.
pub(super) fn is_running(pid: u32) -> bool {
    proc_status::stat(pid).is_ok_and(|stat| !matches!(stat.state, 'Z' | 'X'))
}

/// Whether a process is stopped by a signal.
fn is_stopped(pid: u32) -> bool {
    proc_status::stat(pid).is_ok_and(|stat| stat.state == 'T')
}
