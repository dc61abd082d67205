//! Kernel tier: NVML's figures in a recording, against the simulated GPU's own log.
//!
//! `GCTRACE_SIMGPU` names the folder with the simulator's libraries.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use test_kit::limit::WithTimeout as _;
use test_kit::recording;
use test_kit::recording::Trace;

/// Window of the simulator's utilization, the shortest of real ones.
const WINDOW_NS: u64 = 1_000_000_000 / 6;
/// The driver is queried slightly after the sample's timestamp: most time between the two for the
/// figures to be compared.
const LATE_NS: u64 = 150_000_000;

/// The simulator's log of one GPU.
#[derive(Default)]
struct Truth {
    /// Kernels, by start.
    kernels: Vec<(u64, u64)>,
    /// Times of allocations and frees, with the balance of bytes.
    memory: Vec<(u64, i64)>,
    pids: BTreeSet<u64>,
}

impl Truth {
    /// Percentage of the window before `at_ns` in which a kernel ran.
    fn utilization(&self, at_ns: u64) -> f64 {
        let mut until = at_ns - WINDOW_NS;
        let mut busy = 0;
        for (start, end) in &self.kernels {
            let (start, end) = ((*start).max(until), (*end).min(at_ns));
            if end > start {
                busy += end - start;
                until = end;
            }
        }
        100.0 * busy as f64 / WINDOW_NS as f64
    }

    fn memory(&self, at_ns: u64) -> i64 {
        let before = self.memory.iter().filter(|(when, _)| *when <= at_ns);
        before.map(|(_, bytes)| bytes).sum()
    }

    /// Lowest and highest value of a figure while the driver may have been queried.
    fn span<T: PartialOrd + Copy>(at_ns: u64, figure: impl Fn(u64) -> T) -> (T, T) {
        let mut span = (figure(at_ns), figure(at_ns));
        for late in (0..=LATE_NS).step_by(2_000_000) {
            let value = figure(at_ns + late);
            if value < span.0 {
                span.0 = value;
            }
            if value > span.1 {
                span.1 = value;
            }
        }
        span
    }
}

/// Logs of all processes: see the simulator's documentation for the columns.
fn truths(folder: &Path) -> BTreeMap<u64, Truth> {
    let mut truths: BTreeMap<u64, Truth> = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        if !entry.file_name().to_string_lossy().starts_with("log.") {
            continue;
        }
        for line in std::fs::read_to_string(entry.path()).unwrap().lines() {
            let fields: Vec<&str> = line.split(',').collect();
            let number = |at: usize| fields[at].parse::<u64>().unwrap();
            match (fields[0], *fields.get(1).unwrap_or(&"")) {
                ("op", "kernel" | "collective") => {
                    let truth = truths.entry(number(4)).or_default();
                    truth.kernels.push((number(8), number(9)));
                    truth.pids.insert(number(3));
                }
                ("call", function @ ("cuMemAlloc_v2" | "cuMemFree_v2")) if fields[14] == "0" => {
                    let bytes = number(8) as i64;
                    let sign = if function == "cuMemAlloc_v2" { 1 } else { -1 };
                    let truth = truths.entry(number(12)).or_default();
                    truth.memory.push((number(6), sign * bytes));
                }
                _ => {}
            }
        }
    }
    for truth in truths.values_mut() {
        truth.kernels.sort_unstable();
    }
    truths
}

