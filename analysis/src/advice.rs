//! What to do next: rules from evidence to advice.
//!
//! Owns when an advice is given and in which order. What it saves is derived from this recording:
//! gctrace has not seen the program with the change. A simulated collector predicts it (`remedy.rs`),
//! with GPU times the replay of a run with the pauses of that collector (`replayed.rs`); for
//! collectors that are not simulated there is an upper bound.

mod replayed;
mod waits;

pub(crate) use self::replayed::{AskedChanges, ReplayedRun};

use crate::analysis::Analysis;
use crate::phases::JudgedRun;
use crate::remedy::{DeviceGarbage, PricedRemedy, RecordedRun};
use crate::report::{
    Advice, AdviceEffect, AdviceId, AdvisedSettings, Level, MainCycles, PauseTotal, ProcessReport,
    Report, SettingsReport,
};
use crate::{remedy, verdict, words};
use gctrace_event::{CollectorKind, ProcessOrigin};

/// A cause is worth an action from this share of all pause time on.
const WORTH_RATIO: f64 = 0.2;
/// From this number of objects per collection on, a program makes garbage.
const GARBAGE_EACH: f64 = 10.0;
/// Raising threshold 0 tenfold makes collections of younger generations at most ten times less
/// frequent.
const RARER_SAVES: f64 = 0.9;
/// Changes that save less than this part of the run are not advised: repeated runs would not show
/// it.
const REPORTED_FRACTION: u64 = 1_000;

/// Garbage that waits may take one in so many bytes of what the process may use.
const MOST_OF_MEMORY: u64 = 4;

/// The remedies for the run that the verdict is about, with the bytes of an object. `None` if its
/// collector is not simulated: it is not generational, or the trace has no generations.
pub(crate) fn remedies(analysis: &Analysis, run: &JudgedRun<'_>) -> Option<PricedRun> {
    let interpreter = run.process.interpreter.as_ref();
    if interpreter.is_some_and(|interpreter| interpreter.collector != CollectorKind::Generational) {
        return None;
    }
    let (start_ns, end_ns) = run.phases.training_ns;
    Some(PricedRun {
        training_ns: end_ns.saturating_sub(start_ns),
        start_up_counts: verdict::start_up_counts(&run.report_without_lines()),
        bytes_per_object: bytes_per_object(run.process),
        memory_limit_bytes: run.process.memory.limit_bytes,
        remedies: remedy::price(&recorded_run(analysis, run))?,
    })
}

/// What remedies are priced for.
fn recorded_run<'a>(analysis: &Analysis, run: &'a JudgedRun<'_>) -> RecordedRun<'a> {
    let settings = run.process.settings.as_ref();
    let garbage = run.process.garbage.as_ref();
    let verdict = garbage.and_then(|garbage| garbage.verdict.as_ref());
    let from_start = run.process.origin.is_some_and(|origin| origin != ProcessOrigin::Attached);
    let ended = run.process.exit_code.is_some()
        || run.process.exit_signal.is_some()
        || run.process.origin == Some(ProcessOrigin::Child);
    let trace = analysis.traces.get(run.process.trace);
    let (freed_bytes, reserved_bytes) =
        trace.map_or((0, 0), |trace| trace.cuda.memory_of(run.process.pid));
    RecordedRun {
        pauses: &run.pauses,
        training_ns: run.phases.training_ns,
        forked: run.forked,
        start_thresholds: match settings {
            Some(setting) if setting.changes == 0 => setting.thresholds,
            _ => SettingsReport::DEFAULT_THRESHOLDS,
        },
        start_ns: from_start.then_some(run.phases.span_ns.0),
        ended,
        steps: run.phases.steps,
        thresholds: settings
            .map_or(SettingsReport::DEFAULT_THRESHOLDS, |setting| setting.thresholds),
        enabled: settings.and_then(|setting| setting.enabled),
        few_cycles: verdict.is_some_and(MainCycles::is_all),
        resident_bytes: run.process.memory.resident_bytes,
        device: (reserved_bytes > 0).then_some(DeviceGarbage { freed_bytes, reserved_bytes }),
    }
}

