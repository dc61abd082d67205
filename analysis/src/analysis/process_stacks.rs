//! Stacks with their weights, for flame graphs.

use super::Analysis;
use crate::accumulate::pause_sums::generation_index;
use crate::accumulate::process::ProcessState;
use crate::accumulate::stacks::{NodeId, StackSums, StackTree};
use crate::report::{Location, PauseTotal};

/// The stacks of one process that has any.
#[derive(Debug, Clone, Copy)]
pub struct ProcessStacks<'a> {
    tree: &'a StackTree,
    process: &'a ProcessState,
}

/// One stack of a process, with the sums of the pauses that started with it.
#[derive(Debug, Clone, Copy)]
pub struct WeightedStack<'a> {
    tree: &'a StackTree,
    node: NodeId,
    sums: &'a StackSums,
}

impl Analysis {
    /// The processes that have pauses with stacks, in the order of the traces and, within one, of
    /// their appearance.
    pub fn stacks(&self) -> impl Iterator<Item = ProcessStacks<'_>> {
        let tree = &self.stacks;
        let with = |process: &&ProcessState| !process.stacks.is_empty();
        let all = self.processes.iter().chain(&self.unlisted);
        let processes = all.filter(with);
        processes.map(move |process| ProcessStacks { tree, process })
    }
}

impl<'a> ProcessStacks<'a> {
    /// Index of its trace, in the order of reading.
    #[must_use]
    pub fn trace(&self) -> usize {
        self.process.trace
    }

    /// Process id: on the host if gctrace recorded the process, otherwise as the trace states it.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.sums.pid
    }

    /// Rank in a distributed job; `None` if unknown.
    #[must_use]
    pub fn rank(&self) -> Option<u32> {
        self.process.sums.rank()
    }

    /// Command line, or the name given by another tool; empty if neither is known.
    #[must_use]
    pub fn command(&self) -> String {
        match &self.process.sums.described {
            Some(described) => described.command.join(" "),
            None => self.process.name.clone().unwrap_or_default(),
        }
    }

    /// Its stacks, in no particular order.
    pub fn stacks(&self) -> impl Iterator<Item = WeightedStack<'a>> + use<'a> {
        let tree = self.tree;
        let stacks = self.process.stacks.iter();
        stacks.map(move |(node, sums)| WeightedStack { tree, node, sums })
    }
}

impl<'a> WeightedStack<'a> {
    /// Its frames from the outermost to the innermost.
    #[must_use]
    pub fn frames(&self) -> Vec<&'a Location> {
        let mut frames: Vec<&Location> = self.tree.frames(self.node).collect();
        frames.reverse();
        frames
    }

    /// Count and time of its pauses.
    #[must_use]
    pub fn pauses(&self) -> PauseTotal {
        self.sums.total()
    }

    /// Like that, for one generation; [`gctrace_event::Pause::UNKNOWN_GENERATION`] for pauses of
    /// unknown generation.
    #[must_use]
    pub fn of_generation(&self, generation: u8) -> PauseTotal {
        self.sums.by_generation[generation_index(generation)]
    }
}
