//! Losses, hits and cost of the probes: so far, and at the end, when they are detached.

use crate::record::kernel::KernelSource;
use crate::record::kernel::cuda_probes::CudaProbes;
use crate::record::kernel::stopped_programs::StopTimes;
use crate::record::losses::RecordingLosses;
use crate::record::trace::RecordingTrace;
use gctrace_ebpf::{BpfSession, Calibration, OffCpuEvent, ProbePointKind, ProgramCounts};
use gctrace_event::{HitCost, ProbeCost, TraceEnd};
use gctrace_units::{beyond, sum};
use std::collections::{BTreeMap, HashMap};

/// What a tracepoint of system calls takes before its program runs, in ns: 84 ns of getppid(2) became 133 (Linux 6.18).
const ENTRY_NS: f64 = 50.0;

/// The kinds of probes, except those on CUDA calls.
const POINTS: [ProbePointKind; 9] = [
    ProbePointKind::Collect,
    ProbePointKind::GcCollectBuiltin,
    ProbePointKind::PyGcCollect,
    ProbePointKind::StopTheWorld,
    ProbePointKind::StartTheWorld,
    ProbePointKind::UsdtStart,
    ProbePointKind::UsdtDone,
    ProbePointKind::CodeDealloc,
    ProbePointKind::Garbage,
];

impl KernelSource {
    pub(super) fn tally_probes(
        &mut self,
        trace: &RecordingTrace,
        losses: &mut RecordingLosses,
    ) -> anyhow::Result<()> {
        let counters = self.session.counters()?;
        losses.lost.extend(lost(&counters, self.stacks.lost()));
        for (place, count) in lost_collections(&self.session, &counters, trace)? {
            // A counter of the metrics: it does not decrease when the library turns out to have a collection that
            // seemed lost.
            let most = self.reported_lost.entry(place.clone()).or_default();
            *most = count.max(*most);
            losses.lost.insert(place, *most);
        }
        losses.hits += POINTS.map(|point| counters.hits(point)).iter().sum::<u64>();
        if let Some(cost) = &mut self.cost
            && let Some(known) = cost.known()
        {
            let (elsewhere, recorded): (Vec<_>, Vec<_>) =
                costs(&counters, Some(known), StopTimes::default())
                    .into_iter()
                    .partition(ProbeCost::is_elsewhere);
            losses.cost_ns = Some(total_ns(&recorded));
            losses.elsewhere_ns = Some(total_ns(&elsewhere));
        }
        if let Some(cuda) = &self.cuda {
            let (lost, hits) = cuda.lost_and_hits()?;
            losses.lost.extend(lost);
            losses.hits += hits;
        }
        Ok(())
    }

    /// Detaches the probes: reads their last events, their losses and their cost.
    pub(super) fn detach(
        mut self,
        trace: &mut RecordingTrace,
        end: &mut TraceEnd,
    ) -> anyhow::Result<()> {
        let counters = self.session.counters()?;
        self.retitle(trace, true);
        if let Some(fault) = self.garbage.fault(counters.garbage()) {
            trace.note(fault);
        }
        self.pressures.write_all(&self.session, end.ended_ns, &mut trace.output);
        self.counting.write_living(&self.session, end.ended_ns, &self.processes, &mut trace.output);
        if let Some(allocations) = &mut self.allocations {
            allocations.tick(&mut trace.output);
        }
        if let Some(cuda) = &mut self.cuda {
            cuda.finish(&mut self.processes, trace);
            end.lost.extend(cuda.lost_and_hits()?.0);
        }
        if let Some(samples) = &mut self.samples {
            for OffCpuEvent { off, stack } in self.session.open_waits(end.ended_ns)? {
                let stack = self.stacks.innermost(stack);
                self.processes.name_thread(off.pid, off.tid, &mut trace.output);
                samples.add_off_cpu(off, stack, &mut trace.output);
            }
            samples.finish(end.ended_ns, &self.stacks, &mut trace.output);
        }
        end.lost.extend(lost(&counters, self.stacks.lost()));
        end.lost.extend(lost_collections(&self.session, &counters, trace)?);
        // The cost of probes is for the reader of a trace.
        let (turn, own_probes) = if trace.output.path().is_some() {
            measure(&mut self, &counters, end)
        } else {
            Default::default()
        };
        let arenas = self.session.stop_counting_arenas();
        let probes = self.interpreters.into_probes().chain(own_probes);
        let cuda = self.cuda.into_iter().flat_map(CudaProbes::into_probes);
        gctrace_ebpf::detach(probes.chain([arenas]).chain(cuda));
        drop(turn);
        drop(self.session);
        // No process can be stopped any more. The guardian does the same again, and for longer.
        self.stopped.resume();
        drop(self.guardian);
        Ok(())
    }
}

