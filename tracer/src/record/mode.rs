//! `--mode`: where collections are seen, and whether a library is loaded into the programs.
//!
//! Facts are gathered here; the decision, `mode/rules.rs`, is pure. How the library gets into a program is
//! `launch/preload.rs`.

mod rules;

pub(crate) use rules::ModeError;
pub(crate) use rules::choose;

use crate::args::CudaMode;
use crate::args::RecordConfig;
use crate::args::RecordMode;
use crate::launch::LaunchPlan;
use crate::launch::LibraryError;
use crate::launch::PreloadObstacle;
use crate::launch::library_for;
use crate::privileges;
use crate::privileges::PrivilegeError;
use gctrace_ebpf::KernelSupport;
use gctrace_probes::cuda::CudaFile;
use gctrace_probes::cuda::CudaLibrary;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::path::PathBuf;

/// Where collections are seen, decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CollectionSource {
    /// By probes of the kernel.
    Probes,
    /// From within the programs.
    Injected,
    /// By both.
    Both,
}

impl CollectionSource {
    /// As in the header of a trace.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Probes => RecordMode::Ebpf.as_str(),
            Self::Injected => RecordMode::Inject.as_str(),
            Self::Both => RecordMode::Both.as_str(),
        }
    }

    /// Whether the kernel's probes are used at all.
    pub(crate) fn uses_probes(self) -> bool {
        self != Self::Injected
    }
}

/// What a recording uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModeDecision {
    /// Where collections are seen.
    pub(crate) collections: CollectionSource,
    /// The library; `None`: nothing is injected.
    pub(crate) injection: Option<InjectionPlan>,
    /// What the user should know at the start, in one line. Not for the trace, whose header says the mode.
    pub(crate) opening: Option<ModeSummary>,
    /// What the user should know: sentences, to be said once and written as notes.
    pub(crate) notes: Vec<String>,
}

/// One line at the start of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModeSummary {
    /// How it is recorded, why, and what that does not see.
    pub(crate) sentence: String,
    /// Where to turn for more.
    pub(crate) more: &'static str,
}

impl fmt::Display for ModeSummary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({})", self.sentence, self.more)
    }
}

/// The library, and what it is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InjectionPlan {
    /// Its file.
    pub(crate) library: PathBuf,
    /// What it is to do.
    pub(crate) options: gctrace_ring::InjectOptions,
}

/// Why the kernel takes no probes from this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoProbes {
    /// Rights are missing.
    Denied(PrivilegeError),
    /// The kernel cannot, or lets nobody: in words.
    Kernel(String),
}

/// What the decision is drawn from.
#[derive(Clone, Debug)]
pub(crate) struct ModeFacts {
    /// `None`: probes can be placed.
    pub(crate) no_probes: Option<NoProbes>,
    /// The driver's library that the command is likely to use, where there is a GPU for it, or one is simulated.
    pub(crate) cuda: Option<PathBuf>,
    /// Another tool's library that the driver will load.
    pub(crate) foreign_injection: Option<OsString>,
    /// The library, fit for the command. Only looked for if it may be needed.
    pub(crate) library: Option<Result<PathBuf, LibraryError>>,
    /// What keeps it out of the command.
    pub(crate) obstacles: Vec<PreloadObstacle>,
}

/// Decides for a recording; `launch` is the plan for its command, if it starts one.
///
/// # Errors
/// [`ModeError`], where what was asked for is not possible here.
pub(crate) fn decide(
    config: &RecordConfig,
    launch: Option<&LaunchPlan>,
) -> anyhow::Result<ModeDecision> {
    let facts = ModeFacts::gather(config.mode, config.cuda, launch);
    let mut decision = choose(config, &facts)?;
    if let Some(injection) = &mut decision.injection {
        let status = std::fs::read("/proc/self/status").unwrap_or_default();
        // Where that does not say, programs are taken for as confined as gctrace is.
        injection.options.filters = gctrace_ring::seccomp_filters(&status).unwrap_or(u32::MAX);
    }
    Ok(decision)
}

impl ModeFacts {
    /// Looks, no further than the mode needs.
    pub(crate) fn gather(mode: RecordMode, cuda: CudaMode, launch: Option<&LaunchPlan>) -> Self {
        let no_probes = match mode {
            RecordMode::Inject => None,
            RecordMode::Auto => no_probes(),
            // What the kernel lacks is said when the probes are loaded.
            RecordMode::Ebpf | RecordMode::Both => privileges::denied().map(NoProbes::Denied),
        };
        let may_inject = launch.filter(|_| mode != RecordMode::Ebpf);
        let cuda = may_inject
            .filter(|_| cuda != CudaMode::Off)
            .and_then(|launch| driver(&launch.cuda_libraries(), has_device()));
        let needed = may_inject
            .filter(|_| mode != RecordMode::Auto || no_probes.is_some() || cuda.is_some());
        Self {
            no_probes,
            cuda,
            foreign_injection: launch
                .and_then(LaunchPlan::foreign_cuda_injection)
                .map(OsString::from),
            library: needed.map(library_for),
            obstacles: needed.map(LaunchPlan::obstacles).unwrap_or_default(),
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
    let support = KernelSupport::probe();
    if !support.permitted {
        let why = "the kernel refuses even the smallest BPF program (a seccomp filter or a security module)";
        return Some(NoProbes::Kernel(why.to_owned()));
    }
    let refusal = support.refusal();
    refusal.map(|error| NoProbes::Kernel(error.to_string()))
}

/// Where the system keeps its libraries: a driver there says nothing without a device.
const SYSTEM: [&str; 5] = ["/usr", "/lib", "/lib64", "/run", "/etc"];

/// The driver's library: any where there is a device, else one of the command's own (a simulated GPU).
fn driver(files: &[CudaFile], device: bool) -> Option<PathBuf> {
    let mut drivers = files
        .iter()
        .filter(|file| file.library == CudaLibrary::Driver)
        .map(|file| &file.path);
    let systems = |path: &Path| SYSTEM.iter().any(|folder| path.starts_with(folder));
    drivers.find(|path| device || !systems(path)).cloned()
}

/// Whether there is a device of NVIDIA's driver: `nvidia0`, ..., or of WSL's, `dxg`.
pub(crate) fn has_device() -> bool {
    let names = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    names.map(|entry| entry.file_name()).any(|name| {
        name.to_str().is_some_and(|name| {
            let number = name.strip_prefix("nvidia");
            let numbered = number.is_some_and(|number| number.parse::<u32>().is_ok());
            name == "dxg" || numbered
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(library: CudaLibrary, path: &str) -> CudaFile {
        CudaFile {
            library,
            path: path.into(),
            openable: path.into(),
            identity: (0, 0),
        }
    }

    #[test]
    fn a_driver_of_the_system_needs_a_device() {
        let systems = file(
            CudaLibrary::Driver,
            "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
        );
        let runtime = file(CudaLibrary::Runtime, "/opt/sim/libcudart.so");
        let simulated = file(CudaLibrary::Driver, "/opt/sim/libcuda.so.1");
        let files = [runtime.clone(), systems.clone()];
        assert_eq!(driver(&files, false), None);
        assert_eq!(driver(&files, true), Some(systems.path.clone()));
        assert_eq!(
            driver(&[systems, simulated.clone()], false),
            Some(simulated.path)
        );
        assert_eq!(driver(&[runtime], true), None);
    }
}
