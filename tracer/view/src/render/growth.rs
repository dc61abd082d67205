//! The section on full collections and the heap that they go through.

use super::pauses::after_start;
use crate::document::{Block, Section, Table, paragraph};
use crate::text::mark;
use crate::units::{count, counted, duration, three_digits};
use gctrace_analysis::report::{GrowthPoint, GrowthReport, ProcessReport, Report};

/// Maximum number of processes with growth shown; the others are in the JSON.
const GROWTHS_SHOWN: usize = 3;

pub(crate) fn growth(report: &Report) -> Section {
    let growing =
        report.processes.iter().filter_map(|process| Some((process, process.growth.as_ref()?)));
    Section::new(
        "Full collections and heap size",
        growing
            .take(GROWTHS_SHOWN)
            .flat_map(|(process, growth)| growth_lines(process, growth))
            .collect(),
    )
}

fn growth_lines(process: &ProcessReport, growth: &GrowthReport) -> [Block; 2] {
    let mut points: Vec<GrowthPoint> =
        [0.0, 0.25, 0.5, 0.75, 1.0].map(|ratio| growth.at(ratio)).to_vec();
    points.dedup();
    let table = Table::of(&points)
        .right("after start", |point| after_start(0, point.after_start_ns))
        .right("objects", |point| count(point.objects))
        .right("pause", |point| duration(point.duration_ns));
    [table.into(), paragraph(growth_sentence(process, growth))]
}

fn growth_sentence(process: &ProcessReport, growth: &GrowthReport) -> String {
    let mut text =
        format!("Process {}, {}: ", process.pid, counted(growth.collections, "full collection"),);
    text += &match (growth.ns_per_million_objects, growth.r_squared) {
        (Some(slope), Some(r_squared)) if slope > 0.0 => format!(
            "{} per million objects{}, r² = {}.",
            duration(slope as u64),
            mark(growth.basis),
            three_digits(r_squared),
        ),
        (Some(_), _) => "the pause did not grow with the heap.".to_owned(),
        (None, _) => "the heap hardly changed.".to_owned(),
    };
    if let Some(prediction) = &growth.at_twice_the_heap {
        text += &format!(
            " With twice the largest heap: {}{}.",
            duration(prediction.duration_ns),
            mark(prediction.basis)
        );
    }
    text
}
