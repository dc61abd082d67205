//! The saving of each advice by replay, instead of the pause time as an upper bound.

use super::texts;
use crate::gpu_cost::GpuCost;
use crate::report::Advice;
use crate::report::Report;
use crate::report::ScenarioId;
use crate::report::WhatIf;
use crate::units::count;
use crate::units::duration;
use crate::units::percent;

/// Changes that save less than this part of the run are not advised: repeated runs would not show
/// it.
const REPORTED_FRACTION: u64 = 1_000;

/// Replaces bounds by predictions, leaves out what saves nothing, and puts what saves most first.
pub(super) fn refine(list: Vec<Advice>, report: &Report, cost: &GpuCost) -> Vec<Advice> {
    let mut list: Vec<Advice> = list
        .into_iter()
        .filter_map(|advice| match what_if(report, &advice.id) {
            Some(what) => refined(advice, what, cost),
            None => Some(bounded(advice, cost)),
        })
        .collect();
    list.sort_by_key(|advice| std::cmp::Reverse(expected_ns(advice)));
    if list.is_empty() {
        list.push(texts::hidden(cost));
    }
    list
}

/// Twice the midpoint of the saving, in ns.
fn expected_ns(advice: &Advice) -> i128 {
    let max_ns = i128::from(advice.saves_at_most_ns.unwrap_or(0));
    max_ns + advice.saves_at_least_ns.map_or(0, i128::from)
}

/// The prediction that an advice is about.
fn what_if<'a>(report: &'a Report, advice: &str) -> Option<&'a WhatIf> {
    let ids: &[ScenarioId] = match advice {
        "freeze" => &[ScenarioId::Freeze],
        "raise-threshold" => &[ScenarioId::Thresholds],
        // Without a full collection in the recording, the length of a planned one is unknown.
        "planned" => &[ScenarioId::Planned, ScenarioId::Disable],
        "explicit-calls" => &[ScenarioId::Explicit],
        _ => return None,
    };
    let mut found = ids
        .iter()
        .filter_map(|id| report.what_if.iter().find(|own| own.id == *id));
    found.next()
}

/// `None` where it saves too little to be worth a word.
fn refined(advice: Advice, what: &WhatIf, cost: &GpuCost) -> Option<Advice> {
    let max_ns = u64::try_from(what.saved_ns.at_most_ns).unwrap_or(0);
    if max_ns < cost.run_ns / REPORTED_FRACTION {
        return None;
    }
    let mut why = advice.why;
    if let Some(step) = what.step {
        why += &format!(
            " By replay, a step would take {} to {} instead of {}.",
            duration(step.at_least_ns),
            duration(step.at_most_ns),
            duration(step.measured_ns)
        );
    }
    why += &format!(" Assumed: {}", what.assumes);
    Some(Advice {
        why,
        saves_at_least_ns: what.saved_ns.at_least_ns,
        saves_at_most_ns: Some(max_ns),
        ..advice
    })
}

/// Limits causes without a prediction to the cost of all pauses.
fn bounded(advice: Advice, cost: &GpuCost) -> Advice {
    let saves = advice.saves_at_most_ns.map(|ns| ns.min(cost.cost_ns));
    Advice {
        saves_at_most_ns: saves,
        ..advice
    }
}

/// Adds the chosen interval of planned collections to code and reason, if steps are known.
pub(super) fn plan(advice: Advice, report: &Report) -> Advice {
    let planned = report
        .what_if
        .iter()
        .find(|own| own.id == ScenarioId::Planned);
    let Some((every, what)) = planned.and_then(|own| Some((own.every_steps?, own))) else {
        return advice;
    };
    let mut why = advice.why;
    if let Some(reason) = &what.why_every {
        why += &format!(" {reason}");
    }
    Advice {
        why,
        code: advice
            .code
            .map(|code| code.replace("step % 1000", &format!("step % {every}"))),
        risk: Some(format!("Every {} steps: {}", count(every), what.risk)),
        ..advice
    }
}

/// Why to leave the collector alone, according to the replay.
pub(super) fn leave(advice: Advice, cost: &GpuCost) -> Advice {
    Advice {
        why: format!(
            "By replay, without any collection the run of {} would be {} shorter ({}).",
            duration(cost.run_ns),
            duration(cost.cost_ns),
            percent(cost.ratio())
        ),
        ..advice
    }
}
