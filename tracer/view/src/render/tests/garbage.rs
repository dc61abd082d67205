//! What the collector frees: the section, the first screen and the advice.

use super::first_screen::screen;
use super::{checked, report};
use crate::document::Style;
use gctrace_analysis::report::{AdviceId, Report};
use gctrace_event::Record;
use test_kit::garbage::ClosuresRun;
use test_kit::records::written;
use test_kit::{garbage, records};

/// A training whose steps leave closures, read from its trace.
fn of(run: ClosuresRun) -> Report {
    of_records(run, &garbage::records(run))
}

fn of_records(run: ClosuresRun, records: &[Record]) -> Report {
    let mut end = records::end("the command ended");
    end.ended_ns = test_kit::reports::START + garbage::end_ms(run) * test_kit::reports::MS;
    let trace = written(&records::header(), records, &end);
    report(&[("trace.json", String::from_utf8(trace).unwrap())])
}

/// The section of a report.
fn section(report: &Report) -> String {
    let text = checked(report);
    let from = text.find("What the collector frees").unwrap();
    let section = text.get(from..).unwrap();
    section.split("\n\n").next().unwrap().to_owned()
}

#[test]
fn the_same_cycles_in_every_step() {
    let report = of(ClosuresRun::default());
    let mut shown = report.advice.iter().take(3);
    let advice = shown.find(|advice| advice.id == AdviceId::BreakCycles);
    let advice = advice.unwrap();
    assert!(advice.effect.saves_at_most_ns.is_some());
    insta::assert_snapshot!(section(&report) + "\n\n" + &screen(&report));
}

#[test]
fn births_are_labelled_as_sampled() {
    let run = ClosuresRun { constant: false, ..ClosuresRun::default() };
    let report = of_records(run, &garbage::with_births(garbage::records(run)));
    let words: Vec<String> = section(&report).split_whitespace().map(str::to_owned).collect();
    let text = words.join(" ");
    let born = "torch.Tensor born at model.py:31 in Model.build (246 of 288 sampled) and \
                model.py:40 in Model.grow (42)";
    assert!(text.contains(born), "{text}");
}

#[test]
fn the_first_screen_names_where_the_most_frequent_kind_was_born() {
    let run = ClosuresRun { cycles: false, ..ClosuresRun::default() };
    let mut report = of_records(run, &garbage::with_births(garbage::records(run)));
    let processes = report.processes.iter_mut().map(|process| &mut process.garbage);
    for garbage in processes.chain([&mut report.garbage]).flatten() {
        garbage.kinds.retain(|kind| kind.births.is_some());
    }
    let words: Vec<String> = screen(&report).split_whitespace().map(str::to_owned).collect();
    let text = words.join(" ");
    let born = "of them torch.Tensor, born at model.py:31 in Model.build (80 of 80 sampled).";
    assert!(text.contains(born), "{text}");
}

#[test]
fn the_first_screen_names_a_class_rather_than_containers() {
    let mut report = of(ClosuresRun { cycles: false, ..ClosuresRun::default() });
    let processes = report.processes.iter_mut().map(|process| &mut process.garbage);
    for garbage in processes.chain([&mut report.garbage]).flatten() {
        garbage.kinds.retain(|kind| kind.name.file.is_none());
        garbage.kinds.sort_by_key(|kind| kind.name.type_name.contains('.'));
    }
    let text = screen(&report);
    assert!(text.contains("of them torch.Tensor"), "{text}");
}

#[test]
fn kinds_of_a_part_of_the_collections() {
    let report = of(ClosuresRun { every: 4, cycles: false, ..ClosuresRun::default() });
    // Which cycles is not known, only what is on them.
    let action = &report.advice[0].action;
    assert!(action.starts_with("break the cycles of "), "{action}");
    insta::assert_snapshot!(section(&report) + "\n\n" + &screen(&report));
}

#[test]
fn more_and_more_cycles_have_a_mean() {
    let report = of(ClosuresRun { constant: false, ..ClosuresRun::default() });
    let text = section(&report);
    assert!(text.contains("cycles per step on average"), "{text}");
}

#[test]
fn without_garbage_there_is_no_section() {
    let report = report(&[("trace.json", super::training())]);
    assert!(report.garbage.is_none());
    let text = super::full_text(&report, Style::OF_FILES);
    assert!(!text.contains("What the collector frees"), "{text}");
}
