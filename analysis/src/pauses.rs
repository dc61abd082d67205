//! Counts, times and outcomes of pauses, by reason and generation.

use crate::distribution::Distribution;
use crate::figure::{Basis, PauseTotal};
use crate::time::add_to;
use gctrace_event::{GcReason, Pause};
use gctrace_stats::ratio;
use serde::Serialize;

/// Statistics of a set of pauses. A pause is the time of one collection.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PausesReport {
    /// Always measured, from the start and the end of each collection.
    pub basis: Basis,
    /// Number of pauses, one for each collection.
    pub count: u64,
    /// Sum of their lengths, in ns; overlapping pauses count separately.
    pub time_ns: u64,
    /// Median length in ns (nearest rank); `null` without pauses.
    pub p50_ns: Option<u64>,
    /// 90th percentile of the length in ns (nearest rank); `null` without pauses.
    pub p90_ns: Option<u64>,
    /// 99th percentile of the length in ns (nearest rank); `null` without pauses.
    pub p99_ns: Option<u64>,
    /// Longest pause, in ns; `null` without pauses.
    pub max_ns: Option<u64>,
    /// Largest relative error of the percentiles: 0 up to 4,096 pauses, otherwise 0.001, for a
    /// single process 0.01. All other figures are exact.
    pub percentile_error_ratio: f64,
    /// Objects found unreachable and freed, over the pauses with a known result.
    pub collected: u64,
    /// Unreachable objects that could not be freed, over the pauses with a known result.
    pub uncollectable: u64,
    /// Pauses that found no unreachable object.
    pub freed_nothing: PauseTotal,
    /// Number of pauses with unknown `collected` and `uncollectable`.
    pub outcome_unknown: u64,
    /// CPU time of the pauses; `null` if it was not recorded.
    pub cpu: Option<CpuTime>,
    /// Stop-the-world time of free-threaded builds; `null` in other builds or if it was not
    /// recorded.
    pub stop_the_world: Option<StopTheWorld>,
}

/// CPU time of the collecting threads during their pauses.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CpuTime {
    /// Number of pauses with a known CPU time.
    pub pauses: u64,
    /// Sum of the lengths of these pauses, in ns.
    pub pause_ns: u64,
    /// Time of these pauses with the collecting thread on a CPU, in ns.
    pub on_cpu_ns: u64,
    /// Share of these pauses with it off the CPU, 0 to 1: preempted, or waiting for memory to be paged in, or in
    /// finalizers of the program.
    pub off_cpu_ratio: f64,
}

/// Free-threaded builds: the collector stops the other threads for a part of each collection.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StopTheWorld {
    /// Number of collections with a known stop-the-world time.
    pub runs: u64,
    /// Sum of the lengths of these collections, in ns.
    pub run_ns: u64,
    /// Time in them with the other threads stopped, in ns.
    pub stopped_ns: u64,
}

/// Generations 0, 1 and 2, and a last entry for pauses of unknown generation.
pub const GENERATIONS: usize = 4;

/// Reasons in the order of [`reason_index`].
pub(crate) const REASONS: [GcReason; 4] =
    [GcReason::Automatic, GcReason::Manual, GcReason::Shutdown, GcReason::Unknown];

/// Index of a generation in arrays of [`GENERATIONS`].
pub(crate) fn generation_index(generation: u8) -> usize {
    usize::from(generation).min(GENERATIONS - 1)
}

/// The generation of a pause, `None` if unknown.
pub(crate) fn known_generation(pause: &Pause) -> Option<u8> {
    if pause.generation != Pause::UNKNOWN_GENERATION { Some(pause.generation) } else { None }
}

/// Index of a reason in [`REASONS`].
pub(crate) fn reason_index(reason: GcReason) -> usize {
    match reason {
        GcReason::Automatic => 0,
        GcReason::Manual => 1,
        GcReason::Shutdown => 2,
        GcReason::Unknown => 3,
    }
}

/// What some pauses freed, and the longest of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PauseOutcomes {
    /// Objects found unreachable and freed, over the pauses of `with_collected`.
    pub collected: u64,
    /// Unreachable objects that could not be freed, over the pauses with a known number.
    pub uncollectable: u64,
    /// Number of pauses with a known number of freed objects.
    pub with_collected: u64,
    /// Longest pause of any generation, in ns; 0 without pauses.
    pub longest_ns: u64,
}

/// Sums over some pauses.
#[derive(Clone, Debug, Default)]
pub(crate) struct PauseSums {
    /// By reason and generation.
    pub(crate) totals: [[PauseTotal; GENERATIONS]; REASONS.len()],
    pub(crate) outcomes: PauseOutcomes,
}

impl PauseOutcomes {
    fn add(&mut self, other: &Self) {
        add_to(&mut self.collected, other.collected);
        add_to(&mut self.uncollectable, other.uncollectable);
        add_to(&mut self.with_collected, other.with_collected);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }
}

impl PauseSums {
    pub(crate) fn add(&mut self, pause: &Pause) {
        let duration_ns = pause.duration_ns();
        let generation = generation_index(pause.generation);
        self.totals[reason_index(pause.reason)][generation].add(duration_ns);
        self.outcomes.add(&PauseOutcomes {
            collected: pause.collected.unwrap_or(0),
            uncollectable: pause.uncollectable.unwrap_or(0),
            with_collected: pause.collected.is_some().into(),
            longest_ns: duration_ns,
        });
    }

    /// Adds the sums of other pauses.
    pub(crate) fn merge(&mut self, other: &Self) {
        let totals = self.totals.iter_mut().flatten();
        for (total, other) in totals.zip(other.totals.iter().flatten()) {
            total.add_all(other);
        }
        self.outcomes.add(&other.outcomes);
    }

    pub(crate) fn by_generation(&self) -> [PauseTotal; GENERATIONS] {
        std::array::from_fn(|at| self.totals.iter().map(|reason| &reason[at]).collect())
    }

    /// In the order of [`REASONS`].
    pub(crate) fn by_reason(&self) -> [PauseTotal; REASONS.len()] {
        self.totals.map(|reason| reason.iter().collect())
    }
}

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
            collected: self.sums.outcomes.collected,
            uncollectable: self.sums.outcomes.uncollectable,
            freed_nothing: self.freed_nothing,
            outcome_unknown: self.count() - self.sums.outcomes.with_collected,
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
    pause.collected == Some(0) && matches!(pause.uncollectable, None | Some(0)) && !pause.unfinished
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_in_the_order_of_their_index() {
        for (index, reason) in REASONS.into_iter().enumerate() {
            assert_eq!(reason_index(reason), index);
        }
    }
}
