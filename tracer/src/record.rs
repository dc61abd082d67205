//! One recording: set up, wait for events and signals, end.
//!
//! Owns the order of things. What follows from an event is `record/watch.rs`; what is written,
//! `record/output.rs`.

mod allocations;
mod clock;
mod counters;
mod cuda;
mod ending;
mod header;
mod interpreters;
pub(crate) mod mode;
pub(crate) mod nvml;
mod output;
mod plan;
mod pressure;
mod processes;
mod stacks;
mod watch;

use crate::args::CounterChoice;
use crate::args::RecordConfig;
use crate::args::Target;
use crate::guardian::Guardian;
use crate::launch::Cache;
use crate::launch::Decision;
use crate::launch::Ended;
use crate::launch::Invoker;
use crate::launch::LaunchPlan;
use crate::launch::Launched;
use crate::launch::Policy;
use crate::launch::Signals;
use crate::launch::create_trace;
use crate::record::allocations::AllocationWindows;
use crate::record::counters::Counting;
use crate::record::cuda::CudaProbes;
use crate::record::interpreters::Interpreters;
use crate::record::nvml::GpuSampling;
use crate::record::output::Output;
use crate::record::watch::Watch;
use anyhow::Context as _;
use gctrace_ebpf::Config;
use gctrace_ebpf::HeldProcesses;
use gctrace_ebpf::KernelSupport;
use gctrace_ebpf::Session;
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
    watch: Watch,
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
        let launch = match &config.target {
            Target::Command(command) => Some(LaunchPlan::new(command, &invoker, config.as_root)),
            Target::Process { pid, .. } => {
                attachable(*pid)?;
                None
            }
        };
        let decision = mode::decide(config, launch.as_ref())?;
        let support = KernelSupport::probe();
        let mut counting = count(&config.counters);
        let mut session = Session::open(
            Config {
                follow_children: config.follow,
                ring_bytes: config.ring_size,
                stack_depth: config.stack_depth,
                counters: counting.set(),
            },
            &support,
        )?;
        counting.open(&session);
        let arenas = session.count_arenas();
        let mut header = header::header(config, |name| match &launch {
            Some(launch) => launch.variable(name),
            None => None,
        });
        header.mode = Some(decision.collections.as_str().to_owned());
        counting.describe(&mut header);
        let file = create_trace(&config.output, &invoker)?;
        let output = Output::begin(&config.output, file, &header)?;
        let held = session.held()?;
        let guardian = start_guardian(&held);
        let mut watch = Watch::new(
            session,
            Interpreters::new(Cache::open(&invoker)),
            output,
            held,
            counting,
        );
        watch.cuda = CudaProbes::start(config.cuda, config.ring_size, &mut watch.session);
        if let Err(error) = arenas {
            watch.degraded(error);
        }
        if let Some(budget) = config.alloc_budget {
            let shared = watch.session.shared_maps()?;
            let windows = AllocationWindows::start(budget, config.stack_depth, shared);
            watch.allocations =
                Some(windows.context("cannot start the thread that counts allocations")?);
        }
        for note in launch.iter().flat_map(LaunchPlan::notes) {
            tracing::warn!("{note}");
        }
        Ok(Self {
            watch,
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
                self.watch.session.record_own_children(true);
                let launched = launch.spawn();
                self.watch.session.record_own_children(false);
                let launched = launched?;
                self.watch.launched(launched.pid());
                self.policy.command_started();
                self.launched = Some(launched);
            }
            (Target::Command(_), None) => {}
        }
        self.sample_gpus(config)
    }

    /// Not before the command is started: the driver's library may start a program of its own, which
    /// would be taken for the command.
    fn sample_gpus(&mut self, config: &RecordConfig) -> anyhow::Result<()> {
        if let Some(hz) = config.nvml_hz {
            let sampling = GpuSampling::start(hz);
            self.watch.gpus = Some(sampling.context("cannot start the thread that asks NVML")?);
        }
        Ok(())
    }

    /// Attaches to a process and, until no new ones appear, its descendants.
    fn attach(&mut self, pid: u32, follow: bool) -> anyhow::Result<()> {
        self.watch.attach_to(pid, None)?;
        let mut known = 0;
        while follow && self.watch.processes.seen() > known {
            known = self.watch.processes.seen();
            for child in gctrace_probes::process::descendants(pid)? {
                let parent = gctrace_probes::process::status(child)
                    .ok()
                    .map(|status| status.parent);
                self.watch.attach_to(child, parent)?;
            }
        }
        if self.watch.interpreters.count() == 0 {
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
            self.watch.look_again();
            self.watch.tick();
            if let Some(why) = self.ended()? {
                return Ok(why);
            }
        }
    }

    /// Sleeps until an event that wakes, a signal, the end of the command, or the next tick.
    fn wait(&self) -> anyhow::Result<()> {
        let rings = self.watch.session.wake_descriptor();
        let mut descriptors = vec![readable(rings), readable(self.signals.as_fd())];
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

    fn take_events(&mut self) -> anyhow::Result<()> {
        for event in self.watch.session.poll(Duration::ZERO)? {
            self.watch.event(event);
        }
        self.watch.handled_all();
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
            .is_some_and(|pid| !self.watch.processes.contains(pid))
        {
            return Ok(Some(Why::ProcessEnded));
        }
        if self
            .deadline
            .is_some_and(|deadline| Instant::now() >= deadline)
        {
            return Ok(Some(Why::TimeOver));
        }
        Ok(self.watch.output.failure().map(|_| Why::CannotWrite))
    }

    /// Takes the probes out and closes the trace. A command that still runs is left alone, but
    /// where only the trace failed, gctrace stays with it to the end: its exit code is ours.
    fn end(mut self, config: &RecordConfig, why: Why) -> anyhow::Result<u8> {
        if let Some(allocations) = &mut self.watch.allocations {
            allocations.stop();
        }
        if let Some(gpus) = &mut self.watch.gpus {
            gpus.stop();
        }
        self.take_events()?;
        let result = ending::finish(self.watch, why, config.verbosity);
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

/// What is missing of counters that were asked for by name is a warning; the default list is longer
/// than what many machines have.
fn count(asked: &CounterChoice) -> Counting {
    let counting = Counting::examine(asked.counters());
    for sentence in counting.missing() {
        match asked {
            CounterChoice::Default => tracing::info!("{sentence}"),
            CounterChoice::Named(_) => tracing::warn!("{sentence}"),
        }
    }
    counting
}

fn readable(descriptor: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::new(descriptor, PollFlags::POLLIN)
}

/// Without a guardian a recording still works; only a killed gctrace could leave a process held.
fn start_guardian(held: &HeldProcesses) -> Option<Guardian> {
    Guardian::start(held.descriptor())
        .inspect_err(|error| {
            tracing::warn!("no guardian ({error:#}): should gctrace be killed while it holds a program, continue that with kill -CONT");
        })
        .ok()
}

/// The process to attach to must be there, and visible.
fn attachable(pid: u32) -> anyhow::Result<()> {
    gctrace_probes::process::command_line(pid)
        .map(drop)
        .with_context(|| format!("cannot record process {pid}; ps -p {pid} shows whether it runs"))
}
