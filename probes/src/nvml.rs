//! NVIDIA's management library: what the GPUs are and how they do, seen from outside the program.
//!
//! Owns the loading of `libnvidia-ml.so.1` and what can go wrong with it. What is asked of each GPU is
//! `nvml/queries.rs`, how answers that are missing are told `nvml/absences.rs`. When to sample, and on
//! which thread, is the caller's.

mod absences;
mod queries;
mod sampler;

pub use absences::NvmlAbsences;
pub use sampler::ExtraQueries;
pub use sampler::NvmlSampler;

use gctrace_event::GpuDevice;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError as Code;
use std::path::Path;

/// The driver's library as the dynamic loader finds it.
pub const LIBRARY: &str = "libnvidia-ml.so.1";

/// Why the GPUs cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NvmlError {
    /// There is no such library: no NVIDIA driver.
    #[error("{library} cannot be loaded: {reason}")]
    NoLibrary {
        /// What was tried.
        library: String,
        /// What the dynamic loader says.
        reason: String,
    },
    /// The library is there, its driver is not running.
    #[error(
        "{library} is there, but NVIDIA's driver is not loaded; on a machine with a GPU: sudo modprobe nvidia"
    )]
    NoDriver {
        /// What was loaded.
        library: String,
    },
    /// Library and kernel module are of different versions.
    #[error(
        "the NVIDIA driver was updated while it was loaded: {library} and the kernel module differ; reboot, or stop everything that uses the GPUs and run: sudo modprobe -r nvidia_uvm nvidia && sudo modprobe nvidia"
    )]
    VersionMismatch {
        /// What was loaded.
        library: String,
    },
    /// Anything else that the library says.
    #[error("{library} refuses: {reason}; nvidia-smi may say more")]
    Refused {
        /// What was loaded.
        library: String,
        /// In its words.
        reason: String,
    },
}

impl NvmlError {
    fn new(library: &str, code: Code) -> Self {
        let library = library.to_owned();
        match code {
            Code::LibloadingError(error) => Self::NoLibrary {
                library,
                reason: error.to_string(),
            },
            Code::DriverNotLoaded => Self::NoDriver { library },
            Code::LibRmVersionMismatch => Self::VersionMismatch { library },
            other => Self::Refused {
                library,
                reason: other.to_string(),
            },
        }
    }

    /// Nothing is wrong: the machine has no NVIDIA GPU, or no driver for it in use.
    #[must_use]
    pub fn is_absence(&self) -> bool {
        matches!(self, Self::NoLibrary { .. } | Self::NoDriver { .. })
    }
}

/// The loaded and initialized library. Dropping it gives the driver back, which can be unloaded or
/// updated then.
#[derive(Debug)]
pub struct NvmlLibrary {
    nvml: Nvml,
    name: String,
}

impl NvmlLibrary {
    /// Loads and initializes it; `path`: another than [`LIBRARY`], as tests do. Takes seconds where no
    /// one else holds the GPUs awake.
    ///
    /// # Errors
    /// Why there is none to ask.
    pub fn open(path: Option<&Path>) -> Result<Self, NvmlError> {
        let path = path.unwrap_or(Path::new(LIBRARY));
        let name = path.display().to_string();
        match Nvml::builder().lib_path(path.as_os_str()).init() {
            Ok(nvml) => Ok(Self { nvml, name }),
            Err(code) => Err(NvmlError::new(&name, code)),
        }
    }

    /// Version of the driver, where it tells.
    #[must_use]
    pub fn driver_version(&self) -> Option<String> {
        self.nvml.sys_driver_version().ok()
    }

    /// Version of the library itself, where it tells.
    #[must_use]
    pub fn version(&self) -> Option<String> {
        self.nvml.sys_nvml_version().ok()
    }

    /// Descriptions of all GPUs that can be asked.
    ///
    /// # Errors
    /// Their number is not known.
    pub fn devices(&self) -> Result<Vec<GpuDevice>, NvmlError> {
        let count = self.device_count()?;
        let driver = self.driver_version();
        Ok((0..count)
            .filter_map(|index| {
                let device = self.nvml.device_by_index(index).ok()?;
                Some(queries::describe(&device, index, driver.clone()))
            })
            .collect())
    }

    fn device_count(&self) -> Result<u32, NvmlError> {
        let count = self.nvml.device_count();
        count.map_err(|code| NvmlError::new(&self.name, code))
    }
}