/// Measures the cost of the probes; discards the rings' contents. Lasts until the probes placed for this are detached.
fn measure(
    source: &mut KernelSource,
    counters: &ProgramCounts,
    end: &mut TraceEnd,
) -> (Option<gctrace_ebpf::CalibrationLock>, Vec<gctrace_ebpf::Attachment>) {
    let turn = gctrace_ebpf::CalibrationLock::wait();
    if turn.is_none() {
        tracing::warn!(
            "other recordings end at the same time: the overhead of the probes may be reported too low"
        );
    }
    // The measured calls are gctrace's.
    source.session.end_alone();
    let cuda = source.cuda.as_mut();
    let cuda_costs = cuda.map(|cuda| cuda.costs(&source.session));
    let (calibration, own_probes) = match source.session.calibrate(Some(counters)) {
        Ok((calibration, probes)) => (Some(calibration), probes),
        Err(error) => {
            tracing::warn!("the overhead of the probes is unknown: {error}");
            (None, Vec::new())
        }
    };
    end.probes.extend(costs(counters, calibration, source.stopped.times));
    end.probes.extend(cuda_costs.into_iter().flatten());
    (turn, own_probes)
}

/// Collections that are not in the trace, by place, without zeros.
fn lost_collections(
    session: &BpfSession,
    counters: &ProgramCounts,
    trace: &RecordingTrace,
) -> anyhow::Result<BTreeMap<String, u64>> {
    let (no_room, unprobed) = (counters.lost_pauses(), counters.unprobed());
    let by_process = match sum([no_room, unprobed]) {
        0 => HashMap::new(),
        _ => session.unrecorded()?,
    };
    let lost = match trace.lost_by_both(&by_process) {
        None => [(NO_ROOM, no_room), (UNPROBED, unprobed)],
        Some(lost) => {
            let known = sum(by_process.values());
            let elsewhere = beyond(sum([no_room, unprobed]), known);
            let place = match no_room {
                0 => IN_NEITHER,
                _ => NO_ROOM_IN_EITHER,
            };
            [(place, lost), (PERHAPS_IN_NEITHER, elsewhere)]
        }
    };
    let lost = lost.into_iter().filter(|(_, count)| *count > 0);
    Ok(lost.map(|(what, count)| (what.to_owned(), count)).collect())
}

/// Pauses that found no room in the probes' ring.
const NO_ROOM: &str = "pauses: the ring buffer was full (--ring-size)";

/// Collections in CPython's statistics without a hit of a probe, such as collections by the copy of the collector in a
/// program compiled by Nuitka.
const UNPROBED: &str = "collections that no probe saw: they ran before the probes were placed, or in another collector than CPython's own";

/// With two sources, collections that neither of them recorded.
const IN_NEITHER: &str = "collections: neither the probes nor the library recorded them";

/// The same, if the probes' ring was full.
const NO_ROOM_IN_EITHER: &str =
    "collections: neither the probes nor the library recorded them (--ring-size)";

/// The same, of processes beyond the 32,768 with losses that the probes keep apart: the library may have recorded them.
const PERHAPS_IN_NEITHER: &str = "collections, at most: the probes lost them, in too many processes to know which of them the library recorded";

/// Losses by place, without zeros.
fn lost(counters: &ProgramCounts, stacks_lost: u64) -> BTreeMap<String, u64> {
    counters
        .lost()
        .into_iter()
        .chain([("stacks of pauses: never received", stacks_lost)])
        .filter(|(_, count)| *count > 0)
        .map(|(what, count)| (what.to_owned(), count))
        .collect()
}

/// The sum of hits times the likely cost of a hit, for everything that takes CPU time.
fn total_ns(costs: &[ProbeCost]) -> u64 {
    let on_cpu = costs.iter().filter(|cost| cost.probe != ProbeCost::STOPPED);
    let each = on_cpu.filter_map(|cost| Some(cost.hits as f64 * cost.ns_per_hit?));
    each.sum::<f64>() as u64
}

/// Additional cost of a fork to the traced program, in hits of a probe at an entry: pages with probes are in page
/// tables that are copied (docs/evidence.md).
const FORK_HITS: f64 = 40.0;
/// The same for a program that is executed, least and most: it is stopped, and gets its probes.
const EXEC_HITS: [f64; 2] = [100.0, 300.0];

