//! NVML's faults, and NVML's values while no process uses a device.

#![expect(clippy::expect_used, reason = "a helper that fails is a failed test")]

use libloading::Library;
use test_kit::simulator;
use test_kit::simulator::gpu::{Gpu, c};
use test_kit::simulator::scenario;

fn nvml() -> Library {
    // SAFETY: the library runs nothing when it is loaded.
    unsafe { Library::new(simulator::libraries().join("libnvidia-ml.so.1")) }.expect("laid out")
}

fn utilization(nvml: &Library, device: u64) -> (i32, u32) {
    let mut rates = [0_u32; 2];
    let result =
        c!(nvml, nvmlDeviceGetUtilizationRates(device => u64, &mut rates => &mut [u32; 2]));
    (result, rates[0])
}

fn first_device(nvml: &Library) -> u64 {
    let mut device = 0;
    assert_eq!(c!(nvml, nvmlInit_v2()), 0);
    assert_eq!(c!(nvml, nvmlDeviceGetHandleByIndex_v2(0 => u32, &mut device => &mut u64)), 0);
    device
}

fn processes(nvml: &Library, device: u64) -> u32 {
    let (mut count, mut room) = (4_u32, [[0_u64; 3]; 4]);
    let result = c!(nvml, nvmlDeviceGetComputeRunningProcesses_v3(
        device => u64, &mut count => &mut u32, &mut room => &mut [[u64; 3]; 4]));
    assert_eq!(result, 0);
    count
}

#[test]
fn a_device_is_idle_until_it_is_used() {
    let outcome = scenario("a_device_is_idle_until_it_is_used", &[], |_| {
        let nvml = nvml();
        let device = first_device(&nvml);
        assert_eq!(utilization(&nvml, device), (0, 0));
        assert_eq!(processes(&nvml, device), 0);
        let gpu = Gpu::load();
        assert_eq!(c!(gpu.driver, cuInit(0 => u32)), 0);
        assert_eq!(processes(&nvml, device), 0, "no context yet");
        let gpu = Gpu::ready();
        assert_eq!(processes(&nvml, device), 1);
        gpu.launch(gpu.kernel(60_000_000_000), 0);
        // The window is full of it; the process ends before the kernel does.
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert_eq!(utilization(&nvml, device), (0, 100));
        let (mut low, mut reasons) = (0_u32, 0_u64);
        c!(nvml, nvmlDeviceGetPowerUsage(device => u64, &mut low => &mut u32));
        c!(nvml, nvmlDeviceGetCurrentClocksThrottleReasons(device => u64, &mut reasons => &mut u64));
        assert!(low > 50_000 && reasons == 0);
    });
    let Some(outcome) = outcome else { return };
    assert!(outcome.status.success());
}

#[test]
fn without_a_driver_initializing_fails() {
    let settings = [("SIMGPU_FAULT", "no-nvml")];
    let outcome = scenario("without_a_driver_initializing_fails", &settings, |_| {
        let nvml = nvml();
        assert_eq!(c!(nvml, nvmlInit_v2()), 9, "driver not loaded");
        let mut count = 0;
        assert_eq!(c!(nvml, nvmlDeviceGetCount_v2(&mut count => &mut u32)), 1, "uninitialized");
    });
    let Some(outcome) = outcome else { return };
    assert!(outcome.status.success());
}

#[test]
fn a_device_can_be_lost() {
    let settings = [("SIMGPU_FAULT", "nvml-lost")];
    let outcome = scenario("a_device_can_be_lost", &settings, |_| {
        let nvml = nvml();
        let device = first_device(&nvml);
        let results: Vec<i32> = (0..12).map(|_| utilization(&nvml, device).0).collect();
        assert_eq!(results, [0, 0, 0, 0, 0, 0, 0, 0, 0, 15, 15, 15]);
    });
    let Some(outcome) = outcome else { return };
    assert!(outcome.status.success());
}
