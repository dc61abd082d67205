//! `--alloc`: allocation rates, estimated from short windows within a budget.
//!
//! Owns the thread that opens and closes windows; this takes tens of milliseconds while the recording goes on.
//! `allocations/sampled_process.rs` has the data read from one process.

mod estimate;
mod local_rate;
mod sampled_process;
mod schedule;
mod steps;
mod task_clock;
mod worker;

use crate::record::kernel::stacks::StackResolver;
use crate::record::output::{RecordOutput, RecordSink as _};
use gctrace_ebpf::{AllocationEvent, SharedMaps};
use gctrace_event::{Allocations as Summary, FrameId, Record};
use gctrace_probes::Resolution;
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// Commands to the thread.
enum WindowCommand {
    /// The process runs this interpreter from now on.
    Watch { pid: u32, layout: u32, resolution: Box<Resolution> },
    /// The process exited or executed another program.
    Ended(u32),
}

/// Messages from the thread.
enum WindowMessage {
    /// Latest figures of one process.
    Summary(Summary),
    /// A limitation, of one process or of the recording (`None`).
    Note(Option<u32>, String),
}

/// The thread, and the sampled lines of each process.
pub(crate) struct AllocationWindows {
    commands: Option<Sender<WindowCommand>>,
    messages: Receiver<WindowMessage>,
    thread: Option<JoinHandle<()>>,
    stacks: HashMap<u32, HashMap<FrameId, u64>>,
    watched: HashMap<u32, u32>,
}

impl AllocationWindows {
    /// `budget`: share of each process's CPU time that its windows may cost.
    pub(crate) fn start(
        budget: f64,
        stack_depth: u32,
        shared: SharedMaps,
    ) -> std::io::Result<Self> {
        let (commands, to_thread) = channel();
        let (from_thread, messages) = channel();
        let thread = std::thread::Builder::new()
            .name("allocations".to_owned())
            .spawn(move || worker::run(budget, stack_depth, &shared, &to_thread, &from_thread))?;
        Ok(Self {
            commands: Some(commands),
            messages,
            thread: Some(thread),
            stacks: HashMap::new(),
            watched: HashMap::new(),
        })
    }

    /// The process runs this interpreter, with the layout of that index.
    pub(crate) fn watch(&mut self, pid: u32, layout: u32, resolution: &Resolution) {
        if self.watched.insert(pid, layout) == Some(layout) {
            return;
        }
        let resolution = Box::new(resolution.clone());
        self.send(WindowCommand::Watch { pid, layout, resolution });
    }

    /// The process exited or executed another program.
    pub(crate) fn ended(&mut self, pid: u32) {
        if self.watched.remove(&pid).is_some() {
            self.send(WindowCommand::Ended(pid));
        }
    }

    fn send(&self, command: WindowCommand) {
        if let Some(commands) = &self.commands {
            // If the thread has ended, it has sent the reason.
            let _ = commands.send(command);
        }
    }

    /// Counts the line of a sampled allocation.
    pub(crate) fn sample(&mut self, event: AllocationEvent, stacks: &mut StackResolver) {
        if let Some(frame) = stacks.innermost(Some(event.stack)) {
            let of_process = self.stacks.entry(event.pid).or_default();
            *of_process.entry(frame).or_default() += 1;
        }
    }

    /// Writes the figures and notes that the thread has sent since the last call. Never blocks.
    pub(crate) fn tick(&mut self, output: &mut RecordOutput) {
        while let Ok(message) = self.messages.try_recv() {
            match message {
                WindowMessage::Summary(mut summary) => {
                    summary.stacks = self.lines(summary.pid);
                    output.write(&Record::Allocations(summary));
                }
                WindowMessage::Note(pid, message) => {
                    tracing::warn!("{message}");
                    output.note(pid, crate::clock::monotonic_ns(), message);
                }
            }
        }
    }

    fn lines(&self, pid: u32) -> Vec<(FrameId, u64)> {
        let counted = self.stacks.get(&pid).into_iter().flatten();
        let mut lines: Vec<(FrameId, u64)> =
            counted.map(|(frame, count)| (*frame, *count)).collect();
        lines.sort_by_key(|(frame, count)| (std::cmp::Reverse(*count), *frame));
        lines
    }

    /// Ends the thread after it has closed its last window. The samples of that window may still be
    /// in the ring, and `tick` must still write the thread's messages.
    pub(crate) fn stop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that counts allocations panicked");
        }
    }
}
