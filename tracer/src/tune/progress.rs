//! The progress bar: time of the budget that is spent, steps, and the widest interval by now.

use super::Tuner;
use crate::print;
use crate::print::clean;
use crate::units::{counted, percent};
use gctrace_analysis::tune::TuneReport;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shown on standard error, if that is a terminal.
pub(super) struct TuneProgress {
    bar: Option<ProgressBar>,
}

impl TuneProgress {
    pub(super) fn new(tuner: &Tuner<'_>) -> Self {
        let is_shown = print::errors_on_terminal() && tuner.verbosity >= Default::default();
        let seconds = tuner.config.budget.as_secs().max(1);
        Self { bar: if is_shown { Some(bar(seconds)) } else { None } }
    }

    /// Shows the progress: `1,250 steps, 24 pairs, +-1.2 %`.
    pub(super) fn update(
        &self,
        tuner: &Tuner<'_>,
        done: u64,
        unit: &str,
        report: Option<&TuneReport>,
    ) {
        let Some(bar) = &self.bar else { return };
        bar.set_position(tuner.started.elapsed().as_secs());
        let mut text = counted(done, unit);
        if let Some(report) = report {
            let pairs = report.settings.iter().map(|setting| setting.pairs).min();
            text += &format!(", {}", counted(pairs.unwrap_or(0), "pair"));
            let widths = report.settings.iter().filter_map(|setting| {
                let found = setting.difference(report.measure)?;
                Some(found.half_ratio())
            });
            if let Some(widest) = widths.max_by(f64::total_cmp) {
                text += &format!(", ±{}", percent(widest));
            }
        }
        bar.set_message(clean::line(&text).into_owned());
    }

    /// Removes the bar from the terminal.
    pub(super) fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for TuneProgress {
    fn drop(&mut self) {
        self.finish();
    }
}

fn bar(seconds: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(seconds), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {elapsed}  {msg}") {
        bar.set_style(style);
    }
    bar
}
