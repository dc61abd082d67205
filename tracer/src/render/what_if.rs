//! The section on what-ifs: predictions by replay for other collector settings. Without GPU times
//! there is no replay, and the advice has the upper bounds.

use super::table::{ReportSection, TextTable, paragraph};
use crate::text::OrDash as _;
use crate::units::{duration, short_count, signed_duration};
use gctrace_analysis::report::{PredictedLength, Report, Saving, ScenarioId, WhatIf};

pub(crate) fn what_if(report: &Report) -> ReportSection {
    let mut lines = Vec::new();
    let list = &report.what_if;
    let run = list.first().and_then(|list| list.run);
    if let (Some(first), Some(run)) = (list.first(), run)
        && list.iter().any(matters)
    {
        lines.extend(paragraph(&basis(first, run)));
        lines.extend(table(list));
        let every = list.iter().filter_map(|list| list.why_every.as_deref());
        for why in every {
            lines.extend(paragraph(why));
        }
    }
    ReportSection::new("What-if: other collector settings (predicted)", lines)
}

/// Whether the change is at least 0.1 % of the run; less is below run-to-run variation.
fn matters(what_if: &WhatIf) -> bool {
    let saving = what_if.saved_ns;
    let least = saving.at_least_ns.map_or(0, i64::unsigned_abs);
    let most = least.max(saving.at_most_ns.unsigned_abs());
    what_if.run.is_some_and(|run| most >= run.measured_ns / 1000)
}

/// The basis of all figures in the section.
fn basis(first: &WhatIf, run: PredictedLength) -> String {
    let step = first
        .step
        .map_or(String::new(), |step| format!(", the mean step {}", duration(step.measured_ns)));
    let error = match first.replay_error_ns {
        Some(_) => " The bounds include the error of the replay.",
        None => " The bounds cover unknowns of the collector, not the error of the replay.",
    };
    format!(
        "By replay of the run with changed pauses: worst case .. best case of what is unknown. \
         Garbage: objects in cycles that accumulate between collections, at the rate of this \
         recording. Recorded: the run took {}{step}.{error}",
        duration(run.measured_ns)
    )
}

fn table(list: &[WhatIf]) -> Vec<String> {
    let with_step = list.iter().any(|list| list.step.is_some());
    let mut head = vec!["change", "saves"];
    if with_step {
        head.push("mean step");
    }
    head.push("garbage");
    let last = head.len() - 1;
    let mut table = TextTable::new(&head, &[0, last]);
    for list in list {
        let mut row = vec![change(list), saves(list.saved_ns)];
        if with_step {
            row.push(list.step.as_ref().map(length).or_dash());
        }
        row.push(garbage(list));
        table.row(row);
    }
    table.lines()
}

/// The change in a few words; the full text is in the JSON and in the advice.
fn change(what_if: &WhatIf) -> String {
    match (what_if.id, what_if.every_steps) {
        (ScenarioId::Freeze, _) => "gc.freeze()".to_owned(),
        (ScenarioId::Thresholds, _) => "threshold0 x10".to_owned(),
        (ScenarioId::Planned, Some(every)) => format!("plan, every {}", short_count(every)),
        (ScenarioId::Disable, _) => "gc.disable()".to_owned(),
        (ScenarioId::Explicit, _) => "no gc.collect()".to_owned(),
        (ScenarioId::Planned, None) => what_if.change.clone(),
    }
}

fn saves(saving: Saving) -> String {
    match saving.at_least_ns {
        Some(least) => range(&signed_duration(least), &signed_duration(saving.at_most_ns)),
        None => format!("up to {}", signed_duration(saving.at_most_ns)),
    }
}

fn length(step: &PredictedLength) -> String {
    range(&duration(step.at_least_ns), &duration(step.at_most_ns))
}

/// `FROM .. TO`, or one figure if both are equal when rounded.
fn range(from: &str, to: &str) -> String {
    if from == to { from.to_owned() } else { format!("{from} .. {to}") }
}

fn garbage(what_if: &WhatIf) -> String {
    let Some(garbage) = &what_if.garbage else {
        return match what_if.id {
            ScenarioId::Freeze | ScenarioId::Explicit => "as now".to_owned(),
            _ => "unknown".to_owned(),
        };
    };
    format!("{} in {}", short_count(garbage.objects), duration(garbage.over_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_analysis::Analysis;
    use gctrace_analysis::report::{Basis, Garbage, PredictedRange, PredictionMethod};

    fn disable() -> WhatIf {
        WhatIf {
            id: ScenarioId::Disable,
            change: "gc.disable()".to_owned(),
            basis: Basis::Predicted,
            method: PredictionMethod::PauseTime,
            pause_time_saved_ns: PredictedRange { at_least_ns: 40_000_000, at_most_ns: 40_000_000 },
            saved_ns: Saving { at_least_ns: None, at_most_ns: 40_000_000 },
            run: None,
            step: None,
            replay_error_ns: None,
            every_steps: None,
            why_every: None,
            garbage: Some(Garbage {
                basis: Basis::Inferred,
                over_ns: 3_600_000_000_000,
                objects: 5_000_000,
                host_bytes: None,
                device_bytes: Some(3 << 20),
            }),
            assumes: String::new(),
            risk: String::new(),
        }
    }

    #[test]
    fn bounds_and_intervals() {
        let mut report = Analysis::default().report();
        assert!(what_if(&report).lines.is_empty());
        report.what_if.push(disable());
        assert!(what_if(&report).lines.is_empty());
        let length = |measured_ns| PredictedLength {
            measured_ns,
            at_least_ns: measured_ns / 2,
            at_most_ns: measured_ns + 1,
        };
        report.what_if[0].run = Some(length(4_000_000_000));
        report.what_if[0].step = Some(length(10_000_000));
        report.what_if[0].saved_ns.at_least_ns = Some(-1_000_000);
        let text = what_if(&report).lines.join("\n");
        assert!(text.contains("-1.00 ms .. 40.0 ms"), "{text}");
        assert!(text.contains("5.00 ms .. 10.0 ms"), "{text}");
        assert!(text.contains("Recorded: the run took 4.00 s"), "{text}");
        assert!(text.contains("5.00 M in 60.0 min"), "{text}");
    }
}