/// The peak memory of pymalloc arenas, per object of the largest heap; else the objects' own memory, as
/// far as garbage was examined.
fn bytes_per_object(process: &ProcessReport) -> Option<u64> {
    arenas_per_object(process).or_else(|| {
        let garbage = process.garbage.as_ref()?;
        garbage.bytes?.checked_div(garbage.objects)
    })
}

/// Not for processes that were already running: the arenas they had mapped before are unknown.
fn arenas_per_object(process: &ProcessReport) -> Option<u64> {
    let arenas = process.pressure.as_ref()?.arenas.as_ref()?;
    let bytes = u64::try_from(arenas.peak_balance_bytes?).ok()?;
    let objects = process.growth.as_ref()?.largest.objects;
    let from_start = process.origin != Some(ProcessOrigin::Attached);
    let each = bytes.checked_div(objects).filter(|_| from_start);
    each.filter(|bytes| *bytes > 0)
}

/// Remedies for one run.
#[derive(Clone, Debug)]
pub(crate) struct PricedRun {
    training_ns: u64,
    /// Whether start-up is worth a change.
    start_up_counts: bool,
    bytes_per_object: Option<u64>,
    memory_limit_bytes: Option<u64>,
    remedies: Vec<PricedRemedy>,
}

impl PricedRun {
    /// What a remedy saves and takes; of the run where it was replayed.
    fn effect(&self, remedy: &PricedRemedy, replayed: &ReplayedRun) -> AdviceEffect {
        let of_objects =
            self.bytes_per_object.map(|bytes| bytes.saturating_mul(remedy.waiting_objects));
        let given_back = remedy.waiting_bytes.map(remedy::natural);
        let saving = replayed.effects.get(&remedy.id).cloned().unwrap_or_else(|| AdviceEffect {
            saves_at_least_ns: Some(remedy.saves_ns[0]),
            saves_likely_ns: Some(remedy.likely_ns()),
            saves_at_most_ns: Some(u64::try_from(remedy.saves_ns[2]).unwrap_or(0)),
            ..AdviceEffect::default()
        });
        AdviceEffect {
            costs_once_ns: Some(remedy.once_ns),
            longest_ns: Some(remedy.longest_ns),
            memory_device_bytes: remedy.waiting_device_bytes,
            memory_objects: Some(remedy.waiting_objects),
            memory_bytes: of_objects.max(given_back),
            memory_is_least: remedy.waiting_objects > 0 && given_back.is_none(),
            settings: (remedy.settings != AdvisedSettings::default())
                .then(|| remedy.settings.clone()),
            ..saving
        }
    }
}

/// A change that may be advised.
struct Candidate {
    id: AdviceId,
    effect: AdviceEffect,
}

/// The changes to advise, in the order to try them; and the others.
type Advised = (Vec<Candidate>, Vec<Candidate>);

/// All advice for a report, in the order to try it; and the remedies that are not worth it.
pub(crate) fn advice(
    report: &Report,
    priced: Option<PricedRun>,
    replayed: &ReplayedRun,
) -> (Vec<Advice>, Vec<Advice>) {
    let (list, rest) = choose(report, priced, replayed);
    let worded = |list: Vec<Candidate>| -> Vec<Advice> {
        let list = list.into_iter();
        list.map(|advised| words::advice::advice(advised.id, advised.effect, report)).collect()
    };
    let (mut list, rest) = (worded(list), worded(rest));
    let waits = if report.runs > 1 || report.verdict.level == Level::TooShort {
        Vec::new()
    } else {
        waits::advice(report)
    };
    let most_ns = |of: &[Advice]| of.iter().filter_map(|of| of.effect.saves_at_most_ns).max();
    let at = if most_ns(&waits) >= most_ns(&list) { 0 } else { list.len() };
    list.splice(at..at, waits);
    (list, rest)
}

