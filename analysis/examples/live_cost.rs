//! Measures the cost of the live figures: time of a record and of a snapshot, and memory.
//!
//! `cargo run --release -p gctrace-analysis --example live_cost`

#[path = "../tests/plain/live_allocated/mod.rs"]
mod live_allocated;

use gctrace_analysis::live::{Live, SnapshotRequest};
use gctrace_event::{
    Frame, GcReason, GpuOp, GpuOpKind, Interpreter, Pause, Process, ProcessOrigin, Record,
    TraceHeader,
};
use std::hint::black_box;
use std::time::Instant;

const SECOND: u64 = 1_000_000_000;
const PAUSES_PER_SECOND: u64 = 10_000;
const THREADS: u32 = 1_000;
const FRAMES: u32 = 2_000;

fn main() {
    println!("{PAUSES_PER_SECOND} pauses a second of {THREADS} threads, two minutes of them:");
    of_processes(1);
    of_processes(THREADS);
    gpu_work();
}

fn live_with(processes: u32) -> Live {
    let mut live = Live::new(TraceHeader::default(), 10_000_000);
    for pid in 1..=processes {
        live.record(&process(pid));
    }
    for id in 1..=FRAMES {
        live.record(&Record::Frame(Frame {
            id,
            parent: (id > 1).then_some(id / 2),
            function: format!("Module.forward_{id}"),
            file: format!("/home/user/project/train_{}.py", id % 50),
            line: Some(id),
        }));
    }
    live
}

fn of_processes(processes: u32) {
    let before = live_allocated::allocated();
    let mut live = live_with(processes);
    let pauses: Vec<Record> = (0..120 * PAUSES_PER_SECOND).map(|n| pause(n, processes)).collect();
    let of_pauses = pauses.len() * size_of::<Record>();
    let begun = Instant::now();
    for record in &pauses {
        live.record(record);
    }
    let record_ns = begun.elapsed().as_nanos() / pauses.len() as u128;
    let bytes = live_allocated::allocated() - before - of_pauses;
    let request = SnapshotRequest { now_ns: 120 * SECOND, interval_ns: SECOND, detail: Some(1) };
    let begun = Instant::now();
    for _ in 0..100 {
        black_box(live.snapshot(&request));
    }
    println!(
        "  {processes} processes: {record_ns} ns a pause, {} us a snapshot, {} KiB in all, {} KiB a process",
        begun.elapsed().as_micros() / 100,
        bytes >> 10,
        (bytes >> 10) / processes as usize,
    );
}

fn gpu_work() {
    let mut live = live_with(8);
    let ops: Vec<Record> = (0..1_000_000).map(op).collect();
    let begun = Instant::now();
    for record in &ops {
        live.record(record);
    }
    println!(
        "GPU operations, 100,000 a second, one of 8 processes each: {} ns an operation",
        begun.elapsed().as_nanos() / ops.len() as u128
    );
}

fn process(pid: u32) -> Record {
    Record::Process(Process {
        pid,
        namespace_pid: None,
        parent: Some(1),
        origin: ProcessOrigin::Launched,
        since_ns: 0,
        command: vec!["python".to_owned(), "train.py".to_owned()],
        torch: None,
        memory_limit_bytes: None,
        unseen: None,
        rank: Some(pid),
        interpreter: Some(Interpreter { version: "3.13.0".to_owned(), ..Interpreter::default() }),
    })
}

/// They last up to 5 ms, so that several run at a time, and arrive in the order of their ends.
fn pause(n: u64, processes: u32) -> Record {
    let end_ns = SECOND + n * (SECOND / PAUSES_PER_SECOND);
    let tid = u32::try_from(n.wrapping_mul(7_919) % u64::from(THREADS)).unwrap_or(0);
    Record::Pause(Pause {
        pid: 1 + tid % processes,
        tid,
        start_ns: end_ns - 20_000 - n.wrapping_mul(7_919) % 5_000_000,
        end_ns,
        generation: u8::try_from(n % 3).unwrap_or(0),
        reason: GcReason::Automatic,
        collected: Some(n),
        uncollectable: Some(0),
        interpreter: Some(0),
        oldest_objects: Some(n),
        stack: Some(1 + u32::try_from(n.wrapping_mul(104_729) % u64::from(FRAMES)).unwrap_or(0)),
        ..Pause::default()
    })
}

fn op(n: u64) -> Record {
    let start_ns = SECOND + n * 10_000;
    Record::GpuOp(GpuOp {
        pid: Some(1 + u32::try_from(n % 8).unwrap_or(0)),
        device: 0,
        stream: n % 3,
        kind: GpuOpKind::Kernel,
        name: String::new(),
        start_ns,
        end_ns: start_ns + 20_000,
        ..GpuOp::default()
    })
}
