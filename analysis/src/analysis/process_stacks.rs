//! Stacks with their weights, for flame graphs.

use super::Analysis;
use crate::accumulate::process::ProcessState;
use crate::pauses::generation_index;
use crate::report::{Location, PauseTotal};
use crate::stacks::{NodeId, StackSums, StackTree};

/// The stacks of one process that has any.
#[derive(Debug, Clone, Copy)]
pub struct ProcessStacks<'a> {
    tree: &'a StackTree,
    process: &'a ProcessState,
    /// Samples a second, if there were any.
    hertz: Option<u32>,
}

/// One stack of a process, with the sums of the pauses that started with it.
#[derive(Debug, Clone, Copy)]
pub struct WeightedStack<'a> {
    tree: &'a StackTree,
    node: NodeId,
    sums: &'a StackSums,
}

/// One sampled stack of a process.
#[derive(Debug, Clone)]
pub struct SampledStack<'a> {
    /// Its frames from the outermost to the innermost.
    pub frames: Vec<&'a Location>,
    /// Number of samples.
    pub samples: u64,
    /// The CPU time that they stand for, in ns.
    pub cpu_ns: u64,
}

impl Analysis {
    /// The processes that have pauses or samples with stacks, in the order of the traces and, within one, of
    /// their appearance.
    pub fn stacks(&self) -> impl Iterator<Item = ProcessStacks<'_>> {
        let tree = &self.stacks;
        let with = |process: &&ProcessState| !process.stacks.is_empty() || !process.cpu.is_empty();
        let all = self.processes.iter().chain(&self.unlisted);
        let processes = all.filter(with);
        processes.map(move |process| {
            let hertz = || self.traces.get(process.trace)?.header.as_ref()?.sample_hz;
            ProcessStacks { tree, process, hertz: hertz() }
        })
    }
}

impl<'a> ProcessStacks<'a> {
    /// Index of its trace, in the order of reading.
    pub fn trace(&self) -> usize {
        self.process.trace
    }

    /// Process id: on the host if gctrace recorded the process, otherwise as the trace states it.
    pub fn pid(&self) -> u32 {
        self.process.sums.pid
    }

    /// Rank in a distributed job; `None` if unknown.
    pub fn rank(&self) -> Option<u32> {
        self.process.sums.rank()
    }

    /// Command line, or the name given by another tool; empty if neither is known.
    pub fn command(&self) -> String {
        match &self.process.sums.described {
            Some(described) => described.command.join(" "),
            None => gctrace_units::if_known(self.process.name.clone()),
        }
    }

    /// Its stacks, in no particular order.
    pub fn stacks(&self) -> impl Iterator<Item = WeightedStack<'a>> + use<'a> {
        let tree = self.tree;
        let stacks = self.process.stacks.iter();
        stacks.map(move |(node, sums)| WeightedStack { tree, node, sums })
    }

    /// Its sampled stacks, in no particular order. Samples without a Python frame are left out.
    pub fn sampled(&self) -> impl Iterator<Item = SampledStack<'a>> + use<'a> {
        let tree = self.tree;
        let ns = if let Some(hz) = self.hertz { 1_000_000_000 / u64::from(hz.max(1)) } else { 0 };
        let stacks = self.process.cpu.stacks();
        stacks.map(move |(node, samples)| SampledStack {
            frames: tree.frames_from_outermost(node),
            samples,
            cpu_ns: crate::time::times(samples, ns),
        })
    }
}

impl<'a> WeightedStack<'a> {
    /// Its frames from the outermost to the innermost.
    pub fn frames(&self) -> Vec<&'a Location> {
        self.tree.frames_from_outermost(self.node)
    }

    /// Count and time of its pauses.
    pub fn pauses(&self) -> PauseTotal {
        self.sums.total()
    }

    /// Like that, for one generation; [`gctrace_event::Pause::UNKNOWN_GENERATION`] for pauses of
    /// unknown generation.
    pub fn of_generation(&self, generation: u8) -> PauseTotal {
        self.sums.by_generation[generation_index(generation)]
    }
}
