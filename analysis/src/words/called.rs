//! What collections call of the program: finalizers and callbacks.

use super::places::place;
use crate::report::{CalledReport, Report};
use crate::units::{duration, percent};
use gctrace_event::CalledKind;

/// From this share of the observed time of a process on it is worth a sentence.
const WORTH: f64 = 0.01;

/// The time of finalizers and of functions in `gc.callbacks`, each of the process that lost most to
/// them, with the function that took most of it: ` Finalizers took ...`; empty if they took little.
pub(super) fn sentence(report: &Report) -> String {
    [CalledKind::Finalizer, CalledKind::Callback].into_iter().map(|kind| of(report, kind)).collect()
}

fn of(report: &Report, kind: CalledKind) -> String {
    let each = report.processes.iter().filter_map(|process| {
        let called = || process.called.iter().filter(|called| called.kind == kind);
        let time_ns = called().fold(0, |sum: u64, called| sum.saturating_add(called.time_ns));
        let share = time_ns as f64 / process.observed_ns.max(1) as f64;
        (share >= WORTH).then_some((time_ns, share, called().next()?))
    });
    let Some((time_ns, share, most)) = each.max_by_key(|(time_ns, ..)| *time_ns) else {
        return String::new();
    };
    let what = match kind {
        CalledKind::Finalizer => {
            "Finalizers that it called (`__del__`, callbacks of weak references)"
        }
        CalledKind::Callback => "Functions in gc.callbacks",
    };
    let all = if most.time_ns == time_ns { "all" } else { "most" };
    let function = function(most).map_or(String::new(), |name| format!(", {all} of it in {name}"));
    let end = match kind {
        CalledKind::Finalizer => {
            "That is work of the program: no setting of the collector saves it."
        }
        CalledKind::Callback => "That is work of the program, at each collection.",
    };
    let (time, share) = (duration(time_ns), percent(share));
    let longest = duration(most.longest_ns);
    format!(" {what} took {time} more ({share}), up to {longest} at a time{function}. {end}")
}

fn function(called: &CalledReport) -> Option<String> {
    called.function.as_ref().map(place)
}
