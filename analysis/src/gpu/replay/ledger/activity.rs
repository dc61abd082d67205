//! What each thread of the host was doing, by its annotations, code and pauses: disjoint segments.

use super::IdleLabel;
use crate::gpu::idle::IdleCause;
use crate::gpu::timeline::{NameIndex, ThreadIndex, Timeline};
use crate::time::intervals::clipped;
use gctrace_event::HostCodeKind;
use std::collections::HashMap;

/// A time of a thread with one cause and place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostSegment {
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) cause: IdleCause,
    pub(super) label: IdleLabel,
}

impl HostSegment {
    /// A label of the time between calls: where the function or an annotation is known, operators would
    /// only split it.
    fn between_calls(self) -> Self {
        let IdleLabel { python, annotation, operator, .. } = self.label;
        let operator = if python.is_none() && annotation.is_none() { operator } else { None };
        Self { label: IdleLabel { operator, ..self.label }, ..self }
    }
}

/// The segments of each thread inside annotations, code and pauses.
#[derive(Debug, Default)]
pub(super) struct HostActivity {
    threads: HashMap<ThreadIndex, Vec<HostSegment>>,
    /// Whether the profiler recorded work of its own.
    overhead: bool,
}

/// An annotation, a function or an operator, or a pause.
#[derive(Clone, Copy)]
struct HostRange {
    start_ns: u64,
    end_ns: u64,
    /// The cause that it sets for everything within; `None` if it shows no cause.
    cause: Option<IdleCause>,
    label: IdleLabel,
}

impl HostRange {
    /// The same with the cause and the place that all within it have.
    fn inside(self, outer: &Self) -> Self {
        let causes = [self.cause, outer.cause];
        let first = [IdleCause::Gc, IdleCause::Profiler].map(Some);
        let first = first.into_iter().find(|cause| causes.contains(cause)).flatten();
        let cause = first.or(outer.cause).or(self.cause);
        let label = IdleLabel {
            function: None,
            operator: outer.label.operator.or(self.label.operator),
            python: self.label.python.or(outer.label.python),
            annotation: self.label.annotation.or(outer.label.annotation),
        };
        Self { end_ns: self.end_ns.min(outer.end_ns), cause, label, ..self }
    }
}

impl HostActivity {
    pub(super) fn of(timeline: &Timeline) -> Self {
        let mut ranges: HashMap<ThreadIndex, Vec<HostRange>> = HashMap::new();
        let mut causes: HashMap<NameIndex, Option<IdleCause>> = HashMap::new();
        for span in &timeline.annotations {
            let by_name = || cause_of(timeline.names.text(span.name));
            ranges.entry(span.thread).or_default().push(HostRange {
                start_ns: span.start_ns,
                end_ns: span.end_ns,
                cause: *causes.entry(span.name).or_insert_with(by_name),
                label: IdleLabel { annotation: Some(span.name), ..IdleLabel::default() },
            });
        }
        let mut overhead = false;
        for code in &timeline.code {
            let none = IdleLabel::default();
            let name = Some(code.name);
            let (cause, label) = match code.kind {
                HostCodeKind::Function => (None, IdleLabel { python: name, ..none }),
                HostCodeKind::Operator => (None, IdleLabel { operator: name, ..none }),
                HostCodeKind::Overhead => {
                    (Some(IdleCause::Profiler), IdleLabel { annotation: name, ..none })
                }
            };
            overhead |= cause.is_some();
            let (start_ns, end_ns) = (code.start_ns, code.end_ns);
            let range = HostRange { start_ns, end_ns, cause, label };
            ranges.entry(code.thread).or_default().push(range);
        }
        for pause in &timeline.pauses {
            ranges.entry(pause.thread).or_default().push(HostRange {
                start_ns: pause.start_ns,
                end_ns: pause.end_ns,
                cause: Some(IdleCause::Gc),
                label: IdleLabel::default(),
            });
        }
        let threads = ranges.into_iter().map(|(thread, ranges)| (thread, flat(ranges)));
        Self { threads: threads.collect(), overhead }
    }

    /// Calls `each` with the profiler's work in an interval of a thread.
    pub(super) fn overhead(
        &self,
        thread: ThreadIndex,
        start_ns: u64,
        end_ns: u64,
        mut each: impl FnMut(HostSegment),
    ) {
        if self.overhead {
            self.within(thread, start_ns, end_ns, |segment| {
                if segment.cause == IdleCause::Profiler {
                    each(segment);
                }
            });
        }
    }

    /// The code around a time of a thread.
    pub(super) fn label(&self, thread: ThreadIndex, at_ns: u64) -> IdleLabel {
        let segments = if let Some(known) = self.threads.get(&thread) { &known[..] } else { &[] };
        let at = segments.partition_point(|segment| segment.end_ns <= at_ns);
        match segments.get(at) {
            Some(segment) if segment.start_ns <= at_ns => segment.label,
            _ => IdleLabel::default(),
        }
    }

