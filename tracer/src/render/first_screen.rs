//! The short report: what the collector costs, what to change, where it comes from.
//!
//! Owns the default output of `gctrace analyze`, at most 30 lines, and the verdict at the end
//! of a recording. The full report has the evidence.

use super::launching::BARS;
use super::next::{is_change, next};
use super::style::Style;
use super::table::{GAP, INDENT, TextTable, cut, width, wrap};
use super::{cleanup, evidence, garbage, idle, leaks, lines, missing, steps};
use crate::text::OrDash as _;
use crate::units::{bytes, count, counted, duration, percent, signed_duration};
use gctrace_analysis::report::{
    Advice, AdviceId, JudgedPhase, Level, PhaseReport, PhasesReport, Report, TrainingMark,
};
use gctrace_analysis::words;
use gctrace_analysis::words::Measuring;
use gctrace_analysis::words::places::library_switch;

/// Maximum lines of the short report, at 80 columns.
#[cfg(test)]
pub(super) const LINES: usize = 30;
/// Advice shown.
const ADVICE_SHOWN: usize = 3;
/// Characters of a change that are shown even if its figures are cut for them.
const LEAST_CHANGE: usize = 16;
/// Lines of the program shown.
const PLACES_SHOWN: usize = 3;

/// The short report on `traces`, names as the user gave them. `money`: the price of a GPU per hour,
/// and how many GPUs wait for the program, if that is not their number in the traces.
pub(crate) fn first_screen(
    report: &Report,
    traces: &[String],
    money: Option<(f64, Option<u32>)>,
    style: Style,
) -> String {
    super::table::fit(style.width());
    let mut text = verdict(report, style);
    if let Some(cost) = money.and_then(|(price, gpus)| hourly_cost(report, price, gpus)) {
        text.push_str(&cost);
        text.push('\n');
    }
    let mut section = |heading: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            let heading = (!heading.is_empty()).then(|| style.bold(heading));
            text.push('\n');
            for line in heading.into_iter().chain(lines) {
                text.push_str(&line);
                text.push('\n');
            }
        }
    };
    let mut when = report.phases.as_ref().map_or_else(Vec::new, phases);
    if let Some(sentence) = steps::cold_steps(report) {
        when.extend(wrap(&sentence, INDENT, INDENT));
    }
    section("", when);
    section("", if report.runs < 2 { idle::idle_in_short(report) } else { Vec::new() });
    let cpu = words::samples::samples_in_short(report);
    section("", cpu.map_or_else(Vec::new, |cpu| wrap(&cpu, "", INDENT)));
    let model = words::layers::layers_in_short(report);
    section("", model.map_or_else(Vec::new, |model| wrap(&model, "", INDENT)));
    let mut explained = CycleWord::default();
    if report.runs < 2 {
        section("Do this", explained.after(advice(report), INDENT));
    }
    section("Where it comes from", lines::costliest(report, PLACES_SHOWN));
    let heap = garbage::in_short(report).into_iter().chain(leaks::in_short(report));
    let heap = heap.chain(cleanup::in_short(report));
    let heap = heap.flat_map(|heap| wrap(&heap, "", "")).collect();
    section("", explained.after(heap, ""));
    section("", trust(report));
    section("", next(report, traces));
    text
}

/// Explains what a cycle is, once, where the word first stands.
#[derive(Default)]
struct CycleWord {
    is_explained: bool,
}

impl CycleWord {
    const MEANING: &str =
        "A cycle is objects that refer to each other: only the collector frees them.";

    fn after(&mut self, mut lines: Vec<String>, indent: &str) -> Vec<String> {
        if !self.is_explained && lines.iter().any(|line| line.contains("cycle")) {
            self.is_explained = true;
            lines.extend(wrap(Self::MEANING, indent, indent));
        }
        lines
    }
}

