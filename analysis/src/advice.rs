//! What to do next: rules from evidence to advice.
//!
//! Owns when an advice is given and how much it can save. The saving is derived from this recording
//! and is no promise: gctrace has not seen the program with the change. Without GPU times it is an
//! upper bound, with them the prediction of the replay.

use crate::report::Advice;
use crate::report::AdviceId;
use crate::report::Basis;
use crate::report::GpuCost;
use crate::report::Level;
use crate::report::PauseTotal;
use crate::report::ProcessReport;
use crate::report::Report;
use gctrace_event::GcReason;

/// A cause is worth an action from this share of all pause time on.
const WORTH_RATIO: f64 = 0.2;
/// Off CPU for this share of the pauses: the machine has too few CPUs.
const PREEMPTED_RATIO: f64 = 0.2;
/// Raising threshold 0 tenfold makes collections of younger generations at most ten times less
/// frequent.
const RARER_SAVES: f64 = 0.9;
/// Changes that save less than this part of the run are not advised: repeated runs would not show
/// it.
const REPORTED_FRACTION: u64 = 1_000;

/// All advice for a report, in the order to try it.
pub(crate) fn advice(report: &Report) -> Vec<Advice> {
    let level = report.verdict.level;
    let Some(most) = report.processes.first() else {
        return vec![match level {
            Level::Unknown => plain(AdviceId::RecordCollections),
            _ => plain(AdviceId::NoCollection),
        }];
    };
    let mut list = match (level, &report.gpu_cost) {
        (Level::None | Level::Negligible, _) => vec![plain(AdviceId::Leave)],
        (_, Some(cost)) => predicted(worthwhile(report, most), report, cost),
        (_, None) => worthwhile(report, most),
    };
    if report.totals.pauses.uncollectable > 0 {
        list.push(plain(AdviceId::Uncollectable));
    }
    list
}

fn plain(id: AdviceId) -> Advice {
    Advice {
        id,
        action: String::new(),
        why: String::new(),
        code: None,
        risk: None,
        saves_at_least_ns: None,
        saves_at_most_ns: None,
        basis: Basis::Predicted,
    }
}

fn saving(id: AdviceId, at_most_ns: u64) -> Advice {
    Advice {
        saves_at_most_ns: Some(at_most_ns),
        ..plain(id)
    }
}

fn worthwhile(report: &Report, most: &ProcessReport) -> Vec<Advice> {
    let times = PauseTimes::of(report);
    let mut list = Vec::new();
    if times.worth(times.shutdown) {
        list.push(plain(AdviceId::Shutdown));
    }
    if times.worth(times.manual) {
        list.push(saving(AdviceId::ExplicitCalls, times.manual.time_ns));
    }
    if times.worth(times.automatic_full) {
        list.push(saving(AdviceId::Freeze, times.automatic_full.time_ns));
    }
    if times.worth(times.automatic_partial) {
        list.push(saving(AdviceId::RaiseThreshold, times.rarer_saves_ns()));
    }
    if let Some(cpu) = &report.totals.pauses.cpu
        && cpu.off_cpu_ratio >= PREEMPTED_RATIO
    {
        let off_cpu_ns = cpu.pause_ns.saturating_sub(cpu.on_cpu_ns);
        list.push(saving(AdviceId::Preempted, off_cpu_ns));
    }
    if let Some(counters) = &report.counters
        && times.worth(counters.major_fault_pauses)
    {
        let waited_ns = counters.major_fault_pauses.time_ns;
        list.push(saving(AdviceId::SwappedOut, waited_ns));
    }
    let growing = most.growth.as_ref().is_some_and(|own| own.still_growing());
    list.sort_by_key(|advice| {
        let doubtful = advice.id == AdviceId::Freeze && growing;
        (doubtful, std::cmp::Reverse(advice.saves_at_most_ns))
    });
    // Saves the most but changes the program the most, so it comes last.
    if times.worth(times.automatic()) {
        list.push(saving(AdviceId::Planned, times.automatic().time_ns));
    }
    if list.is_empty() || times.worth(times.unknown) {
        list.push(plain(AdviceId::RecordReasons));
    }
    list
}

