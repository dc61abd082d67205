//! The text of `gctrace compare`: the changes, the verdict, the figures.
//!
//! Owns its layout, at most 40 lines; the verdict is a sentence of the analysis.

use crate::document::{Block, INDENT, Section, Style, Table, Tone, line, paragraph, plain};
use crate::text::OrDash as _;
use crate::units::{bytes, counted, duration, mean_duration, percent, signed, three_digits, whole};
use gctrace_analysis::compare::{
    ComparedRun, Comparison, ComparisonNote, FactChange, FactId, FigureComparison, FigureId,
    IdleComparison, Interval, LineChange, LineComparison, Outcome, RateUnit,
};
use gctrace_analysis::figure::{Nature, Unit};

/// Changed facts shown; the others are in the JSON.
const CHANGES_SHOWN: usize = 8;
/// Lines of the program shown.
const LINES_SHOWN: usize = 4;
/// Lines with a change of collections below this share of all of them are not shown.
const LINE_RATIO: f64 = 0.02;
/// Causes of idle time that changed by less than this share of the devices' time are not shown.
const IDLE_RATIO: f64 = 0.005;
/// Characters of a commit's hash shown.
const HASH: usize = 12;

/// The comparison, in lines of the style's width.
pub fn comparison(comparison: &Comparison, style: Style) -> Vec<Section> {
    let tone = match comparison.verdict.outcome {
        Outcome::Better => Tone::Good,
        Outcome::Worse => Tone::Bad,
        Outcome::NoDifference | Outcome::Unknown => Tone::Warning,
    };
    let sections = [
        ("What changed", changes(comparison, style.width())),
        ("", vec![tone.of(&comparison.verdict.sentence)]),
        ("Figures", figures(comparison)),
        ("Lines that trigger collections in training", lines(comparison)),
        ("Why the GPU was idle, share of its time, time per step (inferred)", idle(comparison)),
        ("", vec![remarks(comparison)]),
    ];
    sections.map(|(heading, blocks)| Section::new(heading, blocks)).into()
}

/// The name of a fact for people.
pub fn fact_name(fact: FactId) -> &'static str {
    match fact {
        FactId::Interpreter => "Python",
        FactId::Torch => "torch",
        FactId::Driver => "GPU driver",
        FactId::Gpus => "GPUs",
        FactId::Host => "host",
        FactId::Kernel => "kernel",
        FactId::Cpus => "CPUs",
        FactId::Thresholds => "thresholds",
        FactId::Enabled => "GC enabled",
        FactId::Frozen => "gc.freeze() seen",
        FactId::Command => "command",
        FactId::Commit => "git commit",
        FactId::Modified => "uncommitted changes",
        FactId::Mode => "recording mode",
        FactId::Gctrace => "gctrace",
    }
}

/// `width`: characters of a line.
pub(super) fn changes(comparison: &Comparison, width: usize) -> Vec<Block> {
    let shown = comparison.changed.iter().take(CHANGES_SHOWN);
    let mut blocks: Vec<Block> = shown.flat_map(|of| change(of, width)).collect();
    if blocks.is_empty() {
        blocks.push(paragraph("Nothing that is recorded."));
    }
    let more = comparison.changed.iter().skip(CHANGES_SHOWN).count();
    if more > 0 {
        blocks.push(paragraph(format!("{more} more (--format json)")));
    }
    for (heading, facts) in
        [("Same: ", &comparison.unchanged), ("Unknown in a trace: ", &comparison.unknown)]
    {
        let names: Vec<&str> = facts.iter().map(|fact| fact_name(*fact)).collect();
        if !names.is_empty() {
            blocks.push(paragraph(format!("{heading}{}.", names.join(", "))));
        }
    }
    blocks
}

/// One line, or two if the values are long.
fn change(change: &FactChange, width: usize) -> Vec<Block> {
    let values = |values: &[String]| -> String {
        let shown = values.iter().map(|value| match change.fact {
            FactId::Commit => value.chars().take(HASH).collect(),
            _ => value.clone(),
        });
        shown.collect::<Vec<String>>().join(" / ")
    };
    let (before, after) = (values(&change.before), values(&change.after));
    let name = fact_name(change.fact);
    let both = format!("{name}: {before} -> {after}");
    if INDENT.len() + both.chars().count() <= width {
        return vec![line(both)];
    }
    vec![line(format!("{name}: {before}")), line(format!("  -> {after}"))]
}

