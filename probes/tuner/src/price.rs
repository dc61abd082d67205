//! Cost of a block of steps, with full collections charged by the collector's rule.
//!
//! A full collection is too rare for a block: charging it where it happens is wrong in sign and many times over.
//! Compared blocks run with the old generation suspended, and each is charged for its steps' contribution to full
//! collections.
//!
//! From 3.8 to 3.13, and from 3.14.5 on, a collection runs when the count of its generation exceeds the threshold, and
//! counts towards the next older one (`gc_collect_generations` in Modules/gcmodule.c, Python/gc.c). So one in `t1 + 2`
//! collections is of generation 1. A full collection follows the first collection of generation 1 with two properties:
//! `t2 + 1` of them came since the last full one, and their survivors are a quarter of the `L` objects that it left. On
//! average it follows after `max(t2 + 1, L / 4 s + 1/2)` of them, with `s` survivors of each. It traverses the `L`
//! objects and the survivors that are garbage by then; it frees this garbage.

use gctrace_stats::float;
use gctrace_units::{beyond, sum};
use std::array::from_fn;

/// By how much the rule's price of full collections may be off, as a share: in simulated programs without
/// noise it is by 0.1 at most.
pub(super) const COMPUTED_ERROR: f64 = 0.15;

/// Measurements by now. Sums are of one interpreter since any time before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Thread that makes the steps.
    pub tid: u32,
    /// CPU time of that thread since it began, in ns.
    pub cpu_ns: u64,
    /// CLOCK_MONOTONIC, in ns.
    pub wall_ns: u64,
    /// Collections by generation.
    pub collections: [u64; 3],
    /// CPU time of these, in ns.
    pub collecting_ns: [u64; 3],
    /// Objects that they freed.
    pub freed: u64,
    /// The longest young and full collection since figures were last read, in ns.
    pub longest_ns: [u64; 2],
    /// Objects in the youngest generation: `gc.get_count()[0]`.
    pub waiting: u64,
    /// Objects that the last full collection left: `long_lived_total`.
    pub old: u64,
    /// Survivors of collections of generation 1 since: `long_lived_pending`.
    pub pending: u64,
    /// The last full collection; `None`: none was seen.
    pub full: Option<MeasuredFull>,
}

/// A full collection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeasuredFull {
    /// CPU time of it, in ns.
    pub cpu_ns: u64,
    /// Objects that it left.
    pub left: u64,
    /// Objects that it freed.
    pub freed: u64,
    /// Objects that the one before had left.
    pub left_before: u64,
    /// Survivors of collections of generation 1 between both.
    pub pending: u64,
}

impl Figures {
    /// CPU time of collections, in ns.
    pub(super) fn all_collecting_ns(&self) -> u64 {
        self.collecting_ns.iter().sum()
    }

    /// CPU time of other work since, in ns.
    fn worked_ns_since(&self, begin: &Self) -> u64 {
        let collected_ns = beyond(self.all_collecting_ns(), begin.all_collecting_ns());
        beyond(beyond(self.cpu_ns, begin.cpu_ns), collected_ns)
    }
}

impl MeasuredFull {
    /// CPU time for an object, in ns.
    pub(super) fn ns_each(self) -> f64 {
        float(self.cpu_ns) / (float(self.left) + float(self.freed)).max(1.0)
    }

    /// Share of the survivors that were alive at the next full collection; 0 if they were too few to
    /// say: then heaps are taken for smaller than they are, and gains too.
    fn alive(self) -> f64 {
        let growth = float(self.left) - float(self.left_before);
        self.of_survivors(growth)
    }

    /// Whether it left nearly as many objects: larger heaps have another share of the caches.
    pub(super) fn is_near(self, objects: f64) -> bool {
        const LARGER: f64 = 1.5;
        let left = float(self.left);
        left > 0.0 && objects < LARGER * left && left < LARGER * objects
    }

    /// Share of the survivors that it freed: others have died without it.
    fn garbage(self) -> f64 {
        self.of_survivors(float(self.freed))
    }

    fn of_survivors(self, objects: f64) -> f64 {
        /// Fewer than a full collection of the smallest heaps would wait for.
        const FEWEST: u64 = 1_000;
        if self.pending < FEWEST {
            return 0.0;
        }
        (objects / float(self.pending)).clamp(0.0, 1.0)
    }
}

/// The third threshold while the old generation is suspended: never reached.
pub(super) const SUSPENDED: u32 = 1_000_000_000;

