//! Collections without need, the overhead of recording, and missing data.

use crate::accumulate::trace_state::TraceState;
use crate::analysis::Analysis;
use crate::gpu::bounds::BoundsContext;
use crate::gpu::timeline::{GpuPart, Timeline};
use crate::report::{
    Basis, DeletedGeneration, DeletedReport, ExplicitCallsReport, FreedNothingReport, MissingData,
    OmittedGpuReport, OverheadReport, PauseTotal, ProbeReport, ProcessReport,
};
use crate::time::{add_to, beyond, duration_ns, sum};
use gctrace_event::{
    HitCost, OmittedPauses, ProbeCost, Process, ProcessOrigin, Segment, TraceEnd, UnseenCollections,
};
use gctrace_stats::{rate, ratio};
use std::collections::{BTreeMap, HashSet};

/// A program that does nothing but collect spends at most this share of its CPU time on being recorded.
const MOST_OF_CPU: f64 = 0.95;

impl Analysis {
    pub(super) fn freed_nothing(&self) -> FreedNothingReport {
        let total = self.nothing.total();
        FreedNothingReport {
            basis: Basis::Measured,
            by_cause: self.nothing,
            total,
            time_ratio: ratio(total.time_ns, self.all.time_ns()).unwrap_or(0.0),
            of_automatic_full: self.automatic_full,
        }
    }

    /// Facts that bounds of pauses depend on, in addition to a timeline.
    pub(super) fn bounds_context(&self) -> impl Fn(&Timeline) -> BoundsContext {
        let attached = self.processes.iter().filter_map(|process| match process.sums.described {
            None | Some(Process { origin: ProcessOrigin::Attached, .. }) => {
                Some((process.trace, process.sums.pid))
            }
            _ => None,
        });
        let attached: HashSet<(usize, u32)> = attached.collect();
        move |timeline| {
            let trace = self.traces.get(timeline.process_trace);
            let end = trace.and_then(|trace| trace.end.as_ref());
            let process = (timeline.process_trace, timeline.pid);
            BoundsContext {
                events_lost: end.is_none_or(|end| end.lost.values().any(|lost| *lost > 0)),
                from_start: timeline.is_ours && !attached.contains(&process),
                several_devices: trace.is_some_and(|trace| trace.cuda.devices_of(timeline.pid) > 1),
            }
        }
    }

    pub(super) fn explicit_calls(
        &self,
        processes: &[ProcessReport],
        observed_ns: u64,
    ) -> ExplicitCallsReport {
        let [_, manual, _, unknown] = &self.by_reason;
        let (mut callers, mut callers_ns) = (0, Vec::new());
        for process in processes {
            let [_, manual, _, _] = process.by_reason;
            if manual.count > 0 {
                callers += 1;
                callers_ns.push(process.observed_ns);
            }
        }
        let unlisted = || self.traces.iter().map(|trace| &trace.unlisted);
        callers_ns.extend(unlisted().map(|sums| sums.callers_observed_ns));
        let more: u64 = unlisted().map(|sums| sums.callers).sum();
        ExplicitCallsReport {
            basis: Basis::Measured,
            pauses: manual.report(),
            time_ratio: ratio(manual.time_ns(), self.all.time_ns()).unwrap_or(0.0),
            observed_ratio: ratio(manual.time_ns(), observed_ns),
            processes: callers + more,
            rate_per_s: rate(manual.count(), sum(callers_ns)),
            of_unknown_reason: PauseTotal { count: unknown.count(), time_ns: unknown.time_ns() },
        }
    }

