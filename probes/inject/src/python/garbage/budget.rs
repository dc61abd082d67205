//! Decides which collections are examined: one in k, and each of the oldest generation.
//!
//! All of a collection is examined or nothing, so that the records are a fair sample by collection. k follows from the
//! cost of examining so far, as a share of the process's CPU time. The distance to the next one is random, k on
//! average: in a program that repeats itself, every k-th would be the same again and again.

use crate::python::next_random;

/// Largest k: of very frequent collections some are still seen.
const RAREST: u32 = 1 << 10;

/// Cost so far, and the rate that follows from it.
#[derive(Clone, Copy, Debug)]
pub(in crate::python) struct Budget {
    /// Share of CPU time, in millionths.
    ppm: u32,
    /// Time beside it, in ns.
    prepaid_ns: u64,
    spent_ns: u64,
    /// The allowed spending at the CPU time last read.
    allowed_ns: u64,
    /// k.
    every: u32,
    /// Collections before the next one.
    skipped: u32,
    random: u32,
}

impl Budget {
    pub(in crate::python) fn new(ppm: u32, prepaid_ns: u64) -> Self {
        Self {
            ppm,
            prepaid_ns,
            spent_ns: 0,
            allowed_ns: prepaid_ns,
            every: 1,
            skipped: 0,
            // Any number but 0.
            random: 1,
        }
    }

    /// Whether to examine the collection that starts.
    pub(in crate::python) fn is_due(&mut self, is_oldest: bool) -> bool {
        if self.skipped > 0 && !is_oldest {
            self.skipped -= 1;
            return false;
        }
        if self.skipped == 0 {
            self.random = next_random(self.random);
            self.skipped = self.random % (2 * self.every - 1);
        }
        true
    }

    /// Whether something that takes that long is within the budget, or too short to be noticed.
    pub(in crate::python) fn affords(&mut self, ns: u64, cpu_ns: impl FnOnce() -> u64) -> bool {
        /// A hundredth of a second in a pause of many times that.
        const SHORT_NS: u64 = 10_000_000;
        if ns > SHORT_NS && self.spent_ns + ns > self.allowed_ns {
            self.allow(cpu_ns());
        }
        ns <= SHORT_NS || self.spent_ns + ns <= self.allowed_ns
    }

    fn allow(&mut self, cpu_ns: u64) {
        let share = u128::from(cpu_ns) * u128::from(self.ppm) / 1_000_000;
        self.allowed_ns = gctrace_units::sum([self.prepaid_ns, gctrace_units::u64_or_most(share)]);
    }

    /// A collection was examined. `cpu_ns`: the CPU time of the process, read only if it matters.
    pub(in crate::python) fn spend(&mut self, ns: u64, cpu_ns: impl FnOnce() -> u64) {
        self.spent_ns += ns;
        if self.spent_ns > self.allowed_ns / 2 || self.every > 1 {
            self.allow(cpu_ns());
        }
        if self.spent_ns > self.allowed_ns {
            self.every = (self.every * 2).min(RAREST);
        } else if self.spent_ns <= self.allowed_ns / 2 {
            self.every = (self.every / 2).max(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Collections of 100 us each, `cost_ns` to examine; returns the share of time spent on that,
    /// and the number examined.
    fn run(ppm: u32, cost_ns: u64, collections: u32, oldest: u32) -> (f64, u32) {
        let (mut budget, mut cpu_ns, mut spent, mut examined) = (Budget::new(ppm, 0), 0, 0, 0);
        for number in 1..=collections {
            cpu_ns += 100_000;
            if budget.is_due(number % oldest == 0) {
                cpu_ns += cost_ns;
                spent += cost_ns;
                examined += 1;
                budget.spend(cost_ns, || cpu_ns);
            }
        }
        (spent as f64 / cpu_ns as f64, examined)
    }

    #[test]
    fn everything_is_examined_while_that_is_cheap() {
        assert_eq!(run(10_000, 300, 10_000, u32::MAX).1, 10_000);
    }

    #[test]
    fn the_budget_is_kept_and_used() {
        for cost_ns in [2_000, 20_000, 100_000] {
            let (share, examined) = run(10_000, cost_ns, 100_000, u32::MAX);
            assert!((0.004..0.0105).contains(&share), "{cost_ns}: {share}");
            assert!(examined > 100, "{cost_ns}: {examined}");
        }
    }

    #[test]
    fn the_oldest_generation_is_always_examined() {
        let (share, examined) = run(1_000, 50_000, 100_000, 100);
        assert!(examined >= 1_000, "{examined}");
        assert!(share < 0.008, "{share}");
    }

    #[test]
    fn what_takes_long_must_be_affordable() {
        let mut budget = Budget::new(10_000, 0);
        assert!(budget.affords(9_000_000, || unreachable!("not asked for")));
        assert!(!budget.affords(50_000_000, || 1_000_000_000));
        assert!(budget.affords(50_000_000, || 6_000_000_000));
    }

    #[test]
    fn a_budget_of_nothing_leaves_a_sample() {
        let (_, examined) = run(0, 1_000, 100_000, u32::MAX);
        assert!((90..250).contains(&examined), "{examined}");
    }
}
