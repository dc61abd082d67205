//! The sections of a page about one run.
//!
//! Owns their order. Figures and sentences are those of the text report.

use super::blocks::{
    AdviceBlock, Badge, Block, Card, Cell, Section, Table, blocks, evidence, figures_together,
};
use super::data::RunDrawings;
use super::idle;
use crate::render::evidence::slowed_by;
use crate::render::table::for_page;
use crate::render::{
    allocations, cause, cleanup, counters, cpu, cuda, evidence as facts, first_screen, garbage,
    gpu_bounds, gpu_devices, gpus, launching, layers, leaks, lines, missing, next, overview,
    pressure, ranks, steps, text,
};
use crate::text::OrDash as _;
use crate::units::{bytes, count, duration, percent, short_count};
use gctrace_analysis::report::{
    Advice, GarbageKind, JudgedPhase, Level, LineReport, ProcessSteps, Report,
};
use gctrace_analysis::words;
use gctrace_analysis::words::cycles;

/// Kinds of garbage in a table, and the least share of one; the others are in the JSON.
const ROWS: usize = 15;
const KIND_RATIO: f64 = 0.001;

/// All sections of a run, whose drawings have this place in the data.
pub(super) fn of_run(
    report: &Report,
    traces: &str,
    drawings: &RunDrawings,
    run: usize,
) -> Vec<Section> {
    let sections = [
        verdict(report),
        advice(report, traces),
        idle::idle(report),
        main_thread(report),
        timeline(drawings, run),
        places(report),
        flame(drawings, run),
        freed(report),
        processes(report, drawings, run),
        heaps(report, drawings, run),
        by_layer(report, drawings, run),
        recording(report),
        more(report),
    ];
    sections.into_iter().filter(|section| !section.blocks.is_empty()).collect()
}

/// The sentence, the figures and the phases.
pub(super) fn verdict(report: &Report) -> Section {
    let mut all = vec![Block::Cards(cards(report))];
    let phases = report.phases.as_ref().filter(|_| report.runs < 2);
    all.extend(blocks(&for_page(|| phases.map_or_else(Vec::new, first_screen::phases))));
    all.extend(steps::cold_steps(report).map(|text| Block::Text(figures_together(&text))));
    let class = match report.verdict.level {
        Level::None | Level::Negligible => "good",
        Level::RareLongPauses | Level::Noticeable | Level::Unknown | Level::TooShort => "warn",
        Level::Heavy => "bad",
    };
    Section {
        badge: Some(Badge { name: level(report.verdict.level).to_owned(), class }),
        ..Section::new("verdict", &figures_together(&report.verdict.sentence), all)
    }
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

/// The figures of what the verdict is about: its process and phase; unknown ones are left out.
fn cards(report: &Report) -> Vec<Card> {
    let ledger = crate::render::idle::idlest(report);
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
        ledger.map(|ledger| (percent(idle::share(ledger)), "GPU idle")),
        report
            .gpu_cost
            .as_ref()
            .map(|cost| (percent(cost.ratio()), "of the run lost to the collector")),
        ratio.filter(|_| count > 0).map(|ratio| (percent(ratio), paused(report))),
        longest_ns.map(|ns| (duration(ns), "longest pause")),
        Some(count).filter(|count| *count > 0).map(|count| (short_count(count), pauses)),
        steps.map(|steps| (duration(steps.length.p50_ns), "median step")),
        steps.map(|steps| (duration(steps.length.max_ns), "longest step")),
        slowed_by(&report.overhead).map(|share| (share, "cost of recording (inferred)")),
    ];
    let card = |(figure, name): (String, &str)| Card {
        figure: figures_together(&figure),
        name: name.to_owned(),
    };
    all.into_iter().flatten().map(card).collect()
}

/// What a share of paused time is of: the phase that the verdict is about.
fn paused(report: &Report) -> &'static str {
    let phases = report.phases.as_ref();
    match phases.map(|phases| (phases.judged, phases.steps)) {
        Some((JudgedPhase::StartUp, _)) => "of the start-up paused",
        Some((JudgedPhase::Training, Some(_))) => "of training paused",
        _ => "of the run paused",
    }
}

fn advice(report: &Report, traces: &str) -> Section {
    let numbered = |(number, advice): (usize, &Advice)| {
        Block::Advice(AdviceBlock {
            number,
            action: figures_together(&advice.action),
            why: figures_together(&advice.why),
            saves: figures_together(&text::saves(advice, report)),
            code: advice.code.as_deref().map_or_else(String::new, clean_code),
            risk: advice.risk.as_deref().map_or_else(String::new, figures_together),
        })
    };
    let list = |list: &[Advice]| (1..).zip(list).map(numbered).collect::<Vec<Block>>();
    let mut all = Vec::new();
    if report.runs < 2 {
        all = list(&report.advice);
        if report.advice.is_empty() {
            all.push(Block::Text(figures_together(&first_screen::nothing(report))));
        }
        for (what, command) in next::checks(report, traces, usize::MAX) {
            all.push(Block::Code(what.to_owned(), clean_code(&command)));
        }
    }
    Section::new("advice", "Do this", all)
}

