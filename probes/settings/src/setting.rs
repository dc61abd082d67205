//! One setting of the collector: its items, and their text.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The most steps and objects that a setting may name: a C `int` holds as many.
const LARGEST: u32 = i32::MAX.cast_unsigned();

/// Default step of changes that need a program that is set up; they are applied after it. States of optimizers are made
/// in the first step.
const SET_UP: u32 = 2;

/// Generation 2 is collected once in so many planned collections, if the setting does not say.
const PLANNED_PER_FULL: u32 = 10;

/// Changes and their times, as `--gc` names them: `threshold=7000,10,freeze@step:3`. In the written order, each change
/// once; empty: nothing, `none`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(with = "String"))]
pub struct GcSetting(Vec<SettingItem>);

/// A change, and the step before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingItem {
    /// The change.
    pub change: GcChange,
    /// The step that was named; 0: the start.
    point: Option<u32>,
}

/// A change of the collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GcChange {
    /// `gc.set_threshold()` with these one to three values.
    Threshold(Vec<u32>),
    /// `gc.set_threshold()` with this first one until the first step: hardly any collection while data is loaded.
    Loading(u32),
    /// A full collection, then `gc.freeze()`.
    Freeze,
    /// `gc.freeze()` in each forked process, of its inherited objects.
    FreezeForks,
    /// `gc.disable()`.
    Disable,
    /// `gc.disable()`, and collections between steps.
    Plan(GcPlan),
}

/// The steps that collections follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcPlan {
    /// Steps between collections of generation 1, at least 1.
    pub every: u32,
    /// Steps between collections of generation 2, as written; 0: never.
    gen2: Option<u32>,
}

impl GcPlan {
    /// Generation 2 is collected each so many steps; 0: never.
    #[must_use]
    pub fn full(self) -> u32 {
        let usual = self.every.saturating_mul(PLANNED_PER_FULL);
        self.gen2.unwrap_or(usual)
    }
}

impl SettingItem {
    /// It is applied after this step; 0: at the start.
    pub fn step(&self) -> u32 {
        let usual = match self.change {
            GcChange::Threshold(_) | GcChange::Loading(_) | GcChange::FreezeForks => 0,
            GcChange::Freeze | GcChange::Disable | GcChange::Plan(_) => SET_UP,
        };
        self.point.unwrap_or(usual)
    }
}

impl GcSetting {
    /// The items, in the order of applying them at one step.
    pub fn items(&self) -> &[SettingItem] {
        &self.0
    }

    /// Whether it needs no step.
    pub fn is_from_start(&self) -> bool {
        self.0.iter().all(|item| item.step() == 0)
    }

    /// Whether it makes a change of this kind, with whatever values.
    pub fn has(&self, change: &GcChange) -> bool {
        self.0.iter().any(|item| item.change.is_like(change))
    }

    /// The thresholds with it in a program that has these itself; `None`: it makes other changes, or not from
    /// the start, or switches automatic collection off.
    pub fn thresholds(&self, own: [u32; 3]) -> Option<[u32; 3]> {
        let mut thresholds = own;
        for item in &self.0 {
            let GcChange::Threshold(values) = &item.change else { return None };
            if item.step() > 0 || values.first() == Some(&0) {
                return None;
            }
            thresholds.iter_mut().zip(values).for_each(|(one, value)| *one = *value);
        }
        Some(thresholds)
    }

    /// With this change too, at its usual step.
    #[must_use]
    pub fn and(mut self, change: GcChange) -> Self {
        self.0.push(SettingItem { change, point: None });
        self
    }

    /// Its plan.
    pub fn plan(&self) -> Option<GcPlan> {
        self.0.iter().find_map(|item| match item.change {
            GcChange::Plan(plan) => Some(plan),
            _ => None,
        })
    }
}

impl GcChange {
    /// Whether it is of the same kind.
    pub fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// The name of its kind.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Threshold(_) => "threshold",
            Self::Loading(_) => "loading",
            Self::Freeze => "freeze",
            Self::FreezeForks => "freeze-forks",
            Self::Disable => "disable",
            Self::Plan(_) => "plan",
        }
    }

    /// Whether automatic collection is off with it.
    pub fn disables(&self) -> bool {
        matches!(self, Self::Disable | Self::Plan(_))
    }
}

/// With all its values: `plan:5,gen2:50`.
impl fmt::Display for GcChange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())?;
        match self {
            Self::Threshold(values) => {
                let values: Vec<String> = values.iter().map(u32::to_string).collect();
                write!(formatter, "={}", values.join(","))
            }
            Self::Loading(first) => write!(formatter, "={first}"),
            Self::Plan(plan) => write!(formatter, ":{},gen2:{}", plan.every, plan.full()),
            Self::Freeze | Self::FreezeForks | Self::Disable => Ok(()),
        }
    }
}