pub(super) fn figures(comparison: &Comparison) -> Vec<Block> {
    // With one run on a side, figures have neither interval nor verdict.
    let several = !comparison.notes.contains(&ComparisonNote::OneRun);
    let table = Table::of(&comparison.figures)
        .left("", |figure| figure_name(figure, comparison.per))
        .right("before", |figure| {
            if let Some(mean) = figure.before { value(figure.figure, mean) } else { unknown() }
        })
        .right("after", |figure| {
            if let Some(mean) = figure.after { value(figure.figure, mean) } else { unknown() }
        })
        .right("change", |figure| match shown_change(figure) {
            Some((change, unit)) => signed(change.value * 100.0, unit),
            None => unknown(),
        })
        .right_if(several, "95 % interval", |figure| {
            shown_change(figure).and_then(interval).unwrap_or_else(unknown)
        })
        .right_if(several, "p", |figure| figure.p.map_or_else(unknown, p_value));
    let runs =
        format!("Before: {}; after: {}.", sampled(&comparison.before), sampled(&comparison.after));
    vec![table.into(), paragraph(runs)]
}

/// The change in percent, of shares in points. `None` without one, and for growth: it may be around 0.
fn shown_change(figure: &FigureComparison) -> Option<(Interval, &'static str)> {
    match figure.figure.declared() {
        (_, Unit::Ratio, _) => Some((figure.difference?, " pp")),
        _ if figure.figure == FigureId::HeapGrowth => None,
        _ => Some((figure.change_ratio?, " %")),
    }
}

