//! The short report: the cost of the collector, the changes to make, the lines of the cost.
//!
//! Owns the default output of `gctrace analyze`, at most 24 lines, and the verdict at the end
//! of a recording. The full report has the evidence.

use super::launching::BARS;
use super::next::{is_change, next};
use super::{cleanup, garbage, idle, layers, leak_watch, missing, overhead, steps, turns};
use crate::document::{
    Block, INDENT, Paragraph, Section, Style, Table, Tone, hanging, lines, paragraph, plain,
};
use crate::text::OrDash as _;
use crate::units::{count, counted, duration, percent};
use gctrace_analysis::report::{
    Advice, AdviceId, JudgedPhase, Level, PhaseReport, PhasesReport, Report, TraceReport,
    TrainingMark,
};
use gctrace_analysis::words;
use gctrace_analysis::words::advice::{measured, saves};
use gctrace_event::RecordingMode;

/// Maximum lines of the short report.
pub(super) const LINES: usize = 24;
/// Advice shown.
const ADVICE_SHOWN: usize = 3;
/// Maximum lines of all advice shown; the first is shown whatever its length.
const ADVICE_LINES: usize = 6;
/// Lines of the program shown.
const PLACES_SHOWN: usize = 3;
/// A phase beside the judged one is named if it lost this part of the run or more.
const WORTH: f64 = 0.01;

/// The short report on `traces`, names as the user gave them.
pub fn first_screen(report: &Report, traces: &[String], style: Style) -> Vec<Section> {
    let length = |blocks: &[Block]| lines(blocks, style).len();
    let head = vec![verdict(report)];
    let of_run = report.runs < 2;
    let (change, shown) = if of_run { advice(report, style) } else { (Vec::new(), 0) };
    let mut rest = vec![plain(trust(report))];
    rest.extend(next(report, traces, shown));
    let mut used = length(&head) + 1 + length(&rest);
    used += if change.is_empty() { 0 } else { length(&change) + 2 };
    let loops = if of_run { turns::in_short(report) } else { Vec::new() };
    used += if loops.is_empty() { 0 } else { length(&loops) + 1 };
    let context = context(report, of_run, style.width());
    // At least the first line: the verdict is nothing without a place. The first of the rest are worth more than the
    // last one.
    let first = if let Some(blocks) = context.first() { length(blocks) + 1 } else { 0 };
    let least = PLACES_SHOWN - 1;
    let room = LINES.saturating_sub(used + 2);
    let shown_places = room.saturating_sub(first).clamp(least, PLACES_SHOWN);
    let places = Vec::from_iter(super::stacks::costliest(report, shown_places.min(room).max(1)));
    used += if places.is_empty() { 0 } else { length(&places) + 2 };
    let mut about = Vec::new();
    for blocks in context {
        // The first has a blank line before it.
        if used + length(&about) + length(&blocks) < LINES {
            about.extend(blocks);
        }
    }
    vec![
        Section::new("", head),
        Section::new("", loops),
        Section::new("Do this", change),
        Section::new("Where it comes from", places),
        Section::new("", about),
        Section::new("", rest),
    ]
}

/// Further facts, the most useful first: each part is shown whole, where there is room. `width`: characters of a line.
fn context(report: &Report, of_run: bool, width: usize) -> Vec<Vec<Block>> {
    let changes = report.advice.iter().any(is_change);
    // Freeing nothing is the reason why they are not worth their time; other activity is news.
    let freed = garbage::in_short(report, width);
    let (freed, freed_nothing) = match report.frees_nothing() {
        Some(true) => (None, freed),
        _ => (freed, None),
    };
    let gpu = if of_run { idle::idle_in_short(report) } else { Vec::new() };
    let sentences = [
        words::memory::memory_in_short(report)
            .or_else(|| if changes { words::memory::resident_in_short(report) } else { None }),
        leak_watch::in_short(report),
        freed,
        words::samples::samples_in_short(report),
        freed_nothing,
        words::memory::interpreter_in_short(report),
        else_where(report),
        cleanup::in_short(report),
        layers::in_short(report),
        if of_run { steps::cold_steps(report) } else { None },
    ];
    let mut all = if gpu.is_empty() { Vec::new() } else { vec![gpu] };
    all.extend(sentences.into_iter().flatten().map(|text| vec![hanging(text, "", INDENT)]));
    all
}

/// The verdict and the costliest change, for the end of a recording: at most five lines.
pub fn verdict_lines(report: &Report) -> Vec<String> {
    let mut blocks = vec![plain(&report.verdict.sentence)];
    if let Some(first) = report.advice.iter().find(|advice| is_change(advice)) {
        let effect = effect(first, report).map_or(String::new(), |effect| format!(" ({effect})"));
        let action = first.action.trim_end_matches('.');
        blocks.push(hanging(format!("Do this: {action}{effect}."), "", INDENT));
    }
    lines(&blocks, Style::OF_FILES)
}

