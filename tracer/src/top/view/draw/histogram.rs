//! Histogram of pause lengths by generation.

use super::{plain, put, put_lines, styled, top};
use crate::top::view::{text, theme};
use crate::units;
use gctrace_analysis::live::{GENERATIONS, Histogram, PAUSE_CLASSES_NS};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

/// Width of the label, and of each generation including a space.
const LABEL: usize = 9;
const COUNT: usize = 7;

/// Height that the histogram needs, including the heading.
pub(super) fn wanted(histograms: &[Histogram; GENERATIONS]) -> usize {
    classes(histograms, PAUSE_CLASSES_NS.len() + 1).len() + 1
}

/// Several adjacent classes, merged.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HistogramBar {
    /// Upper bound; `None`: above the last bound.
    bound_ns: Option<u64>,
    counts: [u64; GENERATIONS],
}

impl HistogramBar {
    fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}

pub(super) fn draw(buffer: &mut Buffer, area: Rect, histograms: &[Histogram; GENERATIONS]) {
    let (head, body) = top(area, 1);
    let width = usize::from(area.width);
    let classes = classes(histograms, body.height.into());
    let shown = shown(histograms);
    put(buffer, head, 0, styled(heading(&shown, width), theme::bold()));
    let Some(most) = classes.iter().map(HistogramBar::total).max() else {
        return;
    };
    let room = text::rest(width, LABEL + COUNT * shown.len() + 1);
    let lines = classes.iter().map(|class| {
        let mut line = label(class);
        for generation in &shown {
            let count = class.counts[*generation];
            let words = if count == 0 { ".".to_owned() } else { text::brief_count(count) };
            line += &text::fill(&words, COUNT, false);
        }
        let bar = "▇".repeat(logarithmic(class.total(), most, room));
        Line::from(vec![plain(line), plain(" "), styled(bar, theme::warning())])
    });
    put_lines(buffer, body, lines);
}

/// Generations with pauses, or the first three if there are none.
fn shown(histograms: &[Histogram; GENERATIONS]) -> Vec<usize> {
    let is_used = |generation: &usize| histograms[*generation].iter().any(|count| *count > 0);
    let used: Vec<usize> = (0..GENERATIONS).filter(is_used).collect();
    if used.is_empty() { vec![0, 1, 2] } else { used }
}

fn heading(shown: &[usize], width: usize) -> String {
    let mut heading = text::fill("PAUSES", LABEL, true);
    for generation in shown {
        let name = match generation {
            3 => "gen ?".to_owned(),
            number => format!("gen {number}"),
        };
        heading += &text::fill(&name, COUNT, false);
    }
    let hint = " (log scale)";
    if text::width(&heading) + text::width(hint) <= width {
        heading += hint;
    }
    heading
}

fn label(class: &HistogramBar) -> String {
    let words = match class.bound_ns {
        Some(bound) => format!("≤{}", whole(bound)),
        None => format!(">{}", whole(PAUSE_CLASSES_NS[PAUSE_CLASSES_NS.len() - 1])),
    };
    text::fill(&words, LABEL, true)
}

/// A bound without trailing zeros: `2.5 ms`, `100 µs`.
fn whole(ns: u64) -> String {
    let words = units::duration(ns);
    let Some((number, unit)) = words.split_once(' ') else {
        return words;
    };
    let number = if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.')
    } else {
        number
    };
    format!("{number} {unit}")
}

/// From the first class with pauses to the last; adjacent ones merged to fit `most` lines.
fn classes(histograms: &[Histogram; GENERATIONS], most: usize) -> Vec<HistogramBar> {
    let bounds = PAUSE_CLASSES_NS.iter().copied().map(Some).chain([None]);
    let all: Vec<HistogramBar> = bounds
        .enumerate()
        .map(|(index, bound_ns)| HistogramBar { bound_ns, counts: histograms.map(|of| of[index]) })
        .collect();
    let first = all.iter().position(|class| class.total() > 0);
    let last = all.iter().rposition(|class| class.total() > 0);
    let (Some(first), Some(last)) = (first, last) else {
        return Vec::new();
    };
    let used = &all[first..=last];
    if most == 0 {
        return Vec::new();
    }
    used.chunks(used.len().div_ceil(most)).map(together).collect()
}

fn together(classes: &[HistogramBar]) -> HistogramBar {
    let sum = |generation: usize| classes.iter().map(|class| class.counts[generation]).sum();
    HistogramBar {
        bound_ns: classes.last().and_then(|class| class.bound_ns),
        counts: std::array::from_fn(sum),
    }
}

/// Length of a bar on a logarithmic scale: at least 1 for a count above 0, `room` for `most`.
fn logarithmic(count: u64, most: u64, room: usize) -> usize {
    if count == 0 {
        return 0;
    }
    let part = (count as f64).ln_1p() / (most as f64).ln_1p();
    ((part * room as f64).round() as usize).clamp(1, room.max(1)).min(room)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_classes_are_merged_to_fit() {
        let mut histograms = [[0; PAUSE_CLASSES_NS.len() + 1]; GENERATIONS];
        for (index, count) in histograms[0].iter_mut().enumerate().skip(2).take(9) {
            *count = index as u64;
        }
        histograms[2][19] = 1;
        assert_eq!(classes(&histograms, 18).len(), 18);
        let few = classes(&histograms, 5);
        assert_eq!(few.len(), 5);
        assert_eq!(few[0].bound_ns, Some(500_000));
        assert_eq!(few[0].counts, [2 + 3 + 4 + 5, 0, 0, 0]);
        assert_eq!(few[4].bound_ns, None);
        assert_eq!(classes(&histograms, 0), []);
        assert_eq!(classes(&Default::default(), 9), []);
    }

    #[test]
    fn bars() {
        assert_eq!(logarithmic(0, 100, 10), 0);
        assert_eq!(logarithmic(1, 1_000_000, 10), 1);
        assert_eq!(logarithmic(100, 100, 10), 10);
        assert_eq!(logarithmic(1, 1, 0), 0);
        assert_eq!(whole(2_500_000), "2.5 ms");
        assert_eq!(whole(100_000), "100 µs");
        assert_eq!(whole(10_000_000_000), "10 s");
    }
}
