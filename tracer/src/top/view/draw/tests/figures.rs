//! Fixed figures.

use gctrace_analysis::live::{
    CodeLine, CollectionCounts, CycleFigures, FreezeFigures, GarbageFigures, GpuBusy, GpuFigures,
    GpuIdle, HeapObjects, KindFigures, LineFigures, LongPause, Notice, PauseFigures, PauseOutcomes,
    PressureFigures, ProcessDetail, ProcessEnd, ProcessFigures, ProcessGpu, RecorderCost,
    SelectedGarbage, Snapshot, SnapshotTotals, StepFigures, TimelineCell, TrendFigures,
};
use gctrace_analysis::report::{
    Basis, CycleShape, IdleCause, IdlePart, LatestLayers, LayerReport, LayerTotals, PauseTotal,
    StepSource,
};
use gctrace_event::{GcReason, KindName};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const NOW: u64 = 754 * SECOND;
/// 2024-05-04 12:00:00 UTC.
const NOON: u64 = 1_714_824_000 * SECOND;

/// Four ranks, each on a GPU; one collects a lot.
pub(super) fn training() -> Snapshot {
    let processes: Vec<ProcessFigures> = (0..4).map(rank).collect();
    let interval_pauses = [46, 3, 1, 0];
    Snapshot {
        at_ns: NOW,
        at_unix_ns: NOON,
        host: "node1".to_owned(),
        interval_ns: SECOND,
        interval_end_ns: NOW - SECOND / 5,
        gpus: (0..4).map(gpu).collect(),
        long_pauses: (0..12).map(long_pause).collect(),
        long_pause_ns: 10 * MS,
        totals: SnapshotTotals {
            collections: processes[3].collections.clone(),
            processes: 5,
            ended: 1,
            interval_pauses,
            interval_pause_ns: 150 * MS,
        },
        recorder: RecorderCost {
            cpu_ns: Some(4 * SECOND),
            cpu_ppm: Some(4_200),
            resident_bytes: Some(24 << 20),
            hits: 41_230,
            probe_overhead_ns: Some(40_000_000),
            trace: Some("/home/a/trace.json".to_owned()),
            ..RecorderCost::default()
        },
        notes: vec![
            Notice {
                at_ns: NOW - 90 * SECOND,
                pid: Some(4244),
                message: "stacks of this interpreter are not recorded: its build is not known, and the offsets that it would need were not found in the file".to_owned(),
            },
            Notice {
                at_ns: NOW - 2 * SECOND,
                pid: None,
                message: "NVML does not answer: GPU figures are those of 12:00".to_owned(),
            },
        ],
        detail: Some(detail(4245)),
        processes,
        ..Snapshot::default()
    }
}

fn rank(rank: u32) -> ProcessFigures {
    let heavy = u64::from(rank == 3);
    let scale = 1 + 9 * heavy;
    ProcessFigures {
        pid: 4242 + rank,
        rank: Some(rank),
        command: format!(
            "/opt/env/bin/python3.12 -u /home/a/train.py --config configs/large.yaml --local-rank {rank}"
        ),
        interpreter: "3.12.1".to_owned(),
        collections: collections(scale),
        interval_pauses: [40 + u64::from(rank), 3, heavy, 0],
        interval_pause_ns: (12 * scale + u64::from(3 - rank)) * MS,
        history_ns: (0..60).map(|second| (second * scale * MS) / 4).collect(),
        share_ppm: 1_200 * scale,
        last: Some(pause(230 * 1000 * scale, 0)),
        worst: Some(pause(23 * MS * scale, 2)),
        heap_objects: Some(HeapObjects { count: 442_000 * scale, all: rank % 2 == 1, at_ns: NOW }),
        enabled: Some(true),
        thresholds: Some([700, 10, 10]),
        pressure: Some(PressureFigures {
            net_containers_per_second: Some(28_400 * scale),
            ..PressureFigures::default()
        }),
        resident_bytes: Some((3 + u64::from(rank)) << 30),
        gpus: vec![ProcessGpu {
            device: rank,
            by_nvml: rank > 1,
            nvml_index: Some(rank),
            memory_bytes: Some((30 + u64::from(rank)) << 30),
            busy: (rank != 2).then(|| GpuBusy {
                window_ns: SECOND,
                busy_ns: 870 * MS,
                idle_ns: 130 * MS,
                idle_in_gc_ns: 110 * MS * heavy,
                ..GpuBusy::default()
            }),
            idle: (rank != 2).then(|| GpuIdle {
                basis: Basis::Inferred,
                window_ns: 60 * SECOND,
                window_end_ns: NOW - 2 * SECOND,
                causes: vec![
                    IdlePart { cause: IdleCause::Host, time_ns: 4_200 * MS },
                    IdlePart { cause: IdleCause::Gc, time_ns: 3_000 * MS * heavy },
                    IdlePart { cause: IdleCause::Synchronization, time_ns: 600 * MS },
                ],
                total: Vec::new(),
            }),
            ..ProcessGpu::default()
        }],
        ..ProcessFigures::default()
    }
}

