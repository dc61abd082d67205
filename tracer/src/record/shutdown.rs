//! The end of a recording: detaches the probes, measures their cost, closes the trace, sums up.

use crate::record::EndReason;
use crate::record::clock;
use crate::record::cuda_probes::CudaProbes;
use crate::record::examination::unexamined_words;
use crate::record::held_programs::HoldTimes;
use crate::record::injected::InjectedProcesses;
use crate::record::injected::InjectedSummary;
use crate::record::merge;
use crate::record::output::OutputTotals;
use crate::record::stacks::StackResolver;
use crate::record::trace::RecordingTrace;
use crate::record::watch::ProbeWatch;
use gctrace_ebpf::Calibration;
use gctrace_ebpf::ProbePointKind;
use gctrace_ebpf::ProgramCounts;
use gctrace_event::ExaminedProcesses;
use gctrace_event::ProbeCost;
use gctrace_event::TraceEnd;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Losses and probe hits so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordingLosses {
    /// Lost events by place; without zeros.
    pub lost: BTreeMap<String, u64>,
    /// Processes that could have run Python unseen.
    pub unexamined: u64,
    /// Hits of probes and hooks in recorded programs.
    pub hits: u64,
    /// CPU time that probes on the collector took from recorded programs, if the cost of one is
    /// known.
    pub cost_ns: Option<u64>,
}

/// Counts losses and hits so far, at this cost per hit.
///
/// # Errors
/// The kernel does not report the counts.
pub(crate) fn tally(
    trace: &RecordingTrace,
    probes: Option<&ProbeWatch>,
    injected: Option<&InjectedProcesses>,
    calibration: Option<Calibration>,
) -> anyhow::Result<RecordingLosses> {
    let examined = trace.examination.result(probes.is_some());
    let mut tally = RecordingLosses {
        unexamined: examined.unexamined(),
        ..RecordingLosses::default()
    };
    if let Some(injected) = injected {
        tally.lost.extend(injected.lost().clone());
        tally.hits = injected.hits();
    }
    if let Some(probes) = probes {
        let counters = probes.session.counters()?;
        tally.lost.extend(lost(&counters, &probes.stacks));
        lose_unprobed(counters.unprobed(), trace.sources(), &mut tally.lost);
        let hits = POINTS.into_iter().map(|point| counters.hits(point));
        tally.hits = hits.fold(tally.hits, u64::saturating_add);
        tally.cost_ns = calibration.map(|known| {
            let costs = costs(&counters, Some(known), HoldTimes::default());
            let each = costs
                .iter()
                .map(|cost| cost.hits as f64 * cost.ns_per_hit.unwrap_or(0.0));
            each.sum::<f64>() as u64
        });
        if let Some(cuda) = &probes.cuda {
            let (lost, hits) = cuda.lost_and_hits();
            tally.lost.extend(lost);
            tally.hits = tally.hits.saturating_add(hits);
        }
    }
    Ok(tally)
}

/// The kinds of probes, except those on CUDA calls.
const POINTS: [ProbePointKind; 8] = [
    ProbePointKind::Collect,
    ProbePointKind::GcCollectBuiltin,
    ProbePointKind::PyGcCollect,
    ProbePointKind::StopTheWorld,
    ProbePointKind::StartTheWorld,
    ProbePointKind::UsdtStart,
    ProbePointKind::UsdtDone,
    ProbePointKind::CodeDealloc,
];

/// What a recording that could be closed reports to its user and its caller.
pub(crate) struct Outcome {
    /// Lines for the user: totals and losses, then the `gctrace analyze` command if there is a
    /// trace file.
    pub sentences: Vec<String>,
    /// Whether at least one examined process contained Python.
    pub has_python: bool,
}

/// Ends a recording.
///
/// # Errors
/// What made the trace incomplete.
pub(crate) fn finish(
    mut trace: RecordingTrace,
    (mut probes, injected): (Option<ProbeWatch>, Option<InjectedProcesses>),
    why: EndReason,
) -> anyhow::Result<Outcome> {
    let ended_ns = clock::monotonic_ns();
    let ended = match why {
        EndReason::CommandEnded(ended) => Some(ended),
        _ => None,
    };
    let counters = match &probes {
        Some(probes) => Some(probes.session.counters()?),
        None => None,
    };
    let mut within = InjectedSummary::default();
    if let Some(injected) = injected {
        within = injected.finish(ended, &mut trace);
    }
    if let Some(probes) = &mut probes {
        probes.reported_by_cupti(std::mem::take(&mut within.cupti));
        within.alive = probes.processes.alive();
    }
    if within.alive > 0 && ended.is_some() {
        let alive = within.alive;
        let message = match alive {
            1 => "1 process was still running when the command ended; it keeps running unrecorded"
                .to_owned(),
            _ => format!(
                "{alive} processes were still running when the command ended; they keep running unrecorded"
            ),
        };
        trace.output.note(None, ended_ns, message);
    }
    let mut end = TraceEnd {
        ended_ns,
        why: words(why).to_owned(),
        exit_code: ended.map(|ended| i32::from(ended.exit_code())),
        lost: within.lost,
        processes: Some(trace.examination.result(probes.is_some())),
        probes: within.hooks,
        ..TraceEnd::default()
    };
    let unprobed = counters.as_ref().map(ProgramCounts::unprobed);
    if let (Some(probes), Some(counters)) = (probes, counters) {
        detach_probes(probes, &counters, &mut trace, &mut end);
    }
    let sources = trace.finish();
    if let Some(unprobed) = unprobed {
        lose_unprobed(unprobed, sources, &mut end.lost);
    }
    let (totals, path) = (
        trace.output.totals(),
        trace.output.path().map(Path::to_owned),
    );
    if let Some((reason, unwritten)) = trace.output.settle() {
        cut_short(&mut end, &reason, unwritten, within.alive);
    }
    let first = summary(totals, sources, &end);
    let has_python = end
        .processes
        .as_ref()
        .is_none_or(|examined| examined.python > 0);
    if let Err(error) = trace.output.finish(end) {
        tracing::warn!("{first}");
        return Err(error.into());
    }
    let mut sentences = vec![first];
    sentences.extend(path.map(|path| {
        let path = crate::text::shell_line(&[path]);
        format!("gctrace analyze {path}")
    }));
    Ok(Outcome {
        sentences,
        has_python,
    })
}

