//! `gctrace heap -p PID` and `gctrace heap --at-full N -- COMMAND`: takes a heap and writes it.
//!
//! Owns what is said before and after, and when the heap of a command is taken; `gctrace_heap`
//! stops the program and reads it.

use crate::args::HeapProgram;
use crate::args::TakeHeapConfig;
use crate::files::is_stdout;
use crate::files::write_export;
use crate::launch::CommandEnd;
use crate::launch::Invoker;
use crate::launch::LaunchPlan;
use crate::launch::Signals;
use crate::print;
use crate::record::CommandSupervisor;
use crate::record::INTERRUPTED;
use crate::record::kernel::permission;
use crate::record::monotonic_ns;
use crate::text::chain;
use crate::text::shell_line;
use crate::units;
use crate::wait;
use anyhow::Context as _;
use gctrace_analysis::heap::HeapGraph;
use gctrace_heap::HeapError;
use gctrace_heap::HeapOptions;
use gctrace_heap::RunningHeap;
use gctrace_probes::proc_status;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsFd as _;
use std::time::Duration;
use std::time::Instant;

/// Time between two polls of a command: until its Python has started, and then.
const SEARCH_MS: u16 = 10;
const WATCH_MS: u16 = 1;
/// The heap of the running program is read through again, so that it is known what to copy, when this
/// many times the duration of that has passed.
const UPDATE_SHARE: u32 = 10;
/// How long a process may run before the reason why its heap cannot be taken is reported.
const PATIENCE: Duration = Duration::from_secs(5);

/// Takes a heap. Returns the exit code, a command's own.
///
/// # Errors
/// The program cannot be read, or the file not be written.
pub(crate) fn run(config: &TakeHeapConfig) -> anyhow::Result<u8> {
    if !is_stdout(&config.output) {
        anyhow::ensure!(
            config.force || !config.output.exists(),
            "{} exists and was not overwritten; --force overwrites it",
            config.output.display()
        );
    }
    match &config.target {
        HeapProgram::Process(pid) => {
            permission::attachable(*pid)?;
            let mut heap = RunningHeap::open(*pid, options(config))?;
            announce(*pid, &heap);
            let graph = heap.take()?;
            write(config, &graph, &[]).map(|()| 0)
        }
        HeapProgram::Command {
            command,
            at_full,
            as_root,
        } => {
            // Before any thread is created, so that all of them inherit the mask.
            let signals = Signals::block().context("cannot block signals")?;
            let mut launch = LaunchPlan::new(command, &Invoker::detect(), *as_root);
            if is_stdout(&config.output) {
                launch
                    .redirect_stdout()
                    .context("the command's standard output")?;
            }
            for note in launch.notes() {
                tracing::warn!("{note}");
            }
            let mut supervisor = CommandSupervisor::new(signals);
            supervisor.started(launch.spawn()?)?;
            take_of_command(config, *at_full, &mut supervisor)
        }
    }
}

fn options(config: &TakeHeapConfig) -> HeapOptions {
    HeapOptions {
        interpreter: config.interpreter,
        ..HeapOptions::default()
    }
}

/// What is going to happen to the program.
fn announce(pid: u32, heap: &RunningHeap) {
    let command = proc_status::command_line(pid).unwrap_or_default();
    let stop = heap.expected_stop();
    print::message(format!(
        "stops process {pid} ({}, CPython {}) for about {} (predicted) to copy {}; blocking system \
         calls in it may return EINTR, which Python itself repeats",
        shell_line(&command),
        heap.version(),
        duration(stop),
        units::bytes(heap.bytes()),
    ));
}

