//! One recording: set up, wait for events and signals, end.
//!
//! Owns the order of the steps. `record/watch.rs` handles each event; `record/output.rs` writes.

mod allocations;
mod clock;
mod counters;
mod cuda_probes;
mod discovery;
mod examination;
mod frames;
mod header;
mod held_programs;
mod injected;
mod interpreters;
mod loaded_probes;
mod merge;
pub(crate) mod mode;
pub(crate) mod nvml;
mod output;
pub(crate) mod permission;
mod plan;
mod pressure;
mod probe_cost;
mod process_attacher;
mod recorded_processes;
mod shutdown;
mod sink;
mod stacks;
mod supervision;
mod trace;
mod watch;

use crate::args::RecordConfig;
use crate::args::RecordTarget;
use crate::args::Verbosity;
use crate::files::NewTrace;
use crate::files::expand;
use crate::guardian::Guardian;
use crate::launch::CommandEnd;
use crate::launch::Invoker;
use crate::launch::LaunchPlan;
use crate::launch::RunningCommand;
use crate::launch::Signals;
use crate::print;
use crate::privileges;
pub(crate) use crate::record::clock::monotonic_ns;
use crate::record::injected::InjectedProcesses;
use crate::record::loaded_probes::LoadedProbes;
use crate::record::mode::CollectionSource;
use crate::record::nvml::GpuSampling;
pub(crate) use crate::record::output::RecordObserver;
use crate::record::output::RecordOutput;
use crate::record::permission::AttachError;
use crate::record::probe_cost::MeasuredCost;
use crate::record::process_attacher::ProcessAttacher;
pub(crate) use crate::record::shutdown::Outcome;
pub(crate) use crate::record::shutdown::RecordingLosses;
pub(crate) use crate::record::supervision::CommandSupervisor;
use crate::record::trace::RecordingTrace;
use crate::record::watch::ProbeWatch;
use anyhow::Context as _;
use gctrace_event::TraceHeader;
use nix::poll::PollFd;
use nix::poll::PollFlags;
use nix::poll::PollTimeout;
use std::os::fd::AsFd as _;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

/// Longest interval between two polls of the ring of pauses, which does not wake us for each
/// record.
const TICK: Duration = Duration::from_millis(40);

/// How long to wait for the events of programs that are stopped when the recording ends: they
/// arrive within microseconds.
const RELEASE: Duration = Duration::from_millis(250);

/// Why a recording ended; the trace contains it in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
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

/// Extends a recording that is displayed while it runs.
pub(crate) trait LiveObserver {
    /// Called before the recording starts; no program was touched yet. Returns the observer that
    /// receives every record.
    fn starts(&mut self, header: &TraceHeader) -> anyhow::Result<Arc<dyn RecordObserver>>;

    /// Redirects the command's standard streams.
    fn redirect(&mut self, launch: &mut LaunchPlan, invoker: &Invoker) -> anyhow::Result<()>;
}

/// Exit code if gctrace attached to a process that never ran Python.
const NO_PYTHON: u8 = 1;

/// Records as configured and returns gctrace's exit code.
pub(crate) fn run(config: &RecordConfig) -> anyhow::Result<u8> {
    // Before any thread is created, so that all of them inherit the mask.
    let signals = Signals::block().context("cannot block signals")?;
    let mut recording = Recording::prepare(config, signals, None)?;
    recording.start(config)?;
    let why = loop {
        if let Some(why) = recording.turn()? {
            break why;
        }
    };
    let (closed, command) = recording.close(why);
    let mut found_nothing = false;
    if let Ok(outcome) = &closed {
        found_nothing =
            matches!(config.target, RecordTarget::Process { .. }) && !outcome.has_python;
        if config.verbosity > Verbosity::Quiet {
            outcome.sentences.iter().for_each(print::message);
        }
    }
    Ok(match command.exit_code(why, closed)? {
        0 if found_nothing => NO_PYTHON,
        code => code,
    })
}

/// A recording in progress, with everything that must be closed when it ends.
pub(crate) struct Recording {
    trace: RecordingTrace,
    /// The trace's file, until recording starts: if that fails, the previous trace is kept.
    new_trace: Option<NewTrace>,
    /// eBPF probes; `None` if everything is recorded in-process.
    probes: Option<ProbeWatch>,
    /// The injected library's rings; `None` without injection.
    injected: Option<InjectedProcesses>,
    /// Set if all Python processes are recorded.
    newcomers: Option<ProcessAttacher>,
    guardian: Option<Guardian>,
    launch: Option<LaunchPlan>,
    attached: Option<u32>,
    deadline: Option<Instant>,
    /// The live view is shown: a failure to write the trace does not end the recording.
    is_shown: bool,
    /// What a probe costs, measured for the live view.
    cost: Option<MeasuredCost>,
    write_error_reported: bool,
    command: CommandSupervisor,
}

