//! The text report: verdict, evidence, advice.

use super::style::Style;
use super::table::wrap;
use super::{
    allocations, cause, cleanup, counters, cpu, cuda, evidence, first_screen, garbage, gpu_bounds,
    gpu_devices, gpus, idle, launching, layers, leaks, lines, missing, overview, pressure, ranks,
    settings, steps,
};
use crate::print::clean;
use crate::units::{duration, signed_duration};
use gctrace_analysis::report::{Advice, AdviceId, Report};

/// The whole report, in the style's width.
pub(crate) fn text(report: &Report, style: Style) -> String {
    super::table::fit(style.width());
    let mut text = first_screen::verdict(report, style);
    let evidence = [
        overview::recording(report),
        overview::pauses(report),
        overview::processes(report),
        lines::lines(report),
        lines::stacks(report),
        evidence::longest(report),
        evidence::freed_nothing(report),
        garbage::garbage(report),
        evidence::growth(report),
        leaks::section(report),
        evidence::explicit_calls(report),
        cleanup::section(report),
        pressure::pressure(report),
        allocations::allocations(report),
        cause::cause(report),
        gpu_bounds::gpu_bounds(report),
        ranks::ranks(report),
        steps::steps(report),
        gpu_devices::gpu_work(report),
        gpu_devices::gpu_devices(report),
        idle::idle(report),
        launching::launching(report),
        cuda::cuda(report),
        evidence::processor(report),
        counters::counters(report),
        cpu::cpu(report),
        cpu::off_cpu(report),
        layers::layers(report),
        gpus::gpus(report),
        settings::settings(report),
        evidence::own_cost(report),
        missing::missing(report),
    ];
    for section in evidence.iter().filter(|section| !section.lines.is_empty()) {
        text.push_str(&format!("\n{}\n", style.bold(section.heading)));
        for line in &section.lines {
            text.push_str(&clean::line(line));
            text.push('\n');
        }
    }
    text.push_str(&format!("\n{}\n", style.bold("What to do next")));
    for (index, advice) in report.advice.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        text.push_str(&next_step(index + 1, advice, style));
    }
    if report.runs < 2 {
        let mut more = first_screen::undecided(report);
        if more.is_empty() && report.advice.is_empty() {
            first_screen::nothing(report).clone_into(&mut more);
        }
        for line in wrap(&more, "  ", "  ") {
            text.push_str(&line);
            text.push('\n');
        }
    }
    text.push_str(&footnote(report));
    text
}

fn next_step(number: usize, advice: &Advice, style: Style) -> String {
    let mut lines = wrap(&advice.action, &format!("  {number}. "), "     ");
    lines = lines.iter().map(|line| style.bold(line)).collect();
    lines.extend(wrap(&advice.why, "     ", "     "));
    if let Some(max_ns) = advice.effect.saves_at_most_ns {
        lines.extend(wrap(&saves(advice, max_ns), "     ", "     "));
    }
    if let Some(code) = &advice.code {
        lines.push(String::new());
        let indented = |line: &str| format!("       {}", style.code(&clean::line(line)));
        lines.extend(code.lines().map(indented));
    }
    if let Some(risk) = &advice.risk {
        lines.push(String::new());
        lines.extend(wrap(&format!("Risk: {risk}"), "     ", "     "));
    }
    lines.join("\n") + "\n"
}

pub(super) fn saves(advice: &Advice, max_ns: u64) -> String {
    let most = duration(max_ns);
    let effect = &advice.effect;
    let Some((likely_ns, least_ns)) = effect.saves_likely_ns.zip(effect.saves_at_least_ns) else {
        return format!("Saves at most {most} (predicted).");
    };
    let (what, basis) = match effect.run {
        Some(_) => ("the run", "predicted by replay"),
        None if advice.id == AdviceId::OffWhileLoading => {
            ("the collector's time at start-up", "predicted")
        }
        None => ("the collector's time in training", "predicted"),
    };
    format!(
        "Likely saves {} of {what}, {} at least, {most} at most ({basis}).",
        signed_duration(likely_ns),
        signed_duration(least_ns),
    )
}

fn footnote(report: &Report) -> String {
    let mut text = String::from("\n");
    let mut paragraph = |sentence: &str| {
        text.push_str(&wrap(sentence, "", "").join("\n"));
        text.push('\n');
    };
    paragraph("Figures are measured unless marked (inferred) or (predicted).");
    for gap in &report.not_covered {
        paragraph(&format!("Not covered: {}", gap));
    }
    text
}