/// The number of hits and the cost of each kind of probe. Entry and return of a function are one
/// hit.
fn costs(
    counters: &ProgramCounts,
    calibration: Option<Calibration>,
    stops: StopTimes,
) -> Vec<ProbeCost> {
    let hits = |kind| counters.hits(kind);
    let entry = calibration.map(|c| c.entry.cost(None));
    let at_entry = |kind| calibration.map(|c| c.entry.cost(counters.inside_ns(kind)));
    let times = |least: f64, most: f64| {
        entry.map(|entry| HitCost::between(least * entry.least_ns, most * entry.most_ns))
    };
    let explicit = [ProbePointKind::GcCollectBuiltin, ProbePointKind::PyGcCollect];
    let explicit_inside = explicit.iter().find_map(|kind| counters.inside_ns(*kind));
    // Its start and its end are hits of their own.
    let usdt = [ProbePointKind::UsdtStart, ProbePointKind::UsdtDone];
    let usdt_inside = usdt.map(|kind| counters.inside_ns(kind)).into_iter().flatten();
    let usdt_inside = usdt_inside.reduce(|start, end| (start + end) / 2.0);
    let garbage = hits(ProbePointKind::Garbage);
    // The examination is measured; the probe itself costs as much as any other. A sample's interrupt is like a probe's
    // trap.
    let with_trap = |took_ns: u64, count: u64| {
        let inside = HitCost::exactly(took_ns as f64 / count as f64);
        if count > 0 { entry.map(|entry| entry.plus(inside)) } else { None }
    };
    let samples = counters.samples();
    let switch_ns = samples.switches_ns as f64 / samples.switches as f64;
    let look_ns = samples.looks_ns as f64 / samples.looks as f64 + ENTRY_NS;
    let stopped_ns = stops.total_ns as f64 / stops.count as f64;
    let one = ProbeCost::new;
    [
        one(
            "collector, entry and return",
            hits(ProbePointKind::Collect),
            calibration
                .and_then(|c| Some(c.collect?.cost(counters.inside_ns(ProbePointKind::Collect)))),
        ),
        one(
            "collector, USDT probe",
            usdt.map(hits).iter().sum(),
            calibration.map(|c| c.entry.cost(usdt_inside)),
        ),
        one(
            "explicit call, entry and return",
            explicit.map(hits).iter().sum(),
            calibration.and_then(|c| Some(c.explicit?.cost(explicit_inside))),
        ),
        one(
            "stop-the-world, start and end",
            hits(ProbePointKind::StopTheWorld) + hits(ProbePointKind::StartTheWorld),
            at_entry(ProbePointKind::StopTheWorld),
        ),
        one(
            "code object freed",
            hits(ProbePointKind::CodeDealloc),
            at_entry(ProbePointKind::CodeDealloc),
        ),
        one("garbage of collections", garbage, with_trap(counters.garbage().took_ns, garbage)),
        one("sample", samples.taken, with_trap(samples.took_ns, samples.taken)),
        one("switch of a thread", samples.switches, Some(HitCost::exactly(switch_ns))),
        one("look or wait of a loop", samples.looks, Some(HitCost::exactly(look_ns))),
        one("forked child", counters.forks(), times(FORK_HITS, FORK_HITS)),
        one("program executed", counters.execs(), times(EXEC_HITS[0], EXEC_HITS[1])),
        one(ProbeCost::STOPPED, stops.count, Some(HitCost::exactly(stopped_ns))),
        one(ProbeCost::CODE_ELSEWHERE, counters.foreign_hits(ProbePointKind::CodeDealloc), entry),
        collector_elsewhere(counters, calibration),
    ]
    .into_iter()
    .filter(|cost| cost.hits > 0)
    .collect()
}

/// Cost of probes on the collector to processes that are not recorded.
fn collector_elsewhere(counters: &ProgramCounts, calibration: Option<Calibration>) -> ProbeCost {
    let foreign = POINTS.map(|point| match point {
        ProbePointKind::CodeDealloc => (0, point),
        _ => (counters.foreign_hits(point), point),
    });
    // All other hits are a part of a collection's cost, if there was one.
    let collections = counters.foreign_hits(ProbePointKind::Collect)
        + counters.foreign_hits(ProbePointKind::UsdtStart);
    let count = match collections {
        0 => foreign.iter().map(|(hits, _)| hits).sum::<u64>(),
        known => known,
    };
    let each = calibration.and_then(|c| {
        let hits = foreign.iter().filter(|(hits, _)| *hits > 0);
        hits.map(|(hits, point)| {
            let times = if point.has_return() { c.foreign? } else { c.entry };
            Some(times.cost(None).times(*hits as f64 / count as f64))
        })
        .try_fold(HitCost::default(), |sum, cost| Some(sum.plus(cost?)))
    });
    ProbeCost::new(ProbeCost::COLLECTOR_ELSEWHERE, count, each)
}