impl Recording {
    /// Does everything that can fail before a program is touched.
    pub(crate) fn prepare(
        config: &RecordConfig,
        signals: Signals,
        mut observer: Option<&mut dyn LiveObserver>,
    ) -> anyhow::Result<Self> {
        let invoker = Invoker::detect();
        let mut launch = match &config.target {
            RecordTarget::Command(command) => {
                Some(LaunchPlan::new(command, &invoker, config.as_root))
            }
            RecordTarget::Process { .. } | RecordTarget::Everything => None,
        };
        let decision = mode::decide(config, launch.as_ref())?;
        if let RecordTarget::Process { pid, .. } = &config.target {
            attachable(*pid)?;
        }
        let collections = decision.collections;
        let by_probes = collections.uses_probes();
        if let (true, Some(why)) = (by_probes, privileges::too_few_files()) {
            anyhow::bail!("cannot record from the kernel: {why}");
        }
        let opened = by_probes.then(|| LoadedProbes::open(config)).transpose()?;
        let mut injected = None;
        if let (Some(injection), Some(launch)) = (&decision.injection, &mut launch) {
            let asked = &injection.options;
            let started = InjectedProcesses::start(&invoker, config.as_root, !by_probes, asked)?;
            let library = injection.library.display();
            launch
                .inject(injection, &started.rendezvous())
                .with_context(|| format!("cannot inject {library} into the command"))?;
            started.hand_over()?;
            injected = Some(started);
        }
        let mut header = header::header(config, collections, |name| match &launch {
            Some(launch) => launch.variable(name),
            None => None,
        });
        if let Some(opened) = &opened {
            opened.counting.describe(&mut header);
        }
        let live = match &mut observer {
            Some(observer) => Some(observer.starts(&header)?),
            None => None,
        };
        let is_shown = live.is_some();
        let option = if is_shown { "--record" } else { "-o" };
        let words = launch.as_ref().map(LaunchPlan::words).unwrap_or_default();
        let created = |pattern| {
            let path = expand(pattern, header::name_facts(&header), option)?;
            NewTrace::create(&path, &invoker, &words, option)
        };
        let new_trace = config.output.as_deref().map(created).transpose()?;
        if let (Some(true), Some(launch)) = (new_trace.as_ref().map(NewTrace::streams), &mut launch)
        {
            launch
                .redirect_stdout()
                .context("the command's standard output")?;
        }
        let output = RecordOutput::start(new_trace.as_ref(), &header, live)?;
        let mut trace = RecordingTrace::new(output, collections == CollectionSource::Both);
        if let (Some(observer), Some(launch)) = (observer, &mut launch) {
            observer.redirect(launch, &invoker)?;
        }
        if let Some(opening) = &decision.opening {
            tracing::warn!("{opening}");
        }
        for note in &decision.notes {
            trace.note(note);
        }
        let (mut probes, mut guardian) = (None, None);
        if let Some(opened) = opened {
            let (watch, started) = opened.into_watch(config, &invoker, &mut trace)?;
            (probes, guardian) = (Some(watch), started);
            let loads = injected.as_ref().and(launch.as_ref());
            let library = loads.and_then(LaunchPlan::cuda_injection);
            if let (Some(probes), Some(library)) = (&mut probes, library) {
                probes.leave_calls_to(library.to_owned());
            }
        }
        for note in launch.iter().flat_map(LaunchPlan::notes) {
            tracing::warn!("{note}");
        }
        Ok(Self {
            trace,
            new_trace,
            probes,
            injected,
            newcomers: None,
            guardian,
            launch,
            attached: None,
            deadline: None,
            is_shown,
            cost: None,
            write_error_reported: false,
            command: CommandSupervisor::new(signals),
        })
    }

    /// Starts the command, stopped at its exec, or attaches.
    pub(crate) fn start(&mut self, config: &RecordConfig) -> anyhow::Result<()> {
        match (&config.target, &self.launch) {
            (RecordTarget::Process { pid, duration }, _) => {
                self.attach(*pid, config.follow)?;
                self.deadline = duration.and_then(|duration| Instant::now().checked_add(duration));
                self.attached = Some(*pid);
            }
            (RecordTarget::Command(_), Some(launch)) => {
                let launched = match &mut self.probes {
                    Some(probes) => probes.launch(launch)?,
                    None => launch.spawn()?,
                };
                if let Some(injected) = &mut self.injected {
                    injected.launched(launched.pid());
                }
                self.command.started(launched)?;
                let until = |duration| Instant::now().checked_add(duration);
                self.deadline = config.duration.and_then(until);
            }
            (RecordTarget::Everything, _) => self.newcomers = Some(ProcessAttacher::new()),
            (RecordTarget::Command(_), None) => {}
        }
        if self.is_shown && self.probes.is_some() {
            match MeasuredCost::start(config) {
                Ok(cost) => self.cost = Some(cost),
                Err(error) => tracing::info!(
                    "the overhead of probes is unknown: cannot start a thread: {error}"
                ),
            }
        }
        self.name_trace();
        self.sample_gpus(config);
        Ok(())
    }

