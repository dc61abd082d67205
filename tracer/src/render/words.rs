//! The sentences of the report: findings of the analysis in words.
//!
//! Owns every sentence that both forms of the report have; sentences of the text form alone are in
//! its sections.

mod advice;
pub(crate) mod cycles;
mod findings;
pub(super) mod places;
mod verdict;
mod what_if;

use gctrace_analysis::report::{ClockReport, NoComparison, Report, Worded};

/// The risk of calling `gc.collect()` no more.
const EXPLICIT_CALLS_RISK: &str = "A call before a phase that needs a lot of memory may be \
     intentional; calls before torch.cuda.empty_cache() free GPU memory only if tensors are in \
     cycles.";
/// The risk of `gc.freeze()`, whatever the interpreter.
const FREEZE_RISK: &str = "Frozen objects that become garbage in a cycle are never freed \
     (gc.unfreeze() undoes it).";

/// The risk of a higher first threshold.
const THRESHOLDS_RISK: &str = "Cyclic garbage lives up to ten times longer before it is freed";

/// The text of an advice; `code` and `risk` are empty where there are none.
#[derive(Default)]
struct AdviceText {
    action: &'static str,
    why: String,
    code: String,
    risk: String,
}

/// Fills in all sentences of a report.
pub(crate) fn put_into_words(report: &mut Report) {
    report.what_if.iter_mut().for_each(what_if::word);
    report.verdict.sentence = verdict::sentence(report);
    let [mut advice, mut not_advised] =
        [&mut report.advice, &mut report.not_advised].map(std::mem::take);
    for advice in advice.iter_mut().chain(&mut not_advised) {
        advice::word(advice, report);
    }
    (report.advice, report.not_advised) = (advice, not_advised);
    for gap in &mut report.not_covered {
        word(gap, |gap| findings::not_covered(*gap).to_owned());
    }
    let of_processes = report.processes.iter_mut();
    let garbage = of_processes.filter_map(|process| process.garbage.as_mut());
    for garbage in garbage.chain(&mut report.garbage) {
        cycles::word(garbage);
    }
    for trace in &mut report.traces {
        let file = trace.repeats.iter();
        trace.notes.extend(file.map(findings::repeated));
        if let Some(recorded) = &mut trace.recorded {
            recorded.not_recorded = findings::not_recorded(&recorded.mode);
        }
    }
    if let Some(gpu) = &mut report.gpu {
        for clock in &mut gpu.clocks {
            merge(clock);
        }
        for apart in &mut gpu.not_merged {
            word(&mut apart.why, |why| findings::not_merged(*why));
        }
        for cause in &mut gpu.cause {
            if let Some(no_error_bar) = &mut cause.no_error_bar {
                word(no_error_bar, |steps| findings::no_error_bar(*steps));
            }
        }
    }
    for process in report.gpu_bounds.iter_mut().flat_map(|gpu_bound| &mut gpu_bound.processes) {
        if let Some(limit) = &mut process.limited_by {
            word(limit, |limit| findings::limit(*limit).to_owned());
        }
    }
    for process in report.steps.iter_mut().flat_map(|step| &mut step.processes) {
        let with = &mut process.with_full;
        comparison(&mut with.missing, with.count, with.other_count);
        let after = &mut process.after_full;
        comparison(&mut after.missing, after.count, after.other_count);
    }
}

fn word<F>(worded: &mut Worded<F>, words: impl Fn(&F) -> String) {
    worded.sentence = words(&worded.finding);
}

fn merge(clock: &mut ClockReport) {
    clock.error_basis = findings::error_basis(clock.aligned_by).to_owned();
    for note in &mut clock.notes {
        word(note, |note| findings::merge_note(*note));
    }
}

fn comparison(missing: &mut Option<Worded<NoComparison>>, count: u64, other_count: u64) {
    if let Some(missing) = missing {
        word(missing, |why| findings::no_comparison(*why, count, other_count));
    }
}
