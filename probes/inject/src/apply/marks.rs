//! Decides which marks are steps.

use gctrace_ring::StepMarker;
use gctrace_units::{add_to, beyond};

/// Marks of backward passes and of a DataLoader before they count: a better marker may come.
const UNCERTAIN: u64 = 32;

/// Counts the marks of the best marker seen so far.
#[derive(Debug)]
pub(crate) struct MarkCounter {
    /// Only calls of the function count, or only other marks.
    by_function: bool,
    seen: [u64; 4],
    marker: Option<StepMarker>,
    marks: u64,
}

/// The meaning of a mark.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Marked {
    /// A mark that does not count.
    Nothing,
    /// The end of a step, or the start of one.
    Step,
    /// The first of a better marker than this one: numbers start again.
    StepAnew(StepMarker),
}

impl MarkCounter {
    pub(crate) fn new(by_function: bool) -> Self {
        Self { by_function, seen: [0; 4], marker: None, marks: 0 }
    }

    pub(crate) fn count(&mut self, marker: StepMarker) -> Marked {
        let rank = preference(marker);
        if self.by_function != (marker == StepMarker::Function) {
            return Marked::Nothing;
        }
        let Some(seen) = self.seen.get_mut(rank) else {
            return Marked::Nothing;
        };
        *seen += 1;
        let before = self.marker;
        if before != Some(marker) {
            let is_better = before.is_none_or(|before| rank < preference(before));
            let is_uncertain = rank >= preference(StepMarker::Backward) && *seen < UNCERTAIN;
            if !is_better || is_uncertain {
                return Marked::Nothing;
            }
            self.marker = Some(marker);
            self.marks = *seen - 1;
        }
        self.marks += 1;
        match before {
            Some(before) if before != marker => Marked::StepAnew(before),
            _ => Marked::Step,
        }
    }

    /// More marks of the marker so far.
    pub(crate) fn add(&mut self, marks: u64) {
        add_to(&mut self.marks, marks);
        if let Some(seen) = self.marker.and_then(|marker| self.seen.get_mut(preference(marker))) {
            add_to(seen, marks);
        }
    }

    /// The marker of steps; `None`: none so far.
    pub(crate) fn marker(&self) -> Option<StepMarker> {
        self.marker
    }

    /// Steps completed: an optimizer's mark ends one, the others start one.
    pub(crate) fn steps(&self) -> u64 {
        match self.marker {
            Some(StepMarker::Optimizer) => self.marks,
            _ => beyond(self.marks, 1),
        }
    }
}

/// The best has 0.
pub(crate) fn preference(marker: StepMarker) -> usize {
    match marker {
        StepMarker::Function => 0,
        StepMarker::Optimizer => 1,
        StepMarker::Backward => 2,
        StepMarker::DataLoader => 3,
    }
}

/// As reports name it.
pub(crate) fn name(marker: StepMarker) -> &'static str {
    match marker {
        StepMarker::Function => "function",
        StepMarker::Optimizer => "optimizer",
        StepMarker::Backward => "backward",
        StepMarker::DataLoader => "dataloader",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_better_marker_starts_again() {
        let mut marks = MarkCounter::new(false);
        for _ in 1..UNCERTAIN {
            assert_eq!(marks.count(StepMarker::Backward), Marked::Nothing);
        }
        assert_eq!(marks.count(StepMarker::Backward), Marked::Step);
        assert_eq!(marks.steps(), UNCERTAIN - 1);
        let anew = Marked::StepAnew(StepMarker::Backward);
        assert_eq!(marks.count(StepMarker::Optimizer), anew);
        assert_eq!(marks.count(StepMarker::Backward), Marked::Nothing);
        assert_eq!(marks.count(StepMarker::Function), Marked::Nothing);
        assert_eq!(marks.count(StepMarker::Optimizer), Marked::Step);
        assert_eq!((marks.steps(), marks.marker()), (2, Some(StepMarker::Optimizer)));
    }

    #[test]
    fn a_named_function_counts_alone() {
        let mut marks = MarkCounter::new(true);
        assert_eq!(marks.count(StepMarker::Optimizer), Marked::Nothing);
        assert_eq!(marks.count(StepMarker::Function), Marked::Step);
        assert_eq!(marks.steps(), 0);
    }
}
