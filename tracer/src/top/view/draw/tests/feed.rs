//! A minute of records of a training: two ranks on two GPUs, one of which collects a lot.

use gctrace_analysis::live::{Live, RecorderCost, SETTLE_NS, Snapshot, SnapshotRequest};
use gctrace_event::{
    Frame, GcReason, GcSettings, GpuDevice, GpuOp, GpuOpKind, GpuSample, Interpreter, NamedMarker,
    Note, Pause, Pressure, Process, ProcessExit, ProcessOrigin, Record, RecordingMode, StepMark,
    TraceHeader,
};

const MS: u64 = 1_000_000;
const START: u64 = 5_000 * MS;
/// 2024-05-04 12:00:00 UTC.
const NOON: u64 = 1_714_824_000_000 * MS;
const STEPS: u64 = 200;
const STEP_MS: u64 = 300;
/// Pids of the rank that collects a lot, the other rank, and an exited process.
const HEAVY: u32 = 7001;
const LIGHT: u32 = 7000;
const GONE: u32 = 7002;

/// The snapshot at the end of the minute, with details of the process `detail`.
pub(super) fn snapshot(detail: Option<u32>) -> Snapshot {
    live().snapshot(&SnapshotRequest {
        now_ns: START + STEPS * STEP_MS * MS + SETTLE_NS,
        interval_ns: 1_000 * MS,
        detail,
    })
}

fn live() -> Live {
    let header = TraceHeader {
        host: "node1".to_owned(),
        started_ns: START,
        started_unix_ns: NOON,
        mode: RecordingMode::Both,
        ..TraceHeader::default()
    };
    let mut live = Live::new(header, 10 * MS);
    for record in records() {
        live.record(&record);
    }
    for pid in [LIGHT, HEAVY] {
        live.resident(pid, START, (4 << 30) + u64::from(pid) * 100_000);
    }
    for (at_ms, cpu_ms) in [(58_000, 1_000), (60_000, 1_010)] {
        live.recorder(
            START + at_ms * MS,
            RecorderCost {
                cpu_ns: Some(cpu_ms * MS),
                resident_bytes: Some(22 << 20),
                hits: 9_000,
                probe_overhead_ns: Some(13_500_000),
                ..RecorderCost::default()
            },
        );
    }
    live
}

fn records() -> Vec<Record> {
    let mut records: Vec<Record> = [(LIGHT, 0), (HEAVY, 1), (GONE, 2)]
        .into_iter()
        .flat_map(|(pid, rank)| beginning(pid, rank))
        .collect();
    records.extend([
        frame(1, "main", "/home/a/train.py", 140),
        frame(2, "Trainer.training_step", "/home/a/train.py", 88),
        frame(
            3,
            "default_collate",
            "/env/lib/python3.12/site-packages/torch/utils/data/collate.py",
            171,
        ),
    ]);
    for index in 0..2 {
        records.push(Record::GpuDevice(GpuDevice {
            index,
            at_ns: START,
            name: Some("NVIDIA H100 80GB HBM3".to_owned()),
            memory_total_bytes: Some(80 << 30),
            ..GpuDevice::default()
        }));
    }
    for step in 0..STEPS {
        records.extend(step_of(LIGHT, step));
        records.extend(step_of(HEAVY, step));
    }
    records.push(Record::ProcessExit(ProcessExit {
        pid: GONE,
        at_ns: START + 59_000 * MS,
        code: None,
        signal: Some(9),
    }));
    records.push(Record::Note(Note {
        pid: Some(GONE),
        at_ns: START + 59_100 * MS,
        message: "the process was killed".to_owned(),
    }));
    records
}

