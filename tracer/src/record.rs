//! One recording: set up, wait for events and signals, end.
//!
//! Owns the order of things. What follows from an event is `record/watch.rs`; what is written,
//! `record/output.rs`.

mod allocations;
mod clock;
mod counters;
mod cuda;
mod ending;
mod frames;
mod header;
mod injected;
mod interpreters;
mod merge;
pub(crate) mod mode;
pub(crate) mod nvml;
mod opened;
mod output;
mod plan;
mod pressure;
mod processes;
mod sink;
mod stacks;
mod trace;
mod watch;

use crate::args::RecordConfig;
use crate::args::Target;
use crate::guardian::Guardian;
use crate::launch::Decision;
use crate::launch::Ended;
use crate::launch::FileError;
use crate::launch::Invoker;
use crate::launch::LaunchPlan;
use crate::launch::Launched;
use crate::launch::Policy;
use crate::launch::Signals;
use crate::launch::create_trace;
pub(crate) use crate::record::clock::monotonic_ns;
use crate::record::injected::Injected;
use crate::record::mode::Collections;
use crate::record::nvml::GpuSampling;
use crate::record::opened::Opened;
use crate::record::output::Output;
use crate::record::trace::Trace;
use crate::record::watch::Watch;
use anyhow::Context as _;
use nix::poll::PollFd;
use nix::poll::PollFlags;
use nix::poll::PollTimeout;
use std::os::fd::AsFd as _;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use std::time::Instant;

/// Most time between two looks at the ring of pauses, which does not wake us for each of them.
const TICK: Duration = Duration::from_millis(40);

/// Exit code of a recording that its user ended before the command did.
const INTERRUPTED: u8 = 130;

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// The command ended like this.
    CommandEnded(Ended),
    /// The process recorded with `-p` ended.
    ProcessEnded,
    /// The time given with `-d` is over.
    TimeOver,
    /// The user wants out.
    Interrupted,
    /// The trace cannot be written any more.
    CannotWrite,
}

/// Records as configured; the exit code of gctrace.
pub(crate) fn run(config: &RecordConfig) -> anyhow::Result<u8> {
    // Before any thread exists, so that all of them inherit the mask.
    let signals = Signals::block().context("cannot take signals")?;
    let mut recording = Recording::prepare(config, signals)?;
    recording.start(config)?;
    let why = recording.follow_events()?;
    recording.end(config, why)
}

struct Recording {
    trace: Trace,
    /// eBPF probes; `None` where everything is seen from within.
    probes: Option<Watch>,
    /// The injected library's rings; `None` where nothing is injected.
    injected: Option<Injected>,
    signals: Signals,
    policy: Policy,
    guardian: Option<Guardian>,
    launch: Option<LaunchPlan>,
    launched: Option<Launched>,
    attached: Option<u32>,
    deadline: Option<Instant>,
}

