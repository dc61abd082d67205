//! Gathers facts on this machine and this process.

use crate::args::usual_recording;
use crate::invoker::Invoker;
use crate::launch::{LaunchPlan, LibraryError, library_for};
use crate::privileges::PrivilegeFacts;
use crate::record::mode;
use crate::record::mode::{ModeDecision, ModeError};
use crate::trust::{WritablePath, writable_beside_root};
use gctrace_ebpf::KernelSupport;
use gctrace_event::{Counter, GpuDevice};
use gctrace_probes::counters;
use gctrace_probes::counters::CounterError;
use gctrace_probes::nvml::{NvmlError, NvmlLibrary};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use std::path::PathBuf;

/// The command that the checks assume.
const PYTHON: &str = "python3";

/// Facts that the checklist of `gctrace doctor` is derived from, read once.
#[derive(Clone, Debug)]
pub(crate) struct HostFacts {
    /// Features of the running kernel that recording uses.
    pub(crate) kernel: KernelSupport,
    /// Privileges of this gctrace, and the obstacles to more.
    pub(crate) rights: PrivilegeFacts,
    /// Value of `/proc/sys/kernel/perf_event_paranoid`; `None` if it cannot be read.
    pub(crate) perf_event_paranoid: Option<i32>,
    /// Limit of locked memory in bytes; `None` if unlimited.
    pub(crate) locked_memory: Option<u64>,
    /// Hardware counters, with the reason for each that is missing.
    pub(crate) counters: Vec<(Counter, Result<(), CounterError>)>,
    /// NVIDIA driver and GPUs, or why NVML cannot be used.
    pub(crate) gpus: Result<GpuFacts, NvmlError>,
    /// As root: users that could replace gctrace's file, apart from the user behind sudo.
    pub(crate) replaceable: Option<WritablePath>,
    /// Facts about in-process recording on this machine.
    pub(crate) within: InProcessFacts,
}

/// Facts on in-process recording, with `python3` as the command.
#[derive(Clone, Debug)]
pub(crate) struct InProcessFacts {
    /// Path of the library, or the reason why it cannot be used.
    pub(crate) library: Result<PathBuf, LibraryError>,
    /// Path of the driver's library, if there is a GPU.
    pub(crate) cuda: Option<PathBuf>,
    /// CUPTI libraries that `python3` is likely to find; may be empty.
    pub(crate) cupti: Vec<PathBuf>,
    /// The choice of `--mode auto` here, or why nothing can be recorded.
    pub(crate) choice: Result<ModeDecision, ModeError>,
}

/// NVML's report about the driver, itself and its GPUs.
#[derive(Clone, Debug, Default)]
pub(crate) struct GpuFacts {
    /// Version of the driver; `None` if it is unknown.
    pub(crate) driver: Option<String>,
    /// Version of the NVML library; `None` if it is unknown.
    pub(crate) nvml: Option<String>,
    /// GPUs that NVML lists, in its order; may be empty.
    pub(crate) devices: Vec<GpuDevice>,
}

impl HostFacts {
    /// Runs all checks; a failed one leaves an error or a default in its field.
    pub(crate) fn gather() -> Self {
        // The call fails only for an unknown resource.
        let limit = getrlimit(Resource::RLIMIT_MEMLOCK).ok().map(|(soft, _)| soft);
        Self {
            kernel: KernelSupport::probe(),
            rights: PrivilegeFacts::gather(),
            perf_event_paranoid: std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")
                .ok()
                .and_then(|text| text.trim().parse().ok()),
            locked_memory: limit.filter(|limit| *limit != RLIM_INFINITY),
            counters: processor_counters(),
            gpus: gpus(),
            replaceable: replaceable(),
            within: InProcessFacts::gather(),
        }
    }
}

impl InProcessFacts {
    fn gather() -> Self {
        let launch = LaunchPlan::new(&[PYTHON.into()], &Invoker::detect(), false);
        let config = usual_recording(PYTHON);
        let facts = mode::ModeFacts::gather(&config, Some(&launch));
        Self {
            library: library_for(&launch),
            cupti: launch.cupti_libraries(),
            choice: mode::choose(&config, &facts),
            cuda: facts.cuda,
        }
    }
}

fn replaceable() -> Option<WritablePath> {
    let executable = std::env::current_exe().ok()?;
    writable_beside_root(&executable, Invoker::detect().uid).ok()?
}

fn gpus() -> Result<GpuFacts, NvmlError> {
    let library = NvmlLibrary::open(crate::record::nvml::library().as_deref())?;
    Ok(GpuFacts {
        driver: library.driver_version(),
        nvml: library.version(),
        devices: library.devices()?,
    })
}

/// Tests each per-CPU counter except cpu-clock: that always exists.
fn processor_counters() -> Vec<(Counter, Result<(), CounterError>)> {
    let cpus = counters::online_cpus();
    Counter::ALL
        .iter()
        .copied()
        .filter(|counter| counters::is_per_cpu(*counter) && *counter != Counter::CpuClock)
        .map(|counter| {
            let cpus = cpus.as_ref().map_err(Clone::clone);
            (counter, cpus.and_then(|cpus| counters::check(counter, cpus)))
        })
        .collect()
}
