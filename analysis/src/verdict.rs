//! The answer in one sentence.
//!
//! The limits are choices: one percent is what repeated runs of a training step differ by, and
//! 100 ms are one step of many models.

mod gpu;

use crate::gpu_cost::GpuCost;
use crate::gpu_cost::GpuIdle;
use crate::report::Basis;
use crate::report::Level;
use crate::report::MissingData;
use crate::report::PausesReport;
use crate::report::Totals;
use crate::report::TraceReport;
use crate::report::Verdict;
use crate::units;
use gctrace_event::RecordingMode;

/// From this share of the time on the collector is worth a look.
const NOTICEABLE: f64 = 0.01;
/// From this share on it is a problem.
const HEAVY: f64 = 0.05;
/// From this length on a single pause is felt.
const LONG_PAUSE_NS: u64 = 100_000_000;
/// The part at shutdown is reported from this fraction of the stopped time.
const REPORTED_FRACTION: u64 = 10;

/// The cost and the idle time, if GPU times are known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GpuEvidence<'a> {
    pub(crate) cost: &'a GpuCost,
    pub(crate) idle: Option<&'a GpuIdle>,
}

/// `shutdown`: the pauses of interpreters that were ending. No step waits for them, so they do not
/// make the collector a problem.
pub(crate) fn verdict(
    totals: &Totals,
    shutdown: Option<&PausesReport>,
    traces: &[TraceReport],
    missing: &MissingData,
    on_gpu: Option<GpuEvidence<'_>>,
) -> Verdict {
    let at_shutdown_ns = shutdown.map_or(0, |pauses| pauses.time_ns);
    let is_unreported = totals.pauses.count == 0 && is_unreported(traces);
    let level = match on_gpu {
        _ if is_unreported => Level::Unknown,
        Some(on_gpu) => gpu::level(on_gpu.cost, LONG_PAUSE_NS),
        None => level(totals, at_shutdown_ns),
    };
    let mut sentence = match (level, on_gpu) {
        (Level::Unknown, _) if is_unreported => undetermined(traces),
        (_, Some(on_gpu)) => gpu::sentence(level, on_gpu.cost, on_gpu.idle),
        (Level::None, None) => no_collection(traces, missing),
        _ => with_collections(level, totals),
    };
    if on_gpu.is_some() && at_shutdown_ns > 0 {
        sentence += &format!(
            " The {} of collections at interpreter shutdown are not included.",
            units::duration(at_shutdown_ns)
        );
    } else if at_shutdown_ns > 0 && at_shutdown_ns >= totals.stopped_ns / REPORTED_FRACTION {
        sentence += &format!(
            " {} of it was at interpreter shutdown, which delays no step.",
            units::duration(at_shutdown_ns)
        );
    }
    let lost = missing.lost.values().copied().fold(0, u64::saturating_add);
    if lost > 0 {
        sentence += &format!(
            " These are lower bounds: {} lost while recording.",
            match lost {
                1 => "1 event was".to_owned(),
                _ => format!("{} events were", units::count(lost)),
            }
        );
    }
    let partly_read = |trace: &&TraceReport| trace.cut_at.is_some() || trace.damage.is_some();
    let cut = traces.iter().filter(partly_read).count() as u64;
    if cut > 0 {
        sentence += &match traces.len() {
            1 => " The trace is cut off or damaged; later events are not counted.".to_owned(),
            all => format!(
                " {cut} of {all} traces are cut off or damaged; later events in them are not \
                 counted."
            ),
        };
    }
    Verdict {
        level,
        sentence,
        basis: match level {
            Level::None => Basis::Measured,
            Level::Unknown if is_unreported => Basis::Inferred,
            _ if on_gpu.is_some() => Basis::Inferred,
            _ => totals.basis,
        },
    }
}

