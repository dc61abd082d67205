//! Programs that are held until their probes are in: releasing them, and what is said where they could not be held.
//!
//! Owns the map of held processes on gctrace's side and what was held for how long. Whether a program is held is
//! decided by the BPF programs (`ebpf/bpf/hold.bpf.c`); the guardian has the same map and continues what this does not.

use crate::record::clock;
use crate::record::examination::Unexamined;
use crate::record::trace::RecordingTrace;
use gctrace_ebpf::BpfSession;
use gctrace_ebpf::HeldProcesses;
use gctrace_ebpf::HoldState;
use gctrace_ebpf::NotHeld;
use gctrace_probes::proc_status;
use std::time::Duration;
use std::time::Instant;

/// How long programs may be held after each look at the rings: a gctrace that does not look (it was stopped, it
/// waits for a disk) holds nothing more.
const AFTER_LOOK: Duration = Duration::from_secs(1);

/// A hold that is no longer than this was not ended by the guardian (`LONGEST` there).
const GUARDIANS_PATIENCE_NS: u64 = 1_500_000_000;

/// How long a parent is looked after that may have stopped itself because its child was held.
const PARENTS: Duration = Duration::from_millis(250);

/// After this time a parent that stands still is mentioned.
const STANDS_STILL: Duration = Duration::from_secs(2);

/// Time that programs waited for their probes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HoldTimes {
    /// How often.
    pub count: u64,
    /// Together.
    pub total_ns: u64,
}

/// A process that may stop itself because its child was held.
struct HeldParent {
    pid: u32,
    child: u32,
    /// When the child went on.
    since: Instant,
}

/// The held programs of a recording.
pub(crate) struct HeldPrograms {
    held: HeldProcesses,
    /// How often programs were held, and for how long together.
    pub holds: HoldTimes,
    /// The recording ends: nothing is held any more, and who still is goes on at once.
    pub is_ending: bool,
    /// Parents of processes that were held, which ran then.
    parents: Vec<HeldParent>,
}

impl HeldPrograms {
    pub(crate) fn new(held: HeldProcesses) -> Self {
        Self {
            held,
            holds: HoldTimes::default(),
            is_ending: false,
            parents: Vec::new(),
        }
    }

    /// Programs that begin within the next second may be held: to be called whenever the rings are looked at.
    pub(crate) fn allow(&self, session: &mut BpfSession) {
        if !self.is_ending {
            let limit = u64::try_from(AFTER_LOOK.as_nanos()).unwrap_or(0);
            session.hold_until(clock::monotonic_ns().saturating_add(limit));
        }
    }

    /// The recording ends: no program is held any more, and those that are go on. Those that are just being held
    /// are released by their events, or by the guardian.
    pub(crate) fn end(&mut self, session: &mut BpfSession) {
        self.is_ending = true;
        session.hold_until(0);
        self.held.resume_all();
    }

    /// Continues what is held still; whether there was anything.
    pub(crate) fn resume(&self) -> bool {
        self.held.resume_all()
    }

    /// Whether a process is held now.
    pub(crate) fn holds(&self, pid: u32) -> bool {
        self.held.since(pid).is_some()
    }

    /// Ends the hold of an event of that time, if the process was held.
    pub(crate) fn release(
        &mut self,
        trace: &mut RecordingTrace,
        pid: u32,
        hold: HoldState,
        at_ns: u64,
    ) {
        let HoldState::Stopped { parent_was_stopped } = hold else {
            return;
        };
        let held_ns = clock::monotonic_ns().saturating_sub(at_ns);
        match self.held.release(pid, at_ns) {
            Ok(true) => {
                self.holds.count += 1;
                self.holds.total_ns += held_ns;
            }
            Ok(false) if self.is_ending => {}
            // It has ended, which ends a hold too. Or something is wrong: the guardian waits longer.
            Ok(false) if held_ns < GUARDIANS_PATIENCE_NS => {
                if is_running(pid) {
                    let _ = self.held.resume(pid);
                }
            }
            Ok(false) => {
                let message = "the process was held for 2 s and then continued by gctrace's guardian, its probes not \
                               yet in place: its first collections may be missing";
                trace.output.note(Some(pid), at_ns, message.to_owned());
                trace.examination.unexamined(pid, Unexamined::Late);
                tracing::warn!("process {pid}: {message}");
            }
            Err(errno) => tracing::error!(
                "process {pid} was held at exec and cannot be continued ({errno}); run: kill -CONT {pid}"
            ),
        }
        if !parent_was_stopped && let Ok(status) = proc_status::status(pid) {
            self.watch_parent(status.parent, pid);
        }
    }

    /// A process runs Python whose probes are in place since then, and was not held for them at the time of its event.
    pub(crate) fn ran_unheld(
        &self,
        trace: &mut RecordingTrace,
        (pid, hold, at_ns): (u32, HoldState, u64),
        probed_ns: u64,
    ) {
        if probed_ns <= at_ns {
            return;
        }
        let why = match hold {
            HoldState::Stopped { .. } | HoldState::NotNeeded => return,
            HoldState::Refused(NotHeld::OtherUser) => "it runs as another user",
            HoldState::Refused(NotHeld::NotNow) => "gctrace was busy",
            HoldState::Refused(NotHeld::Failed) => "too many programs are held",
            HoldState::Refused(NotHeld::Seen) => {
                "it ran before, or its parent looks after stopped children: sudo, su, a debugger, a shell with job \
                 control"
            }
        };
        let message = format!(
            "the program was not held until its probes were in place ({why}): its first collections may be missing"
        );
        trace.output.note(Some(pid), at_ns, message);
        trace.examination.unexamined(pid, Unexamined::Late);
    }

    fn watch_parent(&mut self, parent: u32, child: u32) {
        if parent > 1 && parent != std::process::id() {
            self.parents.retain(|other| other.pid != parent);
            self.parents.push(HeldParent {
                pid: parent,
                child,
                since: Instant::now(),
            });
        }
    }

    /// Continues parents that stopped themselves because a child of theirs was held: sudo, su and their like pass the
    /// stop of their child on that way, but not that it goes on. Where the child is stopped as well, and later, that
    /// is their user's doing.
    pub(crate) fn tick(&mut self) {
        let held = &self.held;
        self.parents.retain(|parent| {
            let (pid, since) = (parent.pid, parent.since.elapsed());
            let stands_still = state(pid) == Some('T') && state(parent.child) != Some('T');
            if stands_still && since <= PARENTS {
                let _ = held.resume(pid);
            } else if stands_still && since >= STANDS_STILL {
                tracing::warn!(
                    "process {pid} is stopped, perhaps because a child of it was for a moment; to continue it: kill -CONT {pid}"
                );
            }
            since < STANDS_STILL
        });
    }

    /// The map, for the very end.
    pub(crate) fn into_held(self) -> HeldProcesses {
        self.held
    }
}

/// Whether a process is there and has not ended: one that waits for its parent (a zombie) has.
pub(super) fn is_running(pid: u32) -> bool {
    state(pid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// `pid (name) state ...` (proc_pid_stat(5)); the name may hold any character.
fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.chars().next()
}
