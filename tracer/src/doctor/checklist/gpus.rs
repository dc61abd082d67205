//! The line on NVML; NVML is optional.

use super::{CheckLine, HostFacts};
use crate::doctor::machine::GpuFacts;
use gctrace_event::GpuDevice;
use gctrace_probes::nvml::NvmlError;
use std::collections::BTreeMap;

const WHAT: &str = "GPUs (NVML)";
const WITHOUT: &str =
    "Recording works without NVML; traces will not contain GPU utilization and memory.";

pub(super) fn line(machine: &HostFacts) -> CheckLine {
    match &machine.gpus {
        Ok(gpus) => there(gpus),
        Err(NvmlError::NoLibrary { reason, .. }) => {
            CheckLine::note(WHAT, format!("none: {reason}")).with_fix(WITHOUT)
        }
        Err(error) => {
            CheckLine::note(WHAT, "not available").with_fix(format!("{error}\n{WITHOUT}"))
        }
    }
}

fn there(gpus: &GpuFacts) -> CheckLine {
    let version = |version: &Option<String>| version.clone().unwrap_or("unknown".to_owned());
    let versions = format!("driver {}, NVML {}", version(&gpus.driver), version(&gpus.nvml));
    if gpus.devices.is_empty() {
        return CheckLine::note(WHAT, format!("{versions}: no GPU"))
            .with_fix("nvidia-smi -L lists the GPUs of the driver.");
    }
    CheckLine::ok(WHAT, format!("{versions}\n{}", models(&gpus.devices)))
}

/// `NVIDIA H100 80GB HBM3: GPU 0, 1`, one line per model.
fn models(devices: &[GpuDevice]) -> String {
    let mut models: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for device in devices {
        let name = device.name.as_deref().unwrap_or("unknown model");
        let split = if device.mig { ", split by MIG" } else { "" };
        let alike = models.entry(format!("{name}{split}")).or_default();
        alike.push(device.index.to_string());
    }
    let lines =
        models.into_iter().map(|(name, indices)| format!("{name}: GPU {}", indices.join(", ")));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::super::CheckStatus;
    use super::*;

    fn drawn(gpus: GpuFacts) -> (CheckStatus, String) {
        let line = there(&gpus);
        (line.verdict, line.value)
    }

    #[test]
    fn devices_are_grouped_by_model() {
        let gpu = |index, name: &str, mig| GpuDevice {
            index,
            name: Some(name.to_owned()),
            mig,
            ..GpuDevice::default()
        };
        let gpus = GpuFacts {
            driver: Some("570.86".to_owned()),
            nvml: None,
            devices: vec![gpu(0, "H100", false), gpu(1, "H100", true), gpu(2, "H100", false)],
        };
        let text = "driver 570.86, NVML unknown\nH100: GPU 0, 2\nH100, split by MIG: GPU 1";
        assert_eq!(drawn(gpus), (CheckStatus::Ok, text.to_owned()));
        let (verdict, text) = drawn(GpuFacts::default());
        assert_eq!(verdict, CheckStatus::Note);
        assert!(text.ends_with(": no GPU"), "{text}");
    }

    #[test]
    fn a_version_mismatch_names_the_fix() {
        let error = NvmlError::VersionMismatch { library: "libnvidia-ml.so.1".to_owned() };
        assert!(error.to_string().contains("sudo modprobe -r nvidia_uvm"));
        assert!(!error.is_absence());
    }
}
