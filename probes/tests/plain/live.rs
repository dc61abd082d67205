//! The memory layouts against running interpreters: what the layout reads from a child's memory
//! must be what the child itself reports.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use gctrace_cpython::{CollectorLayout, GcBase, StatsLocation};
use gctrace_probes::{PythonVersion, Resolution, ResolveOptions, maps, resolve};
use serde::Deserialize;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use test_kit::interpreters;
use test_kit::limit::WithTimeout as _;

/// The script's report.
#[derive(Debug, Deserialize)]
struct ProgramOutput {
    phase: String,
    enabled: bool,
    thresholds: [i32; 3],
    stats: [[i64; 3]; 3],
    objects: i64,
}

/// A process's memory, read through a layout.
struct State<'layout> {
    memory: File,
    runtime: u64,
    layout: &'layout CollectorLayout,
    version: &'layout PythonVersion,
}

impl State<'_> {
    fn number<const SIZE: usize>(&self, address: u64) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        self.memory.read_exact_at(&mut bytes, address).unwrap();
        bytes
    }

    fn int(&self, address: u64) -> i32 {
        i32::from_le_bytes(self.number(address))
    }

    fn long(&self, address: u64) -> i64 {
        i64::from_le_bytes(self.number(address))
    }

    fn pointer(&self, address: u64) -> u64 {
        u64::from_le_bytes(self.number(address))
    }

    fn interpreter(&self) -> u64 {
        self.pointer(self.runtime + u64::from(self.layout.interpreters_head))
    }

    fn gc(&self) -> u64 {
        match self.layout.gc {
            GcBase::InRuntime(offset) => self.runtime + u64::from(offset),
            GcBase::InInterpreter(offset) => self.interpreter() + u64::from(offset),
        }
    }

    fn stats(&self) -> [[i64; 3]; 3] {
        let stats = &self.layout.stats;
        let start = match stats.place {
            StatsLocation::Inline(offset) => self.gc() + u64::from(offset),
            StatsLocation::Behind(offset) => self.pointer(self.gc() + u64::from(offset)),
        };
        stats.generations.map(|generation| {
            let index = generation.index.map_or(0, |index| {
                let [index] = self.number(start + u64::from(index));
                u64::from(index)
            });
            assert!(index < u64::from(generation.length));
            let record = start + u64::from(generation.base) + index * u64::from(generation.stride);
            [stats.collections, stats.collected, stats.uncollectable]
                .map(|field| self.long(record + u64::from(field)))
        })
    }
}

fn start(python: &std::path::Path) -> Child {
    Command::new(python)
        .args(["-X", "utf8", "-c", include_str!("live.py")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
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

fn compare(state: &State<'_>, printed: &ProgramOutput, name: &str) {
    let layout = state.layout;
    let gc = state.gc();
    let context = format!("{name}, {}", printed.phase);
    assert_eq!(state.stats(), printed.stats, "{context}");
    let mut thresholds = layout.thresholds.map(|offset| state.int(gc + u64::from(offset)));
    if state.version.minor == 14 && state.version.micro < Some(5) {
        thresholds[2] = 0;
    }
    assert_eq!(thresholds, printed.thresholds, "{context}");
    assert_eq!(state.int(gc + u64::from(layout.enabled)) != 0, printed.enabled, "{context}");
    // In some versions the object that reports last is freed by a collection, in others after it.
    let collecting = state.int(gc + u64::from(layout.collecting));
    assert!(collecting == 0 || collecting == 1 && printed.phase == "finalizing", "{context}");
    let finalizing = state.pointer(state.runtime + u64::from(layout.finalizing)) != 0;
    assert_eq!(finalizing, printed.phase == "finalizing", "{context}");
    if let Some(id) = layout.interpreter_id {
        assert_eq!(state.long(state.interpreter() + u64::from(id)), 0, "{context}");
    }
    let next = state.interpreter() + u64::from(layout.interpreter_next);
    assert_eq!(state.pointer(next), 0, "{context}");
    if let Some(check) = layout.generations_self_check {
        let target = state.pointer(gc + u64::from(check.pointer));
        assert_eq!(target, gc + u64::from(check.target), "{context}");
    }
    compare_heap(state, printed, &context);
}

/// Numbers of objects, which the list for the query and a few frees change a little; the
/// free-threaded collector counts more objects (6 % here) than `gc.get_objects` lists.
fn compare_heap(state: &State<'_>, printed: &ProgramOutput, context: &str) {
    let near = |found: i64, what: &str| {
        let difference = (found - printed.objects).abs();
        assert!(
            difference <= printed.objects / 10,
            "{context}: {what} is {found}, {} objects",
            printed.objects
        );
    };
    if printed.phase == "finalizing" {
        return;
    }
    if let Some(offset) = state.layout.long_lived_total {
        near(state.long(state.gc() + u64::from(offset)), "long_lived_total");
    }
    if let Some(offset) = state.layout.heap_size {
        near(state.long(state.gc() + u64::from(offset)), "heap_size");
    }
}

#[test]
fn layouts_agree_with_the_interpreter() {
    let mut compared = 0;
    for interpreter in interpreters::interpreters("layouts_agree_with_the_interpreter") {
        let mut child = start(&interpreter.path);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut stdin = child.stdin.take().unwrap();
        for phase in ["disabled", "enabled", "finalizing"] {
            let line = lines.next().unwrap().unwrap();
            let printed: ProgramOutput = serde_json::from_str(&line).unwrap();
            assert_eq!(printed.phase, phase);
            let (resolution, runtime) = find(child.id());
            let state = State {
                memory: File::open(format!("/proc/{}/mem", child.id())).unwrap(),
                runtime,
                layout: resolution.layout.as_ref().unwrap(),
                version: &resolution.version,
            };
            compare(&state, &printed, &interpreter.name);
            stdin.write_all(b"\n").unwrap();
        }
        assert!(child.status_in_time().unwrap().success());
        eprintln!("compared {}", interpreter.name);
        compared += 1;
    }
    eprintln!("{compared} interpreters compared");
}