fn choose(report: &Report, priced: Option<PricedRun>, replayed: &ReplayedRun) -> Advised {
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
    let (list, rest) = match priced {
        Some(priced) => simulated(report, priced, replayed),
        None => (bounded(report, most), Vec::new()),
    };
    let (mut list, mut rest) = match level {
        Level::TooShort => (Vec::new(), Vec::new()),
        Level::None | Level::Negligible => {
            let priced = list.into_iter().chain(rest);
            let rest = priced.filter(|advice| advice.effect.settings.is_some()).collect();
            (vec![plain(AdviceId::Leave)], rest)
        }
        _ => (list, rest),
    };
    let matters = !matches!(level, Level::None | Level::Negligible | Level::TooShort);
    let has_change = list.iter().any(|advice| advice.id != AdviceId::Leave);
    if matters && !has_change {
        // A problem is followed by something to do: where its cycles are known they are changed, as
        // what garbage costs outside the pauses is not priced.
        let undecided = |advice: &Candidate| report.is_undecided(&advice.effect);
        let cycles = |advice: &Candidate| advice.id == AdviceId::BreakCycles && undecided(advice);
        let setting = |advice: &Candidate| advice.effect.settings.is_some() && undecided(advice);
        if let Some(at) = rest.iter().position(cycles) {
            rest.remove(at);
            list = vec![plain(AdviceId::BreakCycles)];
        } else if makes_garbage(report) {
            list = vec![plain(AdviceId::FindCycles)];
        } else if rest.iter().any(setting) {
            list = vec![plain(AdviceId::Measure)];
        }
    }
    if report.totals.pauses.uncollectable > 0 {
        list.push(plain(AdviceId::Uncollectable));
    }
    (list, rest)
}

/// The remedies that save a part of the run, best first, and the others, which do not, or for which
/// one recording does not show it.
fn simulated(report: &Report, mut priced: PricedRun, replayed: &ReplayedRun) -> Advised {
    let run_ns = report.gpu_cost.as_ref().map_or(priced.training_ns, |cost| cost.run_ns);
    let least_ns = (run_ns / REPORTED_FRACTION).max(1);
    let start_up_counts = priced.start_up_counts;
    priced.remedies.retain(|remedy| start_up_counts || remedy.id != AdviceId::OffWhileLoading);
    let mut ranked: Vec<(f64, Candidate)> = priced
        .remedies
        .iter()
        .map(|remedy| {
            let effect = priced.effect(remedy, replayed);
            let rank = remedy.rank_of(effect.saves_likely_ns.unwrap_or(0));
            (rank, Candidate { id: remedy.id, effect })
        })
        .collect();
    ranked.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let most_bytes = priced.memory_limit_bytes.map_or(u64::MAX, |limit| limit / MOST_OF_MEMORY);
    let worth = |advice: &Candidate| {
        let likely_ns = advice.effect.saves_likely_ns.and_then(|ns| u64::try_from(ns).ok());
        let fits = advice.effect.memory_bytes.is_none_or(|bytes| bytes <= most_bytes);
        likely_ns >= Some(least_ns) && !advice.effect.is_uncertain() && fits
    };
    let all = ranked.into_iter().map(|(_, candidate)| candidate);
    let (mut list, rest): Advised = all.partition(worth);
    list.extend(swapped_out(report));
    leave_if_settled(report, &mut list, &rest);
    (list, rest)
}

/// Whether the judged process makes garbage whose cycles were not recorded.
fn makes_garbage(report: &Report) -> bool {
    let phases = report.phases.as_ref();
    let judged = phases.and_then(|phases| {
        let mut processes = report.processes.iter();
        processes.find(|process| process.trace == phases.trace && process.pid == phases.pid)
    });
    judged.is_some_and(|process| {
        let named = process.garbage.as_ref().is_some_and(|garbage| garbage.cycles.is_some());
        // What the end of the interpreter frees was alive until then.
        let [automatic, ..] = process.by_reason;
        let freed_each = match (process.freed_per_s, automatic.count) {
            (Some(freed_per_s), 1..) => {
                freed_per_s * (process.observed_ns as f64 / 1e9) / automatic.count as f64
            }
            _ => process.pauses.collected as f64 / process.pauses.count.max(1) as f64,
        };
        !named && freed_each >= GARBAGE_EACH
    })
}

