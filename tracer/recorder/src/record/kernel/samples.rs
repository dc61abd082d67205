//! `--sample`: the code that threads of recorded processes execute, and why they are off the CPU.
//!
//! Owns the samples and times that are not written yet: consecutive ones of a thread at the same place are one record.
//! The file of an address is read from the memory map of the process.

use crate::clock;
use crate::record::kernel::cuda_probes::HostLaunches;
use crate::record::kernel::loops::Loops;
use crate::record::kernel::stacks::StackResolver;
use crate::record::output::{RecordOutput, RecordSink as _};
use crate::record::trace::FrameTree;
use gctrace_cpython::thread_by_id;
use gctrace_ebpf::{BpfSession, LoopKey, SampleEvent, SamplePrograms, StackId};
use gctrace_event::{CpuSamples, FrameId, OffCpu, Record};
use gctrace_probes::{ProcessMemory, Resolution, counters, maps};
use gctrace_units::duration_ns;
use std::collections::HashMap;
use std::rc::Rc;

/// The longest time between the first and the last sample of a record, in ns: records not yet written are lost if
/// gctrace is killed.
const TOGETHER_NS: u64 = 1_000_000_000;
/// After this time the memory map of a process is read again for an address that it did not have, in ns.
const MAPS_AGAIN_NS: u64 = 1_000_000_000;

/// The programs that take samples, and the samples of each thread.
pub(super) struct CpuSampling {
    programs: SamplePrograms,
    stack_depth: usize,
    open: HashMap<(u32, u32), OpenSamples>,
    /// Times off the CPU, by thread.
    off_cpu: HashMap<(u32, u32), OffCpu>,
    /// Stacks of threads that waited when the recording of their process began.
    earlier: HashMap<(u32, u32), EarlierStack>,
    maps: HashMap<u32, CodeMap>,
    loops: Loops,
    /// Processes that exited since the last drain: their last samples may still be in the ring.
    ended: Vec<u32>,
}

/// The last samples of a thread.
struct OpenSamples {
    file: Option<Rc<str>>,
    samples: CpuSamples,
}

/// Where a thread waited before its process was recorded.
struct EarlierStack {
    /// When its wait was begun, in ns.
    start_ns: u64,
    /// When the stack had been read, in ns.
    read_ns: u64,
    innermost: FrameId,
}

/// The executable mappings of a process.
#[derive(Default)]
struct CodeMap {
    read_ns: Option<u64>,
    /// Start, end, and name of the file, by start.
    ranges: Vec<(u64, u64, Rc<str>)>,
}

impl CpuSampling {
    /// Loads the program and attaches it to a clock of each CPU.
    ///
    /// # Errors
    /// The kernel refuses the program, or a clock.
    pub(super) fn start(
        session: &BpfSession,
        hertz: u32,
        stack_depth: u32,
    ) -> anyhow::Result<Self> {
        let mut programs = SamplePrograms::load(session, stack_depth)?;
        for cpu in counters::online_cpus()? {
            programs.attach(counters::open_clock(cpu, hertz)?)?;
        }
        Ok(Self {
            programs,
            stack_depth: stack_depth as usize,
            open: HashMap::new(),
            off_cpu: HashMap::new(),
            earlier: HashMap::new(),
            maps: HashMap::new(),
            loops: Loops::new(),
            ended: Vec::new(),
        })
    }

    /// Takes the stacks of threads that launch functions of the host: their calls are too short for samples.
    pub(super) fn see_launches(&mut self, launches: &[HostLaunches]) {
        for HostLaunches { file, functions } in launches {
            if let Err(error) = self.programs.attach_launches(file, functions) {
                tracing::warn!("{error}: launches of functions of the host have no lines");
            }
        }
    }

    /// Begins the waits of threads that left the CPU before their process was recorded. The stacks of this process are
    /// read from its memory; its `_PyRuntime` is at `runtime`.
    pub(super) fn begin_waits(
        &mut self,
        (pid, runtime): (u32, Option<u64>),
        resolution: Option<&Resolution>,
        frames: &mut FrameTree,
        output: &mut RecordOutput,
    ) {
        let waits = self.programs.earlier_waits().unwrap_or_else(|error| {
            tracing::warn!("what threads wait for since before the recording is unknown: {error}");
            Vec::new()
        });
        let place = resolution.and_then(|of| Some((of.layout.as_ref()?, of.frames.as_ref()?)));
        let (Some((collector, layout)), Some(runtime), Ok(memory)) =
            (place, runtime, ProcessMemory::open(pid))
        else {
            return;
        };
        let walk = (layout, self.stack_depth);
        for wait in &waits {
            if wait.pid == pid
                && let Some(id) = wait.thread_id
                && let Some(thread) = thread_by_id(&mut &memory, runtime, collector, layout, id)
                && let Some(innermost) =
                    StackResolver::waiting((pid, &memory), thread, walk, frames, output)
            {
                let (start_ns, read_ns) = (wait.start_ns, clock::monotonic_ns());
                let stack = EarlierStack { start_ns, read_ns, innermost };
                self.earlier.insert((pid, wait.tid), stack);
            }
        }
    }

    /// Adds a sample; `stack`: its innermost frame.
    pub(super) fn add(
        &mut self,
        SampleEvent { samples: sample, instruction, .. }: SampleEvent,
        stack: Option<FrameId>,
        output: &mut RecordOutput,
    ) {
        let (pid, at_ns) = (sample.pid, sample.at_ns);
        let file = match instruction {
            Some(address) => self.maps.entry(pid).or_default().file(pid, address, at_ns),
            None => Some(Rc::from(CpuSamples::KERNEL)),
        };
        let key = (pid, sample.tid);
        if let Some(open) = self.open.get_mut(&key) {
            let samples = &mut open.samples;
            if open.file == file
                && samples.stack == stack
                && samples.in_pause == sample.in_pause
                && duration_ns(samples.at_ns, at_ns) < TOGETHER_NS
            {
                samples.count += 1;
                samples.until_ns = samples.until_ns.max(at_ns);
                return;
            }
        }
        let samples = CpuSamples { stack, ..sample };
        if let Some(before) = self.open.insert(key, OpenSamples { file, samples }) {
            before.write(output);
        }
    }

