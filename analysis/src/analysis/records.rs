//! Passes each record of a trace to the code that sums it up.

use super::Analysis;
use crate::cleanup::CleanupSums;
use gctrace_event::{NamedMarker, Note, Process, ProcessExit, Record, ThreadName};

/// Notes kept per trace.
const NOTES_KEPT: usize = 100;
/// Processes of other tools' traces with a tracked span; more would only cost memory.
const SPANS_KEPT: usize = 65_536;

impl Analysis {
    pub(super) fn add_record(&mut self, record: Record) {
        match record {
            Record::Process(process) => self.add_process(process),
            Record::ProcessExit(exit) => self.add_exit(exit),
            Record::ThreadName(ThreadName { pid, tid, name }) => {
                self.current.thread_names.insert((pid, tid), name);
            }
            Record::GpuDevice(device) => {
                if let Some(trace) = self.traces.last_mut() {
                    trace.gpus.describe(device);
                }
            }
            Record::GpuSample(sample) => {
                if let Some(trace) = self.traces.last_mut() {
                    trace.see(sample.at_ns, sample.at_ns);
                    trace.gpus.add(sample);
                }
            }
            Record::Note(note) => self.add_note(note),
            Record::End(end) => {
                if let Some(trace) = self.traces.last_mut() {
                    trace.see(end.ended_ns, end.ended_ns);
                    trace.end = Some(end);
                }
            }
            Record::Frame(frame) => self.current.frames.add(frame, &mut self.stacks),
            Record::GpuSync(sync) => self.current.gpu.add_sync(sync),
            Record::OmittedGpuWork(work) => {
                if let Some(trace) = self.traces.last_mut() {
                    trace.omitted_gpu_work.add(&work);
                }
                self.current.gpu.add_omitted(&work);
            }
            Record::CpuSamples(samples) => self.add_samples(&samples),
            Record::OffCpu(off) => self.add_off_cpu(&off),
            Record::Pause(_) => {}
            // These make no process.
            Record::CudaLaunches(_)
            | Record::Step(_)
            | Record::GpuOp(_)
            | Record::Annotation(_)
            | Record::HostCode(_) => self.add_cuda(&record),
            Record::CudaCall(ref call) if !self.is_own() || !CleanupSums::is_of_interest(call) => {
                self.add_cuda(&record);
            }
            _ => {
                self.add_cuda(&record);
                self.add_to_process(record);
            }
        }
    }

    fn add_to_process(&mut self, record: Record) {
        let head = record.head();
        let at_ns = head.looked_up_ns();
        if let Some(pid) = head.pid {
            let index = self.index_at(pid, at_ns);
            let (frames, stacks) = (&self.current.frames, &mut self.stacks);
            self.processes[index].record(record, |frame| frames.resolve(frame, stacks));
        }
    }

    /// A description belongs to the process of that id, or starts another if that one has ended.
    fn add_process(&mut self, process: Process) {
        if let Some(trace) = self.traces.last_mut() {
            trace.see(process.since_ns, process.since_ns);
        }
        let latest = self.current.processes.latest(process.pid);
        let index = match latest {
            Some(latest) if !self.processes[latest].sums.ended_by(process.since_ns) => latest,
            _ => self.new_process(process.pid),
        };
        self.processes[index].sums.describe(process);
    }

    fn add_exit(&mut self, exit: ProcessExit) {
        if let Some(trace) = self.traces.last_mut() {
            trace.see(exit.at_ns, exit.at_ns);
        }
        self.process_at(exit.pid, exit.at_ns).sums.exit = Some(exit);
    }

    fn add_note(&mut self, note: Note) {
        if let Some(trace) = self.traces.last_mut() {
            if trace.notes.len() < NOTES_KEPT {
                trace.notes.push(note)
            } else {
                trace.notes_left_out += 1
            }
        }
    }

    /// Whether the trace being read is gctrace's.
    fn is_own(&self) -> bool {
        let Some(trace) = self.traces.last() else { return false };
        trace.header.is_some()
    }

    /// Adds records that belong to no process of the report.
    pub(super) fn add_cuda(&mut self, record: &Record) {
        let Some(trace) = self.traces.last_mut() else { return };
        let (pid, start_ns, end_ns) = match record {
            Record::CudaCall(call) => {
                trace.cuda.add_call(call);
                self.current.gpu.add_call(call);
                (call.pid, call.start_ns, call.end_ns)
            }
            Record::CudaLaunches(launches) => {
                trace.cuda.add_launches(launches);
                self.current.gpu.add_launches(launches);
                (launches.pid, launches.first_ns, launches.last_ns)
            }
            Record::DeviceMemory(memory) => {
                trace.cuda.add_memory(memory);
                (memory.pid, memory.at_ns, memory.at_ns)
            }
            Record::PauseMemory(memory) => return trace.cuda.add_pause(memory),
            Record::Step(step) => {
                if step.marker == NamedMarker::Backward {
                    trace.cuda.add_step(step);
                }
                self.current.gpu.add_step(step);
                (step.pid, step.start_ns, step.end_ns)
            }
            Record::GpuOp(op) => {
                self.current.gpu.add_op(op);
                trace.gpu_work = true;
                return self.see_work(op.pid, op.start_ns, op.end_ns);
            }
            Record::Annotation(annotation) => {
                self.current.gpu.add_annotation(annotation);
                (annotation.pid, annotation.start_ns, annotation.end_ns)
            }
            Record::HostCode(code) => {
                self.current.gpu.add_code(code);
                return self.see_work(code.pid, code.start_ns, code.end_ns);
            }
            _ => return,
        };
        self.see_work(Some(pid), start_ns, end_ns);
    }

    /// In traces of other tools, events show how long a process existed, if nothing better does.
    pub(super) fn see_work(&mut self, pid: Option<u32>, start: u64, end: u64) {
        let Some(trace) = self.traces.last_mut() else { return };
        if trace.header.is_some() {
            return;
        }
        trace.see(start, end);
        let spans = &mut self.current.spans;
        if let Some(pid) = pid
            && (spans.len() < SPANS_KEPT || spans.contains_key(&pid))
        {
            let (first, last) = spans.entry(pid).or_insert((start, end));
            *first = start.min(*first);
            *last = end.max(*last);
        }
    }
}
