//! Settings that take turns in blocks of steps within one run: the controller of `gctrace auto` compares them in
//! the program.

use super::progress::TuneProgress;
use super::{Tuner, runs};
use crate::args::Verbosity;
use crate::auto::more;
use crate::record::code_of;
use crate::{auto, print};
use gctrace_analysis::tune::{
    MeasuredDifference, TuneMethod, TuneOutcome, TuneRefusal, TuneReport, TuneUnit, TunedSetting,
};
use gctrace_settings::{
    AppliedProcess, AutoDecision, AutoDifference, AutoOptions, AutoReport, AutoState,
    ComparedSetting,
};
use gctrace_units::{after, beyond, times};

/// With fewer pairs no difference shows, however large it is (`stats/src/mixture.rs` of the library).
const NEEDED_PAIRS: u64 = 12;

/// Measures one run. If it ends without steps, or cannot be compared so, and the budget is not spent, measures
/// whole runs.
pub(super) fn measure(tuner: &Tuner<'_>) -> anyhow::Result<u8> {
    let compared = tuner.config.settings.clone();
    let search = tuner.search(AutoOptions { compared, ..AutoOptions::default() });
    let mut progress = TuneProgress::new(tuner);
    // Decisions belong to a search: there is none.
    let searched = auto::search(&search, &tuner.invoker, Verbosity::Quiet, |processes, _| {
        let found = Found::of(processes);
        let by_now = found.as_ref().map(|found| report(tuner, found));
        let steps = if let Some(found) = &found { found.process.steps } else { 0 };
        progress.update(tuner, steps, "step", by_now.as_ref());
        tuner.is_over_budget()
            || matches!(found, Some(found) if found.search.state == AutoState::Stopped)
            || matches!(by_now, Some(report) if report.is_known(tuner.config.precision))
    })?;
    progress.finish();
    let processes = searched.command.session.processes().processes;
    let found = Found::of(&processes);
    let code = searched.ended.map(code_of);
    let is_short = found.as_ref().is_none_or(|found| {
        found.process.steps == 0 && report(tuner, found).outcome == TuneOutcome::Refused
    });
    if is_short && code == Some(0) && !tuner.is_over_budget() {
        drop(searched);
        print::message(format!("{}: comparing whole runs", why_nothing(&processes)));
        return runs::compare_named(tuner);
    }
    match found {
        None => print::message(no_steps(tuner, &processes)),
        Some(found) => {
            notes(&found).iter().for_each(print::message);
            tuner.print(report(tuner, &found));
        }
    }
    match code {
        Some(code) => Ok(code),
        None => tuner.go_on(searched.command),
    }
}

/// Why no process could compare settings.
fn why_nothing(processes: &[AppliedProcess]) -> String {
    let with_steps = processes.iter().filter(|process| process.steps > 0);
    let mut whys = with_steps.filter_map(|process| process.auto.as_ref()?.unsupported.clone());
    let Some(why) = whys.next() else {
        return "the command has no steps that gctrace knows".to_owned();
    };
    format!("settings cannot take turns in the command: {why}")
}

fn no_steps(tuner: &Tuner<'_>, processes: &[AppliedProcess]) -> String {
    if processes.iter().any(|process| process.steps > 0) {
        return format!(
            "nothing was measured: {}; --runs compares whole runs",
            why_nothing(processes)
        );
    }
    let remedy = match tuner.config.start.step_function() {
        Some(name) => format!("no function {name} was called: --step-function names another"),
        None => "--step-function NAME names the function that is called once a step".to_owned(),
    };
    format!("nothing was measured: the command made no steps. {remedy}")
}

/// Notes for the user on the process that compared.
fn notes(found: &Found<'_>) -> Vec<String> {
    let events = found.search.events.iter();
    let other = events.filter(|event| {
        !matches!(event.decision, AutoDecision::Compare { .. } | AutoDecision::TakenBack)
    });
    let mut lines: Vec<String> =
        other.map(|event| auto::decision(event, found.search.by_time)).collect();
    if let Some(call) = found.process.calls.iter().find(|call| call.function == "disable")
        && found.search.compared.is_empty()
    {
        lines.push(format!("the program itself has disabled automatic collection: {}", call.by));
    }
    lines
}

/// The process that compared the settings, and its results.
struct Found<'a> {
    process: &'a AppliedProcess,
    search: &'a AutoReport,
    /// Other processes with steps that do not follow it.
    others: u64,
}

