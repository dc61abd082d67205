//! Limits of `--fail-if`: of one report (`gctrace analyze`), and of a change (`gctrace compare`).

use super::values;
use gctrace_analysis::compare::FigureId;
use gctrace_analysis::figure::Unit;
use std::time::Duration;

/// A limit that a report must not exceed, such as `gc_share>2%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReportLimit {
    /// Share of training with the program paused by the collector, 0 to 1.
    GcShare(f64),
    /// Longest pause in training.
    Longest(Duration),
    /// What requests wait for the loop of a service, in 99 % of the cases at most.
    ArrivalP99(Duration),
    /// Longest turn of that loop.
    LongestTurn(Duration),
}

/// How much worse a figure may be after a change, such as `step_time>2%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChangeLimit {
    /// Name of the limited figure.
    pub name: &'static str,
    /// The limited figure.
    pub figure: FigureId,
    /// The limit.
    pub most: Increase,
}

/// Figures of a comparison that can be limited, by their names in limits.
const LIMITED: [(&str, FigureId); 7] = [
    ("step_time", FigureId::StepTime),
    ("step_cpu_time", FigureId::StepCpuTime),
    ("gc_share", FigureId::GcShare),
    ("gpu_cost", FigureId::GpuCost),
    ("longest", FigureId::Longest),
    ("p99", FigureId::ArrivalP99),
    ("longest_turn", FigureId::TurnLongest),
];

/// How much a figure may grow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Increase {
    /// By this share of its value before.
    Ratio(f64),
    /// A share, by so much: 0.01 is one percent point.
    Points(f64),
    /// A time, by so much.
    Time(Duration),
}

/// The forms of a limit, for messages.
const FORMS: &str = "expected gc_share>PERCENT, longest>TIME, p99>TIME or longest_turn>TIME, such as \
                     'gc_share>2%' or 'p99>50ms'";

/// Reads a limit.
pub(super) fn limit(text: &str) -> Result<ReportLimit, String> {
    let (figure, limit) = text.split_once('>').ok_or_else(|| FORMS.to_owned())?;
    match (figure.trim(), limit.trim()) {
        ("gc_share", limit) => Ok(ReportLimit::GcShare(values::percent(limit)?)),
        ("longest", limit) => values::time(limit).map(ReportLimit::Longest),
        ("p99", limit) => values::time(limit).map(ReportLimit::ArrivalP99),
        ("longest_turn", limit) => values::time(limit).map(ReportLimit::LongestTurn),
        _ => Err(FORMS.to_owned()),
    }
}

/// The forms of a limit of a change, for messages.
const CHANGE_FORMS: &str = "expected step_time>PERCENT, longest>PERCENT, step_time>+TIME, \
                            longest>+TIME (step_cpu_time, p99 and longest_turn alike), gc_share>+POINTS% or \
                            gpu_cost>+POINTS%, such as 'step_time>2%', 'gc_share>+1%' or \
                            'longest>+10ms'";

/// Reads a limit of a change. Shares grow by points, marked by the `+`; times by percent or, with `+`, by a time.
pub(super) fn change_limit(text: &str) -> Result<ChangeLimit, String> {
    let (name, most) = text.split_once('>').ok_or_else(|| CHANGE_FORMS.to_owned())?;
    let (name, most) = (name.trim(), most.trim());
    let limited = LIMITED.into_iter().find(|(limited, _)| *limited == name);
    let (name, figure) = limited.ok_or_else(|| CHANGE_FORMS.to_owned())?;
    let (_, unit, _) = figure.declared();
    let is_share = unit == Unit::Ratio;
    let most = match (most.strip_prefix('+'), is_share) {
        (Some(points), true) => Increase::Points(increase(points)?),
        (None, true) => {
            return Err(format!("{name} is a share and grows by points: write {name}>+{most}"));
        }
        (Some(time), false) => Increase::Time(values::time(time.trim())?),
        (None, false) => Increase::Ratio(increase(most)?),
    };
    Ok(ChangeLimit { name, figure, most })
}

/// A percentage of 0 up to 1,000, as a share of 1.
fn increase(text: &str) -> Result<f64, String> {
    let percent = text.trim().strip_suffix('%').map(|percent| percent.trim().parse::<f64>());
    match percent {
        Some(Ok(percent)) if (0.0..=1000.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err(format!("{text:?} is not a percentage of 0 up to 1000, such as 2%")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_or_refused() {
        assert_eq!(limit("gc_share>2%"), Ok(ReportLimit::GcShare(0.02)));
        assert_eq!(limit("gc_share > 0.5 %"), Ok(ReportLimit::GcShare(0.005)));
        let long = Duration::from_millis(50);
        assert_eq!(limit("longest>50ms"), Ok(ReportLimit::Longest(long)));
        assert_eq!(limit("p99>50ms"), Ok(ReportLimit::ArrivalP99(long)));
        assert_eq!(limit("longest_turn>50ms"), Ok(ReportLimit::LongestTurn(long)));
        for wrong in [
            "gc_share",
            "gc_share>-1%",
            "gc_share>0%",
            "gc_share>51%",
            "gc_share>NaN%",
            "longest>x",
            "a>1%",
        ] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn limits_of_changes_are_read_or_refused() {
        let read = |text| change_limit(text).map(|limit| (limit.figure, limit.most));
        assert_eq!(read("step_time>2%"), Ok((FigureId::StepTime, Increase::Ratio(0.02))));
        assert_eq!(read("gc_share > +1 %"), Ok((FigureId::GcShare, Increase::Points(0.01))));
        assert_eq!(
            read("longest>+10ms"),
            Ok((FigureId::Longest, Increase::Time(Duration::from_millis(10))))
        );
        assert_eq!(read("longest>0%"), Ok((FigureId::Longest, Increase::Ratio(0.0))));
        let error = change_limit("gc_share>2%").expect_err("no points");
        assert!(error.contains("gc_share>+2%"), "{error}");
        for wrong in [
            "step_time",
            "step_time>2",
            "step_time>-1%",
            "step_time>NaN%",
            "step_time>+2%",
            "longest>50ms",
            "gc_share>+x%",
            "heap>1%",
        ] {
            assert!(change_limit(wrong).is_err(), "{wrong}");
        }
    }
}
