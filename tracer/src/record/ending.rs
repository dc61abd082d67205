//! The end of a recording: probes out, their cost measured, the trace closed, the user told.

use crate::args::Verbosity;
use crate::record::Why;
use crate::record::clock;
use crate::record::cuda::CudaProbes;
use crate::record::output::Totals;
use crate::record::stacks::Stacks;
use crate::record::watch::Holds;
use crate::record::watch::Watch;
use gctrace_ebpf::Calibration;
use gctrace_ebpf::Counters;
use gctrace_ebpf::PointKind;
use gctrace_event::End;
use gctrace_event::ProbeCost;
use std::collections::BTreeMap;
use std::time::Duration;

/// Ends a recording.
///
/// # Errors
/// What kept the trace from being complete.
pub(crate) fn finish(mut watch: Watch, why: Why, verbosity: Verbosity) -> anyhow::Result<()> {
    let ended_ns = clock::monotonic_ns();
    let counters = watch.session.counters()?;
    let alive = watch.processes.alive();
    if alive > 0 && matches!(why, Why::CommandEnded(_)) {
        let message = format!(
            "{alive} processes were still running when the command ended; they go on unrecorded"
        );
        watch.output.note(None, ended_ns, message);
    }
    watch
        .pressures
        .write_all(&watch.session, ended_ns, &mut watch.output);
    watch.counting.write_living(
        &watch.session,
        ended_ns,
        &watch.processes,
        &mut watch.output,
    );
    if let Some(allocations) = &mut watch.allocations {
        allocations.tick(&mut watch.output);
    }
    if let Some(gpus) = &mut watch.gpus {
        gpus.tick(&mut watch.output);
    }
    let turn = gctrace_ebpf::Turn::wait();
    if turn.is_none() {
        tracing::warn!(
            "other recordings end at the same time: what the probes cost may be said too low"
        );
    }
    let mut cuda_counts = Default::default();
    if let Some(cuda) = &mut watch.cuda {
        cuda.finish(&mut watch.processes, &mut watch.output);
        cuda_counts = cuda.counts(&watch.session);
    }
    let (cuda_lost, cuda_costs) = cuda_counts;
    let calibrated = watch.session.calibrate();
    let (calibration, own_probes) = match calibrated {
        Ok((calibration, probes)) => (Some(calibration), probes),
        Err(error) => {
            tracing::warn!("what the probes cost is not known: {error}");
            (None, Vec::new())
        }
    };
    let arenas = watch.session.stop_counting_arenas();
    let probes = watch.interpreters.into_probes().chain(own_probes);
    let cuda = watch.cuda.into_iter().flat_map(CudaProbes::into_probes);
    gctrace_ebpf::detach(probes.chain([arenas]).chain(cuda));
    drop(turn);
    let end = End {
        ended_ns,
        why: words(why).to_owned(),
        exit_code: match why {
            Why::CommandEnded(ended) => Some(i32::from(ended.exit_code())),
            _ => None,
        },
        lost: lost(&counters, &watch.stacks)
            .into_iter()
            .chain(cuda_lost)
            .collect(),
        probes: costs(&counters, calibration, watch.holds)
            .into_iter()
            .chain(cuda_costs)
            .collect(),
        ..End::default()
    };
    let (totals, path) = (watch.output.totals(), watch.output.path().to_owned());
    let lost: u64 = end.lost.values().sum();
    watch.output.finish(end)?;
    if verbosity > Verbosity::Quiet {
        eprintln!("gctrace: {}", summary(totals, lost));
        eprintln!(
            "gctrace: gctrace analyze {}",
            crate::hints::shell_line(&[path])
        );
    }
    Ok(())
}

/// What was lost, by where; only what was.
fn lost(counters: &Counters, stacks: &Stacks) -> BTreeMap<String, u64> {
    counters
        .lost()
        .into_iter()
        .chain([("stacks of pauses: never received", stacks.lost())])
        .filter(|(_, count)| *count > 0)
        .map(|(what, count)| (what.to_owned(), count))
        .collect()
}

fn words(why: Why) -> &'static str {
    match why {
        Why::CommandEnded(_) => "the command ended",
        Why::ProcessEnded => "the process ended",
        Why::TimeOver => "the time given with -d was over",
        Why::Interrupted => "interrupted",
        Why::CannotWrite => "the trace could not be written any more",
    }
}

/// What each kind of probe did and cost. Entry and return of a function are one hit.
fn costs(counters: &Counters, calibration: Option<Calibration>, holds: Holds) -> Vec<ProbeCost> {
    let cost = |probe: &str, hits: u64, ns_per_hit: Option<f64>| ProbeCost {
        probe: probe.to_owned(),
        hits,
        ns_per_hit,
    };
    let explicit =
        counters.hits(PointKind::POINT_GC_COLLECT) + counters.hits(PointKind::POINT_PYGC_COLLECT);
    let world =
        counters.hits(PointKind::POINT_STOP_WORLD) + counters.hits(PointKind::POINT_START_WORLD);
    let usdt =
        counters.hits(PointKind::POINT_USDT_START) + counters.hits(PointKind::POINT_USDT_DONE);
    let held_ns = (holds.count > 0).then(|| holds.total_ns as f64 / holds.count as f64);
    [
        cost(
            "collector, entry and return",
            counters.hits(PointKind::POINT_COLLECT),
            calibration.map(|c| c.collect_ns),
        ),
        cost(
            "collector, static trace point",
            usdt,
            calibration.map(|c| c.collect_ns / 2.0),
        ),
        cost(
            "explicit call, entry and return",
            explicit,
            calibration.map(|c| c.explicit_ns),
        ),
        cost(
            "stop and start of the world",
            world,
            calibration.map(|c| c.entry_ns),
        ),
        cost(
            "code object freed",
            counters.hits(PointKind::POINT_CODE_DEALLOC),
            calibration.map(|c| c.entry_ns),
        ),
        cost("program held at exec", holds.count, held_ns),
        cost(
            "collector, in processes not recorded",
            counters.foreign_hits(),
            calibration.map(|c| c.explicit_ns),
        ),
    ]
    .into_iter()
    .filter(|cost| cost.hits > 0)
    .collect()
}

fn summary(totals: Totals, lost: u64) -> String {
    let omitted = match totals.omitted.count {
        0 => String::new(),
        count => format!(", {count} shorter ones counted"),
    };
    let lost = match lost {
        0 => "nothing lost".to_owned(),
        count => format!("{count} events LOST"),
    };
    format!(
        "{} pauses, {} ms together, longest {} ms{omitted}; {lost}",
        totals.pauses,
        milliseconds(totals.pause_ns),
        milliseconds(totals.longest_ns),
    )
}

fn milliseconds(ns: u64) -> String {
    let time = Duration::from_nanos(ns);
    format!("{:.3}", time.as_secs_f64() * 1e3)
}