/// As it was written, but in one spelling.
impl fmt::Display for GcSetting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return formatter.write_str("none");
        }
        for (at, SettingItem { change, point }) in self.0.iter().enumerate() {
            if at > 0 {
                formatter.write_str(",")?;
            }
            match change {
                GcChange::Plan(plan) => write!(formatter, "plan:{}", plan.every)?,
                other => other.fmt(formatter)?,
            }
            match point {
                None => {}
                Some(0) => formatter.write_str("@start")?,
                Some(step) => write!(formatter, "@step:{step}")?,
            }
            if let GcChange::Plan(GcPlan { gen2: Some(full), .. }) = change {
                write!(formatter, ",gen2:{full}")?;
            }
        }
        Ok(())
    }
}

/// A text that is no setting. Contains the piece that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GcSettingError {
    /// Neither a change nor a value of the one before.
    Unknown(String),
    /// The part after the `@` is not a step.
    Point(String),
    /// The second of its kind.
    Twice(String),
    /// Freezing at the start.
    FreezeAtStart,
    /// `gen2` without a plan.
    NoPlan,
    /// An option of `auto`.
    AutoOption(String),
}

impl fmt::Display for GcSettingError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(piece) => write!(
                formatter,
                "{piece:?} is none of threshold=T0,T1,T2, loading=T0, freeze@step:N, freeze-forks, disable, plan:N, gen2:M"
            ),
            Self::Point(piece) => {
                write!(formatter, "{piece:?}: a setting is applied @start or @step:N")
            }
            Self::Twice(piece) => write!(formatter, "{piece:?} is given twice"),
            Self::FreezeAtStart => {
                formatter.write_str("freeze@start would freeze nothing: freeze@step:2")
            }
            Self::NoPlan => formatter.write_str("gen2 belongs to a plan: plan:100,gen2:1000"),
            Self::AutoOption(piece) => write!(
                formatter,
                "{piece:?} is none of worth=SHARE, memory=SHARE, cost=SHARE, goal=time, goal=longest"
            ),
        }
    }
}

impl std::error::Error for GcSettingError {}

impl FromStr for GcSetting {
    type Err = GcSettingError;

    fn from_str(text: &str) -> Result<Self, GcSettingError> {
        let (mut setting, mut gen2, mut is_none) = (Self::default(), None, false);
        let mut last_is_threshold = false;
        for piece in text.split(',').map(str::trim) {
            let unknown = || GcSettingError::Unknown(piece.to_owned());
            let (head, point) = match piece.split_once('@') {
                Some((head, point)) => (
                    head,
                    Some(step(point).ok_or_else(|| GcSettingError::Point(piece.to_owned()))?),
                ),
                None => (piece, None),
            };
            let (name, value) = match head.split_once(['=', ':']) {
                Some((name, value)) => (name, Some(number(value).ok_or_else(unknown)?)),
                None => (head, None),
            };
            let follows_threshold = std::mem::replace(&mut last_is_threshold, name == "threshold");
            let twice = || GcSettingError::Twice(piece.to_owned());
            match (name, value) {
                ("none", None) if !is_none => is_none = true,
                ("none", None) => return Err(twice()),
                ("gen2", Some(full)) if point.is_none() => {
                    if gen2.replace(full).is_some() {
                        return Err(twice());
                    }
                }
                (text, None) if follows_threshold && number(text).is_some() => {
                    setting.add_threshold(number(text), point).ok_or_else(unknown)?;
                    last_is_threshold = true;
                }
                _ => {
                    let change = change(name, value).ok_or_else(unknown)?;
                    if change == GcChange::Freeze && point == Some(0) {
                        return Err(GcSettingError::FreezeAtStart);
                    }
                    if matches!(change, GcChange::Loading(_)) && point.is_some() {
                        return Err(unknown());
                    }
                    if setting.has(&change) {
                        return Err(twice());
                    }
                    setting.0.push(SettingItem { change, point });
                }
            }
        }
        match gen2 {
            None => Ok(setting),
            Some(full) => setting.with_gen2(full).ok_or(GcSettingError::NoPlan),
        }
    }
}

impl GcSetting {
    /// Another value of the threshold before it; `None`: it has three.
    fn add_threshold(&mut self, value: Option<u32>, point: Option<u32>) -> Option<()> {
        let last = self.0.last_mut()?;
        match &mut last.change {
            GcChange::Threshold(values) if values.len() < 3 => values.push(value?),
            _ => return None,
        }
        last.point = point.or(last.point);
        Some(())
    }

