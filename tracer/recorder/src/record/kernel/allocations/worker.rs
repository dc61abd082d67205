//! The thread of the allocation windows: schedules the processes.

use super::sampled_process::{SampledInterpreter, SampledProcess};
use super::{WindowCommand, WindowMessage};
use gctrace_cpython::interpreters;
use gctrace_ebpf::{AllocationPrograms, SharedMaps};
use gctrace_probes::maps::{MappedFile, identity};
use gctrace_probes::progress::{ProgressLayout, TypeAddresses};
use gctrace_probes::{Allocator, Machine, ProcessMemory, Resolution};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Time between two rounds over the processes.
const TICK: Duration = Duration::from_millis(30);
/// Time between two summaries of a process.
const SUMMARY: Duration = Duration::from_secs(2);
/// gctrace gives up a process that is not ready after this time.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs until the sender of commands is dropped.
pub(super) fn run(
    budget: f64,
    stack_depth: u32,
    shared: &SharedMaps,
    commands: &Receiver<WindowCommand>,
    messages: &Sender<WindowMessage>,
) {
    // Readings are tens of microseconds apart; by default a sleep lasts 50 us longer than
    // requested.
    if let Err(errno) = nix::sys::prctl::set_timerslack(1000) {
        tracing::debug!("readings are further apart than requested: {errno}");
    }
    let allocations = match AllocationPrograms::load(shared, stack_depth) {
        Ok(allocations) => allocations,
        Err(error) => {
            let why = crate::text::chain(&error.into());
            let _ = messages
                .send(WindowMessage::Note(None, format!("allocations are not counted: {why}")));
            return;
        }
    };
    let mut worker = WindowWorker {
        budget,
        allocations,
        messages,
        interpreters: HashMap::new(),
        waiting: Vec::new(),
        watched: Vec::new(),
        next: 0,
        summarized: Instant::now(),
    };
    loop {
        match commands.recv_timeout(TICK) {
            Ok(command) => worker.command(command),
            Err(RecvTimeoutError::Timeout) => worker.tick(),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    worker.report_all();
}

struct WindowWorker<'a> {
    budget: f64,
    allocations: AllocationPrograms,
    messages: &'a Sender<WindowMessage>,
    /// By the index of their layout; `None`: allocations cannot be counted in it.
    interpreters: HashMap<u32, Option<(Arc<SampledInterpreter>, TypeAddresses)>>,
    waiting: Vec<UninitializedProcess>,
    watched: Vec<SampledProcess>,
    next: usize,
    summarized: Instant,
}

/// A process with an interpreter that is not initialized yet.
struct UninitializedProcess {
    pid: u32,
    layout: u32,
    resolution: Box<Resolution>,
    since: Instant,
}

impl WindowWorker<'_> {
    fn command(&mut self, command: WindowCommand) {
        match command {
            WindowCommand::Watch { pid, layout, resolution } => {
                self.end(pid);
                self.waiting.push(UninitializedProcess {
                    pid,
                    layout,
                    resolution,
                    since: Instant::now(),
                });
            }
            WindowCommand::Ended(pid) => self.end(pid),
        }
    }

    fn end(&mut self, pid: u32) {
        self.waiting.retain(|waiting| waiting.pid != pid);
        for watched in &mut self.watched {
            if watched.pid == pid
                && let Some(summary) = watched.summary()
            {
                let _ = self.messages.send(WindowMessage::Summary(summary));
            }
        }
        self.watched.retain(|watched| watched.pid != pid);
    }

    fn tick(&mut self) {
        for waiting in std::mem::take(&mut self.waiting) {
            self.start_process(waiting);
        }
        for watched in &mut self.watched {
            watched.observe();
        }
        self.open_one();
        if self.summarized.elapsed() >= SUMMARY {
            self.report_all();
        }
    }

    /// Opens one window at a time: the processes take turns.
    fn open_one(&mut self) {
        let count = self.watched.len();
        for turn in 0..count {
            let index = (self.next + turn) % count;
            let Some(watched) = self.watched.get_mut(index) else {
                continue;
            };
            if !watched.may_open() {
                continue;
            }
            self.next = index + 1;
            let pid = watched.pid;
            if let Err(error) = watched.window(&mut self.allocations) {
                let why = crate::text::chain(&error.into());
                // Nothing to report if the process has exited.
                if Path::new(&format!("/proc/{pid}/maps")).exists() {
                    self.note(
                        Some(pid),
                        format!("allocations of process {pid} are no longer counted: {why}"),
                    );
                }
                self.end(pid);
            }
            return;
        }
    }

    fn report_all(&mut self) {
        self.summarized = Instant::now();
        for summary in self.watched.iter_mut().filter_map(SampledProcess::summary) {
            let _ = self.messages.send(WindowMessage::Summary(summary));
        }
    }

    fn note(&self, pid: Option<u32>, message: String) {
        let _ = self.messages.send(WindowMessage::Note(pid, message));
    }

    fn start_process(&mut self, waiting: UninitializedProcess) {
        if !self.interpreters.contains_key(&waiting.layout) {
            let found = self.examine(&waiting);
            self.interpreters.insert(waiting.layout, found);
        }
        let Some(Some((interpreter, types))) = self.interpreters.get(&waiting.layout) else {
            return;
        };
        let watched = start(waiting.pid, &waiting.resolution, interpreter, types, self.budget);
        match watched {
            Some(watched) => self.watched.push(watched),
            None if waiting.since.elapsed() < PATIENCE => self.waiting.push(waiting),
            None => {}
        }
    }

    /// Finds the allocator of an interpreter, once.
    fn examine(
        &self,
        waiting: &UninitializedProcess,
    ) -> Option<(Arc<SampledInterpreter>, TypeAddresses)> {
        let resolution = &waiting.resolution;
        let name = format!("CPython {}", resolution.version);
        if resolution.free_threaded {
            self.note(None, format!("{name} is free-threaded: its threads allocate in parallel, each with its own mimalloc heap; allocations are not counted"));
            return None;
        }
        let (Some(layout), Some(frames)) = (&resolution.layout, &resolution.frames) else {
            self.note(
                None,
                format!(
                    "the memory layout of threads in {name} is unknown; allocations are not counted"
                ),
            );
            return None;
        };
        let candidate = candidate(waiting.pid, resolution)?;
        let allocator = match gctrace_probes::allocator(&candidate.openable, Machine::HOST) {
            Ok(Some(allocator)) if !allocator.points.is_empty() => allocator,
            Ok(_) => {
                self.note(
                    None,
                    format!("no PyObject_Malloc was found in {name}; allocations are not counted"),
                );
                return None;
            }
            Err(error) => {
                self.note(None, format!("allocations are not counted: {error}"));
                return None;
            }
        };
        self.limits(&name, &allocator);
        let interpreter = SampledInterpreter {
            file: candidate.openable,
            layout_index: waiting.layout,
            probes: allocator.points.iter().map(|point| (point.file_offset, point.size)).collect(),
            emulated: allocator.points.iter().all(|point| point.emulated),
            layout: layout.clone(),
            frames: *frames,
        };
        Some((Arc::new(interpreter), allocator.types))
    }

    fn limits(&self, name: &str, allocator: &Allocator) {
        if allocator.unseen > 0 {
            self.note(None, format!("{name} calls its allocator in {} places that cannot be probed cheaply: allocations there are not counted", allocator.unseen));
        }
        if allocator.points.iter().any(|point| !point.emulated) {
            self.note(None, format!("{name} has no instruction in PyObject_Malloc that the kernel emulates: a hit costs 16 us and windows are few"));
        }
    }
}

