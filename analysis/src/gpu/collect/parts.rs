//! Parts of a process's GPU work, where a recorder only counted the rest.
//!
//! Chooses the part to examine. Idle times, waits and costs follow from all work of an interval, so they are of one
//! part, and the pauses and steps of all the time are on a timeline without GPU work.

use super::{ProcessBuilder, WorkOfProcess};
use crate::gpu::timeline::{GpuPart, Timeline};
use crate::spans::PackedPauses;
use crate::time::intervals::Intervals;
use crate::time::{after, duration_ns};

/// The time between two records of counted work may be shorter; nothing follows from so little.
const SHORTEST_NS: u64 = 100_000_000;

/// From one time to another, in ns.
type Window = (u64, u64);

/// A process in two: its pauses and steps without GPU work; and a part of its GPU work with the host's activity
/// meanwhile, `None` without any.
pub(super) struct InParts {
    pub(super) elsewhere: ProcessBuilder,
    pub(super) kept: Option<(ProcessBuilder, WorkOfProcess)>,
}

impl InParts {
    /// `omitted`: when work was that was only counted.
    pub(super) fn of(process: ProcessBuilder, work: WorkOfProcess, omitted: &Intervals) -> Self {
        let of_process = process.timeline.process.clone();
        let mut elsewhere = ProcessBuilder {
            timeline: Timeline { process: of_process, ..Timeline::default() },
            thread_indices: process.thread_indices.clone(),
            pauses: process.pauses.clone(),
            marks: process.marks.clone(),
            ..ProcessBuilder::default()
        };
        elsewhere.timeline.gpu_part = Some(GpuPart::Elsewhere);
        let window = process.part(&work, omitted);
        let kept = window.map(|window| (process.within(window), work.within(window)));
        Self { elsewhere, kept }
    }
}

impl ProcessBuilder {
    /// The part with the longest pause; if several have one, the longest part.
    fn part(&self, work: &WorkOfProcess, omitted: &Intervals) -> Option<Window> {
        let of_ops: Vec<Window> = work.ops.iter().map(|raw| raw.op.span()).collect();
        let of_calls = || self.calls.iter().map(|raw| raw.call.span()).collect();
        let mut spans = if of_ops.is_empty() { of_calls() } else { of_ops };
        spans.sort_unstable();
        let mut parts: Vec<Window> = Vec::new();
        for (start_ns, end_ns) in spans {
            if omitted.length_within(start_ns, end_ns.max(after(start_ns, 1))) > 0 {
                continue;
            }
            match parts.last_mut() {
                Some(last) if omitted.length_within(last.0, end_ns) == 0 => {
                    last.1 = last.1.max(end_ns)
                }
                _ => parts.push((start_ns, end_ns)),
            }
        }
        parts.retain(|(from_ns, until_ns)| duration_ns(*from_ns, *until_ns) >= SHORTEST_NS);
        let (pauses, _) = self.pauses.unpack();
        let longest_ns = |part: &Window| {
            let first = pauses.partition_point(|pause| pause.start_ns < part.0);
            let of_part = pauses[first..].iter().take_while(|pause| pause.start_ns <= part.1);
            of_part.map(|pause| pause.duration_ns()).max()
        };
        parts.into_iter().max_by_key(|part| (longest_ns(part), duration_ns(part.0, part.1)))
    }

    /// Records entirely within a part, and pauses that reach into it.
    fn within(mut self, part: Window) -> Self {
        self.calls.retain(|raw| is_within(part, raw.call.span()));
        self.counted_launches
            .retain(|(_, launches)| is_within(part, (launches.first_ns, launches.last_ns)));
        let timeline = &mut self.timeline;
        timeline.annotations.retain(|span| is_within(part, (span.start_ns, span.end_ns)));
        timeline.samples.retain(|samples| is_within(part, (samples.start_ns, samples.end_ns)));
        timeline.steps.retain(|step| is_within(part, (step.start_ns, step.end_ns)));
        timeline.gpu_part = Some(GpuPart::Kept);
        for marks in self.marks.values_mut() {
            marks.retain(|(at_ns, _)| is_within(part, (*at_ns, *at_ns)));
        }
        let (pauses, _) = self.pauses.unpack();
        self.pauses = PackedPauses::default();
        for pause in pauses.iter().filter(|pause| reaches(part, pause.span())) {
            self.pauses.push(pause);
        }
        self
    }
}

impl WorkOfProcess {
    fn within(mut self, part: Window) -> Self {
        self.ops.retain(|raw| is_within(part, raw.op.span()));
        self.syncs.retain(|sync| is_within(part, (sync.start_ns, sync.end_ns)));
        self.code.retain(|code| reaches(part, (code.start_ns, code.end_ns)));
        self
    }
}

fn is_within(part: Window, (start_ns, end_ns): Window) -> bool {
    part.0 <= start_ns && end_ns <= part.1
}

fn reaches(part: Window, (start_ns, end_ns): Window) -> bool {
    part.0 <= end_ns && start_ns <= part.1
}