/// The losses of other phases, if worth a line and in no advice: `It paused also 160 ms of start-up (2.10 s).`
fn else_where(report: &Report) -> Option<String> {
    let phases = report.phases.as_ref()?;
    let whole_ns = phases.unhindered_ns().max(1);
    let is_exit_advised = report.advice.iter().any(|advice| advice.id == AdviceId::FreezeAtExit);
    let parts = [
        (phases.judged != JudgedPhase::StartUp, "start-up", &phases.start_up),
        (phases.judged != JudgedPhase::Training, "the time after it", &phases.training),
        (!is_exit_advised, "exit", &phases.exit),
    ];
    // In-process the last collections are not recorded; only the whole time of an interpreter's end is.
    let end_ns = || report.judged_process()?.unseen.as_ref()?.end_ns;
    let mut named = Vec::new();
    for (_, name, phase) in parts.into_iter().filter(|(is_other, ..)| *is_other) {
        let seen_ns = phase.collected_ns();
        let (up_to, paused_ns) = match end_ns() {
            Some(end_ns) if name == "exit" && end_ns > seen_ns => ("up to ", end_ns),
            _ => ("", seen_ns),
        };
        if paused_ns as f64 >= WORTH * whole_ns as f64 {
            let (paused, of) = (duration(paused_ns), duration(phase.unhindered_ns()));
            named.push(format!("{up_to}{paused} of {name} ({of})"));
        }
    }
    if named.is_empty() { None } else { Some(format!("It paused also {}.", named.join(" and "))) }
}

pub(super) fn phases(phases: &PhasesReport) -> Vec<Block> {
    let head = ["", "run", "paused", "share", "longest", ""];
    let mut table = Table::new(&head, &[0, 5]);
    let (start_up, training) = match phases.training_by {
        TrainingMark::WholeRun => ("start-up", "run"),
        TrainingMark::AfterImports => ("imports", "after them"),
        TrainingMark::AfterFork => ("start-up", "after it"),
        TrainingMark::Loop => ("start-up", "loop"),
        _ => ("start-up", "training"),
    };
    let at_exit = if phases.steps.is_some() { "slows no step" } else { "" };
    let rows = [
        (start_up, &phases.start_up, "start-up only".to_owned()),
        (training, &phases.training, sparkline(&phases.training)),
        ("exit", &phases.exit, at_exit.to_owned()),
    ];
    for (name, phase, remark) in rows.into_iter().filter(|(_, phase, _)| phase.duration_ns > 0) {
        let pauses = phase.pauses.count > 0;
        table.row([
            name.to_owned(),
            duration(phase.unhindered_ns()),
            duration(phase.collected_ns()),
            phase.paused_ratio.map(percent).or_dash(),
            phase.longest_collection_ns().map(duration).or_dash(),
            if pauses { remark } else { String::new() },
        ]);
    }
    let mut blocks = vec![table.into()];
    blocks.extend(phases.steps.map(|steps| {
        let mean = duration(phases.training.unhindered_ns() / steps.max(1));
        let steps = counted(steps, "training step");
        paragraph(format!("{steps}, {mean} each, by {}.", marks(phases.training_by)))
    }));
    blocks
}

/// The evidence for steps.
fn marks(mark: TrainingMark) -> &'static str {
    match mark {
        TrainingMark::ProfilerSteps => "the profiler's annotations",
        TrainingMark::FunctionCalls => "calls of the step function",
        TrainingMark::OptimizerSteps => "steps of the optimizer",
        TrainingMark::BackwardPasses => "backward passes",
        TrainingMark::Batches => "batches of the DataLoader",
        TrainingMark::PeriodicLaunches => "periodic launches (inferred)",
        TrainingMark::WholeRun
        | TrainingMark::AfterImports
        | TrainingMark::AfterFork
        | TrainingMark::Loop => "its pauses",
    }
}

/// Paused time over the phase, as bars.
fn sparkline(phase: &PhaseReport) -> String {
    let top = phase.over_time_ns.iter().copied().max().unwrap_or(0).max(1);
    let bar = |ns: &u64| {
        let height = usize::try_from(gctrace_units::times(*ns, 8).div_ceil(top)).unwrap_or(8);
        BARS.get(height).copied().unwrap_or('█')
    };
    phase.over_time_ns.iter().map(bar).collect()
}

