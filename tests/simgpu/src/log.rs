//! The truth log: every host call and every operation, for tests to compare with.
//!
//! Lines are kept as structures and written as text by the simulator's own thread every 100 ms (or
//! every `SIMGPU_LOG_MS`) and at exit, so that a caller pays little and a killed process loses only
//! the last lines. The crate's documentation describes the format.

use crate::core::FinishedOperation;
use crate::handles;
use crate::sync::LockExt;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::io::{BufWriter, Write};
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

#[derive(Debug)]
enum LogLine {
    Call(CallLine),
    Operation(FinishedOperation),
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

    pub(crate) fn operations(&self, finished: Vec<FinishedOperation>) {
        let lines = finished.into_iter().map(LogLine::Operation);
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

    fn write_operation(
        &self,
        file: &mut impl Write,
        finished: &FinishedOperation,
    ) -> io::Result<()> {
        let operation = &finished.operation;
        let meeting = operation.meeting.as_ref().map(|meeting| meeting.identity());
        let (communicator, number) = meeting.unwrap_or_else(|| ("".into(), 0));
        writeln!(
            file,
            "op,{},{},{},{},{:#x},{},{},{},{},{},{},{},{communicator},{number}",
            operation.kind.as_str(),
            operation.name,
            self.pid,
            finished.device,
            handles::STREAM.of(finished.stream),
            finished.stream,
            operation.launched_ns,
            finished.start_ns,
            finished.end_ns,
            operation.correlation,
            operation.bytes,
            operation.awaited,
        )
    }
}
