//! The kernel's probes: one of the two sources of a recording.
//!
//! Owns the state that probes need between events, and their polling, attaching and detaching.
//! `kernel/process_events.rs` handles the events of processes.

mod allocations;
mod counters;
mod cuda_probes;
mod discovery;
mod garbage;
mod interpreters;
mod loaded_probes;
mod loops;
pub mod permission;
mod pressure;
mod probe_cost;
mod process_attacher;
mod process_events;
mod recorded_processes;
mod samples;
mod stacks;
mod stopped_programs;
mod totals;

use crate::args::RecordConfig;
use crate::clock;
use crate::guardian::Guardian;
use crate::launch::{CommandEnd, LaunchPlan, RunningCommand};
use crate::platform::has_more_rights_than_its_user;
use crate::record::Source;
use crate::record::examination::Unexamined;
use crate::record::kernel::allocations::AllocationWindows;
use crate::record::kernel::counters::CounterRecording;
use crate::record::kernel::cuda_probes::CudaProbes;
use crate::record::kernel::garbage::GarbageKinds;
use crate::record::kernel::interpreters::{InterpreterIndex, ProbedInterpreters};
pub(super) use crate::record::kernel::loaded_probes::LoadedProbes;
use crate::record::kernel::permission::AttachError;
use crate::record::kernel::pressure::{ArenaSize, PressureIntervals};
use crate::record::kernel::probe_cost::MeasuredCost;
use crate::record::kernel::process_attacher::ProcessAttacher;
use crate::record::kernel::recorded_processes::RecordedProcesses;
use crate::record::kernel::samples::CpuSampling;
use crate::record::kernel::stacks::StackResolver;
use crate::record::kernel::stopped_programs::{StoppedPrograms, is_running};
use crate::record::losses::RecordingLosses;
use crate::record::trace::RecordingTrace;
use gctrace_ebpf::{BpfSession, FileKey, KernelEvent};
use gctrace_event::{ProcessOrigin, TraceEnd};
use gctrace_probes::proc_status;
use gctrace_ring::Absence;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

/// Maximum time before the start of a command to spend on probing the interpreters that it names.
const BEFORE_START: Duration = Duration::from_millis(500);

/// The probes of a recording, and their state.
pub struct KernelSource {
    session: BpfSession,
    /// Executables and libpythons examined so far, with the probes placed in them.
    interpreters: ProbedInterpreters,
    /// The recorded processes.
    pub processes: RecordedProcesses,
    stacks: StackResolver,
    pressures: PressureIntervals,
    garbage: GarbageKinds,
    /// The thread that opens allocation windows; `None` without `--alloc`.
    allocations: Option<AllocationWindows>,
    /// Probes on CUDA, NCCL and torch.
    cuda: Option<CudaProbes>,
    counting: CounterRecording,
    /// `--sample`.
    samples: Option<CpuSampling>,
    /// Programs that wait for their probes.
    pub stopped: StoppedPrograms,
    /// The program of each process.
    programs: HashMap<u32, FileKey>,
    /// The interpreter of a program when it was first seen. It may use another libpython the next
    /// time, so this is only assumed until its memory map is examined.
    usual: HashMap<(u64, u64), InterpreterIndex>,
    /// The command, a child of gctrace: recording starts with it.
    launched: Option<u32>,
    /// Mapped files named like a libpython, and the interpreter in each.
    libraries: HashMap<(u64, u64), Option<InterpreterIndex>>,
    /// Set if all Python processes are recorded.
    newcomers: Option<ProcessAttacher>,
    /// Time per hit of a probe, measured for the live view.
    cost: Option<MeasuredCost>,
    /// Events of the last poll.
    polled: Vec<KernelEvent>,
    /// When that was, in ns of CLOCK_MONOTONIC.
    read_until_ns: u64,
    /// Lost collections, by place, as far as they were reported while recording.
    reported_lost: BTreeMap<String, u64>,
    /// Dropped last: it resumes programs that are stopped until the probes are gone.
    guardian: Option<Guardian>,
}

