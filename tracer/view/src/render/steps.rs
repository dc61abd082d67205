//! The section on training steps.

use crate::document::{Block, Section, Table, paragraph};
use crate::text::{mark, rank_or_pid};
use crate::units::{count, counted, duration, percent, signed_duration};
use gctrace_analysis::report::{
    Basis, FullBy, MedianComparison, NoComparison, ProcessSteps, Report, StepComparison,
    StepDifference, StepSource, StepsReport,
};
use std::collections::BTreeSet;

/// Steps after a full collection are remarked on if they are longer by one part in this many.
const COLD_FRACTION: i64 = 20;
/// Fewer of them may all have another reason.
const FEWEST_COLD: u64 = 10;

/// Maximum number of processes shown; the others are in the JSON.
const PROCESSES_SHOWN: usize = 10;

/// Idle time of less than this part of a step is not explained, nor its causes of less than this part.
const WORTH_EXPLAINING: u64 = 20;

/// The words for steps by the profiler's annotations, to follow "A step".
const PROFILERS: &str = "is the profiler's";

/// Lengths of steps, and comparisons of steps with and without full collections.
pub(crate) fn steps(report: &Report) -> Section {
    let mut blocks = Vec::new();
    if let Some(steps) = &report.steps {
        blocks.extend(table(steps));
        blocks.push(paragraph(legend(steps)));
        blocks.extend(longest(steps).map(paragraph));
        let first = steps.processes.iter().take(1);
        let comparisons = first.flat_map(|first| comparisons(first, steps.processes.len() > 1));
        blocks.extend(comparisons.map(paragraph));
    }
    Section::new("Training steps", blocks)
}

fn table(steps: &StepsReport) -> Vec<Block> {
    let idle = steps.processes.iter().any(|process| process.gpu_idle_ns.is_some());
    let time = |ns: Option<u64>| if let Some(ns) = ns { duration(ns) } else { "?".to_owned() };
    let table = Table::of(steps.processes.iter().take(PROCESSES_SHOWN))
        .left("process", |process| rank_or_pid(process.rank, process.pid))
        .right("steps", |steps| count(steps.count))
        .right("mean", |steps| duration(steps.length.mean_ns))
        .right("p50", |steps| duration(steps.length.p50_ns))
        .right("longest", |steps| duration(steps.length.max_ns))
        .right("in GC", |steps| time(steps.gc_ns))
        .right("of time", |steps| steps.gc_ratio.map_or_else(|| "?".to_owned(), percent))
        .right_if(idle, "GPU idle", |steps| time(steps.gpu_idle_ns));
    let mut blocks = vec![table.into()];
    let more = steps.processes.iter().skip(PROCESSES_SHOWN).count() as u64;
    let more = more + steps.processes_left_out;
    if more > 0 {
        blocks.push(paragraph(format!(
            "and {} (--format json lists up to 64)",
            counted(more, "other process")
        )));
    }
    blocks
}

/// Why the GPU was idle in the longest step; for the process with the most idle time in that step.
fn longest(steps: &StepsReport) -> Option<String> {
    let steps = steps.processes.iter();
    let (steps, step) = steps
        .filter_map(|steps| Some((steps, steps.longest.first()?)))
        .max_by_key(|(_, step)| step.gpu_idle_ns)?;
    let idle_ns = step.gpu_idle_ns.filter(|ns| *ns >= step.duration_ns / WORTH_EXPLAINING)?;
    let causes = step.gpu_idle_causes.as_ref()?;
    if causes.is_empty() {
        return None;
    }
    let shown = causes.iter().filter(|part| part.time_ns >= idle_ns / WORTH_EXPLAINING);
    let parts: Vec<String> =
        shown.map(|part| format!("{} {}", part.cause, duration(part.time_ns))).collect();
    let of = match steps.rank {
        Some(rank) => format!("rank {rank}"),
        None => format!("process {}", steps.pid),
    };
    Some(format!(
        "The longest step of {of}, number {}, took {}; GPU idle {} of it: {}{}.",
        step.number,
        duration(step.duration_ns),
        duration(idle_ns),
        parts.join(", "),
        mark(Basis::Inferred),
    ))
}

fn legend(steps: &StepsReport) -> String {
    let sources: BTreeSet<StepSource> =
        steps.processes.iter().map(|process| process.source).collect();
    let kinds: Vec<String> = sources.into_iter().map(lasts).collect();
    let basis = match steps.basis {
        Basis::Measured => " (measured)",
        other => mark(other),
    };
    let mut text = match kinds.as_slice() {
        [only] if only == PROFILERS => format!("Steps are the profiler's{basis}."),
        kinds => format!("A step {}{basis}.", kinds.join(", or ")),
    };
    if steps.processes.iter().any(|process| process.gc_ns.is_none()) {
        text += " ?: the trace has no data on collections.";
    }
    text
}