/// Thresholds, as `gc.set_threshold()` takes them.
pub type Thresholds = [u32; 3];

/// The old generation, as the price of full collections needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChargedOld {
    /// Objects that the next full collection traverses.
    pub objects: f64,
    /// `L` in the rule: as many, if full collections were as frequent as with own settings.
    pub quarter_of: f64,
    /// Full collections that the program itself asks for, per step: they leave fewer to the rule.
    pub asked: f64,
    /// CPU time for an object, in ns; 0 before a full collection was seen.
    pub ns_each: f64,
    /// Share of the survivors that is garbage by then.
    pub garbage: f64,
}

impl ChargedOld {
    /// The old generation as these figures show it.
    pub(crate) fn of(figures: &Figures, asked: f64) -> Self {
        let (alive, ns_each, garbage) = match figures.full {
            Some(full) => (full.alive(), full.ns_each(), full.garbage()),
            None => (0.0, 0.0, 0.0),
        };
        let objects = float(figures.old) + alive * float(figures.pending);
        Self {
            // With a quarter more that has come by then.
            objects: objects * (1.0 + alive / 4.0),
            quarter_of: objects,
            asked,
            ns_each,
            garbage,
        }
    }

    /// With the price of another full collection, in the program's own rhythm and with its freeing, if its heap was
    /// nearly as large.
    pub(super) fn priced_as(self, full: Option<MeasuredFull>) -> Self {
        match full {
            Some(full) if full.is_near(self.objects) => {
                let ns_each = float(full.cpu_ns) / float(full.left.max(1));
                Self { ns_each, garbage: 0.0, ..self }
            }
            _ => self,
        }
    }

    /// CPU time of a full collection without freeing, in ns.
    pub(crate) fn full_ns(&self) -> f64 {
        self.objects * self.ns_each
    }

    /// Full collections per step by the rule, of so many collections and survivors per step.
    fn rate(&self, young: f64, survivors: f64, thresholds: Thresholds) -> f64 {
        let middle = middle_of(young, thresholds);
        let by_count = f64::from(thresholds[2]) + 1.0;
        let by_quarter = self.quarter_of / 4.0 * middle / survivors + 0.5;
        let steps = by_count.max(by_quarter) / middle + 1.0 / young;
        // Infinitely many, or of no number, where nothing is collected or survives.
        let rate = if steps.is_finite() { 1.0 / steps } else { 0.0 };
        (rate - self.asked).max(0.0)
    }
}

/// Collections of generation 1 of so many of all generations.
fn middle_of(young: f64, [_, second, _]: Thresholds) -> f64 {
    young / (f64::from(second) + 2.0)
}

/// Cost of one block per step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BlockCost {
    /// CPU time of a step with its share of full collections, in ns.
    pub cpu_ns: f64,
    /// Wall time likewise.
    pub wall_ns: f64,
    /// CPU time of collections likewise.
    pub collecting_ns: f64,
    /// The share of full collections in all of these: computed.
    pub full_ns: f64,
    /// The part of `full_ns` for freeing.
    pub garbage_ns: f64,
    /// Net new containers.
    pub allocations: f64,
    /// Collections of generation 1.
    pub middle: f64,
    /// Full collections by the rule.
    pub fulls_by_rule: f64,
    /// Full collections that ran in the block.
    pub fulls: u64,
    /// CPU time of these, in ns: of the whole block.
    pub fulls_ns: f64,
}

/// The steps of a block, by time: milliseconds of work.
pub(crate) fn worked_ms(begin: &Figures, end: &Figures) -> f64 {
    float(end.worked_ns_since(begin)) / 1e6
}

