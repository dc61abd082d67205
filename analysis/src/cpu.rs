//! What the threads of one process executed, by samples.

pub(crate) mod activity;
pub(crate) mod main_thread;
pub(crate) mod meanwhile;
pub(crate) mod off_cpu;
pub(crate) mod spans;
pub(crate) mod waits;

use crate::bounded::{ranked, within_bound};
use crate::cpu::main_thread::MainThreadReport;
use crate::figure::Location;
use crate::stacks::{MovedNodes, NodeId, StackTree};
use crate::time::{add_to, sum};
use gctrace_event::CpuSamples;
use gctrace_stats::ratio;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What the threads of a process executed, by samples; measured. A thread that waits has none. Shares are
/// of `samples`; as CPU time a sample is 1 / `hertz` s.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CpuReport {
    /// Index of the trace in `traces`.
    pub trace: usize,
    /// Process id on the host.
    pub pid: u32,
    /// Observed time of the process, in ns.
    pub observed_ns: u64,
    /// Samples a second of CPU time of a thread.
    pub hertz: u64,
    /// All samples.
    pub samples: u64,
    /// Samples of threads in a collection.
    pub in_pauses: u64,
    /// Python code that collections ran, finalizers for example (inferred); `null` if none was seen.
    pub called: Option<CalledSamples>,
    /// Threads with samples.
    pub threads: u64,
    /// Samples of the thread that has most.
    pub busiest_thread: u64,
    /// The 20 lines with most: the innermost line of each stack outside of libraries, or else the innermost.
    pub lines: Vec<CpuLine>,
    /// The 20 files of machine code with most.
    pub files: Vec<CpuFile>,
    /// What its main thread did, times off the CPU included; `null` if none were recorded.
    pub main_thread: Option<MainThreadReport>,
}

/// Functions that ran in collections and triggered none: finalizers, callbacks, generators that were closed.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CalledSamples {
    /// Samples in them.
    pub samples: u64,
    /// The same as a share of all samples in collections.
    pub ratio: f64,
    /// The one with most, at one of its lines.
    pub line: Location,
    /// Whether that one ran outside of collections too, as a generator does and a function in `gc.callbacks` does
    /// not.
    pub also_outside: bool,
}

/// Samples of a Python line.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CpuLine {
    /// The line; `null`: no Python stack, as in native threads.
    pub line: Option<Location>,
    /// Its samples, including samples of the functions that it calls.
    pub samples: u64,
}

/// Samples in the code of a file.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CpuFile {
    /// Name of the executable or library, without its folder; `[kernel]`: system calls and page faults;
    /// `null`: unknown, code that was generated for example.
    pub file: Option<String>,
    /// Samples in it.
    pub samples: u64,
}

/// Stacks, files and threads kept; samples of others count as unknown, or in the totals alone.
const KEPT: usize = 100_000;
/// Lines and files in a report.
const LISTED: usize = 20;

/// Sums of samples.
#[derive(Clone, Debug, Default)]
pub(crate) struct CpuSums {
    samples: u64,
    in_pauses: u64,
    /// By stack, and whether in a collection.
    by_stack: BTreeMap<(Option<NodeId>, bool), u64>,
    by_file: BTreeMap<Option<String>, u64>,
    by_thread: BTreeMap<u32, u64>,
}

impl CpuSums {
    /// Adds samples; `node`: their stack, if it is known.
    pub(crate) fn add(&mut self, samples: &CpuSamples, node: Option<NodeId>) {
        add_to(&mut self.samples, samples.count);
        if samples.in_pause {
            add_to(&mut self.in_pauses, samples.count);
        }
        count(&mut self.by_stack, (node, samples.in_pause), samples.count);
        count(&mut self.by_file, samples.file.clone(), samples.count);
        if let Some(count) = within_bound(&mut self.by_thread, samples.tid, KEPT) {
            add_to(count, samples.count);
        }
    }

    /// Whether there are none with a Python frame.
    pub(crate) fn is_empty(&self) -> bool {
        self.stacks().next().is_none()
    }