    /// Renames the trace to its final name and the previous trace to its backup name. A failure
    /// must not end the recording: the command is running.
    fn name_trace(&mut self) {
        match self.new_trace.take().map(NewTrace::keep) {
            Some(Ok(Some(old))) => tracing::info!("the previous trace is now {}", old.display()),
            Some(Err(error)) => {
                let error = crate::text::chain(&error.into());
                let message = format!("the trace keeps its temporary name: {error}");
                tracing::warn!("{message}");
                self.trace.note(&message);
            }
            Some(Ok(None)) | None => {}
        }
    }

    /// Called only after the command has started: the driver's library may start a program of its
    /// own, which would be taken for the command. A failure must not end the recording: the command
    /// is running.
    fn sample_gpus(&mut self, config: &RecordConfig) {
        let Some(hz) = config.nvml_hz else {
            return;
        };
        match GpuSampling::start(hz) {
            Ok(sampling) => self.trace.gpus = Some(sampling),
            Err(error) => {
                let message = format!("GPUs are not sampled: cannot start a thread: {error}");
                tracing::warn!("{message}");
                self.trace.note(&message);
            }
        }
    }

    /// Attaches to a process and to its descendants, until no new ones appear; skips gctrace and
    /// its own descendants.
    fn attach(&mut self, pid: u32, follow: bool) -> anyhow::Result<()> {
        let Some(probes) = &mut self.probes else {
            anyhow::bail!("a running process can only be recorded by probes (--mode ebpf)");
        };
        let trace = &mut self.trace;
        probes.attach_to(trace, pid, None)?;
        let mut known = 0;
        while follow && probes.processes.seen() > known {
            known = probes.processes.seen();
            let own = gctrace_probes::proc_status::descendants(std::process::id())?;
            let descendants = gctrace_probes::proc_status::descendants(pid)?;
            for child in descendants.into_iter().filter(|pid| !own.contains(pid)) {
                let parent = gctrace_probes::proc_status::status(child)
                    .ok()
                    .map(|status| status.parent);
                match probes.attach_to(trace, child, parent) {
                    Err(AttachError::Forbidden(forbidden)) => probes.forbidden(trace, &forbidden),
                    other => other?,
                }
            }
        }
        if probes.interpreters.count() == 0 {
            tracing::warn!(
                "process {pid} does not run CPython yet, waiting for it (details: gctrace doctor --python {pid})"
            );
        }
        Ok(())
    }

    /// Waits for events and handles them; returns why the recording ends, if it does.
    pub(crate) fn turn(&mut self) -> anyhow::Result<Option<EndReason>> {
        self.wait()?;
        self.take_events()?;
        if let Some(probes) = &mut self.probes {
            if let Some(newcomers) = &mut self.newcomers {
                newcomers.scan(probes, &mut self.trace);
            }
            probes.rescan(&mut self.trace);
            probes.tick(&mut self.trace);
        }
        self.trace.tick();
        self.ended()
    }

