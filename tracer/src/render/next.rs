//! What to run next: commands to try a change, to see all evidence, to send the report.

use super::table::{width, wrap};
use crate::setting;
use gctrace_analysis::report::{Advice, AdviceId, Report};

/// Whether an advice is a change to make.
pub(super) fn is_change(advice: &Advice) -> bool {
    !matches!(advice.id, AdviceId::Leave | AdviceId::NoCollection)
}

/// Whether `gctrace apply` can make the change.
fn is_applicable(advice: &Advice, report: &Report) -> bool {
    setting::of_advice(advice, report).is_some()
}

/// What to run to try the changes, each with what it is for.
pub(super) fn checks(report: &Report, traces: &str) -> Vec<(&'static str, String)> {
    let applicable = report.advice.iter().any(|advice| is_applicable(advice, report));
    let is_by_hand =
        |advice: &Advice| advice.id == AdviceId::BreakCycles || advice.id.is_of_waits();
    let mut commands = Vec::new();
    if applicable {
        commands.push(("Try it", format!("gctrace apply --from {traces} -- COMMAND")));
    }
    if applicable || report.advice.iter().any(is_by_hand) {
        commands.push(("Did it help", format!("gctrace compare {traces} -- COMMAND")));
    }
    commands
}

/// What to run next.
pub(super) fn next(report: &Report, traces: &[String]) -> Vec<String> {
    let traces = traces.join(" ");
    let mut commands = Vec::new();
    if let Some(index) = report.advice.iter().position(is_change) {
        commands.push(("Code and risks", format!("gctrace advice {traces} {}", index + 1)));
    }
    commands.extend(checks(report, &traces));
    commands.push(("All evidence", format!("gctrace analyze --full {traces}")));
    if report.lines.is_some() && !report.advice.iter().any(|advice| is_applicable(advice, report)) {
        commands.push(("As a page", format!("gctrace report {traces}")));
    }
    let lines =
        commands.into_iter().map(|(what, command)| format!("{:<18}{command}", format!("{what}:")));
    let lines: Vec<String> = lines.collect();
    let fits = |line: &String| line.chars().count() <= width();
    if lines.iter().all(fits) {
        lines
    } else {
        wrap(
            "More: gctrace analyze --full, gctrace advice, gctrace export, each with these traces.",
            "",
            "",
        )
    }
}