/// The simulator's libraries in a folder of their own, shared by its processes, and the program.
fn simulator(test: &str, folder: &Path) -> Option<(PathBuf, PathBuf)> {
    let skip = |why: &str| {
        eprintln!("skipped {test}: {why}");
        None
    };
    let Some(original) = std::env::var_os("GCTRACE_SIMGPU").filter(|path| !path.is_empty()) else {
        return skip("no simulated GPU; GCTRACE_SIMGPU names the folder of its libraries");
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/train_simgpu.py");
    if !script.exists() {
        return skip("examples/train_simgpu.py is not here");
    }
    let libraries = folder.join("simgpu");
    std::fs::create_dir(&libraries).unwrap();
    for entry in std::fs::read_dir(original).unwrap().flatten() {
        if entry.file_name().to_string_lossy().contains(".so.") {
            std::fs::copy(entry.path(), libraries.join(entry.file_name())).unwrap();
        }
    }
    Some((libraries, script))
}

#[test]
fn figures_equal_those_of_the_simulator_with_two_processes_on_two_gpus() {
    let test = "figures_equal_those_of_the_simulator_with_two_processes_on_two_gpus";
    let Some((python, place)) = recording::place_for(test) else {
        return;
    };
    let Some((libraries, script)) = simulator(test, place.path()) else {
        return;
    };
    let output = Command::new(recording::binary())
        .args(["--nvml-hz", "20", "--"])
        .arg(python)
        .arg(script)
        .args(["--steps", "150", "--ranks", "2", "--kernel-us", "150"])
        .arg("--library")
        .arg(&libraries)
        .current_dir(place.path())
        .env("GCTRACE_NVML", libraries.join("libnvidia-ml.so.1"))
        .env("SIMGPU_DEVICES", "2")
        .env("SIMGPU_LOG", place.path().join("log"))
        .env_remove("SUDO_UID")
        .output_in_time()
        .expect("gctrace runs");
    assert!(output.status.success(), "{output:?}");
    let truths = truths(place.path());
    assert_eq!(truths.len(), 2, "both GPUs were used");
    let trace = Trace::read(&place.path().join("trace.json"));
    trace.assert_nothing_lost();
    assert_eq!(trace.named("gctrace_gpu").len(), 2);
    let samples: Vec<&Value> =
        trace.events.iter().filter(|event| event["name"] == "gctrace_gpu_sample").collect();
    let mut busy = 0;
    let mut wrong = Vec::new();
    let mut pids: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for sample in &samples {
        let at_ns = recording::nanoseconds(&sample["ts"]);
        let args = &sample["args"];
        let gpu = args["gpu"].as_u64().unwrap();
        let truth = &truths[&gpu];
        let reported = args["utilization_percent"].as_f64().unwrap();
        let (lowest, highest) = Truth::span(at_ns, |at| truth.utilization(at));
        busy += u64::from(reported > 5.0);
        if reported < lowest - 1.5 || reported > highest + 1.5 {
            wrong.push(format!("GPU {gpu}: {reported} %, not {lowest} to {highest}"));
        }
        let reported = args["memory_used_bytes"].as_i64().unwrap();
        let (lowest, highest) = Truth::span(at_ns, |at| truth.memory(at));
        // At exit a process frees everything at once, without a call for it.
        if reported != 0 && !(lowest..=highest).contains(&reported) {
            wrong.push(format!("GPU {gpu}: {reported} bytes, not {lowest} to {highest}"));
        }
        for process in args["processes"].as_array().into_iter().flatten() {
            let of_gpu = pids.entry(gpu).or_default();
            of_gpu.insert(process["pid"].as_u64().unwrap());
        }
    }
    println!("{} samples, {busy} of a busy GPU; {wrong:?}", samples.len());
    assert!(busy >= 4, "the GPUs were busy in {busy} samples");
    // The sampler may have been delayed by other programs for longer than is allowed for.
    assert!(wrong.len() * 10 <= samples.len(), "{wrong:?}");
    // A process also has a context, and memory, on GPUs on which it runs nothing.
    let all: BTreeSet<u64> = truths.values().flat_map(|truth| truth.pids.clone()).collect();
    assert_eq!(all.len(), 2, "two processes");
    for (gpu, truth) in &truths {
        let reported = pids.entry(*gpu).or_default();
        assert!(truth.pids.is_subset(reported) && reported.is_subset(&all), "{reported:?}");
    }
}
