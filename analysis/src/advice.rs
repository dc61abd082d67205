//! What to do next: rules from evidence to advice.
//!
//! Owns when an advice is given and in which order. What it saves is derived from this recording:
//! gctrace has not seen the program with the change. With GPU times the replay predicts it,
//! otherwise a simulated collector (`remedy.rs`); for collectors that are not simulated there is an
//! upper bound.

use crate::gpu::what_if::report::bytes_per_object;
use crate::phases::JudgedRun;
use crate::remedy::{PricedRemedy, RecordedRun};
use crate::report::{
    Advice, AdviceId, AdvisedSettings, Basis, GpuCost, GroupName, Level, PauseTotal, ProcessReport,
    Report, SettingsReport,
};
use crate::{remedy, time};
use gctrace_event::{Collector, GcReason};

/// A cause is worth an action from this share of all pause time on.
const WORTH_RATIO: f64 = 0.2;
/// Raising threshold 0 tenfold makes collections of younger generations at most ten times less
/// frequent.
const RARER_SAVES: f64 = 0.9;
/// Changes that save less than this part of the run are not advised: repeated runs would not show
/// it.
const REPORTED_FRACTION: u64 = 1_000;

/// The remedies for the run that the verdict is about, with the bytes of an object. `None` if its
/// collector is not simulated: it is not generational, or the trace has no generations.
pub(crate) fn remedies(run: &JudgedRun<'_>) -> Option<PricedRun> {
    let interpreter = run.process.interpreter.as_ref();
    if interpreter.is_some_and(|interpreter| interpreter.collector != Collector::Generational) {
        return None;
    }
    let settings = run.process.settings.as_ref();
    let garbage = run.process.garbage.as_ref();
    let verdict = garbage.and_then(|garbage| garbage.verdict.as_ref());
    let (start_ns, end_ns) = run.phases.training_ns;
    Some(PricedRun {
        training_ns: end_ns.saturating_sub(start_ns),
        bytes_per_object: bytes_per_object(run.process),
        remedies: remedy::price(&RecordedRun {
            pauses: &run.pauses,
            training_ns: run.phases.training_ns,
            steps: run.phases.steps,
            thresholds: settings
                .map_or(SettingsReport::DEFAULT_THRESHOLDS, |setting| setting.thresholds),
            enabled: settings.and_then(|setting| setting.enabled),
            few_cycles: verdict.is_some_and(|verdict| verdict.finding.is_all()),
        })?,
    })
}

/// Remedies for one run.
#[derive(Clone, Debug)]
pub(crate) struct PricedRun {
    training_ns: u64,
    bytes_per_object: Option<u64>,
    remedies: Vec<PricedRemedy>,
}

impl PricedRun {
    /// All remedies that are not in force, without prices: those are of collector time, not of GPU
    /// time.
    fn candidates(self, report: &Report) -> Vec<Advice> {
        let times = PauseTimes::of(report);
        let remedies = self.remedies.into_iter().map(|remedy| Advice {
            settings: Some(remedy.settings),
            memory_objects: Some(remedy.waiting_objects),
            memory_bytes: self
                .bytes_per_object
                .map(|bytes| bytes.saturating_mul(remedy.waiting_objects)),
            ..saving(remedy.id, times.all_ns)
        });
        remedies.chain(swapped_out(report, &times)).collect()
    }
}

/// All advice for a report, in the order to try it; and the remedies that are not worth it.
pub(crate) fn advice(report: &Report, priced: Option<PricedRun>) -> (Vec<Advice>, Vec<Advice>) {
    let level = report.verdict.level;
    if report.runs > 1 {
        return (Vec::new(), Vec::new());
    }
    let Some(most) = report.processes.first() else {
        let only = match level {
            Level::Unknown => plain(AdviceId::RecordCollections),
            _ => plain(AdviceId::NoCollection),
        };
        return (vec![only], Vec::new());
    };
    let (list, rest) = match (&report.gpu_cost, priced) {
        (Some(cost), Some(priced)) => predicted(priced.candidates(report), report, cost),
        (Some(cost), None) => predicted(worthwhile(report, most), report, cost),
        (None, Some(priced)) => simulated(report, priced),
        (None, None) => (worthwhile(report, most), Vec::new()),
    };
    let (mut list, rest) = match level {
        Level::TooShort => (Vec::new(), Vec::new()),
        Level::None | Level::Negligible => {
            let priced = list.into_iter().chain(rest);
            let rest = priced.filter(|advice| advice.settings.is_some()).collect();
            (vec![plain(AdviceId::Leave)], rest)
        }
        _ => (list, rest),
    };
    if report.totals.pauses.uncollectable > 0 {
        list.push(plain(AdviceId::Uncollectable));
    }
    (list, rest)
}