impl<'a> Found<'a> {
    /// Among several processes the one with the most pairs. `None`: none could compare any.
    fn of(processes: &'a [AppliedProcess]) -> Option<Self> {
        let stepping = || processes.iter().filter(|process| process.steps > 0);
        let searches = processes.iter().filter_map(|process| {
            let search = process.auto.as_ref()?;
            let compares = (process.steps > 0 || search.by_time)
                && search.unsupported.is_none()
                && search.leader.is_none();
            if compares { Some((process, search)) } else { None }
        });
        let pairs = |search: &AutoReport| search.compared.first().map_or(0, |first| first.pairs);
        let (process, search) =
            searches.max_by_key(|(process, search)| (pairs(search), process.steps))?;
        let together = u64::from(process.steps > 0) + u64::from(search.followers);
        let others = beyond(stepping().count() as u64, together);
        Some(Self { process, search, others })
    }
}

fn report(tuner: &Tuner<'_>, found: &Found<'_>) -> TuneReport {
    let Found { process, search, others } = found;
    let first = search.compared.first();
    let other = |at: usize| if at > 0 { first } else { None };
    let settings: Vec<TunedSetting> = tuner
        .names()
        .into_iter()
        .enumerate()
        .map(|(at, name)| tuned(name, other(at), search.compared.get(at)))
        .collect();
    let unit = if search.by_time { TuneUnit::WorkMs } else { TuneUnit::Step };
    let begun = search.events.iter().rev().find_map(|event| match event.decision {
        AutoDecision::Compare { block_steps, .. } => Some((event.step, block_steps)),
        _ => None,
    });
    let (warm_up_steps, block_steps) = begun.unzip();
    let of_pairs = |pairs: u64| Some(times(pairs, block_steps?));
    let mut report = TuneReport {
        block_steps,
        steps: process.steps,
        warm_up_steps: warm_up_steps.unwrap_or(process.steps),
        ranks: u64::from(search.followers) + 1,
        other_processes: *others,
        agent_ns: process.agent_ns.checked_div(process.steps),
        ..TuneReport::judged(TuneMethod::Blocks, unit, tuner.config.measure, settings)
    };
    let pairs = if let Some(first) = first { first.pairs } else { 0 };
    let count = report.settings.len() as u64;
    report.needed_steps = match pairs {
        ..NEEDED_PAIRS => {
            of_pairs(NEEDED_PAIRS).map(|steps| after(times(steps, count), report.warm_up_steps))
        }
        _ => of_pairs(pairs).and_then(|steps| report.steps_for(tuner.config.precision, steps)),
    };
    report
}

/// A setting, compared with the first; `None`: it is that.
fn tuned(
    name: String,
    first: Option<&ComparedSetting>,
    compared: Option<&ComparedSetting>,
) -> TunedSetting {
    let pairs = if let Some(one) = compared { one.pairs } else { 0 };
    let measured = if pairs > 0 { compared } else { None };
    let difference = |of: fn(&ComparedSetting) -> (AutoDifference, u64)| {
        let ((found, _), (_, first_ns)) = (of(compared?), of(first?));
        measured_difference(found, first_ns)
    };
    let few = TuneRefusal::FewPairs { pairs, needed: NEEDED_PAIRS };
    TunedSetting {
        setting: name,
        pairs,
        wall_ns: measured.map(|one| one.wall_ns),
        cpu_ns: measured.map(|one| one.cpu_ns),
        standard_deviation_ns: None,
        pause_ns: measured.map(|one| one.collecting_ns),
        collections: None,
        peak_rss_bytes: None,
        wall_difference: difference(|one| (one.differences.wall, one.wall_ns)),
        cpu_difference: difference(|one| (one.differences.cpu, one.cpu_ns)),
        computed_share: compared.and_then(|one| one.differences.computed_share),
        refused: if first.is_some() && pairs < NEEDED_PAIRS { Some(few) } else { None },
    }
}

/// From a difference as a share of the mean of both; `None`: there are too few pairs for an interval.
fn measured_difference(found: AutoDifference, first_ns: u64) -> Option<MeasuredDifference> {
    let AutoDifference { mean, low, high, p } = found;
    let [mean_ratio, low_ratio, high_ratio] = [more(mean?), more(low?), more(high?)];
    let ns = |ratio: f64| (ratio * first_ns as f64).round() as i64;
    Some(MeasuredDifference {
        mean_ns: ns(mean_ratio),
        low_ns: ns(low_ratio),
        high_ns: ns(high_ratio),
        mean_ratio,
        low_ratio,
        high_ratio,
        p_value: p?,
        holm_p_value: p?,
    })
}
