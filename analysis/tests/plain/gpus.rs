//! How the GPUs did, from samples.

use gctrace_analysis::Analysis;
use gctrace_analysis::report::{GpuFigure, GpuReport};
use gctrace_event::{GpuDevice, GpuProcess, GpuSample, Process, Record};
use test_kit::reports;
use test_kit::reports::{MS, START, add, end, exit, pause, process};

const GIB: u64 = 1 << 30;

fn device(index: u32) -> Record {
    Record::GpuDevice(GpuDevice {
        index,
        name: Some("NVIDIA H100 80GB HBM3".to_owned()),
        memory_total_bytes: Some(80 * GIB),
        ..GpuDevice::default()
    })
}

fn sample(device: u32, at_ms: u64, utilization: u32, reasons: &[&str]) -> GpuSample {
    GpuSample {
        device,
        at_ns: START + at_ms * MS,
        utilization_percent: Some(utilization),
        throttle_reasons: Some(reasons.iter().map(|&reason| reason.to_owned()).collect()),
        ..GpuSample::default()
    }
}

fn gpus(records: Vec<Record>) -> Vec<GpuReport> {
    reports::report(records, Some(end(10_000))).gpus
}

#[test]
fn figures_over_all_samples_that_have_them() {
    let mut records = vec![device(0), device(1)];
    for (at_ms, utilization, power_mw) in [(0, 0, 90_000), (200, 100, 700_500), (400, 50, 0)] {
        records.push(Record::GpuSample(GpuSample {
            power_mw: (power_mw > 0).then_some(power_mw),
            memory_used_bytes: Some(u64::from(utilization) * GIB),
            ..sample(0, at_ms, utilization, &[])
        }));
    }
    let gpus = gpus(records);
    assert_eq!(gpus.len(), 2);
    let figure = |samples, mean, min, max| Some(GpuFigure { samples, mean, min, max });
    assert_eq!(gpus[0].utilization_ratio, figure(3, 0.5, 0.0, 1.0));
    assert_eq!(gpus[0].power_w, figure(2, 395.25, 90.0, 700.5));
    assert_eq!(gpus[0].memory_used_bytes.map(|used| used.max), Some(100.0 * GIB as f64));
    assert_eq!((gpus[0].samples, gpus[0].covered_ns), (3, 400 * MS));
    assert_eq!(gpus[0].sm_clock_mhz, None, "it was not reported");
    assert_eq!((gpus[1].samples, gpus[1].utilization_ratio), (0, None));
    assert_eq!(gpus[1].memory_total_bytes, Some(80 * GIB));
}

#[test]
fn idleness_and_settings_are_no_throttling() {
    let with = |reasons: &[&[&str]]| {
        let samples = (0..).zip(reasons);
        let samples = samples.map(|(n, reasons)| Record::GpuSample(sample(0, n, 1, reasons)));
        gpus(samples.collect()).remove(0)
    };
    let idle = with(&[&["gpu_idle"], &["applications_clocks_setting"], &[]]);
    assert_eq!(idle.throttled_ratio, Some(0.0));
    assert_eq!(idle.throttle_reasons.len(), 2);
    let hot = with(&[&["sw_power_cap"], &["sw_power_cap", "hw_slowdown"], &["gpu_idle"], &[]]);
    assert_eq!(hot.throttled_ratio, Some(0.5));
    let shares: Vec<_> = hot.throttle_reasons.iter().collect();
    assert_eq!((&*shares[0].reason, shares[0].ratio), ("sw_power_cap", 0.5));
    assert!(shares[0].throttling && shares.iter().any(|share| !share.throttling));
}

#[test]
fn memory_by_process_is_a_peak_and_marks_recorded_processes() {
    let on_gpu = |at_ms, recorded: u64, foreign| {
        let process = |pid, memory_bytes| GpuProcess { pid, memory_bytes };
        Record::GpuSample(GpuSample {
            processes: Some(vec![process(7, Some(recorded)), process(99, foreign)]),
            ..sample(0, at_ms, 1, &[])
        })
    };
    let Record::Process(described) = process(7, 0, "generational") else { unreachable!() };
    let ranked = Record::Process(Process { rank: Some(3), ..described });
    let gpu = gpus(vec![
        ranked,
        on_gpu(0, GIB, None),
        on_gpu(200, 5 * GIB, Some(GIB)),
        on_gpu(400, 2 * GIB, None),
        exit(7, 500),
    ])
    .remove(0);
    let reported: Vec<_> = gpu
        .processes
        .iter()
        .map(|process| (process.pid, process.rank, process.recorded, process.memory_peak_bytes))
        .collect();
    let expected = [(7, Some(3), true, Some(5 * GIB)), (99, None, false, Some(GIB))];
    assert_eq!(reported, expected);
}

#[test]
fn each_trace_has_its_own_gpus() {
    let mut analysis = Analysis::default();
    for name in ["a", "b"] {
        let records = vec![
            process(7, 0, "generational"),
            Record::Pause(pause(7, 1, 2)),
            device(0),
            Record::GpuSample(sample(0, 5, 30, &[])),
        ];
        add(&mut analysis, name, records, Some(end(100)));
    }
    analysis.settle();
    let gpus = analysis.report().gpus;
    let traces: Vec<_> = gpus.iter().map(|gpu| (gpu.trace, gpu.index)).collect();
    assert_eq!(traces, [(0, 0), (1, 0)]);
}

/// Figures of a damaged trace with absurd numbers stay bounded.
#[test]
fn absurd_values_are_bounded() {
    let mut records: Vec<Record> =
        (0..5_000).map(|n| Record::GpuSample(sample(u32::MAX - n, 0, u32::MAX, &[]))).collect();
    records.push(Record::GpuSample(GpuSample {
        at_ns: u64::MAX,
        memory_used_bytes: Some(u64::MAX),
        ..sample(u32::MAX, 0, 0, &[])
    }));
    let gpus = gpus(records);
    assert_eq!(gpus.len(), 1024);
    assert!(gpus.iter().all(|gpu| gpu.utilization_ratio.is_some()));
}
