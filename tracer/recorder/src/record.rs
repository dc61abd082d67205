//! One recording: set up, wait for events and signals, end.
//!
//! Owns the order of the steps. `record/preparation.rs` does the steps before; the sources (`record/sources.rs`) handle
//! events; `record/output.rs` writes.

mod call_sources;
mod cells;
mod cpu_waits;
mod described;
mod examination;
mod git;
mod header;
mod held_frames;
mod inprocess;
mod kept_memory;
pub mod kernel;
mod losses;
mod merge;
pub mod mode;
pub mod nvml;
mod output;
mod plan;
mod preparation;
mod private_memory;
mod program_time;
mod segments;
mod shutdown;
mod sources;
mod supervision;
mod torch_version;
mod trace;

use crate::args::{RecordConfig, RecordTarget, Verbosity};
use crate::files::{NewTrace, lock};
use crate::launch::{CommandEnd, LaunchPlan, RunningCommand, Signals};
pub use crate::record::examination::Unexamined;
pub use crate::record::inprocess::{UNREACHED, folder};
pub use crate::record::losses::{RecordingLosses, lost_events};
use crate::record::nvml::GpuSampling;
pub use crate::record::output::RecordSink;
pub use crate::record::preparation::RecordingPlan;
use crate::record::program_time::ProgramTime;
pub use crate::record::shutdown::RecordingSummary;
use crate::record::sources::RecordingSources;
pub use crate::record::supervision::{CommandSupervisor, INTERRUPTED, code_of};
use crate::record::trace::RecordingTrace;
use crate::{print, wait};
use anyhow::Context as _;
use gctrace_event::TraceEnd;
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Longest interval between two polls of the ring of pauses: the ring does not wake us for each record.
const TICK_MS: u8 = 40;

/// Why a recording ended; the trace contains it in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The command exited.
    CommandEnded(CommandEnd),
    /// The process recorded with `-p` exited.
    ProcessEnded,
    /// The duration given with `-d` has elapsed.
    TimeOver,
    /// The user interrupted gctrace.
    Interrupted,
    /// The user quit `gctrace top`.
    Left,
    /// Writing the trace failed.
    CannotWrite,
}

/// Exit code if gctrace attached to a process that never ran Python.
const NO_PYTHON: u8 = 1;

/// Records as configured. Returns gctrace's exit code, and the trace, if there is one. `ended` prints the verdict on
/// the trace.
///
/// # Errors
/// The recording cannot start, the command cannot be started, or the trace cannot be written.
pub fn run(
    config: &RecordConfig,
    ended: impl FnOnce(&Path),
) -> anyhow::Result<(u8, Option<PathBuf>)> {
    // Before any thread is created, so that all of them inherit the mask.
    let signals = Signals::block().context("cannot block signals")?;
    let mut recording = RecordingPlan::new(config)?.prepare(signals, None)?;
    recording.start()?;
    let why = loop {
        if let Some(why) = recording.turn()? {
            break why;
        }
    };
    let (closed, command) = recording.close(why);
    let (mut found_nothing, mut trace) = (false, None);
    if let Ok(outcome) = &closed {
        trace = outcome.trace.clone();
        found_nothing = matches!(config.target, RecordTarget::Process(_)) && !outcome.has_python;
        if config.verbosity > Verbosity::Quiet {
            outcome.sentences.iter().for_each(print::message);
        }
    }
    if let Some(trace) = &trace {
        ended(trace);
    }
    let code = match command.exit_code(why, closed)? {
        0 if found_nothing => NO_PYTHON,
        code => code,
    };
    Ok((code, trace))
}

/// A recording in progress, with everything that must be closed when it ends.
pub struct Recording<'a> {
    config: &'a RecordConfig,
    trace: RecordingTrace,
    /// The trace's file, until recording starts: if that fails, the previous trace is kept.
    new_trace: Option<NewTrace>,
    /// The same file, locked while it is recorded, so that readers know.
    lock: Option<File>,
    sources: RecordingSources,
    launch: Option<LaunchPlan>,
    attached: Option<u32>,
    deadline: Option<Instant>,
    /// The live view is shown: a failure to write the trace does not end the recording.
    is_shown: bool,
    write_error_reported: bool,
    command: CommandSupervisor,
    /// `None` if all Python programs of the machine are recorded: most end unseen by gctrace's clock.
    program_time: Option<ProgramTime>,
}

