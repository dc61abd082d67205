//! The setting that a command line chooses: by `--gc`, or an advice by `--from`.

use super::found::{FoundSettings, nothing};
use crate::{analyze, print, render, setting};
use anyhow::Context as _;
use gctrace_analysis::report::{Advice, Report};
use gctrace_settings::GcSetting;
use std::path::PathBuf;

/// The setting of the command line, or of an advice on the traces.
///
/// # Errors
/// No trace can be read, or no advice on them changes only settings.
pub(crate) fn wanted(
    setting: Option<&GcSetting>,
    traces: &[PathBuf],
    number: Option<usize>,
) -> anyhow::Result<GcSetting> {
    if let Some(setting) = setting {
        return Ok(setting.clone());
    }
    if let [path] = traces
        && let Some(found) = FoundSettings::read(path)
    {
        let path = path.display();
        let setting = if let None | Some(1) = number { found.setting.clone() } else { None };
        let setting = setting.with_context(|| format!("{path}: {}", nothing(&found)))?;
        print::message(format!("found in {path}: --gc {setting}"));
        return Ok(setting);
    }
    let (mut analysis, _) = analyze::read_all(traces, None)?;
    let report = render::report(&mut analysis);
    let traces = names(traces);
    let (number, setting) = match number {
        Some(number) => (number, of_number(&report, number, &traces)?),
        None => first_applicable(&report).with_context(|| {
            format!(
                "no advice changes only settings: gctrace analyze {traces} lists all; \
                 gctrace tune -- COMMAND measures settings, --gc names one"
            )
        })?,
    };
    print::message(format!("advice {number} of {traces}: --gc {setting}"));
    Ok(setting)
}

/// The function that marks the steps of these traces by its calls; `None` if they were recorded without one.
pub(crate) fn step_function(traces: &[PathBuf]) -> Option<String> {
    let header = analyze::header(traces.first()?).ok()??;
    header.step_function
}

/// Number and settings of the first advice that changes only settings.
fn first_applicable(report: &Report) -> Option<(usize, GcSetting)> {
    let mut numbers = (1..).zip(&report.advice);
    numbers.find_map(|(number, one)| Some((number, setting::of_advice(one, report)?)))
}

/// Traces as a command names them.
pub(super) fn names(traces: &[PathBuf]) -> String {
    let traces: Vec<String> = traces.iter().map(|trace| trace.display().to_string()).collect();
    traces.join(" ")
}

/// The advice of this number, from 1.
///
/// # Errors
/// There are fewer.
pub(super) fn numbered<'a>(
    report: &'a Report,
    number: usize,
    traces: &str,
) -> anyhow::Result<&'a Advice> {
    let index = number.checked_sub(1);
    index.and_then(|index| report.advice.get(index)).with_context(|| {
        format!(
            "there is no advice {number} in this report, only {}: gctrace analyze {traces}",
            report.advice.len()
        )
    })
}

/// The settings of the advice of this number.
fn of_number(report: &Report, number: usize, traces: &str) -> anyhow::Result<GcSetting> {
    let one = numbered(report, number, traces)?;
    setting::of_advice(one, report).with_context(|| {
        let why = match one.effect.settings {
            Some(_) => "is applied after a step, and the trace has no mark of one",
            None => "changes no setting",
        };
        format!(
            "advice {number} ({}) {why}: gctrace analyze {traces} lists the others; --gc names settings, \
             --step-function the function of a step",
            one.action
        )
    })
}