fn interval((change, unit): (Interval, &'static str)) -> Option<String> {
    let [low, high] = [change.low?, change.high?].map(|end| end * 100.0);
    Some(format!("{} .. {}", signed(low, ""), signed(high, unit)))
}

fn figure_name(figure: &FigureComparison, per: RateUnit) -> String {
    let (per, whole) = match per {
        RateUnit::Step => ("step", "training"),
        RateUnit::Second => ("s", "training"),
        RateUnit::Run => ("run", "the run"),
    };
    let generation = match figure.generation {
        Some(generation) => format!("gen {generation}"),
        None => "other".to_owned(),
    };
    let (name, ..) = figure.figure.declared();
    name.replace("{generation}", &generation).replace("{whole}", whole).replace("{per}", per)
}

fn value(figure: FigureId, value: f64) -> String {
    match figure.declared() {
        (_, Unit::Ns | Unit::At, _) => mean_duration(value),
        (_, Unit::Ratio | Unit::Ppm, _) => percent(value),
        (_, Unit::Bytes, _) => bytes(whole(value)),
        (_, _, Nature::Total) if value == 0.0 => "0".to_owned(),
        (_, _, Nature::Total) => three_digits(value),
        (_, _, Nature::Lasting | Nature::Level) => objects(value),
    }
}

/// The runs of a side: how many, and how long.
fn sampled(runs: &[ComparedRun]) -> String {
    let known: u64 = runs.iter().filter_map(|run| run.steps).sum();
    let time = runs.iter().map(|run| run.training_ns).sum();
    let steps = if runs.iter().all(|run| run.steps.is_some()) {
        format!("{}, {}", counted(known, "step"), duration(time))
    } else {
        duration(time)
    };
    match runs {
        [run] => format!("{} ({steps})", run.files.join(" ")),
        _ => format!("{} ({steps})", counted(runs.len() as u64, "run")),
    }
}

pub(super) fn lines(comparison: &Comparison) -> Vec<Block> {
    let all = |of: fn(&LineComparison) -> f64| comparison.lines.iter().map(of).sum::<f64>();
    let most = all(|line| line.before_ns).max(all(|line| line.after_ns));
    let differs = |line: &&LineComparison| {
        (line.after_ns - line.before_ns).abs() > most * LINE_RATIO
            || line.change == LineChange::Moved
    };
    let per = match comparison.per {
        RateUnit::Step => "per step",
        RateUnit::Second => "per s",
        RateUnit::Run => "per run",
    };
    let mut table = Table::new(&["before", "after", per, ""], &[2, 3]);
    let shown: Vec<&LineComparison> = comparison.lines.iter().filter(differs).collect();
    for line in shown.iter().take(LINES_SHOWN) {
        let number = line.location.line;
        let number = if let Some(number) = number { format!(":{number}") } else { String::new() };
        let name = crate::text::file_name(&line.location.file);
        table.row([
            mean_duration(line.before_ns),
            mean_duration(line.after_ns),
            match (line.change, line.before_line) {
                (LineChange::Appeared, _) => "new".to_owned(),
                (LineChange::Went, _) => "gone".to_owned(),
                (LineChange::Moved, Some(from)) => format!("from :{from}"),
                (LineChange::Moved, None) => "moved".to_owned(),
                (LineChange::Same, _) => String::new(),
            },
            format!("{name}{number} in {}", line.location.function),
        ]);
    }
    if shown.is_empty() { Vec::new() } else { vec![table.into()] }
}

pub(super) fn idle(comparison: &Comparison) -> Vec<Block> {
    let shown = comparison.idle.iter().filter(|cause| differs(cause)).take(LINES_SHOWN);
    let shown: Vec<&IdleComparison> = shown.collect();
    if shown.is_empty() {
        return Vec::new();
    }
    let change = |cause: &IdleComparison| (cause.after_ratio - cause.before_ratio) * 100.0;
    let has_steps = shown.iter().all(|cause| cause.before_step_ns.is_some());
    let step = |ns: Option<f64>| ns.map(mean_duration).or_dash();
    let mut table = Table::of(shown)
        .left("", |cause| cause.cause.to_string())
        .right("before", |cause| percent(cause.before_ratio))
        .right("after", |cause| percent(cause.after_ratio))
        .right("change", |cause| signed(change(cause), " pp"));
    if has_steps {
        table = table
            .right("per step", |cause| step(cause.before_step_ns))
            .right("after", |cause| step(cause.after_step_ns));
    }
    let legend = "What did not change is a larger share of a shorter run.";
    vec![table.into(), paragraph(legend)]
}

/// Whether the time of a cause per step changed by a worthwhile share of the step; without steps, its
/// share.
fn differs(cause: &IdleComparison) -> bool {
    let mut change = (cause.after_ratio - cause.before_ratio).abs();
    if let (Some(before_ns), Some(after_ns)) = (cause.before_step_ns, cause.after_step_ns) {
        let whole = [(before_ns, cause.before_ratio), (after_ns, cause.after_ratio)];
        if let Some((ns, ratio)) = whole.into_iter().find(|(_, ratio)| *ratio > 0.0) {
            change = (after_ns - before_ns).abs() / (ns / ratio);
        }
    }
    change >= IDLE_RATIO
}

pub(super) fn remarks(comparison: &Comparison) -> Block {
    let notes: Vec<&str> = comparison.notes.iter().filter_map(|note| remark(*note)).collect();
    plain(notes.join(" "))
}

/// `None` if the sentence has it already.
fn remark(note: ComparisonNote) -> Option<&'static str> {
    Some(match note {
        ComparisonNote::OneRun => return None,
        ComparisonNote::NoSteps => {
            "Training steps are unknown: rates are per second of what follows \
             start-up, and step time is not tested."
        }
        ComparisonNote::DifferentPhases => {
            "What each run does is not known by the same marks: whole runs are compared."
        }
        ComparisonNote::TooShort => "A run is too short for a test.",
        ComparisonNote::NoTraining => {
            "A run has no known training phase: no collection, or a free-threaded build."
        }
        ComparisonNote::Incomplete => {
            "A trace is incomplete (gctrace analyze has the details): figures may be too low."
        }
        ComparisonNote::DifferentCommands => "The commands differ: is this the same work?",
    })
}

fn unknown() -> String {
    "-".to_owned()
}

fn p_value(p: f64) -> String {
    match p {
        p if p < 0.001 => "<0.001".to_owned(),
        p => format!("{p:.3}"),
    }
}

fn objects(value: f64) -> String {
    let sign = if value <= -0.5 { "-" } else { "" };
    format!("{sign}{}", crate::units::short_count(whole(value)))
}
