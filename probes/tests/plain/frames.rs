//! The frame layouts against running interpreters: the stack read from a child's memory must be the
//! one that the child itself reports.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]
#![expect(clippy::panic, reason = "what fails here fails the test")]

use gctrace_cpython::frames::{WalkedFrame, walk};
use gctrace_cpython::{
    CodeObject, CollectorLayout, FrameLayout, Memory as _, current_thread, thread_by_id,
};
use gctrace_probes::{ProcessMemory, Resolution, ResolveOptions, maps, resolve};
use serde::Deserialize;
use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};
use test_kit::interpreters;
use test_kit::limit::WithTimeout as _;

/// Deeper than this, the test would not notice that more frames are found than exist.
const DEPTH: usize = 100;

/// File, function, line.
type Named = (String, String, Option<u32>);

/// The script's report.
#[derive(Debug, Deserialize)]
struct InterpreterOutput {
    place: String,
    thread: u64,
    frames: Vec<Named>,
}

/// A script that is killed when the test is done with it, or has failed.
struct Script {
    child: Child,
    stdin: ChildStdin,
}

impl Drop for Script {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.status_in_time();
    }
}

/// A process's stacks, read through a layout.
struct Stacks<'layout> {
    memory: ProcessMemory,
    runtime: u64,
    layout: &'layout CollectorLayout,
    frames: &'layout FrameLayout,
}

impl Stacks<'_> {
    fn number<const SIZE: usize>(&self, address: u64) -> [u8; SIZE] {
        (&self.memory).array(address).unwrap()
    }

    fn thread(&self, id: u64) -> u64 {
        thread_by_id(&mut &self.memory, self.runtime, self.layout, self.frames, id).unwrap()
    }

    fn current(&self) -> Option<u64> {
        current_thread(&mut &self.memory, self.runtime, self.layout, self.frames)
    }

    /// `None` while the thread still runs.
    fn walk(&self, thread: u64, depth: usize) -> Option<Vec<WalkedFrame>> {
        walk(&mut &self.memory, thread, &self.frames.stack, depth)
    }

    fn named(&self, frame: &WalkedFrame) -> Option<Named> {
        let code = CodeObject::read(&mut &self.memory, frame.code, self.frames)?;
        let line = code.frame_line(frame.byte_offset);
        Some((code.file, code.function, line))
    }

    /// The stack once the thread has left the function that reported it, and its five innermost frames:
    /// read between two walks with the same result, as the function that called it may go on to its
    /// next instruction meanwhile.
    fn settled(&self, thread: u64, innermost: &str) -> (Vec<WalkedFrame>, Vec<WalkedFrame>) {
        let patience = Instant::now() + Duration::from_secs(20);
        loop {
            let frames = self.walk(thread, DEPTH);
            let few = self.walk(thread, 5);
            let first = frames.as_ref().map(|frames| frames.first().map(|frame| self.named(frame)));
            if let Some(Some(Some((_, function, _)))) = &first
                && function == innermost
                && frames == self.walk(thread, DEPTH)
            {
                return (frames.unwrap(), few.unwrap());
            }
            assert!(Instant::now() < patience, "never reached {innermost}: {first:?}");
            std::thread::yield_now();
        }
    }

    /// Versions distinguish code objects.
    fn check_versions(&self, frames: &[WalkedFrame], context: &str) {
        let Some(offset) = self.frames.code_version else {
            return;
        };
        let codes: HashSet<u64> = frames.iter().map(|frame| frame.code).collect();
        let versions: HashSet<[u8; 4]> =
            codes.iter().map(|code| self.number(code + u64::from(offset))).collect();
        assert_eq!(versions.len(), codes.len(), "{context}");
        assert!(!versions.contains(&[0; 4]), "{context}");
    }

    /// Prefixes of the objects, as copied by a BPF program, decode to the same.
    fn check_parts(&self, frame: &WalkedFrame, context: &str) {
        let layout = self.frames;
        let at = |offset: u32| u64::from_le_bytes(self.number(frame.code + u64::from(offset)));
        let first_line =
            i32::from_le_bytes(self.number(frame.code + u64::from(layout.code_first_line)));
        let table = at(layout.code_line_table);
        let length = u64::from_le_bytes(self.number(table + u64::from(layout.bytes_length)));
        let mut lines = vec![0; usize::try_from(length).unwrap()];
        (&self.memory).fill(table + u64::from(layout.bytes_data), &mut lines).unwrap();
        let file: [u8; 128] = self.number(at(layout.code_filename));
        let name: [u8; 128] = self.number(at(layout.code_name));
        let parts = CodeObject::from_parts(first_line, &file, &name, &lines, layout).unwrap();
        let whole = CodeObject::read(&mut &self.memory, frame.code, layout).unwrap();
        assert!(whole.file.starts_with(&parts.file), "{context}");
        assert!(whole.function.starts_with(&parts.function), "{context}");
        assert_eq!(
            parts.frame_line(frame.byte_offset),
            whole.frame_line(frame.byte_offset),
            "{context}"
        );
    }

    fn compare(&self, printed: &InterpreterOutput, context: &str) {
        let thread = self.thread(printed.thread);
        let innermost = printed.frames.first().unwrap().1.as_str();
        let (found, few) = self.settled(thread, innermost);
        let named: Vec<Named> = found.iter().map(|frame| self.named(frame).unwrap()).collect();
        assert_eq!(named, cut(&printed.frames), "{context}");
        assert_eq!(few, found.get(..5).unwrap_or(&found), "{context}");
        self.check_versions(&found, context);
        for frame in &found {
            self.check_parts(frame, context);
        }
        if printed.place == "hold" {
            let current = self.current();
            let has_current = self.frames.runtime_tstate_current.is_some()
                || self.frames.interpreter_gil.is_some();
            assert_eq!(current, has_current.then_some(thread), "{context}");
        }
    }
}

