//! Pauses one by one, for a page that draws them.
//!
//! Chooses the pauses to keep: if there are too many, the longest. The others are summed by time.

use crate::pauses::{generation_index, known_generation};
use crate::report::PauseTotal;
use crate::stacks::{MovedNodes, NodeId, StackTree, TraceFrames};
use gctrace_event::{FrameId, GcReason, Pause};
use std::collections::{BTreeMap, HashMap};

/// Most slots of time, per trace, that sum the other pauses.
const SLOTS: usize = 1024;
/// Length of a slot at first, in ns, as a power of two: 1 ms.
const FIRST_SHIFT: u32 = 20;

/// One pause.
#[derive(Clone, Copy, Debug)]
pub struct ListedPause {
    /// Its place in [`crate::PauseList::processes`].
    pub process: usize,
    /// Start, in ns after the start of the first trace.
    pub at_ns: u64,
    /// Length, in ns, as in the report.
    pub duration_ns: u64,
    /// Generation collected, 0 to 2; `None` if unknown.
    pub generation: Option<u8>,
    /// Why it ran.
    pub reason: GcReason,
    /// Objects freed; `None` if unknown.
    pub collected: Option<u64>,
    /// Its Python stack; `None` if it has none.
    pub stack: Option<StackId>,
}

/// A Python stack of an [`crate::Analysis`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StackId(pub(crate) NodeId);

/// A pause that has no place in the list yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeptPause {
    pub(crate) trace: usize,
    /// Unless it is not listed.
    pub(crate) process: Option<usize>,
    /// Its stack, until the whole trace is read.
    frame: Option<FrameId>,
    /// With its start on the clock of the trace, and no process.
    pub(crate) pause: ListedPause,
}

/// The pauses of one trace that were not kept, by time.
#[derive(Debug)]
pub(crate) struct DroppedPauses {
    pub(crate) trace: usize,
    shift: u32,
    slots: BTreeMap<u64, [PauseTotal; 4]>,
}

/// The longest pauses, in no particular order.
#[derive(Debug)]
pub(crate) struct KeptPauses {
    most: usize,
    pub(crate) pauses: Vec<KeptPause>,
    pub(crate) dropped: Vec<DroppedPauses>,
}

impl KeptPauses {
    /// Keeps none yet, later at least `most` and at most twice as many.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, pauses: Vec::new(), dropped: Vec::new() }
    }

    pub(crate) fn add(&mut self, trace: usize, process: Option<usize>, pause: &Pause) {
        self.pauses.push(KeptPause {
            trace,
            process,
            frame: pause.stack,
            pause: ListedPause {
                process: 0,
                at_ns: pause.start_ns,
                duration_ns: pause.duration_ns(),
                generation: known_generation(pause),
                reason: pause.reason,
                collected: pause.collected,
                stack: None,
            },
        });
        self.limit();
    }

    /// Finds the stacks of the trace that ends.
    pub(crate) fn resolve(&mut self, trace: usize, frames: &TraceFrames, tree: &mut StackTree) {
        let mut known: HashMap<FrameId, Option<NodeId>> = HashMap::new();
        for kept in self.pauses.iter_mut().filter(|kept| kept.trace == trace) {
            let node =
                |frame| *known.entry(frame).or_insert_with(|| frames.resolve(frame, &mut *tree));
            kept.pause.stack = kept.frame.take().and_then(node).map(StackId);
        }
    }

    /// Adds the pauses of another analysis. Its traces and processes follow this many.
    pub(crate) fn append(
        &mut self,
        other: Self,
        (traces, processes): (usize, usize),
        nodes: &MovedNodes,
    ) {
        self.pauses.extend(other.pauses.into_iter().map(|mut kept| {
            kept.trace += traces;
            kept.process = kept.process.map(|process| process + processes);
            kept.pause.stack = nodes.moved(kept.pause.stack.map(|stack| stack.0)).map(StackId);
            kept
        }));
        let dropped = other.dropped.into_iter();
        self.dropped.extend(dropped.map(|one| DroppedPauses { trace: one.trace + traces, ..one }));
        self.most = self.most.saturating_add(other.most);
        self.limit();
    }

    fn limit(&mut self) {
        if self.pauses.len() > self.most.saturating_mul(2) {
            self.keep(self.most);
        }
    }

    /// Keeps the longest pauses, at most this many.
    pub(crate) fn keep(&mut self, most: usize) {
        let shorter = self.pauses.len().saturating_sub(most);
        if shorter == 0 {
            return;
        }
        self.pauses.select_nth_unstable_by_key(shorter - 1, |kept| kept.pause.duration_ns);
        for KeptPause { trace, pause, .. } in self.pauses.drain(..shorter) {
            match self.dropped.iter_mut().find(|dropped| dropped.trace == trace) {
                Some(dropped) => dropped.add(&pause),
                None => {
                    let mut dropped = DroppedPauses::new(trace);
                    dropped.add(&pause);
                    self.dropped.push(dropped);
                }
            }
        }
    }
}

