//! Reads truth logs as any other program would.

use std::path::Path;

/// A call of a CUDA, NCCL or NVML function.
#[derive(Clone, Debug)]
pub struct Call {
    /// Name of the function.
    pub function: String,
    /// `driver` or `runtime`.
    pub layer: String,
    /// The process.
    pub pid: u32,
    /// The calling thread.
    pub tid: u32,
    /// Start, `CLOCK_MONOTONIC`.
    pub start_ns: u64,
    /// End, `CLOCK_MONOTONIC`.
    pub end_ns: u64,
    /// The stream, as the log names it.
    pub stream: String,
    /// Bytes copied or allocated.
    pub bytes: u64,
    /// The grid of a launch, in blocks.
    pub grid: [u32; 3],
    /// Number of the device.
    pub device: u32,
    /// CUPTI's correlation id.
    pub correlation: u32,
    /// The returned code.
    pub result: i32,
    /// The event, as the log names it.
    pub event: String,
}

/// An operation of the device.
#[derive(Clone, Debug)]
pub struct Op {
    /// `kernel`, `memcpy`, `memset` or a collective.
    pub kind: String,
    /// Name of the kernel.
    pub name: String,
    /// The process.
    pub pid: u32,
    /// Number of the device.
    pub device: u32,
    /// The stream, as the log names it.
    pub stream: String,
    /// When it was enqueued.
    pub launched_ns: u64,
    /// Start, `CLOCK_MONOTONIC`.
    pub start_ns: u64,
    /// End, `CLOCK_MONOTONIC`.
    pub end_ns: u64,
    /// CUPTI's correlation id.
    pub correlation: u32,
    /// Bytes copied or allocated.
    pub bytes: u64,
    /// Events that it waited for.
    pub awaited: u32,
    /// The communicator of a collective.
    pub communicator: String,
    /// Place of a collective in its communicator.
    pub number: u64,
}

/// The truth log of a scenario.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// All calls, in the order of their ends.
    pub calls: Vec<Call>,
    /// All operations, in the order of their ends.
    pub ops: Vec<Op>,
}

impl Log {
    /// All logs with the prefix `folder/log`.
    pub fn read(folder: &Path) -> Self {
        let mut log = Self::default();
        for entry in std::fs::read_dir(folder).expect("folder") {
            let path = entry.expect("entry").path();
            if path.extension().is_some_and(|extension| extension == "csv") {
                log.add(&std::fs::read_to_string(path).expect("text"));
            }
        }
        log
    }

    fn add(&mut self, text: &str) {
        assert!(text.starts_with("# gctrace-simgpu truth log 2\n"));
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split(',').collect();
            match fields.as_slice() {
                ["call", rest @ ..] => self.calls.push(call(rest)),
                ["op", rest @ ..] => self.ops.push(op(rest)),
                _ => panic!("neither call nor op: {line}"),
            }
        }
    }

    /// The calls of one function.
    pub fn calls_of(&self, function: &str) -> Vec<&Call> {
        self.calls.iter().filter(|call| call.function == function).collect()
    }

    /// Operations, without markers, in the order in which they were enqueued.
    pub fn work(&self) -> Vec<&Op> {
        let marks = ["event", "wait"];
        self.ops.iter().filter(|op| !marks.contains(&op.kind.as_str())).collect()
    }
}

fn number<T: std::str::FromStr>(field: &str) -> T {
    field.parse().ok().expect("a number")
}

fn call(fields: &[&str]) -> Call {
    assert_eq!(fields.len(), 15);
    Call {
        function: fields[0].to_owned(),
        layer: fields[1].to_owned(),
        pid: number(fields[2]),
        tid: number(fields[3]),
        start_ns: number(fields[4]),
        end_ns: number(fields[5]),
        stream: fields[6].to_owned(),
        bytes: number(fields[7]),
        grid: [number(fields[8]), number(fields[9]), number(fields[10])],
        device: number(fields[11]),
        correlation: number(fields[12]),
        result: number(fields[13]),
        event: fields[14].to_owned(),
    }
}

fn op(fields: &[&str]) -> Op {
    assert_eq!(fields.len(), 14);
    Op {
        kind: fields[0].to_owned(),
        name: fields[1].to_owned(),
        pid: number(fields[2]),
        device: number(fields[3]),
        stream: fields[4].to_owned(),
        launched_ns: number(fields[6]),
        start_ns: number(fields[7]),
        end_ns: number(fields[8]),
        correlation: number(fields[9]),
        bytes: number(fields[10]),
        awaited: number(fields[11]),
        communicator: fields[12].to_owned(),
        number: number(fields[13]),
    }
}