fn beginning(pid: u32, rank: u32) -> [Record; 2] {
    let process = Process {
        pid,
        namespace_pid: None,
        parent: Some(1),
        origin: ProcessOrigin::Child,
        since_ns: START,
        command: ["/env/bin/python3.12", "-u", "/home/a/train.py", "--epochs", "3"]
            .map(str::to_owned)
            .to_vec(),
        torch: None,
        memory_limit_bytes: None,
        unseen: None,
        rank: Some(rank),
        interpreter: Some(Interpreter { version: "3.12.1".to_owned(), ..Interpreter::default() }),
    };
    let settings = GcSettings {
        pid,
        at_ns: START,
        enabled: Some(true),
        thresholds: [700, 10, 10],
        stack: None,
    };
    [Record::Process(process), Record::Settings(settings)]
}

fn frame(id: u32, function: &str, file: &str, line: u32) -> Record {
    Record::Frame(Frame {
        id,
        parent: (id > 1).then(|| id - 1),
        function: function.to_owned(),
        file: file.to_owned(),
        line: Some(line),
    })
}

/// A backward pass, a kernel that takes most of it, young collections, and occasionally a full one,
/// during which the GPU is idle.
fn step_of(pid: u32, number: u64) -> Vec<Record> {
    let at_ms = number * STEP_MS;
    let full_ms = match (pid, number % 8) {
        (HEAVY, 5) => 60 + number / 4,
        (_, 7) => 12,
        _ => 0,
    };
    let mut records = vec![
        Record::Step(StepMark {
            marker: NamedMarker::Backward,
            pid,
            tid: pid,
            start_ns: START + at_ms * MS,
            end_ns: START + (at_ms + 100) * MS,
            cpu_ns: None,
        }),
        kernel(pid, at_ms + full_ms, at_ms + STEP_MS - 10),
    ];
    for young in 0..4 {
        records.push(pause(pid, at_ms + 150 + young * 20, 300_000, 0));
    }
    records.push(pause(pid, at_ms + 250, 2 * MS, 1));
    if full_ms > 0 {
        records.push(pause(pid, at_ms, full_ms * MS, 2));
    }
    if number % 10 == 9 {
        let end_ms = at_ms + STEP_MS;
        records.push(pressure(pid, end_ms));
        records.push(sample(pid, end_ms));
    }
    records
}

fn kernel(pid: u32, from_ms: u64, to_ms: u64) -> Record {
    Record::GpuOp(GpuOp {
        pid: Some(pid),
        device: 0,
        stream: 7,
        kind: GpuOpKind::Kernel,
        name: "gemm".to_owned(),
        start_ns: START + from_ms * MS,
        end_ns: START + to_ms * MS,
        ..GpuOp::default()
    })
}

fn pause(pid: u32, at_ms: u64, length_ns: u64, generation: u8) -> Record {
    let start_ns = START + at_ms * MS;
    Record::Pause(Pause {
        pid,
        tid: pid,
        start_ns,
        end_ns: start_ns + length_ns,
        generation,
        reason: GcReason::Automatic,
        collected: Some(u64::from(generation) * 1_500),
        uncollectable: Some(0),
        interpreter: Some(0),
        oldest_objects: (generation == 2).then_some(400_000 + at_ms * 10),
        stack: Some(u32::from(generation) + 1),
        young_count: Some(700),
        ..Pause::default()
    })
}

fn pressure(pid: u32, end_ms: u64) -> Record {
    Record::Pressure(Pressure {
        pid,
        since_ns: START + (end_ms - 3_000) * MS,
        at_ns: START + end_ms * MS,
        collections: 51,
        net_containers: 35_700,
        counts: Some([700, 4, 2]),
        arenas_mapped: Some(12),
        arenas_unmapped: Some(6),
        resident_bytes: None,
        ..Pressure::default()
    })
}

fn sample(pid: u32, at_ms: u64) -> Record {
    Record::GpuSample(GpuSample {
        device: pid - LIGHT,
        at_ns: START + at_ms * MS,
        utilization_percent: Some(90),
        memory_used_bytes: Some(36 << 30),
        ..GpuSample::default()
    })
}

/// The rank that collects a lot.
pub(super) const CHOSEN: u32 = HEAVY;
