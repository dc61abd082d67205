//! The sections of a page about one run.
//!
//! Owns their order. Figures and sentences are the text report's.

use super::data::RunDrawings;
use crate::document::{Badge, Block, Card, Section, paragraph};
use crate::render::overhead::slowed_by;
use crate::render::{
    allocations, cause, cleanup, counters, cpu, cuda, first_screen, garbage, gpu_bounds,
    gpu_devices, gpu_samples, growth, idle, launching, layers, leak_watch, missing, next, overhead,
    overview, pauses, pressure, ranks, stacks, steps, text,
};
use crate::units::{duration, percent, short_count};
use gctrace_analysis::report::{JudgedPhase, Level, ProcessSteps, Report};
use gctrace_analysis::words;

/// All sections of a run.
pub(super) fn of_run(report: &Report, traces: &str, drawings: &RunDrawings) -> Vec<Section> {
    let sections = [
        verdict(report),
        advice(report, traces),
        idle::on_page(report),
        main_thread(report),
        timeline(drawings),
        places(report),
        flame(drawings),
        freed(report),
        processes(report, drawings),
        heaps(report, drawings),
        by_layer(report, drawings),
        recording(report),
        more(report),
    ];
    sections.into_iter().filter(|section| !section.is_empty()).collect()
}

/// The sentence, the figures and the phases.
pub(super) fn verdict(report: &Report) -> Section {
    let mut all = vec![Block::Cards(cards(report))];
    let phases = if report.runs < 2 { report.phases.as_ref() } else { None };
    all.extend(phases.into_iter().flat_map(first_screen::phases));
    all.extend(steps::cold_steps(report).map(paragraph));
    let class = match report.verdict.level {
        Level::None | Level::Negligible => "good",
        Level::RareLongPauses | Level::Noticeable | Level::Unknown | Level::TooShort => "warn",
        Level::Heavy => "bad",
    };
    let badge = Some(Badge { name: level(report.verdict.level), class });
    Section { badge, ..Section::new(&report.verdict.sentence, all).id("verdict") }
}

fn level(level: Level) -> &'static str {
    match level {
        Level::None => "no collections",
        Level::Unknown => "unknown",
        Level::TooShort => "too short",
        Level::Negligible => "negligible",
        Level::RareLongPauses => "rare long pauses",
        Level::Noticeable => "noticeable",
        Level::Heavy => "heavy",
    }
}

/// The figures of the verdict's process and phase; unknown ones are left out.
fn cards(report: &Report) -> Vec<Card> {
    let ledger = idle::idlest(report);
    let phases = report.phases.as_ref();
    let of_all = report.steps.as_ref().map(|steps| &steps.processes);
    let is_judged = |steps: &&ProcessSteps| {
        phases.is_none_or(|phases| (phases.trace, phases.pid) == (steps.trace, steps.pid))
    };
    let steps = of_all.and_then(|processes| processes.iter().find(is_judged));
    let (totals, phase) = (&report.totals, report.judged_phase());
    let (ratio, longest_ns, count) = match phase {
        Some(phase) => (phase.paused_ratio, phase.longest_collection_ns(), phase.pauses.count),
        None => (totals.stopped_ratio, totals.pauses.max_ns, totals.pauses.count),
    };
    let pauses = if count == 1 { "pause" } else { "pauses" };
    let all = [
        ledger.map(|ledger| (percent(idle::share(ledger.idle_ns, ledger.span_ns)), "GPU idle")),
        report
            .gpu_cost
            .as_ref()
            .map(|cost| (percent(cost.ratio()), "of the run lost to the collector")),
        if count > 0 { ratio.map(|ratio| (percent(ratio), paused(report))) } else { None },
        longest_ns.map(|ns| (duration(ns), "longest pause")),
        if count > 0 { Some((short_count(count), pauses)) } else { None },
        steps.map(|steps| (duration(steps.length.p50_ns), "median step")),
        steps.map(|steps| (duration(steps.length.max_ns), "longest step")),
        slowed_by(&report.overhead).map(|share| (share, "cost of recording (inferred)")),
    ];
    all.into_iter().flatten().map(|(figure, name)| Card { figure, name }).collect()
}

/// The whole of a share of paused time: the phase of the verdict.
fn paused(report: &Report) -> &'static str {
    let phases = report.phases.as_ref();
    match phases.map(|phases| (phases.judged, phases.steps)) {
        Some((JudgedPhase::StartUp, _)) => "of the start-up paused",
        Some((JudgedPhase::Training, Some(_))) => "of training paused",
        _ => "of the run paused",
    }
}

fn advice(report: &Report, traces: &str) -> Section {
    let mut all = Vec::new();
    if report.runs < 2 {
        let list = report.advice.iter().enumerate();
        all.extend(list.map(|(index, advice)| text::change(index, advice, report)));
        if report.advice.is_empty() {
            all.push(paragraph(first_screen::nothing(report)));
        }
        let checks = next::checks(report, traces, usize::MAX).into_iter();
        all.extend(checks.map(|(what, command)| Block::Command(what, command)));
    }
    Section::new("Do this", all).id("advice")
}

/// The activity of the main thread without the GPU's times.
fn main_thread(report: &Report) -> Section {
    let mut all = cpu::main_thread(report);
    let short = words::samples::samples_in_short(report);
    all.extend(short.map(paragraph));
    let tables = cpu::off_cpu(report).blocks;
    if !all.is_empty() && !tables.is_empty() {
        all.push(Block::More("By line".to_owned(), tables));
    }
    Section::new("What the main thread did", all).id("main")
}