/// Several lines without characters that would look like others.
fn clean_code(code: &str) -> String {
    let lines: Vec<_> = code.lines().map(crate::print::clean::line).collect();
    lines.join("\n")
}

/// What the main thread did without the GPU's times.
fn main_thread(report: &Report) -> Section {
    let mut all = idle::main_thread(report);
    let short = words::samples::samples_in_short(report);
    all.extend(short.map(|text| Block::Text(figures_together(&text))));
    let tables = blocks(&for_page(|| cpu::off_cpu(report).lines));
    if !all.is_empty() && !tables.is_empty() {
        all.push(Block::More("By line".to_owned(), tables));
    }
    Section::new("main", "What the main thread did", all)
}

fn timeline(drawings: &RunDrawings, run: usize) -> Section {
    let mut all = Vec::new();
    if drawings.has_pauses || drawings.has_steps {
        all.push(Block::Drawing("timeline", run));
        if !drawings.not_drawn.is_empty() {
            all.push(Block::Note(figures_together(&drawings.not_drawn)));
        }
    }
    let heading = match (drawings.has_steps, drawings.has_pauses) {
        (true, true) => "Steps and pauses over time",
        (true, false) => "Steps over time",
        (false, _) => "Pauses over time",
    };
    Section::new("time", heading, all)
}

/// The lines that trigger collections.
fn places(report: &Report) -> Section {
    let Some(lines) = report.lines.as_ref().filter(|lines| !lines.own.is_empty()) else {
        return Section::new("lines", "", Vec::new());
    };
    let names = lines::FileNames::new(lines);
    let largest = lines.own.first().map_or(0.0, |line| line.time_ratio);
    let row = |line: &LineReport| {
        let full = line.by_generation.get(2).map_or(0, |full| full.count);
        let below = lines::below(line, &names).unwrap_or_default();
        vec![
            Cell {
                below: figures_together(&below),
                ..Cell::left(figures_together(&names.line(line)))
            },
            Cell::share(percent(line.time_ratio), line.time_ratio, largest),
            Cell::figure(duration(line.pauses.time_ns), line.pauses.time_ns),
            Cell::figure(duration(line.max_ns), line.max_ns),
            Cell::figure(short_count(line.pauses.count), line.pauses.count).wide(),
            Cell::figure(short_count(full), full).wide(),
        ]
    };
    let sorted = Cell { value: "1".to_owned(), ..head("share") };
    let table = Table {
        head: vec![
            Cell::left("line"),
            sorted,
            head("time"),
            head("longest"),
            head("pauses").wide(),
            head("full").wide(),
        ],
        rows: lines::shown(lines).map(row).collect(),
        sortable: true,
    };
    let mut all = vec![Block::Table(table)];
    let more = lines.own_total.saturating_sub(lines::shown(lines).count() as u64);
    if more > 0 {
        all.push(Block::Note(format!("and {} other lines", count(more))));
    }
    let rest = for_page(|| {
        let mut rest = lines::by_process(&report.processes, &names);
        rest.extend(lines::remarks(lines, &names));
        rest
    });
    all.extend(blocks(&rest));
    Section::new("lines", "Where it comes from", all)
        .about("the line of the program that triggered the collections")
}

fn head(text: &str) -> Cell {
    Cell { text: text.to_owned(), ..Cell::default() }
}

fn flame(drawings: &RunDrawings, run: usize) -> Section {
    let all = if drawings.has_stacks { vec![Block::Drawing("flame", run)] } else { Vec::new() };
    Section::new("flame", "Flame graph", all)
        .about("time of pauses by the Python stack that triggered them")
}

