//! Processes by id and time, and the sums of dropped ones.
//!
//! Assigns records to processes: an id that is reused after its process ended is another process. Also bounds their
//! number: a process that ended is added to the sums after some seconds, and if too many are alive, so are the least
//! recently active ones.

use super::history::PauseHistory;
use super::live_process::LiveProcess;
use crate::accumulate::process_sums::PidTable;
use gctrace_event::{Pause, Process, ProcessExit};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// How long a process that ended is shown.
pub(super) const ENDED_SHOWN_NS: u64 = 10_000_000_000;
/// Largest number of processes that ended and are kept.
const ENDED: usize = 512;
/// Largest number of processes that are kept.
const PROCESSES: usize = 4_096;
/// Number of dropped processes that late pauses are still attributed to.
const FORGOTTEN: usize = 4_096;
/// Pauses of a process may be reported with an end slightly after its own, because the clocks and
/// sources differ.
const AFTER_END_NS: u64 = 1_000_000_000;

/// Keys are in the order of the processes' appearance.
type LiveProcessKey = u64;

/// All processes, current and dropped.
#[derive(Debug, Default)]
pub(super) struct LiveProcesses {
    list: BTreeMap<LiveProcessKey, Box<LiveProcess>>,
    by_pid: PidTable<LiveProcessKey>,
    next: LiveProcessKey,
    /// Processes that ended, with the end, in the order of the reports.
    ended: VecDeque<(u64, LiveProcessKey)>,
    /// Ends of forgotten ones by id; and their order.
    forgotten: HashMap<u32, u64>,
    forgotten_order: VecDeque<u32>,
    pub(super) gone: ForgottenProcesses,
    /// Some were forgotten while they lived; whether that was reported.
    too_many: bool,
    is_reported: bool,
}

/// Sums over the processes that are no longer kept individually.
#[derive(Debug, Default)]
pub(super) struct ForgottenProcesses {
    pub(super) history: PauseHistory,
    /// Number of dropped processes that ran Python and had ended.
    pub(super) ran_python: u64,
    pub(super) ended: u64,
}

impl LiveProcesses {
    /// The processes in the order of their appearance.
    pub(super) fn iter(&self) -> impl Iterator<Item = &LiveProcess> {
        self.list.values().map(Box::as_ref)
    }

    /// The latest of this id.
    pub(super) fn get(&self, pid: u32) -> Option<&LiveProcess> {
        self.list.get(&self.by_pid.latest(pid)?).map(Box::as_ref)
    }

    /// The latest of this id.
    pub(super) fn latest(&mut self, pid: u32) -> Option<&mut LiveProcess> {
        let key = self.by_pid.latest(pid)?;
        self.list.get_mut(&key).map(Box::as_mut)
    }

    /// The process that had this id at that time.
    pub(super) fn at(&mut self, pid: u32, at_ns: u64) -> Option<&mut LiveProcess> {
        let key = self.key_at(pid, at_ns)?;
        self.list.get_mut(&key).map(Box::as_mut)
    }

    fn key_at(&self, pid: u32, at_ns: u64) -> Option<LiveProcessKey> {
        let since_ns = |key| self.list.get(&key)?.sums.since_ns();
        self.by_pid.at(pid, at_ns, since_ns)
    }

    /// The process of a pause; `None` if it is no longer kept.
    pub(super) fn of_pause(&mut self, pause: &Pause) -> Option<&mut LiveProcess> {
        if self.by_pid.latest(pause.pid).is_none() {
            let ended = self.forgotten.get(&pause.pid).copied();
            if ended.is_some_and(|at_ns| pause.end_ns <= crate::time::after(at_ns, AFTER_END_NS)) {
                return None;
            }
            self.begin(pause.pid, pause.start_ns);
        }
        self.at(pause.pid, pause.start_ns)
    }

    /// A description belongs to the process of that id, or starts another if that one has ended.
    pub(super) fn describe(&mut self, process: &Process) {
        self.forget_ended(process.since_ns);
        match self.latest(process.pid) {
            Some(known) if !known.sums.ended_by(process.since_ns) => {
                return known.describe(process);
            }
            Some(_) => {}
            // A late record of a dropped process.
            None => {
                let forgotten = self.forgotten.get(&process.pid);
                if matches!(forgotten, Some(ended_ns) if *ended_ns > process.since_ns) {
                    return;
                }
            }
        }
        self.begin(process.pid, process.since_ns);
        if let Some(new) = self.latest(process.pid) {
            new.describe(process);
        }
    }

    fn begin(&mut self, pid: u32, since_ns: u64) {
        if self.list.len() >= PROCESSES {
            self.forget_silent();
        }
        let key = self.next;
        self.next += 1;
        self.by_pid.begin(pid, key);
        let process = LiveProcess::new(pid, since_ns);
        self.list.insert(key, Box::new(process));
    }

    pub(super) fn end(&mut self, exit: &ProcessExit) {
        self.forget_ended(exit.at_ns);
        let Some(key) = self.key_at(exit.pid, exit.at_ns) else {
            return;
        };
        let Some(process) = self.list.get_mut(&key) else {
            return;
        };
        process.end();
        if process.sums.exit.replace(*exit).is_none() {
            self.ended.push_back((exit.at_ns, key));
        }
        if self.ended.len() > ENDED
            && let Some((_, key)) = self.ended.pop_front()
        {
            self.forget(key);
        }
    }

    /// Forgets processes that ended long before a time.
    pub(super) fn forget_ended(&mut self, now_ns: u64) {
        while let Some((at_ns, key)) = self.ended.front().copied()
            && crate::time::after(at_ns, ENDED_SHOWN_NS) < now_ns
        {
            self.ended.pop_front();
            self.forget(key);
        }
    }

    /// Whether some were forgotten while they lived: true once.
    pub(super) fn are_too_many(&mut self) -> bool {
        self.too_many && !std::mem::replace(&mut self.is_reported, self.too_many)
    }

    /// Forgets an eighth of all, the longest silent ones.
    fn forget_silent(&mut self) {
        self.too_many = true;
        let list = self.list.iter();
        let mut silent: Vec<(u64, LiveProcessKey)> =
            list.map(|(key, one)| (one.active_ns, *key)).collect();
        silent.sort_unstable();
        for (_, key) in silent.into_iter().take(PROCESSES / 8) {
            self.forget(key);
        }
        let list = &self.list;
        self.ended.retain(|(_, key)| list.contains_key(key));
    }

    fn forget(&mut self, key: LiveProcessKey) {
        let Some(process) = self.list.remove(&key) else {
            return;
        };
        let pid = process.sums.pid;
        self.gone.add(&process);
        self.by_pid.forget(pid, key);
        let Some(exit) = &process.sums.exit else {
            return;
        };
        if self.forgotten.insert(pid, exit.at_ns).is_none() {
            self.forgotten_order.push_back(pid);
        }
        if self.forgotten_order.len() > FORGOTTEN
            && let Some(oldest) = self.forgotten_order.pop_front()
        {
            self.forgotten.remove(&oldest);
        }
    }
}

impl ForgottenProcesses {
    fn add(&mut self, process: &LiveProcess) {
        let ran_python = process.runs_python();
        self.ran_python += u64::from(ran_python);
        self.ended += u64::from(ran_python && process.sums.exit.is_some());
        if let Some(work) = &process.work {
            self.history.merge(&work.history);
        }
    }
}
