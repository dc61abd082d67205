//! Several processes: NVML out-of-process, shared memory accounting, collectives.

#![expect(clippy::expect_used, reason = "a helper that fails is a failed test")]

use std::ffi::c_char;
use std::path::Path;
use std::time::{Duration, Instant};
use test_kit::limit::WithTimeout as _;
use test_kit::simulator;
use test_kit::simulator::gpu::{Gpu, c};
use test_kit::simulator::log::Log;
use test_kit::simulator::{command, playing};

/// NVML's window.
const WINDOW_NS: u64 = 1_000_000_000 / 6;

fn now_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).expect("a clock");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Keeps the GPU busy for a third of the time until the test is done.
fn play_busy(folder: &Path) {
    let gpu = Gpu::ready();
    let _kept = gpu.allocate(123_456_789).expect("fits");
    let (kernel, stream) = (gpu.kernel(2_000_000), gpu.stream());
    while !folder.join("done").exists() {
        gpu.launch(kernel, stream);
        gpu.wait(stream);
        std::fs::write(folder.join("busy"), "").expect("written");
        std::thread::sleep(Duration::from_millis(4));
    }
}

#[test]
fn nvml_in_another_process_agrees_with_the_log() {
    if let Some(folder) = playing() {
        return play_busy(&folder);
    }
    let folder = tempfile::tempdir().expect("folder");
    let test = "nvml_in_another_process_agrees_with_the_log";
    let settings = [("SIMGPU_MEMORY", "1000000000"), ("SIMGPU_DEVICES", "2")];
    let mut child = command(test, folder.path(), &settings).spawn().expect("it starts");
    wait_for("the child to start", || folder.path().join("busy").exists());
    std::thread::sleep(Duration::from_millis(400));
    let samples = nvml_samples(folder.path(), child.id());
    std::fs::write(folder.path().join("done"), "").expect("written");
    assert!(child.status_in_time().expect("it ends").success());
    let log = Log::read(folder.path());
    for (before_ns, after_ns, percent) in samples {
        let (least, most) = busy_bounds(&log, before_ns, after_ns);
        assert!(
            (least..=most).contains(&percent),
            "NVML reported {percent} %, the log allows {least} to {most} %"
        );
    }
}

/// Utilization samples with the timestamps around each, after checking everything else.
fn nvml_samples(folder: &Path, child: u32) -> Vec<(u64, u64, u32)> {
    // SAFETY: no other thread of this process reads the environment now.
    unsafe { std::env::set_var("SIMGPU_SHARED", folder.join("shared")) };
    // SAFETY: the library runs nothing when it is loaded.
    let nvml =
        unsafe { libloading::Library::new(simulator::libraries().join("libnvidia-ml.so.1")) };
    let nvml = nvml.expect("laid out");
    let (mut count, mut device) = (0, 0);
    assert_eq!(c!(nvml, nvmlDeviceGetCount_v2(&mut count => &mut u32)), 1, "uninitialized");
    assert_eq!(c!(nvml, nvmlInit_v2()), 0);
    assert_eq!(c!(nvml, nvmlDeviceGetCount_v2(&mut count => &mut u32)), 0);
    assert_eq!(count, 2);
    assert_eq!(c!(nvml, nvmlDeviceGetHandleByIndex_v2(0 => u32, &mut device => &mut u64)), 0);
    read_memory(&nvml, device, child);
    let sample = |_| {
        let mut rates = [0_u32; 2];
        let before_ns = now_ns();
        assert_eq!(
            c!(nvml, nvmlDeviceGetUtilizationRates(device => u64, &mut rates => &mut [u32; 2])),
            0
        );
        let after_ns = now_ns();
        std::thread::sleep(Duration::from_millis(37));
        (before_ns, after_ns, rates[0])
    };
    (0..10).map(sample).collect()
}

fn read_memory(nvml: &libloading::Library, device: u64, child: u32) {
    let mut memory = [0_u64; 3];
    c!(nvml, nvmlDeviceGetMemoryInfo(device => u64, &mut memory => &mut [u64; 3]));
    assert_eq!(memory, [1_000_000_000, 1_000_000_000 - 123_456_789, 123_456_789]);
    let (mut count, mut processes) = (4_u32, [[0_u64; 3]; 4]);
    let result = c!(nvml, nvmlDeviceGetComputeRunningProcesses_v3(
        device => u64, &mut count => &mut u32, &mut processes => &mut [[u64; 3]; 4]));
    assert_eq!((result, count), (0, 1));
    assert_eq!(processes[0][0] as u32, child);
    assert_eq!(processes[0][1], 123_456_789);
    let mut name = [0 as c_char; 96];
    assert_eq!(
        c!(nvml, nvmlDeviceGetName(device => u64, &mut name => &mut [c_char; 96], 96 => u32)),
        0
    );
    let (mut current, mut pending) = (0, 0);
    let mig = c!(nvml, nvmlDeviceGetMigMode(device => u64, &mut current => &mut u32, &mut pending => &mut u32));
    assert_eq!(mig, 3, "not supported");
}

/// Lower and upper bound of a sample between two timestamps, including rounding.
fn busy_bounds(log: &Log, before_ns: u64, after_ns: u64) -> (u32, u32) {
    let busy = |now_ns: u64| {
        let from_ns = now_ns - WINDOW_NS;
        let inside = log
            .work()
            .into_iter()
            .map(|op| op.end_ns.min(now_ns).saturating_sub(op.start_ns.max(from_ns)));
        inside.sum::<u64>() as f64 * 100.0 / WINDOW_NS as f64
    };
    let slack = (after_ns - before_ns) as f64 * 100.0 / WINDOW_NS as f64 + 0.5;
    let (first, second) = (busy(before_ns), busy(after_ns));
    let least = (first.min(second) - slack).max(0.0).floor();
    (least as u32, (first.max(second) + slack).ceil() as u32)
}

