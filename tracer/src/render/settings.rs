//! The section on other settings of the collector: what the priced remedies do to the run, by replay.
//! Without GPU times there is no replay.

use super::first_screen::{change, range, signed_range};
use super::table::{ReportSection, TableOfColumns, paragraph};
use crate::text::OrDash as _;
use crate::units::duration;
use gctrace_analysis::report::{Advice, PredictedLength, Report};

pub(crate) fn settings(report: &Report) -> ReportSection {
    let all = report.advice.iter().chain(&report.not_advised);
    let replayed = all.filter_map(|advice| Some((advice, advice.effect.run?)));
    let replayed: Vec<(&Advice, PredictedLength)> = replayed.collect();
    let mut lines = Vec::new();
    if let Some((first, run)) = replayed.first() {
        let error = match first.effect.replay_error_ns {
            Some(_) => "the error of the replay",
            None => "not the error of the replay, which is unknown",
        };
        lines.extend(paragraph(&format!(
            "The run of {}, replayed with the pauses that a simulated collector has: for the worse .. \
             for the better of what the recording leaves open, with {error}.",
            duration(run.measured_ns)
        )));
        let steps = replayed.iter().any(|(advice, _)| advice.effect.step.is_some());
        let step = |length: PredictedLength| {
            signed_range(&duration(length.at_least_ns), &duration(length.at_most_ns))
        };
        let table = TableOfColumns::new(replayed.iter().map(|(advice, _)| *advice))
            .left("change", change)
            .right("saves", |advice| range(advice).or_dash())
            .right_if(steps, "mean step", |advice| advice.effect.step.map(step).or_dash());
        lines.extend(table.lines());
    }
    ReportSection::new("Other settings of the collector (predicted)", lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gctrace_analysis::Analysis;
    use gctrace_analysis::report::{AdviceEffect, AdviceId, Basis};

    #[test]
    fn what_was_replayed_has_a_row() {
        let mut report = Analysis::default().report();
        assert!(settings(&report).lines.is_empty());
        let length = |measured_ns| PredictedLength {
            measured_ns,
            at_least_ns: measured_ns / 2,
            at_most_ns: measured_ns + 1,
        };
        let effect = AdviceEffect {
            saves_at_least_ns: Some(-1_000_000),
            saves_likely_ns: Some(20_000_000),
            saves_at_most_ns: Some(40_000_000),
            run: Some(length(4_000_000_000)),
            step: Some(length(10_000_000)),
            ..AdviceEffect::default()
        };
        for run in [None, effect.run] {
            report.not_advised.push(Advice {
                id: AdviceId::Freeze,
                action: String::new(),
                why: String::new(),
                code: None,
                risk: None,
                effect: AdviceEffect { run, ..effect.clone() },
                basis: Basis::Predicted,
            });
        }
        let text = settings(&report).lines.join("\n");
        assert!(text.contains("The run of 4.00 s, replayed"), "{text}");
        assert_eq!(text.matches("gc.freeze() after setup").count(), 1, "{text}");
        assert!(text.contains("-1.00 ms..40.0 ms"), "{text}");
        assert!(text.contains("5.00 ms..10.0 ms"), "{text}");
    }
}
