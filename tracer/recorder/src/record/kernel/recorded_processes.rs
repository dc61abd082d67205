//! The recorded processes: identity, interpreter, start and end.
//!
//! Owns the table of processes and their records. Does not place probes.

use crate::launch::CommandEnd;
use crate::record::described::DescribedProcess;
use crate::record::kernel::interpreters::{InterpreterIndex, ProbedInterpreters};
use crate::record::output::{RecordOutput, RecordSink as _};
use gctrace_event::{ProcessOrigin, Record};
use gctrace_probes::proc_status;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// When to examine a process without a known interpreter again after its program started: most that
/// load a libpython late do it at once; a few, plug-in hosts, much later.
pub(crate) const RESCAN_DELAYS: [Duration; 4] = [
    Duration::from_millis(20),
    Duration::from_millis(200),
    Duration::from_secs(2),
    Duration::from_secs(10),
];

/// When to read a process's title again: after its program started, then after the previous read.
const READ_TITLE: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(10),
    Duration::from_secs(30),
];

/// The table of recorded processes, by pid.
#[derive(Default)]
pub struct RecordedProcesses {
    table: HashMap<u32, RecordedProcess>,
    /// Processes recorded so far.
    seen: u64,
}

struct RecordedProcess {
    /// Without its interpreter; the next field has it.
    described: DescribedProcess,
    interpreter: Option<InterpreterIndex>,
    started: Instant,
    looked: usize,
    /// When its command line was last read, and how often since the program started.
    titled: (Instant, usize),
    /// The interpreter was seen in its memory map, in its executable, or in its parent's.
    confirmed: bool,
}

impl RecordedProcesses {
    /// Adds a process. It has its parent's interpreter until it executes another program.
    pub fn add(&mut self, pid: u32, parent: Option<u32>, origin: ProcessOrigin, since_ns: u64) {
        let inherited = parent.and_then(|parent| self.table.get(&parent));
        let interpreter = inherited.and_then(|parent| parent.interpreter);
        let command = proc_status::command_or_name(pid)
            .or_else(|| inherited.map(|parent| parent.described.command.clone()));
        let mut described = DescribedProcess::new(pid, origin, since_ns, command);
        described.parent = parent;
        self.seen += 1;
        let entry = RecordedProcess {
            described,
            interpreter,
            started: Instant::now(),
            looked: 0,
            titled: (Instant::now(), 0),
            confirmed: interpreter.is_some(),
        };
        self.table.insert(pid, entry);
    }

    /// The process executed another program; its interpreter is unknown again.
    pub fn new_program(&mut self, pid: u32, at_ns: u64) {
        if !self.table.contains_key(&pid) {
            self.add(pid, None, ProcessOrigin::Child, at_ns);
        }
        if let Some(entry) = self.table.get_mut(&pid) {
            entry.interpreter = None;
            entry.confirmed = false;
            entry.started = Instant::now();
            entry.looked = 0;
            entry.titled = (Instant::now(), 0);
            entry.described.new_program();
        }
    }

    /// Sets the interpreter found in the memory map or executable of the process; `None`: no interpreter. `since_ns`:
    /// from when it is recorded, if that changes.
    pub fn set_interpreter(
        &mut self,
        pid: u32,
        interpreter: Option<InterpreterIndex>,
        since_ns: Option<u64>,
    ) {
        if let Some(entry) = self.table.get_mut(&pid) {
            entry.interpreter = interpreter;
            entry.confirmed = interpreter.is_some();
            entry.described.since_ns = since_ns.unwrap_or(entry.described.since_ns);
        }
    }

    /// Its program had this interpreter before; to be confirmed when its libraries are mapped.
    pub fn assume_interpreter(&mut self, pid: u32, interpreter: InterpreterIndex) {
        if let Some(entry) = self.table.get_mut(&pid) {
            entry.interpreter = Some(interpreter);
        }
    }

    /// The process's interpreter; `None` if it has none, if that is unknown, or if the process is
    /// not recorded.
    pub fn interpreter(&self, pid: u32) -> Option<InterpreterIndex> {
        let entry = self.table.get(&pid)?;
        entry.interpreter
    }

    /// Processes to search for an interpreter now.
    pub fn due(&mut self) -> Vec<u32> {
        let mut due = Vec::new();
        for (pid, entry) in &mut self.table {
            let wait = RESCAN_DELAYS[entry.looked.min(RESCAN_DELAYS.len() - 1)];
            if !entry.confirmed && entry.started.elapsed() >= wait {
                entry.looked += 1;
                if entry.looked >= RESCAN_DELAYS.len() {
                    entry.started = Instant::now();
                }
                due.push(*pid);
            }
        }
        due
    }

    /// Python processes that have changed their title, as workers do after fork. Reads titles that
    /// are due, or `all`.
    pub fn retitled(&mut self, all: bool) -> Vec<u32> {
        let mut changed = Vec::new();
        for (pid, entry) in &mut self.table {
            let (at, count) = entry.titled;
            let wait = READ_TITLE[count.min(READ_TITLE.len() - 1)];
            let is_due = all || at.elapsed() >= wait;
            if entry.interpreter.is_none() || !is_due {
                continue;
            }
            entry.titled = (Instant::now(), count + 1);
            if entry.described.is_retitled() {
                changed.push(*pid);
            }
        }
        changed
    }

    /// The pids of recorded processes that have not exited, in no order.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        self.table.keys().copied()
    }

    /// The pids of recorded processes with a known interpreter, in no order.
    pub fn with_interpreter(&self) -> impl Iterator<Item = u32> {
        let python = self.table.iter().filter(|(_, entry)| entry.interpreter.is_some());
        python.map(|(pid, _)| *pid)
    }

    /// Whether the process is in the table.
    pub fn contains(&self, pid: u32) -> bool {
        self.table.contains_key(&pid)
    }

    /// Number of processes ever recorded, exited ones included.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Number of recorded processes that have not exited.
    pub fn alive(&self) -> usize {
        self.table.len()
    }

    /// Writes the known facts about a process.
    pub fn announce(
        &mut self,
        pid: u32,
        interpreters: &ProbedInterpreters,
        output: &mut RecordOutput,
    ) {
        if let Some(entry) = self.table.get_mut(&pid) {
            let described = &mut entry.described;
            let interpreter = entry.interpreter.and_then(|index| interpreters.describe(index));
            described.interpreter = interpreter.cloned();
            described.look();
            described.write(output);
        }
    }

    /// Writes the name of a thread when it is first seen.
    pub fn name_thread(&mut self, pid: u32, tid: u32, output: &mut RecordOutput) {
        if let Some(entry) = self.table.get_mut(&pid) {
            entry.described.name_thread(tid, output);
        }
    }

    /// Stops recording a process. It keeps running.
    pub fn forget(&mut self, pid: u32, output: &mut RecordOutput) {
        self.table.remove(&pid);
        output.forget(pid);
    }

    /// Removes an exited process; `status` is as from wait(2).
    pub fn remove(&mut self, pid: u32, status: i32, at_ns: u64, output: &mut RecordOutput) {
        self.forget(pid, output);
        let end = CommandEnd::from_status(status);
        output.write(&Record::ProcessExit(end.exit(pid, at_ns)));
    }
}