/// The verdict and the costliest change, for the end of a recording: at most five lines.
pub(crate) fn verdict_lines(report: &Report) -> Vec<String> {
    let mut lines = wrap(&report.verdict.sentence, "", "");
    if let Some(first) = report.advice.iter().find(|advice| is_change(advice)) {
        let change = change(first);
        let sentence = match saving(first) {
            // An action, with its command.
            None => change,
            Some(_) if first.id.is_of_waits() => first.action.clone(),
            Some(saving) => {
                let run = priced_run(report).filter(|_| is_of_training(first, report));
                let run = run.map_or(String::new(), |run| format!(" of {run}"));
                format!("Try: {change}: saves {saving}{run} (predicted).")
            }
        };
        lines.extend(wrap(&sentence, "", "  "));
    }
    lines
}

/// Length of what predicted savings are parts of: of the run whose GPU work is known, else of
/// training, or without steps of start-up, too. `None` if neither is known.
fn priced_run(report: &Report) -> Option<String> {
    let phases = report.phases.as_ref();
    let priced = phases.map(|phases| {
        let start_up_ns = if has_steps(report) { 0 } else { phases.start_up.duration_ns };
        start_up_ns.saturating_add(phases.training.duration_ns)
    });
    let run = report.gpu_cost.as_ref().map(|cost| cost.run_ns);
    run.or(priced).map(duration)
}

/// What the collector costs per hour of training: its share of the time, or with GPU times of the
/// run, of all GPUs. `None` if the share is unknown, or of too short a run.
fn hourly_cost(report: &Report, price: f64, gpus: Option<u32>) -> Option<String> {
    if report.verdict.level == Level::TooShort {
        return None;
    }
    let share = match (&report.gpu_cost, &report.phases) {
        (Some(cost), _) => cost.ratio(),
        (None, Some(phases)) => phases.training.paused_ratio?,
        (None, None) => return None,
    };
    let recorded = report.gpus.len().max(1);
    let gpus = gpus.map_or(recorded, |gpus| gpus as usize);
    let each = counted(gpus as u64, "GPU");
    let cost = share * price * gpus as f64;
    Some(format!("At {price:.2} per GPU hour, {each}: {cost:.2} per hour (inferred)."))
}

pub(super) fn phases(phases: &PhasesReport) -> Vec<String> {
    let head = ["", "run", "paused", "share", "longest", ""];
    let mut table = TextTable::new(&head, &[0, 5]);
    let (start_up, training) = match phases.training_by {
        TrainingMark::WholeRun => ("start-up", "run"),
        TrainingMark::AfterImports => ("imports", "after them"),
        TrainingMark::AfterLoading => ("loading", "after it"),
        _ => ("start-up", "training"),
    };
    let rows = [
        (start_up, &phases.start_up, "once per start".to_owned()),
        (training, &phases.training, sparkline(&phases.training)),
        ("exit", &phases.exit, "slows no step".to_owned()),
    ];
    for (name, phase, remark) in rows.into_iter().filter(|(_, phase, _)| phase.duration_ns > 0) {
        let pauses = phase.pauses.count > 0;
        table.row(vec![
            name.to_owned(),
            duration(phase.duration_ns),
            duration(phase.paused_ns),
            phase.paused_ratio.map(percent).or_dash(),
            phase.longest_ns.map(duration).or_dash(),
            if pauses { remark } else { String::new() },
        ]);
    }
    let mut lines = table.lines();
    lines.extend(match (phases.training_by, phases.steps) {
        (TrainingMark::AfterLoading, _) => wrap(
            "No step is known. Loading ends where the pauses become rare (inferred).",
            INDENT,
            INDENT,
        ),
        (_, steps) => steps.map_or_else(Vec::new, |steps| {
            let mean = duration(phases.training.duration_ns / steps.max(1));
            vec![format!(
                "{INDENT}{}, {mean} each, by {}.",
                counted(steps, "training step"),
                marks(phases.training_by)
            )]
        }),
    });
    lines
}

/// What the steps are known by.
fn marks(mark: TrainingMark) -> &'static str {
    match mark {
        TrainingMark::ProfilerSteps => "the profiler's annotations",
        TrainingMark::FunctionCalls => "calls of the step function",
        TrainingMark::OptimizerSteps => "steps of the optimizer",
        TrainingMark::BackwardPasses => "backward passes",
        TrainingMark::Batches => "batches of the DataLoader",
        TrainingMark::PeriodicLaunches => "periodic launches (inferred)",
        TrainingMark::WholeRun | TrainingMark::AfterImports | TrainingMark::AfterLoading => {
            "its pauses"
        }
    }
}

