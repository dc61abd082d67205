//! Settings of the collector that an advice names.

use gctrace_analysis::report::{Advice, AdvisedSettings, Report, StepSource};
use gctrace_settings::GcSetting;

/// The settings of an advice of this report; `None` if it changes none, or one after a step and the program has no
/// steps that `gctrace apply` sees.
pub(crate) fn of_advice(advice: &Advice, report: &Report) -> Option<GcSetting> {
    let setting = named(advice.effect.settings.as_ref()?)?;
    (setting.is_from_start() || has_marks(report)).then_some(setting)
}

/// Whether something in the program marks its steps: those of a period of launches are inferred afterwards.
fn has_marks(report: &Report) -> bool {
    let steps = report.steps.as_ref();
    steps.is_some_and(|steps| {
        steps.processes.iter().any(|process| process.source != StepSource::PeriodicLaunches)
    })
}

fn named(advised: &AdvisedSettings) -> Option<GcSetting> {
    let mut items = Vec::new();
    if let Some([first, second, third]) = advised.thresholds {
        items.push(format!("threshold={first},{second},{third}"));
    }
    if advised.freeze {
        items.push("freeze@step:2".to_owned());
    }
    match (advised.disable, advised.collect_every_steps) {
        // Advised are full collections.
        (_, Some(steps)) => items.push(format!("plan:{steps},gen2:{steps}")),
        // Its price is that of the whole run.
        (true, None) => items.push("disable@start".to_owned()),
        (false, None) => {}
    }
    items.join(",").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_becomes_a_setting() {
        let text = |advised: AdvisedSettings| named(&advised).map(|setting| setting.to_string());
        let advised = AdvisedSettings::default;
        assert_eq!(text(advised()), None);
        let thresholds = Some([7000, 10, 10]);
        let raised = AdvisedSettings { thresholds, ..advised() };
        assert_eq!(text(raised).as_deref(), Some("threshold=7000,10,10"));
        let freeze = AdvisedSettings { freeze: true, ..advised() };
        assert_eq!(text(freeze).as_deref(), Some("freeze@step:2"));
        let planned = AdvisedSettings { disable: true, collect_every_steps: Some(50), ..advised() };
        assert_eq!(text(planned.clone()).as_deref(), Some("plan:50,gen2:50"));
        let without_steps = AdvisedSettings { collect_every_steps: None, ..planned };
        assert_eq!(text(without_steps).as_deref(), Some("disable@start"));
    }
}
