//! The next commands: to try a change, to see all evidence, to send the report.

use crate::document::{Block, plain};
use crate::setting;
use gctrace_analysis::report::{Advice, AdviceId, Report};
use gctrace_analysis::words;

/// Longest command that can still be copied, in characters: with traces by the hundred it cannot.
const LONGEST: usize = 400;

/// Whether an advice is a change to make.
pub(super) fn is_change(advice: &Advice) -> bool {
    !matches!(advice.id, AdviceId::Leave | AdviceId::NoCollection)
}

/// Commands to try the `shown` first changes, each with its purpose.
pub(super) fn checks(report: &Report, traces: &str, shown: usize) -> Vec<(String, String)> {
    let command = words::command(report);
    let settings = report.advice.iter().enumerate().take(shown);
    let applicable =
        settings.filter_map(|(index, advice)| Some((index, setting::of_advice(advice, report)?)));
    let mut commands: Vec<(String, String)> = applicable
        .take(1)
        .map(|(index, setting)| {
            (format!("Try {}", index + 1), format!("gctrace apply --gc {setting} -- {command}"))
        })
        .collect();
    let is_of_program = |advice: &Advice| {
        is_change(advice) && !matches!(advice.id, AdviceId::RecordCollections | AdviceId::DumpHang)
    };
    if report.advice.iter().any(is_of_program) {
        let compare = format!("gctrace compare {traces} -- {command}");
        commands.push(("Did it help".to_owned(), compare));
    }
    commands
}

/// The next commands, if the `shown` first changes are on the screen.
pub(super) fn next(report: &Report, traces: &[String], shown: usize) -> Vec<Block> {
    let traces = traces.join(" ");
    let mut commands = checks(report, &traces, shown);
    if let Some(index) = report.advice.iter().position(is_change) {
        commands.push(("Code".to_owned(), format!("gctrace advice {traces} {}", index + 1)));
    }
    commands.push(("More".to_owned(), format!("gctrace analyze --full {traces}")));
    if commands.iter().any(|(_, command)| command.chars().count() > LONGEST) {
        let text =
            "More: gctrace analyze --full, gctrace advice, gctrace export, each with these traces.";
        return vec![plain(text)];
    }
    commands.into_iter().map(|(what, command)| Block::Command(what, command)).collect()
}