/// Paused time over the phase, as bars.
fn sparkline(phase: &PhaseReport) -> String {
    let top = phase.over_time_ns.iter().copied().max().unwrap_or(0).max(1);
    let bar = |ns: &u64| {
        let height = usize::try_from(ns.saturating_mul(8).div_ceil(top)).unwrap_or(8);
        BARS.get(height).copied().unwrap_or('█')
    };
    phase.over_time_ns.iter().map(bar).collect()
}

fn advice(report: &Report) -> Vec<String> {
    let changes = report.advice.iter().enumerate().filter(|(_, advice)| is_change(advice));
    let (waits, changes): (Vec<_>, Vec<_>) =
        changes.partition(|(_, advice)| advice.id.is_of_waits());
    let waits_first = waits.first().map(|(at, _)| at) < changes.first().map(|(at, _)| at);
    let is_alone = changes.is_empty() && undecided(report).is_empty();
    let of_collector =
        if is_alone && !waits.is_empty() { Vec::new() } else { of_collector(report, &changes) };
    let waits = numbered(&waits);
    let (mut lines, rest) = if waits_first { (waits, of_collector) } else { (of_collector, waits) };
    lines.extend(rest);
    lines
}

/// Changes as sentences, with their numbers.
fn numbered(changes: &[(usize, &Advice)]) -> Vec<String> {
    let numbered = |(index, advice): &(usize, &Advice)| {
        let start = format!("{INDENT}{}  ", index + 1);
        wrap(&advice.action, &start, "     ")
    };
    changes.iter().take(ADVICE_SHOWN).flat_map(numbered).collect()
}

/// Changes of the collector and of what it is called for, in a table with what they save.
fn of_collector(report: &Report, changes: &[(usize, &Advice)]) -> Vec<String> {
    let undecided = wrap(&undecided(report), INDENT, INDENT);
    if changes.is_empty() {
        return if undecided.is_empty() {
            wrap(nothing(report), INDENT, INDENT)
        } else {
            undecided
        };
    }
    if changes.iter().all(|(_, advice)| advice.effect.saves_at_most_ns.is_none()) {
        let settled =
            not_worth_it(report).map_or_else(Vec::new, |rest| wrap(&rest, INDENT, INDENT));
        return numbered(changes).into_iter().chain(undecided).chain(settled).collect();
    }
    let shown = || changes.iter().take(ADVICE_SHOWN);
    // What is saved once, or in the whole run, is no part of training.
    let of_training = shown().all(|(_, advice)| is_of_training(advice, report));
    let run = priced_run(report).filter(|_| of_training);
    let saves = run.map_or("saves".to_owned(), |run| format!("saves of {run}"));
    let head = [saves.as_str(), "memory", "longest"];
    let figures = |advice: &Advice| {
        [
            saving(advice).map(|saving| saving + once(advice, report)).or_dash(),
            memory(advice).unwrap_or_default(),
            advice.effect.longest_ns.map(longest).or_dash(),
        ]
    };
    let figures: Vec<_> = shown().map(|(_, advice)| figures(advice)).collect();
    // A figure without its unit is none: what is too long is cut of the change.
    let columns = head.iter().enumerate().map(|(column, name)| {
        let cells = figures.iter().filter_map(|row| row.get(column));
        let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        GAP + widest.max(name.chars().count())
    });
    let beside = INDENT.len() + 1 + GAP + columns.sum::<usize>();
    let room = width().saturating_sub(beside).max(LEAST_CHANGE);
    let mut table = TextTable::new(&[&["", "(predicted)"], &head[..]].concat(), &[1]);
    for ((index, advice), figures) in shown().zip(figures) {
        let cells = [(index + 1).to_string(), cut(&change(advice), room)];
        table.row(cells.into_iter().chain(figures).collect());
    }
    let mut lines = table.lines();
    let is_least =
        |advice: &Advice| advice.effect.memory_is_least && advice.effect.memory_bytes.is_some();
    if shown().any(|(_, advice)| is_least(advice)) {
        lines.extend(wrap(UNSEEN, INDENT, INDENT));
    }
    lines.extend(undecided);
    if let Some(rest) = not_worth_it(report) {
        lines.extend(wrap(&rest, INDENT, INDENT));
    }
    if let Some(switch) = library_switch(report) {
        lines.extend(wrap(&switch, INDENT, INDENT));
    }
    lines
}

