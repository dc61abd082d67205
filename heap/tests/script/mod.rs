//! A script that runs while its heap is taken.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]
#![allow(clippy::allow_attributes, dead_code, reason = "each test program uses a part")]

use gctrace_heap::{HeapGraph, HeapOptions, RunningHeap};
use serde::Deserialize;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;
use test_kit::interpreters;
use test_kit::interpreters::Python;
use test_kit::limit::WithTimeout as _;

/// A running script, killed when the test is done with it.
pub(crate) struct Script {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Drop for Script {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.status_in_time();
    }
}

impl Script {
    pub(crate) fn start(python: &Python, arguments: &[&str]) -> Self {
        let script = interpreters::root().join("tests/python/heap_truth.py");
        let mut command = Command::new(&python.path);
        command.arg(script).args(arguments);
        Self::run(command)
    }

    pub(crate) fn run(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// The interpreter's process: in a container the only child of its wrapper.
    pub(crate) fn pid(&self) -> u32 {
        let child = self.child.id();
        let name = std::fs::read_to_string(format!("/proc/{child}/comm"));
        let children = std::fs::read_to_string(format!("/proc/{child}/task/{child}/children"));
        match (name.as_deref(), children) {
            (Ok("unshare\n"), Ok(children)) => children.trim().parse().unwrap(),
            _ => child,
        }
    }

    /// Waits until the program waits, too: right after its last line it still runs, and objects that
    /// are between two counts then are noted.
    pub(crate) fn wait_until_idle(&self) {
        // Asleep at both times, and not scheduled in between: it waits for time or input.
        let switches = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
            let is_asleep = status.contains("State:\tS");
            let of = |line: &&str| line.contains("ctxt_switches:");
            is_asleep.then(|| status.lines().filter(of).collect::<String>())
        };
        loop {
            let before = switches();
            std::thread::sleep(Duration::from_millis(50));
            if before.is_some() && switches() == before {
                return;
            }
        }
    }

    /// A line of text.
    pub(crate) fn text(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) fn line<T: for<'line> Deserialize<'line>>(&mut self) -> T {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    pub(crate) fn go_on(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    }
}

/// All interpreters with the GIL, one in a container among them.
pub(crate) fn with_gil(test: &str) -> Vec<Python> {
    let all = interpreters::with_containers(test).into_iter();
    all.filter(|python| !python.is("free-threaded")).collect()
}

pub(crate) fn take(pid: u32) -> HeapGraph {
    let mut heap = RunningHeap::open(pid, HeapOptions::default()).unwrap();
    heap.take().unwrap()
}