/// The remedies that save a part of the run, best first, and the others, which do not, or for which
/// one recording does not show it.
fn simulated(report: &Report, mut priced: PricedRun) -> (Vec<Advice>, Vec<Advice>) {
    let least_ns = priced.training_ns / REPORTED_FRACTION;
    let worth = |advice: &Advice| {
        let likely_ns = advice.saves_likely_ns.and_then(|ns| u64::try_from(ns).ok());
        likely_ns >= Some(least_ns.max(1)) && !advice.is_uncertain()
    };
    let by_rank = |one: &PricedRemedy, other: &PricedRemedy| other.rank().total_cmp(&one.rank());
    priced.remedies.sort_by(by_rank);
    let bytes = priced.bytes_per_object;
    let advice = |remedy: PricedRemedy| Advice {
        saves_at_least_ns: Some(remedy.saves_ns[0]),
        saves_likely_ns: Some(remedy.likely_ns()),
        saves_at_most_ns: Some(u64::try_from(remedy.saves_ns[2]).unwrap_or(0)),
        memory_objects: Some(remedy.waiting_objects),
        memory_bytes: bytes.map(|bytes| bytes.saturating_mul(remedy.waiting_objects)),
        settings: Some(remedy.settings),
        ..plain(remedy.id)
    };
    let (mut list, rest): (Vec<Advice>, Vec<Advice>) =
        priced.remedies.into_iter().map(advice).partition(worth);
    list.extend(swapped_out(report, &PauseTimes::of(report)));
    leave_if_settled(report, &mut list, &rest);
    (list, rest)
}

/// With no change to make, and none left undecided: leave the program as it is.
fn leave_if_settled(report: &Report, list: &mut Vec<Advice>, rest: &[Advice]) {
    if list.is_empty() && !rest.iter().any(|advice| report.is_undecided(advice)) {
        list.push(plain(AdviceId::Leave));
    }
}

impl Report {
    /// Whether what this remedy saves matters and one recording does not show it.
    #[must_use]
    pub fn is_undecided(&self, remedy: &Advice) -> bool {
        let training = self.phases.as_ref().map(|phases| phases.training.duration_ns);
        let run_ns = self.gpu_cost.as_ref().map(|cost| cost.run_ns).or(training).unwrap_or(0);
        let matters =
            !matches!(self.verdict.level, Level::None | Level::Negligible | Level::TooShort);
        let most_ns = remedy.saves_at_most_ns.unwrap_or(0);
        matters && remedy.is_uncertain() && most_ns >= (run_ns / REPORTED_FRACTION).max(1)
    }
}

/// `None` unless many pauses waited for a disk.
fn swapped_out(report: &Report, times: &PauseTimes) -> Option<Advice> {
    let waited = report.counters.as_ref()?.major_fault_pauses;
    times.worth(waited).then(|| saving(AdviceId::SwappedOut, waited.time_ns))
}

fn plain(id: AdviceId) -> Advice {
    Advice {
        id,
        action: String::new(),
        why: String::new(),
        code: None,
        risk: None,
        saves_at_least_ns: None,
        saves_likely_ns: None,
        saves_at_most_ns: None,
        memory_objects: None,
        memory_bytes: None,
        settings: None,
        basis: Basis::Predicted,
    }
}

fn saving(id: AdviceId, at_most_ns: u64) -> Advice {
    Advice { saves_at_most_ns: Some(at_most_ns), ..plain(id) }
}

