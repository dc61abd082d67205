//! Labels of samples.

use gctrace_analysis::figure::{Label, number};
use gctrace_analysis::live::ProcessFigures;
use std::borrow::Cow;

/// Maximum characters of a label value that a recorded program controls.
const LONGEST: usize = 200;

/// Labels of a process: its pid on the host and its rank, if any. A reused pid looks like a counter reset; Prometheus
/// handles that.
pub(super) fn process(process: &ProcessFigures) -> Vec<Label<'static>> {
    let mut labels = vec![number("pid", process.pid)];
    labels.extend(process.rank.map(|rank| number("rank", rank)));
    labels
}

/// The text of a label: untrusted text is cut to [`LONGEST`], with control characters replaced.
pub(super) fn plain(text: Cow<'_, str>) -> Cow<'_, str> {
    let is_plain = text.chars().all(|c| !c.is_control());
    if is_plain && text.len() <= LONGEST {
        return text;
    }
    let mut cut: String =
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST).collect();
    if text.chars().nth(LONGEST).is_some() {
        cut.pop();
        cut.push('\u{2026}');
    }
    Cow::Owned(cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_is_cut_and_plain() {
        let value = |text: &str| plain(text.into()).into_owned();
        assert_eq!(value("python \"a b\" \\x"), "python \"a b\" \\x");
        assert_eq!(value("a\nb\u{1b}[31mc\0"), "a b [31mc ");
        let long = "\u{e4}".repeat(500);
        assert_eq!(value(&long).chars().count(), LONGEST);
        assert!(value(&long).ends_with('\u{2026}'));
        assert_eq!(value(&"x".repeat(LONGEST)), "x".repeat(LONGEST));
    }
}
