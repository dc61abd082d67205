//! The result as text: its basis, the verdict, the table, the command to use.

use crate::document::{Block, INDENT, Style, Table, hanging, plain};
use crate::text::OrDash as _;
use crate::units::{bytes, count, counted, duration, percent};
use crate::{document, print};
use gctrace_analysis::tune::{
    MeasuredDifference, TuneMeasure, TuneMethod, TuneOutcome, TuneRefusal, TuneReport, TuneUnit,
    TunedSetting,
};
use gctrace_units::if_known;

/// Characters of a line, if standard output is not a terminal: the table's.
const WIDE: usize = 100;

/// The report for people.
pub(super) fn lines(report: &TuneReport) -> Vec<String> {
    document::lines(&blocks(report), Style::of_width(print::columns().unwrap_or(WIDE)))
}

fn blocks(report: &TuneReport) -> Vec<Block> {
    let mut blocks = vec![plain(basis(report)), table(report), plain(verdict(report))];
    blocks.extend(beside(report).map(plain));
    for setting in &report.settings {
        if let Some(refusal) = setting.refused {
            let text = format!("{}: {}", setting.setting, refused(refusal, report.method));
            blocks.push(hanging(text, "", INDENT));
        }
    }
    if let Some(steps) = report.needed_steps {
        let is_short = report.settings.iter().any(|one| one.refused.is_some());
        let text = format!(
            "{} about {} {}.",
            if is_short { "A verdict takes" } else { "Intervals as narrow as asked for take" },
            count(steps),
            if report.unit == TuneUnit::WorkMs { "ms of work" } else { "steps" }
        );
        blocks.push(plain(text));
    }
    if let Some(apply) = &report.apply {
        blocks.push(Block::Code(apply.clone()));
    }
    blocks
}

/// The measurements, and the conclusions they allow.
fn basis(report: &TuneReport) -> String {
    let pairs = report.settings.iter().map(|setting| setting.pairs).min().unwrap_or(0);
    let mut text = match report.block_steps {
        Some(_) if report.unit == TuneUnit::WorkMs => {
            format!("no step is known; {} of intervals of time", counted(pairs, "pair"))
        }
        Some(steps) => format!(
            "{} of blocks of {}; {} of {} before them",
            counted(pairs, "pair"),
            counted(steps, "step"),
            count(report.warm_up_steps),
            counted(report.steps, "step"),
        ),
        None if report.method == TuneMethod::Blocks => {
            format!("no block; {}", counted(report.steps, "step"))
        }
        None => {
            let runs = report.settings.iter().map(|setting| setting.pairs).sum();
            counted(runs, "whole run")
        }
    };
    if report.ranks > 1 {
        text += &match report.method {
            TuneMethod::Blocks => format!("; rank 0 of {}", counted(report.ranks, "rank")),
            TuneMethod::Runs => format!("; {}, the slowest", counted(report.ranks, "rank")),
        };
    }
    if report.unit == TuneUnit::Step
        && let Some(agent_ns) = report.agent_ns
    {
        text += &format!(". gctrace took {} per step", duration(agent_ns));
    }
    text + "."
}

fn unit(report: &TuneReport) -> &'static str {
    match report.unit {
        TuneUnit::Step => "step",
        TuneUnit::Run => "run",
        TuneUnit::WorkMs => "ms of work",
    }
}

fn clock(report: &TuneReport) -> &'static str {
    match report.measure {
        TuneMeasure::Wall => "",
        TuneMeasure::Cpu => " CPU",
    }
}

fn table(report: &TuneReport) -> Block {
    let mean = format!("{}{}", unit(report), clock(report));
    let has_memory = report.settings.iter().any(|setting| setting.peak_rss_bytes.is_some());
    let time = |ns: Option<u64>| ns.map(duration).or_dash();
    let (is_runs, is_blocks) =
        (report.method == TuneMethod::Runs, report.method == TuneMethod::Blocks);
    let found = |setting: &TunedSetting, text: fn(&MeasuredDifference) -> String| {
        if_known(setting.difference(report.measure).map(text))
    };
    Table::of(&report.settings)
        .left("setting", |setting| setting.setting.clone())
        .right(&mean, |setting| match report.measure {
            TuneMeasure::Wall => time(setting.wall_ns),
            TuneMeasure::Cpu => time(setting.cpu_ns),
        })
        .right_if(is_runs, "runs", |setting| count(setting.pairs))
        .right("difference (95 %)", |setting| found(setting, difference))
        .right("p", |setting| found(setting, |found| format!("{:.4}", found.holm_p_value)))
        .right("pauses", |setting| time(setting.pause_ns))
        .right_if(is_blocks, "computed", |setting| if_known(setting.computed_share.map(percent)))
        .right_if(has_memory, "peak memory", |setting| setting.peak_rss_bytes.map(bytes).or_dash())
        .into()
}

