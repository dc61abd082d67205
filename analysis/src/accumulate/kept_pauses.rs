//! Pauses one by one, for a page that draws them.
//!
//! Owns which are kept: of too many the longest. The others are summed by time.

use crate::accumulate::pause_sums::generation_index;
use crate::accumulate::stacks::{MovedNodes, NodeId, StackTree, TraceFrames};
use crate::report::PauseTotal;
use gctrace_event::{FrameId, GcReason, Pause};
use std::collections::{BTreeMap, HashMap};

/// Times that the pauses of a trace which are not kept are summed by, at most.
const SLOTS: usize = 1024;
/// Length of such a time at first, in ns, as a power of two: 1 ms.
const FIRST_SHIFT: u32 = 20;

/// One pause.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeptPause {
    pub(crate) trace: usize,
    /// Unless it is not listed.
    pub(crate) process: Option<usize>,
    pub(crate) start_ns: u64,
    pub(crate) duration_ns: u64,
    pub(crate) generation: u8,
    pub(crate) reason: GcReason,
    pub(crate) collected: Option<u64>,
    frame: Option<FrameId>,
    /// Its stack, once the whole trace is read.
    pub(crate) node: Option<NodeId>,
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
    /// None yet, of which `most` are kept at least, and twice as many at most.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, pauses: Vec::new(), dropped: Vec::new() }
    }

    pub(crate) fn add(&mut self, trace: usize, process: Option<usize>, pause: &Pause) {
        self.pauses.push(KeptPause {
            trace,
            process,
            start_ns: pause.start_ns,
            duration_ns: pause.duration_ns(),
            generation: pause.generation,
            reason: pause.reason,
            collected: pause.collected,
            frame: pause.stack,
            node: None,
        });
        self.limit();
    }

    /// Finds the stacks of the trace that ends.
    pub(crate) fn resolve(&mut self, trace: usize, frames: &TraceFrames, tree: &mut StackTree) {
        let mut known: HashMap<FrameId, Option<NodeId>> = HashMap::new();
        for pause in self.pauses.iter_mut().filter(|pause| pause.trace == trace) {
            let node =
                |frame| *known.entry(frame).or_insert_with(|| frames.resolve(frame, &mut *tree));
            pause.node = pause.frame.take().and_then(node);
        }
    }

    /// Adds those of another analysis, whose traces and processes follow so many.
    pub(crate) fn append(
        &mut self,
        other: Self,
        (traces, processes): (usize, usize),
        nodes: &MovedNodes,
    ) {
        self.pauses.extend(other.pauses.into_iter().map(|pause| KeptPause {
            trace: pause.trace + traces,
            process: pause.process.map(|process| process + processes),
            node: pause.node.and_then(|node| nodes.of(node)),
            ..pause
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

    /// Keeps the longest pauses, so many at most.
    pub(crate) fn keep(&mut self, most: usize) {
        let Some(shorter) = self.pauses.len().checked_sub(most).filter(|shorter| *shorter > 0)
        else {
            return;
        };
        self.pauses.select_nth_unstable_by_key(shorter - 1, |pause| pause.duration_ns);
        for pause in self.pauses.drain(..shorter) {
            let trace = self.dropped.iter_mut().find(|dropped| dropped.trace == pause.trace);
            match trace {
                Some(dropped) => dropped.add(&pause),
                None => {
                    let mut dropped = DroppedPauses::new(pause.trace);
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

    fn add(&mut self, pause: &KeptPause) {
        let sums = self.slots.entry(pause.start_ns >> self.shift).or_default();
        if let Some(sum) = sums.get_mut(generation_index(pause.generation)) {
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
            let shown: u64 = kept.pauses.iter().map(|pause| pause.duration_ns).sum();
            prop_assert_eq!(shown + time_ns, pauses.iter().map(|(_, ns, _)| ns).sum::<u64>());
            // The longest are among those that are kept.
            let mut lengths: Vec<u64> = pauses.iter().map(|(_, ns, _)| *ns).collect();
            lengths.sort_unstable();
            let least = lengths.iter().rev().nth(most - 1).copied().unwrap_or(0);
            let longest = kept.pauses.iter().filter(|pause| pause.duration_ns > least).count();
            prop_assert_eq!(longest, lengths.iter().filter(|ns| **ns > least).count());
            prop_assert!(slots().count() <= SLOTS);
        }
    }
}