    pub(super) fn overhead(&self) -> OverheadReport {
        #[derive(Default)]
        struct ProbeHits {
            elsewhere: bool,
            hits: u64,
            /// Hits that have a price, and all of them.
            priced: u64,
            cost: HitCost,
        }
        let mut sums: BTreeMap<&str, ProbeHits> = BTreeMap::new();
        let ends = || self.traces.iter().filter_map(|trace| trace.end.as_ref());
        for probe in ends().flat_map(|end| &end.probes) {
            let sums = sums.entry(&probe.probe).or_default();
            sums.elsewhere = probe.is_elsewhere();
            add_to(&mut sums.hits, probe.hits);
            if let Some(each) = probe.each() {
                add_to(&mut sums.priced, probe.hits);
                sums.cost = sums.cost.plus(each.times(probe.hits as f64));
            }
        }
        let cost = |elsewhere| {
            let priced = sums.iter().filter(|(probe, sums)| {
                sums.priced > 0 && sums.elsewhere == elsewhere && **probe != ProbeCost::STOPPED
            });
            priced.map(|(_, sums)| sums.cost).reduce(HitCost::plus)
        };
        let recorded = sums.values().filter(|sums| !sums.elsewhere);
        let own = cost(false);
        // All recordings with a cost, or none.
        let with_cost = || ends().filter(|end| !end.probes.is_empty());
        let cpu_ns = with_cost().map(|end| end.cpu_ns).collect::<Option<Vec<u64>>>();
        let cpu_ns = cpu_ns.map(sum).filter(|cpu_ns| *cpu_ns > 0);
        let cpu_ratio = |of: fn(HitCost) -> f64| {
            // The rest is the program's: at the end of the range it may seem to be nothing.
            let (ns, cpu_ns) = (of(own?), cpu_ns? as f64);
            let ns = ns.min(MOST_OF_CPU * cpu_ns);
            Some(ns / (cpu_ns - ns))
        };
        let stopped = sums.get(ProbeCost::STOPPED).filter(|sums| sums.priced > 0);
        OverheadReport {
            basis: Basis::Inferred,
            time_ns: own.map(|own| own.likely_ns as u64),
            time_at_least_ns: own.map(|own| own.least_ns as u64),
            time_at_most_ns: own.map(|own| own.most_ns as u64),
            stopped_ns: stopped.map(|sums| sums.cost.likely_ns as u64),
            elsewhere_ns: cost(true).map(|cost| cost.likely_ns as u64),
            cpu_ns,
            cpu_ratio: cpu_ratio(|cost| cost.likely_ns),
            cpu_ratio_at_least: cpu_ratio(|cost| cost.least_ns),
            cpu_ratio_at_most: cpu_ratio(|cost| cost.most_ns),
            hits_without_time: sum(recorded.map(|sums| sums.hits - sums.priced)),
            traces_without_overhead: self
                .traces
                .iter()
                .filter(|trace| trace.end.as_ref().is_none_or(|end| end.probes.is_empty()))
                .count() as u64,
            probes: sums
                .into_iter()
                .map(|(probe, sums)| ProbeReport {
                    probe: probe.to_owned(),
                    elsewhere: sums.elsewhere,
                    hits: sums.hits,
                    ns_per_hit: (sums.priced > 0).then(|| sums.cost.likely_ns / sums.priced as f64),
                })
                .collect(),
        }
    }

    fn add_omitted_gpu_work(&self, sum: &mut Option<OmittedGpuReport>, trace: &TraceState) {
        let omitted = trace.omitted_gpu_work;
        if omitted.operations.is_none() && omitted.calls.is_none() {
            return;
        }
        let sum = sum.get_or_insert_default();
        sum.operations.add_all(&total(omitted.operations));
        sum.calls.add_all(&total(omitted.calls));
        let kept = self.timelines.iter().filter(|kept| kept.gpu_part == Some(GpuPart::Kept));
        let known = kept.filter_map(|kept| kept.activity());
        sum.known_ns = known.map(|(from_ns, until_ns)| duration_ns(from_ns, until_ns)).max();
    }