/// How long a step lasts, to follow "A step".
fn lasts(source: StepSource) -> String {
    match source {
        StepSource::ProfilerStep => PROFILERS.to_owned(),
        StepSource::PeriodicLaunches => {
            "lasts from one launch of a kernel that recurs after the same number of operations to \
             the next"
                .to_owned()
        }
        marked => format!("lasts from one {} to the next of the same thread", marked.basis()),
    }
}

fn comparisons(steps: &ProcessSteps, one_of_several: bool) -> Vec<String> {
    if steps.gc_ns.is_none() {
        return Vec::new();
    }
    let of = if one_of_several {
        match steps.rank {
            Some(rank) => format!("Rank {rank}: "),
            None => format!("Process {}: ", steps.pid),
        }
    } else {
        String::new()
    };
    let full = match steps.full_by {
        FullBy::Generation => "",
        _ => {
            " Where the generation is unknown, a pause of at least 1 ms counts as a full collection."
        }
    };
    vec![
        of + &with_full(&steps.with_full) + full,
        after_full(&steps.after_full).unwrap_or_else(|| {
            format!(
                "Steps that follow a full collection cannot be compared with others: {}.",
                missing(steps.after_full.missing)
            )
        }),
    ]
}

fn missing(why: Option<NoComparison>) -> String {
    if let Some(why) = why { why.to_string() } else { "too few steps".to_owned() }
}

fn with_full(comparison: &StepComparison) -> String {
    let means = (comparison.difference, comparison.mean_ns, comparison.other_mean_ns);
    let (Some(difference), Some(mean_ns), Some(other_mean_ns)) = means else {
        return format!(
            "Steps with a full collection cannot be compared with those without: {}.",
            missing(comparison.missing)
        );
    };
    format!(
        "The {} with a full collection took {} on average, the {} without {}: {}, {}{}.",
        counted(comparison.count, "step"),
        duration(mean_ns),
        count(comparison.other_count),
        duration(other_mean_ns),
        longer(difference),
        interval(difference),
        mark(comparison.basis)
    )
}

/// The line of the short report on steps that follow a full collection, if they differ from others.
pub(crate) fn cold_steps(report: &Report) -> Option<String> {
    let phases = report.phases.as_ref()?;
    let mut processes = report.steps.as_ref()?.processes.iter();
    let process = processes.find(|process| process.pid == phases.pid)?;
    let comparison = &process.after_full;
    let difference = comparison.difference?;
    // Only longer steps are explained by a collection, and nobody acts on a few of them or on a few percent.
    let usual_ns = i64::try_from(comparison.other_median_ns?).ok()?;
    let matters = difference.median_ns >= usual_ns / COLD_FRACTION;
    if !difference.is_significant() || !matters || comparison.count < FEWEST_COLD {
        return None;
    }
    after_full(comparison)
}

fn after_full(comparison: &MedianComparison) -> Option<String> {
    let difference = comparison.difference?;
    let difference = StepDifference {
        mean_ns: difference.median_ns,
        low_ns: difference.low_ns,
        high_ns: difference.high_ns,
    };
    Some(format!(
        "The {} after a full collection took {} (median), the {} others {}: {}, {}{}.",
        counted(comparison.count, "step"),
        duration(comparison.median_ns?),
        count(comparison.other_count),
        duration(comparison.other_median_ns?),
        longer(difference),
        interval(difference),
        mark(comparison.basis)
    ))
}

/// `48.2 ms longer`.
fn longer(difference: StepDifference) -> String {
    let word = if difference.mean_ns < 0 { "shorter" } else { "longer" };
    format!("{} {word}", duration(difference.mean_ns.unsigned_abs()))
}

/// `95 % confidence interval 45.1 ms to 51.0 ms by bootstrap`, of the difference in [`longer`].
fn interval(difference: StepDifference) -> String {
    let (low_ns, high_ns) = match difference.mean_ns {
        ns if ns < 0 => (difference.high_ns.saturating_neg(), difference.low_ns.saturating_neg()),
        _ => (difference.low_ns, difference.high_ns),
    };
    let chance = if low_ns < 0 { ", so it may be chance" } else { "" };
    format!(
        "95 % confidence interval {} to {} by bootstrap{chance}",
        signed_duration(low_ns),
        signed_duration(high_ns)
    )
}