/// With no change to make, and none left undecided: leave the program as it is.
fn leave_if_settled(report: &Report, list: &mut Vec<Candidate>, rest: &[Candidate]) {
    if list.is_empty() && !rest.iter().any(|advice| report.is_undecided(&advice.effect)) {
        list.push(plain(AdviceId::Leave));
    }
}

impl Report {
    /// Whether what this remedy saves matters and one recording does not show it.
    #[must_use]
    pub fn is_undecided(&self, remedy: &AdviceEffect) -> bool {
        let training = self.phases.as_ref().map(|phases| phases.training.duration_ns);
        let run_ns = self.gpu_cost.as_ref().map(|cost| cost.run_ns).or(training).unwrap_or(0);
        let matters =
            !matches!(self.verdict.level, Level::None | Level::Negligible | Level::TooShort);
        let most_ns = remedy.saves_at_most_ns.unwrap_or(0);
        matters && remedy.is_uncertain() && most_ns >= (run_ns / REPORTED_FRACTION).max(1)
    }
}

/// `None` unless many pauses waited for a disk.
fn swapped_out(report: &Report) -> Option<Candidate> {
    let waited = report.counters.as_ref()?.major_fault_pauses;
    worth(report, waited).then(|| saving(AdviceId::SwappedOut, waited.time_ns))
}

fn plain(id: AdviceId) -> Candidate {
    Candidate { id, effect: AdviceEffect::default() }
}

fn saving(id: AdviceId, at_most_ns: u64) -> Candidate {
    let effect = AdviceEffect { saves_at_most_ns: Some(at_most_ns), ..AdviceEffect::default() };
    Candidate { id, effect }
}

/// By the cause of the pauses, with upper bounds: their time, and with GPU times what all cost.
fn bounded(report: &Report, most: &ProcessReport) -> Vec<Candidate> {
    let causes = report.by_cause();
    let mut list = Vec::new();
    if worth(report, causes.manual) {
        list.push(saving(AdviceId::ExplicitCalls, causes.manual.time_ns));
    }
    if worth(report, causes.automatic_full) {
        list.push(saving(AdviceId::Freeze, causes.automatic_full.time_ns));
    }
    if worth(report, causes.automatic_partial) {
        list.push(saving(AdviceId::RaiseThreshold, rarer_saves_ns(causes.automatic_partial)));
    }
    list.extend(swapped_out(report));
    let growing = most.growth.as_ref().is_some_and(|growth| growth.still_growing());
    list.sort_by_key(|advice| {
        let doubtful = advice.id == AdviceId::Freeze && growing;
        (doubtful, std::cmp::Reverse(advice.effect.saves_at_most_ns))
    });
    // Saves the most but changes the program the most, so it comes last.
    if worth(report, causes.automatic()) {
        list.push(saving(AdviceId::Planned, causes.automatic().time_ns));
    }
    if list.is_empty() || worth(report, causes.unknown) {
        list.push(plain(AdviceId::RecordReasons));
    }
    if let Some(cost) = &report.gpu_cost {
        for advice in &mut list {
            let most_ns = &mut advice.effect.saves_at_most_ns;
            *most_ns = most_ns.map(|ns| ns.min(cost.cost_ns));
        }
    }
    list
}

/// Whether pauses of a cause are worth an action.
fn worth(report: &Report, pauses: PauseTotal) -> bool {
    pauses.count > 0 && report.share(pauses) >= WORTH_RATIO
}

/// Upper bound of the saving if collections of younger generations are ten times less frequent.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a bound needs no more than 52 bits; casts of floats saturate"
)]
fn rarer_saves_ns(younger: PauseTotal) -> u64 {
    (younger.time_ns as f64 * RARER_SAVES) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_with_0_or_wider_than_the_likely_saving_is_uncertain() {
        let uncertain = |saves_at_least_ns, saves_likely_ns, most_ns| {
            let saves_at_most_ns = Some(most_ns);
            AdviceEffect {
                saves_at_least_ns,
                saves_likely_ns,
                saves_at_most_ns,
                ..AdviceEffect::default()
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
