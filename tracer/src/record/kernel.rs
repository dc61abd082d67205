//! Handles each event of the probes: stop, resolve, probe, resume, write.
//!
//! Owns the state that probes need between events. `record.rs` decides when to poll and when to
//! end.

mod foreign;

use crate::launch::LaunchPlan;
use crate::launch::RunningCommand;
use crate::privileges::has_more_rights_than_its_user;
use crate::record::allocations::AllocationWindows;
use crate::record::clock;
use crate::record::counters::CounterRecording;
use crate::record::cuda_probes;
use crate::record::cuda_probes::CudaProbes;
use crate::record::examination::Unexamined;
use crate::record::held_programs::HeldPrograms;
use crate::record::held_programs::is_running;
use crate::record::interpreters::InterpreterIndex;
use crate::record::interpreters::ProbeNeed;
use crate::record::interpreters::ProbedInterpreters;
use crate::record::permission;
use crate::record::permission::AttachError;
use crate::record::pressure::ArenaSize;
use crate::record::pressure::PressureIntervals;
use crate::record::recorded_processes::RecordedProcesses;
use crate::record::stacks::StackResolver;
use crate::record::trace::RecordingTrace;
use gctrace_ebpf::BpfSession;
use gctrace_ebpf::FileKey;
use gctrace_ebpf::HeldProcesses;
use gctrace_ebpf::HoldState;
use gctrace_ebpf::KernelEvent;
use gctrace_ebpf::LibraryKind;
use gctrace_ebpf::ProcessEvent;
use gctrace_event::ProcessOrigin;
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;
use std::time::Instant;

/// The probes of a recording, and their state.
pub(crate) struct ProbeWatch {
    pub session: BpfSession,
    /// Executables and libpythons examined so far, with the probes placed in them.
    pub interpreters: ProbedInterpreters,
    pub processes: RecordedProcesses,
    pub stacks: StackResolver,
    pub pressures: PressureIntervals,
    /// The thread that opens allocation windows; `None` without `--alloc`.
    pub allocations: Option<AllocationWindows>,
    /// Probes on CUDA, NCCL and torch.
    pub cuda: Option<CudaProbes>,
    pub counting: CounterRecording,
    /// Programs that wait for their probes.
    pub holding: HeldPrograms,
    /// The program of each process.
    programs: HashMap<u32, FileKey>,
    /// The interpreter of a program when it was first seen. It may use another libpython the next
    /// time, so this is only assumed until its memory map is examined.
    usual: HashMap<(u64, u64), InterpreterIndex>,
    /// The command, a child of gctrace, with which recording starts.
    launched: Option<u32>,
    /// Mapped files named like a libpython, and the interpreter in each.
    libraries: HashMap<(u64, u64), Option<InterpreterIndex>>,
}

/// Most time before the start of a command to spend on probing the interpreters that it names.
const BEFORE_START: Duration = Duration::from_millis(500);

impl ProbeWatch {
    pub(crate) fn new(
        session: BpfSession,
        interpreters: ProbedInterpreters,
        held: HeldProcesses,
        counting: CounterRecording,
    ) -> Self {
        Self {
            session,
            interpreters,
            processes: RecordedProcesses::default(),
            stacks: StackResolver::default(),
            pressures: PressureIntervals::new(),
            allocations: None,
            cuda: None,
            counting,
            holding: HeldPrograms::new(held),
            programs: HashMap::new(),
            usual: HashMap::new(),
            launched: None,
            libraries: HashMap::new(),
        }
    }

    /// The recording ends: no program is stopped from here on.
    pub(crate) fn end_stops(&mut self) {
        self.holding.end(&mut self.session);
    }