impl Recording<'_> {
    /// How the command will be started, if there is one; may be changed until then.
    pub fn launch_plan(&mut self) -> Option<&mut LaunchPlan> {
        self.launch.as_mut()
    }

    /// Starts the command, stopped at its exec, or attaches.
    pub fn start(&mut self) -> anyhow::Result<()> {
        let until = |duration| Instant::now().checked_add(duration);
        match (&self.config.target, &self.launch) {
            (RecordTarget::Process(pid), _) => {
                let Some(kernel) = &mut self.sources.kernel else {
                    anyhow::bail!("a running process can only be recorded by probes (--mode ebpf)");
                };
                kernel.attach(&mut self.trace, *pid, self.config.sources.follow)?;
                self.deadline = self.config.duration.and_then(until);
                self.attached = Some(*pid);
                self.program_time
                    .get_or_insert_default()
                    .begin(self.sources.pids().into_iter().chain([*pid]));
            }
            (RecordTarget::Command(_), Some(launch)) => {
                let launched = match &mut self.sources.kernel {
                    Some(kernel) => kernel.launch(launch)?,
                    None => launch.spawn()?,
                };
                if let Some(inprocess) = &mut self.sources.inprocess {
                    inprocess.launched(launched.pid());
                }
                self.command.started(launched)?;
                self.program_time = Some(ProgramTime::default());
                self.deadline = self.config.duration.and_then(until);
            }
            (RecordTarget::Everything, _) => {
                if let Some(kernel) = &mut self.sources.kernel {
                    tracing::warn!(
                        "probes are in every Python that runs: valgrind, or another tool that translates the code of \
                         one of them, ends it by SIGTRAP meanwhile"
                    );
                    kernel.attach_to_all();
                }
            }
            (RecordTarget::Command(_), None) => {}
        }
        if let (true, Some(kernel)) = (self.is_shown, &mut self.sources.kernel) {
            kernel.measure_cost(self.config);
        }
        self.name_trace();
        self.sample_gpus();
        Ok(())
    }

    /// Renames the trace to its final name and the previous trace to its backup name. A failure
    /// must not end the recording: the command is running.
    fn name_trace(&mut self) {
        let Some(new_trace) = self.new_trace.take() else { return };
        let file = new_trace.writer();
        match new_trace.keep() {
            Ok(Some(old)) => tracing::info!("the previous trace is now {}", old.display()),
            Err(error) => {
                let error = crate::text::chain(&error.into());
                self.trace.note(&format!("the trace keeps its temporary name: {error}"));
            }
            Ok(None) => {}
        }
        // No more than a hint: there are file systems without locks, and pipes.
        self.lock = file.ok().filter(|file| lock::take(file).unwrap_or(false));
    }

    /// Called only after the command has started: the driver's library may start a program of its own, and that would
    /// be taken for the command. A failure must not end the recording: the command is running.
    fn sample_gpus(&mut self) {
        let Some(hz) = self.config.sources.nvml_rate() else { return };
        match GpuSampling::start(hz) {
            Ok(sampling) => self.trace.gpus = Some(sampling),
            Err(error) => {
                self.trace.note(&format!("GPUs are not sampled: cannot start a thread: {error}"))
            }
        }
    }

    /// Waits for events and handles them; returns why the recording ends, if it does.
    pub fn turn(&mut self) -> anyhow::Result<Option<EndReason>> {
        self.wait()?;
        self.sources.poll(&mut self.trace)?;
        self.sources.tick(&mut self.trace);
        self.trace.tick();
        if let (Some(pid), Some(time)) = (self.attached, &mut self.program_time) {
            time.look(pid);
        }
        if self.trace.output.is_segment_due() {
            let lost = self.sources.tally(&self.trace)?.lost;
            self.trace.output.next_segment(&lost);
        }
        self.ended()
    }

    /// Sleeps until a wakeup by an event, a signal, the end of the command, or the next tick.
    fn wait(&self) -> anyhow::Result<()> {
        let sources = self.sources.wake_descriptors();
        let command = self.command().map(RunningCommand::as_fd);
        let descriptors = [self.command.as_fd()].into_iter().chain(sources).chain(command);
        let waited = wait::readable(descriptors, TICK_MS);
        waited.map(drop).context("cannot wait for events")
    }

    fn ended(&mut self) -> anyhow::Result<Option<EndReason>> {
        if self.command.handle_signals()? {
            return Ok(Some(EndReason::Interrupted));
        }
        if self.command.take_keep_signal() {
            self.trace.output.keep_segments("SIGUSR2");
        }
        if let Some(ended) = self.command.try_wait()? {
            return Ok(Some(EndReason::CommandEnded(ended)));
        }
        if let (Some(pid), Some(kernel)) = (self.attached, &self.sources.kernel)
            && !kernel.processes.contains(pid)
        {
            return Ok(Some(EndReason::ProcessEnded));
        }
        if matches!(self.deadline, Some(deadline) if Instant::now() >= deadline) {
            return Ok(Some(EndReason::TimeOver));
        }
        Ok(self.cannot_write())
    }

    /// With a live view, warns and goes on.
    fn cannot_write(&mut self) -> Option<EndReason> {
        let failure = self.trace.output.failure()?;
        if !self.is_shown {
            return Some(EndReason::CannotWrite);
        }
        if !self.write_error_reported {
            self.write_error_reported = true;
            let sentence = format!("the trace ends here: {failure}");
            self.trace.note(&sentence);
        }
        None
    }

    /// Handles a Ctrl-C that the terminal passed on as a character. Returns whether it ends the
    /// recording.
    pub fn interrupt(&mut self) -> anyhow::Result<Option<EndReason>> {
        let ends = self.command.interrupt()?;
        Ok(if ends { Some(EndReason::Interrupted) } else { None })
    }

    /// Losses and probe hits so far.
    pub fn tally(&mut self) -> anyhow::Result<RecordingLosses> {
        self.sources.tally(&self.trace)
    }

    /// The pids of live processes that run Python.
    pub fn python_processes(&self) -> Vec<u32> {
        self.sources.pids()
    }

    /// The command that gctrace started; `None` if it started none.
    pub fn command(&self) -> Option<&RunningCommand> {
        self.command.command()
    }

    /// Detaches the probes and closes the trace. The command keeps running.
    pub fn close(
        mut self,
        why: EndReason,
    ) -> (anyhow::Result<RecordingSummary>, CommandSupervisor) {
        // First, so that no program stays stopped during the rest: it can take long.
        let stopped = self.sources.stop(&mut self.trace);
        if let Some(gpus) = &mut self.trace.gpus {
            gpus.stop();
        }
        let last = stopped.and_then(|()| self.sources.poll(&mut self.trace));
        let command = self.command.command();
        let ended_ns = command.and_then(RunningCommand::used_ns);
        let running = if ended_ns.is_none() { command.map(RunningCommand::pid) } else { None };
        let running = running.into_iter().chain(self.sources.pids());
        let cpu_ns = self.program_time.and_then(|time| time.until_now(ended_ns, running));
        let closed = last.and_then(|()| shutdown::finish(self.trace, self.sources, why, cpu_ns));
        (closed, self.command)
    }
}

