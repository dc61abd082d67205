//! When the next window may open, and for how long. Pure.

use std::time::Duration;

/// The shortest window planned, in hits: fewer are not informative.
pub(crate) const FEWEST_HITS: u64 = 300;
/// The longest: the error falls with the number of windows, not with their length.
pub(crate) const MAX_HITS: u64 = 6000;
/// Maximum length of windows, as a multiple of the normal one, if normal windows give no estimate.
const MAX_LENGTH_FACTOR: u32 = 8;
/// A window ends after this in any case: a program that hardly allocates costs nothing by then.
pub(crate) const LONGEST: Duration = Duration::from_millis(40);
/// Least undisturbed CPU time between two windows.
const MIN_GAP_NS: u64 = 150_000_000;
/// How fast the expected cost of a window follows a cheaper one.
const LEARNING: f64 = 0.3;

/// Keeps the cost of windows within a share of the CPU time.
#[derive(Clone, Debug)]
pub(crate) struct WindowSchedule {
    budget: f64,
    spent_ns: f64,
    /// Expected cost of the next window, in nanoseconds of CPU time.
    expected_ns: f64,
    opened_at_ns: u64,
    length_factor: u32,
}

impl WindowSchedule {
    /// `budget`: share of the CPU time.
    pub(crate) fn new(budget: f64) -> Self {
        Self {
            budget,
            spent_ns: 0.0,
            // 2,000 hits at a microsecond
            expected_ns: 2e6,
            opened_at_ns: 0,
            length_factor: 1,
        }
    }

    /// Whether a window may open when the process has used `cpu_ns` in total: the expected cost
    /// afterwards is still within the budget.
    pub(crate) fn may_open(&self, cpu_ns: u64) -> bool {
        gctrace_units::duration_ns(self.opened_at_ns, cpu_ns) >= MIN_GAP_NS
            && self.spent_ns + self.expected_ns <= self.budget * cpu_ns as f64
    }

    /// Makes windows longer and rarer: for a program with steps longer than a window.
    pub(crate) fn lengthen(&mut self) {
        self.length_factor = (2 * self.length_factor).min(MAX_LENGTH_FACTOR);
    }

    /// Length of windows as a multiple of the normal one.
    pub(crate) fn length_factor(&self) -> u32 {
        self.length_factor
    }

    /// Number of hits that end the window that opens now.
    pub(crate) fn hits(&self) -> u64 {
        // A window that costs more than a tenth of a second's budget is shortened.
        let affordable = self.budget * 1e8 / self.expected_ns.max(1.0);
        let length_factor = f64::from(self.length_factor);
        let hits = MAX_HITS as f64 * (affordable * length_factor).max(0.2) * length_factor;
        (hits as u64).clamp(FEWEST_HITS, MAX_HITS * u64::from(self.length_factor))
    }

    /// Accounts a closed window: its cost, and the CPU time that the process had used in total.
    pub(crate) fn closed(&mut self, cost_ns: u64, cpu_ns: u64) {
        let cost = cost_ns as f64;
        self.spent_ns += cost;
        // An expensive window raises the expectation at once, a cheap one lowers it gradually.
        self.expected_ns = if cost > self.expected_ns {
            cost
        } else {
            self.expected_ns + LEARNING * (cost - self.expected_ns)
        };
        self.opened_at_ns = cpu_ns;
    }

    /// CPU time that windows have cost so far, in nanoseconds.
    pub(crate) fn spent_ns(&self) -> u64 {
        self.spent_ns as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever windows cost, and however that changes, the total exceeds the budget by no more
        /// than the largest excess of a window over its expected cost.
        #[test]
        fn the_budget_is_kept(budget in 0.001..0.1f64, costs in proptest::collection::vec(1_000..20_000_000u64, 1..200)) {
            let mut schedule = WindowSchedule::new(budget);
            let (mut cpu, mut spent) = (0u64, 0u64);
            for cost in costs {
                while !schedule.may_open(cpu) {
                    cpu += 10_000_000;
                }
                prop_assert!(spent as f64 <= budget * cpu as f64);
                prop_assert!((FEWEST_HITS..=MAX_HITS).contains(&schedule.hits()));
                cpu += cost;
                spent += cost;
                schedule.closed(cost, cpu);
                prop_assert_eq!(schedule.spent_ns(), spent);
            }
        }
    }

    #[test]
    fn an_expensive_window_delays_the_next() {
        let (mut cheap, mut dear) = (WindowSchedule::new(0.01), WindowSchedule::new(0.01));
        cheap.closed(1_000_000, 500_000_000);
        dear.closed(9_000_000, 500_000_000);
        let wait =
            |schedule: &WindowSchedule| (500..5000u64).find(|ms| schedule.may_open(ms * 1_000_000));
        assert!(wait(&dear) > wait(&cheap));
    }
}