/// The cost of the block between these figures, of `steps` steps with these thresholds. `closed`: figures after the
/// collection that ends the block, since its time is the block's; without one the same as `end`. `old`: the old
/// generation, for the price.
pub(crate) fn block_cost(
    begin: &Figures,
    end: &Figures,
    closed: &Figures,
    steps: f64,
    thresholds: Thresholds,
    old: &ChargedOld,
) -> BlockCost {
    let steps = steps.max(1.0);
    let [first, ..] = thresholds;
    let ran: [u64; 3] = from_fn(|of| beyond(end.collections[of], begin.collections[of]));
    // With the fraction of the next, incomplete one.
    let part = (float(end.waiting) - float(begin.waiting)) / f64::from(first.max(1));
    let young = ((float(sum(ran)) + part) / steps).max(0.0);
    let [young_ns, middle_ns, full_ns] =
        from_fn(|of| float(beyond(closed.collecting_ns[of], begin.collecting_ns[of])));
    let fulls = beyond(closed.collections[2], begin.collections[2]);
    let survived = if fulls == 0 { beyond(closed.pending, begin.pending) } else { closed.pending };
    let fulls_by_rule = old.rate(young, float(survived) / steps, thresholds);
    let garbage_ns =
        if fulls_by_rule > 0.0 { float(survived) / steps * old.garbage * old.ns_each } else { 0.0 };
    let charge = fulls_by_rule * old.full_ns() + garbage_ns;
    let without_full =
        |from: u64, to: u64| (float(beyond(to, from)) - full_ns).max(0.0) / steps + charge;
    BlockCost {
        cpu_ns: without_full(begin.cpu_ns, closed.cpu_ns),
        wall_ns: without_full(begin.wall_ns, closed.wall_ns),
        collecting_ns: (young_ns + middle_ns) / steps + charge,
        full_ns: charge,
        garbage_ns,
        allocations: young * f64::from(first),
        middle: middle_of(young, thresholds),
        fulls_by_rule,
        fulls,
        fulls_ns: full_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: Figures = Figures {
        tid: 1,
        cpu_ns: 1_000,
        wall_ns: 2_000,
        collections: [100, 10, 1],
        collecting_ns: [500, 400, 300],
        freed: 0,
        longest_ns: [0; 2],
        waiting: 0,
        old: 100_000,
        pending: 50,
        full: Some(MeasuredFull {
            cpu_ns: 10_000_000,
            left: 90_000,
            freed: 10_000,
            left_before: 80_000,
            pending: 20_000,
        }),
    };

    #[test]
    fn the_smaller_of_both_rates_is_charged() {
        let old = ChargedOld::of(&BEGIN, 0.0);
        // Half of the survivors before were alive: 25 of 50, and an eighth comes until the next one.
        assert_eq!((old.objects, old.quarter_of), (100_025.0 * 1.125, 100_025.0));
        assert_eq!(old.ns_each, 100.0);
        let end = Figures { collections: [110, 11, 1], waiting: 0, ..BEGIN };
        let cost = |pending| {
            let closed = Figures { pending: BEGIN.pending + pending, cpu_ns: 11_000, ..end };
            block_cost(&BEGIN, &end, &closed, 10.0, [700, 10, 10], &old)
        };
        // 1.1 collections, one of twelve of generation 1; a full one follows eleven of those. Half of 500 survivors a
        // step are garbage by then.
        let by_count = 1.1 / (11.0 * 12.0 + 1.0) * old.full_ns() + 250.0 * 100.0;
        assert!((cost(5_000).full_ns - by_count).abs() < 1e-6, "{:?}", cost(5_000));
        assert_eq!(cost(5_000).garbage_ns, 25_000.0);
        // 10 survivors per step are a quarter of the heap after 2,500; a collection of generation 1 takes 10.9 steps.
        let steps = 100_025.0 / 4.0 / 10.0 + 0.5 * 12.0 / 1.1 + 1.0 / 1.1;
        let by_quarter = old.full_ns() / steps + 5.0 * 100.0;
        assert!((cost(100).full_ns - by_quarter).abs() < 1e-6, "{:?}", cost(100));
        assert!((cost(100).cpu_ns - by_quarter - 1_000.0).abs() < 1e-6);
        let asked = ChargedOld { asked: 1.0, ..old };
        let closed = Figures { pending: 5_050, ..end };
        let cost = block_cost(&BEGIN, &end, &closed, 10.0, [700, 10, 10], &asked);
        assert_eq!(cost.full_ns, 0.0);
    }

    #[test]
    fn a_full_collection_in_a_block_is_not_its_cost() {
        let old = ChargedOld::of(&Figures::default(), 0.0);
        assert_eq!(old.full_ns(), 0.0);
        let end = Figures {
            cpu_ns: 901_000,
            wall_ns: 902_000,
            collections: [100, 10, 2],
            collecting_ns: [500, 400, 800_300],
            waiting: 350,
            ..BEGIN
        };
        let cost = block_cost(&BEGIN, &end, &end, 100.0, [700, 10, 10], &old);
        assert_eq!((cost.cpu_ns, cost.fulls), (1_000.0, 1));
        assert_eq!((cost.allocations, cost.collecting_ns), (10.5, 0.0));
    }
}