fn worthwhile(report: &Report, most: &ProcessReport) -> Vec<Advice> {
    let times = PauseTimes::of(report);
    let mut list = Vec::new();
    if times.worth(times.manual) {
        list.push(saving(AdviceId::ExplicitCalls, times.manual.time_ns));
    }
    if times.worth(times.automatic_full) {
        list.push(saving(AdviceId::Freeze, times.automatic_full.time_ns));
    }
    if times.worth(times.automatic_partial) {
        list.push(saving(AdviceId::RaiseThreshold, times.rarer_saves_ns()));
    }
    list.extend(swapped_out(report, &times));
    let growing = most.growth.as_ref().is_some_and(|growth| growth.still_growing());
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

/// Replaces bounds by predictions and puts what saves most first; and those that save nothing.
fn predicted(list: Vec<Advice>, report: &Report, cost: &GpuCost) -> (Vec<Advice>, Vec<Advice>) {
    let refine = |advice: Advice| {
        let Some(what) = report.prediction(advice.id) else {
            // Causes without a prediction save at most the cost of all pauses.
            let saves_at_most_ns = advice.saves_at_most_ns.map(|ns| ns.min(cost.cost_ns));
            return Advice { saves_at_most_ns, ..advice };
        };
        Advice {
            saves_at_least_ns: what.saved_ns.at_least_ns,
            saves_at_most_ns: Some(u64::try_from(what.saved_ns.at_most_ns).unwrap_or(0)),
            settings: advice.settings.map(|setting| at_interval(setting, what.every_steps)),
            ..advice
        }
    };
    let worth = |advice: &Advice| {
        let most_ns = advice.saves_at_most_ns;
        most_ns.is_none_or(|ns| ns >= cost.run_ns / REPORTED_FRACTION) && !advice.is_uncertain()
    };
    let (mut list, rest): (Vec<Advice>, Vec<Advice>) =
        list.into_iter().map(refine).partition(worth);
    list.sort_by_key(|advice| std::cmp::Reverse(expected_ns(advice)));
    leave_if_settled(report, &mut list, &rest);
    (list, rest)
}

/// The settings with the interval that the prediction is for.
fn at_interval(settings: AdvisedSettings, every_steps: Option<u64>) -> AdvisedSettings {
    let steps = settings.collect_every_steps.zip(every_steps);
    let Some((old_steps, new_steps)) = steps.filter(|(old, _)| *old > 0) else {
        return settings;
    };
    let every_ns = settings.collect_every_ns;
    AdvisedSettings {
        collect_every_steps: Some(new_steps),
        collect_every_ns: every_ns.map(|ns| time::times(ns, new_steps) / old_steps),
        ..settings
    }
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

    /// The same with pauses of unknown reason counted as automatic, as most of them are.
    #[must_use]
    pub fn unknown_as_automatic(report: &Report) -> Self {
        let known = Self::of(report);
        let of = |generation| {
            let name = GroupName::Generation(Some(generation));
            let group = report.by_generation.iter().find(|group| group.name == name);
            group.map_or(PauseTotal::default(), |group| PauseTotal {
                count: group.pauses.count,
                time_ns: group.pauses.time_ns,
            })
        };
        if known.automatic().count > 0 {
            return known;
        }
        // Collections at shutdown are full.
        let full = of(2);
        let mut partial = of(0);
        partial.add_all(&of(1));
        Self {
            automatic_full: PauseTotal {
                count: full.count.saturating_sub(known.shutdown.count),
                time_ns: full.time_ns.saturating_sub(known.shutdown.time_ns),
            },
            automatic_partial: partial,
            ..known
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
        crate::time::stats::ratio(pauses.time_ns, self.all_ns).unwrap_or(0.0)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_with_0_or_wider_than_the_likely_saving_is_uncertain() {
        let uncertain = |saves_at_least_ns, saves_likely_ns, most_ns| {
            let saves_at_most_ns = Some(most_ns);
            Advice {
                saves_at_least_ns,
                saves_likely_ns,
                saves_at_most_ns,
                ..plain(AdviceId::Freeze)
            }
            .is_uncertain()
        };
        assert!(uncertain(Some(-1), Some(99), 100));
        assert!(uncertain(Some(0), Some(99), 100));
        assert!(!uncertain(Some(1), Some(99), 100));
        assert!(uncertain(Some(50), Some(70), 121));
        assert!(!uncertain(Some(50), Some(70), 120));
        // By replay there is no likely saving; an upper bound alone is no range.
        assert!(!uncertain(Some(1), None, 100) && uncertain(Some(0), None, 100));
        assert!(!uncertain(None, None, 100));
        assert!(uncertain(Some(i64::MIN), Some(i64::MAX), u64::MAX));
    }
}
