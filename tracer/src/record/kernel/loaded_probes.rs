//! What probes need before a program is touched: the BPF programs, the counters, the guardian.

use crate::args::CounterChoice;
use crate::args::RecordConfig;
use crate::guardian::Guardian;
use crate::launch::CacheDir;
use crate::launch::Invoker;
use crate::record::allocations::AllocationWindows;
use crate::record::counters::CounterRecording;
use crate::record::cuda_probes::CudaProbes;
use crate::record::interpreters::ProbedInterpreters;
use crate::record::trace::RecordingTrace;
use crate::record::watch::ProbeWatch;
use anyhow::Context as _;
use gctrace_ebpf::BpfSession;
use gctrace_ebpf::HeldProcesses;
use gctrace_ebpf::KernelSupport;
use gctrace_ebpf::SessionConfig;

/// The loaded BPF programs, before the trace is created.
pub(super) struct LoadedProbes {
    session: BpfSession,
    pub(super) counting: CounterRecording,
    /// Why arenas are not counted, if so.
    arenas: Result<(), gctrace_ebpf::Error>,
}

impl LoadedProbes {
    /// Loads the programs and opens the counters.
    pub(super) fn open(config: &RecordConfig) -> anyhow::Result<Self> {
        let mut counting = count(&config.counters);
        let mut session = BpfSession::open(
            SessionConfig {
                follow_children: config.follow,
                ring_bytes: config.ring_size,
                stack_depth: config.stack_depth,
                counters: counting.set(),
            },
            &KernelSupport::probe(),
        )?;
        counting.open(&session);
        let arenas = session.count_arenas();
        Ok(Self {
            session,
            counting,
            arenas,
        })
    }

    /// Attaches the event sources and starts the guardian.
    pub(super) fn into_watch(
        self,
        config: &RecordConfig,
        invoker: &Invoker,
        trace: &mut RecordingTrace,
    ) -> anyhow::Result<(ProbeWatch, Option<Guardian>)> {
        let held = self.session.held()?;
        let guardian = start_guardian(&held);
        let interpreters = ProbedInterpreters::new(CacheDir::open(invoker));
        let mut watch = ProbeWatch::new(self.session, interpreters, held, self.counting);
        watch.cuda = CudaProbes::start(config.cuda, config.ring_size, &mut watch.session);
        if let Err(error) = self.arenas {
            watch.degraded(trace, error);
        }
        if let Some(budget) = config.alloc_budget {
            let shared = watch.session.shared_maps()?;
            let windows = AllocationWindows::start(budget, config.stack_depth, shared);
            watch.allocations = Some(windows.context("cannot start the allocation window thread")?);
        }
        Ok((watch, guardian))
    }
}

/// Warns about missing counters that were requested by name; the default list is longer than what
/// many machines have.
fn count(asked: &CounterChoice) -> CounterRecording {
    let counting = CounterRecording::examine(asked.counters());
    for sentence in counting.missing() {
        match asked {
            CounterChoice::Default => tracing::info!("{sentence}"),
            CounterChoice::Named(_) => tracing::warn!("{sentence}"),
        }
    }
    counting
}

/// A recording works without a guardian; only killing gctrace could leave a process stopped.
fn start_guardian(held: &HeldProcesses) -> Option<Guardian> {
    Guardian::start(held.descriptor())
        .inspect_err(|error| {
            tracing::warn!("no guardian ({error:#}): if gctrace is killed while it has a program stopped, resume it with kill -CONT");
        })
        .ok()
}