impl KernelSource {
    /// The recording ends: no program is stopped from here on.
    pub fn end_stops(&mut self) {
        self.stopped.end(&mut self.session);
    }

    /// Ends the thread that opens allocation windows; its counts are written at the end.
    pub fn end_windows(&mut self) {
        if let Some(allocations) = &mut self.allocations {
            allocations.stop();
        }
    }

    /// Probes the interpreters that the command names, so that it need not wait for that.
    fn arm_named(&mut self, plan: &LaunchPlan) {
        let begin = Instant::now();
        for program in plan.named_interpreters() {
            if begin.elapsed() >= BEFORE_START {
                break;
            }
            let Some((file, index)) = self.interpreters.arm_named(&mut self.session, &program)
            else {
                continue;
            };
            let Ok(found) = std::fs::metadata(&file) else {
                continue;
            };
            let key = FileKey::of(found.dev(), found.ino());
            if file == program {
                self.usual.insert((key.inode, key.device), index);
            } else {
                self.libraries.insert((key.inode, key.device), Some(index));
            }
            self.known(key);
        }
    }

    /// Starts the command; it is stopped at its exec until its probes are placed.
    pub fn launch(&mut self, plan: &LaunchPlan) -> anyhow::Result<RunningCommand> {
        // Probes in the command alone wait for its process, stopped at its exec. A command that is no interpreter
        // starts one.
        let alone = self.session.may_probe_one() && plan.is_interpreter();
        if !alone {
            self.arm_named(plan);
        }
        self.stopped.allow(&mut self.session);
        self.session.record_own_children(true);
        let launched = plan.spawn();
        self.session.record_own_children(false);
        let launched = launched?;
        self.launched = Some(launched.pid());
        if alone {
            self.session.probe_only(launched.pid());
        }
        Ok(launched)
    }

    /// Records all Python processes, each from when it is found.
    pub fn attach_to_all(&mut self) {
        self.newcomers = Some(ProcessAttacher::new());
    }

    /// Measures the cost of a probe while the recording goes on.
    pub fn measure_cost(&mut self, config: &RecordConfig) {
        match MeasuredCost::start(config) {
            Ok(cost) => self.cost = Some(cost),
            Err(error) => {
                tracing::info!("the overhead of probes is unknown: cannot start a thread: {error}");
            }
        }
    }

    /// Attaches to a process and, with `follow`, to its descendants, until no new ones appear; skips
    /// gctrace and its own descendants.
    pub fn attach(
        &mut self,
        trace: &mut RecordingTrace,
        pid: u32,
        follow: bool,
    ) -> anyhow::Result<()> {
        if !follow || stopped_programs::children_can_stop(pid) {
            self.session.probe_only(pid);
            // Its children, until they have probes.
            self.stopped.allow(&mut self.session);
        }
        self.attach_to(trace, pid, None)?;
        let mut known = 0;
        while follow && self.processes.seen() > known {
            known = self.processes.seen();
            let descendants = proc_status::descendants(pid)?;
            // Read last: the guardian may fork meanwhile.
            let helpers = proc_status::descendants(std::process::id())?;
            for child in descendants {
                if helpers.contains(&child) {
                    continue;
                }
                self.probe_everywhere(trace);
                let parent = proc_status::status(child).ok().and_then(|status| status.parent);
                match self.attach_to(trace, child, parent) {
                    Err(AttachError::Forbidden(forbidden)) => self.forbidden(trace, &forbidden),
                    other => other?,
                }
            }
        }
        if trace.examination.why_unexamined(pid) == Some(Unexamined::Absent(Absence::PyPy)) {
            tracing::warn!("process {pid} {}", Unexamined::Absent(Absence::PyPy));
        } else if self.interpreters.count() == 0 {
            tracing::warn!(
                "process {pid} does not run CPython yet, waiting for it (details: gctrace doctor --python {pid})"
            );
        }
        Ok(())
    }

