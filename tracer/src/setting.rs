//! Settings of the collector as `--gc` names them, which the agent in the library parses again.

use gctrace_analysis::report::AdvisedSettings;
use std::fmt;
use std::str::FromStr;

/// The most steps and objects that a setting may name.
const LARGEST: u32 = i32::MAX.cast_unsigned();

/// A setting with the syntax of `--gc`, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GcSetting(String);

impl fmt::Display for GcSetting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// What a setting consists of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ItemKind {
    None,
    /// With so many values so far.
    Threshold(usize),
    Freeze,
    Disable,
    Plan,
    Gen2,
}

impl FromStr for GcSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut items: Vec<ItemKind> = Vec::new();
        for piece in text.split(',').map(str::trim) {
            let kind = item(piece, items.last().copied())?;
            if let (ItemKind::Threshold(2..), Some(last)) = (kind, items.last_mut()) {
                *last = kind;
                continue;
            }
            let same =
                |other: &ItemKind| std::mem::discriminant(other) == std::mem::discriminant(&kind);
            if items.iter().any(same) {
                return Err(format!("{piece:?} is given twice"));
            }
            items.push(kind);
        }
        if items.contains(&ItemKind::Gen2) && !items.contains(&ItemKind::Plan) {
            return Err("gen2 belongs to a plan: plan:100,gen2:1000".to_owned());
        }
        Ok(Self(text.split(',').map(str::trim).collect::<Vec<_>>().join(",")))
    }
}

/// Checks one item; `last`: the one before it.
fn item(piece: &str, last: Option<ItemKind>) -> Result<ItemKind, String> {
    let (head, point) = match piece.split_once('@') {
        Some((head, point)) => (head, Some(point)),
        None => (piece, None),
    };
    if !point.is_none_or(is_point) {
        return Err(format!("{piece:?}: a setting is applied @start or @step:N"));
    }
    let (name, value) = match head.split_once(['=', ':']) {
        Some((name, value)) => (name, Some(value)),
        None => (head, None),
    };
    let has_number = |least| value.and_then(number).is_some_and(|value| value >= least);
    let starts = matches!(point, Some("start" | "step:0"));
    match (name, value) {
        ("none", None) => Ok(ItemKind::None),
        ("threshold", Some(_)) if has_number(0) => Ok(ItemKind::Threshold(1)),
        ("freeze", None) if starts => {
            Err("freeze@start would freeze nothing: freeze@step:2".to_owned())
        }
        ("freeze", None) => Ok(ItemKind::Freeze),
        ("disable", None) => Ok(ItemKind::Disable),
        ("plan", Some(_)) if has_number(1) => Ok(ItemKind::Plan),
        ("gen2", Some(_)) if has_number(0) && point.is_none() => Ok(ItemKind::Gen2),
        (text, None) => match (number(text), last) {
            (Some(_), Some(ItemKind::Threshold(count @ 1..=2))) => {
                Ok(ItemKind::Threshold(count + 1))
            }
            _ => Err(unknown(piece)),
        },
        _ => Err(unknown(piece)),
    }
}

fn unknown(piece: &str) -> String {
    format!("{piece:?} is none of threshold=T0,T1,T2, freeze@step:N, disable, plan:N, gen2:M")
}

fn is_point(point: &str) -> bool {
    let step = point.strip_prefix("step:").and_then(number);
    point == "start" || step.is_some()
}

/// Digits only: no sign, which Python's parser would also accept.
fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let value = digits.then(|| text.parse().ok()).flatten();
    value.filter(|value| *value <= LARGEST)
}

impl GcSetting {
    /// The settings of an advice; `None` if it changes none, or plans collections by time, for
    /// which there is no setting.
    pub(crate) fn of_advice(advised: &AdvisedSettings) -> Option<Self> {
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
            (true, None) if advised.collect_every_ns.is_some() => return None,
            (true, None) => items.push("disable@step:2".to_owned()),
            (false, None) => {}
        }
        items.join(",").parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_checked() {
        for text in [
            "threshold=7000",
            "threshold=7000,10,10,freeze@step:2",
            "threshold:7000,10",
            "freeze",
            "disable@start",
            "plan:100@step:5,gen2:0",
            "none",
            "plan:1,freeze@step:3,threshold=0",
        ] {
            assert_eq!(text.parse(), Ok(GcSetting(text.to_owned())), "{text}");
        }
        for text in [
            "",
            "threshold",
            "threshold=-1",
            "threshold=7000,10,10,10",
            "threshold=99999999999",
            "7000",
            "freeze@start",
            "freeze@2",
            "plan:0",
            "gen2:5",
            "plan:5,plan:6",
            "freeze,freeze",
            "plan:5,7",
            "freeze:1",
            "a|b",
        ] {
            assert!(text.parse::<GcSetting>().is_err(), "{text}");
        }
    }

    #[test]
    fn advice_becomes_a_setting() {
        let text = |advised: AdvisedSettings| {
            GcSetting::of_advice(&advised).map(|setting| setting.to_string())
        };
        let advised = AdvisedSettings::default;
        assert_eq!(text(advised()), None);
        let thresholds = Some([7000, 10, 10]);
        let raised = AdvisedSettings { thresholds, ..advised() };
        assert_eq!(text(raised).as_deref(), Some("threshold=7000,10,10"));
        let freeze = AdvisedSettings { freeze: true, ..advised() };
        assert_eq!(text(freeze).as_deref(), Some("freeze@step:2"));
        let planned = AdvisedSettings {
            disable: true,
            collect_every_steps: Some(50),
            collect_every_ns: Some(1),
            ..advised()
        };
        assert_eq!(text(planned.clone()).as_deref(), Some("plan:50,gen2:50"));
        let without_steps = AdvisedSettings { collect_every_steps: None, ..planned };
        assert_eq!(text(without_steps), None);
    }
}