/// Marks the trace as cut short: states what is missing in what was written. `alive`: processes
/// that were still running.
fn cut_short(end: &mut TraceEnd, reason: &str, unwritten: u64, alive: usize) {
    end.why = format!("{}: {reason}", words(EndReason::CannotWrite));
    if unwritten > 0 {
        end.lost
            .insert(format!("not written ({reason})"), unwritten);
    }
    if alive > 0 {
        let processes = end.processes.get_or_insert_default();
        let count = u64::try_from(alive).unwrap_or(u64::MAX);
        processes.unexamined.insert(
            "still ran when the trace could not be written any more".to_owned(),
            count,
        );
    }
}

/// Detaches the probes: reads their last events, their losses and their cost.
fn detach_probes(
    mut watch: ProbeWatch,
    counters: &ProgramCounts,
    trace: &mut RecordingTrace,
    end: &mut TraceEnd,
) {
    watch.retitle(trace, true);
    watch
        .pressures
        .write_all(&watch.session, end.ended_ns, &mut trace.output);
    watch.counting.write_living(
        &watch.session,
        end.ended_ns,
        &watch.processes,
        &mut trace.output,
    );
    if let Some(allocations) = &mut watch.allocations {
        allocations.tick(&mut trace.output);
    }
    if let Some(cuda) = &mut watch.cuda {
        cuda.finish(&mut watch.processes, &mut trace.output);
        end.lost.extend(cuda.lost_and_hits().0);
    }
    end.lost.extend(lost(counters, &watch.stacks));
    // The cost of probes is for the reader of a trace.
    let measured = trace.output.path().is_some();
    let (turn, own_probes) = match measured {
        true => measure(&mut watch, counters, end),
        false => Default::default(),
    };
    let arenas = watch.session.stop_counting_arenas();
    let (session, interpreters, cuda, held) = watch.into_parts();
    let probes = interpreters.into_probes().chain(own_probes);
    let cuda = cuda.into_iter().flat_map(CudaProbes::into_probes);
    gctrace_ebpf::detach(probes.chain([arenas]).chain(cuda));
    drop(turn);
    drop(session);
    // No process can be stopped any more. The guardian does the same again, and for longer.
    held.resume_all();
}

/// Measures what the probes cost; discards what is in the rings. Lasts until the probes placed for
/// this are detached.
fn measure(
    watch: &mut ProbeWatch,
    counters: &ProgramCounts,
    end: &mut TraceEnd,
) -> (
    Option<gctrace_ebpf::CalibrationLock>,
    Vec<gctrace_ebpf::Attachment>,
) {
    let turn = gctrace_ebpf::CalibrationLock::wait();
    if turn.is_none() {
        tracing::warn!(
            "other recordings end at the same time: the overhead of the probes may be reported too low"
        );
    }
    let cuda = watch.cuda.as_mut();
    let cuda_costs = cuda.map(|cuda| cuda.costs(&watch.session));
    let (calibration, own_probes) = match watch.session.calibrate() {
        Ok((calibration, probes)) => (Some(calibration), probes),
        Err(error) => {
            tracing::warn!("the overhead of the probes is unknown: {error}");
            (None, Vec::new())
        }
    };
    end.probes
        .extend(costs(counters, calibration, watch.holding.holds));
    end.probes.extend(cuda_costs.into_iter().flatten());
    (turn, own_probes)
}

/// Counts collections in a function that is not probed as lost, such as those of the copy of the
/// collector in a program compiled by Nuitka, minus those that the library saw.
fn lose_unprobed(
    unprobed: u64,
    sources: Option<merge::SourceTotals>,
    lost: &mut BTreeMap<String, u64>,
) {
    let seen = sources.map_or(0, |counts| counts.only_injected);
    let missing = unprobed.saturating_sub(seen);
    if missing > 0 {
        lost.insert(UNPROBED.to_owned(), missing);
    }
}

