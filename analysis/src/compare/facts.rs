//! Differences between the runs other than the figures.

use super::judged;
use super::report::{FactChange, FactId};
use crate::report::{Report, TraceReport};
use std::collections::BTreeSet;

/// The facts of two sides.
pub(super) struct ComparedFacts {
    pub(super) changed: Vec<FactChange>,
    pub(super) unchanged: Vec<FactId>,
    pub(super) unknown: Vec<FactId>,
}

/// All facts, in the order of display.
const FACTS: [FactId; 15] = [
    FactId::Command,
    FactId::Commit,
    FactId::Modified,
    FactId::Interpreter,
    FactId::Torch,
    FactId::Thresholds,
    FactId::Enabled,
    FactId::Frozen,
    FactId::Gpus,
    FactId::Driver,
    FactId::Host,
    FactId::Kernel,
    FactId::Cpus,
    FactId::Mode,
    FactId::Gctrace,
];

pub(super) fn compare(before: &[Report], after: &[Report]) -> ComparedFacts {
    let mut facts =
        ComparedFacts { changed: Vec::new(), unchanged: Vec::new(), unknown: Vec::new() };
    for fact in FACTS {
        let values = |reports: &[Report]| -> Option<BTreeSet<String>> {
            reports.iter().map(|report| value(report, fact)).collect()
        };
        match (values(before), values(after)) {
            (Some(before), Some(after)) if before == after => facts.unchanged.push(fact),
            (Some(before), Some(after)) => facts.changed.push(FactChange {
                fact,
                before: before.into_iter().collect(),
                after: after.into_iter().collect(),
            }),
            _ => facts.unknown.push(fact),
        }
    }
    facts
}

/// The value of a fact in one run; `None` if it is unknown.
fn value(report: &Report, fact: FactId) -> Option<String> {
    let trace = trace(report)?;
    let process = judged(report);
    let settings = process.and_then(|process| process.settings.as_ref());
    let known = |text: &String| if text.is_empty() { None } else { Some(text.clone()) };
    match fact {
        FactId::Command => match process {
            _ if !trace.command.is_empty() => Some(trace.command.join(" ")),
            Some(process) if !process.command.is_empty() => Some(process.command.join(" ")),
            _ => None,
        },
        FactId::Commit => trace.git_commit.clone(),
        FactId::Modified => trace.git_modified.map(yes_or_no),
        FactId::Interpreter => {
            let interpreter = process?.interpreter.as_ref()?;
            let build = if interpreter.free_threaded { " free-threaded" } else { "" };
            known(&interpreter.version).map(|version| version + build)
        }
        FactId::Torch => process?.torch.clone(),
        FactId::Thresholds => settings.map(|settings| {
            let [young, middle, old] = settings.thresholds;
            format!("{young}, {middle}, {old}")
        }),
        FactId::Enabled => settings?.enabled.map(yes_or_no),
        FactId::Frozen => report.series.as_ref()?.frozen.map(yes_or_no),
        FactId::Gpus => of_gpus(report, |gpu| gpu.name.as_ref()),
        FactId::Driver => of_gpus(report, |gpu| gpu.driver.as_ref()),
        FactId::Host => known(trace.host.as_ref()?),
        FactId::Kernel => known(trace.kernel.as_ref()?),
        FactId::Cpus => trace.cpus.map(|cpus| cpus.to_string()),
        FactId::Mode => {
            let recorded = trace.recorded.as_ref()?;
            Some(recorded.mode.as_ref().to_owned())
        }
        FactId::Gctrace => known(trace.recorded_by.as_ref()?),
    }
}

/// The trace of the process that is compared.
fn trace(report: &Report) -> Option<&TraceReport> {
    let index = if let Some(process) = judged(report) { process.trace } else { 0 };
    report.traces.get(index)
}

fn yes_or_no(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}

/// A property of all GPUs; `None` without GPUs, or if one does not have it.
fn of_gpus(
    report: &Report,
    property: fn(&crate::report::GpuReport) -> Option<&String>,
) -> Option<String> {
    let values: Option<Vec<&str>> =
        report.gpus.iter().map(|gpu| property(gpu).map(String::as_str)).collect();
    let mut values = values.filter(|values| !values.is_empty())?;
    values.dedup();
    Some(values.join(", "))
}
