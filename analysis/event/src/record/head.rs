//! What every kind of record says in the same words: whose it is, when, and from where.

use super::{FrameId, Record};

/// The process, the thread, the time and the stack of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Process id; `None` if the record is about none, or its trace does not know it.
    pub pid: Option<u32>,
    /// Kernel thread id; `None` in the same way.
    pub tid: Option<u32>,
    /// Start and end in ns of the trace's clock, twice the same for a record of one time; `None` for a
    /// record that only names something.
    pub span_ns: Option<(u64, u64)>,
    /// The innermost Python frame; `None` if there is none. For records of several stacks see
    /// [`Record::stacks`].
    pub stack: Option<FrameId>,
}

impl Head {
    fn of_process(pid: u32, span_ns: (u64, u64)) -> Self {
        Self { pid: Some(pid), span_ns: Some(span_ns), ..Self::default() }
    }

    fn of_thread(pid: u32, tid: u32, span_ns: (u64, u64)) -> Self {
        Self { tid: Some(tid), ..Self::of_process(pid, span_ns) }
    }

    fn from(self, stack: Option<FrameId>) -> Self {
        Self { stack, ..self }
    }
}

/// Twice the same time.
fn once(at_ns: u64) -> (u64, u64) {
    (at_ns, at_ns)
}

impl Record {
    /// Whose record it is, when, and from where. A new kind of record has to say so here: no arm stands for
    /// several unknown ones.
    #[must_use]
    pub fn head(&self) -> Head {
        match self {
            Self::Pause(of) => {
                Head::of_thread(of.pid, of.tid, (of.start_ns, of.end_ns)).from(of.stack)
            }
            Self::Process(of) => Head::of_process(of.pid, once(of.since_ns)),
            Self::ProcessExit(of) => Head::of_process(of.pid, once(of.at_ns)),
            Self::ThreadName { pid, tid, .. } => {
                Head { pid: Some(*pid), tid: Some(*tid), ..Head::default() }
            }
            Self::Settings(of) => Head::of_process(of.pid, once(of.at_ns)).from(of.stack),
            Self::Frame(of) => Head::default().from(of.parent),
            Self::Counters(of) => Head::of_process(of.pid, once(of.at_ns)),
            Self::Pressure(of) => Head::of_process(of.pid, (of.since_ns, of.at_ns)),
            Self::Allocations(of) => Head::of_process(of.pid, once(of.at_ns)),
            Self::ObjectKind(of) => Head { pid: Some(of.pid), ..Head::default() },
            Self::CycleSignature(of) => Head { pid: Some(of.pid), ..Head::default() },
            Self::Garbage(of) => Head::of_thread(of.pid, of.tid, once(of.at_ns)),
            Self::Called(of) => Head::of_thread(of.pid, of.tid, once(of.at_ns)).from(of.stack),
            Self::CpuSamples(of) => {
                Head::of_thread(of.pid, of.tid, (of.at_ns, of.until_ns)).from(of.stack)
            }
            Self::OffCpu(of) => {
                Head::of_thread(of.pid, of.tid, (of.at_ns, of.end_ns())).from(of.stack)
            }
            Self::Layers(of) => Head::of_process(of.pid, once(of.at_ns)),
            Self::GpuDevice(of) => Head { span_ns: Some(once(of.at_ns)), ..Head::default() },
            Self::GpuSample(of) => Head { span_ns: Some(once(of.at_ns)), ..Head::default() },
            Self::CudaCall(of) => Head::of_thread(of.pid, of.tid, (of.start_ns, of.end_ns)),
            Self::CudaLaunches(of) => Head::of_thread(of.pid, of.tid, (of.first_ns, of.last_ns)),
            Self::DeviceMemory(of) => Head::of_thread(of.pid, of.tid, once(of.at_ns)),
            Self::PauseMemory(of) => Head::of_thread(of.pid, of.tid, once(of.start_ns)),
            Self::EmptyCache(of) => {
                Head::of_thread(of.pid, of.tid, (of.start_ns, of.end_ns)).from(of.stack)
            }
            Self::AliveLines(of) => Head::of_process(of.pid, once(of.at_ns)),
            Self::Step(of) => Head::of_thread(of.pid, of.tid, (of.start_ns, of.end_ns)),
            Self::GpuOp(of) => {
                let span_ns = Some((of.start_ns, of.end_ns));
                Head { pid: of.pid, span_ns, ..Head::default() }
            }
            Self::GpuSync(of) => {
                let span_ns = Some((of.start_ns, of.end_ns));
                Head { pid: of.pid, span_ns, ..Head::default() }
            }
            Self::OmittedGpuWork(of) => Head::of_process(of.pid, (of.since_ns, of.until_ns)),
            Self::Annotation(of) => Head::of_thread(of.pid, of.tid, (of.start_ns, of.end_ns)),
            Self::HostCode(of) => {
                let span_ns = Some((of.start_ns, of.end_ns));
                Head { pid: of.pid, tid: of.tid, span_ns, stack: None }
            }
            Self::Note(of) => {
                Head { pid: of.pid, span_ns: Some(once(of.at_ns)), ..Head::default() }
            }
            Self::End(of) => Head { span_ns: Some(once(of.ended_ns)), ..Head::default() },
        }
    }

    /// The kernel thread id of a record that has one, to be translated from another pid namespace.
    pub fn tid_mut(&mut self) -> Option<&mut u32> {
        Some(match self {
            Self::Pause(of) => &mut of.tid,
            Self::ThreadName { tid, .. } => tid,
            Self::Garbage(of) => &mut of.tid,
            Self::Called(of) => &mut of.tid,
            Self::CpuSamples(of) => &mut of.tid,
            Self::OffCpu(of) => &mut of.tid,
            Self::CudaCall(of) => &mut of.tid,
            Self::CudaLaunches(of) => &mut of.tid,
            Self::DeviceMemory(of) => &mut of.tid,
            Self::PauseMemory(of) => &mut of.tid,
            Self::EmptyCache(of) => &mut of.tid,
            Self::Step(of) => &mut of.tid,
            Self::Annotation(of) => &mut of.tid,
            Self::HostCode(of) => return of.tid.as_mut(),
            Self::Process(_)
            | Self::ProcessExit(_)
            | Self::Settings(_)
            | Self::Frame(_)
            | Self::Counters(_)
            | Self::Pressure(_)
            | Self::Allocations(_)
            | Self::ObjectKind(_)
            | Self::CycleSignature(_)
            | Self::Layers(_)
            | Self::GpuDevice(_)
            | Self::GpuSample(_)
            | Self::AliveLines(_)
            | Self::GpuOp(_)
            | Self::GpuSync(_)
            | Self::OmittedGpuWork(_)
            | Self::Note(_)
            | Self::End(_) => return None,
        })
    }
}
