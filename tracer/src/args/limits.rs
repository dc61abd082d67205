//! Limits of `gctrace analyze --fail-if`.

use super::values;
use std::time::Duration;

/// A limit that a report must not exceed, such as `gc_share>2%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ReportLimit {
    /// Share of training during which the collector paused the program, 0 to 1.
    GcShare(f64),
    /// Longest pause in training.
    Longest(Duration),
}

/// What a limit may look like, for messages.
const FORMS: &str = "expected gc_share>PERCENT or longest>TIME, such as 'gc_share>2%' or \
                     'longest>50ms'";

/// Reads a limit.
pub(super) fn limit(text: &str) -> Result<ReportLimit, String> {
    let (figure, limit) = text.split_once('>').ok_or_else(|| FORMS.to_owned())?;
    match (figure.trim(), limit.trim()) {
        ("gc_share", limit) => {
            let percent = values::percent(limit)?;
            Ok(ReportLimit::GcShare(percent / 100.0))
        }
        ("longest", limit) => values::time(limit).map(ReportLimit::Longest),
        _ => Err(FORMS.to_owned()),
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
}