    /// What is needed to resume stopped processes once everything else is gone.
    pub(crate) fn into_parts(
        self,
    ) -> (
        BpfSession,
        ProbedInterpreters,
        Option<CudaProbes>,
        HeldProcesses,
    ) {
        (
            self.session,
            self.interpreters,
            self.cuda,
            self.holding.into_held(),
        )
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
            match file == program {
                true => drop(self.usual.insert((key.inode, key.device), index)),
                false => drop(self.libraries.insert((key.inode, key.device), Some(index))),
            }
            self.known(key);
        }
    }

    /// Starts the command; it is stopped at its exec until its probes are placed.
    pub(crate) fn launch(&mut self, plan: &LaunchPlan) -> anyhow::Result<RunningCommand> {
        self.arm_named(plan);
        self.holding.allow(&mut self.session);
        self.session.record_own_children(true);
        let launched = plan.spawn();
        self.session.record_own_children(false);
        let launched = launched?;
        self.launched = Some(launched.pid());
        Ok(launched)
    }

    /// Drains the kernel's rings; CUDA calls are kept until the next tick.
    pub(crate) fn poll(&mut self) -> Result<Vec<KernelEvent>, gctrace_ebpf::Error> {
        self.holding.allow(&mut self.session);
        let events = self.session.poll(Duration::ZERO)?;
        if let Some(cuda) = &mut self.cuda {
            cuda.poll();
        }
        Ok(events)
    }

    /// CUPTI reports the calls of these processes, since then.
    pub(crate) fn reported_by_cupti(&mut self, processes: Vec<(u32, u64)>) {
        if let Some(cuda) = &mut self.cuda {
            for (pid, since_ns) in processes {
                cuda.reported_by_cupti(pid, since_ns);
            }
        }
    }

    /// CUPTI reports the calls of programs whose environment names this library.
    pub(crate) fn leave_calls_to(&mut self, library: OsString) {
        if let Some(cuda) = &mut self.cuda {
            cuda.leave_to(library);
        }
    }

    /// CUPTI does not report the calls of these processes.
    pub(crate) fn without_cupti(&mut self, processes: Vec<u32>) {
        if let Some(cuda) = &mut self.cuda {
            for pid in processes {
                cuda.without_cupti(&self.session, pid);
            }
        }
    }

    /// Something cannot be recorded: reports it once, here and in the trace.
    pub(crate) fn degraded(&mut self, trace: &mut RecordingTrace, error: gctrace_ebpf::Error) {
        let message = crate::text::chain(&error.into());
        tracing::warn!("{message}");
        trace.output.note(None, clock::monotonic_ns(), message);
    }

    /// Starts recording a running process, and probes its files.
    pub(crate) fn attach_to(
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
        self.counting
            .start_process(&self.session, pid, clock::monotonic_ns());
        self.processes
            .add(pid, parent, ProcessOrigin::Attached, clock::monotonic_ns());
        let armed = self.interpreters.arm_mapped(&mut self.session, pid);
        let found = (armed.is_some(), self.interpreters.take_unprobed(pid));
        trace.examination.started(pid, None);
        trace.examination.record_examined(pid, found);
        self.processes.set_interpreter(
            pid,
            armed.map(|(index, _)| index),
            Some(clock::monotonic_ns()),
        );
        if let Some(cuda) = &mut self.cuda {
            cuda.attach_to(&self.session, pid);
        }
        self.announce(trace, pid);
        Ok(())
    }

    pub(crate) fn event(&mut self, trace: &mut RecordingTrace, event: KernelEvent) {
        match event {
            KernelEvent::Pause(mut pause) => {
                let (pid, tid) = (pause.pause.pid, pause.pause.tid);
                pause.pause.stack = self.stacks.innermost(pause.stack);
                self.processes.name_thread(pid, tid, &mut trace.output);
                self.pressures.pause(&pause);
                self.counting.select(&mut pause.pause.counters);
                if let Some(cuda) = &mut self.cuda {
                    cuda.pause(&pause.pause);
                }
                trace.probed(&pause);
            }
            KernelEvent::Code(code) => {
                let layout = self.interpreters.frame_layout(code.layout);
                self.stacks.code(&code, layout, &mut trace.frames);
            }
            KernelEvent::Stack(stack) => {
                self.stacks
                    .stack(&stack, &mut trace.frames, &mut trace.output)
            }
            KernelEvent::Allocation(sample) => {
                if let Some(allocations) = &mut self.allocations {
                    allocations.sample(sample, &mut self.stacks);
                }
            }
            KernelEvent::Process(ProcessEvent::Fork { pid, parent, at_ns }) => {
                self.forked(trace, pid, parent, at_ns)
            }
            KernelEvent::Process(ProcessEvent::Exec {
                pid,
                file,
                hold,
                known,
                at_ns,
            }) => {
                self.executed(pid, file, at_ns);
                if self.is_foreign(pid) {
                    self.became_foreign(trace, pid, at_ns);
                    return self.holding.release(trace, pid, hold, at_ns);
                }
                if known {
                    self.runs_known_program(trace, pid, file);
                } else {
                    self.examine(trace, pid, file, hold, at_ns);
                }
                self.announce(trace, pid);
            }
            KernelEvent::Process(ProcessEvent::ProgramEntry { pid, hold, at_ns }) => {
                self.entered(trace, pid, hold, at_ns)
            }
            KernelEvent::Process(ProcessEvent::Library {
                pid, hold, at_ns, ..
            }) if self.holding.is_ending => self.holding.release(trace, pid, hold, at_ns),
            KernelEvent::Process(ProcessEvent::Library {
                pid,
                file,
                kind,
                hold,
                at_ns,
                ..
            }) => {
                match kind {
                    LibraryKind::Python => self.maps_libpython(trace, pid, file, hold, at_ns),
                    LibraryKind::Cuda => {
                        if let Some(cuda) = &mut self.cuda {
                            let held = matches!(hold, HoldState::Stopped { .. });
                            cuda.library(&self.session, pid, file, held);
                        }
                        self.known(file);
                    }
                }
                self.holding.release(trace, pid, hold, at_ns);
            }
            KernelEvent::Process(ProcessEvent::Foreign { pid, at_ns }) => {
                self.became_foreign(trace, pid, at_ns)
            }
            KernelEvent::Process(ProcessEvent::Exit { pid, status, at_ns }) => {
                self.ended(trace, pid, at_ns);
                self.processes.remove(pid, status, at_ns, &mut trace.output);
                trace.examination.ended(pid);
            }
        }
    }

    /// Stops recording a process: everything but the table of processes and its examination.
    pub(super) fn ended(&mut self, trace: &mut RecordingTrace, pid: u32, at_ns: u64) {
        self.programs.remove(&pid);
        if let Some(allocations) = &mut self.allocations {
            allocations.ended(pid);
        }
        self.end_cuda(trace, pid);
        self.stacks.ended(pid);
        self.pressures.ended(pid, at_ns);
        self.counting.ended(
            &self.session,
            pid,
            at_ns,
            &self.processes,
            &mut trace.output,
        );
    }

    /// Its calls are still in their ring.
    fn end_cuda(&mut self, trace: &mut RecordingTrace, pid: u32) {
        if let Some(cuda) = &mut self.cuda {
            cuda.tick(&self.session, &mut self.processes, &mut trace.output);
            cuda.ended(pid, &mut trace.output);
        }
    }

    /// The program of a process is known and has not run, or has only just started.
    fn start_cuda(&mut self, pid: u32) {
        if let Some(cuda) = &mut self.cuda
            && self.processes.interpreter(pid).is_some()
        {
            cuda.program_starts(&self.session, pid);
        }
    }

    /// Every event in the rings was handled.
    pub(crate) fn handled_all(&mut self, trace: &mut RecordingTrace) {
        self.stacks.forget_ended();
        self.pressures.close_ended(&self.session, &mut trace.output);
    }

    fn forked(&mut self, trace: &mut RecordingTrace, pid: u32, parent: u32, at_ns: u64) {
        // A child of gctrace is the command before its exec: not yet a recorded process.
        if parent == std::process::id() {
            return;
        }
        self.processes
            .add(pid, Some(parent), ProcessOrigin::Child, at_ns);
        trace.examination.started(pid, Some(parent));
        self.announce(trace, pid);
    }

    /// A process executed another program.
    fn executed(&mut self, pid: u32, file: FileKey, at_ns: u64) {
        if !self.processes.contains(pid) && self.launched.is_none_or(|launched| launched == pid) {
            self.processes
                .add(pid, None, ProcessOrigin::Launched, at_ns);
        }
        self.processes.new_program(pid, at_ns);
        self.programs.insert(pid, file);
        if let Some(cuda) = &mut self.cuda {
            cuda.executed(pid, at_ns);
        }
    }

    /// `rescan` examines its libraries once they are mapped.
    fn runs_known_program(&mut self, trace: &mut RecordingTrace, pid: u32, file: FileKey) {
        let usual = self.usual.get(&(file.inode, file.device));
        if let Some(usual) = usual {
            self.processes.assume_interpreter(pid, *usual);
        }
        trace.examination.examined(pid, usual.is_some());
        self.start_cuda(pid);
    }

    /// Examines a program seen for the first time. If its process is stopped, none of it has run
    /// yet.
    fn examine(
        &mut self,
        trace: &mut RecordingTrace,
        pid: u32,
        file: FileKey,
        hold: HoldState,
        at_ns: u64,
    ) {
        if self.holding.is_ending {
            return self.holding.release(trace, pid, hold, at_ns);
        }
        match self.interpreters.examine_program(&mut self.session, pid) {
            ProbeNeed::Interpreter(index) => {
                trace.examination.examined(pid, true);
                self.ran_unstopped(trace, (pid, hold, at_ns), index);
                self.processes.set_interpreter(pid, Some(index), None);
                self.usual.insert((file.inode, file.device), index);
                self.known(file);
            }
            // Stopped again, at its entry point or with the next process that runs it, and known
            // from then on.
            ProbeNeed::LinksInterpreter => {}
            ProbeNeed::Gone => trace.examination.unexamined(pid, Unexamined::Ended),
            ProbeNeed::Unprobed(why) => trace.examination.unexamined(pid, why),
            ProbeNeed::Other => {
                trace.examination.examined(pid, false);
                self.known(file);
            }
        }
        self.start_cuda(pid);
        self.holding.release(trace, pid, hold, at_ns);
    }

    /// A program that links a libpython has its libraries mapped and has not run.
    fn entered(&mut self, trace: &mut RecordingTrace, pid: u32, hold: HoldState, at_ns: u64) {
        if self.holding.is_ending {
            return self.holding.release(trace, pid, hold, at_ns);
        }
        let armed = self.interpreters.arm_mapped(&mut self.session, pid);
        self.processes
            .set_interpreter(pid, armed.map(|(index, _)| index), None);
        let found = (armed.is_some(), self.interpreters.take_unprobed(pid));
        trace.examination.record_examined(pid, found);
        if let Some((index, _)) = armed {
            self.ran_unstopped(trace, (pid, hold, at_ns), index);
        }
        let file = self.programs.get(&pid).copied();
        if let Some(file) = file.filter(|_| found.1.is_none()) {
            self.known(file);
            self.usual
                .extend(armed.map(|(index, _)| ((file.inode, file.device), index)));
        }
        self.start_cuda(pid);
        self.holding.release(trace, pid, hold, at_ns);
        self.interpreters.entry_reached(pid);
        self.announce(trace, pid);
    }

    /// A process is about to map a libpython, or has just done so and is stopped.
    fn maps_libpython(
        &mut self,
        trace: &mut RecordingTrace,
        pid: u32,
        file: FileKey,
        hold: HoldState,
        at_ns: u64,
    ) {
        let key = (file.inode, file.device);
        let index = match self.libraries.get(&key) {
            Some(known) => *known,
            None => {
                cuda_probes::wait_for_mapping(pid, file.inode);
                let armed = self.interpreters.arm_mapped(&mut self.session, pid);
                if let Some(why) = self
                    .interpreters
                    .take_unprobed(pid)
                    .filter(|_| armed.is_none())
                {
                    return trace.examination.unexamined(pid, why);
                }
                // The exit of a process before its memory map was examined does not show anything
                // about the file.
                if armed.is_none() && !is_running(pid) {
                    return trace.examination.unexamined(pid, Unexamined::Ended);
                }
                let index = armed.map(|(index, _)| index);
                self.libraries.insert(key, index);
                self.known(file);
                index
            }
        };
        if let Some(index) = index {
            self.ran_unstopped(trace, (pid, hold, at_ns), index);
            self.processes.set_interpreter(pid, Some(index), None);
            trace.examination.examined(pid, true);
            self.start_cuda(pid);
            self.announce(trace, pid);
        }
    }

    /// Reports it if Python ran in a process before its probes were in place.
    fn ran_unstopped(
        &self,
        trace: &mut RecordingTrace,
        event: (u32, HoldState, u64),
        index: InterpreterIndex,
    ) {
        let probed_ns = self.interpreters.armed_ns(index);
        self.holding.ran_unstopped(trace, event, probed_ns);
    }

    fn known(&mut self, file: FileKey) {
        if let Err(error) = self.session.mark_known(file) {
            tracing::warn!("{error}: programs will be stopped at exec more than once");
        }
    }

    /// Writes processes again whose title changed; checks `all`, or those that are due.
    pub(crate) fn retitle(&mut self, trace: &mut RecordingTrace, all: bool) {
        for pid in self.processes.retitled(all) {
            self.processes
                .announce(pid, &self.interpreters, &mut trace.output);
        }
    }

    /// Looks for interpreters that were mapped after their program started.
    pub(crate) fn rescan(&mut self, trace: &mut RecordingTrace) {
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
            let late = late && !self.session.sees_mappings() && !self.holding.holds(pid);
            let now = clock::monotonic_ns();
            let assumed = self.processes.interpreter(pid);
            self.processes
                .set_interpreter(pid, Some(index), late.then_some(now));
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
    }

    /// Writes what is due by the clock.
    pub(crate) fn tick(&mut self, trace: &mut RecordingTrace) {
        self.holding.tick();
        let now = clock::monotonic_ns();
        self.pressures.tick(&self.session, now, &mut trace.output);
        if let Some(allocations) = &mut self.allocations {
            allocations.tick(&mut trace.output);
        }
        if let Some(cuda) = &mut self.cuda {
            cuda.tick(&self.session, &mut self.processes, &mut trace.output);
        }
    }

    fn announce(&mut self, trace: &mut RecordingTrace, pid: u32) {
        let interpreter = self.processes.interpreter(pid);
        if let (Some(allocations), Some((layout, resolution))) = (
            &mut self.allocations,
            interpreter.and_then(|index| self.interpreters.resolution(index)),
        ) {
            allocations.watch(pid, layout, resolution);
        }
        let interpreter = interpreter.and_then(|index| self.interpreters.describe(index));
        if let Some(interpreter) = interpreter {
            let size = ArenaSize::of(interpreter);
            self.pressures.interpreter(pid, size, clock::monotonic_ns());
        }
        self.processes
            .announce(pid, &self.interpreters, &mut trace.output);
    }
}
