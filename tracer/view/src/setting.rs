//! Settings of the collector that an advice names.

use gctrace_analysis::report::{Advice, Report, StepSource};
use gctrace_settings::GcSetting;

/// The settings of an advice of this report; `None` if it changes none, or one after a step and the program has no
/// steps that `gctrace apply` sees.
pub fn of_advice(advice: &Advice, report: &Report) -> Option<GcSetting> {
    let setting: GcSetting = advice.effect.settings.as_ref()?.parse().ok()?;
    if setting.is_from_start() || has_marks(report) { Some(setting) } else { None }
}

/// Whether something in the program marks its steps: steps of a period of launches are inferred afterwards.
fn has_marks(report: &Report) -> bool {
    let Some(steps) = &report.steps else { return false };
    steps.processes.iter().any(|process| process.source != StepSource::PeriodicLaunches)
}