fn collections(scale: u64) -> CollectionCounts {
    let mut collections = CollectionCounts {
        pauses: [20_000, 1_800, 70 * scale, 0],
        pause_ns: [400 * MS * scale, 300 * MS * scale, 2 * SECOND * scale, 0],
        outcomes: PauseOutcomes { longest_ns: 23 * MS * scale, ..Default::default() },
        ..CollectionCounts::default()
    };
    let of_all = |index| PauseTotal {
        count: collections.pauses[index],
        time_ns: collections.pause_ns[index],
    };
    collections.by_reason = [(GcReason::Automatic, std::array::from_fn(of_all))].into();
    for (class, count) in [(1, 200), (2, 9_000), (3, 10_000), (4, 800)] {
        collections.histogram[0][class] = count;
    }
    for (class, count) in [(4, 300), (5, 1_200), (6, 300)] {
        collections.histogram[1][class] = count;
    }
    for (class, count) in [(10, 10), (11, 50), (13, 8), (14, 2)] {
        collections.histogram[2][class] = count * scale;
    }
    collections
}

fn pause(duration_ns: u64, generation: u8) -> PauseFigures {
    PauseFigures { end_ns: NOW, duration_ns, generation: Some(generation) }
}

fn gpu(index: u32) -> GpuFigures {
    GpuFigures {
        index,
        name: Some("NVIDIA H100 80GB HBM3".to_owned()),
        utilization_percent: Some(80 + index),
        memory_used_bytes: Some((31 + u64::from(index)) << 30),
        memory_total_bytes: Some(80 << 30),
        at_ns: NOW,
    }
}

fn long_pause(number: u64) -> LongPause {
    LongPause {
        pid: 4245,
        tid: 4245,
        rank: Some(3),
        start_ns: NOW - (12 - number) * SECOND,
        start_unix_ns: NOON - (12 - number) * SECOND + 123 * MS,
        duration_ns: (11 + number * number * 2) * MS,
        generation: Some(2),
        reason: if number % 5 == 4 { GcReason::Manual } else { GcReason::Automatic },
        collected: (number % 3 != 2).then_some(number * 1_234),
        uncollectable: Some(0),
        line: Some(line(number % 2)),
        below: (number % 2 == 1).then(library_line),
        unfinished: false,
    }
}

fn line(number: u64) -> CodeLine {
    CodeLine {
        function: ["Trainer.training_step", "collate"][usize::try_from(number % 2).unwrap_or(0)]
            .to_owned(),
        file: "/home/a/project/train.py".to_owned(),
        line: Some(88 + u32::try_from(number).unwrap_or(0) * 12),
    }
}

fn library_line() -> CodeLine {
    CodeLine {
        function: "default_collate".to_owned(),
        file: "/opt/env/lib/python3.12/site-packages/torch/utils/data/_utils/collate.py".to_owned(),
        line: Some(171),
    }
}

fn detail(pid: u32) -> ProcessDetail {
    let counted = |count, time_ns| PauseTotal { count, time_ns };
    ProcessDetail {
        pid,
        lines: (0..2)
            .map(|number| LineFigures {
                line: line(number),
                below: (number == 1).then(library_line),
                pauses: counted(400 - number * 100, (19 - number * 12) * SECOND),
            })
            .collect(),
        other_lines: counted(21_000, 900 * MS),
        garbage: None,
        born_at: Some(line(3)),
        layers: None,
        steps: (0..48).map(step).collect(),
        step_basis: Some(StepSource::BackwardPass),
        timeline: (0..100).map(cell).collect(),
        cell_ns: 100 * MS,
        timeline_end_ns: NOW,
    }
}

fn step(number: u64) -> StepFigures {
    let with_gc = number % 9 == 4;
    let pauses = if with_gc { 120 * MS } else { 0 };
    StepFigures {
        start_ns: NOW - (48 - number) * 300 * MS,
        duration_ns: (250 + number % 7 * 5) * MS + pauses,
        pauses: PauseTotal { count: u64::from(with_gc), time_ns: pauses },
    }
}

fn cell(number: u64) -> TimelineCell {
    let with_gc = number % 20 == 11;
    TimelineCell {
        gc_ns: if with_gc { 90 * MS } else { 0 },
        gpu_busy_ns: (number < 95).then_some(if with_gc { 10 * MS } else { 95 * MS }),
        gpu_utilization_percent: Some(80),
    }
}

