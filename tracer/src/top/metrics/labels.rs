//! Labels of samples.

use gctrace_analysis::live::ProcessFigures;
use std::borrow::Cow;

/// A label's name and its value, as in `generation="2"`.
pub(super) type Label<'a> = (&'static str, Cow<'a, str>);

/// Maximum characters of a label value that a recorded program controls.
const LONGEST: usize = 200;

/// Names of the generations, in the order of `GENERATIONS`.
pub(super) const GENERATION_NAMES: [&str; 4] = ["0", "1", "2", "unknown"];

/// Labels of a process: its pid on the host and its rank, if any. A reused pid looks like a counter
/// reset, which Prometheus handles.
pub(super) fn process(process: &ProcessFigures) -> Vec<Label<'static>> {
    let mut labels = vec![number("pid", process.pid)];
    labels.extend(process.rank.map(|rank| number("rank", rank)));
    labels
}

/// A label whose value is a number, in decimal.
pub(super) fn number(name: &'static str, value: u32) -> Label<'static> {
    (name, Cow::Owned(value.to_string()))
}

/// A label with a fixed value.
pub(super) fn word(name: &'static str, value: &'static str) -> Label<'static> {
    (name, Cow::Borrowed(value))
}

/// A label with untrusted text, cut to [`LONGEST`] and with control characters replaced.
pub(super) fn text<'a>(name: &'static str, value: &'a str) -> Label<'a> {
    let is_plain = value.chars().all(|c| !c.is_control());
    if is_plain && value.len() <= LONGEST {
        return (name, Cow::Borrowed(value));
    }
    let mut cut: String =
        value.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST).collect();
    if value.chars().nth(LONGEST).is_some() {
        cut.pop();
        cut.push('\u{2026}');
    }
    (name, Cow::Owned(cut))
}

/// A copy of `labels` with `label` as its last.
pub(super) fn with<'a>(labels: &[Label<'a>], label: Label<'a>) -> Vec<Label<'a>> {
    let mut all = Vec::with_capacity(labels.len() + 1);
    all.extend_from_slice(labels);
    all.push(label);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_is_cut_and_plain() {
        let value = |text: &str| super::text("command", text).1.into_owned();
        assert_eq!(value("python \"a b\" \\x"), "python \"a b\" \\x");
        assert_eq!(value("a\nb\u{1b}[31mc\0"), "a b [31mc ");
        let long = "\u{e4}".repeat(500);
        assert_eq!(value(&long).chars().count(), LONGEST);
        assert!(value(&long).ends_with('\u{2026}'));
        assert_eq!(value(&"x".repeat(LONGEST)), "x".repeat(LONGEST));
    }
}
