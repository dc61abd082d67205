//! What this machine and this process offer.

use crate::args::usual_recording;
use crate::launch::Invoker;
use crate::launch::LaunchPlan;
use crate::launch::LibraryError;
use crate::launch::library_for;
use crate::privileges::PrivilegeFacts;
use crate::record::mode;
use crate::record::mode::ModeDecision;
use crate::record::mode::ModeError;
use gctrace_ebpf::KernelSupport;
use gctrace_event::Counter;
use gctrace_event::GpuDevice;
use gctrace_probes::counters;
use gctrace_probes::counters::CounterError;
use gctrace_probes::nvml::NvmlError;
use gctrace_probes::nvml::NvmlLibrary;
use nix::sys::resource::RLIM_INFINITY;
use nix::sys::resource::Resource;
use nix::sys::resource::getrlimit;
use std::path::PathBuf;

/// The command that the machine is examined for.
const PYTHON: &str = "python3";

/// The facts that the checklist is drawn from.
#[derive(Clone, Debug)]
pub(crate) struct HostFacts {
    /// What the kernel can do.
    pub(crate) kernel: KernelSupport,
    /// What this process may do.
    pub(crate) rights: PrivilegeFacts,
    /// `/proc/sys/kernel/perf_event_paranoid`.
    pub(crate) perf_event_paranoid: Option<i32>,
    /// Bytes that may be locked; `None` without limit.
    pub(crate) locked_memory: Option<u64>,
    /// The processor's own counters: which are there, and why others are not.
    pub(crate) counters: Vec<(Counter, Result<(), CounterError>)>,
    /// What NVIDIA's driver says.
    pub(crate) gpus: Result<GpuFacts, NvmlError>,
    /// What recording from within has to do with.
    pub(crate) within: InProcessFacts,
}

/// Recording from within programs, for `python3` as the command.
#[derive(Clone, Debug)]
pub(crate) struct InProcessFacts {
    /// The library, or why it cannot be used.
    pub(crate) library: Result<PathBuf, LibraryError>,
    /// The driver's library, where there is a GPU for it.
    pub(crate) cuda: Option<PathBuf>,
    /// Files of CUPTI.
    pub(crate) cupti: Vec<PathBuf>,
    /// What `--mode auto` uses here.
    pub(crate) choice: Result<ModeDecision, ModeError>,
}

/// NVIDIA's driver and its GPUs.
#[derive(Clone, Debug, Default)]
pub(crate) struct GpuFacts {
    /// Version of the driver.
    pub(crate) driver: Option<String>,
    /// Version of its management library.
    pub(crate) nvml: Option<String>,
    /// Those that answer.
    pub(crate) devices: Vec<GpuDevice>,
}

impl HostFacts {
    /// Looks.
    pub(crate) fn gather() -> Self {
        let limit = getrlimit(Resource::RLIMIT_MEMLOCK).map_or(0, |(soft, _)| soft);
        Self {
            kernel: KernelSupport::probe(),
            rights: PrivilegeFacts::gather(),
            perf_event_paranoid: std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")
                .ok()
                .and_then(|text| text.trim().parse().ok()),
            locked_memory: (limit != RLIM_INFINITY).then_some(limit),
            counters: processor_counters(),
            gpus: gpus(),
            within: InProcessFacts::gather(),
        }
    }
}

impl InProcessFacts {
    fn gather() -> Self {
        let launch = LaunchPlan::new(&[PYTHON.into()], &Invoker::detect(), false);
        let config = usual_recording(PYTHON);
        let facts = mode::ModeFacts::gather(config.mode, config.cuda, Some(&launch));
        Self {
            library: library_for(&launch),
            cupti: launch.cupti_libraries(),
            choice: mode::choose(&config, &facts),
            cuda: facts.cuda,
        }
    }
}

fn gpus() -> Result<GpuFacts, NvmlError> {
    let library = NvmlLibrary::open(crate::record::nvml::library().as_deref())?;
    Ok(GpuFacts {
        driver: library.driver_version(),
        nvml: library.version(),
        devices: library.devices()?,
    })
}

/// Tries each. The kernel's clock, which is there on every machine, is left out.
fn processor_counters() -> Vec<(Counter, Result<(), CounterError>)> {
    let cpus = counters::online_cpus();
    Counter::ALL
        .into_iter()
        .filter(|counter| counters::is_per_cpu(*counter) && *counter != Counter::CpuClock)
        .map(|counter| {
            let cpus = cpus.as_ref().map_err(Clone::clone);
            (
                counter,
                cpus.and_then(|cpus| counters::check(counter, cpus)),
            )
        })
        .collect()
}
