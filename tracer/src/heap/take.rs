//! `gctrace heap -p PID` and `gctrace heap --at-full N -- COMMAND`: takes a heap and writes it.
//!
//! Owns the messages before and after, and the command while it runs; `gctrace_heap` stops the program and reads it.
//! `take/callbacks.rs` decides when to take the heap of a command or, where the library cannot be loaded,
//! `take/polling.rs`.

mod callbacks;
mod polling;

use crate::args::{HeapProgram, TakeHeapArgs};
use crate::files::{is_stdout, write_beside, write_export};
use crate::heap::is_heap;
use crate::invoker::Invoker;
use crate::launch::{LaunchPlan, RunningCommand, Signals};
use crate::record::kernel::permission;
use crate::record::{CommandSupervisor, INTERRUPTED, code_of};
use crate::text::{chain, shell_line};
use crate::{print, units, wait};
use anyhow::Context as _;
use callbacks::HeapCallbacks;
use gctrace_heap::{HeapGraph, HeapOptions, RunningHeap};
use gctrace_probes::proc_status;
use nix::poll::PollTimeout;
use polling::PollingWatch;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

/// The heap of a running program is read through again, to know what to copy, when this many times the duration of the
/// last reading has passed.
const UPDATE_SHARE: u32 = 10;

/// Finds when to take the heap of a command.
trait HeapWatch {
    /// Readable when [`HeapWatch::poll`] is to be called.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;

    /// When to call it in any case.
    fn timeout(&self) -> PollTimeout;

    /// The heap, and notes on it, once it is taken. `pid`: the command's, unless it has ended.
    ///
    /// # Errors
    /// It cannot be taken.
    fn poll(&mut self, pid: Option<u32>) -> anyhow::Result<Option<(HeapGraph, Vec<String>)>>;

    /// Reports why there is no heap although the command has ended.
    fn report_end(&self);
}

/// Takes a heap. Returns the exit code, a command's own.
///
/// # Errors
/// The program cannot be read, or the file not be written.
pub(crate) fn run(config: &TakeHeapArgs) -> anyhow::Result<u8> {
    let program = config.program()?;
    if !is_stdout(&config.output) && matches!(program, HeapProgram::Process(_)) {
        anyhow::ensure!(
            config.force || !config.output.exists(),
            "{} exists and was not overwritten; --force overwrites it",
            config.output.display()
        );
    }
    match program {
        HeapProgram::Process(pid) => {
            permission::attachable(pid)?;
            let mut heap = RunningHeap::open(pid, options(config))?;
            announce(pid, &mut heap)?;
            let graph = heap.take()?;
            write(config, &graph, &[]).map(|()| 0)
        }
        HeapProgram::Command(at_full) => {
            // Before any thread is created, so that all of them inherit the mask.
            let signals = Signals::block().context("cannot block signals")?;
            let mut launch = LaunchPlan::new(&config.command, &Invoker::detect(), config.as_root);
            if is_stdout(&config.output) {
                launch.redirect_stdout().context("the command's standard output")?;
            }
            let inside = HeapCallbacks::prepare(&mut launch, &Invoker::detect(), config, at_full);
            let mut watch: Box<dyn HeapWatch> = match inside {
                Ok(inside) => Box::new(inside),
                Err(error) => {
                    let reason = chain(&error);
                    tracing::warn!(
                        "the command's full collections are counted from outside, every millisecond, \
                         and the heap is taken a little after the collection: {reason}"
                    );
                    Box::new(PollingWatch::new(config, at_full))
                }
            };
            for note in launch.notes() {
                tracing::warn!("{note}");
            }
            let mut supervisor = CommandSupervisor::new(signals);
            supervisor.started(launch.spawn()?)?;
            take_of_command(config, &mut *watch, &mut supervisor)
        }
    }
}

fn options(config: &TakeHeapArgs) -> HeapOptions {
    HeapOptions { interpreter: config.interpreter, ..HeapOptions::default() }
}

/// Announces the stop of the program.
///
/// # Errors
/// It would be stopped for too long.
fn announce(pid: u32, heap: &mut RunningHeap) -> anyhow::Result<()> {
    let stop = heap.longest_stop()?;
    let command = proc_status::last_command_line(pid);
    print::message(format!(
        "stops process {pid} ({}, CPython {}) for at most about {} (predicted) to copy {}; blocking \
         system calls in it may return EINTR, which Python itself repeats",
        shell_line(&command),
        heap.version(),
        duration(stop),
        units::bytes(heap.bytes()),
    ));
    Ok(())
}

fn duration(time: Duration) -> String {
    units::duration(gctrace_units::u64_or_most(time.as_nanos()))
}

fn write(config: &TakeHeapArgs, graph: &HeapGraph, notes: &[String]) -> anyhow::Result<()> {
    let header = &graph.header;
    let stopped = if let Some(stopped) = header.stopped_ns {
        format!("stopped for {} (measured); ", units::duration(stopped))
    } else {
        String::new()
    };
    print::message(format!(
        "{stopped}{}, {}",
        units::counted(graph.nodes.len() as u64, "object"),
        units::counted(graph.edges.len() as u64, "reference"),
    ));
    for note in notes.iter().chain(&header.notes) {
        tracing::warn!("{note}");
    }
    if is_stdout(&config.output) {
        return print::written_answer(|out| graph.write(out));
    }
    let content = |out: &mut dyn io::Write| graph.write(out);
    let invoker = Invoker::detect();
    let file = if config.pid.is_none() && !config.force {
        // The command has run: an existing file is no reason to lose its heap.
        write_beside(&config.output, &invoker, is_heap, &content)?
    } else {
        write_export(&config.output, &invoker, &[], config.force, &content)?;
        config.output.clone()
    };
    let file = shell_line(&[&file]);
    print::message(format!("its contents: gctrace heap show {file}"));
    Ok(())
}

/// Watches a command until its heap is taken, then until its end.
fn take_of_command(
    config: &TakeHeapArgs,
    watch: &mut dyn HeapWatch,
    supervisor: &mut CommandSupervisor,
) -> anyhow::Result<u8> {
    let (result, ended) = loop {
        let command = supervisor.command();
        let pid = command.map(RunningCommand::pid);
        let descriptors = [supervisor.as_fd()].into_iter();
        let descriptors = descriptors.chain(command.map(|command| command.as_fd()));
        let descriptors = descriptors.chain(watch.descriptors());
        wait::readable(descriptors, watch.timeout()).context("cannot wait for the command")?;
        let ended = supervisor.try_wait()?;
        // Also after its end: it may have reported before.
        match watch.poll(if ended.is_none() { pid } else { None }) {
            Ok(None) => {}
            Ok(Some((graph, notes))) => break (write(config, &graph, &notes), ended),
            Err(error) => break (Err(error), ended),
        }
        if let Some(ended) = ended {
            watch.report_end();
            return Ok(nonzero(ended.exit_code()));
        }
        if supervisor.handle_signals()? {
            return Ok(INTERRUPTED);
        }
    };
    if let Err(error) = &result {
        tracing::error!("{}", chain(error));
    }
    let ended = match ended {
        Some(ended) => Some(ended),
        None => supervisor.wait_for_end()?,
    };
    let code = code_of(ended);
    Ok(match result {
        Ok(()) => code,
        Err(_) => nonzero(code),
    })
}

/// No heap was taken: a command that succeeded does not make that a success.
fn nonzero(code: u8) -> u8 {
    code.max(1)
}