impl DroppedPauses {
    fn new(trace: usize) -> Self {
        Self { trace, shift: FIRST_SHIFT, slots: BTreeMap::new() }
    }

    fn add(&mut self, pause: &ListedPause) {
        let sums = self.slots.entry(pause.at_ns >> self.shift).or_default();
        let generation = pause.generation.unwrap_or(Pause::UNKNOWN_GENERATION);
        if let Some(sum) = sums.get_mut(generation_index(generation)) {
            sum.add(pause.duration_ns);
        }
        while self.slots.len() > SLOTS {
            self.shift += 1;
            for (slot, sums) in std::mem::take(&mut self.slots) {
                let wider = self.slots.entry(slot >> 1).or_default();
                wider.iter_mut().zip(&sums).for_each(|(sum, more)| sum.add_all(more));
            }
        }
    }

    /// Start of each time on the clock of the trace, its length, both in ns, and the sums by generation:
    /// 0, 1, 2, unknown.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (u64, u64, &[PauseTotal; 4])> {
        let width_ns = 1u64 << self.shift.min(63);
        self.slots.iter().map(move |(slot, sums)| (slot << self.shift.min(63), width_ns, sums))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever is dropped, nothing is lost, and all that is kept is at least as long.
        #[test]
        fn nothing_is_lost(
            pauses in prop::collection::vec((0u64..1 << 40, 0u64..1 << 30, 0u8..4), 0..300),
            most in 1usize..40,
        ) {
            let mut parts = [KeptPauses::new(most), KeptPauses::new(most)];
            for (index, (start_ns, length_ns, generation)) in pauses.iter().enumerate() {
                let pause = Pause {
                    start_ns: *start_ns,
                    end_ns: start_ns + length_ns,
                    generation: *generation,
                    ..Pause::default()
                };
                parts[index % 2].add(0, None, &pause);
            }
            let [mut kept, second] = parts;
            let nodes = StackTree::default().append(StackTree::default());
            kept.append(second, (1, 0), &nodes);
            prop_assert!(kept.pauses.len() <= 4 * most);
            prop_assert!(kept.pauses.len() >= most.min(pauses.len()));
            let slots = || kept.dropped.iter().flat_map(DroppedPauses::slots);
            let dropped = slots().flat_map(|(_, _, sums)| sums.iter());
            let (count, time_ns) = dropped
                .fold((0, 0), |(count, ns), sum| (count + sum.count, ns + sum.time_ns));
            prop_assert_eq!(count as usize + kept.pauses.len(), pauses.len());
            let shown: u64 = kept.pauses.iter().map(|kept| kept.pause.duration_ns).sum();
            prop_assert_eq!(shown + time_ns, pauses.iter().map(|(_, ns, _)| ns).sum::<u64>());
            // The longest are among the kept ones.
            let mut lengths: Vec<u64> = pauses.iter().map(|(_, ns, _)| *ns).collect();
            lengths.sort_unstable();
            let least = lengths.iter().rev().nth(most - 1).copied().unwrap_or(0);
            let longest = kept.pauses.iter().filter(|kept| kept.pause.duration_ns > least).count();
            prop_assert_eq!(longest, lengths.iter().filter(|ns| **ns > least).count());
            prop_assert!(slots().count() <= SLOTS);
        }
    }
}