    /// Starts recording a running process, and probes its files.
    fn attach_to(
        &mut self,
        trace: &mut RecordingTrace,
        pid: u32,
        parent: Option<u32>,
    ) -> Result<(), AttachError> {
        // If gctrace were recorded, it would stop its own children.
        if self.processes.contains(pid) || pid == std::process::id() {
            return Ok(());
        }
        // Followed before the probes are placed, so that a child forked in between is followed too.
        self.session.follow(pid)?;
        if !is_running(pid) {
            // It exited before; no event will report that.
            self.session.unfollow(pid);
            return Ok(());
        }
        if let Err(forbidden) = permission::check(pid)
            && has_more_rights_than_its_user()
        {
            self.session.unfollow(pid);
            return Err(forbidden.into());
        }
        self.counting.start_process(&self.session, pid, clock::monotonic_ns());
        self.processes.add(pid, parent, ProcessOrigin::Attached, clock::monotonic_ns());
        let armed = self.interpreters.arm_mapped(&mut self.session, pid);
        let found = (armed.is_some(), self.interpreters.take_unprobed(pid));
        trace.examination.started(pid, None);
        trace.examination.record_examined(pid, found);
        self.processes.set_interpreter(
            pid,
            armed.map(|(index, _)| index),
            Some(clock::monotonic_ns()),
        );
        if let Some(samples) = &mut self.samples {
            let resolution = armed.and_then(|(index, _)| self.interpreters.resolution(index));
            samples.begin_waits(
                (pid, self.session.runtime(pid)),
                resolution.map(|(_, resolution)| resolution),
                &mut trace.frames,
                &mut trace.output,
            );
        }
        if let Some(cuda) = &mut self.cuda {
            cuda.attach_to(&self.session, pid, &mut trace.calls);
        }
        self.announce(trace, pid);
        Ok(())
    }

    /// Stops recording a process: everything but the table of processes and its examination.
    fn ended(&mut self, trace: &mut RecordingTrace, pid: u32, at_ns: u64) {
        self.programs.remove(&pid);
        if let Some(allocations) = &mut self.allocations {
            allocations.ended(pid);
        }
        if let Some(cuda) = &mut self.cuda {
            // Its calls are still in their ring.
            cuda.tick(&self.session, &mut self.processes, trace);
            cuda.ended(pid, &mut trace.output);
        }
        trace.calls.ended(pid);
        if let Some(samples) = &mut self.samples {
            samples.ended(pid);
        }
        self.stacks.ended(pid);
        self.garbage.ended(pid);
        self.pressures.ended(pid, at_ns);
        self.counting.ended(&self.session, pid, at_ns, &self.processes, &mut trace.output);
    }

    fn known(&mut self, file: FileKey) {
        if let Err(error) = self.session.mark_known(file) {
            tracing::warn!("{error}: programs will be stopped at exec more than once");
        }
    }

    /// Writes processes with a changed title again; checks `all`, or only the ones due.
    fn retitle(&mut self, trace: &mut RecordingTrace, all: bool) {
        for pid in self.processes.retitled(all) {
            self.processes.announce(pid, &self.interpreters, &mut trace.output);
        }
    }

    /// Looks for interpreters that were mapped after their program started.
    fn rescan(&mut self, trace: &mut RecordingTrace) {
        self.retitle(trace, false);
        for pid in self.processes.due() {
            let Some((index, late)) = self.interpreters.arm_mapped(&mut self.session, pid) else {
                if let Some(why) = self.interpreters.take_unprobed(pid) {
                    trace.examination.unexamined(pid, why);
                }
                continue;
            };
            // The event of the mapping, or of the program's entry, is in the ring, and reports
            // whether it came late.
            let late = late && !self.session.sees_mappings() && !self.stopped.contains(pid);
            let now = clock::monotonic_ns();
            let assumed = self.processes.interpreter(pid);
            self.processes.set_interpreter(pid, Some(index), if late { Some(now) } else { None });
            trace.examination.examined(pid, true);
            if assumed == Some(index) {
                continue;
            }
            if late {
                trace.examination.unexamined(pid, Unexamined::Late);
                let message = "the process loaded its interpreter while running: earlier collections were not recorded";
                trace.output.note(Some(pid), now, message.to_owned());
            }
            self.announce(trace, pid);
        }
        for warning in self.interpreters.take_warnings() {
            tracing::warn!("{warning}");
            trace.output.note(None, clock::monotonic_ns(), warning);
        }
        for note in self.interpreters.take_notes() {
            tracing::info!("{note}");
            trace.output.note(None, clock::monotonic_ns(), note);
        }
    }

