//! Prepared before a program is touched: the BPF programs, the counters, the guardian.

use crate::args::{CounterChoice, RecordConfig};
use crate::clock;
use crate::guardian::Guardian;
use crate::invoker::Invoker;
use crate::launch::CacheDir;
use crate::record::kernel::KernelSource;
use crate::record::kernel::allocations::AllocationWindows;
use crate::record::kernel::counters::CounterRecording;
use crate::record::kernel::cuda_probes::CudaProbes;
use crate::record::kernel::garbage::GarbageKinds;
use crate::record::kernel::interpreters::ProbedInterpreters;
use crate::record::kernel::pressure::PressureIntervals;
use crate::record::kernel::recorded_processes::RecordedProcesses;
use crate::record::kernel::samples::CpuSampling;
use crate::record::kernel::stacks::StackResolver;
use crate::record::kernel::stopped_programs::StoppedPrograms;
use crate::record::trace::RecordingTrace;
use anyhow::Context as _;
use gctrace_ebpf::{BpfSession, GarbagePrograms, KernelSupport, SessionConfig, StoppedProcesses};
use gctrace_event::TraceHeader;
use gctrace_settings::GarbageDetail;
use std::collections::{BTreeMap, HashMap};

/// With `--garbage cycles`: probes copy no references between objects.
const NO_CYCLES: &str = "--garbage cycles: from the kernel only the types of garbage are recorded; cycles need in-process recording (--mode both)";

/// The loaded BPF programs, before the trace is created.
pub(crate) struct LoadedProbes {
    session: BpfSession,
    counting: CounterRecording,
    /// Why arenas are not counted, if so.
    arenas: Result<(), gctrace_ebpf::Error>,
    /// The programs that examine garbage, if they are to; or why there are none.
    garbage: Option<Result<GarbagePrograms, gctrace_ebpf::Error>>,
    /// Samples, if they are to be taken; or why there are none.
    samples: Option<anyhow::Result<CpuSampling>>,
}

impl LoadedProbes {
    /// Loads the programs and opens the counters.
    /// `alone`: the library examines garbage itself, and is not injected for collections.
    pub(crate) fn open(config: &RecordConfig, alone: bool) -> anyhow::Result<Self> {
        let counting = CounterRecording::examine(config.sources.counters.counters());
        warn_of_missing(&counting, &config.sources.counters);
        let (mut session, counting) = open_session(config, counting, config.sources.follow)?;
        let arenas = session.count_arenas();
        let wanted = alone && config.sources.garbage != GarbageDetail::Off;
        let garbage =
            wanted.then(|| GarbagePrograms::load(&session, config.sources.garbage_budget));
        let samples = config.sample_rate();
        let samples =
            samples.map(|hertz| CpuSampling::start(&session, hertz, config.sources.stack_depth));
        Ok(Self { session, counting, arenas, garbage, samples })
    }

    /// Adds the counters and samples.
    pub(crate) fn describe(&self, config: &RecordConfig, header: &mut TraceHeader) {
        self.counting.describe(header);
        let is_sampled = matches!(self.samples, Some(Ok(_)));
        header.sample_hz = if is_sampled { config.sample_rate() } else { None };
    }

    /// Attaches the event sources and starts the guardian.
    pub(crate) fn into_source(
        self,
        config: &RecordConfig,
        invoker: &Invoker,
        trace: &mut RecordingTrace,
    ) -> anyhow::Result<KernelSource> {
        let mut session = self.session;
        let stopped = session.stopped()?;
        let guardian = start_guardian(&stopped);
        let cuda = CudaProbes::start(config.sources.cuda, config.sources.ring_size, &mut session);
        if let Err(error) = self.arenas {
            trace.note(&crate::text::chain(&error.into()));
        }
        let garbage = match self.garbage {
            Some(Ok(programs)) => {
                if config.sources.garbage == GarbageDetail::Cycles {
                    trace.note(NO_CYCLES);
                }
                Some(programs)
            }
            Some(Err(error)) => {
                let error = crate::text::chain(&error.into());
                let note = format!("what collections free is not recorded: {error}");
                tracing::info!("{note}");
                trace.output.note(None, clock::monotonic_ns(), note);
                None
            }
            None => None,
        };
        let samples = match self.samples.transpose() {
            Ok(samples) => samples,
            Err(error) => {
                let note = format!("--sample: no samples are taken: {error:#}");
                if config.sources.asks_for_samples() {
                    trace.note(&note);
                } else {
                    tracing::info!("{note}");
                }
                None
            }
        };
        let mut allocations = None;
        if let Some(budget) = config.sources.windows_budget() {
            let shared = session.shared_maps()?;
            let windows = AllocationWindows::start(budget, config.sources.stack_depth, shared);
            allocations = Some(windows.context("cannot start the allocation window thread")?);
        }
        Ok(KernelSource {
            session,
            interpreters: ProbedInterpreters::new(CacheDir::open(invoker), garbage),
            processes: RecordedProcesses::default(),
            stacks: StackResolver::default(),
            pressures: PressureIntervals::new(),
            garbage: GarbageKinds::default(),
            allocations,
            cuda,
            counting: self.counting,
            samples,
            stopped: StoppedPrograms::new(stopped),
            programs: HashMap::new(),
            usual: HashMap::new(),
            launched: None,
            libraries: HashMap::new(),
            newcomers: None,
            cost: None,
            polled: Vec::new(),
            read_until_ns: 0,
            reported_lost: BTreeMap::new(),
            guardian,
        })
    }
}

/// Loads the programs and opens the counters for them.
pub(super) fn open_session(
    config: &RecordConfig,
    mut counting: CounterRecording,
    follow_children: bool,
) -> Result<(BpfSession, CounterRecording), gctrace_ebpf::Error> {
    let session = BpfSession::open(
        SessionConfig {
            follow_children,
            ring_bytes: config.sources.ring_size,
            stack_depth: config.sources.stack_depth,
            counters: counting.set(),
            samples: config.sample_rate().is_some(),
        },
        &KernelSupport::probe(),
    )?;
    counting.open(&session);
    Ok((session, counting))
}

/// Warns about missing counters that were requested by name; many machines lack a part of the default list.
fn warn_of_missing(counting: &CounterRecording, choice: &CounterChoice) {
    for sentence in counting.missing() {
        match choice {
            CounterChoice::Default => tracing::info!("{sentence}"),
            CounterChoice::Named(_) => tracing::warn!("{sentence}"),
        }
    }
}

/// A recording works without a guardian; only killing gctrace could leave a process stopped.
fn start_guardian(stopped: &StoppedProcesses) -> Option<Guardian> {
    Guardian::start(stopped.descriptor())
        .inspect_err(|error| {
            tracing::warn!("no guardian ({error:#}): if gctrace is killed while it has a program stopped, resume it with kill -CONT");
        })
        .ok()
}
