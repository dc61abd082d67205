//! Notices training steps that take longer than the others (`--on-step-slower`).

use gctrace_event::{NamedMarker, StepMark};
use std::collections::{HashMap, VecDeque};

/// Number of steps to compare one with: the last ones of its marker and thread.
const COMPARED: usize = 64;
/// Fewest steps before one can be slower than them: warm-up is not slow, it is different.
const LEAST: usize = 16;
/// Most sequences of steps that are watched; threads come and go.
const MOST: usize = 1024;

/// The source of a sequence of steps: process, thread and marker.
type StepSource = (u32, u32, NamedMarker);

/// A step that took longer than usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlowStep {
    /// Its length, in ns.
    pub length_ns: u64,
    /// The median of the steps before, in ns.
    pub usual_ns: u64,
}

/// The last steps of each thread.
#[derive(Default)]
pub(super) struct StepTimes(HashMap<StepSource, StepSequence>);

#[derive(Default)]
struct StepSequence {
    last_ns: u64,
    lengths: VecDeque<u64>,
}

impl StepTimes {
    /// Adds a mark; returns the step that it ends, if that took `factor` times the median of the steps before
    /// it.
    pub(super) fn add(&mut self, mark: &StepMark, factor: f64) -> Option<SlowStep> {
        let source = (mark.pid, mark.tid, mark.marker.clone());
        if self.0.len() >= MOST && !self.0.contains_key(&source) {
            return None;
        }
        let at_ns = mark.at_ns();
        let steps = self.0.entry(source).or_default();
        let last_ns = std::mem::replace(&mut steps.last_ns, at_ns);
        if last_ns == 0 {
            return None;
        }
        let length_ns = at_ns.checked_sub(last_ns)?;
        let usual_ns = median(&steps.lengths);
        steps.lengths.push_back(length_ns);
        if steps.lengths.len() > COMPARED {
            steps.lengths.pop_front();
        }
        let usual_ns = usual_ns?;
        let is_slow = length_ns as f64 >= usual_ns as f64 * factor;
        if is_slow { Some(SlowStep { length_ns, usual_ns }) } else { None }
    }
}

fn median(lengths: &VecDeque<u64>) -> Option<u64> {
    if lengths.len() < LEAST {
        return None;
    }
    let mut lengths: Vec<u64> = lengths.iter().copied().collect();
    gctrace_stats::median_high(&mut lengths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_slow_compared_with_its_own_thread() {
        let mut times = StepTimes::default();
        let mut at_ns = 1;
        let mut step = |tid: u32, length_ns: u64| {
            at_ns += length_ns;
            let mark = StepMark {
                pid: 1,
                tid,
                marker: NamedMarker::Backward,
                start_ns: at_ns,
                end_ns: at_ns,
                cpu_ns: None,
            };
            times.add(&mark, 2.0)
        };
        assert_eq!(step(1, 5), None);
        // Warm-up: too few steps to compare with.
        assert_eq!(step(1, 5000), None);
        assert!((0..30).all(|_| step(1, 100).is_none()));
        assert_eq!(step(1, 199), None);
        assert_eq!(step(1, 200), Some(SlowStep { length_ns: 200, usual_ns: 100 }));
        assert_eq!(step(2, 900), None, "the first of another thread");
        assert_eq!(step(1, 100).map(|slow| slow.usual_ns), Some(100), "900 + 100 since its last");
    }
}