    /// Adds a time off the CPU; `stack`: its innermost frame.
    pub(super) fn add_off_cpu(
        &mut self,
        off: OffCpu,
        stack: Option<FrameId>,
        output: &mut RecordOutput,
    ) {
        let (key, start_ns, end_ns) = ((off.pid, off.tid), off.at_ns, off.end_ns());
        let stack = match self.earlier.remove(&key) {
            Some(earlier) if earlier.start_ns == start_ns && earlier.read_ns <= end_ns => {
                Some(stack.unwrap_or(earlier.innermost))
            }
            _ => stack,
        };
        if let Some(open) = self.off_cpu.get_mut(&key)
            && (open.reason, open.stack, open.in_pause, open.woken_by)
                == (off.reason, stack, off.in_pause, off.woken_by)
            && duration_ns(open.at_ns, end_ns) < TOGETHER_NS
            && start_ns >= open.end_ns()
        {
            open.times.push((start_ns - open.at_ns, duration_ns(start_ns, end_ns)));
            return;
        }
        let off = OffCpu { stack, ..off };
        if let Some(before) = self.off_cpu.insert(key, off) {
            output.write(&Record::OffCpu(before));
        }
    }

    /// Threads that wait for a lock with this stack take work from a queue.
    pub(super) fn takes_work(&self, stack: StackId) {
        if let Err(error) = self.programs.takes_work(stack) {
            tracing::warn!("turns of a pool are not counted: {error}");
        }
    }

    /// A thread waits for input again and again.
    pub(super) fn found_loop(&mut self, key: LoopKey) {
        self.loops.found(key, &mut self.programs);
    }

    /// Writes the samples and times of threads that have done nothing else for a while.
    pub(super) fn tick(&mut self, now_ns: u64, stacks: &StackResolver, output: &mut RecordOutput) {
        self.loops.tick(now_ns, &mut self.programs, stacks, output);
        let is_over =
            |_: &(u32, u32), off: &mut OffCpu| duration_ns(off.at_ns, now_ns) >= TOGETHER_NS;
        for (_, off) in self.off_cpu.extract_if(is_over) {
            output.write(&Record::OffCpu(off));
        }
        let is_old = |_: &(u32, u32), open: &mut OpenSamples| {
            duration_ns(open.samples.at_ns, now_ns) >= TOGETHER_NS
        };
        for (_, samples) in self.open.extract_if(is_old) {
            samples.write(output);
        }
    }

    /// A process exited or executed another program.
    pub(super) fn ended(&mut self, pid: u32) {
        self.ended.push(pid);
    }

    /// Forgets exited processes, once every event up to their exit was handled.
    pub(super) fn forget_ended(
        &mut self,
        now_ns: u64,
        stacks: &StackResolver,
        output: &mut RecordOutput,
    ) {
        if !self.ended.is_empty() {
            self.loops.write(now_ns, &mut self.programs, stacks, output);
        }
        for pid in self.ended.drain(..) {
            self.maps.remove(&pid);
            self.earlier.retain(|(of, _), _| *of != pid);
            for (_, samples) in self.open.extract_if(|(of, _), _| *of == pid) {
                samples.write(output);
            }
            for (_, off) in self.off_cpu.extract_if(|(of, _), _| *of == pid) {
                output.write(&Record::OffCpu(off));
            }
        }
    }

    /// Writes the rest.
    pub(super) fn finish(
        &mut self,
        now_ns: u64,
        stacks: &StackResolver,
        output: &mut RecordOutput,
    ) {
        self.loops.write(now_ns, &mut self.programs, stacks, output);
        for (_, samples) in self.open.drain() {
            samples.write(output);
        }
        for (_, off) in self.off_cpu.drain() {
            output.write(&Record::OffCpu(off));
        }
    }
}

impl OpenSamples {
    fn write(mut self, output: &mut RecordOutput) {
        self.samples.file = self.file.as_deref().map(str::to_owned);
        output.write(&Record::CpuSamples(self.samples));
    }
}

impl CodeMap {
    /// The name of the file with the code at an address.
    fn file(&mut self, pid: u32, address: u64, now_ns: u64) -> Option<Rc<str>> {
        let known = self.known(address);
        let may_read =
            self.read_ns.is_none_or(|read_ns| duration_ns(read_ns, now_ns) >= MAPS_AGAIN_NS);
        if known.is_some() || !may_read {
            return known;
        }
        self.read_ns = Some(now_ns);
        if let Ok(mappings) = maps::mappings(pid) {
            let code = mappings.iter().filter(|mapping| mapping.executable);
            self.ranges = code
                .map(|mapping| {
                    let name = mapping.path.file_name().unwrap_or_default().to_string_lossy();
                    (mapping.start, mapping.end, Rc::from(name))
                })
                .collect();
            self.ranges.sort_unstable();
        }
        self.known(address)
    }

    fn known(&self, address: u64) -> Option<Rc<str>> {
        let after = self.ranges.partition_point(|(start, ..)| *start <= address);
        let (_, end, name) = self.ranges.get(after.checked_sub(1)?)?;
        if address < *end { Some(Rc::clone(name)) } else { None }
    }
}