/// The sentence of the verdict, colored by its level.
pub(super) fn verdict(report: &Report, style: Style) -> String {
    let sentence = wrap(&report.verdict.sentence, "", "").join("\n");
    let colored = match report.verdict.level {
        Level::None | Level::Negligible => style.good(&sentence),
        Level::RareLongPauses | Level::Noticeable | Level::Unknown | Level::TooShort => {
            style.warning(&sentence)
        }
        Level::Heavy => style.bad(&sentence),
    };
    colored + "\n"
}

/// The remedies that may save time although one recording does not show it, without figures; empty
/// without any.
pub(super) fn undecided(report: &Report) -> String {
    let of = |by_setting: bool, measured: &str| {
        let open = report.not_advised.iter().filter(|advice| report.is_undecided(&advice.effect));
        let open = open.filter(|advice| advice.effect.settings.is_some() == by_setting).map(change);
        let names: Vec<String> = open.take(ADVICE_SHOWN).collect();
        let names = names.join(", or ");
        (!names.is_empty())
            .then(|| format!("One recording cannot tell what this saves: {names}. {measured}"))
    };
    // What no setting changes is measured after the change.
    let settings = match words::measuring(report) {
        (Measuring::Auto, command) => {
            of(true, &format!("{command} finds and proves a setting while it runs."))
        }
        (Measuring::Tune, command) => of(true, &format!("{command} measures it.")),
    };
    let program = of(false, "Make the change, and compare several runs with gctrace compare.");
    settings.into_iter().chain(program).collect::<Vec<String>>().join(" ")
}

/// In place of changes.
pub(super) fn nothing(report: &Report) -> &'static str {
    let phases = report.phases.as_ref();
    let at_start_up = phases.is_some_and(|phases| phases.judged == JudgedPhase::StartUp);
    match report.verdict.level {
        Level::None | Level::Negligible if report.waits_for_data() => {
            "Nothing to change in the collector. What the data is late for is not in the trace."
        }
        Level::None | Level::Negligible if report.waits_for_cpu() => {
            "Nothing to change in the collector. Training waits for a CPU: run fewer threads (OMP_NUM_THREADS) \
             or programs on them, or use more."
        }
        Level::None | Level::Negligible => "Nothing to change.",
        Level::TooShort if at_start_up => "A start-up this short is not worth a change.",
        Level::TooShort => "Record a longer run: what to change is unknown.",
        Level::RareLongPauses | Level::Noticeable | Level::Heavy | Level::Unknown => {
            "No change of the collector's settings is likely to save time."
        }
    }
}

/// Whether what it saves is a part of the time of [`priced_run`].
fn is_of_training(advice: &Advice, report: &Report) -> bool {
    advice.id != AdviceId::OffWhileLoading || !has_steps(report)
}

/// With steps, of which other runs have more, what is saved at start-up is saved once.
fn once(advice: &Advice, report: &Report) -> &'static str {
    if is_of_training(advice, report) { "" } else { " once" }
}

fn has_steps(report: &Report) -> bool {
    report.phases.as_ref().is_some_and(|phases| phases.steps.is_some())
}

/// The remedies that everybody tries first and that are not advised here; `None` if there are none.
fn not_worth_it(report: &Report) -> Option<String> {
    let settled = report.not_advised.iter().filter(|advice| !report.is_undecided(&advice.effect));
    let priced = settled.filter_map(|advice| {
        let known = matches!(advice.id, AdviceId::Freeze | AdviceId::RaiseThreshold);
        Some(format!("{} ({})", change(advice), range(advice).filter(|_| known)?))
    });
    let priced: Vec<String> = priced.collect();
    (!priced.is_empty()).then(|| format!("Not worth it: {}.", priced.join(", ")))
}

