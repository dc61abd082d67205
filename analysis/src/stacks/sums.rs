//! Sums over the pauses of each stack of one process.

use super::{MovedNodes, NodeId, StackTree, TraceFrames};
use crate::figure::PauseTotal;
use crate::pauses::{GENERATIONS, REASONS, generation_index, reason_index};
use gctrace_event::{FrameId, GcReason, Pause};
use std::collections::{BTreeMap, HashMap};

/// Distinct stacks kept per process; further ones count as not readable.
const STACKS_KEPT: usize = 100_000;
/// No frame has this name: they are counted from 1.
const NO_FRAME: FrameId = 0;

/// Sums over the pauses of one stack. There are many: generations and reasons are apart, in half the
/// memory of a [`PauseSums`](crate::pauses::PauseSums).
#[derive(Clone, Debug, Default)]
pub(crate) struct StackSums {
    pub(crate) by_generation: [PauseTotal; GENERATIONS],
    pub(crate) by_reason: [PauseTotal; REASONS.len()],
    /// Automatic collections of the whole heap.
    pub(crate) automatic_full: PauseTotal,
    pub(crate) max_ns: u64,
}

impl StackSums {
    /// Counts a pause; `full`: it went through the whole heap.
    pub(crate) fn add(&mut self, generation: u8, reason: GcReason, time_ns: u64, full: bool) {
        self.by_generation[generation_index(generation)].add(time_ns);
        self.by_reason[reason_index(reason)].add(time_ns);
        if full && reason == GcReason::Automatic {
            self.automatic_full.add(time_ns);
        }
        self.max_ns = self.max_ns.max(time_ns);
    }

    pub(crate) fn total(&self) -> PauseTotal {
        self.by_generation.iter().collect()
    }

    /// Number and time of the pauses with one reason.
    pub(crate) fn of(&self, reason: GcReason) -> PauseTotal {
        self.by_reason[reason_index(reason)]
    }

    /// Automatic collections that are not full.
    pub(crate) fn automatic_partial(&self) -> PauseTotal {
        let automatic = self.of(GcReason::Automatic);
        PauseTotal {
            count: automatic.count - self.automatic_full.count,
            time_ns: automatic.time_ns - self.automatic_full.time_ns,
        }
    }

    /// Adds the sums of other pauses.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.automatic_full.add_all(&other.automatic_full);
        self.max_ns = self.max_ns.max(other.max_ns);
        let generations = self.by_generation.iter_mut().zip(&other.by_generation);
        let reasons = self.by_reason.iter_mut().zip(&other.by_reason);
        for (total, other) in generations.chain(reasons) {
            total.add_all(other);
        }
    }
}

/// Sums of one process by stack: while its trace is read under the names of that trace, then
/// under the nodes of the tree.
#[derive(Debug, Default)]
pub(crate) struct TraceStacks {
    by_frame: HashMap<FrameId, StackSums>,
    by_node: BTreeMap<NodeId, StackSums>,
    nodes: HashMap<FrameId, NodeId>,
    pub(crate) without_stack: WithoutStack,
}

/// Pauses without a stack.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WithoutStack {
    /// At interpreter shutdown, when no Python code runs.
    pub(crate) at_shutdown: PauseTotal,
    /// At any other time.
    pub(crate) before: PauseTotal,
}

impl WithoutStack {
    /// Counts a pause.
    pub(crate) fn add(&mut self, reason: GcReason, time_ns: u64) {
        match reason {
            GcReason::Shutdown => self.at_shutdown.add(time_ns),
            _ => self.before.add(time_ns),
        }
    }
}

impl TraceStacks {
    /// Counts a pause; `full`: it went through the whole heap.
    pub(crate) fn add(&mut self, pause: &Pause, full: bool) {
        let Some(mut frame) = pause.stack else {
            return self.without_stack.add(pause.reason, pause.duration_ns());
        };
        if self.by_frame.len() >= STACKS_KEPT && !self.by_frame.contains_key(&frame) {
            frame = NO_FRAME;
        }
        let sums = self.by_frame.entry(frame).or_default();
        sums.add(pause.generation, pause.reason, pause.duration_ns(), full);
    }

    /// Resolves the stacks, once all frames of the trace are known.
    pub(crate) fn resolve(&mut self, frames: &TraceFrames, tree: &mut StackTree) {
        // In order of name, so that the tree does not depend on the order in a hash table.
        let by_frame: BTreeMap<_, _> = std::mem::take(&mut self.by_frame).into_iter().collect();
        for (frame, sums) in by_frame {
            match frames.resolve(frame, tree) {
                Some(node) => {
                    self.by_node.entry(node).or_default().merge(&sums);
                    self.nodes.insert(frame, node);
                }
                None => self.without_stack.before.add_all(&sums.total()),
            }
        }
    }

    /// Renumbers the stacks after their tree was added to another.
    pub(crate) fn renumber(&mut self, moved: &MovedNodes) {
        for (node, sums) in std::mem::take(&mut self.by_node) {
            match moved.of(node) {
                Some(node) => self.by_node.entry(node).or_default().merge(&sums),
                None => self.without_stack.before.add_all(&sums.total()),
            }
        }
        self.nodes.retain(|_, node| {
            let moved = moved.of(*node);
            moved.inspect(|moved| *node = *moved).is_some()
        });
    }

    /// The stack of this name in the trace; `None` if no pause has it.
    pub(crate) fn node(&self, frame: FrameId) -> Option<NodeId> {
        self.nodes.get(&frame).copied()
    }

    /// Stacks and their sums.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeId, &StackSums)> {
        self.by_node.iter().map(|(node, sums)| (*node, sums))
    }

    /// Whether any pause has a stack.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_node.is_empty()
    }
}
