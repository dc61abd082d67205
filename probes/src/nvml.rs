//! NVIDIA's management library (NVML): the GPUs and their state, out-of-process.
//!
//! Owns the loading of `libnvidia-ml.so.1` and its errors. `nvml/queries.rs` has the queries of each GPU,
//! `nvml/absences.rs` the reports of missing values. The caller decides the time and the thread of sampling.

mod absences;
mod queries;
mod sampler;

pub use absences::NvmlAbsences;
pub use sampler::{ExtraQueries, NvmlSampler};

use gctrace_event::GpuDevice;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError as Code;
use std::path::Path;

/// The driver's library, by the name the dynamic loader resolves.
pub const LIBRARY: &str = "libnvidia-ml.so.1";

/// Why the GPUs cannot be queried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NvmlError {
    /// The library does not exist: no NVIDIA driver.
    #[error("{library} cannot be loaded: {reason}")]
    NoLibrary {
        /// The library that was tried.
        library: String,
        /// The dynamic loader's error.
        reason: String,
    },
    /// The library exists, but its driver is not running.
    #[error(
        "{library} exists, but NVIDIA's driver is not loaded; on a machine with a GPU: sudo modprobe nvidia"
    )]
    NoDriver {
        /// The library that was loaded.
        library: String,
    },
    /// Library and kernel module are of different versions.
    #[error(
        "the NVIDIA driver was updated while it was loaded: {library} and the kernel module differ; reboot, or stop everything that uses the GPUs and run: sudo modprobe -r nvidia_uvm nvidia && sudo modprobe nvidia"
    )]
    VersionMismatch {
        /// The library that was loaded.
        library: String,
    },
    /// Any other error of the library.
    #[error("{library} failed: {reason}; see also: nvidia-smi")]
    Refused {
        /// The library that was loaded.
        library: String,
        /// The library's error text.
        reason: String,
    },
}

impl NvmlError {
    fn new(library: &str, code: Code) -> Self {
        let library = library.to_owned();
        match code {
            Code::LibloadingError(error) => Self::NoLibrary { library, reason: error.to_string() },
            Code::DriverNotLoaded => Self::NoDriver { library },
            Code::LibRmVersionMismatch => Self::VersionMismatch { library },
            other => Self::Refused { library, reason: other.to_string() },
        }
    }

    /// Not an error: the machine has no NVIDIA GPU, or no driver for it in use.
    pub fn is_absence(&self) -> bool {
        matches!(self, Self::NoLibrary { .. } | Self::NoDriver { .. })
    }
}

/// The loaded and initialized library. Dropping it releases the driver: the driver can then be unloaded or updated.
#[derive(Debug)]
pub struct NvmlLibrary {
    nvml: Nvml,
    name: String,
}

impl NvmlLibrary {
    /// Loads and initializes it; `path`: an alternative to [`LIBRARY`], for tests. Takes seconds if
    /// no other process keeps the GPUs initialized.
    ///
    /// # Errors
    /// Why NVML is unavailable.
    pub fn open(path: Option<&Path>) -> Result<Self, NvmlError> {
        let path = path.unwrap_or(Path::new(LIBRARY));
        let name = path.display().to_string();
        match Nvml::builder().lib_path(path.as_os_str()).init() {
            Ok(nvml) => Ok(Self { nvml, name }),
            Err(code) => Err(NvmlError::new(&name, code)),
        }
    }

    /// Version of NVIDIA's driver; `None` if NVML does not report it.
    pub fn driver_version(&self) -> Option<String> {
        self.nvml.sys_driver_version().ok()
    }

    /// Version of the library itself, if reported.
    pub fn version(&self) -> Option<String> {
        self.nvml.sys_nvml_version().ok()
    }

    /// Descriptions of all GPUs that can be queried.
    ///
    /// # Errors
    /// If the number of GPUs is unknown.
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