fn level(totals: &Totals, at_shutdown_ns: u64) -> Level {
    let running_ns = totals.stopped_ns.saturating_sub(at_shutdown_ns);
    let ratio = totals
        .stopped_ratio
        .map(|_| running_ns as f64 / totals.observed_ns.max(1) as f64);
    let Some(ratio) = ratio else {
        return match totals.pauses.count {
            0 => Level::None,
            _ => Level::Unknown,
        };
    };
    let longest = totals.pauses.max_ns.unwrap_or(0);
    match () {
        () if totals.pauses.count == 0 => Level::None,
        () if ratio >= HEAVY => Level::Heavy,
        () if ratio >= NOTICEABLE => Level::Noticeable,
        () if longest >= LONG_PAUSE_NS => Level::RareLongPauses,
        () => Level::Negligible,
    }
}

/// Whether no trace would report a collection, had there been one.
fn is_unreported(traces: &[TraceReport]) -> bool {
    !traces.is_empty() && traces.iter().all(|trace| trace.recorded_by.is_none())
}

fn undetermined(traces: &[TraceReport]) -> String {
    let longest = traces.iter().map(|trace| trace.duration_ns).max();
    format!(
        "Whether the garbage collector ran is unknown: there is no collection in {}, but the \
         PyTorch profiler and other tools record collections only if configured to.",
        match traces {
            [_] => format!(
                "the {} of this trace",
                units::duration(longest.unwrap_or(0))
            ),
            many => format!("these {} traces", many.len()),
        }
    )
}

fn no_collection(traces: &[TraceReport], missing: &MissingData) -> String {
    let recorded = traces
        .iter()
        .filter(|trace| trace.recorded_by.is_some())
        .map(|trace| trace.duration_ns)
        .fold(0, u64::saturating_add);
    let recorded = units::duration(recorded);
    // In-process, the first and the last ones are not seen.
    let in_process = |trace: &TraceReport| {
        trace
            .recorded
            .as_ref()
            .is_some_and(|recorded| recorded.mode == RecordingMode::Inject)
    };
    let is_certain = missing.every_process_examined == Some(true);
    let ran = match traces.iter().any(in_process) || !is_certain {
        true => "was seen",
        false => "ran",
    };
    match missing.omitted.count {
        0 => format!("No garbage collection {ran} in {recorded} of recording."),
        omitted => format!(
            "No garbage collection of at least --min-pause {ran} in {recorded} of recording; {} \
             omitted took {} in total.",
            units::counted(omitted, "shorter pause"),
            units::duration(missing.omitted.time_ns)
        ),
    }
}

fn with_collections(level: Level, totals: &Totals) -> String {
    let share = units::percent(totals.stopped_ratio.unwrap_or(0.0));
    let stopped = units::duration(totals.stopped_ns);
    let observed = units::duration(totals.observed_ns);
    let longest = units::duration(totals.pauses.max_ns.unwrap_or(0));
    let together = match totals.processes {
        0 | 1 => String::new(),
        many => format!(", summed over {many} processes"),
    };
    let pauses = units::counted(totals.pauses.count, "pause");
    match level {
        Level::Heavy => format!(
            "The garbage collector is a problem: Python was paused for {share} of the time \
             ({stopped} of {observed}{together}), in {pauses} of up to {longest}."
        ),
        Level::Noticeable => format!(
            "The garbage collector costs {share} of the time ({stopped} of {observed}{together}), \
             in {pauses} of up to {longest}."
        ),
        Level::RareLongPauses => format!(
            "The garbage collector takes little time ({share}: {stopped} of \
             {observed}{together}), but individual pauses are long: up to {longest}."
        ),
        Level::Unknown => format!(
            "The garbage collector ran for {stopped} in {pauses} of up to {longest}; how long the \
             program ran is not in the trace."
        ),
        Level::Negligible | Level::None => format!(
            "The garbage collector is not the problem: it took {share} of the time ({stopped} of \
             {observed}{together}), and the longest pause was {longest}."
        ),
    }
}
