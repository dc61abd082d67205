//! Samples of all GPUs, as far as each can be queried.
//!
//! Owns the list of responding GPUs, and the list of queries that are not repeated.

use super::queries::{NvmlQuery, QueryFailure};
use super::{NvmlAbsences, NvmlError, NvmlLibrary, queries};
use gctrace_event::{GpuDevice, GpuSample};
use nvml_wrapper::Device;
use std::collections::HashSet;

/// Values to query beyond the cheap ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtraQueries {
    /// Device memory of each process with a compute context.
    pub processes: bool,
    /// PCIe throughput; takes some 40 ms on hardware.
    pub pcie: bool,
}

/// The GPUs of a machine, numbered from 0 by NVML index.
#[derive(Debug)]
pub struct NvmlSampler<'library> {
    library: &'library NvmlLibrary,
    gpus: Vec<SampledGpu<'library>>,
}

#[derive(Debug)]
struct SampledGpu<'library> {
    index: u32,
    mig: bool,
    /// `None`: it was lost.
    device: Option<Device<'library>>,
    hopeless: HashSet<NvmlQuery>,
}

impl<'library> NvmlSampler<'library> {
    /// Enumerates the GPUs; the second value describes the GPUs found. A GPU that cannot be queried keeps its index.
    ///
    /// # Errors
    /// If the number of GPUs is unknown.
    pub fn new(library: &'library NvmlLibrary) -> Result<(Self, Vec<GpuDevice>), NvmlError> {
        let count = library.device_count()?;
        let gpus = (0..count).map(|index| SampledGpu {
            index,
            mig: false,
            device: None,
            hopeless: HashSet::new(),
        });
        let mut sampler = Self { library, gpus: gpus.collect() };
        let devices = sampler.find_lost();
        Ok((sampler, devices))
    }

    /// Number of GPUs, including unresponsive ones.
    pub fn count(&self) -> usize {
        self.gpus.len()
    }

    /// Indices of unresponsive GPUs.
    pub fn lost(&self) -> Vec<usize> {
        let lost =
            |place: &usize| matches!(self.gpus.get(*place), Some(gpu) if gpu.device.is_none());
        (0..self.gpus.len()).filter(lost).collect()
    }

    /// Retries unresponsive GPUs, and describes the ones responding now.
    pub fn find_lost(&mut self) -> Vec<GpuDevice> {
        let driver = self.library.driver_version();
        let mut found = Vec::new();
        for gpu in &mut self.gpus {
            if gpu.device.is_some() {
                continue;
            }
            let Ok(device) = self.library.nvml.device_by_index(gpu.index) else {
                continue;
            };
            // A lost device may still have a handle; a live one reports its identity.
            if !matches!(device.uuid().map_err(QueryFailure::from), Err(QueryFailure::Lost(_))) {
                let described = queries::describe(&device, gpu.index, driver.clone());
                gpu.mig = described.mig;
                gpu.device = Some(device);
                found.push(described);
            }
        }
        found
    }

    /// Samples the GPU with this index; values that it does not report go to `absences`. `None` if
    /// it does not respond.
    ///
    /// # Errors
    /// If it responded until now: the driver's error.
    pub fn sample(
        &mut self,
        place: usize,
        at_ns: u64,
        extras: ExtraQueries,
        absences: &mut NvmlAbsences,
    ) -> Result<Option<GpuSample>, String> {
        match self.gpus.get_mut(place) {
            Some(gpu) => gpu.sample(at_ns, extras, absences),
            None => Ok(None),
        }
    }
}

impl SampledGpu<'_> {
    fn sample(
        &mut self,
        at_ns: u64,
        extras: ExtraQueries,
        absences: &mut NvmlAbsences,
    ) -> Result<Option<GpuSample>, String> {
        let Some(device) = &self.device else {
            return Ok(None);
        };
        let mut sample = GpuSample { device: self.index, at_ns, ..GpuSample::default() };
        let processes = if extras.processes { Some(NvmlQuery::Processes) } else { None };
        let pcie = if extras.pcie { Some(NvmlQuery::Pcie) } else { None };
        for query in NvmlQuery::EACH_TIME.into_iter().chain(processes).chain(pcie) {
            if self.hopeless.contains(&query) {
                continue;
            }
            match query.query(device, &mut sample).map_err(QueryFailure::from) {
                Ok(()) => {}
                Err(QueryFailure::Never(cause)) => {
                    self.hopeless.insert(query);
                    absences.add(cause, self.index, self.mig, query);
                }
                Err(QueryFailure::Now(cause)) => absences.add(&cause, self.index, self.mig, query),
                Err(QueryFailure::Lost(cause)) => {
                    self.device = None;
                    return Err(cause);
                }
            }
        }
        Ok(Some(sample))
    }
}