    pub(super) fn missing(&self) -> MissingData {
        let mut missing = MissingData {
            unfinished: self.unfinished,
            unreadable: self.unreadable.clone(),
            ..MissingData::default()
        };
        let mut complete = Some(true);
        let mut all_unseen = None::<UnseenCollections>;
        for trace in &self.traces {
            let end = trace.end.as_ref();
            let examined = end.and_then(|end| end.processes.as_ref());
            complete = match (complete, examined) {
                (Some(one), Some(examined)) => Some(one && examined.is_complete()),
                _ => None,
            };
            for (why, count) in examined.iter().flat_map(|examined| &examined.unexamined) {
                let sum = missing.unexamined.entry(why.clone()).or_default();
                add_to(sum, *count);
            }
            if let Some(header) = &trace.header
                && let Some(segment) = &header.segment
                && segment.number > 1
            {
                let time_ns = duration_ns(segment.recording_started_ns, header.started_ns);
                add_deleted(missing.deleted.get_or_insert_default(), segment, time_ns);
            }
            self.add_omitted_gpu_work(&mut missing.omitted_gpu_work, trace);
            missing.anomalies += trace.ending.anomalies.count;
            add_to(&mut missing.recorded_twice, trace.ending.recorded_twice);
            missing.attached += trace.unlisted.attached;
            missing.traces_without_end += u64::from(end.is_none());
            if let Some(TraceEnd { unseen: Some(unseen), .. }) = end {
                all_unseen.get_or_insert_default().add(*unseen);
            }
            let Some(end) = end.or(trace.ending.before_end.as_ref()) else { continue };
            for (place, count) in &end.lost {
                let lost = missing.lost.entry(place.clone()).or_default();
                add_to(lost, *count);
            }
            missing.omitted.add_all(&total(end.omitted));
            missing.omitted_waits.add_all(&total(end.omitted_waits));
            for (name, omitted) in &end.omitted_others {
                missing.omitted_others.entry(name.clone()).or_default().add_all(&total(*omitted));
            }
        }
        for process in self.processes.iter().filter(|process| process.tally.count() > 0) {
            let attached = process.sums.described.as_ref().map(|process| process.origin);
            missing.attached += u64::from(attached == Some(ProcessOrigin::Attached));
            missing.inexact_overlaps += u64::from(process.inexact());
        }
        missing.unseen = all_unseen.map(Into::into);
        missing.every_process_examined = if self.traces.is_empty() { None } else { complete };
        missing
    }
}

/// Counts and times under their names in the report.
fn total(of: OmittedPauses) -> PauseTotal {
    PauseTotal { count: of.count.0, time_ns: of.total_ns.0 }
}

fn add_deleted(sum: &mut DeletedReport, segment: &Segment, time_ns: u64) {
    let before = &segment.before;
    add_to(&mut sum.segments, beyond(segment.number, 1));
    add_to(&mut sum.time_ns, time_ns);
    sum.pauses.add_all(&PauseTotal { count: before.count(), time_ns: before.total_ns() });
    sum.waits.add_all(&total(before.waits));
    sum.operations.add_all(&total(before.operations));
    sum.calls.add_all(&total(before.calls));
    sum.longest_ns = sum.longest_ns.max(before.longest_ns());
    add_to(&mut sum.lost, before.lost);
    for more in &before.generations {
        let generation = if more.generation <= 2 { Some(more.generation) } else { None };
        let known = sum.generations.iter_mut().find(|known| known.generation == generation);
        let known = match known {
            Some(known) => known,
            None => {
                sum.generations.push(DeletedGeneration { generation, ..Default::default() });
                let Some(last) = sum.generations.last_mut() else { continue };
                last
            }
        };
        add_to(&mut known.count, more.count.0);
        add_to(&mut known.time_ns, more.total_ns.0);
        known.longest_ns = known.longest_ns.max(more.longest_ns.0);
        add_to(&mut known.collected, more.collected.0);
        add_to(&mut known.uncollectable, more.uncollectable.0);
    }
    sum.generations.sort_by_key(|of| (of.generation.is_none(), of.generation));
}
