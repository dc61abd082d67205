//! The library's cost to the programs, as it measures it itself: entries of the recording's overhead.

use gctrace_event::{HitCost, ProbeCost};
use gctrace_ring::{RingConsumer, WorkCost, WorkKind};
use gctrace_units::{add_to, met, sum};

/// CPU time that the library took from threads of the programs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LibraryCost {
    /// In the order of [`WorkKind::ALL`].
    work: [WorkCost; WorkKind::ALL.len()],
    /// Counted allocations with their frees, and their time.
    allocations: WorkCost,
    /// Allocations of unknown time.
    unpriced_allocations: u64,
}

impl LibraryCost {
    /// Adds the counts of a ring's process so far. A program can claim anything: sums saturate.
    pub(super) fn add(&mut self, ring: &RingConsumer) {
        for (sum, more) in self.work.iter_mut().zip(ring.costs()) {
            add(sum, more);
        }
        let Some((_, classes, _)) = ring.allocations() else {
            return;
        };
        let counts = classes.iter().map(|class| class.count);
        let count = sum(counts);
        match ring.allocation_ns() {
            Some(each_ns) => {
                let ns = (count as f64 * each_ns) as u64;
                add(&mut self.allocations, WorkCost { count, ns });
            }
            None => add_to(&mut self.unpriced_allocations, count),
        }
    }

    fn of(&self, kind: WorkKind) -> WorkCost {
        met(self.work.get(kind as usize))
    }

    /// The likely sum, in ns.
    pub(super) fn total_ns(&self) -> u64 {
        let entries = self.entries(0);
        let each = entries.iter().filter_map(|cost| Some(cost.hits as f64 * cost.ns_per_hit?));
        each.sum::<f64>() as u64
    }

    /// The entries of the overhead that are not empty. `calls`: CUDA calls that CUPTI reported.
    pub(super) fn entries(&self, calls: u64) -> Vec<ProbeCost> {
        let work = WorkKind::ALL.into_iter().zip(self.work);
        let work = work.filter_map(|(kind, work)| Some((name(kind)?, work)));
        let measured = work.chain([(ALLOCATIONS, self.allocations)]);
        let measured = measured.map(|(probe, work)| {
            let each_ns = work.ns as f64 / work.count as f64;
            let most = match probe {
                START => START_OUTSIDE,
                FORK => FORK_OUTSIDE,
                _ => 1.0,
            };
            (probe, work.count, Some(HitCost::between(each_ns, most * each_ns)))
        });
        let collections = self.of(WorkKind::Collection);
        let calls_ns = self.of(WorkKind::Calls).ns as f64 / collections.count as f64;
        let own_ns = collections.ns as f64 / collections.count as f64;
        let own = HitCost { least_ns: own_ns / ANYWAY, ..HitCost::exactly(own_ns) };
        let each = own.plus(HitCost::between(calls_ns, COLD * calls_ns));
        let measured = measured.chain([("collection, in-process", collections.count, Some(each))]);
        let unknown = [
            ("CUDA call, reported by CUPTI", calls, None),
            (ALLOCATIONS, self.unpriced_allocations, None),
        ];
        let entries = measured.chain(unknown).filter(|(_, hits, _)| *hits > 0);
        entries.map(|(probe, hits, each)| ProbeCost::new(probe, hits, each)).collect()
    }
}

/// The most that CPython's call of the library costs, as a multiple of its time with warm caches; includes the
/// program's reads of the data it displaced (docs/evidence.md).
const COLD: f64 = 6.0;

/// The time of the library's own work by the clock, as a multiple of its least cost: a program that has cold caches
/// anyway loses nothing by them (docs/evidence.md).
const ANYWAY: f64 = 2.0;

/// The most that the start of an interpreter costs, as a multiple of the time that the library measures: the loader's
/// work and the end of the process are not timed. And the same of a forked child: the kernel's copying is not timed
/// either.
const START_OUTSIDE: f64 = 2.0;
const FORK_OUTSIDE: f64 = 3.0;

const START: &str = "start of an interpreter, in-process";
const FORK: &str = "forked child, in-process";
const ALLOCATIONS: &str = "allocation with its free, in-process";

/// The name of the work; `None`: it is a part of a collection's.
fn name(kind: WorkKind) -> Option<&'static str> {
    Some(match kind {
        WorkKind::Start => START,
        WorkKind::Step => "mark of a step, in-process",
        WorkKind::Fork => FORK,
        WorkKind::Garbage => "garbage of collections, in-process",
        WorkKind::Turn => "turn of a loop, in-process",
        WorkKind::Collection | WorkKind::Calls => return None,
    })
}

fn add(sum: &mut WorkCost, more: WorkCost) {
    add_to(&mut sum.count, more.count);
    add_to(&mut sum.ns, more.ns);
}