/// With memory by layer.
pub(super) fn layers() -> Snapshot {
    let mut snapshot = training();
    let layer = |path: &str, type_name: &str, weights: u64, saved: u64| LayerReport {
        path: path.to_owned(),
        type_name: type_name.to_owned(),
        shape: None,
        tied: None,
        device: None,
        marks: Vec::new(),
        calls: 1,
        bytes: LayerTotals {
            weights: weights << 20,
            gradients: weights << 20,
            optimizer: (2 * weights) << 20,
            saved: Some(saved << 20),
            ..LayerTotals::default()
        },
    };
    if let Some(detail) = &mut snapshot.detail {
        detail.layers = Some(LatestLayers {
            step: 1_200,
            totals: LayerTotals {
                weights: 680 << 20,
                saved: Some(2_400 << 20),
                ..LayerTotals::default()
            },
            layers: vec![
                layer("transformer.wte", "Embedding", 147, 0),
                layer("transformer.h.11.mlp.c_fc", "Conv1D", 9, 96),
                layer("", "GPT2LMHeadModel", 0, 200),
            ],
        });
    }
    snapshot
}

/// Two processes without ranks, GPUs or pressure, one of which has ended.
pub(super) fn plain() -> Snapshot {
    let mut snapshot = training();
    snapshot.gpus.clear();
    snapshot.notes.clear();
    snapshot.processes.truncate(2);
    for process in &mut snapshot.processes {
        process.rank = None;
        process.gpus.clear();
        process.pressure = None;
    }
    snapshot.processes[1].ended =
        Some(ProcessEnd { at_ns: NOW - SECOND, code: None, signal: Some(9) });
    snapshot.recorder.lost.insert("ring buffer full".to_owned(), 1_234);
    snapshot
}

/// A snapshot with this number of processes.
pub(super) fn many(count: u32) -> Snapshot {
    let mut snapshot = training();
    snapshot.processes = (0..count)
        .map(|number| {
            let mut process = rank(number % 4);
            process.pid = 100_000 + number;
            process.rank = Some(number);
            process.interval_pause_ns = u64::from(number % 97) * MS;
            process
        })
        .collect();
    snapshot.detail = Some(detail(100_096));
    snapshot
}

/// Names with control characters.
pub(super) fn hostile() -> Snapshot {
    let mut snapshot = training();
    let names = [
        "\x1b[2J\x1b[H\x07own the screen\r\nnext".to_owned(),
        "\u{202e}yp.txt \u{5e9}\u{5dc}\u{5d5}\u{5dd} \u{200b}\u{301}zero".to_owned(),
        "训练模型训练模型训练模型训练模型训练模型 👩‍🔬🇩🇪".to_owned(),
        "x".repeat(100_000),
    ];
    for (process, name) in snapshot.processes.iter_mut().zip(names) {
        process.command.clone_from(&name);
        process.interpreter = name;
    }
    snapshot.host = "\x1b]0;title\x07".to_owned();
    for pause in &mut snapshot.long_pauses {
        pause.line = Some(CodeLine {
            function: "\x1b[31m\u{2066}evil\n".to_owned(),
            file: "/tmp/训练\x1b[0m.py".to_owned(),
            line: Some(u32::MAX),
        });
    }
    snapshot.notes[1].message = "\x1b[5mblink\x07".to_owned();
    snapshot
}

/// The same with what the collector frees, in a heap that grows after it was frozen.
pub(super) fn garbage() -> Snapshot {
    let mut snapshot = training();
    let kind = |type_name: &str, function: Option<&str>| KindName {
        type_name: type_name.to_owned(),
        function: function.map(str::to_owned),
        file: function.map(|_| "/home/a/train.py".to_owned()),
        line: function.map(|_| 10),
    };
    let closure = Some("Trainer.step.<locals>.closure");
    let counted = |kind, objects| KindFigures {
        kind,
        births: None,
        objects,
        per_second: Some(objects as f64 / 60.0),
    };
    if let Some(detail) = &mut snapshot.detail {
        detail.garbage = Some(SelectedGarbage {
            kinds: vec![
                counted(kind("cell", closure), 72_000),
                counted(kind("function", closure), 72_000),
                counted(kind("torch.Tensor", None), 36_500),
            ],
            objects: 190_000,
            cycles: Some(vec![CycleFigures {
                edges: vec![
                    (kind("cell", closure), ".cell_contents".to_owned()),
                    (kind("function", closure), ".__closure__".to_owned()),
                ],
                shape: CycleShape::Closure,
                count: 72_000,
                objects: 180_500,
                per_second: Some(1_200.0),
            }]),
        });
        let pid = detail.pid;
        let shown = snapshot.processes.iter_mut().find(|process| process.pid == pid);
        if let Some(process) = shown {
            process.garbage = Some(GarbageFigures {
                objects: [("cell".to_owned(), 72_000)].into(),
                examined_collected: 190_000,
                collected: 760_000,
            });
            process.freeze = Some(FreezeFigures { frozen_objects: 400_000, freed_since: 31 });
            process.heap_trend = Some(TrendFigures {
                objects_per_hour: Some(36_000.0),
                objects_rise: true,
                resident_bytes_per_hour: Some(f64::from(1 << 30)),
                resident_rises: true,
                outside_python: Some(false),
                memory_limit_bytes: Some(16 << 30),
                reaches_limit_in_ns: Some(32_400 * SECOND),
                ..TrendFigures::default()
            });
        }
    }
    snapshot
}
