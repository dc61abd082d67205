//! The text report: verdict, evidence, advice.

use super::style::Style;
use super::table::wrap;
use super::{
    allocations, cause, cleanup, counters, cpu, cuda, evidence, first_screen, garbage, gpu_bounds,
    gpu_devices, gpus, idle, launching, layers, leaks, lines, missing, overview, pressure, ranks,
    steps,
};
use crate::print::clean;
use gctrace_analysis::report::{Advice, Report};
use gctrace_analysis::words;

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
        text.push_str(&next_step(index + 1, advice, report, style));
    }
    if report.runs < 2 && report.advice.is_empty() {
        for line in wrap(&first_screen::nothing(report), "  ", "  ") {
            text.push_str(&line);
            text.push('\n');
        }
    }
    text.push_str(&footnote(report));
    text
}

fn next_step(number: usize, advice: &Advice, report: &Report, style: Style) -> String {
    let mut lines = wrap(&advice.action, &format!("  {number}. "), "     ");
    lines = lines.iter().map(|line| style.bold(line)).collect();
    lines.extend(wrap(&advice.why, "     ", "     "));
    lines.extend(wrap(&saves(advice, report), "     ", "     "));
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

/// What an advice saves, and saved elsewhere, in a sentence or two; empty if it saves no time.
pub(super) fn saves(advice: &Advice, report: &Report) -> String {
    let saves = words::advice::saves(advice, report).map(|saves| format!("Saves {saves}."));
    let sentences: Vec<String> = saves.into_iter().chain(words::advice::measured(advice)).collect();
    sentences.join(" ")
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