/// Collections in CPython's statistics for which no probe fired.
const UNPROBED: &str = "collections that no probe saw: they ran before the probes were placed, or in another collector than CPython's own";

/// Losses by place, without zeros.
fn lost(counters: &ProgramCounts, stacks: &StackResolver) -> BTreeMap<String, u64> {
    counters
        .lost()
        .into_iter()
        .chain([("stacks of pauses: never received", stacks.lost())])
        .filter(|(_, count)| *count > 0)
        .map(|(what, count)| (what.to_owned(), count))
        .collect()
}

fn words(why: EndReason) -> &'static str {
    match why {
        EndReason::CommandEnded(_) => "the command ended",
        EndReason::ProcessEnded => "the process ended",
        EndReason::TimeOver => "the duration given with -d elapsed",
        EndReason::Interrupted => "interrupted",
        EndReason::Left => "the user quit the live view",
        EndReason::CannotWrite => "the trace could not be written any more",
    }
}

/// The number of hits and the cost of each kind of probe. Entry and return of a function are one
/// hit.
fn costs(
    counters: &ProgramCounts,
    calibration: Option<Calibration>,
    holds: HoldTimes,
) -> Vec<ProbeCost> {
    let cost = |probe: &str, hits: u64, ns_per_hit: Option<f64>| ProbeCost {
        probe: probe.to_owned(),
        hits,
        ns_per_hit,
    };
    let explicit = counters.hits(ProbePointKind::GcCollectBuiltin)
        + counters.hits(ProbePointKind::PyGcCollect);
    let world =
        counters.hits(ProbePointKind::StopTheWorld) + counters.hits(ProbePointKind::StartTheWorld);
    let usdt = counters.hits(ProbePointKind::UsdtStart) + counters.hits(ProbePointKind::UsdtDone);
    let held_ns = (holds.count > 0).then(|| holds.total_ns as f64 / holds.count as f64);
    [
        cost(
            "collector, entry and return",
            counters.hits(ProbePointKind::Collect),
            calibration.map(|c| c.collect_ns),
        ),
        cost(
            "collector, USDT probe",
            usdt,
            calibration.map(|c| c.collect_ns / 2.0),
        ),
        cost(
            "explicit call, entry and return",
            explicit,
            calibration.map(|c| c.explicit_ns),
        ),
        cost(
            "stop-the-world, start and end",
            world,
            calibration.map(|c| c.entry_ns),
        ),
        cost(
            "code object freed",
            counters.hits(ProbePointKind::CodeDealloc),
            calibration.map(|c| c.entry_ns),
        ),
        cost("program stopped at exec", holds.count, held_ns),
        cost(
            "collector, in processes that are not recorded",
            counters.foreign_hits(),
            calibration.map(|c| c.explicit_ns),
        ),
    ]
    .into_iter()
    .filter(|cost| cost.hits > 0)
    .collect()
}

fn summary(totals: OutputTotals, sources: Option<merge::SourceTotals>, end: &TraceEnd) -> String {
    let omitted = match totals.omitted.count {
        0 => String::new(),
        count => format!(", {count} shorter ones counted"),
    };
    let examined = end.processes.clone().unwrap_or_default();
    let lost = missing(&end.lost, &examined);
    if totals.pauses == 0 && totals.omitted.count == 0 {
        return format!("0 pauses: {}; {lost}", why_none(&examined));
    }
    let sources = sources.map_or(String::new(), |counts| {
        format!(
            " ({} seen by both sources, {} by probes alone, {} in-process alone)",
            counts.both, counts.only_probes, counts.only_injected
        )
    });
    format!(
        "{} pauses{sources}, {} ms in total, longest {} ms{omitted}; {lost}",
        totals.pauses,
        milliseconds(totals.pause_ns),
        milliseconds(totals.longest_ns),
    )
}

/// Why there is no pause in the trace.
fn why_none(examined: &ExaminedProcesses) -> String {
    match (examined.python, examined.other) {
        (0, Some(_)) => "no Python ran".to_owned(),
        (0, None) => "the library saw no Python".to_owned(),
        (1, _) => "no collection was seen in the Python process".to_owned(),
        (count, _) => format!("no collection was seen in {count} Python processes"),
    }
}

/// What is missing: "nothing" only if every process was examined.
fn missing(lost: &BTreeMap<String, u64>, examined: &ExaminedProcesses) -> String {
    let lost = lost
        .values()
        .fold(0, |sum: u64, lost| sum.saturating_add(*lost));
    let lost = match lost {
        0 if examined.is_complete() => "nothing lost".to_owned(),
        0 => "no event lost".to_owned(),
        count => format!("{count} events LOST; a larger --ring-size keeps more"),
    };
    match examined.unexamined() {
        0 => lost,
        _ => format!("{lost}, but {}", unexamined_words(&examined.unexamined)),
    }
}

fn milliseconds(ns: u64) -> String {
    let time = Duration::from_nanos(ns);
    format!("{:.3}", time.as_secs_f64() * 1e3)
}