impl Recording {
    /// Everything that can fail before a program is touched.
    fn prepare(config: &RecordConfig, signals: Signals) -> anyhow::Result<Self> {
        let invoker = Invoker::detect();
        let mut launch = match &config.target {
            Target::Command(command) => Some(LaunchPlan::new(command, &invoker, config.as_root)),
            Target::Process { .. } | Target::Everything => None,
        };
        let decision = mode::decide(config, launch.as_ref())?;
        if let Target::Process { pid, .. } = &config.target {
            attachable(*pid)?;
        }
        let collections = decision.collections;
        let by_probes = collections.uses_probes();
        let opened = by_probes.then(|| Opened::open(config)).transpose()?;
        let mut injected = None;
        if let (Some(injection), Some(launch)) = (&decision.injection, &mut launch) {
            let asked = &injection.options;
            let started = Injected::start(&invoker, config.as_root, !by_probes, asked)?;
            let library = injection.library.display();
            launch
                .inject(injection, &started.rendezvous())
                .with_context(|| format!("cannot load {library} into the command"))?;
            started.let_in()?;
            injected = Some(started);
        }
        let mut header = header::header(config, collections, |name| match &launch {
            Some(launch) => launch.variable(name),
            None => None,
        });
        if let Some(opened) = &opened {
            opened.counting.describe(&mut header);
        }
        let created = |path| Ok::<_, FileError>((path, create_trace(path, &invoker)?));
        let trace = config.output.as_deref().map(created).transpose()?;
        let output = Output::begin(trace, &header, None)?;
        let mut trace = Trace::new(output, collections == Collections::Both);
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
            probes,
            injected,
            signals,
            policy: Policy::alone(),
            guardian,
            launch,
            launched: None,
            attached: None,
            deadline: None,
        })
    }

    /// Starts the command, held at its exec, or attaches.
    fn start(&mut self, config: &RecordConfig) -> anyhow::Result<()> {
        match (&config.target, &self.launch) {
            (Target::Process { pid, duration }, _) => {
                self.attach(*pid, config.follow)?;
                self.deadline = duration.and_then(|duration| Instant::now().checked_add(duration));
                self.attached = Some(*pid);
            }
            (Target::Command(_), Some(launch)) => {
                let launched = match &mut self.probes {
                    Some(probes) => probes.launch(launch)?,
                    None => launch.spawn()?,
                };
                if let Some(injected) = &mut self.injected {
                    injected.launched(launched.pid());
                }
                self.policy.command_started();
                self.launched = Some(launched);
            }
            (Target::Command(_), None) | (Target::Everything, _) => {}
        }
        self.sample_gpus(config)
    }

    /// Not before the command is started: the driver's library may start a program of its own, which
    /// would be taken for the command.
    fn sample_gpus(&mut self, config: &RecordConfig) -> anyhow::Result<()> {
        if let Some(hz) = config.nvml_hz {
            let sampling = GpuSampling::start(hz);
            self.trace.gpus = Some(sampling.context("cannot start the thread that asks NVML")?);
        }
        Ok(())
    }

    /// Attaches to a process and, until no new ones appear, its descendants.
    fn attach(&mut self, pid: u32, follow: bool) -> anyhow::Result<()> {
        let Some(probes) = &mut self.probes else {
            anyhow::bail!("a running process can be recorded by probes only (--mode ebpf)");
        };
        let trace = &mut self.trace;
        probes.attach_to(trace, pid, None)?;
        let mut known = 0;
        while follow && probes.processes.seen() > known {
            known = probes.processes.seen();
            for child in gctrace_probes::process::descendants(pid)? {
                let parent = gctrace_probes::process::status(child)
                    .ok()
                    .map(|status| status.parent);
                probes.attach_to(trace, child, parent)?;
            }
        }
        if probes.interpreters.count() == 0 {
            tracing::warn!(
                "process {pid} runs no CPython yet (gctrace doctor --python {pid} says more); waiting for one"
            );
        }
        Ok(())
    }

    /// Until something ends the recording.
    fn follow_events(&mut self) -> anyhow::Result<Why> {
        loop {
            self.wait()?;
            self.take_events()?;
            if let Some(probes) = &mut self.probes {
                probes.look_again(&mut self.trace);
                probes.tick(&mut self.trace);
            }
            self.trace.tick();
            if let Some(why) = self.ended()? {
                return Ok(why);
            }
        }
    }

    /// Sleeps until an event that wakes, a signal, the end of the command, or the next tick.
    fn wait(&self) -> anyhow::Result<()> {
        let mut descriptors = vec![readable(self.signals.as_fd())];
        let probes = self.probes.as_ref();
        descriptors.extend(probes.map(|probes| readable(probes.session.wake_descriptor())));
        descriptors.extend(
            self.injected
                .as_ref()
                .map(|injected| readable(injected.as_fd())),
        );
        descriptors.extend(
            self.launched
                .as_ref()
                .map(|launched| readable(launched.as_fd())),
        );
        let timeout = PollTimeout::try_from(TICK).unwrap_or(PollTimeout::ZERO);
        match nix::poll::poll(&mut descriptors, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno).context("cannot wait for events"),
        }
    }

    /// Polls the probes before the library's rings are read, and handles what they said after: a call that
    /// both tell of is then known to be CUPTI's.
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
            probes.told_by_cupti(cupti);
            probes.without_cupti(without);
            for event in events {
                probes.event(&mut self.trace, event);
            }
            probes.handled_all(&mut self.trace);
        }
        Ok(())
    }

    fn ended(&mut self) -> anyhow::Result<Option<Why>> {
        while let Some(received) = self.signals.next().context("cannot read signals")? {
            match self.policy.decide(received) {
                Decision::GoOn => {}
                Decision::EndRecording => return Ok(Some(Why::Interrupted)),
                Decision::Forward(signal) => {
                    if let Some(launched) = &self.launched {
                        launched
                            .send(signal)
                            .context("cannot hand a signal on to the command")?;
                    }
                }
            }
        }
        if let Some(launched) = &mut self.launched
            && let Some(ended) = launched.try_wait().context("cannot wait for the command")?
        {
            return Ok(Some(Why::CommandEnded(ended)));
        }
        if self
            .attached
            .zip(self.probes.as_ref())
            .is_some_and(|(pid, probes)| !probes.processes.contains(pid))
        {
            return Ok(Some(Why::ProcessEnded));
        }
        if self
            .deadline
            .is_some_and(|deadline| Instant::now() >= deadline)
        {
            return Ok(Some(Why::TimeOver));
        }
        Ok(self.trace.output.failure().map(|_| Why::CannotWrite))
    }

    /// Takes the probes out and closes the trace. A command that still runs is left alone, but
    /// where only the trace failed, gctrace stays with it to the end: its exit code is ours.
    fn end(mut self, config: &RecordConfig, why: Why) -> anyhow::Result<u8> {
        let probes = self.probes.as_mut();
        if let Some(allocations) = probes.and_then(|probes| probes.allocations.as_mut()) {
            allocations.stop();
        }
        if let Some(gpus) = &mut self.trace.gpus {
            gpus.stop();
        }
        self.take_events()?;
        let sources = (self.probes, self.injected);
        let result = ending::finish(self.trace, sources, why, config.verbosity);
        if let Some(guardian) = self.guardian.take() {
            guardian.dismiss();
        }
        match (why, self.launched) {
            (Why::CommandEnded(ended), _) => result.map(|()| ended.exit_code()),
            (Why::CannotWrite, Some(launched)) => {
                if let Err(error) = result {
                    tracing::error!("{error:#}");
                }
                tracing::warn!("recording has ended, the command goes on");
                stay(launched, &mut self.signals, &mut self.policy)
            }
            (Why::Interrupted, Some(_)) => result.map(|()| INTERRUPTED),
            _ => result.map(|()| 0),
        }
    }
}

/// Waits for the command as a recording would, without recording.
fn stay(mut launched: Launched, signals: &mut Signals, policy: &mut Policy) -> anyhow::Result<u8> {
    loop {
        let mut descriptors = [readable(launched.as_fd()), readable(signals.as_fd())];
        match nix::poll::poll(&mut descriptors, PollTimeout::NONE) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno).context("cannot wait for the command"),
        }
        if let Some(ended) = launched.try_wait().context("cannot wait for the command")? {
            return Ok(ended.exit_code());
        }
        while let Some(received) = signals.next().context("cannot read signals")? {
            match policy.decide(received) {
                Decision::GoOn => {}
                Decision::Forward(signal) => launched
                    .send(signal)
                    .context("cannot hand a signal on to the command")?,
                Decision::EndRecording => return Ok(INTERRUPTED),
            }
        }
    }
}

fn readable(descriptor: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::new(descriptor, PollFlags::POLLIN)
}

/// The process to attach to must be there, and visible.
fn attachable(pid: u32) -> anyhow::Result<()> {
    gctrace_probes::process::command_line(pid)
        .map(drop)
        .with_context(|| format!("cannot record process {pid}; ps -p {pid} shows whether it runs"))
}
