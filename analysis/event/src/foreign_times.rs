//! Pauses without foreign work in them.
//!
//! Owns the difference between a recorded pause and the collector's own work in it. Examining its garbage is
//! gctrace's: within the budget of `--garbage-budget`, but a large part of short pauses. Finalizers and
//! callbacks are the program's: they take that time whenever and however rarely they are called.

use crate::{Called, CalledKind, Garbage, Pause, Record};
use std::collections::HashMap;

/// Threads kept: one has at most one pause at a time, and garbage comes before its pause.
const THREADS: usize = 4_096;

/// Functions of one collection that are kept: as many as the library tells apart.
const CALLED: usize = 8;

/// By process and thread id, the latest that comes before its pause: takes the records of a trace in
/// order.
#[derive(Debug, Default)]
pub struct ForeignTimes {
    /// Time and cost of examined garbage.
    examined: HashMap<(u32, u32), (u64, u64)>,
    /// The code that collections called.
    called: HashMap<(u32, u32), Vec<Called>>,
}

impl ForeignTimes {
    /// Notes data on a later pause in a record; most records have none.
    pub fn note(&mut self, record: &Record) {
        match record {
            Record::Garbage(garbage) => self.add(garbage),
            Record::Called(called) => self.add_called(called),
            _ => {}
        }
    }

    /// Notes the cost of examining.
    pub fn add(&mut self, garbage: &Garbage) {
        let Some(cost_ns) = garbage.cost_ns else {
            return;
        };
        if self.examined.len() >= THREADS {
            self.examined.clear();
        }
        let thread = (garbage.pid, garbage.tid);
        self.examined.insert(thread, (garbage.at_ns, cost_ns));
    }

    /// Notes the calls of a collection.
    pub fn add_called(&mut self, called: &Called) {
        if self.called.len() >= THREADS {
            self.called.clear();
        }
        let of_thread = self.called.entry((called.pid, called.tid)).or_default();
        // More than are written by one collection are of none.
        if of_thread.len() >= 2 * CALLED {
            of_thread.clear();
        }
        of_thread.push(*called);
    }

    /// The pause without the time of examining (it ends earlier by that time) and without the code that it called:
    /// callbacks precede the collection, finalizers are in it. Returns the latter time, in ns.
    pub fn without(&mut self, pause: &mut Pause) -> u64 {
        let thread = (pause.pid, pause.tid);
        let span = pause.start_ns..=pause.end_ns;
        if let Some((at_ns, cost_ns)) = self.examined.get(&thread).copied()
            && span.contains(&at_ns)
        {
            self.examined.remove(&thread);
            let cost_ns = cost_ns.min(pause.duration_ns());
            pause.end_ns -= cost_ns;
            pause.cpu_ns = pause.cpu_ns.map(|cpu_ns| gctrace_units::beyond(cpu_ns, cost_ns));
        }
        let whole_ns = pause.duration_ns();
        let called = self.called.remove(&thread).unwrap_or_default();
        for called in called.iter().filter(|called| span.contains(&called.at_ns)) {
            let time_ns = called.time_ns.min(pause.duration_ns());
            match called.kind {
                CalledKind::Callback => pause.start_ns += time_ns,
                CalledKind::Finalizer => pause.end_ns -= time_ns,
            }
        }
        let called_ns = whole_ns - pause.duration_ns();
        if called_ns > 0 {
            // How much of it was on the CPU is unknown: the rest was for at most as long as it lasts.
            pause.cpu_ns = pause.cpu_ns.map(|cpu_ns| cpu_ns.min(pause.duration_ns()));
        }
        called_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_as_long_as_without_examining() {
        let mut costs = ForeignTimes::default();
        let garbage =
            |at_ns, cost_ns| Garbage { pid: 1, tid: 2, at_ns, cost_ns, ..Garbage::default() };
        let after = |costs: &mut ForeignTimes, start_ns| {
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

    #[test]
    fn a_pause_is_without_the_functions_that_it_called() {
        let mut times = ForeignTimes::default();
        let called = |kind, at_ns, time_ns| Called {
            pid: 1,
            tid: 2,
            at_ns,
            kind,
            time_ns,
            ..Called::default()
        };
        times.add_called(&called(CalledKind::Callback, 900, 50));
        times.add_called(&called(CalledKind::Callback, 1_001, 10));
        times.add_called(&called(CalledKind::Finalizer, 1_040, 25));
        times.add_called(&called(CalledKind::Finalizer, 1_050, 5));
        let whole = Pause {
            pid: 1,
            tid: 2,
            start_ns: 1_000,
            end_ns: 1_100,
            cpu_ns: Some(90),
            ..Pause::default()
        };
        let mut pause = whole.clone();
        assert_eq!(times.without(&mut pause), 40);
        assert_eq!((pause.start_ns, pause.end_ns, pause.cpu_ns), (1_010, 1_070, Some(60)));
        let mut again = whole.clone();
        assert_eq!(times.without(&mut again), 0, "once");
        assert_eq!(again, whole);
        times.add_called(&called(CalledKind::Finalizer, 1_000, u64::MAX));
        assert_eq!(times.without(&mut again), 100);
        assert_eq!((again.start_ns, again.end_ns), (1_000, 1_000));
    }
}