fn timeline(drawings: &RunDrawings) -> Section {
    let mut all = Vec::from_iter(drawings.of_kind("timeline"));
    if !all.is_empty() && !drawings.not_drawn.is_empty() {
        all.push(Block::Note(drawings.not_drawn.clone()));
    }
    let heading = match (drawings.steps_drawn(), drawings.has_pauses) {
        (Some("steps"), true) => "Steps and pauses over time",
        (Some("steps"), false) => "Steps over time",
        (Some(_), true) => "Turns and pauses over time",
        (Some(_), false) => "Turns over time",
        (None, _) => "Pauses over time",
    };
    Section::new(heading, all).id("time")
}

/// The lines that trigger collections.
fn places(report: &Report) -> Section {
    Section { heading: "Where it comes from".to_owned(), ..stacks::lines(report) }
        .id("lines")
        .about("the line of the program that triggered the collections")
}

fn flame(drawings: &RunDrawings) -> Section {
    Section::new("Flame graph", Vec::from_iter(drawings.of_kind("flame")))
        .id("flame")
        .about("time of pauses by the Python stack that triggered them")
}

fn freed(report: &Report) -> Section {
    Section { heading: "What it frees".to_owned(), ..garbage::garbage(report) }
        .id("freed")
        .about("objects that only the collector could free")
}

fn processes(report: &Report, drawings: &RunDrawings) -> Section {
    let mut all = Vec::from_iter(drawings.of_kind("heat"));
    all.extend(ranks::ranks(report).blocks);
    if report.processes.len() > 1 || report.totals.processes_without_pauses > 0 {
        all.extend(evidence(overview::processes(report)));
    }
    let heading = if drawings.has("heat") { "Processes and ranks" } else { "Processes" };
    Section::new(heading, all).id("processes")
}

fn heaps(report: &Report, drawings: &RunDrawings) -> Section {
    let mut all = Vec::from_iter(leak_watch::in_short(report).map(paragraph));
    all.extend(["heap", "memory"].into_iter().filter_map(|kind| drawings.of_kind(kind)));
    all.extend(growth::growth(report).blocks);
    all.extend(evidence(leak_watch::section(report)));
    all.extend(evidence(cleanup::section(report)));
    Section::new("Heap and memory over time", all)
        .id("heap")
        .about("objects that full collections went through, and memory")
}

/// PyTorch's memory by layer; empty without measured layers.
fn by_layer(report: &Report, drawings: &RunDrawings) -> Section {
    let mut all = Vec::from_iter(layers::in_short(report).map(paragraph));
    all.extend(drawings.of_kind("layers"));
    all.extend(layers::layers(report).blocks);
    Section::new("Memory by layer", all)
        .id("layers")
        .about("of PyTorch's models, in measured steps")
}

/// The mode of the recording, its cost and its losses.
fn recording(report: &Report) -> Section {
    let mut all = overview::recording(report).blocks;
    let parts = [overhead::own_cost(report), missing::missing(report)];
    all.extend(parts.into_iter().flat_map(evidence));
    if !report.not_covered.is_empty() {
        all.push(Block::Heading("Not covered".to_owned()));
        all.extend(report.not_covered.iter().map(paragraph));
    }
    Section::new("How it was recorded", all).id("recording")
}

/// Everything else that the full report has.
fn more(report: &Report) -> Section {
    let all = [
        pauses::pauses(report),
        stacks::stacks(report),
        pauses::longest(report),
        pauses::freed_nothing(report),
        pauses::explicit_calls(report),
        pressure::pressure(report),
        allocations::allocations(report),
        cause::cause(report),
        gpu_bounds::gpu_bounds(report),
        steps::steps(report),
        gpu_devices::gpu_work(report),
        gpu_devices::gpu_devices(report),
        launching::launching(report),
        cuda::cuda(report),
        cpu::processor(report),
        counters::counters(report),
        cpu::cpu(report),
        gpu_samples::gpus(report),
    ];
    let shown = all.into_iter().filter(|section| !section.is_empty());
    let folded = shown.map(|section| Block::More(section.heading, section.blocks));
    Section::new("All evidence", folded.collect()).id("more")
}

/// A section of the text report under its heading; nothing if it is empty.
fn evidence(section: Section) -> Vec<Block> {
    if section.is_empty() {
        return Vec::new();
    }
    std::iter::once(Block::Heading(section.heading)).chain(section.blocks).collect()
}

#[cfg(test)]
mod tests {
    use super::cards;
    use gctrace_event::{GcReason, Pause, Record};
    use test_kit::reports::{end, exit, pause, process, report};

    /// The exit's pause is no figure of the verdict: the verdict is not about the exit.
    #[test]
    fn cards_are_of_what_is_judged() {
        let mut records = vec![process(1, 0, "generational")];
        let run = (200..9_000).step_by(200).map(|at| Record::Pause(pause(1, at, at + 40)));
        records.extend(run);
        let reason = GcReason::Shutdown;
        records.push(Record::Pause(Pause { reason, ..pause(1, 9_100, 9_900) }));
        records.push(exit(1, 10_000));
        let report = report(records, Some(end(10_000)));
        let phase = report.judged_phase().unwrap();
        assert_eq!((phase.longest_ns, phase.pauses.count), (Some(40_000_000), 44));
        let cards: Vec<String> =
            cards(&report).iter().map(|card| format!("{} {}", card.figure, card.name)).collect();
        let text = cards.join("; ").replace('\u{a0}', " ");
        for part in ["of the run paused", "40.0 ms longest pause", "44 pauses"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