/// The mapping of the interpreter's file in a process.
fn candidate(pid: u32, resolution: &Resolution) -> Option<MappedFile> {
    let wanted = identity(&resolution.file).ok();
    let all = gctrace_probes::maps::candidates(pid).ok()?;
    let same =
        |candidate: &&MappedFile| wanted.is_some() && identity(&candidate.openable).ok() == wanted;
    let found = all.iter().find(same).or(match all.as_slice() {
        [only] => Some(only),
        _ => None,
    });
    found.cloned()
}

/// Starts with a process; `None` while its interpreter is not initialized.
fn start(
    pid: u32,
    resolution: &Resolution,
    interpreter: &Arc<SampledInterpreter>,
    types: &TypeAddresses,
    budget: f64,
) -> Option<SampledProcess> {
    let memory = ProcessMemory::open(pid).ok()?;
    let bias = candidate(pid, resolution)?.lowest.start.wrapping_sub(resolution.lowest_address);
    let runtime = resolution.runtime.wrapping_add(bias);
    let newest = *interpreters(&mut &memory, &interpreter.layout, runtime).first()?;
    let moved = |address: u64| {
        if address == 0 { 0 } else { address.wrapping_add(bias) }
    };
    let types = TypeAddresses {
        integer: moved(types.integer),
        range_iterator: moved(types.range_iterator),
        list_iterator: moved(types.list_iterator),
        tuple_iterator: moved(types.tuple_iterator),
        enumerate: moved(types.enumerate),
    };
    // In struct gc_generation the count follows the threshold, in every version.
    let young_count = newest.collector + u64::from(interpreter.layout.thresholds[0]) + 4;
    let progress = ProgressLayout::new(&resolution.version, types, Some(young_count))?;
    Some(SampledProcess::new(pid, runtime, Arc::clone(interpreter), progress, memory, budget))
}