/// `-6.03 % (-8.50 to -3.76)`.
fn difference(found: &MeasuredDifference) -> String {
    let number = |ratio: f64| percent(ratio).trim_end_matches(" %").to_owned();
    format!(
        "{} ({} to {})",
        percent(found.mean_ratio),
        number(found.low_ratio),
        number(found.high_ratio)
    )
}

fn verdict(report: &TuneReport) -> String {
    let unit = unit(report);
    let first = if let Some(first) = report.settings.first() { first.setting.as_str() } else { "" };
    let best = report.best.as_ref().and_then(|best| {
        let is_best = |setting: &&TunedSetting| setting.setting == *best;
        let setting = report.settings.iter().skip(1).find(is_best)?;
        Some((setting, setting.difference(report.measure)?))
    });
    let equals = if_known(best.map(|(_, found)| equals_of(report, found)));
    match (report.outcome, best) {
        (TuneOutcome::Gain, Some((setting, found))) => format!(
            "With {} a {unit} takes {} less{} than with {first}, {} to {} less{}.",
            setting.setting,
            duration(found.mean_ns.unsigned_abs()),
            match report.measure {
                TuneMeasure::Wall => "",
                TuneMeasure::Cpu => " CPU time",
            },
            duration(found.high_ns.unsigned_abs()),
            duration(found.low_ns.unsigned_abs()),
            if equals.is_empty() {
                ": it is the fastest".to_owned()
            } else {
                format!(". Perhaps as fast: {}", equals.join("; "))
            },
        ),
        (TuneOutcome::Loss, _) => {
            format!("Keep {first}: no setting is faster, and some are slower.")
        }
        (TuneOutcome::Refused, _) => {
            let best = if report.method == TuneMethod::Runs { report.guess() } else { None };
            let guess = best.map(|best| format!(" Best guess, of one run: {}.", best.setting));
            format!("No verdict.{}", if_known(guess))
        }
        _ => match report.guessed_gain() {
            Some((setting, found)) => format!(
                "Nothing is proven. Best guess: {}, {} of {}{} (95 %). More runs: --precision 2.",
                setting.setting,
                difference(found),
                unit,
                clock(report),
            ),
            None => format!("No difference beyond noise: keep {first}."),
        },
    }
}

/// The differences by the clock that does not decide; `None`: there are none.
fn beside(report: &TuneReport) -> Option<String> {
    let (other, clock) = match report.measure {
        TuneMeasure::Wall => (TuneMeasure::Cpu, "CPU time"),
        TuneMeasure::Cpu => (TuneMeasure::Wall, "wall time"),
    };
    let differences = report.settings.iter().filter_map(|setting| {
        Some(format!("{} {}", setting.setting, difference(setting.difference(other)?)))
    });
    let differences: Vec<String> = differences.collect();
    if differences.is_empty() {
        return None;
    }
    Some(format!("By {clock}: {}.", differences.join("; ")))
}

/// Settings that may be as fast as the best: their intervals reach to its mean.
fn equals_of(report: &TuneReport, best: &MeasuredDifference) -> Vec<String> {
    let others = report.settings.iter().filter(|one| {
        let reaches = |found: &MeasuredDifference| found.low_ratio <= best.mean_ratio;
        Some(&one.setting) != report.best.as_ref()
            && one.difference(report.measure).is_some_and(reaches)
    });
    others.map(|one| one.setting.clone()).collect()
}

fn refused(refusal: TuneRefusal, method: TuneMethod) -> String {
    let TuneRefusal::FewPairs { pairs, needed } = refusal;
    let (pairs, remedy) = match method {
        TuneMethod::Blocks => (counted(pairs, "pair"), "a longer run or --budget"),
        TuneMethod::Runs => (counted(pairs, "run"), "a longer --budget"),
    };
    format!("no verdict on {pairs}, {needed} are needed: {remedy}.")
}