/// The change in a few words.
pub(super) fn change(advice: &Advice) -> String {
    let settings = advice.effect.settings.clone().unwrap_or_default();
    if let Some(thresholds) = settings.thresholds {
        return words::set_threshold(thresholds);
    }
    match settings.collect_every_steps {
        Some(1) => "collect every step only".to_owned(),
        Some(steps) => format!("collect every {} steps only", count(steps)),
        None => match advice.id {
            AdviceId::Freeze => "gc.freeze() after setup".to_owned(),
            AdviceId::Planned => "gc.collect() between steps only".to_owned(),
            AdviceId::RaiseThreshold => "raise the first threshold".to_owned(),
            AdviceId::ExplicitCalls => "remove gc.collect() from the loop".to_owned(),
            AdviceId::BreakCycles => "break the cycles, see its code".to_owned(),
            AdviceId::OffWhileLoading => "gc.disable() while loading".to_owned(),
            AdviceId::Disable => "gc.disable()".to_owned(),
            AdviceId::FreezeBeforeFork => "gc.freeze() before the fork".to_owned(),
            _ => advice.action.trim_end_matches('.').to_owned(),
        },
    }
}

/// The predicted saving: what is likely, if that was simulated, and the range.
fn saving(advice: &Advice) -> Option<String> {
    let range = range(advice)?;
    let Some(likely_ns) = advice.effect.saves_likely_ns else {
        return Some(range);
    };
    let likely = duration(likely_ns.max(0).unsigned_abs());
    // A unit that all have is printed once.
    let unit = likely.rsplit_once(' ').map_or("", |(_, unit)| unit);
    let numbers = range.replace(&format!(" {unit}"), "");
    Some(match likely.strip_suffix(unit) {
        Some(likely) if !numbers.contains(' ') => format!("{likely}({numbers}) {unit}"),
        _ => format!("{likely} ({range})"),
    })
}

/// Least and most that it saves.
pub(super) fn range(advice: &Advice) -> Option<String> {
    let most = duration(advice.effect.saves_at_most_ns?);
    let least = signed_duration(advice.effect.saves_at_least_ns.unwrap_or(0));
    Some(signed_range(&least, &most))
}

/// `LEAST..MOST`, or one figure if both are equal when rounded.
pub(super) fn signed_range(least: &str, most: &str) -> String {
    if least == most { most.to_owned() } else { format!("{least}..{most}") }
}

/// How much more garbage waits in memory.
fn memory(advice: &Advice) -> Option<String> {
    let effect = &advice.effect;
    Some(match (effect.memory_objects?, effect.memory_bytes) {
        (0, _) => "+0".to_owned(),
        (_, Some(least)) if effect.memory_is_least => format!("\u{2265}{}", bytes(least)),
        (_, Some(more)) => format!("+{}", bytes(more)),
        (_, None) => "unknown".to_owned(),
    })
}

/// What the memory is without, where garbage was not measured.
const UNSEEN: &str = "Memory is without the arrays and buffers that garbage owns (not measured).";

/// The longest pause that is left.
fn longest(longest_ns: u64) -> String {
    if longest_ns == 0 { "none".to_owned() } else { duration(longest_ns) }
}

/// What the figures rest on: overhead, and what is missing.
fn trust(report: &Report) -> Vec<String> {
    let overhead = match report.overhead.observed_ratio {
        Some(ratio) => format!("gctrace slowed the program by {} (inferred)", percent(ratio)),
        None => "The overhead of recording is unknown".to_owned(),
    };
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
    let elsewhere = evidence::cost_elsewhere(report);
    let elsewhere = elsewhere.map_or(String::new(), |cost| format!(" {cost}"));
    let sentence = format!("{pauses}{processes} measured. {first}{more} {overhead}.{elsewhere}");
    wrap(&sentence, "", "")
}