fn duration(time: Duration) -> String {
    units::duration(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

fn write(config: &TakeHeapConfig, graph: &HeapGraph, notes: &[String]) -> anyhow::Result<()> {
    let header = &graph.header;
    let stopped = header.stopped_ns.map_or_else(String::new, |stopped| {
        format!("stopped for {} (measured); ", units::duration(stopped))
    });
    print::message(format!(
        "{stopped}{}, {}",
        units::counted(graph.nodes.len() as u64, "object"),
        units::counted(graph.edges.len() as u64, "reference"),
    ));
    for note in notes.iter().chain(&header.notes) {
        tracing::warn!("{note}");
    }
    if is_stdout(&config.output) {
        let written = print::exactly(|out| graph.write(out));
        return print::unless_closed(written).context("cannot write the heap to standard output");
    }
    let content = |out: &mut dyn io::Write| graph.write(out);
    write_export(
        &config.output,
        &Invoker::detect(),
        &[],
        config.force,
        &content,
    )?;
    let file = shell_line(&[&config.output]);
    print::message(format!("what is in it: gctrace heap show {file}"));
    Ok(())
}

/// Watches a command until its heap is taken, then until its end.
fn take_of_command(
    config: &TakeHeapConfig,
    at_full: NonZeroU64,
    supervisor: &mut CommandSupervisor,
) -> anyhow::Result<u8> {
    let mut watch = Watch::new(config, at_full);
    let result = loop {
        let timeout = if watch.heap.is_some() {
            WATCH_MS
        } else {
            SEARCH_MS
        };
        let command = supervisor.command();
        let pid = command.map(|command| command.pid());
        let descriptors = [supervisor.as_fd()].into_iter();
        let descriptors = descriptors.chain(command.map(|command| command.as_fd()));
        wait::readable(descriptors, timeout).context("cannot wait for the command")?;
        if let Some(ended) = supervisor.try_wait()? {
            watch.report_end();
            return Ok(nonzero(ended.exit_code()));
        }
        if supervisor.handle_signals()? {
            return Ok(INTERRUPTED);
        }
        match pid.map(|pid| watch.poll(pid)) {
            Some(Ok(None)) | None => {}
            Some(Ok(Some((graph, late)))) => break write(config, &graph, &[late]),
            Some(Err(error)) => break Err(error.into()),
        }
    };
    if let Err(error) = &result {
        tracing::error!("{}", chain(error));
    }
    drop(watch);
    let ended = supervisor.wait_for_end()?;
    let code = ended.map_or(INTERRUPTED, CommandEnd::exit_code);
    Ok(match result {
        Ok(()) => code,
        Err(_) => nonzero(code),
    })
}

/// No heap was taken: a command that succeeded does not make that a success.
fn nonzero(code: u8) -> u8 {
    code.max(1)
}

/// A command whose full collections are counted.
struct Watch<'config> {
    config: &'config TakeHeapConfig,
    at_full: u64,
    heap: Option<RunningHeap>,
    started: Instant,
    /// Full collections at the last poll, and its time, CLOCK_MONOTONIC in ns.
    seen: u64,
    polled_ns: u64,
    /// When the heap was last read through, and how long that took.
    updated: (Instant, Duration),
}

impl<'config> Watch<'config> {
    fn new(config: &'config TakeHeapConfig, at_full: NonZeroU64) -> Self {
        let now = Instant::now();
        Self {
            config,
            at_full: at_full.get(),
            heap: None,
            started: now,
            seen: 0,
            polled_ns: monotonic_ns(),
            updated: (now, Duration::ZERO),
        }
    }

    /// The heap, and a note on how late it was taken, once the collection has been.
    fn poll(&mut self, pid: u32) -> Result<Option<(HeapGraph, String)>, HeapError> {
        let Some(heap) = &mut self.heap else {
            self.search(pid)?;
            return Ok(None);
        };
        let Some(count) = heap.full_collections() else {
            // It executes another program, or ends.
            self.heap = None;
            return Ok(None);
        };
        if count >= self.at_full {
            let graph = heap.take()?;
            let late = units::duration(graph.header.at_ns.saturating_sub(self.polled_ns));
            let note = format!("taken after full collection {count}, at most {late} after its end");
            return Ok(Some((graph, note)));
        }
        self.polled_ns = monotonic_ns();
        let (updated, took) = self.updated;
        if count > self.seen || updated.elapsed() > took * UPDATE_SHARE {
            let start = Instant::now();
            heap.update()?;
            self.updated = (Instant::now(), start.elapsed());
        }
        self.seen = count;
        Ok(None)
    }

    /// Looks for an interpreter, which a process has some time after its start.
    fn search(&mut self, pid: u32) -> Result<(), HeapError> {
        match RunningHeap::open(pid, options(self.config)) {
            Ok(heap) => {
                self.heap = Some(heap);
                Ok(())
            }
            Err(error @ (HeapError::FreeThreaded { .. } | HeapError::Traced { .. })) => Err(error),
            Err(error @ HeapError::Forbidden { .. }) if self.started.elapsed() > PATIENCE => {
                Err(error)
            }
            Err(_) => Ok(()),
        }
    }

    /// The command has ended before its heap was taken.
    fn report_end(&self) {
        let seen = units::counted(self.seen, "full collection");
        tracing::error!(
            "no heap was taken: the command ended after {seen} (--at-full {}); a heap is taken of the \
             command's own process only, not of its children",
            self.at_full
        );
    }
}
