//! The published schema of a snapshot (`gctrace top --format json`) is generated from the types and
//! describes every figure, and snapshots conform to it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use gctrace_analysis::live::{
    AutoFigures, Live, RecorderCost, SavedTime, Snapshot, SnapshotRequest,
};
use gctrace_event::{
    AliveLines, Allocations, CudaCall, DeviceMemory, Frame, GcSettings, GpuDevice, GpuOp,
    GpuOpKind, GpuProcess, GpuSample, Interpreter, LayerRow, Layers, NamedMarker, Note, Pause,
    Pressure, Process, ProcessExit, ProcessOrigin, Record, StepMark, Turn, Turns,
};
use serde_json::Value;
use std::collections::BTreeSet;
use test_kit::reports;
use test_kit::reports::{MS, START};

fn schema() -> Value {
    serde_json::to_value(schemars::schema_for!(Snapshot)).unwrap()
}

#[test]
fn published_schema_is_up_to_date() {
    test_kit::schema::assert_published(
        "top",
        &schema(),
        "-p gctrace-analysis --test plain live_schema::",
    );
}

/// Every named member of every object.
fn members<'a>(value: &'a Value, found: &mut Vec<(&'a str, &'a Value)>) {
    if let Some(properties) = value["properties"].as_object() {
        found.extend(properties.iter().map(|(name, member)| (name.as_str(), member)));
    }
    match value {
        Value::Object(object) => object.values().for_each(|value| members(value, found)),
        Value::Array(list) => list.iter().for_each(|value| members(value, found)),
        _ => {}
    }
}

#[test]
fn every_figure_is_described() {
    let schema = schema();
    let mut found = Vec::new();
    members(&schema, &mut found);
    assert!(found.len() > 80);
    for (name, member) in found {
        assert!(member["description"].is_string(), "{name}: {member}");
    }
}

/// A kernel, with its start as the id of its launch.
fn kernel(from_ms: u64, to_ms: u64) -> Record {
    Record::GpuOp(GpuOp {
        pid: Some(1),
        device: 0,
        stream: 7,
        kind: GpuOpKind::Kernel,
        name: "kernel".to_owned(),
        start_ns: START + from_ms * MS,
        end_ns: START + to_ms * MS,
        correlation: Some(from_ms),
        ..GpuOp::default()
    })
}

/// A snapshot of records of all kinds that leave something in it, of a process that may have ended
/// with a code or by a signal.
fn full(ended: Option<(Option<i32>, Option<i32>)>) -> Snapshot {
    let header = gctrace_event::TraceHeader {
        host: "host".to_owned(),
        mode: gctrace_event::RecordingMode::Both,
        ..reports::header()
    };
    let mut live = Live::new(header, 10 * MS);
    for record in records() {
        live.record(&record);
    }
    if let Some((code, signal)) = ended {
        live.record(&Record::ProcessExit(ProcessExit {
            pid: 1,
            at_ns: START + 2500 * MS,
            code,
            signal,
        }));
    }
    live.resident(1, START + 182_000 * MS, 9 << 30);
    let saved = SavedTime { mean_ns: 5, low_ns: -1, high_ns: 9 };
    let setting = Some("threshold=7000,10,10".to_owned());
    live.auto(
        1,
        AutoFigures { state: "holding".to_owned(), setting, saved: Some(saved), cost_ns: 1 },
    );
    let recorder = RecorderCost {
        lost: [("ring buffer full".to_owned(), 5)].into(),
        probe_overhead_ns: Some(99),
        elsewhere_overhead_ns: Some(99),
        trace: Some("trace.json".to_owned()),
        cpu_ns: Some(7),
        resident_bytes: Some(8),
        ..RecorderCost::default()
    };
    live.recorder(START, recorder.clone());
    live.recorder(START + MS, recorder);
    live.snapshot(&SnapshotRequest {
        now_ns: START + 3000 * MS,
        interval_ns: 1000 * MS,
        detail: Some(1),
    })
}

fn records() -> Vec<Record> {
    let process = Record::Process(Process {
        pid: 1,
        namespace_pid: Some(2),
        parent: Some(3),
        origin: ProcessOrigin::Launched,
        since_ns: START,
        command: vec!["python".to_owned()],
        torch: None,
        memory_limit_bytes: Some(2 << 30),
        unseen: None,
        rank: Some(0),
        interpreter: Some(Interpreter { version: "3.12.1".to_owned(), ..Interpreter::default() }),
    });
    let pause = Record::Pause(Pause {
        generation: 2,
        stack: Some(2),
        oldest_objects: Some(7),
        ..reports::pause(1, 100, 300)
    });
    let mut records =
        vec![process, frame(1, "train.py"), frame(2, "/usr/lib/python3.12/json/x.py"), pause];
    records.extend(gpu_records());
    records.extend(garbage());
    records.extend(heap());
    let step = |from_ms: u64| {
        Record::Step(StepMark {
            marker: NamedMarker::Backward,
            pid: 1,
            tid: 1,
            start_ns: START + from_ms * MS,
            end_ns: START + (from_ms + 100) * MS,
            cpu_ns: None,
        })
    };
    records.extend([
        step(100),
        step(400),
        Record::Settings(GcSettings {
            pid: 1,
            at_ns: START,
            enabled: Some(true),
            thresholds: [700, 10, 10],
            stack: None,
        }),
        Record::Pressure(Pressure {
            pid: 1,
            since_ns: START,
            at_ns: START + 1000 * MS,
            arenas_mapped: Some(1),
            arenas_unmapped: Some(2),
            ..Pressure::default()
        }),
        Record::Allocations(Allocations {
            pid: 1,
            per_cpu_second: Some(5),
            ..Allocations::default()
        }),
        Record::Note(Note { pid: Some(1), at_ns: START, message: "Something.".to_owned() }),
        Record::Turns(Turns {
            pid: 1,
            tid: 1,
            turns: 1,
            lengths: vec![(1_000, 1)],
            longest_ns: 100 * MS,
            ..Turns::default()
        }),
        Record::Turn(Turn {
            pid: 1,
            tid: 1,
            start_ns: START,
            end_ns: START + 100 * MS,
            ..Turn::default()
        }),
    ]);
    records
}

