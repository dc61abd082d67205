//! Running sums over a set of pauses.

use super::pause_sums::PauseSums;
use crate::distribution::Distribution;
use crate::report::{Basis, CpuTime, PauseTotal, PausesReport, StopTheWorld};
use crate::time::add_to;
use gctrace_event::Pause;
use gctrace_stats::ratio;

/// Accumulates a [`PausesReport`], one pause at a time; with three digits, unless made otherwise.
#[derive(Debug, Clone, Default)]
pub(crate) struct PauseTally {
    times: Distribution,
    pub(crate) sums: PauseSums,
    freed_nothing: PauseTotal,
    /// Pauses with known CPU time, and their length.
    timed: PauseTotal,
    on_cpu_ns: u64,
    /// Collections with known stop-the-world time, and that time.
    stopping: PauseTotal,
    stopped_ns: u64,
}

impl PauseTally {
    /// `digits`: see [`Distribution::new`].
    pub(crate) fn new(digits: u8) -> Self {
        Self { times: Distribution::new(digits), ..Self::default() }
    }

    pub(crate) fn add(&mut self, pause: &Pause) {
        let time_ns = pause.duration_ns();
        self.times.add(time_ns);
        self.sums.add(pause);
        if freed_nothing(pause) {
            self.freed_nothing.add(time_ns);
        }
        if let Some(cpu_ns) = pause.cpu_ns {
            self.timed.add(time_ns);
            add_to(&mut self.on_cpu_ns, cpu_ns.min(time_ns));
        }
        if let Some(stopped_ns) = pause.stop_the_world_ns {
            self.stopping.add(time_ns);
            add_to(&mut self.stopped_ns, stopped_ns.min(time_ns));
        }
    }

    /// Adds other pauses, of a tally with the same digits.
    pub(crate) fn merge(&mut self, other: Self) {
        self.times.merge(other.times);
        self.sums.merge(&other.sums);
        self.freed_nothing.add_all(&other.freed_nothing);
        self.timed.add_all(&other.timed);
        add_to(&mut self.on_cpu_ns, other.on_cpu_ns);
        self.stopping.add_all(&other.stopping);
        add_to(&mut self.stopped_ns, other.stopped_ns);
    }

    pub(crate) fn count(&self) -> u64 {
        self.times.count()
    }

    pub(crate) fn time_ns(&self) -> u64 {
        self.times.sum()
    }

    pub(crate) fn max_ns(&self) -> Option<u64> {
        self.times.max()
    }

    /// Stop-the-world time in ns, and whether it is known for every collection.
    pub(crate) fn stopped_ns(&self) -> (u64, bool) {
        (self.stopped_ns, self.stopping.count == self.count())
    }

    pub(crate) fn report(&self) -> PausesReport {
        let [p50, p90, p99] = match self.times.percentiles([50.0, 90.0, 99.0]) {
            Some(percentiles) => percentiles.map(Some),
            None => [None; 3],
        };
        PausesReport {
            basis: Basis::Measured,
            count: self.count(),
            time_ns: self.time_ns(),
            p50_ns: p50,
            p90_ns: p90,
            p99_ns: p99,
            max_ns: self.max_ns(),
            percentile_error_ratio: self.times.error_ratio(),
            collected: self.sums.collected,
            uncollectable: self.sums.uncollectable,
            freed_nothing: self.freed_nothing,
            outcome_unknown: self.count() - self.sums.with_collected,
            cpu: (self.timed.count > 0).then(|| CpuTime {
                pauses: self.timed.count,
                pause_ns: self.timed.time_ns,
                on_cpu_ns: self.on_cpu_ns,
                off_cpu_ratio: 1.0 - ratio(self.on_cpu_ns, self.timed.time_ns).unwrap_or(1.0),
            }),
            stop_the_world: (self.stopping.count > 0).then_some(StopTheWorld {
                runs: self.stopping.count,
                run_ns: self.stopping.time_ns,
                stopped_ns: self.stopped_ns,
            }),
        }
    }
}

/// Whether a collection is known to have found no garbage.
pub(crate) fn freed_nothing(pause: &Pause) -> bool {
    pause.collected == Some(0) && pause.uncollectable.unwrap_or(0) == 0 && !pause.unfinished
}
