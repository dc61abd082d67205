//! What to do next: rules from evidence to advice.
//!
//! Owns when an advice is given and how much it can save; its text is in `advice/texts.rs`. The
//! saving is derived from this recording and is no promise: gctrace has not seen the program with
//! the change. Without GPU times it is an upper bound, with them the prediction of the replay.

mod places;
mod predicted;
mod texts;

use crate::gpu_cost::GpuCost;
use crate::report::Advice;
use crate::report::GrowthReport;
use crate::report::Level;
use crate::report::PauseTotal;
use crate::report::ProcessReport;
use crate::report::Report;

/// A cause is worth an action from this share of all pause time on.
const WORTH_RATIO: f64 = 0.2;
/// Off CPU for this share of the pauses: the machine has too few CPUs.
const PREEMPTED_RATIO: f64 = 0.2;
/// Raising threshold 0 tenfold makes collections of younger generations at most ten times less
/// frequent.
const RARER_SAVES: f64 = 0.9;

/// All advice for a report, in the order to try it.
pub(crate) fn advice(report: &Report, cost: Option<&GpuCost>) -> Vec<Advice> {
    let Some(most) = report.processes.first() else {
        return vec![match report.verdict.level {
            Level::Unknown => texts::record_collections(),
            _ => texts::no_collection(report),
        }];
    };
    let mut list = match report.verdict.level {
        Level::None | Level::Negligible => vec![match cost {
            Some(cost) => predicted::leave(texts::leave(report), cost),
            None => texts::leave(report),
        }],
        _ => match cost {
            Some(cost) => predicted::refine(worthwhile(report, most), report, cost),
            None => worthwhile(report, most),
        },
    };
    if report.totals.pauses.uncollectable > 0 {
        list.push(texts::uncollectable(report));
    }
    list
}

fn worthwhile(report: &Report, most: &ProcessReport) -> Vec<Advice> {
    let facts = AdviceInputs::new(report);
    let mut list = Vec::new();
    if facts.worth(facts.shutdown) {
        list.push(texts::shutdown(&facts));
    }
    if facts.worth(facts.manual) {
        list.push(texts::explicit_calls(report, &facts));
    }
    if facts.worth(facts.automatic_full) {
        list.push(texts::freeze(report, most, &facts));
    }
    if facts.worth(facts.automatic_partial) {
        list.push(texts::raise_threshold(report, most, &facts));
    }
    if let Some(cpu) = &report.totals.pauses.cpu
        && cpu.off_cpu_ratio >= PREEMPTED_RATIO
    {
        list.push(texts::preempted(cpu));
    }
    if let Some(counters) = &report.counters
        && facts.worth(counters.major_fault_pauses)
    {
        list.push(texts::swapped_out(report, counters, &facts));
    }
    list.sort_by_key(|advice| {
        let doubtful = advice.id == "freeze" && most.growth.as_ref().is_some_and(still_growing);
        (doubtful, std::cmp::Reverse(advice.saves_at_most_ns))
    });
    // Saves the most but changes the program the most, so it comes last.
    if facts.worth(facts.automatic()) {
        list.push(predicted::plan(texts::planned(most, &facts), report));
    }
    if list.is_empty() || facts.worth(facts.unknown) {
        list.push(texts::unknown_reason(report, &facts));
    }
    list
}

/// Whether the heap grew by half or more in the second half of the run. Then many of the objects
/// that full collections traverse are younger than any freeze after setup.
pub(crate) fn still_growing(growth: &GrowthReport) -> bool {
    /// Chosen so that the growth of a setup phase or of one epoch does not count.
    const BY: f64 = 1.5;
    let middle = growth.at(0.5).objects;
    crate::accumulate::tally::ratio(growth.last.objects, middle).is_some_and(|ratio| ratio >= BY)
}

/// Where the pause time went.
pub(crate) struct AdviceInputs {
    pub(crate) all_ns: u64,
    pub(crate) automatic_full: PauseTotal,
    pub(crate) automatic_partial: PauseTotal,
    pub(crate) manual: PauseTotal,
    pub(crate) shutdown: PauseTotal,
    pub(crate) unknown: PauseTotal,
}

impl AdviceInputs {
    fn new(report: &Report) -> Self {
        let of = |name: &str| {
            let group = report.by_reason.iter().find(|group| group.name == name);
            group.map_or(PauseTotal::default(), |group| PauseTotal {
                count: group.pauses.count,
                time_ns: group.pauses.time_ns,
            })
        };
        let automatic = of("automatic");
        let full = report.freed_nothing.of_automatic_full;
        Self {
            all_ns: report.totals.pauses.time_ns,
            automatic_full: full,
            automatic_partial: PauseTotal {
                count: automatic.count.saturating_sub(full.count),
                time_ns: automatic.time_ns.saturating_sub(full.time_ns),
            },
            manual: of("manual"),
            shutdown: of("shutdown"),
            unknown: of("unknown"),
        }
    }

    pub(crate) fn automatic(&self) -> PauseTotal {
        let mut sum = self.automatic_full;
        sum.add_all(&self.automatic_partial);
        sum
    }

    pub(crate) fn share(&self, effort: PauseTotal) -> f64 {
        crate::accumulate::tally::ratio(effort.time_ns, self.all_ns).unwrap_or(0.0)
    }

    fn worth(&self, effort: PauseTotal) -> bool {
        effort.count > 0 && self.share(effort) >= WORTH_RATIO
    }

    /// Upper bound of the saving if collections of younger generations are ten times less frequent.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a bound needs no more than 52 bits; casts of floats saturate"
    )]
    pub(crate) fn rarer_saves_ns(&self) -> u64 {
        (self.automatic_partial.time_ns as f64 * RARER_SAVES) as u64
    }
}