/// A source of events, collections, processes and GPU work: the common part of the kernel's probes and the injected
/// library.
pub(super) trait Source {
    /// Readable when events wait.
    fn wake_descriptor(&self) -> BorrowedFd<'_>;

    /// Drains the rings. Records that do not depend on another source are written at once.
    fn poll(&mut self, trace: &mut RecordingTrace) -> anyhow::Result<()>;

    /// Every record written before then has been handled, in ns of CLOCK_MONOTONIC; 0: none was.
    fn read_until_ns(&self) -> u64;

    /// Handles the polled events; all sources were polled.
    fn handle(&mut self, _trace: &mut RecordingTrace) {}

    /// Does the work due by the clock.
    fn tick(&mut self, _trace: &mut RecordingTrace) {}

    /// Pids of living processes that run Python, in no order.
    fn pids(&self) -> Vec<u32>;

    /// Adds losses, hits and cost so far.
    ///
    /// # Errors
    /// They cannot be read.
    fn tally(&mut self, trace: &RecordingTrace, losses: &mut RecordingLosses)
    -> anyhow::Result<()>;

    /// Writes the rest, and adds losses and cost to the end of the trace. `ended`: how the command ended, if it did.
    /// Returns the number of recorded processes that still run.
    ///
    /// # Errors
    /// The losses cannot be read.
    fn finish(
        self,
        trace: &mut RecordingTrace,
        end: &mut TraceEnd,
        ended: Option<CommandEnd>,
    ) -> anyhow::Result<usize>
    where
        Self: Sized;
}