    /// Samples by stack, where there is one.
    pub(crate) fn stacks(&self) -> impl Iterator<Item = (NodeId, u64)> + use<'_> {
        self.by_stack.iter().filter_map(|((node, _), samples)| Some(((*node)?, *samples)))
    }

    /// Names the stacks as in a tree that their own was added to.
    pub(crate) fn renumber(&mut self, places: &MovedNodes) {
        for ((node, in_pause), samples) in std::mem::take(&mut self.by_stack) {
            let node = places.moved(node);
            add_to(self.by_stack.entry((node, in_pause)).or_default(), samples);
        }
    }

    /// What collections call: a thread in one has the stack that triggered it, or a stack on top of that.
    fn called(&self, triggers: &BTreeSet<NodeId>, tree: &StackTree) -> Option<CalledSamples> {
        let mut inside: BTreeMap<Function<'_>, (u64, &Location)> = BTreeMap::new();
        let mut outside = BTreeSet::new();
        for ((node, in_pause), samples) in &self.by_stack {
            let Some(node) = *node else { continue };
            if !in_pause {
                outside.extend(tree.frames(node).next().map(function));
            } else if !triggers.contains(&node)
                && let Some(line) = tree.frame_above(node, triggers)
            {
                let (sum, _) = inside.entry(function(line)).or_insert((0, line));
                add_to(sum, *samples);
            }
        }
        let samples = sum(inside.values().map(|(samples, _)| *samples));
        let (most, (_, line)) = inside.into_iter().max_by_key(|(_, (samples, _))| *samples)?;
        Some(CalledSamples {
            samples,
            ratio: ratio(samples, self.in_pauses)?,
            line: line.clone(),
            also_outside: outside.contains(&most),
        })
    }

    /// Lines and files with the most samples of this process of this trace, `hertz` a second; `None` of a trace
    /// without a rate. `triggers`: the stacks of its pauses.
    pub(crate) fn report(
        &self,
        (trace, pid): (usize, u32),
        observed_ns: u64,
        tree: &StackTree,
        triggers: &BTreeSet<NodeId>,
        hertz: u32,
    ) -> Option<CpuReport> {
        let hertz = u64::from(hertz);
        if hertz == 0 {
            return None;
        }
        let mut by_line: BTreeMap<Option<&Location>, u64> = BTreeMap::new();
        for ((node, _), samples) in &self.by_stack {
            let line = node.map(|node| tree.own_line(node));
            add_to(by_line.entry(line).or_default(), *samples);
        }
        let lines = by_line.into_iter();
        let lines = lines.map(|(line, samples)| CpuLine { line: line.cloned(), samples });
        let files = self.by_file.iter();
        let files = files.map(|(file, samples)| CpuFile { file: file.clone(), samples: *samples });
        Some(CpuReport {
            trace,
            pid,
            observed_ns,
            hertz,
            samples: self.samples,
            in_pauses: self.in_pauses,
            called: self.called(triggers, tree),
            threads: self.by_thread.len() as u64,
            busiest_thread: self.by_thread.values().copied().max().unwrap_or(0),
            lines: ranked(lines, LISTED, |line| line.samples),
            files: ranked(files, LISTED, |file| file.samples),
            main_thread: None,
        })
    }
}

/// A function by its file and name.
type Function<'a> = (&'a str, &'a str);

fn function(line: &Location) -> Function<'_> {
    (&line.file, &line.function)
}

/// Adds to the samples of a key, or, if there are too many keys, to the samples of an unknown one.
fn count<K: Ord + Default>(sums: &mut BTreeMap<K, u64>, key: K, samples: u64) {
    let fits = sums.len() < KEPT || sums.contains_key(&key);
    add_to(sums.entry(if fits { key } else { K::default() }).or_default(), samples);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::TraceFrames;
    use gctrace_event::Frame;

    /// In a collection a thread has the stack that triggered it, unless the collection calls Python code.
    #[test]
    fn what_stands_on_a_trigger_is_called_by_collections() {
        let mut tree = StackTree::default();
        let mut frames = TraceFrames::default();
        let frame = |id, parent, function: &str| Frame {
            id,
            parent,
            function: function.to_owned(),
            file: "/srv/app.py".to_owned(),
            line: Some(id),
        };
        for (id, parent, function) in
            [(1, None, "main"), (2, Some(1), "Job.__del__"), (3, Some(2), "close")]
        {
            frames.add(frame(id, parent, function), &mut tree);
        }
        let nodes: Vec<NodeId> = (1..=3).map(|id| frames.resolve(id, &mut tree).unwrap()).collect();
        let samples = |in_pause, count| CpuSamples {
            pid: 7,
            tid: 7,
            at_ns: 0,
            until_ns: 1,
            count,
            in_pause,
            file: None,
            stack: None,
        };
        let mut sums = CpuSums::default();
        sums.add(&samples(true, 6), Some(nodes[0]));
        sums.add(&samples(true, 2), Some(nodes[2]));
        sums.add(&samples(false, 9), Some(nodes[1]));
        let triggers = BTreeSet::from([nodes[0]]);
        let report = sums.report((0, 7), 1, &tree, &triggers, 99).unwrap();
        let called = report.called.unwrap();
        assert_eq!(called.line.function, "Job.__del__");
        assert_eq!((called.samples, called.ratio, called.also_outside), (2, 0.25, true));
        // Without a trigger below it the stack of the collection itself was lost.
        let report = sums.report((0, 7), 1, &tree, &BTreeSet::new(), 99).unwrap();
        assert!(report.called.is_none());
    }
}
