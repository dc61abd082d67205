//! Handles each event of the probes: stop, resolve, probe, resume, write.

use crate::clock;
use crate::record::examination::Unexamined;
use crate::record::kernel::interpreters::{InterpreterIndex, ProbeNeed};
use crate::record::kernel::stopped_programs::{StopPoint, is_running};
use crate::record::kernel::{KernelSource, cuda_probes};
use crate::record::output::RecordSink as _;
use crate::record::trace::RecordingTrace;
use gctrace_ebpf::{FileKey, KernelEvent, LibraryKind, OffCpuEvent, ProcessEvent, StopState};
use gctrace_event::{ProcessOrigin, Record};
use gctrace_ring::Absence;

impl KernelSource {
    pub(super) fn event(&mut self, trace: &mut RecordingTrace, event: KernelEvent) {
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
                // First: the pause is shown without the time of examining it.
                self.garbage.pause(&pause.pause, &self.stacks, &mut trace.output);
                trace.probed(&pause);
            }
            KernelEvent::Type(seen) => {
                let layout = self.interpreters.frame_layout(seen.layout);
                self.garbage.type_seen(&seen, layout);
            }
            KernelEvent::Garbage(garbage) => self.garbage.garbage(garbage),
            KernelEvent::Code(code) => {
                let layout = self.interpreters.frame_layout(code.layout);
                self.stacks.code(&code, layout, &mut trace.frames);
            }
            KernelEvent::Stack(stack) => {
                self.stacks.stack(&stack, &mut trace.frames, &mut trace.output);
                if let Some(samples) = &self.samples
                    && self.stacks.takes_work(&stack)
                {
                    samples.takes_work(stack.id);
                }
            }
            KernelEvent::Allocation(sample) => {
                if let Some(allocations) = &mut self.allocations {
                    allocations.sample(sample, &mut self.stacks);
                }
            }
            KernelEvent::Sample(sample) => {
                if let Some(samples) = &mut self.samples {
                    let stack = self.stacks.innermost(sample.stack);
                    let (pid, tid) = (sample.samples.pid, sample.samples.tid);
                    self.processes.name_thread(pid, tid, &mut trace.output);
                    samples.add(sample, stack, &mut trace.output);
                }
            }
            KernelEvent::OffCpu(OffCpuEvent { off, stack }) => {
                if let Some(samples) = &mut self.samples {
                    let stack = self.stacks.innermost(stack);
                    self.processes.name_thread(off.pid, off.tid, &mut trace.output);
                    samples.add_off_cpu(off, stack, &mut trace.output);
                }
            }
            KernelEvent::Loop(key) => {
                if let Some(samples) = &mut self.samples {
                    samples.found_loop(key);
                }
            }
            KernelEvent::Turn(turn) => {
                self.processes.name_thread(turn.pid, turn.tid, &mut trace.output);
                trace.output.write(&Record::Turn(turn));
            }
            KernelEvent::Process(event) => self.process_event(trace, event),
        }
    }

    fn process_event(&mut self, trace: &mut RecordingTrace, event: ProcessEvent) {
        match event {
            ProcessEvent::Fork { pid, parent, stop: state, at_ns } => {
                self.forked(trace, pid, parent, at_ns);
                self.child_waits(trace, StopPoint { pid, state, at_ns });
            }
            ProcessEvent::Exec { pid, file, stop: state, known, by_thread, at_ns } => {
                let stop = StopPoint { pid, state, at_ns };
                self.is_second_program(trace, pid, by_thread);
                self.executed(trace, pid, file, at_ns);
                if self.is_foreign(pid) {
                    self.became_foreign(trace, pid, at_ns);
                    return self.stopped.release(trace, stop);
                }
                if known {
                    self.runs_known_program(trace, pid, file);
                } else {
                    self.examine(trace, stop, file);
                }
                self.announce(trace, pid);
            }
            ProcessEvent::ProgramEntry { pid, stop: state, at_ns } => {
                self.entered(trace, StopPoint { pid, state, at_ns })
            }
            ProcessEvent::Library { pid, file, kind, stop: state, at_ns, .. } => {
                let stop = StopPoint { pid, state, at_ns };
                match kind {
                    LibraryKind::Python if self.stopped.is_ending() => {
                        return self.stopped.release_at_end(trace, stop);
                    }
                    LibraryKind::Cuda if self.stopped.is_ending() => {}
                    LibraryKind::Python => self.maps_libpython(trace, stop, file),
                    LibraryKind::Cuda => {
                        if let Some(cuda) = &mut self.cuda {
                            cuda.library(&self.session, stop, file, &mut trace.calls);
                        }
                        self.known(file);
                    }
                }
                self.stopped.release(trace, stop);
            }
            ProcessEvent::Foreign { pid, at_ns } => self.became_foreign(trace, pid, at_ns),
            ProcessEvent::Exit { pid, status, at_ns } => {
                self.ended(trace, pid, at_ns);
                self.was_alone(trace, pid);
                self.processes.remove(pid, status, at_ns, &mut trace.output);
                trace.examination.ended(pid);
            }
        }
    }

    fn forked(&mut self, trace: &mut RecordingTrace, pid: u32, parent: u32, at_ns: u64) {
        // A child of gctrace is the command before its exec: not yet a recorded process.
        if parent == std::process::id() {
            return;
        }
        self.processes.add(pid, Some(parent), ProcessOrigin::Child, at_ns);
        trace.examination.started(pid, Some(parent));
        self.pressures.forked(pid, at_ns);
        self.announce(trace, pid);
    }

    /// A child of the process that is probed alone does not run before it has probes.
    fn child_waits(&mut self, trace: &mut RecordingTrace, stop: StopPoint) {
        if stop.state == StopState::NotNeeded {
            return;
        }
        if self.stopped.is_ending() {
            return self.stopped.release_at_end(trace, stop);
        }
        self.probe_everywhere(trace);
        self.stopped.ran_unstopped(trace, stop, clock::monotonic_ns());
        self.stopped.release(trace, stop);
    }

    /// A process executed another program.
    fn executed(&mut self, trace: &mut RecordingTrace, pid: u32, file: FileKey, at_ns: u64) {
        if !self.processes.contains(pid) && self.launched.is_none_or(|launched| launched == pid) {
            self.processes.add(pid, None, ProcessOrigin::Launched, at_ns);
        }
        self.processes.new_program(pid, at_ns);
        self.pressures.executed(pid);
        self.programs.insert(pid, file);
        trace.calls.executed(pid, at_ns);
    }

    /// Before a second process runs Python: places the probes of one process in all others.
    pub(super) fn probe_everywhere(&mut self, trace: &mut RecordingTrace) {
        if let Err(error) = self.interpreters.probe_everywhere(&mut self.session) {
            let error = crate::text::chain(&error.into());
            trace.note(&format!("children of the process are not recorded: {error}"));
        }
    }

    /// The process that was probed alone is like any other from now on, or has ended.
    fn was_alone(&mut self, trace: &mut RecordingTrace, pid: u32) {
        if let Err(error) = self.session.was_alone(pid) {
            let error = crate::text::chain(&error.into());
            trace.note(&format!("process {pid} is not recorded any more: {error}"));
        }
    }

    /// A process that was probed alone executed a program, or another one did.
    fn is_second_program(&mut self, trace: &mut RecordingTrace, pid: u32, by_thread: bool) {
        let is_first = !self.programs.contains_key(&pid);
        if self.session.ends_alone(pid, by_thread, is_first) {
            self.probe_everywhere(trace);
        }
        if by_thread {
            self.was_alone(trace, pid);
        }
    }

    /// `rescan` examines its libraries once they are mapped.
    fn runs_known_program(&mut self, trace: &mut RecordingTrace, pid: u32, file: FileKey) {
        let usual = self.usual.get(&(file.inode, file.device));
        if let Some(usual) = usual {
            self.processes.assume_interpreter(pid, *usual);
        }
        trace.examination.examined(pid, usual.is_some());
        self.start_cuda(trace, pid);
    }

    /// Examines a program seen for the first time. If its process is stopped, none of it has run
    /// yet.
    fn examine(&mut self, trace: &mut RecordingTrace, stop: StopPoint, file: FileKey) {
        let pid = stop.pid;
        if self.stopped.is_ending() {
            return self.stopped.release_at_end(trace, stop);
        }
        match self.interpreters.examine_program(&mut self.session, pid) {
            ProbeNeed::Interpreter(index) => {
                trace.examination.examined(pid, true);
                self.ran_unstopped(trace, stop, index);
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
        self.start_cuda(trace, pid);
        self.stopped.release(trace, stop);
    }

    /// A program that links a libpython has its libraries mapped and has not run.
    fn entered(&mut self, trace: &mut RecordingTrace, stop: StopPoint) {
        let pid = stop.pid;
        if self.stopped.is_ending() {
            return self.stopped.release_at_end(trace, stop);
        }
        let armed = self.interpreters.arm_mapped(&mut self.session, pid);
        self.processes.set_interpreter(pid, armed.map(|(index, _)| index), None);
        let found = (armed.is_some(), self.interpreters.take_unprobed(pid));
        trace.examination.record_examined(pid, found);
        if let Some((index, _)) = armed {
            self.ran_unstopped(trace, stop, index);
        }
        let file = self.programs.get(&pid).copied();
        if found.1.is_none()
            && let Some(file) = file
        {
            self.known(file);
            self.usual.extend(armed.map(|(index, _)| ((file.inode, file.device), index)));
        }
        self.start_cuda(trace, pid);
        self.stopped.release(trace, stop);
        self.interpreters.entry_reached(pid);
        self.announce(trace, pid);
    }

    /// A process is about to map a libpython, or has just done so and is stopped.
    fn maps_libpython(&mut self, trace: &mut RecordingTrace, stop: StopPoint, file: FileKey) {
        let (pid, key) = (stop.pid, (file.inode, file.device));
        let index = match self.libraries.get(&key) {
            Some(known) => *known,
            None => {
                cuda_probes::wait_for_mapping(pid, file.inode);
                let armed = self.interpreters.arm_mapped(&mut self.session, pid);
                if let Some(why) = self.interpreters.take_unprobed(pid)
                    && armed.is_none()
                {
                    // No reason to stop it again.
                    if why == Unexamined::Absent(Absence::PyPy) {
                        self.known(file);
                    }
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
            self.ran_unstopped(trace, stop, index);
            self.processes.set_interpreter(pid, Some(index), None);
            trace.examination.examined(pid, true);
            self.start_cuda(trace, pid);
            self.announce(trace, pid);
        }
    }

    /// Reports it if Python ran in a process before its probes were in place.
    fn ran_unstopped(&self, trace: &mut RecordingTrace, stop: StopPoint, index: InterpreterIndex) {
        let probed_ns = self.interpreters.armed_ns(index);
        self.stopped.ran_unstopped(trace, stop, probed_ns);
    }

    /// The program of a process is known and has not run, or has only just started.
    fn start_cuda(&mut self, trace: &mut RecordingTrace, pid: u32) {
        if let Some(cuda) = &mut self.cuda
            && self.processes.interpreter(pid).is_some()
        {
            cuda.program_starts(&self.session, pid, &mut trace.calls);
        }
    }
}
