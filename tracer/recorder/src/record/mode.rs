//! `--mode`: where collections are recorded, and whether a library is injected into the programs.
//!
//! Gathers facts; the decision, `mode/rules.rs`, is pure. `launch/preload.rs` loads the library
//! into programs.

mod rules;

pub use rules::{ModeError, choose};

use crate::args::{CudaMode, RecordConfig, RecordMode};
use crate::clock::namespaces::{UNKNOWN_CLOCK, own_ahead_ns};
use crate::launch::{InjectionPlan, LaunchPlan, LibraryError, PreloadObstacle, library_for};
use crate::privileges;
use crate::privileges::PrivilegeError;
use gctrace_ebpf::KernelSupport;
use gctrace_event::{CudaLayer, RecordingMode};
use gctrace_probes::cuda::{CudaFile, CudaLibrary};
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

/// The sources that a recording uses, and the report about that choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeDecision {
    /// Whether probes, the injected library or both record collections.
    pub collections: RecordingMode,
    /// The library to inject, if any.
    pub injection: Option<InjectionPlan>,
    /// One line for the user at the start. Not for the trace: its header has the mode.
    pub opening: Option<ModeSummary>,
    /// Sentences for the user, reported once and written to the trace as notes.
    pub notes: Vec<String>,
}

impl ModeDecision {
    /// Whether the kernel's probes are used.
    pub fn uses_probes(&self) -> bool {
        self.collections != RecordingMode::Inject
    }
}

/// One line at the start of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeSummary {
    /// How it is recorded, why, and its gaps.
    pub sentence: String,
    /// How to record more or find out why not, printed in parentheses after the sentence.
    pub more: &'static str,
}

impl fmt::Display for ModeSummary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({})", self.sentence, self.more)
    }
}

/// Why the kernel accepts no probes from this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoProbes {
    /// Privileges are missing.
    Denied(PrivilegeError),
    /// The kernel lacks support or forbids it; the reason as text.
    Kernel(String),
}

/// The facts that the decision is based on.
#[derive(Clone, Debug)]
pub struct ModeFacts {
    /// Why no probe can be placed; `None` if probes can be placed.
    pub no_probes: Option<NoProbes>,
    /// The driver's library that the command is likely to use, if there is a GPU or a simulated
    /// one.
    pub cuda: Option<PathBuf>,
    /// Another tool's library that the driver will load.
    pub foreign_injection: Option<OsString>,
    /// The library, usable for the command. Looked for only if it may be needed.
    pub library: Option<Result<PathBuf, LibraryError>>,
    /// Obstacles to loading it into the command.
    pub obstacles: Vec<PreloadObstacle>,
}

/// In-process a thread's frames could only be read by stopping it, or by a signal that the program sees.
const NO_SAMPLES: &str = "--sample needs kernel probes: no samples are taken (see gctrace doctor)";

/// Decides for a recording; `launch` is the plan for its command, if it starts one.
///
/// # Errors
/// [`ModeError`] if this machine cannot do the request.
pub fn decide(config: &RecordConfig, launch: Option<&LaunchPlan>) -> anyhow::Result<ModeDecision> {
    let facts = ModeFacts::gather(config, launch);
    let mut decision = choose(config, &facts)?;
    if let Some(injection) = &mut decision.injection {
        injection.options.filters = own_filters();
    }
    if config.sources.asks_for_samples() && decision.collections == RecordingMode::Inject {
        decision.notes.push(NO_SAMPLES.to_owned());
    }
    Ok(decision)
}

/// The seccomp filters that apply to gctrace, for the library's options. If they are unknown,
/// programs are assumed to be confined like gctrace.
pub fn own_filters() -> u32 {
    let Ok(status) = std::fs::read("/proc/self/status") else { return u32::MAX };
    gctrace_ring::seccomp_filters(&status).unwrap_or(u32::MAX)
}