    fn announce(&mut self, trace: &mut RecordingTrace, pid: u32) {
        if let Some(index) = self.processes.interpreter(pid) {
            if let Some(allocations) = &mut self.allocations
                && let Some((layout, resolution)) = self.interpreters.resolution(index)
            {
                allocations.watch(pid, layout, resolution);
            }
            if let Some(interpreter) = self.interpreters.describe(index) {
                let size = ArenaSize::of(interpreter);
                self.pressures.interpreter(pid, size, clock::monotonic_ns());
            }
        }
        self.processes.announce(pid, &self.interpreters, &mut trace.output);
    }
}

impl Source for KernelSource {
    fn wake_descriptor(&self) -> BorrowedFd<'_> {
        self.session.wake_descriptor()
    }

    /// CUDA calls are kept until the next tick.
    fn poll(&mut self, _trace: &mut RecordingTrace) -> anyhow::Result<()> {
        self.stopped.allow(&mut self.session);
        let now_ns = clock::monotonic_ns();
        self.polled.extend(self.session.poll(Duration::ZERO)?);
        self.read_until_ns = now_ns;
        if let Some(cuda) = &mut self.cuda {
            cuda.poll();
        }
        Ok(())
    }

    fn read_until_ns(&self) -> u64 {
        self.read_until_ns
    }

    fn handle(&mut self, trace: &mut RecordingTrace) {
        for event in std::mem::take(&mut self.polled) {
            self.event(trace, event);
        }
        if let Some(samples) = &mut self.samples {
            samples.forget_ended(clock::monotonic_ns(), &self.stacks, &mut trace.output);
        }
        self.stacks.forget_ended();
        self.garbage.forget_ended();
        self.pressures.close_ended(&self.session, &mut trace.output);
    }

    fn tick(&mut self, trace: &mut RecordingTrace) {
        if let Some(mut newcomers) = self.newcomers.take() {
            newcomers.scan(self, trace);
            self.newcomers = Some(newcomers);
        }
        self.rescan(trace);
        self.stopped.tick();
        let now = clock::monotonic_ns();
        self.pressures.tick(&self.session, now, &mut trace.output);
        if let Some(allocations) = &mut self.allocations {
            allocations.tick(&mut trace.output);
        }
        if let Some(cuda) = &mut self.cuda {
            cuda.tick(&self.session, &mut self.processes, trace);
            let launches = cuda.take_host_launches();
            if let Some(samples) = &mut self.samples {
                samples.see_launches(&launches);
            }
        }
        if let Some(samples) = &mut self.samples {
            samples.tick(now, &self.stacks, &mut trace.output);
        }
    }

    fn pids(&self) -> Vec<u32> {
        self.processes.with_interpreter().collect()
    }

    fn tally(
        &mut self,
        trace: &RecordingTrace,
        losses: &mut RecordingLosses,
    ) -> anyhow::Result<()> {
        self.tally_probes(trace, losses)
    }

    fn finish(
        self,
        trace: &mut RecordingTrace,
        end: &mut TraceEnd,
        _ended: Option<CommandEnd>,
    ) -> anyhow::Result<usize> {
        let alive = self.processes.alive();
        self.detach(trace, end)?;
        Ok(alive)
    }
}