/// The changes with their savings, in the order to try them, and the number of the report's advice shown.
fn advice(report: &Report, style: Style) -> (Vec<Block>, usize) {
    let changes = report.advice.iter().enumerate().filter(|(_, advice)| is_change(advice));
    let (mut all, mut shown) = (Vec::new(), 0);
    for (index, advice) in changes.take(ADVICE_SHOWN) {
        let before = all.len();
        all.extend(change(index, advice, report));
        if before > 0 && lines(&all, style).len() > ADVICE_LINES {
            all.truncate(before);
            break;
        }
        shown = index + 1;
    }
    if all.is_empty() {
        all.push(paragraph(nothing(report)));
    }
    (all, shown)
}

/// A change: its saving at the end of its line if there is room, and the saving measured elsewhere.
fn change(index: usize, advice: &Advice, report: &Report) -> Vec<Block> {
    const BEHIND: &str = "     ";
    let action = Paragraph {
        text: advice.action.clone(),
        first: format!("{INDENT}{}  ", index + 1),
        indent: BEHIND,
        aside: gctrace_units::if_known(effect(advice, report)),
        ..Paragraph::default()
    };
    let measured = measured(advice).into_iter().map(|text| hanging(text, BEHIND, BEHIND));
    std::iter::once(action.into()).chain(measured).collect()
}

/// `saves up to 3.58 s of 12.7 s, gives back up to 530 MiB`; `None` if neither is known.
fn effect(advice: &Advice, report: &Report) -> Option<String> {
    let saves = saves(advice, report).map(|saves| format!("saves {saves}"));
    let parts = [saves, words::memory::gives_back(advice)];
    parts.into_iter().flatten().reduce(|one, other| format!("{one}, {other}"))
}

/// The sentence of the verdict, colored by its level.
pub(super) fn verdict(report: &Report) -> Block {
    let tone = match report.verdict.level {
        Level::None | Level::Negligible => Tone::Good,
        Level::RareLongPauses | Level::Noticeable | Level::Unknown | Level::TooShort => {
            Tone::Warning
        }
        Level::Heavy => Tone::Bad,
    };
    tone.of(&report.verdict.sentence)
}

/// In place of changes, with the resident memory.
pub(super) fn nothing(report: &Report) -> String {
    match words::memory::resident_in_short(report) {
        Some(resident) => format!("Nothing to change in the collector. {resident}"),
        None => no_change(report).to_owned(),
    }
}

fn no_change(report: &Report) -> &'static str {
    let phases = report.phases.as_ref();
    let at_start_up = matches!(phases, Some(phases) if phases.judged == JudgedPhase::StartUp);
    match report.verdict.level {
        Level::None | Level::Negligible if report.waits_for_data() => {
            "Nothing to change in the collector. What the data is late for is not in the trace."
        }
        Level::None | Level::Negligible if report.waits_for_cpu() => {
            "Nothing to change in the collector. The program waits for a CPU: run fewer threads (OMP_NUM_THREADS) \
             or programs on them, or use more."
        }
        Level::None | Level::Negligible if sees_no_waits(report) => {
            "Nothing to change in the collector. What else the program waits for, kernel probes show: sudo gctrace \
             -- COMMAND"
        }
        Level::None | Level::Negligible => "Nothing to change in the collector.",
        Level::TooShort if at_start_up => "A start-up this short is not worth a change.",
        Level::TooShort => "Record a longer run: what to change is unknown.",
        Level::RareLongPauses | Level::Noticeable | Level::Heavy | Level::Unknown => {
            "No change is known that saves 1 % of it."
        }
    }
}

/// Whether all was recorded in-process, where neither samples nor waits are.
fn sees_no_waits(report: &Report) -> bool {
    let in_process = |trace: &TraceReport| match &trace.recorded {
        Some(recorded) => recorded.mode == RecordingMode::Inject,
        None => false,
    };
    report.cpu.is_empty() && report.gpu.is_none() && report.traces.iter().all(in_process)
}

/// The basis of the figures: overhead, and missing data.
fn trust(report: &Report) -> String {
    let overhead = overhead::slowed(&report.overhead);
    let overhead = overhead.unwrap_or_else(|| "The overhead of recording is unknown".to_owned());
    let pauses = counted(report.totals.pauses.count, "pause");
    let processes = match report.totals.processes {
        0 | 1 => String::new(),
        many => format!(" of {} processes", count(many)),
    };
    let missing = missing::items(report);
    let first =
        missing.first().map_or(String::new(), |first| format!("{}.", first.trim_end_matches('.')));
    let more = match missing.len() {
        0 | 1 => String::new(),
        all => format!(" And {} (--full).", counted(all as u64 - 1, "more remark")),
    };
    format!("{pauses}{processes} measured. {first}{more} {overhead}.")
}
