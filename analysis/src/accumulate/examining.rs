//! Pauses without the time that gctrace spent in them on examining their garbage.
//!
//! Owns the difference between the recorded pause and the pause of the program alone: what
//! examining takes is within the budget of `--garbage-budget`, but would be a large part of short
//! pauses.

use gctrace_event::{Garbage, Pause};
use std::collections::HashMap;

/// Threads kept: one has at most one pause at a time, and garbage comes before its pause.
const THREADS: usize = 4_096;

/// The latest examined garbage of each thread, by process and thread id: its time and its cost.
#[derive(Debug, Default)]
pub(crate) struct ExaminingCosts(HashMap<(u32, u32), (u64, u64)>);

impl ExaminingCosts {
    /// Notes what examining cost.
    pub(crate) fn add(&mut self, garbage: &Garbage) {
        let Some(cost_ns) = garbage.cost_ns else {
            return;
        };
        if self.0.len() >= THREADS {
            self.0.clear();
        }
        let thread = (garbage.pid, garbage.tid);
        self.0.insert(thread, (garbage.at_ns, cost_ns));
    }

    /// The pause without the time of examining, by which it ends earlier.
    pub(crate) fn without(&mut self, pause: &mut Pause) {
        let thread = (pause.pid, pause.tid);
        let Some((at_ns, cost_ns)) = self.0.get(&thread).copied() else {
            return;
        };
        if (pause.start_ns..=pause.end_ns).contains(&at_ns) {
            self.0.remove(&thread);
            let cost_ns = cost_ns.min(pause.duration_ns());
            pause.end_ns -= cost_ns;
            pause.cpu_ns = pause.cpu_ns.map(|cpu_ns| cpu_ns.saturating_sub(cost_ns));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_as_long_as_without_examining() {
        let mut costs = ExaminingCosts::default();
        let garbage =
            |at_ns, cost_ns| Garbage { pid: 1, tid: 2, at_ns, cost_ns, ..Garbage::default() };
        let after = |costs: &mut ExaminingCosts, start_ns| {
            let mut pause = Pause {
                pid: 1,
                tid: 2,
                start_ns,
                end_ns: start_ns + 100,
                cpu_ns: Some(90),
                ..Pause::default()
            };
            costs.without(&mut pause);
            (pause.duration_ns(), pause.cpu_ns)
        };
        costs.add(&garbage(1_050, Some(30)));
        assert_eq!(after(&mut costs, 2_000), (100, Some(90)), "another pause");
        assert_eq!(after(&mut costs, 1_000), (70, Some(60)));
        assert_eq!(after(&mut costs, 1_000), (100, Some(90)), "once");
        costs.add(&garbage(3_050, Some(1_000)));
        assert_eq!(after(&mut costs, 3_000), (0, Some(0)));
        costs.add(&garbage(4_050, None));
        assert_eq!(after(&mut costs, 4_000), (100, Some(90)), "unknown");
    }
}
