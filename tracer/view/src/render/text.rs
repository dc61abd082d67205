//! The full report: verdict, evidence, advice.

use super::{
    allocations, cause, cleanup, counters, cpu, cuda, first_screen, garbage, gpu_bounds,
    gpu_devices, gpu_samples, growth, idle, launching, layers, leak_watch, missing, overhead,
    overview, pauses, pressure, ranks, stacks, steps, turns,
};
use crate::document::{AdviceBlock, Block, Section, paragraph, plain};
use gctrace_analysis::report::{Advice, Report};
use gctrace_analysis::words;

/// The whole report.
pub fn full(report: &Report) -> Vec<Section> {
    vec![
        Section::new("", vec![first_screen::verdict(report)]),
        overview::recording(report),
        pauses::pauses(report),
        overview::processes(report),
        stacks::lines(report),
        stacks::stacks(report),
        pauses::longest(report),
        pauses::freed_nothing(report),
        garbage::garbage(report),
        growth::growth(report),
        leak_watch::section(report),
        pauses::explicit_calls(report),
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
        cpu::processor(report),
        counters::counters(report),
        cpu::cpu(report),
        cpu::off_cpu(report),
        turns::turns(report),
        layers::layers(report),
        gpu_samples::gpus(report),
        overhead::own_cost(report),
        missing::missing(report),
        Section::new("What to do next", advice(report)),
        Section::new("", footnote(report)),
    ]
}

fn advice(report: &Report) -> Vec<Block> {
    if report.runs < 2 && report.advice.is_empty() {
        return vec![paragraph(first_screen::nothing(report))];
    }
    let mut blocks = Vec::new();
    for (index, advice) in report.advice.iter().enumerate() {
        if index > 0 {
            blocks.push(Block::Gap);
        }
        blocks.push(change(index, advice, report));
    }
    blocks
}

/// A change to make; `index` is its place in the report's list.
pub(super) fn change(index: usize, advice: &Advice, report: &Report) -> Block {
    Block::Advice(AdviceBlock {
        number: index + 1,
        action: advice.action.clone(),
        why: advice.why.clone(),
        saves: saves(advice, report),
        code: gctrace_units::if_known(advice.code.clone()),
        risk: gctrace_units::if_known(advice.risk.clone()),
    })
}

/// The saving of an advice, also measured elsewhere, in a sentence or two; empty if it saves no time.
fn saves(advice: &Advice, report: &Report) -> String {
    let saves = words::advice::saves(advice, report).map(|saves| format!("Saves {saves}."));
    let sentences: Vec<String> = saves.into_iter().chain(words::advice::measured(advice)).collect();
    sentences.join(" ")
}

fn footnote(report: &Report) -> Vec<Block> {
    let basis = plain("Figures are measured unless marked (inferred) or (predicted).");
    let gaps = report.not_covered.iter().map(|gap| plain(format!("Not covered: {gap}")));
    std::iter::once(basis).chain(gaps).collect()
}
