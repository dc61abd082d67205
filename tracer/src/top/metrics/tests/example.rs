//! A snapshot with a distinct value for every figure.

use gctrace_analysis::live::*;
use gctrace_analysis::report::{Basis, IdleCause, IdlePart, PauseTotal};
use gctrace_event::GcReason;
use std::collections::BTreeMap;

const SECOND: u64 = 1_000_000_000;

pub(super) fn example() -> Snapshot {
    Snapshot {
        at_ns: 1_100 * SECOND,
        at_unix_ns: 1_763_777_000 * SECOND,
        started_ns: 1_000 * SECOND,
        host: "node7".to_owned(),
        interval_ns: SECOND,
        interval_end_ns: 1_099 * SECOND,
        processes: vec![training(), other(), ended()],
        gpus: vec![GpuFigures {
            index: 1,
            name: Some("NVIDIA \"H100\"".to_owned()),
            utilization_percent: Some(87),
            memory_used_bytes: Some(9_000_000_000),
            memory_total_bytes: Some(80_000_000_000),
            at_ns: 0,
        }],
        totals: SnapshotTotals {
            collections: collections(3),
            processes: 4,
            ended: 2,
            ..SnapshotTotals::default()
        },
        recorder: recorder(),
        ..Snapshot::default()
    }
}

fn recorder() -> RecorderCost {
    RecorderCost {
        unexamined: 0,
        lost: BTreeMap::from([("pauses".to_owned(), 12), ("a \"b\"".to_owned(), 1)]),
        cpu_ns: Some(2_500_000_000),
        cpu_ppm: Some(1),
        resident_bytes: Some(40_000_000),
        hits: 5000,
        probe_overhead_ns: Some(1_500_000),
        elsewhere_overhead_ns: Some(12_000_000),
        trace: None,
    }
}

/// Different for each `factor`.
fn collections(factor: u64) -> CollectionCounts {
    let mut made = CollectionCounts {
        outcomes: PauseOutcomes {
            collected: 1000 * factor,
            uncollectable: 10 * factor,
            with_collected: 5 * factor,
            longest_ns: 1_234_567_891 * factor,
        },
        ..CollectionCounts::default()
    };
    let reasons = [(GcReason::Automatic, 7), (GcReason::Manual, 3), (GcReason::Shutdown, 1)];
    for (reason, weight) in reasons {
        let mut generations = [PauseTotal::default(); GENERATIONS];
        for (index, figures) in generations.iter_mut().enumerate().take(3) {
            let index = index as u64;
            figures.count = factor * weight * (10 - 3 * index);
            figures.time_ns = figures.count * 40_001 * (1 + index);
        }
        made.by_reason.insert(reason, generations);
    }
    made.by_reason.entry(GcReason::Automatic).or_default()[3] =
        PauseTotal { count: factor, time_ns: 77 };
    for generations in made.by_reason.values() {
        for (index, figures) in generations.iter().enumerate() {
            made.pauses[index] += figures.count;
            made.pause_ns[index] += figures.time_ns;
        }
    }
    for (index, count) in made.pauses.iter().enumerate() {
        made.histogram[index][index + 2] = count - 1;
        made.histogram[index][19] = 1;
    }
    made
}

fn training() -> ProcessFigures {
    let command =
        "python \"my train.py\" --path C:\\temp\\new --name \u{e4}\u{1f40d} {x=\"y\"} # EOF";
    ProcessFigures {
        pid: 4321,
        namespace_pid: Some(17),
        parent: Some(4000),
        rank: Some(3),
        command: command.to_owned(),
        interpreter: "3.13.0t".to_owned(),
        since_ns: 1_010 * SECOND + SECOND / 2,
        collections: collections(2),
        paused_ns: 33_000_000,
        heap_objects: Some(HeapObjects { count: 1_234_567, all: true, at_ns: 0 }),
        garbage: Some(GarbageFigures {
            objects: [("cell", 1_200), ("torch.Tensor", 400), ("other", 7)]
                .map(|(name, count)| (name.to_owned(), count))
                .into(),
            examined_collected: 1_500,
            collected: 2_000,
        }),
        heap_trend: Some(TrendFigures {
            objects_per_hour: Some(36_000.5),
            objects_rise: true,
            resident_bytes_per_hour: Some(1_073_741_824.0),
            resident_rises: false,
            device_bytes_per_hour: Some(2_147_483_648.0),
            device_rises: false,
            outside_python: None,
            may_be_set_up: false,
            memory_limit_bytes: Some(16 << 30),
            reaches_limit_in_ns: Some(32_400 * SECOND),
        }),
        turns: Some(LoopFigures {
            turns: 5_244,
            turn_ns: 4_500_000_000,
            p99_ns: Some(8_450_000),
            longest_ns: 91_000_000,
            last_long: None,
        }),
        freeze: Some(FreezeFigures { frozen_objects: 500_000, freed_since: 31 }),
        enabled: Some(true),
        thresholds: Some([2000, 10, 0]),
        auto: Some(AutoFigures {
            state: "holding".to_owned(),
            setting: Some("threshold=2000,10,0".to_owned()),
            saved: Some(SavedTime {
                mean_ns: 12 * SECOND.cast_signed(),
                low_ns: -SECOND.cast_signed(),
                high_ns: 25 * SECOND.cast_signed(),
            }),
            cost_ns: SECOND / 2,
        }),
        pressure: Some(PressureFigures {
            net_containers_per_second: Some(123_456),
            arena_bytes_per_second: Some(-1_048_576),
            allocations_per_cpu_second: Some(7_000_000),
            at_ns: 0,
        }),
        resident_bytes: Some(3 << 30),
        gpus: vec![on_gpu(), in_memory()],
        ..ProcessFigures::default()
    }
}

fn on_gpu() -> ProcessGpu {
    ProcessGpu {
        device: 0,
        by_nvml: false,
        nvml_index: Some(1),
        torch_allocated_bytes: Some(5_000_000_000),
        torch_reserved_bytes: Some(6_000_000_000),
        memory_bytes: Some(8_000_000_000),
        busy: Some(GpuBusy {
            total_busy_ns: 60_250_000_000,
            total_idle_ns: 20_500_000_000,
            total_idle_in_gc_ns: 4_125_000_000,
            ..GpuBusy::default()
        }),
        idle: Some(GpuIdle {
            basis: Basis::Inferred,
            window_ns: 60_000_000_000,
            window_end_ns: 0,
            causes: Vec::new(),
            total: vec![
                IdlePart { cause: IdleCause::Synchronization, time_ns: 11_500_000_000 },
                IdlePart { cause: IdleCause::Host, time_ns: 9_000_000_000 },
            ],
        }),
    }
}

fn in_memory() -> ProcessGpu {
    ProcessGpu {
        device: 2,
        by_nvml: true,
        memory_bytes: Some(300_000_000),
        ..ProcessGpu::default()
    }
}

fn other() -> ProcessFigures {
    ProcessFigures {
        pid: 5000,
        command: "python\nserve.py\u{1b}[0m".to_owned(),
        heap_objects: Some(HeapObjects { count: 500, all: false, at_ns: 0 }),
        ..ProcessFigures::default()
    }
}

fn ended() -> ProcessFigures {
    ProcessFigures {
        pid: 99,
        command: "x".repeat(1000),
        collections: collections(1),
        ended: Some(ProcessEnd::default()),
        resident_bytes: Some(1),
        heap_objects: Some(HeapObjects::default()),
        ..ProcessFigures::default()
    }
}