    /// Calls `each` with the segments of an interval of a thread between calls, in order and without
    /// holes.
    pub(super) fn within(
        &self,
        thread: ThreadIndex,
        start_ns: u64,
        end_ns: u64,
        mut each: impl FnMut(HostSegment),
    ) {
        let host = |start_ns, end_ns| HostSegment {
            start_ns,
            end_ns,
            cause: IdleCause::Host,
            label: IdleLabel::default(),
        };
        let segments = if let Some(known) = self.threads.get(&thread) { &known[..] } else { &[] };
        let first = segments.partition_point(|segment| segment.end_ns <= start_ns);
        let mut at_ns = start_ns;
        for segment in &segments[first..] {
            let span = (segment.start_ns, segment.end_ns);
            let Some((from, to)) = clipped([&span], at_ns, end_ns).next() else { break };
            if from > at_ns {
                each(host(at_ns, from));
            }
            each(HostSegment { start_ns: from, end_ns: to, ..*segment }.between_calls());
            at_ns = to;
        }
        if at_ns < end_ns {
            each(host(at_ns, end_ns));
        }
    }
}

/// The cause that an annotation sets, by its letters; `None` if it says nothing of one.
fn cause_of(name: &str) -> Option<IdleCause> {
    // PyTorch's DataLoader and Lightning: 'enumerate(DataLoader)#_...Iter.__next__',
    // '[_TrainingEpochLoop].train_dataloader_next'; torchrec's benchmarks: '## load_batch ##',
    // '## wait_for_batch ##'.
    const DATA: [&str; 5] = ["dataload", "loaddata", "loadbatch", "waitforbatch", "nextbatch"];
    const FILES: [&str; 4] = ["checkpoint", "torchsave", "serialization", "filesonthedisk"];
    let letters = name.chars().filter(char::is_ascii_alphabetic);
    let letters: String = letters.map(|char| char.to_ascii_lowercase()).collect();
    let contains = |words: &[&str]| words.iter().any(|word| letters.contains(word));
    match () {
        () if contains(&DATA) => Some(IdleCause::Data),
        () if contains(&FILES) => Some(IdleCause::Files),
        () if name.contains("wait()") || name.contains("_wait ##") || contains(&["barrier"]) => {
            Some(IdleCause::RankWait)
        }
        () => None,
    }
}

/// The innermost range at each time, with the cause of the outermost that sets one; pauses before
/// all. Ranges that overlap without being nested are cut.
fn flat(mut ranges: Vec<HostRange>) -> Vec<HostSegment> {
    ranges.sort_by_key(|range| (range.start_ns, std::cmp::Reverse(range.end_ns)));
    let mut flat = FlatRanges::default();
    for range in ranges {
        flat.close_until(range.start_ns);
        flat.emit(range.start_ns);
        let range = if let Some(outer) = flat.open.last() { range.inside(outer) } else { range };
        flat.open.push(range);
    }
    flat.close_until(u64::MAX);
    flat.segments.shrink_to_fit();
    flat.segments
}

#[derive(Default)]
struct FlatRanges {
    /// Each with the settings of the ranges around it.
    open: Vec<HostRange>,
    at_ns: u64,
    segments: Vec<HostSegment>,
}

impl FlatRanges {
    fn close_until(&mut self, at_ns: u64) {
        while let Some(inner) = self.open.last()
            && inner.end_ns <= at_ns
        {
            let end_ns = inner.end_ns;
            self.emit(end_ns);
            self.open.pop();
        }
    }

    /// Emits the innermost open range up to a time.
    fn emit(&mut self, until_ns: u64) {
        let start_ns = self.at_ns;
        self.at_ns = start_ns.max(until_ns);
        let (true, Some(inner)) = (start_ns < until_ns, self.open.last()) else { return };
        let cause = inner.cause.unwrap_or(IdleCause::Host);
        match self.segments.last_mut() {
            Some(last)
                if (last.end_ns, last.cause, last.label) == (start_ns, cause, inner.label) =>
            {
                last.end_ns = until_ns;
            }
            _ => self.segments.push(HostSegment {
                start_ns,
                end_ns: until_ns,
                cause,
                label: inner.label,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn annotations_by_name() {
        for (name, cause) in [
            (
                "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
                Some(IdleCause::Data),
            ),
            ("## data_load ##", Some(IdleCause::Data)),
            ("## forward ##", None),
            ("save_checkpoint", Some(IdleCause::Files)),
            ("all2all_tw_data:wait()", Some(IdleCause::RankWait)),
        ] {
            assert_eq!(cause_of(name), cause, "{name}");
        }
    }

    proptest! {
        /// Segments are disjoint, in order, and cover the same time as the ranges.
        #[test]
        fn segments_are_the_union(ranges in prop::collection::vec((0u64..50, 1u64..20), 0..12)) {
            let covered = |at: u64| ranges.iter().any(|(start, length)| (*start..start + length).contains(&at));
            let of = ranges.iter().map(|(start_ns, length)| HostRange {
                start_ns: *start_ns,
                end_ns: start_ns + length,
                cause: None,
                label: IdleLabel::default(),
            });
            let segments = flat(of.collect());
            for pair in segments.windows(2) {
                prop_assert!(pair[0].end_ns <= pair[1].start_ns);
            }
            for at in 0..80 {
                let inside = segments.iter().any(|segment| (segment.start_ns..segment.end_ns).contains(&at));
                // Ranges that overlap without being nested are cut.
                prop_assert!(covered(at) || !inside);
            }
        }
    }
}
