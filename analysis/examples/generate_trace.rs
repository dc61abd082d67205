//! Writes a trace of a given size, as of a long training of several processes, to measure
//! `gctrace analyze`: `cargo run --release --example generate_trace -- trace.json 1000000000 8`.
//! With a fourth number, every pause has counters and one of that many stacks.

use gctrace_event::{
    CollectorKind, Counter, Counters, FORMAT, Frame, FrameId, GcReason, Interpreter, Pause,
    Process, ProcessOrigin, Record, TraceCompression, TraceEnd, TraceFile, TraceHeader,
};
use std::error::Error;
use std::fs::File;
use std::path::Path;

/// Start of the clock, an hour after boot.
const START_NS: u64 = 3_600_000_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (path, bytes, processes, stacks) = match arguments.as_slice() {
        [path, bytes, processes] => (path, bytes, processes, "0"),
        [path, bytes, processes, stacks] => (path, bytes, processes, stacks.as_str()),
        _ => return Err("usage: generate_trace FILE BYTES PROCESSES [STACKS]".into()),
    };
    let (path, bytes, processes, stacks): (_, u64, u32, u32) =
        (Path::new(path), bytes.parse()?, processes.parse()?, stacks.parse()?);
    let file = File::create(path)?;
    let mut trace = TraceFile::create(file, path, TraceCompression::by_name(path), &header())?;
    let pids = 1000..1000 + processes.max(1);
    for pid in pids.clone() {
        trace.write(&Record::Process(process(pid)))?;
    }
    for id in 1..=stacks {
        trace.write(&Record::Frame(frame(id)))?;
    }
    let mut series = Series { stacks, state: 1, now: START_NS, heap: 100_000, count: 0 };
    while trace.bytes() < bytes {
        for pid in pids.clone() {
            trace.write(&Record::Pause(series.next(pid)))?;
        }
    }
    let end = TraceEnd {
        ended_ns: series.now + 1_000_000,
        why: "the command ended".to_owned(),
        exit_code: Some(0),
        ..TraceEnd::default()
    };
    println!("{} pauses, {} bytes", series.count, trace.finish(&end)?);
    Ok(())
}

fn header() -> TraceHeader {
    TraceHeader {
        format: FORMAT.to_owned(),
        gctrace: env!("CARGO_PKG_VERSION").to_owned(),
        command: vec!["python".to_owned(), "train.py".to_owned()],
        host: "generated".to_owned(),
        cpus: Some(8),
        started_ns: START_NS,
        started_unix_ns: 1_700_000_000_000_000_000,
        follow: true,
        ..TraceHeader::default()
    }
}

fn process(pid: u32) -> Process {
    Process {
        pid,
        namespace_pid: None,
        parent: Some(999),
        origin: ProcessOrigin::Child,
        since_ns: START_NS,
        command: vec!["python".to_owned(), "train.py".to_owned()],
        torch: None,
        memory_limit_bytes: None,
        unseen: None,
        rank: Some(pid - 1000),
        interpreter: Some(Interpreter {
            file: "/usr/bin/python3".to_owned(),
            version: "3.12.1".to_owned(),
            collector: CollectorKind::Generational,
            found_by: "symbol table".to_owned(),
            ..Interpreter::default()
        }),
    }
}

/// A node of a tree in which each frame calls three others.
fn frame(id: u32) -> Frame {
    Frame {
        id,
        parent: Some((id + 1) / 3).filter(|parent| *parent > 0),
        function: format!("Trainer.<locals>.step{}", id % 1000),
        file: format!("/usr/lib/python3/dist-packages/trainer/module{}.py", id % 50),
        line: Some(id % 500 + 1),
    }
}

/// Pauses of a heap that grows, one full collection in a hundred.
struct Series {
    stacks: u32,
    state: u64,
    now: u64,
    heap: u64,
    count: u64,
}

impl Series {
    /// Xorshift (Marsaglia 2003): the same trace each time.
    fn random(&mut self, below: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % below
    }

    fn next(&mut self, pid: u32) -> Pause {
        self.count += 1;
        let generation = match self.random(100) {
            0 => 2,
            1..=9 => 1,
            _ => 0,
        };
        let noise = self.random(5_000);
        let length = match generation {
            2 => self.heap * 20 + noise * 10,
            1 => 40_000 + noise * 4,
            _ => 6_000 + noise,
        };
        if generation == 2 {
            self.heap += self.random(3);
        }
        let start_ns = self.now;
        self.now += 20_000 + self.random(200_000);
        Pause {
            pid,
            tid: pid,
            start_ns,
            end_ns: start_ns + length,
            generation,
            reason: GcReason::Automatic,
            collected: Some(self.random(4) * 17),
            uncollectable: Some(0),
            interpreter: Some(0),
            cpu_ns: Some(length - length / 50),
            oldest_objects: Some(self.heap),
            stack: self.stack(),
            young_count: Some(700).filter(|_| self.stacks > 0),
            counters: self.counters(length),
            ..Pause::default()
        }
    }

    fn stack(&mut self) -> Option<FrameId> {
        let stacks = u64::from(self.stacks);
        (stacks > 0).then(|| u32::try_from(self.random(stacks) + 1).unwrap_or(1))
    }

    /// The software counters, which are recorded by default.
    fn counters(&mut self, length_ns: u64) -> Counters {
        let mut counters = Counters::default();
        if self.stacks > 0 {
            counters.set(Counter::PageFaults, self.random(20));
            counters.set(Counter::MajorFaults, 0);
            counters.set(Counter::ContextSwitches, self.random(2));
            counters.set(Counter::CpuMigrations, 0);
            counters.set(Counter::TaskClock, length_ns - length_ns / 50);
        }
        counters
    }
}