/// Names are read up to 4 KiB.
fn cut(frames: &[Named]) -> Vec<Named> {
    let cut = |file: &String| file.chars().take(4096).collect();
    frames.iter().map(|(file, function, line)| (cut(file), function.clone(), *line)).collect()
}

/// The interpreter in a running process and where its `_PyRuntime` is.
fn find(pid: u32) -> (Resolution, u64) {
    let found: Vec<(Resolution, u64)> = maps::candidates(pid)
        .unwrap()
        .into_iter()
        .filter_map(|candidate| {
            let found = resolve(&candidate.openable, &ResolveOptions::default()).unwrap()?;
            let runtime = candidate.lowest.start - found.lowest_address + found.runtime;
            Some((found, runtime))
        })
        .collect();
    let [one] = <[_; 1]>::try_from(found).unwrap();
    one
}

/// Compares every place that the script passes; returns how often each place was compared.
fn places(python: &Path, name: &str) -> HashMap<String, usize> {
    let mut child = Command::new(python)
        .args(["-X", "utf8", "-c", include_str!("frames.py")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let stdin = child.stdin.take().unwrap();
    let mut script = Script { child, stdin };
    let mut first = lines.next().unwrap().unwrap();
    let (resolution, runtime) = find(script.child.id());
    let stacks = Stacks {
        memory: ProcessMemory::open(script.child.id()).unwrap(),
        runtime,
        layout: resolution.layout.as_ref().unwrap(),
        frames: resolution.frames.as_ref().unwrap(),
    };
    let mut compared = HashMap::new();
    loop {
        let printed: InterpreterOutput = serde_json::from_str(&first).unwrap();
        stacks.compare(&printed, &format!("{name}, {}", printed.place));
        let last = printed.place == "hold";
        *compared.entry(printed.place).or_default() += 1;
        if last {
            return compared;
        }
        script.stdin.write_all(b"\n").unwrap();
        first = match lines.next() {
            Some(line) => line.unwrap(),
            None => panic!("{name}: the script ended"),
        };
    }
}

#[test]
fn stacks_agree_with_the_interpreter() {
    let mut interpreters = 0;
    for interpreter in interpreters::interpreters("stacks_agree_with_the_interpreter") {
        let compared = places(&interpreter.path, &interpreter.name);
        assert!(
            compared.contains_key("callback"),
            "{}: a stack during a collection",
            interpreter.name
        );
        for (place, times) in [
            ("module", 1),
            ("nested", 3),
            ("generator", 3),
            ("yield from", 3),
            ("coroutine", 1),
            ("comprehension", 2),
            ("generator expression", 1),
            ("class body", 1),
            ("lambda", 1),
            ("key", 2),
            ("comparison", 1),
            ("finalizer", 3),
            ("property", 1),
            ("deep", 1),
            ("cell", 1),
            ("compiled", 8),
            ("thread", 4),
            ("hold", 1),
        ] {
            assert_eq!(compared.get(place), Some(&times), "{}: {place}", interpreter.name);
        }
        let total: usize = compared.values().sum();
        eprintln!("compared {}: {total} stacks", interpreter.name);
        interpreters += 1;
    }
    eprintln!("{interpreters} interpreters compared");
}