/// Replaces bounds by predictions, leaves out what saves nothing, and puts what saves most first.
fn predicted(list: Vec<Advice>, report: &Report, cost: &GpuCost) -> Vec<Advice> {
    let refine = |advice: Advice| {
        let Some(what) = report.prediction(advice.id) else {
            // Causes without a prediction save at most the cost of all pauses.
            let saves_at_most_ns = advice.saves_at_most_ns.map(|ns| ns.min(cost.cost_ns));
            return Some(Advice {
                saves_at_most_ns,
                ..advice
            });
        };
        let max_ns = u64::try_from(what.saved_ns.at_most_ns).unwrap_or(0);
        (max_ns >= cost.run_ns / REPORTED_FRACTION).then_some(Advice {
            saves_at_least_ns: what.saved_ns.at_least_ns,
            saves_at_most_ns: Some(max_ns),
            ..advice
        })
    };
    let mut list: Vec<Advice> = list.into_iter().filter_map(refine).collect();
    list.sort_by_key(|advice| std::cmp::Reverse(expected_ns(advice)));
    if list.is_empty() {
        list.push(plain(AdviceId::Leave));
    }
    list
}

/// Twice the midpoint of the saving, in ns.
fn expected_ns(advice: &Advice) -> i128 {
    let max_ns = i128::from(advice.saves_at_most_ns.unwrap_or(0));
    max_ns + advice.saves_at_least_ns.map_or(0, i128::from)
}

/// The time of all pauses of a report, by cause.
#[derive(Clone, Copy, Debug)]
pub struct PauseTimes {
    /// Time of all pauses, in ns.
    pub all_ns: u64,
    /// Automatic collections of all generations: count and time.
    pub automatic_full: PauseTotal,
    /// Automatic collections of younger generations: count and time.
    pub automatic_partial: PauseTotal,
    /// Collections that the program requested with `gc.collect()`.
    pub manual: PauseTotal,
    /// Collections while the interpreter was finalizing.
    pub shutdown: PauseTotal,
    /// Collections whose reason the trace does not contain.
    pub unknown: PauseTotal,
}

impl PauseTimes {
    /// Adds up a report's pauses by cause.
    #[must_use]
    pub fn of(report: &Report) -> Self {
        let of = |reason| {
            let pauses = report.pauses_of(reason);
            pauses.map_or(PauseTotal::default(), |pauses| PauseTotal {
                count: pauses.count,
                time_ns: pauses.time_ns,
            })
        };
        let automatic = of(GcReason::Automatic);
        let full = report.freed_nothing.of_automatic_full;
        Self {
            all_ns: report.totals.pauses.time_ns,
            automatic_full: full,
            automatic_partial: PauseTotal {
                count: automatic.count.saturating_sub(full.count),
                time_ns: automatic.time_ns.saturating_sub(full.time_ns),
            },
            manual: of(GcReason::Manual),
            shutdown: of(GcReason::Shutdown),
            unknown: of(GcReason::Unknown),
        }
    }

    /// Automatic collections of all generations, full ones included.
    #[must_use]
    pub fn automatic(&self) -> PauseTotal {
        let mut sum = self.automatic_full;
        sum.add_all(&self.automatic_partial);
        sum
    }

    /// The share of these pauses in the time of all, 0 to 1.
    #[must_use]
    pub fn share(&self, pauses: PauseTotal) -> f64 {
        crate::accumulate::tally::ratio(pauses.time_ns, self.all_ns).unwrap_or(0.0)
    }

    fn worth(&self, pauses: PauseTotal) -> bool {
        pauses.count > 0 && self.share(pauses) >= WORTH_RATIO
    }

    /// Upper bound of the saving if collections of younger generations are ten times less frequent.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a bound needs no more than 52 bits; casts of floats saturate"
    )]
    fn rarer_saves_ns(&self) -> u64 {
        (self.automatic_partial.time_ns as f64 * RARER_SAVES) as u64
    }
}
