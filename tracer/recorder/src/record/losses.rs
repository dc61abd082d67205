//! Losses and cost of a recording, as its sources add them up while it runs.

use gctrace_units::{add_to, beyond, met, sum};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Losses and probe hits so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordingLosses {
    /// Lost events by place; without zeros.
    pub lost: BTreeMap<String, u64>,
    /// Processes that could have run Python unseen.
    pub unexamined: u64,
    /// Hits of probes and hooks in recorded programs.
    pub hits: u64,
    /// Time that probes on the collector and the library took from recorded programs, if the cost of
    /// a probe is known.
    pub cost_ns: Option<u64>,
    /// The same of programs that are not recorded but run a probed interpreter.
    pub elsewhere_ns: Option<u64>,
}

/// The sum of losses by place; the largest number stands for more. A program can claim such a number: it counts in its
/// own memory.
pub fn lost_events(lost: &BTreeMap<String, u64>) -> u64 {
    sum(lost.values())
}

/// With two sources: for each process, the number of collections that each source has and the other lost. Processes are
/// known by their pid; several may have had the same pid one after another.
#[derive(Debug, Default)]
pub(crate) struct CollectionLosses {
    /// Processes with a collection that the probes recorded.
    probed: HashSet<u32>,
    /// Collections that the probes did not record, and the library did.
    injected_alone: HashMap<u32, u64>,
    /// Collections that the library did not record.
    lost_in_process: HashMap<u32, u64>,
}

impl CollectionLosses {
    /// The probes recorded a collection of this process.
    pub(crate) fn probed(&mut self, pid: u32) {
        self.probed.insert(pid);
    }

    /// The library recorded a collection, and the probes did not.
    pub(crate) fn injected_alone(&mut self, pid: u32) {
        *self.injected_alone.entry(pid).or_default() += 1;
    }

    /// The probes did record a collection of [`CollectionLosses::injected_alone`].
    pub(crate) fn came_late(&mut self, pid: u32) {
        if let Some(alone) = self.injected_alone.get_mut(&pid) {
            *alone = beyond(*alone, 1);
        }
    }

    /// The library did not record that many collections, by its own count; a program can change this count.
    pub(crate) fn lost_in_process(&mut self, pid: u32, count: u64) {
        let lost = self.lost_in_process.entry(pid).or_default();
        add_to(lost, count);
    }

    /// Number of collections that neither source recorded. `lost_by_probes`: for each process, the collections that the
    /// probes know of and did not record, by CPython's own count; collections that only the library recorded are
    /// included. In other processes there were no probes. `waiting`: collections that the library recorded and the
    /// probes may not have.
    pub(crate) fn by_both(
        &self,
        lost_by_probes: &HashMap<u32, u64>,
        waiting: &HashMap<u32, u64>,
    ) -> u64 {
        let known = |of: &HashMap<u32, u64>, pid| met(of.get(pid));
        let alone = |pid| sum([known(&self.injected_alone, pid), known(waiting, pid)]);
        let probed = lost_by_probes.iter().map(|(pid, lost)| beyond(*lost, alone(pid)));
        let unprobed = self
            .lost_in_process
            .iter()
            .filter(|(pid, _)| !self.probed.contains(pid) && !lost_by_probes.contains_key(pid))
            .map(|(_, lost)| *lost);
        sum(probed.chain(unprobed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_source_recorded_is_not_lost() {
        let mut losses = CollectionLosses::default();
        // The library recorded 3 of the 5 that the probes lost, and lost 100 that the probes have.
        losses.probed(1);
        (0..4).for_each(|_| losses.injected_alone(1));
        losses.came_late(1);
        losses.lost_in_process(1, 100);
        // No probe ever recorded anything: all of it was lost, or there were no probes.
        losses.injected_alone(2);
        losses.lost_in_process(3, 30);
        let lost_by_probes = HashMap::from([(1, 5), (2, 8), (4, 200)]);
        let none = HashMap::new();
        let lost = (5 - 3) + (8 - 1) + 200 + 30;
        assert_eq!(losses.by_both(&lost_by_probes, &none), lost);
        let waiting = HashMap::from([(1, 1), (2, 9), (5, 10)]);
        assert_eq!(losses.by_both(&lost_by_probes, &waiting), lost - 1 - 7);
        assert_eq!(losses.by_both(&none, &none), 30);
    }
}