    fn with_gen2(mut self, full: u32) -> Option<Self> {
        let plan = self.0.iter_mut().find_map(|item| match &mut item.change {
            GcChange::Plan(plan) => Some(plan),
            _ => None,
        });
        plan?.gen2 = Some(full);
        Some(self)
    }
}

fn change(name: &str, value: Option<u32>) -> Option<GcChange> {
    match (name, value) {
        ("threshold", Some(first)) => Some(GcChange::Threshold(vec![first])),
        ("loading", Some(first @ 1..)) => Some(GcChange::Loading(first)),
        ("freeze", None) => Some(GcChange::Freeze),
        ("freeze-forks", None) => Some(GcChange::FreezeForks),
        ("disable", None) => Some(GcChange::Disable),
        ("plan", Some(every @ 1..)) => Some(GcChange::Plan(GcPlan { every, gen2: None })),
        _ => None,
    }
}

/// The step of `start` or `step:N`.
fn step(point: &str) -> Option<u32> {
    match point {
        "start" => Some(0),
        point => number(point.strip_prefix("step:")?),
    }
}

/// Digits only: no sign.
fn number(text: &str) -> Option<u32> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let value = text.parse().ok()?;
    if value <= LARGEST { Some(value) } else { None }
}

impl TryFrom<String> for GcSetting {
    type Error = GcSettingError;

    fn try_from(text: String) -> Result<Self, GcSettingError> {
        text.parse()
    }
}

impl From<GcSetting> for String {
    fn from(setting: GcSetting) -> Self {
        setting.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> GcSetting {
        text.parse().expect(text)
    }

    #[test]
    fn settings_are_written_as_they_were_read() {
        for text in [
            "threshold=7000",
            "threshold=7000,10,10,freeze@step:2",
            "freeze",
            "disable@start",
            "plan:100@step:5,gen2:0",
            "none",
            "plan:1,freeze@step:3,threshold=0",
            "loading=100000,threshold=7000",
        ] {
            assert_eq!(parsed(text).to_string(), text);
        }
        for (text, written) in [
            ("threshold:7000, 10", "threshold=7000,10"),
            ("threshold=7000@step:3,10", "threshold=7000,10@step:3"),
            ("gen2:5,plan=5@step:0", "plan:5@start,gen2:5"),
            ("none,freeze", "freeze"),
        ] {
            assert_eq!(parsed(text).to_string(), written);
        }
    }

    #[test]
    fn what_is_no_setting_is_refused() {
        for text in [
            "",
            "threshold",
            "threshold=-1",
            "threshold=7000,10,10,10",
            "threshold=99999999999",
            "threshold=\u{b2}",
            "7000",
            "freeze@start",
            "freeze@2",
            "plan:0",
            "gen2:5",
            "gen2:5,gen2:5,plan:5",
            "plan:5,gen2:5@step:3",
            "plan:5,plan:6",
            "freeze,freeze",
            "none,none",
            "plan:5,7",
            "threshold=5,freeze,7",
            "freeze:1",
            "loading",
            "loading=0",
            "loading=5@step:3",
            "a|b",
        ] {
            let error = text.parse::<GcSetting>().expect_err(text);
            assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn thresholds_are_added_to_the_programs_own() {
        let thresholds = |text| parsed(text).thresholds([700, 10, 5]);
        assert_eq!(thresholds("none"), Some([700, 10, 5]));
        assert_eq!(thresholds("threshold=7000,20"), Some([7_000, 20, 5]));
        for other in [
            "loading=9",
            "threshold=7000@step:5",
            "threshold=0",
            "threshold=7000,disable",
            "freeze",
        ] {
            assert_eq!(thresholds(other), None, "{other}");
        }
    }

    #[test]
    fn steps_and_plans_have_defaults() {
        let steps = |text: &str| -> Vec<u32> {
            parsed(text).items().iter().map(SettingItem::step).collect()
        };
        assert_eq!(steps("threshold=7000,freeze,plan:5@start"), [0, 2, 0]);
        let full = |text: &str| parsed(text).plan().map(GcPlan::full);
        assert_eq!(
            (full("plan:5"), full("plan:5,gen2:0"), full("freeze")),
            (Some(50), Some(0), None)
        );
        let plan = parsed("plan:5");
        assert_eq!(plan.items()[0].change.to_string(), "plan:5,gen2:50");
        assert!(plan.items()[0].change.disables() && !plan.has(&GcChange::Disable));
    }
}
