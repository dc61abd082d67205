//! A process as the trace describes it, whichever source records it.

use crate::record::output::{RecordOutput, RecordSink as _};
use gctrace_event::{Process, ProcessOrigin, Record, ThreadName};
use gctrace_probes::proc_status::ProcessStatus;
use gctrace_probes::{proc_status, process_memory};
use std::collections::HashSet;
use std::ops::{Deref, DerefMut};

/// A process, and its threads named so far.
pub(crate) struct DescribedProcess {
    process: Process,
    named_threads: HashSet<u32>,
}

impl DescribedProcess {
    /// A process with only these known facts. `command`: empty in the trace if it is unknown.
    pub(crate) fn new(
        pid: u32,
        origin: ProcessOrigin,
        since_ns: u64,
        command: Option<Vec<String>>,
    ) -> Self {
        let command = command.unwrap_or_default();
        Self::of(Process { pid, origin, since_ns, command, ..Process::default() })
    }

    /// A process described by another source or process.
    pub(crate) fn of(process: Process) -> Self {
        Self { process, named_threads: HashSet::new() }
    }

    /// Reads the facts in `/proc`, except the command line.
    pub(crate) fn look(&mut self) -> Option<ProcessStatus> {
        let pid = self.pid;
        let status = proc_status::status(pid).ok();
        self.namespace_pid = status.as_ref().and_then(ProcessStatus::inner_pid);
        self.rank = proc_status::rank(pid).ok().flatten();
        self.memory_limit_bytes = process_memory::limit_bytes(pid);
        status
    }

    /// It executed another program: its threads have other names.
    pub(crate) fn new_program(&mut self) {
        self.process.interpreter = None;
        self.process.command = proc_status::command_or_name(self.process.pid).unwrap_or_default();
        self.named_threads.clear();
    }

    /// Reads its title again; whether the program has changed it, as workers do after fork.
    pub(crate) fn is_retitled(&mut self) -> bool {
        match proc_status::command_line(self.process.pid) {
            Ok(line) if !line.is_empty() && line != self.process.command => {
                self.process.command = line;
                true
            }
            _ => false,
        }
    }

    /// Writes the known facts.
    pub(crate) fn write(&self, output: &mut RecordOutput) {
        output.write(&Record::Process(self.process.clone()));
    }

    /// Writes the name of a thread when it is first seen.
    pub(crate) fn name_thread(&mut self, tid: u32, output: &mut RecordOutput) {
        let pid = self.process.pid;
        if self.named_threads.insert(tid)
            && let Ok(name) = proc_status::thread_name(pid, tid)
        {
            output.write(&Record::ThreadName(ThreadName { pid, tid, name }));
        }
    }
}

impl Deref for DescribedProcess {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for DescribedProcess {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}
