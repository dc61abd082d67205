//! The result as text: what can be shown at all, the verdict, the table, the command to use.

use crate::args::TuneArgs;
use crate::print;
use crate::render::{TableOfColumns, fit, wrap};
use crate::text::OrDash as _;
use crate::units::{bytes, count, counted, duration, percent};
use gctrace_analysis::tune::{
    MeasuredDifference, TuneMeasure, TuneMethod, TuneOutcome, TuneRefusal, TuneReport, TuneUnit,
    TunedSetting,
};

/// Width in characters, if standard output is not a terminal: the table's.
const WIDTH: usize = 100;

/// The report for people.
pub(super) fn lines(report: &TuneReport, config: &TuneArgs) -> Vec<String> {
    fit(print::columns().unwrap_or(WIDTH));
    let mut lines = wrap(&basis(report), "", "");
    lines.extend(table(report));
    lines.extend(wrap(&verdict(report), "", ""));
    for setting in &report.settings {
        if let Some(refusal) = setting.refused {
            let text = format!("{}: {}", setting.setting, refused(refusal, report, config));
            lines.extend(wrap(&text, "", "  "));
        }
    }
    if let Some(apply) = &report.apply {
        // Not wrapped: it is to be copied.
        lines.push(format!("  {apply}"));
    }
    lines
}

/// What was measured, and what it can show.
fn basis(report: &TuneReport) -> String {
    let unit = unit(report);
    let pairs = report.settings.iter().map(|setting| setting.pairs).min().unwrap_or(0);
    let mut text = match report.block_steps {
        Some(steps) => format!(
            "{} of blocks of {}; {} of {} left out as warm-up",
            counted(pairs, "pair"),
            counted(steps, "step"),
            count(report.warm_up_steps),
            counted(report.steps, "step"),
        ),
        None => format!("{} of runs", counted(pairs, "pair")),
    };
    if report.ranks > 1 {
        text += &format!("; {}, the slowest of each step", counted(report.ranks, "rank"));
    }
    let differences = report.settings.iter().filter_map(|one| one.difference(report.measure));
    let detectable = differences.map(|found| found.detectable_ratio).max_by(f64::total_cmp);
    if let Some(ratio) = detectable {
        text += &format!("; differences from {} of a {unit} on show", percent(ratio));
    }
    if let Some(agent_ns) = report.agent_ns {
        text += &format!(". gctrace took {} per step", duration(agent_ns));
    }
    if report.unreadable_rows > 0 {
        text += &format!(". {} could not be read", counted(report.unreadable_rows, "row"));
    }
    text + "."
}

fn unit(report: &TuneReport) -> &'static str {
    match report.unit {
        TuneUnit::Step => "step",
        TuneUnit::Run => "run",
    }
}

fn clock(report: &TuneReport) -> &'static str {
    match report.measure {
        TuneMeasure::Wall => "",
        TuneMeasure::Cpu => " CPU",
    }
}

fn table(report: &TuneReport) -> Vec<String> {
    let mean = format!("{}{}", unit(report), clock(report));
    let has_memory = report.settings.iter().any(|setting| setting.peak_rss_bytes.is_some());
    let time = |ns: Option<u64>| ns.map(duration).or_dash();
    let found = |setting: &TunedSetting, text: fn(&MeasuredDifference) -> String| {
        setting.difference(report.measure).map(text).unwrap_or_default()
    };
    TableOfColumns::new(&report.settings)
        .left("setting", |setting| setting.setting.clone())
        .right(&mean, |setting| match report.measure {
            TuneMeasure::Wall => time(setting.wall_ns),
            TuneMeasure::Cpu => time(setting.cpu_ns),
        })
        .right("sd", |setting| time(setting.standard_deviation_ns))
        .right("difference (95 %)", |setting| found(setting, difference))
        .right("p", |setting| found(setting, |found| format!("{:.4}", found.holm_p_value)))
        .right("pauses", |setting| time(setting.pause_ns))
        .right_if(has_memory, "peak memory", |setting| setting.peak_rss_bytes.map(bytes).or_dash())
        .lines()
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
    let first = report.settings.first().map_or("", |first| first.setting.as_str());
    let best = report.best.as_ref().and_then(|best| {
        let is_best = |setting: &&TunedSetting| setting.setting == *best;
        let setting = report.settings.iter().skip(1).find(is_best)?;
        Some((setting, setting.difference(report.measure)?))
    });
    match (report.outcome, best) {
        (TuneOutcome::Gain, Some((setting, found))) => format!(
            "{} is the fastest: a {unit} takes {} less{} than with {first}, {} to {} less.",
            setting.setting,
            duration(found.mean_ns.unsigned_abs()),
            match report.measure {
                TuneMeasure::Wall => "",
                TuneMeasure::Cpu => " CPU time",
            },
            duration(found.high_ns.unsigned_abs()),
            duration(found.low_ns.unsigned_abs()),
        ),
        (TuneOutcome::Loss, _) => {
            format!("Keep {first}: no setting is faster, and some are slower.")
        }
        (TuneOutcome::Refused, _) => "No verdict.".to_owned(),
        _ => format!("No difference found: keep {first}."),
    }
}

fn refused(refusal: TuneRefusal, report: &TuneReport, config: &TuneArgs) -> String {
    match refusal {
        TuneRefusal::FewPairs { pairs, needed } => {
            let remedy = match report.method {
                TuneMethod::Blocks => "more steps, or shorter blocks (--block)".to_owned(),
                TuneMethod::Runs => "a longer --budget".to_owned(),
            };
            format!("no verdict on {}, {needed} are needed: {remedy}.", counted(pairs, "pair"))
        }
        TuneRefusal::FewCollections { full, per_block, needed, block_steps } => {
            let which = if full { "full collections" } else { "collections" };
            let remedy = match block_steps {
                Some(steps) => format!("--block {steps}, or --runs"),
                None => "--runs".to_owned(),
            };
            let whose = match config.settings.len() {
                2 => "a block contains",
                _ => "its blocks, or those of the first setting, contain",
            };
            format!(
                "no verdict: {whose} {per_block:.1} {which}, and {needed:.0} are needed, as one \
                 block's garbage is the next one's work: {remedy}."
            )
        }
    }
}