/// One of two ranks: a kernel, five reductions; rank 1 is late for the third.
fn play_rank(folder: &Path) {
    let gpu = Gpu::ready();
    // SAFETY: the library runs nothing when it is loaded.
    let nccl = unsafe { libloading::Library::new(simulator::libraries().join("libnccl.so.2")) };
    let nccl = nccl.expect("laid out");
    let rank: i32 = std::env::var("RANK").expect("set").parse().expect("number");
    let identity = identity(&nccl, folder, rank);
    let mut communicator = 0;
    let result = c!(nccl, ncclCommInitRank(&mut communicator => &mut u64, 2 => i32, identity => Identity, rank => i32));
    assert_eq!(result, 0);
    let stream = gpu.stream();
    for round in 0..5 {
        if rank == 1 && round == 2 {
            wait_for("rank 0", || folder.join("ahead").exists());
            std::thread::sleep(Duration::from_millis(150));
        }
        let result = c!(nccl, ncclAllReduce(0 => u64, 0 => u64, 25_000_000 => u64, 7 => i32, 0 => i32,
            communicator => u64, stream => u64));
        assert_eq!(result, 0);
        if rank == 0 && round == 2 {
            std::fs::write(folder.join("ahead"), "").expect("written");
        }
    }
    gpu.wait(stream);
    assert_eq!(c!(nccl, ncclCommDestroy(communicator => u64)), 0);
}

/// `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Identity([u8; 128]);

/// Created by rank 0, read by rank 1.
fn identity(nccl: &libloading::Library, folder: &Path, rank: i32) -> Identity {
    let mut identity = Identity([0; 128]);
    if rank == 0 {
        assert_eq!(c!(nccl, ncclGetUniqueId(&mut identity => &mut Identity)), 0);
        std::fs::write(folder.join("id.part"), identity.0).expect("written");
        std::fs::rename(folder.join("id.part"), folder.join("id")).expect("renamed");
    } else {
        wait_for("the identity", || folder.join("id").exists());
        let bytes = std::fs::read(folder.join("id")).expect("read");
        identity.0.copy_from_slice(&bytes);
    }
    identity
}

#[test]
fn a_collective_waits_for_all_ranks() {
    if let Some(folder) = playing() {
        return play_rank(&folder);
    }
    let folder = tempfile::tempdir().expect("folder");
    let start = |rank| {
        let settings = [("RANK", rank)];
        command("a_collective_waits_for_all_ranks", folder.path(), &settings)
            .spawn()
            .expect("starts")
    };
    let mut ranks = [start("0"), start("1")];
    let pids = ranks.each_ref().map(std::process::Child::id);
    for rank in &mut ranks {
        assert!(rank.status_in_time().expect("it ends").success());
    }
    let log = Log::read(folder.path());
    let of = |pid| log.work().into_iter().filter(|op| op.pid == pid).collect::<Vec<_>>();
    let (first, second) = (of(pids[0]), of(pids[1]));
    assert_eq!((first.len(), second.len()), (5, 5));
    for (at, (here, there)) in (0..).zip(first.iter().zip(&second)) {
        assert_eq!(here.kind, "collective");
        assert_eq!(here.bytes, 100_000_000);
        assert_eq!(here.communicator.len(), 32);
        assert_eq!(here.communicator, there.communicator);
        assert_eq!((here.number, there.number), (at, at));
        assert_eq!(here.end_ns, there.end_ns, "it ends for both at once");
        let last_ns = here.start_ns.max(there.start_ns);
        assert_eq!(here.end_ns, last_ns + 10_000 + 1_000_000, "100 MB at 100 bytes per ns");
    }
    assert!(second[2].start_ns - first[2].start_ns > 100_000_000, "rank 0 was there long before");
    let launches = log.calls_of("ncclAllReduce");
    assert_eq!(launches.len(), 10);
    assert_eq!(log.calls_of("cuLaunchKernelEx").len(), 10, "through the driver");
}

/// Allocates most of the memory until the test kills it.
fn play_owner(folder: &Path) {
    let gpu = Gpu::ready();
    gpu.allocate(600).expect("fits");
    gpu.launch(gpu.kernel(1000), 0);
    // The log is flushed within 100 ms.
    std::thread::sleep(Duration::from_millis(500));
    std::fs::write(folder.join("held"), "").expect("written");
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn memory_is_shared_and_freed_when_its_owner_is_killed() {
    let test = "memory_is_shared_and_freed_when_its_owner_is_killed";
    if let Some(folder) = playing() {
        if std::env::var_os("HOLD").is_some() {
            return play_owner(&folder);
        }
        let gpu = Gpu::ready();
        let expected = std::env::var("EXPECTED").expect("set");
        let result = gpu.allocate(500).err().unwrap_or(0);
        assert_eq!(result.to_string(), expected);
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let start = |setting| {
        let settings = [("SIMGPU_MEMORY", "1000"), setting];
        command(test, folder.path(), &settings).spawn().expect("it starts")
    };
    let mut holder = start(("HOLD", "1"));
    wait_for("the holder", || folder.path().join("held").exists());
    assert!(start(("EXPECTED", "2")).status_in_time().expect("it ends").success(), "out of memory");
    holder.kill().expect("killed");
    holder.status_in_time().expect("it ends");
    assert!(start(("EXPECTED", "0")).status_in_time().expect("it ends").success(), "free again");
    let log = Log::read(folder.path());
    let launches = log.calls_of("cuLaunchKernel");
    assert_eq!(launches.len(), 1, "the killed process left its log");
    assert_eq!(log.work().len(), 1);
}