fn freed(report: &Report) -> Section {
    let mut all = Vec::new();
    if let Some(of) = &report.garbage {
        all.push(Block::Text(figures_together(&garbage::examined(of))));
        let largest = of.kinds.first().map_or(0.0, |kind| kind.ratio);
        let row = |kind: &GarbageKind| {
            let (function, file) = (kind.function.as_deref(), kind.file.as_deref());
            let name = cycles::kind(&kind.type_name, function, file, kind.line);
            let below = kind.births.as_ref().map(cycles::births).unwrap_or_default();
            vec![
                Cell { below: figures_together(&below), ..Cell::left(figures_together(&name)) },
                Cell::share(percent(kind.ratio), kind.ratio, largest),
                Cell::figure(short_count(kind.objects), kind.objects),
                head(&garbage::rate(kind.per_step, kind.estimate, of.steps.is_some())).wide(),
                Cell::figure(kind.bytes.map(bytes).or_dash(), kind.bytes.unwrap_or(0)).wide(),
            ]
        };
        let worth = |kind: &&GarbageKind| kind.ratio >= KIND_RATIO;
        let sorted = Cell { value: "1".to_owned(), ..head("share") };
        all.push(Block::Table(Table {
            head: vec![
                Cell::left("kind"),
                sorted,
                head("objects"),
                head(garbage::rate_head(of)).wide(),
                head("bytes").wide(),
            ],
            rows: of.kinds.iter().take(ROWS).filter(worth).map(row).collect(),
            sortable: false,
        }));
        if let Some(verdict) = &of.verdict {
            all.push(Block::Text(figures_together(&verdict.sentence)));
        }
        all.extend(blocks(&for_page(|| garbage::cycles(of))));
    }
    let of_processes = report.processes.iter();
    let of_processes = of_processes
        .flat_map(|process| [garbage::given_back(process), garbage::after_freeze(process)]);
    all.extend(of_processes.flatten().map(|text| Block::Text(figures_together(&text))));
    Section::new("freed", "What it frees", all).about("objects that only the collector could free")
}

fn processes(report: &Report, drawings: &RunDrawings, run: usize) -> Section {
    let mut all = Vec::new();
    if drawings.has_heat {
        all.push(Block::Drawing("heat", run));
    }
    all.extend(blocks(&for_page(|| ranks::ranks(report).lines)));
    if report.processes.len() > 1 || report.totals.processes_without_pauses > 0 {
        all.extend(evidence(for_page(|| overview::processes(report))));
    }
    let heading = if drawings.has_heat { "Processes and ranks" } else { "Processes" };
    Section::new("processes", heading, all)
}

fn heaps(report: &Report, drawings: &RunDrawings, run: usize) -> Section {
    let mut all = Vec::new();
    if let Some(leak) = leaks::in_short(report) {
        all.push(Block::Text(figures_together(&leak)));
    }
    if drawings.has_heaps {
        all.push(Block::Drawing("heap", run));
    }
    if drawings.has_memory {
        all.push(Block::Drawing("memory", run));
    }
    all.extend(blocks(&for_page(|| facts::growth(report).lines)));
    all.extend(evidence(for_page(|| leaks::section(report))));
    all.extend(evidence(for_page(|| cleanup::section(report))));
    Section::new("heap", "Heap and memory over time", all)
        .about("objects that full collections went through, and memory")
}

/// PyTorch's memory by layer; empty without measured layers.
fn by_layer(report: &Report, drawings: &RunDrawings, run: usize) -> Section {
    let mut all = Vec::new();
    let short = words::layers::layers_in_short(report);
    all.extend(short.map(|text| Block::Text(figures_together(&text))));
    if drawings.has_layers {
        all.push(Block::Drawing("layers", run));
    }
    all.extend(blocks(&for_page(|| layers::layers(report).lines)));
    Section::new("layers", "Memory by layer", all).about("of PyTorch's models, in measured steps")
}

/// How it was recorded, what that cost, and what is not known.
fn recording(report: &Report) -> Section {
    let mut all = blocks(&for_page(|| overview::recording(report).lines));
    let parts = for_page(|| [facts::own_cost(report), missing::missing(report)]);
    all.extend(parts.into_iter().flat_map(evidence));
    if !report.not_covered.is_empty() {
        all.push(Block::Heading("Not covered".to_owned()));
        let gaps = report.not_covered.iter().map(ToString::to_string);
        all.extend(gaps.map(|gap| Block::Text(figures_together(&gap))));
    }
    Section::new("recording", "How it was recorded", all)
}

/// Everything else that the full report has.
fn more(report: &Report) -> Section {
    let all = for_page(|| {
        [
            overview::pauses(report),
            lines::stacks(report),
            facts::longest(report),
            facts::freed_nothing(report),
            facts::explicit_calls(report),
            pressure::pressure(report),
            allocations::allocations(report),
            cause::cause(report),
            gpu_bounds::gpu_bounds(report),
            steps::steps(report),
            gpu_devices::gpu_work(report),
            gpu_devices::gpu_devices(report),
            launching::launching(report),
            cuda::cuda(report),
            facts::processor(report),
            counters::counters(report),
            cpu::cpu(report),
            gpus::gpus(report),
        ]
    });
    let folded = all.into_iter().filter(|section| !section.lines.is_empty());
    let folded =
        folded.map(|section| Block::More(section.heading.to_owned(), blocks(&section.lines)));
    Section::new("more", "All evidence", folded.collect())
}

#[cfg(test)]
mod tests {
    use super::cards;
    use gctrace_event::{GcReason, Pause, Record};
    use test_kit::reports::{end, exit, pause, process, report};

    /// The exit's pause, which the verdict is not about, is no figure of it.
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