impl ModeFacts {
    /// Gathers no more facts than the mode needs.
    pub fn gather(config: &RecordConfig, launch: Option<&LaunchPlan>) -> Self {
        let mode = config.sources.mode;
        let no_probes = match mode {
            RecordMode::Inject => None,
            RecordMode::Auto => no_probes(),
            // Kernel limitations are reported when the probes are loaded.
            RecordMode::Ebpf | RecordMode::Both => {
                privileges::denied().map(NoProbes::Denied).or_else(unknown_clock)
            }
        };
        let may_inject = if mode != RecordMode::Ebpf { launch } else { None };
        let cuda = match may_inject {
            Some(launch) if config.sources.cuda != CudaMode::Off => {
                driver(&launch.cuda_libraries(), has_device())
            }
            _ => None,
        };
        let is_needed = mode != RecordMode::Auto
            || no_probes.is_some()
            || cuda.is_some()
            || config.sources.step_function.is_some()
            || config.sources.layers.is_some();
        let needed = if is_needed { may_inject } else { None };
        Self {
            no_probes,
            cuda,
            foreign_injection: launch
                .and_then(LaunchPlan::foreign_cuda_injection)
                .map(OsString::from),
            library: needed.map(library_for),
            obstacles: needed.into_iter().flat_map(LaunchPlan::obstacles).collect(),
        }
    }
}

fn no_probes() -> Option<NoProbes> {
    if let Some(denied) = privileges::denied() {
        return Some(NoProbes::Denied(denied));
    }
    if let Some(why) = privileges::too_few_files() {
        return Some(NoProbes::Kernel(why));
    }
    if let Some(why) = unknown_clock() {
        return Some(why);
    }
    let support = KernelSupport::probe();
    if !support.permitted {
        let why = "the kernel refuses even the smallest BPF program (a seccomp filter or a security module)";
        return Some(NoProbes::Kernel(why.to_owned()));
    }
    let refusal = support.refusal();
    refusal.map(|error| NoProbes::Kernel(error.to_string()))
}

/// The times of probes could not be compared with gctrace's.
fn unknown_clock() -> Option<NoProbes> {
    if own_ahead_ns().is_none() { Some(NoProbes::Kernel(UNKNOWN_CLOCK.to_owned())) } else { None }
}

/// Folders of system libraries: a driver there does not imply a device.
const SYSTEM: [&str; 5] = ["/usr", "/lib", "/lib64", "/run", "/etc"];

/// The driver's library: any if there is a device, else one outside the system folders (a simulated
/// GPU).
fn driver(files: &[CudaFile], device: bool) -> Option<PathBuf> {
    let mut drivers = files
        .iter()
        .filter(|file| file.library == CudaLibrary::Cuda(CudaLayer::Driver))
        .map(|file| &file.path);
    let systems = |path: &Path| SYSTEM.iter().any(|folder| path.starts_with(folder));
    drivers.find(|path| device || !systems(path)).cloned()
}

/// Whether there is a device of NVIDIA's driver (`nvidia0`, ...) or of WSL's (`dxg`).
pub fn has_device() -> bool {
    let names = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    names.map(|entry| entry.file_name()).any(|name| match name.to_str() {
        Some(name) => {
            let number = name.strip_prefix("nvidia");
            let numbered = matches!(number, Some(number) if number.parse::<u32>().is_ok());
            name == "dxg" || numbered
        }
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(library: CudaLibrary, path: &str) -> CudaFile {
        CudaFile { library, path: path.into(), openable: path.into(), identity: (0, 0) }
    }

    #[test]
    fn a_system_driver_needs_a_device() {
        let systems =
            file(CudaLibrary::Cuda(CudaLayer::Driver), "/usr/lib/x86_64-linux-gnu/libcuda.so.1");
        let runtime = file(CudaLibrary::Cuda(CudaLayer::Runtime), "/opt/sim/libcudart.so");
        let simulated = file(CudaLibrary::Cuda(CudaLayer::Driver), "/opt/sim/libcuda.so.1");
        let files = [runtime.clone(), systems.clone()];
        assert_eq!(driver(&files, false), None);
        assert_eq!(driver(&files, true), Some(systems.path.clone()));
        assert_eq!(driver(&[systems, simulated.clone()], false), Some(simulated.path));
        assert_eq!(driver(&[runtime], true), None);
    }
}
