//! The sampler against a library with known figures (`fake_nvml.c`), compiled here: the behavior of
//! real drivers that are old, failing or restricted.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use gctrace_event::{GpuProcess, GpuSample};
use gctrace_probes::nvml::{ExtraQueries, NvmlAbsences, NvmlError, NvmlLibrary, NvmlSampler};
use std::path::{Path, PathBuf};
use std::process::Command;
use test_kit::limit::WithTimeout as _;

const GIB: u64 = 1 << 30;
const ALL: ExtraQueries = ExtraQueries { processes: true, pcie: true };

/// A library file per test: the loader keeps one copy of each file.
struct Fake {
    folder: tempfile::TempDir,
}

impl Fake {
    /// `None`, with a message, without a C compiler.
    fn build(test: &str, options: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_nvml.c");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(folder.path().join("nvml.so"))
            .arg(format!("-DFAULTS=\"{}\"", folder.path().join("faults").display()))
            .args(options)
            .arg(source)
            .status_in_time();
        match built {
            Ok(status) => {
                assert!(status.success(), "cc failed");
                Some(Self { folder })
            }
            Err(error) => {
                println!("skipped {test}: cc: {error}");
                None
            }
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("nvml.so")
    }

    fn open(&self) -> Result<NvmlLibrary, NvmlError> {
        NvmlLibrary::open(Some(&self.path()))
    }

    fn faults(&self, text: &str) {
        std::fs::write(self.folder.path().join("faults"), text).unwrap();
    }
}

/// The library's values of GPU `n` with everything supported.
fn expected(n: u32) -> GpuSample {
    let gpu_process =
        GpuProcess { pid: std::process::id(), memory_bytes: Some(u64::from(1 + n) * GIB / 2) };
    let init = GpuProcess { pid: 1, memory_bytes: None };
    GpuSample {
        device: n,
        at_ns: 77,
        utilization_percent: Some(40 + n),
        memory_utilization_percent: Some(7 + n),
        memory_used_bytes: Some(u64::from(1 + n) * GIB),
        power_mw: Some(300_000 + n),
        sm_clock_mhz: Some(1980),
        memory_clock_mhz: Some(2619),
        pcie_rx_kb_per_s: Some(1000 + n),
        pcie_tx_kb_per_s: Some(2000 + n),
        throttle_reasons: Some(vec!["sw_power_cap".to_owned()]),
        processes: Some(vec![init, gpu_process]),
    }
}

/// One sample of each GPU, and the missing values.
fn sampled(library: &NvmlLibrary) -> (Vec<GpuSample>, Vec<String>) {
    let (mut sampler, _) = NvmlSampler::new(library).unwrap();
    let mut absences = NvmlAbsences::default();
    let samples = (0..sampler.count())
        .map(|place| sampler.sample(place, 77, ALL, &mut absences))
        .map(|sample| sample.unwrap().unwrap())
        .collect();
    (samples, absences.take())
}

#[test]
fn every_figure_of_every_gpu() {
    let Some(fake) = Fake::build("every_figure_of_every_gpu", &["-DDEVICES=3"]) else {
        return;
    };
    let library = fake.open().unwrap();
    assert_eq!(library.driver_version().as_deref(), Some("999.1"));
    assert_eq!(library.version().as_deref(), Some("13.999.1"));
    let devices = library.devices().unwrap();
    let uuids: Vec<_> = devices.iter().map(|gpu| gpu.uuid.clone().unwrap()).collect();
    assert_eq!(uuids, ["GPU-fake-0", "GPU-fake-1", "GPU-fake-2"]);
    assert_eq!(devices[1].memory_total_bytes, Some(80 * GIB));
    assert_eq!(devices[1].name.as_deref(), Some("Fake GPU"));
    let (samples, absences) = sampled(&library);
    assert_eq!(samples, [expected(0), expected(1), expected(2)]);
    assert!(absences.is_empty(), "{absences:?}");
}

#[test]
fn expensive_values_are_queried_only_on_demand() {
    let Some(fake) = Fake::build("expensive_values_are_queried_only_on_demand", &[]) else {
        return;
    };
    let library = fake.open().unwrap();
    let (mut sampler, _) = NvmlSampler::new(&library).unwrap();
    let sample = sampler.sample(0, 77, ExtraQueries::default(), &mut NvmlAbsences::default());
    let cheap = GpuSample {
        processes: None,
        pcie_rx_kb_per_s: None,
        pcie_tx_kb_per_s: None,
        ..expected(0)
    };
    assert_eq!(sample, Ok(Some(cheap)));
}

#[test]
fn older_and_newer_drivers_use_other_names() {
    let test = "older_and_newer_drivers_use_other_names";
    for options in [&["-DOLD"], &["-DNEW_NAMES"]] {
        let Some(fake) = Fake::build(test, options) else {
            return;
        };
        let (samples, absences) = sampled(&fake.open().unwrap());
        assert_eq!(samples, [expected(0), expected(1)], "{options:?}");
        assert!(absences.is_empty(), "{options:?} {absences:?}");
    }
}

#[test]
fn missing_values_are_left_out_and_reported_once() {
    let test = "missing_values_are_left_out_and_reported_once";
    let options = ["-DMIG=1", "-DNO_POWER=1", "-DNO_PCIE"];
    let Some(fake) = Fake::build(test, &options) else {
        return;
    };
    let library = fake.open().unwrap();
    let (mut sampler, devices) = NvmlSampler::new(&library).unwrap();
    assert_eq!(devices.iter().map(|gpu| gpu.mig).collect::<Vec<_>>(), [false, true]);
    let mut absences = NvmlAbsences::default();
    for _ in 0..3 {
        for place in 0..2 {
            let sample = sampler.sample(place, 77, ALL, &mut absences);
            let sample = sample.unwrap().unwrap();
            assert_eq!(sample.pcie_rx_kb_per_s, None);
            assert_eq!(sample.power_mw.is_some(), place == 0);
            assert_eq!(sample.utilization_percent.is_some(), place == 0);
            assert_eq!(sample.sm_clock_mhz, Some(1980));
        }
    }
    assert_eq!(
        absences.take(),
        [
            "not recorded: utilization, power of GPU 1, split by MIG (the device does not support it)",
            "not recorded: PCIe throughput of GPU 0, 1 (split by MIG: 1) (the driver's library has no such function)",
        ]
    );
    assert_eq!(absences.take(), Vec::<String>::new());
}

#[test]
fn a_lost_gpu_leaves_the_others_and_may_come_back() {
    let test = "a_lost_gpu_leaves_the_others_and_may_come_back";
    let Some(fake) = Fake::build(test, &[]) else {
        return;
    };
    let library = fake.open().unwrap();
    let (mut sampler, _) = NvmlSampler::new(&library).unwrap();
    let mut absences = NvmlAbsences::default();
    fake.faults("lost:1");
    let mut sample = |sampler: &mut NvmlSampler<'_>, place| {
        let sample = sampler.sample(place, 77, ALL, &mut absences);
        sample.map(|sample| sample.is_some())
    };
    assert_eq!(sample(&mut sampler, 0), Ok(true));
    let words = sample(&mut sampler, 1).unwrap_err();
    assert!(words.contains("it is lost"), "{words}");
    assert_eq!(sample(&mut sampler, 1), Ok(false), "reported once");
    assert_eq!(sampler.lost(), [1]);
    assert!(sampler.find_lost().is_empty());
    fake.faults("");
    assert_eq!(sampler.find_lost().len(), 1);
    assert_eq!(sample(&mut sampler, 1), Ok(true));
    assert!(sampler.lost().is_empty());
    assert!(absences.take().is_empty());
}

