//! `--alloc`: the rate of allocations, from short windows within a budget.
//!
//! Owns the thread on which windows open and close: that takes tens of milliseconds, during which the
//! recording goes on. What one process is asked is `allocations/sampled_process.rs`.

mod estimate;
mod local_rate;
mod sampled_process;
mod schedule;
mod steps;
mod task_clock;
mod worker;

use crate::record::output::RecordOutput;
use crate::record::stacks::StackResolver;
use gctrace_ebpf::AllocationEvent;
use gctrace_ebpf::SharedMaps;
use gctrace_event::Allocations as Summary;
use gctrace_event::FrameId;
use gctrace_event::Record;
use gctrace_probes::Resolution;
use std::collections::HashMap;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::Sender;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

/// What the thread is told.
enum WindowCommand {
    /// This process runs that interpreter from now on.
    Watch {
        pid: u32,
        layout: u32,
        resolution: Box<Resolution>,
    },
    /// It ended.
    Ended(u32),
}

/// What the thread tells.
enum WindowMessage {
    /// What is known of a process.
    Summary(Summary),
    /// What cannot be had, for one process or for all.
    Note(Option<u32>, String),
}

/// The thread, and what it said of lines.
pub(crate) struct AllocationWindows {
    commands: Option<Sender<WindowCommand>>,
    messages: Receiver<WindowMessage>,
    thread: Option<JoinHandle<()>>,
    stacks: HashMap<u32, HashMap<FrameId, u64>>,
    watched: HashMap<u32, u32>,
}

impl AllocationWindows {
    /// `budget`: part of the CPU time of each process that its windows may cost.
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

    /// A process runs this interpreter, whose layout has that index.
    pub(crate) fn watch(&mut self, pid: u32, layout: u32, resolution: &Resolution) {
        if self.watched.insert(pid, layout) == Some(layout) {
            return;
        }
        let resolution = Box::new(resolution.clone());
        self.tell(WindowCommand::Watch {
            pid,
            layout,
            resolution,
        });
    }

    /// A process ended, or runs another program.
    pub(crate) fn ended(&mut self, pid: u32) {
        if self.watched.remove(&pid).is_some() {
            self.tell(WindowCommand::Ended(pid));
        }
    }

    fn tell(&self, command: WindowCommand) {
        if let Some(commands) = &self.commands {
            // The thread has said why, should it have ended.
            let _ = commands.send(command);
        }
    }

    /// An allocation took a stack.
    pub(crate) fn sample(&mut self, event: AllocationEvent, stacks: &mut StackResolver) {
        if let Some(frame) = stacks.innermost(Some(event.stack)) {
            let of_process = self.stacks.entry(event.pid).or_default();
            *of_process.entry(frame).or_default() += 1;
        }
    }

    /// Writes what the thread said.
    pub(crate) fn tick(&mut self, output: &mut RecordOutput) {
        while let Ok(message) = self.messages.try_recv() {
            match message {
                WindowMessage::Summary(mut summary) => {
                    summary.stacks = self.lines(summary.pid);
                    output.write(&Record::Allocations(summary));
                }
                WindowMessage::Note(pid, message) => {
                    tracing::warn!("{message}");
                    output.note(pid, crate::record::clock::monotonic_ns(), message);
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

    /// Ends the thread, its last window closed: the samples of that one may still be in the ring, and what the
    /// thread said is still to be written.
    pub(crate) fn stop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that counts allocations failed");
        }
    }
}
