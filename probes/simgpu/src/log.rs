//! The truth log: every host call and every operation, for tests to compare with.
//!
//! Lines are kept as structures and written as text by the simulator's own thread every 100 ms (or
//! every `SIMGPU_LOG_MS`) and at exit, so that a caller pays little and a killed process loses only
//! the last lines. The crate's documentation describes the format.

use crate::core::FinishedOperation;
use crate::handles;
use crate::sync::LockExt;
use std::ffi::OsStr;
use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::io::BufWriter;
use std::io::Write;
use std::sync::Mutex;

/// First line of a log.
pub(crate) const HEADER: &str = "# gctrace-simgpu truth log 2";

/// One host call.
#[derive(Clone, Debug)]
pub(crate) struct CallLine {
    pub(crate) function: &'static str,
    pub(crate) layer: &'static str,
    pub(crate) tid: i32,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) stream: u64,
    /// Handle of an event.
    pub(crate) event: u64,
    pub(crate) bytes: u64,
    pub(crate) grid: [u32; 3],
    pub(crate) device: u32,
    pub(crate) correlation: u32,
    pub(crate) result: i32,
}

/// The fields of an operation that the log keeps.
#[derive(Clone, Debug)]
pub(crate) struct OperationLine {
    kind: &'static str,
    name: std::sync::Arc<str>,
    device: u32,
    stream: u32,
    launched_ns: u64,
    start_ns: u64,
    end_ns: u64,
    correlation: u32,
    bytes: u64,
    awaited: u32,
    collective: Option<(std::sync::Arc<str>, u64)>,
}

impl From<&FinishedOperation> for OperationLine {
    fn from(finished: &FinishedOperation) -> Self {
        Self {
            kind: finished.operation.kind.as_str(),
            name: std::sync::Arc::clone(&finished.operation.name),
            device: finished.device,
            stream: finished.stream,
            launched_ns: finished.operation.launched_ns,
            start_ns: finished.start_ns,
            end_ns: finished.end_ns,
            correlation: finished.operation.correlation,
            bytes: finished.operation.bytes,
            awaited: finished.operation.awaited,
            collective: finished
                .operation
                .meeting
                .as_ref()
                .map(|meeting| meeting.identity()),
        }
    }
}

#[derive(Debug)]
enum LogLine {
    Call(CallLine),
    Operation(OperationLine),
}

/// An open log of this process.
#[derive(Debug)]
pub(crate) struct TruthLog {
    pid: u32,
    lines: Mutex<Vec<LogLine>>,
    file: Mutex<BufWriter<File>>,
}

impl TruthLog {
    /// Opens `prefix.<pid>.csv` for appending: a process that calls exec keeps its pid.
    pub(crate) fn open(prefix: &OsStr) -> io::Result<Self> {
        let pid = std::process::id();
        let mut path = prefix.to_owned();
        path.push(format!(".{pid}.csv"));
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        if file.metadata()?.len() == 0 {
            writeln!(file, "{HEADER}")?;
        }
        Ok(Self {
            pid,
            lines: Mutex::default(),
            file: Mutex::new(BufWriter::with_capacity(1 << 20, file)),
        })
    }

    pub(crate) fn call(&self, line: CallLine) {
        self.lines.hold().push(LogLine::Call(line));
    }

    pub(crate) fn operations(&self, finished: &[FinishedOperation]) {
        let lines = finished.iter().map(|one| LogLine::Operation(one.into()));
        self.lines.hold().extend(lines);
    }

    /// Writes the lines so far. A full disk loses lines and nothing else.
    pub(crate) fn flush(&self) {
        // Lock the file first: concurrent flushes must not change the order of the lines.
        let mut file = self.file.hold();
        let lines = std::mem::take(&mut *self.lines.hold());
        for line in &lines {
            let _ = match line {
                LogLine::Call(call) => self.write_call(&mut *file, call),
                LogLine::Operation(operation) => self.write_operation(&mut *file, operation),
            };
        }
        let _ = file.flush();
    }

    fn write_call(&self, file: &mut impl Write, call: &CallLine) -> io::Result<()> {
        let [x, y, z] = call.grid;
        writeln!(
            file,
            "call,{},{},{},{},{},{},{:#x},{},{x},{y},{z},{},{},{},{:#x}",
            call.function,
            call.layer,
            self.pid,
            call.tid,
            call.start_ns,
            call.end_ns,
            call.stream,
            call.bytes,
            call.device,
            call.correlation,
            call.result,
            call.event,
        )
    }

    fn write_operation(&self, file: &mut impl Write, line: &OperationLine) -> io::Result<()> {
        let (communicator, number) = match &line.collective {
            Some((communicator, number)) => (&**communicator, *number),
            None => ("", 0),
        };
        writeln!(
            file,
            "op,{},{},{},{},{:#x},{},{},{},{},{},{},{},{communicator},{number}",
            line.kind,
            line.name,
            self.pid,
            line.device,
            handles::stream(line.stream),
            line.stream,
            line.launched_ns,
            line.start_ns,
            line.end_ns,
            line.correlation,
            line.bytes,
            line.awaited,
        )
    }
}