#[test]
fn a_gpu_that_is_lost_from_the_start_has_a_place() {
    let test = "a_gpu_that_is_lost_from_the_start_has_a_place";
    let Some(fake) = Fake::build(test, &[]) else {
        return;
    };
    fake.faults("lost:0");
    let library = fake.open().unwrap();
    let (sampler, devices) = NvmlSampler::new(&library).unwrap();
    assert_eq!((sampler.count(), sampler.lost()), (2, vec![0]));
    assert_eq!(devices.len(), 1);
}

#[test]
fn reasons_for_missing_nvml() {
    let absent = NvmlLibrary::open(Some(Path::new("/no/such/libnvidia-ml.so.1"))).unwrap_err();
    assert!(matches!(absent, NvmlError::NoLibrary { .. }) && absent.is_absence());
    let test = "reasons_for_missing_nvml";
    let refusal = |code: u32| {
        let fake = Fake::build(test, &[&format!("-DINIT={code}")])?;
        Some(fake.open().unwrap_err())
    };
    // NVML_ERROR_DRIVER_NOT_LOADED, NVML_ERROR_LIB_RM_VERSION_MISMATCH, NVML_ERROR_NO_PERMISSION.
    let (Some(no_driver), Some(mismatch), Some(denied)) = (refusal(9), refusal(18), refusal(4))
    else {
        return;
    };
    assert!(matches!(no_driver, NvmlError::NoDriver { .. }) && no_driver.is_absence());
    assert!(matches!(mismatch, NvmlError::VersionMismatch { .. }));
    let text = denied.to_string();
    assert!(text.contains("permission") && !denied.is_absence(), "{text}");
}

#[test]
fn a_file_that_is_no_nvml_is_an_error() {
    let libc = Path::new("libc.so.6");
    let error = NvmlLibrary::open(Some(libc)).unwrap_err().to_string();
    assert!(error.contains("nvmlInit_v2"), "{error}");
}
