//! What the library cost the programs, as it measures that itself: entries of the recording's overhead.

use gctrace_event::ProbeCost;
use gctrace_ring::{RingConsumer, WorkCost, WorkKind};

/// CPU time that the library took from threads of the programs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LibraryCost {
    /// In the order of [`WorkKind::ALL`].
    work: [WorkCost; WorkKind::ALL.len()],
    /// Counted allocations with their frees, and their time.
    allocations: WorkCost,
    /// Those whose time is unknown.
    unpriced_allocations: u64,
}

impl LibraryCost {
    /// Adds what the process of a ring has counted so far. A program can claim anything: sums
    /// saturate.
    pub(super) fn add(&mut self, ring: &RingConsumer) {
        for (sum, more) in self.work.iter_mut().zip(ring.costs()) {
            add(sum, more);
        }
        let Some((_, classes, _)) = ring.allocations() else {
            return;
        };
        let counts = classes.iter().map(|class| class.count);
        let count = counts.fold(0, u64::saturating_add);
        match ring.allocation_ns() {
            Some(each_ns) => {
                let ns = (count as f64 * each_ns) as u64;
                add(&mut self.allocations, WorkCost { count, ns });
            }
            None => self.unpriced_allocations = self.unpriced_allocations.saturating_add(count),
        }
    }

    /// All of it, in ns.
    pub(super) fn total_ns(&self) -> u64 {
        let work = self.work.iter().map(|work| work.ns);
        work.fold(self.allocations.ns, u64::saturating_add)
    }

    /// The entries of the overhead that are not empty. `calls`: CUDA calls that CUPTI reported.
    pub(super) fn entries(&self, calls: u64) -> Vec<ProbeCost> {
        let work = WorkKind::ALL.map(name).into_iter().zip(self.work);
        let measured = work.chain([(ALLOCATIONS, self.allocations)]);
        let measured = measured.map(|(probe, work)| {
            let ns_per_hit = work.ns as f64 / work.count as f64;
            (probe, work.count, Some(ns_per_hit))
        });
        let unknown = [
            ("CUDA call, reported by CUPTI", calls, None),
            (ALLOCATIONS, self.unpriced_allocations, None),
        ];
        let entries = measured.chain(unknown).filter(|(_, hits, _)| *hits > 0);
        entries
            .map(|(probe, hits, ns_per_hit)| ProbeCost {
                probe: probe.to_owned(),
                hits,
                ns_per_hit,
            })
            .collect()
    }
}

const ALLOCATIONS: &str = "allocation with its free, in-process";

fn name(kind: WorkKind) -> &'static str {
    match kind {
        WorkKind::Start => "start of an interpreter, in-process",
        WorkKind::Collection => "collection, in-process",
        WorkKind::Step => "mark of a step, in-process",
        WorkKind::Fork => "forked child, in-process",
        WorkKind::Garbage => "garbage of collections, in-process",
    }
}

fn add(sum: &mut WorkCost, more: WorkCost) {
    sum.count = sum.count.saturating_add(more.count);
    sum.ns = sum.ns.saturating_add(more.ns);
}
