//! The section on the cost of recording.

use crate::document::Section;
use crate::text::mark;
use crate::units::{count, counted, duration, percent};
use gctrace_analysis::report::{OverheadReport, ProbeReport, Report};
use gctrace_event::ProbeCost;

pub(crate) fn own_cost(report: &Report) -> Section {
    let cost = &report.overhead;
    let mut sentences = Vec::new();
    if let Some(slowed) = slowed(cost) {
        let time = if cost.cpu_ratio.is_some() { cpu_time(cost) } else { None };
        let time = time.map_or(String::new(), |time| format!(": {time} of CPU time"));
        sentences.push(format!("{slowed}{time}."));
    }
    if let Some(stopped_ns) = cost.stopped_ns {
        sentences.push(format!("It was stopped for {}, for its probes.", duration(stopped_ns)));
    }
    let probes: Vec<String> =
        cost.probes.iter().filter(|probe| !probe.elsewhere).map(hits).collect();
    if !probes.is_empty() {
        sentences.push(probes.join("; ") + ".");
    }
    sentences.extend(cost_elsewhere(report));
    if cost.traces_without_overhead > 0 && report.totals.pauses.count > 0 {
        let traces = counted(cost.traces_without_overhead, "trace");
        sentences.push(format!("{traces} without recorded overhead."));
    }
    Section::of_sentences("Recording overhead", &sentences)
}

/// By how much recording slowed the program, in a sentence without its end. If the program's CPU time is unknown: the
/// CPU time that recording took.
pub(crate) fn slowed(cost: &OverheadReport) -> Option<String> {
    let basis = mark(cost.basis);
    match slowed_by(cost) {
        Some(share) => Some(format!("gctrace slowed the program by {share}{basis}")),
        None => Some(format!("gctrace took {} of its CPU time{basis}", cpu_time(cost)?)),
    }
}

/// CPU time that recording took, as a range.
fn cpu_time(cost: &OverheadReport) -> Option<String> {
    Some(range(&duration(cost.time_at_least_ns?), &duration(cost.time_at_most_ns?)))
}

/// By how much recording slowed the program, as a range.
pub(crate) fn slowed_by(cost: &OverheadReport) -> Option<String> {
    Some(range(&percent(cost.cpu_ratio_at_least?), &percent(cost.cpu_ratio_at_most?)))
}

/// A unit that both have is printed once.
fn range(least: &str, most: &str) -> String {
    let unit = |figure: &str| figure.rsplit_once(' ').map(|(_, unit)| unit.to_owned());
    match least.rsplit_once(' ') {
        _ if least == most => most.to_owned(),
        Some((number, own)) if Some(own) == unit(most).as_deref() => format!("{number} - {most}"),
        _ => format!("{least} - {most}"),
    }
}

fn hits(probe: &ProbeReport) -> String {
    let price = match probe.ns_per_hit {
        Some(ns) => format!("{} each", duration(ns as u64)),
        None => "cost unknown".to_owned(),
    };
    format!("{}: {}, {price}", probe.probe, counted(probe.hits, "hit"))
}

/// The cost of probes to processes that were not recorded, if they hit any.
pub(crate) fn cost_elsewhere(report: &Report) -> Option<String> {
    let probes = report.overhead.probes.iter().filter(|probe| probe.elsewhere);
    let costs: Vec<String> = probes
        .map(|probe| {
            let what = match probe.probe.as_str() {
                ProbeCost::CUDA_ELSEWHERE => "CUDA call",
                ProbeCost::CODE_ELSEWHERE => "time they free the code of a function",
                _ => "collection",
            };
            match probe.ns_per_hit {
                Some(ns) => format!("{} each {what}", duration(ns as u64)),
                None => format!("an unknown time each {what} ({})", count(probe.hits)),
            }
        })
        .collect();
    if costs.is_empty() {
        return None;
    }
    let total = report.overhead.elsewhere_ns;
    let total =
        total.map(|ns| format!(" {}{} in total:", duration(ns), mark(report.overhead.basis)));
    Some(format!(
        "Other processes of the same Python were not recorded, but ran longer for the probes,{} {}.",
        gctrace_units::if_known(total),
        costs.join(" and "),
    ))
}
