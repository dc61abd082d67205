//! The words of single findings.

use gctrace_analysis::report::{
    AlignedBy, BoundsLimit, MergeNote, NoComparison, NotCovered, NotMergedReason, StepComparison,
};
use gctrace_event::RecordingMode;

pub(super) fn not_covered(gap: NotCovered) -> &'static str {
    match gap {
        NotCovered::CostBeyondBounds => {
            "What the pauses cost the GPU: these traces contain CUDA calls but no GPU times, so \
             only bounds can be given."
        }
        NotCovered::CostBySamples => {
            "What the pauses cost the GPU: these traces contain only NVML samples. Each covers \
             1/6 s or more, too long to show a gap as short as a pause."
        }
        NotCovered::CostWithoutWork => {
            "What the pauses cost the GPU: these traces contain no GPU work, so a pause may have \
             been hidden behind queued kernels or have left the GPU idle."
        }
        NotCovered::CostOfOthersWork => {
            "What the pauses cost the GPU: these traces contain pauses and GPU work, but of \
             different processes or traces, so a pause may have been hidden behind queued kernels \
             or have left the GPU idle."
        }
        NotCovered::Collections => {
            "Garbage collection: these traces contain GPU work but no collections. The PyTorch \
             profiler records collections only if configured to, so their absence does not mean \
             that none ran."
        }
        NotCovered::CostToOtherProcesses => {
            "The cost of a pause to other processes that wait for it, such as ranks of a \
             distributed job in a collective."
        }
        NotCovered::Lines => {
            "Which Python lines trigger the collections: these traces contain no stacks \
             (--stack-depth 0, an older gctrace, or another tool)."
        }
    }
}

/// What a mode of recording does not record.
pub(super) fn not_recorded(mode: &RecordingMode) -> Vec<String> {
    let list: &[&str] = match mode {
        RecordingMode::Inject => &[
            "Why a collection ran: CPython passes the generation and counts to its callbacks, not \
             the reason.",
            "Collections before the library is loaded, in the first milliseconds of a program, \
             and the last ones at shutdown.",
            "Programs into which no library can be preloaded: statically linked ones, and those \
             with privileges that their user lacks (setuid, capabilities).",
        ],
        _ => &[],
    };
    list.iter().map(|what| (*what).to_owned()).collect()
}

/// The note on a trace that was given twice, the first time as this file.
pub(super) fn repeated(file: &String) -> String {
    format!("it is the same trace as {file}: its events are counted twice")
}

/// What the error of a clock offset covers and what it does not.
pub(super) fn error_basis(aligned_by: AlignedBy) -> &'static str {
    match aligned_by {
        AlignedBy::Calls => {
            "median absolute deviation of the start differences of calls in both traces; a \
             constant delay between the two tools, some microseconds, cannot be detected"
        }
        AlignedBy::Pauses => {
            "median absolute deviation of the midpoint differences of collections in both traces; \
             a constant delay between the two tools, some microseconds, cannot be detected"
        }
        AlignedBy::WallClock => {
            "not measured: the traces share no calls and no collections that could be matched. \
             The profiler's conversion to wall-clock time is off by some microseconds; if the wall \
             clock was set between the starts of gctrace and the profiler, the offset is wrong by \
             that amount"
        }
    }
}

pub(super) fn merge_note(note: MergeNote) -> String {
    match note {
        MergeNote::AssumedMainThread(tid) => format!(
            "The main thread's id is not in the profiler's trace; thread {tid}, which launches \
             the most, is assumed to be the main thread."
        ),
        MergeNote::SeparateThread(tid) => format!(
            "Thread {tid} of gctrace's trace was not found in the profiler's, whose thread ids are \
             of another namespace: its collections are attributed to a separate thread."
        ),
        MergeNote::NoCollection => "gctrace recorded no collection while the profiler ran, so no \
                                    cost to the GPU can be reported for that time."
            .to_owned(),
    }
}

pub(super) fn not_merged(why: NotMergedReason) -> String {
    match why {
        NotMergedReason::NoWallClock => {
            "its timestamps cannot be converted to wall-clock time (no \"baseTimeNanoseconds\"), \
             so the gctrace trace of the same time cannot be found"
                .to_owned()
        }
        NotMergedReason::GpuWorkInBoth => {
            "gctrace's trace of this process contains GPU work, too; both are counted".to_owned()
        }
        NotMergedReason::NoOverlap => "no gctrace trace overlaps it in time".to_owned(),
        NotMergedReason::Ambiguous(candidates) => format!(
            "{candidates} processes of gctrace's traces could be this one: neither process id nor \
             rank identifies it"
        ),
    }
}

/// Why the cost of pauses has no error bar; `steps`: in the trace.
pub(super) fn no_error_bar(steps: usize) -> String {
    match steps {
        0 => "the trace shows no steps".to_owned(),
        1 => "the trace shows only one step".to_owned(),
        some => format!("the trace shows only {some} steps"),
    }
}

/// The end of the sentence "Pauses cannot be classified where".
pub(super) fn limit(limit: BoundsLimit) -> &'static str {
    match limit {
        BoundsLimit::EventsLost => "events were lost, or may have been",
        BoundsLimit::NoLaunches => "launches were not recorded (--cuda sync)",
        BoundsLimit::SeveralDevices => "the process used several devices",
    }
}

/// `count` and `other_count`: of the steps that would be compared.
pub(super) fn no_comparison(why: NoComparison, count: u64, other_count: u64) -> String {
    match why {
        NoComparison::UnknownCollections => {
            "whether the collector ran is not in the trace".to_owned()
        }
        NoComparison::FewSteps => {
            too_few(&[(count, "step", "with a full collection"), (other_count, "step", "without")])
        }
        NoComparison::FewAfterFull => too_few(&[
            (count, "step", "after a full collection"),
            (other_count, "other step", "without one"),
        ]),
    }
}

/// Which of the counts are too small.
fn too_few(counts: &[(u64, &str, &str)]) -> String {
    let few = counts.iter().filter(|(count, ..)| *count < StepComparison::FEWEST as u64);
    let few: Vec<String> = few
        .map(|(count, what, kind)| match count {
            0 => format!("no {what} {kind}"),
            1 => format!("only 1 {what} {kind}"),
            _ => format!("only {count} {what}s {kind}"),
        })
        .collect();
    few.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_name_the_counts_that_are_too_small() {
        for (why, sentence) in [
            (NoComparison::FewSteps, "only 1 step with a full collection"),
            (NoComparison::FewAfterFull, "only 1 step after a full collection"),
            (NoComparison::UnknownCollections, "whether the collector ran is not in the trace"),
        ] {
            assert_eq!(no_comparison(why, 1, 7), sentence);
        }
        let both = no_comparison(NoComparison::FewSteps, 0, 2);
        assert_eq!(both, "no step with a full collection, only 2 steps without");
    }
}
