//! Reads truth logs as any other program would.

use std::path::Path;

#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) function: String,
    pub(crate) layer: String,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) stream: String,
    pub(crate) bytes: u64,
    pub(crate) grid: [u32; 3],
    pub(crate) device: u32,
    pub(crate) correlation: u32,
    pub(crate) result: i32,
    pub(crate) event: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) pid: u32,
    pub(crate) device: u32,
    pub(crate) stream: String,
    pub(crate) launched_ns: u64,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) correlation: u32,
    pub(crate) bytes: u64,
    pub(crate) awaited: u32,
    pub(crate) communicator: String,
    pub(crate) number: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    pub(crate) calls: Vec<Call>,
    pub(crate) ops: Vec<Op>,
}

impl Log {
    /// All logs with the prefix `folder/log`.
    pub(crate) fn read(folder: &Path) -> Self {
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

    pub(crate) fn calls_of(&self, function: &str) -> Vec<&Call> {
        self.calls
            .iter()
            .filter(|call| call.function == function)
            .collect()
    }

    /// Operations, without markers, in the order in which they were enqueued.
    pub(crate) fn work(&self) -> Vec<&Op> {
        let marks = ["event", "wait"];
        self.ops
            .iter()
            .filter(|op| !marks.contains(&op.kind.as_str()))
            .collect()
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