/// Closures that each step leaves.
fn garbage() -> impl Iterator<Item = Record> {
    let run = test_kit::garbage::ClosuresRun { steps: 20, ..Default::default() };
    let records = test_kit::garbage::records(run);
    let records = test_kit::garbage::with_births(records).into_iter();
    records.filter_map(|mut record| {
        match &mut record {
            Record::ObjectKind(kind) => kind.pid = 1,
            Record::CycleSignature(cycle) => cycle.pid = 1,
            Record::Garbage(garbage) => (garbage.pid, garbage.tid) = (1, 1),
            Record::Pause(pause) => (pause.pid, pause.tid) = (1, 1),
            _ => return None,
        }
        Some(record)
    })
}

/// A heap that is frozen, and then grows with the memory of the process.
fn heap() -> impl Iterator<Item = Record> {
    let left = [90_000, 100].into_iter().chain((1..9).map(|n| n * 1_000));
    left.zip(0u64..).flat_map(|(left, n)| {
        let at_ms = 1_000 + n * 20_000;
        let pressure = Record::Pressure(Pressure {
            pid: 1,
            since_ns: START + (at_ms - 1) * MS,
            at_ns: START + at_ms * MS,
            resident_bytes: Some(n << 30),
            ..Pressure::default()
        });
        let pause = Record::Pause(Pause {
            generation: 2,
            oldest_objects: Some(left),
            ..reports::pause(1, at_ms, at_ms + 1)
        });
        let device = Record::DeviceMemory(DeviceMemory {
            pid: 1,
            tid: 1,
            at_ns: START + at_ms * MS,
            device_type: 1,
            device: 0,
            bytes: 1,
            allocated: n << 20,
            reserved: 1 << 30,
        });
        let alive = Record::AliveLines(AliveLines {
            pid: 1,
            at_ns: START + at_ms * MS,
            lines: vec![(1, n * 1_000, n << 29)],
        });
        [alive, pressure, device, pause]
    })
}

fn frame(id: u32, file: &str) -> Record {
    Record::Frame(Frame {
        id,
        parent: (id > 1).then_some(id - 1),
        function: "f".to_owned(),
        file: file.to_owned(),
        line: Some(id),
    })
}

fn gpu_records() -> [Record; 8] {
    [
        Record::GpuDevice(GpuDevice {
            name: Some("GPU".to_owned()),
            memory_total_bytes: Some(6),
            ..GpuDevice::default()
        }),
        Record::GpuSample(GpuSample {
            at_ns: START,
            utilization_percent: Some(50),
            memory_used_bytes: Some(5),
            processes: Some(vec![GpuProcess { pid: 1, memory_bytes: Some(4) }]),
            ..GpuSample::default()
        }),
        kernel(0, 1000),
        kernel(1500, 2000),
        // Launches are known some seconds late.
        kernel(6000, 6001),
        Record::CudaCall(CudaCall {
            pid: 1,
            tid: 1,
            function: "cudaLaunchKernel".into(),
            start_ns: START + 1499 * MS,
            end_ns: START + 1499 * MS,
            correlation: Some(1500),
            ..CudaCall::default()
        }),
        Record::Layers(Layers {
            pid: 1,
            at_ns: START,
            step: 2,
            saved_bytes: Some(1),
            rows: Some(vec![LayerRow::default()]),
            ..Layers::default()
        }),
        Record::DeviceMemory(DeviceMemory {
            pid: 1,
            tid: 1,
            at_ns: START,
            device_type: 1,
            device: 0,
            bytes: 1,
            allocated: 1,
            reserved: 2,
        }),
    ]
}

#[test]
fn snapshots_keep_to_the_schema() {
    let schema = schema();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let empty = Live::new(reports::header(), 0).snapshot(&SnapshotRequest {
        now_ns: START,
        interval_ns: 0,
        detail: None,
    });
    for snapshot in [&empty, &full(None)] {
        let value = serde_json::to_value(snapshot).unwrap();
        let errors = validator.iter_errors(&value);
        let errors: Vec<String> =
            errors.map(|error| format!("{}: {error}", error.instance_path)).collect();
        assert_eq!(errors, [""; 0]);
        assert_eq!(value["schema"], "gctrace.top/2");
    }
    // A schema that lets everything pass would prove nothing.
    let mut wrong = serde_json::to_value(&empty).unwrap();
    wrong["interval_ns"] = "a second".into();
    assert!(!validator.is_valid(&wrong));
}

/// A full snapshot contains every member that the schema names. Of a process
/// that has ended NVML's figures are not shown, so that there is one that runs too.
#[test]
fn every_figure_is_there() {
    let schema = schema();
    let mut named = Vec::new();
    members(&schema, &mut named);
    let mut there = BTreeSet::new();
    for ended in [None, Some((Some(0), None)), Some((None, Some(9)))] {
        keys(&serde_json::to_value(full(ended)).unwrap(), &mut there);
    }
    for (name, _) in named {
        assert!(there.contains(name), "{name}");
    }
}

fn keys(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                found.insert(name.clone());
                keys(value, found);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| keys(value, found)),
        _ => {}
    }
}
