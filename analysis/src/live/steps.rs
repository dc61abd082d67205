//! The last training steps of one process.
//!
//! Owns the definition of a step, as in the report of a trace: an annotation `ProfilerStep#n` if there are any,
//! otherwise the time from one mark to the next, by the preferred marker that has any steps, on the thread with the
//! most steps. An annotation is reported at its end, so pauses are counted for it as far as they are kept: a minute,
//! or the last 65,535. The report's `gpu/steps.rs` has all steps and pauses in order, keeps each step and compares
//! them; here they arrive late, and the last ones are kept.

use super::STEPS;
use super::snapshot::StepFigures;
use crate::accumulate::interval_union::IntervalUnion;
use crate::report::{PauseTotal, StepSource};
use crate::time::add_to;
use gctrace_event::{Annotation, NamedMarker, StepMark};
use std::cmp::Reverse;
use std::collections::VecDeque;

/// Threads of a process with steps, times markers of them: programs have one to three.
const THREADS: usize = 16;

/// Steps of one process, and the pauses within them.
#[derive(Clone, Debug, Default)]
pub(super) struct LiveSteps {
    threads: Vec<ThreadSteps>,
}

/// The steps of one thread by one marker; `None`: by annotations.
#[derive(Clone, Debug)]
struct ThreadSteps {
    tid: u32,
    marker: Option<NamedMarker>,
    count: u64,
    /// The step that started with the last mark, and the pauses in it so far.
    open: Option<(u64, PauseTotal)>,
    /// By start; they do not overlap.
    closed: VecDeque<StepFigures>,
}

/// When any pause ran, and when each started, in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepPauses<'a> {
    pub(super) covered: &'a IntervalUnion,
    pub(super) starts: &'a VecDeque<u64>,
}

impl StepPauses<'_> {
    fn within(self, start_ns: u64, end_ns: u64) -> PauseTotal {
        let first = self.starts.partition_point(|start| *start < start_ns);
        let behind = self.starts.partition_point(|start| *start < end_ns);
        PauseTotal {
            count: behind.saturating_sub(first) as u64,
            time_ns: self.covered.length_within(start_ns, end_ns),
        }
    }
}

impl LiveSteps {
    /// Adds a mark of a step.
    pub(super) fn add_mark(&mut self, mark: &StepMark, pauses: StepPauses<'_>) {
        let Some(thread) = self.thread(mark.tid, Some(&mark.marker)) else { return };
        let start_ns = mark.at_ns();
        if matches!(thread.open, Some((open_ns, _)) if start_ns <= open_ns) {
            return;
        }
        let now = pauses.within(start_ns, u64::MAX);
        if let Some((open_ns, in_it)) = thread.open.replace((start_ns, now)) {
            let pauses = PauseTotal {
                count: in_it.count.saturating_sub(now.count),
                time_ns: in_it.time_ns.saturating_sub(now.time_ns),
            };
            thread.close(StepFigures::new(open_ns, start_ns, pauses));
        }
    }

    /// Adds an annotation that is a step.
    pub(super) fn add_annotation(&mut self, annotation: &Annotation, pauses: StepPauses<'_>) {
        if let Some(thread) = self.thread(annotation.tid, None) {
            let (start_ns, end_ns) = (annotation.start_ns, annotation.end_ns);
            let pauses = pauses.within(start_ns, end_ns);
            thread.close(StepFigures::new(start_ns, end_ns, pauses));
        }
    }

    /// Adds a pause.
    pub(super) fn add_pause(&mut self, start_ns: u64) {
        for thread in &mut self.threads {
            let pauses = match &mut thread.open {
                Some((open_ns, pauses)) if *open_ns <= start_ns => Some(pauses),
                _ => thread.around(start_ns).map(|step| &mut step.pauses),
            };
            if let Some(pauses) = pauses {
                add_to(&mut pauses.count, 1);
            }
        }
    }

    /// Adds time with a pause running and no other.
    pub(super) fn add_paused(&mut self, start_ns: u64, end_ns: u64) {
        for thread in &mut self.threads {
            if let Some((open_ns, pauses)) = &mut thread.open {
                let within = end_ns.saturating_sub(start_ns.max(*open_ns));
                add_to(&mut pauses.time_ns, within);
            }
            let later = |step: &&mut StepFigures| step.end_ns() > start_ns;
            for step in thread.closed.iter_mut().rev().take_while(later) {
                let from = start_ns.max(step.start_ns);
                let within = end_ns.min(step.end_ns()).saturating_sub(from);
                add_to(&mut step.pauses.time_ns, within);
            }
        }
    }

    /// Steps, oldest first, and their source.
    pub(super) fn figures(&self) -> (Vec<StepFigures>, Option<StepSource>) {
        let preferred = self.threads.iter().min_by_key(|thread| {
            (thread.closed.is_empty(), thread.source(), Reverse(thread.count))
        });
        let Some(most) = preferred else { return (Vec::new(), None) };
        let steps = most.closed.iter().map(|step| {
            let mut step = *step;
            step.pauses.count = step.pauses.count.max(u64::from(step.pauses.time_ns > 0));
            step
        });
        (steps.collect(), Some(most.source()))
    }

    /// The steps of a thread; `None` if there are too many threads.
    fn thread(&mut self, tid: u32, marker: Option<&NamedMarker>) -> Option<&mut ThreadSteps> {
        let is_own = |steps: &ThreadSteps| steps.tid == tid && steps.marker.as_ref() == marker;
        let at = self.threads.iter().position(is_own);
        let at = at.unwrap_or(self.threads.len());
        if at == self.threads.len() {
            if at >= THREADS {
                return None;
            }
            self.threads.push(ThreadSteps {
                tid,
                marker: marker.cloned(),
                count: 0,
                open: None,
                closed: VecDeque::new(),
            });
        }
        self.threads.get_mut(at)
    }
}

impl StepFigures {
    fn new(start_ns: u64, end_ns: u64, pauses: PauseTotal) -> Self {
        Self { start_ns, duration_ns: end_ns.saturating_sub(start_ns), pauses }
    }

    /// Lets it end at a time at the latest; what paused after that is not distinguished.
    fn cut(&mut self, until_ns: u64) {
        let most = until_ns.saturating_sub(self.start_ns);
        self.duration_ns = self.duration_ns.min(most);
    }

    fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.duration_ns)
    }
}

impl ThreadSteps {
    fn source(&self) -> StepSource {
        if let Some(marker) = &self.marker { marker.into() } else { StepSource::ProfilerStep }
    }

    /// Adds a step. It is cut where the next one starts.
    fn close(&mut self, mut step: StepFigures) {
        add_to(&mut self.count, 1);
        let at = self.closed.partition_point(|other| other.start_ns < step.start_ns);
        if let Some(next) = self.closed.get(at) {
            if next.start_ns == step.start_ns || (at == 0 && self.closed.len() >= STEPS) {
                return;
            }
            step.cut(next.start_ns);
        }
        if let Some(before) = at.checked_sub(1).and_then(|at| self.closed.get_mut(at)) {
            before.cut(step.start_ns);
        }
        self.closed.insert(at, step);
        if self.closed.len() > STEPS {
            self.closed.pop_front();
        }
    }

    /// The step that contains a timestamp.
    fn around(&mut self, at_ns: u64) -> Option<&mut StepFigures> {
        let last = self.closed.back()?;
        if at_ns >= last.end_ns() {
            return None;
        }
        let behind = self.closed.partition_point(|step| step.start_ns <= at_ns);
        let step = self.closed.get_mut(behind.checked_sub(1)?)?;
        if at_ns < step.end_ns() { Some(step) } else { None }
    }
}