    /// Sleeps until a wakeup by an event, a signal, the end of the command, or the next tick.
    fn wait(&self) -> anyhow::Result<()> {
        let mut descriptors = vec![readable(self.command.as_fd())];
        let probes = self.probes.as_ref();
        descriptors.extend(probes.map(|probes| readable(probes.session.wake_descriptor())));
        descriptors.extend(
            self.injected
                .as_ref()
                .map(|injected| readable(injected.as_fd())),
        );
        descriptors.extend(self.command().map(|launched| readable(launched.as_fd())));
        let timeout = PollTimeout::try_from(TICK).unwrap_or(PollTimeout::ZERO);
        match nix::poll::poll(&mut descriptors, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno).context("cannot wait for events"),
        }
    }

    /// Polls the probes before it reads the library's rings, and handles the probes' events after:
    /// a call that both report is then known to be CUPTI's.
    fn take_events(&mut self) -> anyhow::Result<()> {
        let events = match &mut self.probes {
            Some(probes) => probes.poll()?,
            None => Vec::new(),
        };
        let (mut cupti, mut without) = (Vec::new(), Vec::new());
        if let Some(injected) = &mut self.injected {
            injected.tick(&mut self.trace);
            cupti = injected.take_cupti();
            without = injected.take_without_cupti();
        }
        if let Some(probes) = &mut self.probes {
            probes.reported_by_cupti(cupti);
            probes.without_cupti(without);
            for event in events {
                probes.event(&mut self.trace, event);
            }
            probes.handled_all(&mut self.trace);
        }
        Ok(())
    }

    /// From here on no program is stopped; stopped ones are resumed.
    fn resume_stopped(&mut self) -> anyhow::Result<()> {
        if let Some(probes) = &mut self.probes {
            probes.end_stops();
        }
        let begin = Instant::now();
        loop {
            self.take_events()?;
            let held = self
                .probes
                .as_ref()
                .is_some_and(|probes| probes.holding.resume());
            if !held || begin.elapsed() >= RELEASE {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn ended(&mut self) -> anyhow::Result<Option<EndReason>> {
        if self.command.handle_signals()? {
            return Ok(Some(EndReason::Interrupted));
        }
        if let Some(ended) = self.command.try_wait()? {
            return Ok(Some(EndReason::CommandEnded(ended)));
        }
        if self
            .attached
            .zip(self.probes.as_ref())
            .is_some_and(|(pid, probes)| !probes.processes.contains(pid))
        {
            return Ok(Some(EndReason::ProcessEnded));
        }
        if self
            .deadline
            .is_some_and(|deadline| Instant::now() >= deadline)
        {
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
    pub(crate) fn interrupt(&mut self) -> anyhow::Result<Option<EndReason>> {
        let ends = self.command.interrupt()?;
        Ok(ends.then_some(EndReason::Interrupted))
    }

    /// Losses and probe hits so far.
    pub(crate) fn tally(&mut self) -> anyhow::Result<RecordingLosses> {
        let cost = self.cost.as_mut().and_then(MeasuredCost::known);
        shutdown::tally(
            &self.trace,
            self.probes.as_ref(),
            self.injected.as_ref(),
            cost,
        )
    }

    /// The pids of live processes that run Python: as the probes see them, or, without probes,
    /// those that handed over a ring.
    pub(crate) fn python_processes(&self) -> Vec<u32> {
        match (&self.probes, &self.injected) {
            (Some(probes), _) => probes.processes.with_interpreter().collect(),
            (None, Some(injected)) => injected.pids().collect(),
            (None, None) => Vec::new(),
        }
    }

    /// The command that gctrace started; `None` if it started none.
    pub(crate) fn command(&self) -> Option<&RunningCommand> {
        self.command.command()
    }

    /// Detaches the probes and closes the trace. The command keeps running.
    pub(crate) fn close(mut self, why: EndReason) -> (anyhow::Result<Outcome>, CommandSupervisor) {
        // First, so that no program stays stopped during the rest, which can take long.
        let released = self.resume_stopped();
        let probes = self.probes.as_mut();
        if let Some(allocations) = probes.and_then(|probes| probes.allocations.as_mut()) {
            allocations.stop();
        }
        if let Some(gpus) = &mut self.trace.gpus {
            gpus.stop();
        }
        let last = released.and_then(|()| self.take_events());
        let sources = (self.probes, self.injected);
        let closed = last.and_then(|()| shutdown::finish(self.trace, sources, why));
        drop(self.guardian);
        (closed, self.command)
    }
}

fn readable(descriptor: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::new(descriptor, PollFlags::POLLIN)
}

/// Checks that the process to attach to exists and may be inspected.
fn attachable(pid: u32) -> anyhow::Result<()> {
    anyhow::ensure!(
        pid != std::process::id(),
        "process {pid} is gctrace itself; ps -ef lists processes"
    );
    let path = format!("/proc/{pid}");
    anyhow::ensure!(
        std::path::Path::new(&path).exists(),
        "no process {pid} (ps -ef lists them)"
    );
    anyhow::ensure!(
        !is_kernel_thread(pid),
        "process {pid} is a kernel thread and never runs Python"
    );
    gctrace_probes::proc_status::command_line(pid)
        .map(drop)
        .with_context(|| format!("cannot record process {pid}"))?;
    if privileges::has_more_rights_than_its_user() {
        permission::check(pid)?;
    }
    Ok(())
}

/// Reads the flags, field 9 of proc_pid_stat(5); `PF_KTHREAD` from include/linux/sched.h.
fn is_kernel_thread(pid: u32) -> bool {
    const PF_KTHREAD: u64 = 0x0020_0000;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let flags = fields.split_whitespace().nth(6);
    flags
        .and_then(|flags| flags.parse::<u64>().ok())
        .is_some_and(|flags| flags & PF_KTHREAD != 0)
}
