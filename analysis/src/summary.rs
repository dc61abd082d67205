//! From sums to the report.

use crate::advice;
use crate::analysis::Analysis;
use crate::analysis::TraceState;
use crate::analysis::UnlistedSums;
use crate::counters::CounterSums;
use crate::gpu;
use crate::gpu::merge::MergedTimelines;
use crate::pressure;
use crate::process::ProcessState;
use crate::report::Basis;
use crate::report::CountersReport;
use crate::report::ExplicitCallsReport;
use crate::report::FreedNothingReport;
use crate::report::GpuReport;
use crate::report::GpuWorkReport;
use crate::report::LinesReport;
use crate::report::MissingData;
use crate::report::OverheadReport;
use crate::report::PauseGroup;
use crate::report::PauseTotal;
use crate::report::ProbeReport;
use crate::report::ProcessReport;
use crate::report::Report;
use crate::report::SCHEMA;
use crate::report::Totals;
use crate::report::TraceReport;
use crate::report::WorstPause;
use crate::stacks::RankingLimits;
use crate::stacks::StackRanking;
use crate::tally::PauseTally;
use crate::tally::rate;
use crate::tally::ratio;
use crate::verdict;
use gctrace_event::ExaminedProcesses;
use gctrace_event::Note;
use gctrace_event::Pause;
use gctrace_event::ProcessOrigin;
use std::collections::BTreeMap;
use std::collections::HashSet;

impl Analysis {
    /// The report over all traces so far.
    #[must_use]
    pub fn report(&mut self) -> Report {
        self.settle();
        let processes = self.process_reports();
        let mut by_trace: Vec<Vec<&ProcessReport>> = vec![Vec::new(); self.traces.len()];
        for process in &processes {
            if let Some(own) = by_trace.get_mut(process.trace) {
                own.push(process);
            }
        }
        let traces: Vec<TraceReport> = self
            .traces
            .iter()
            .zip(by_trace)
            .map(|(trace, own)| trace_report(trace, &own))
            .collect();
        let missing = self.missing();
        let totals = self.totals(&processes, &missing);
        let by_reason = self.groups(
            ["automatic", "manual", "shutdown", "unknown"],
            &self.by_reason,
        );
        let shutdown = by_reason.iter().find(|group| group.name == "shutdown");
        let shutdown = shutdown.map(|group| &group.pauses);
        let merged = gpu::merge::merge(&self.timelines, &self.spans());
        let timelines = merged.timelines.as_ref();
        let gpu = gpu_work(&merged);
        let outlook = gpu::what_if::report::outlook(self, timelines, &processes, gpu.as_ref());
        let verdict = verdict::verdict(&totals, shutdown, &traces, outlook.cost.as_ref());
        let cuda = crate::cuda::report(self.traces.iter().map(|trace| &trace.cuda).enumerate());
        let mut report = Report {
            schema: SCHEMA.to_owned(),
            gctrace: env!("CARGO_PKG_VERSION").to_owned(),
            verdict,
            advice: Vec::new(),
            by_generation: self.groups(["0", "1", "2", "unknown"], &self.by_generation),
            by_reason,
            worst: self.worst_pauses(),
            lines: self.lines(),
            pressure: pressure::together(
                processes
                    .iter()
                    .filter_map(|process| process.pressure.as_ref()),
            ),
            not_covered: self.not_covered(&merged.timelines, processes.len(), cuda.is_some()),
            cuda,
            counters: self.counters(),
            gpu,
            what_if: outlook.what_if,
            gpu_bounds: gpu::bounds::report::report(self, timelines),
            steps: gpu::steps::report(timelines, &self.only_full()),
            gpus: self.gpus(),
            freed_nothing: self.freed_nothing(),
            explicit_calls: self.explicit_calls(&processes, totals.observed_ns),
            overhead: self.overhead(totals.observed_ns),
            totals,
            traces,
            processes,
            missing,
            gpu_cost: outlook.cost,
        };
        report.advice = advice::advice(&report);
        report
    }

    /// Processes with pauses, the most stopped first.
    fn process_reports(&self) -> Vec<ProcessReport> {
        let mut reports: Vec<ProcessReport> = self
            .processes
            .iter()
            .filter(|process| process.tally.count() > 0)
            .filter_map(|process| {
                let trace = self.traces.get(process.trace)?;
                let ended_ns = trace.end.as_ref().map(|end| end.ended_ns);
                let (_, last_ns) = trace.span.unwrap_or_default();
                let observed = process.observed(ended_ns, last_ns);
                let report = process.report(trace.started_ns(), observed, &self.stacks);
                Some(ProcessReport {
                    rank: report.rank.or(trace.profiler.rank),
                    ..report
                })
            })
            .collect();
        reports.sort_by_key(|process| {
            (
                std::cmp::Reverse(process.stopped_ns),
                process.trace,
                process.pid,
            )
        });
        reports
    }

    /// Processes, by trace and id, whose collector runs only full collections.
    fn only_full(&self) -> HashSet<(usize, u32)> {
        let free_threaded = self.processes.iter().filter(|own| own.free_threaded());
        free_threaded.map(|own| (own.trace, own.pid)).collect()
    }

    fn lines(&self) -> Option<LinesReport> {
        let mut ranking = StackRanking::new(&self.stacks, self.all.time_ns());
        for process in self.processes.iter().chain(&self.unlisted) {
            ranking.add(&process.stacks);
        }
        ranking.report(RankingLimits::ALL)
    }

    fn counters(&self) -> Option<CountersReport> {
        let mut sum = CounterSums::default();
        for process in self.processes.iter().chain(&self.unlisted) {
            sum.merge(&process.counters);
        }
        sum.report()
    }

    fn gpus(&self) -> Vec<GpuReport> {
        let of_trace = |(index, trace): (usize, &TraceState)| {
            let first = self.processes.partition_point(|own| own.trace < index);
            let own = self.processes.iter().skip(first);
            let own = own.take_while(|own| own.trace == index);
            let recorded = own.map(|own| {
                let described = own.described.as_ref();
                (own.pid, described.and_then(|process| process.rank))
            });
            trace.gpus.report(index, &recorded.collect())
        };
        self.traces.iter().enumerate().flat_map(of_trace).collect()
    }

    fn totals(&self, processes: &[ProcessReport], missing: &MissingData) -> Totals {
        let sum =
            |of: fn(&ProcessReport) -> u64| processes.iter().map(of).fold(0, u64::saturating_add);
        let unlisted = || self.traces.iter().map(|trace| &trace.unlisted);
        let add = |of: fn(&UnlistedSums) -> u64| unlisted().map(of).fold(0, u64::saturating_add);
        let not_listed = add(|sums| sums.collecting);
        let omitted_ns = missing.omitted.time_ns;
        let observed_ns =
            sum(|process| process.observed_ns).saturating_add(add(|sums| sums.observed_ns));
        let paused_unlisted_ns = add(|sums| sums.paused_ns);
        let more_ns = omitted_ns.saturating_add(paused_unlisted_ns);
        let stopped_ns = sum(|process| process.stopped_ns).saturating_add(more_ns);
        let measured = |process: &ProcessReport| process.basis == Basis::Measured;
        let known = |process: &&ProcessState| process.described.is_some();
        let quiet = || {
            let quiet = self.processes.iter().filter(known);
            quiet.filter(|process| process.tally.count() == 0)
        };
        Totals {
            basis: basis(
                processes.iter().all(measured)
                    && self.stops_known()
                    && !unlisted().any(|sums| sums.inferred || sums.free_threaded),
            ),
            pauses: self.all.report(),
            observed_ns,
            paused_ns: sum(|process| process.paused_ns).saturating_add(more_ns),
            stopped_ns,
            stopped_ratio: stopped_ratio(
                processes.iter(),
                add(|sums| sums.observed_ns),
                omitted_ns.saturating_add(add(|sums| sums.paused_of_observed_ns)),
            ),
            worst_process_ratio: processes
                .iter()
                .filter_map(|process| process.stopped_ratio)
                .chain(unlisted().filter_map(|sums| sums.worst_ratio))
                .max_by(f64::total_cmp),
            processes: (processes.len() as u64).saturating_add(not_listed),
            processes_not_listed: not_listed,
            processes_without_python: (quiet().filter(|process| process.without_python()).count()
                as u64)
                .saturating_add(add(|sums| sums.without_python)),
            processes_without_pauses: (quiet().filter(|process| !process.without_python()).count()
                as u64)
                .saturating_add(add(|sums| sums.without_pauses)),
        }
    }

    fn stops_known(&self) -> bool {
        self.processes
            .iter()
            .filter(|process| process.tally.count() > 0)
            .all(|process| process.stopped_ns().1)
    }

    fn groups(&self, names: [&str; 4], tallies: &[PauseTally; 4]) -> Vec<PauseGroup> {
        names
            .into_iter()
            .zip(tallies)
            .filter(|(_, tally)| tally.count() > 0)
            .map(|(name, tally)| PauseGroup {
                name: name.to_owned(),
                time_ratio: ratio(tally.time_ns(), self.all.time_ns()).unwrap_or(0.0),
                pauses: tally.report(),
            })
            .collect()
    }

    fn worst_pauses(&self) -> Vec<WorstPause> {
        self.worst
            .entries()
            .iter()
            .filter_map(|entry| {
                let process = entry.process.and_then(|at| self.processes.get(at));
                let trace = self.traces.get(entry.trace)?;
                let after_start_ns = entry.pause.start_ns.saturating_sub(trace.started_ns());
                let described = process.and_then(|process| process.described.as_ref());
                let rank = described.and_then(|process| process.rank);
                let started_unix_ns = trace.started_unix_ns();
                Some(WorstPause {
                    trace: entry.trace,
                    rank: rank.or(trace.profiler.rank),
                    thread: entry.thread.clone(),
                    line: entry
                        .node
                        .and_then(|node| self.stacks.own_line(node).cloned()),
                    after_start_ns,
                    unix_ns: started_unix_ns.map(|started| started.saturating_add(after_start_ns)),
                    ..worst_pause(&entry.pause)
                })
            })
            .collect()
    }

    fn freed_nothing(&self) -> FreedNothingReport {
        let nothing = &self.nothing;
        let mut total = PauseTotal::default();
        for part in [
            nothing.automatic_full,
            nothing.automatic_partial,
            nothing.manual,
            nothing.shutdown,
            nothing.unknown,
        ] {
            total.add_all(&part);
        }
        FreedNothingReport {
            basis: Basis::Measured,
            automatic_full: nothing.automatic_full,
            automatic_partial: nothing.automatic_partial,
            manual: nothing.manual,
            shutdown: nothing.shutdown,
            unknown: nothing.unknown,
            total,
            time_ratio: ratio(total.time_ns, self.all.time_ns()).unwrap_or(0.0),
            of_automatic_full: nothing.of_automatic_full,
        }
    }

    fn explicit_calls(&self, processes: &[ProcessReport], observed_ns: u64) -> ExplicitCallsReport {
        let [_, manual, _, unknown] = &self.by_reason;
        let callers = processes.iter().filter(|process| {
            let [_, manual, _, _] = process.by_reason;
            manual.count > 0
        });
        let callers_ns = callers.clone().map(|process| process.observed_ns);
        let unlisted = || self.traces.iter().map(|trace| &trace.unlisted);
        let callers_ns = callers_ns.chain(unlisted().map(|sums| sums.callers_observed_ns));
        let more: u64 = unlisted().map(|sums| sums.callers).sum();
        ExplicitCallsReport {
            basis: Basis::Measured,
            pauses: manual.report(),
            time_ratio: ratio(manual.time_ns(), self.all.time_ns()).unwrap_or(0.0),
            observed_ratio: ratio(manual.time_ns(), observed_ns),
            processes: (callers.count() as u64).saturating_add(more),
            rate_per_s: rate(manual.count(), callers_ns.fold(0, u64::saturating_add)),
            of_unknown_reason: PauseTotal {
                count: unknown.count(),
                time_ns: unknown.time_ns(),
            },
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cost needs no more than 52 bits; casts of floats saturate"
    )]
    fn overhead(&self, observed_ns: u64) -> OverheadReport {
        /// Hits, hits that have a price, and their price in ns.
        type Sums = (u64, u64, f64);
        let mut sums: BTreeMap<&str, Sums> = BTreeMap::new();
        let ends = || self.traces.iter().filter_map(|trace| trace.end.as_ref());
        for probe in ends().flat_map(|end| &end.probes) {
            let (hits, priced, ns) = sums.entry(&probe.probe).or_default();
            *hits = hits.saturating_add(probe.hits);
            if let Some(ns_per_hit) = probe.ns_per_hit.filter(|ns| ns.is_finite() && *ns >= 0.0) {
                *priced = priced.saturating_add(probe.hits);
                *ns += probe.hits as f64 * ns_per_hit;
            }
        }
        let priced = sums.values().any(|(_, priced, _)| *priced > 0);
        let time_ns = priced.then(|| sums.values().map(|(_, _, ns)| ns).sum::<f64>() as u64);
        OverheadReport {
            basis: Basis::Inferred,
            time_ns,
            observed_ratio: time_ns.and_then(|time_ns| ratio(time_ns, observed_ns)),
            hits_without_time: sums
                .values()
                .map(|(hits, priced, _)| hits.saturating_sub(*priced))
                .fold(0, u64::saturating_add),
            traces_without_overhead: self
                .traces
                .iter()
                .filter(|trace| trace.end.as_ref().is_none_or(|end| end.probes.is_empty()))
                .count() as u64,
            probes: sums
                .into_iter()
                .map(|(probe, (hits, priced, ns))| ProbeReport {
                    probe: probe.to_owned(),
                    hits,
                    ns_per_hit: (priced > 0).then(|| ns / priced as f64),
                })
                .collect(),
        }
    }

    fn missing(&self) -> MissingData {
        let mut missing = MissingData {
            unfinished: self.unfinished,
            unreadable: self.unreadable.clone(),
            ..MissingData::default()
        };
        let mut complete = Some(true);
        for trace in &self.traces {
            let end = trace.end.as_ref();
            let examined = end.and_then(|end| end.processes.as_ref());
            complete = complete
                .zip(examined.map(ExaminedProcesses::is_complete))
                .map(|(one, other)| one && other);
            for (why, count) in examined.iter().flat_map(|own| &own.unexamined) {
                let sum = missing.unexamined.entry(why.clone()).or_default();
                *sum = sum.saturating_add(*count);
            }
            missing.anomalies += trace.ending.anomalies.count;
            missing.attached += trace.unlisted.attached;
            let Some(end) = &trace.end else {
                missing.traces_without_end += 1;
                continue;
            };
            for (place, count) in &end.lost {
                let lost = missing.lost.entry(place.clone()).or_default();
                *lost = lost.saturating_add(*count);
            }
            missing.omitted.add_all(&PauseTotal {
                count: end.omitted.count,
                time_ns: end.omitted.total_ns,
            });
        }
        for process in self
            .processes
            .iter()
            .filter(|process| process.tally.count() > 0)
        {
            let attached = process.described.as_ref().map(|process| process.origin);
            missing.attached += u64::from(attached == Some(ProcessOrigin::Attached));
            missing.inexact_overlaps += u64::from(process.inexact());
        }
        missing.every_process_examined = complete.filter(|_| !self.traces.is_empty());
        missing
    }
}

/// Share of time stopped, over the processes with a known observed time.
fn stopped_ratio<'a>(
    processes: impl Iterator<Item = &'a ProcessReport>,
    more_observed_ns: u64,
    more_stopped_ns: u64,
) -> Option<f64> {
    let known = processes.filter(|process| process.observed_ns > 0);
    let more = (more_stopped_ns, more_observed_ns);
    let (stopped, observed) = known.fold(more, |(stopped, observed), process| {
        (
            stopped.saturating_add(process.stopped_ns),
            observed.saturating_add(process.observed_ns),
        )
    });
    ratio(stopped.min(observed), observed)
}

/// The part of a worst pause that the pause itself contains.
fn worst_pause(pause: &Pause) -> WorstPause {
    WorstPause {
        trace: 0,
        pid: pause.pid,
        rank: None,
        tid: pause.tid,
        thread: None,
        line: None,
        after_start_ns: 0,
        start_ns: pause.start_ns,
        unix_ns: None,
        duration_ns: pause.duration_ns(),
        generation: Some(pause.generation)
            .filter(|generation| *generation != Pause::UNKNOWN_GENERATION),
        reason: pause.reason.as_str().to_owned(),
        collected: pause.collected,
        objects: pause.heap_objects.or(pause.oldest_objects),
        cpu_ns: pause.cpu_ns,
        unfinished: pause.unfinished,
    }
}

fn basis(measured: bool) -> Basis {
    match measured {
        true => Basis::Measured,
        false => Basis::Inferred,
    }
}

/// `own`: its processes that are listed.
fn trace_report(trace: &TraceState, own: &[&ProcessReport]) -> TraceReport {
    let own = || own.iter().copied();
    let unlisted = &trace.unlisted;
    let header = trace.header.as_ref();
    let end = trace.end.as_ref();
    let omitted_ns = end.map_or(0, |end| end.omitted.total_ns);
    let observed_ns = own()
        .map(|process| process.observed_ns)
        .fold(unlisted.observed_ns, u64::saturating_add);
    let stopped_ns = own().map(|process| process.stopped_ns).fold(
        omitted_ns.saturating_add(unlisted.paused_ns),
        u64::saturating_add,
    );
    let (_, last_ns) = trace.span.unwrap_or_default();
    TraceReport {
        file: trace.file.clone(),
        command: header
            .map(|header| header.command.clone())
            .unwrap_or_default(),
        attached_pid: header.and_then(|header| header.attached_pid),
        host: match header {
            Some(header) => Some(header.host.clone()),
            None => trace.profiler.host.clone(),
        },
        kernel: header.map(|header| header.kernel.clone()),
        recorded_by: header.map(|header| header.gctrace.clone()),
        recorded: crate::recorded::report(trace),
        rank: trace.rank(),
        started_ns: trace.started_ns(),
        started_unix_ns: trace.started_unix_ns(),
        duration_ns: last_ns.saturating_sub(trace.started_ns()),
        basis: basis(header.is_some() && end.is_some()),
        pauses: trace.effort,
        max_ns: trace.max_ns,
        observed_ns,
        stopped_ns,
        stopped_ratio: stopped_ratio(
            own(),
            unlisted.observed_ns,
            omitted_ns.saturating_add(unlisted.paused_of_observed_ns),
        ),
        processes: (own().count() as u64).saturating_add(unlisted.collecting),
        ended: end.map(|end| end.why.clone()),
        exit_code: end.and_then(|end| end.exit_code),
        cut_at: trace.ending.cut.map(|position| position.to_string()),
        damage: trace.damage.clone(),
        lost: end.map_or(0, |end| {
            end.lost.values().copied().fold(0, u64::saturating_add)
        }),
        anomalies: trace
            .ending
            .anomalies
            .first
            .iter()
            .map(|anomaly| format!("{}: {}", anomaly.position, anomaly.problem))
            .collect(),
        stack_depth: header.map(|header| header.stack_depth),
        counters_missing: header
            .map(|header| header.counters_missing.clone())
            .unwrap_or_default(),
        notes: trace.notes.iter().map(note).collect(),
        notes_left_out: trace.notes_left_out,
        repeats: trace.repeats.clone(),
    }
}

fn note(note: &Note) -> String {
    match note.pid {
        Some(pid) => format!("process {pid}: {}", note.message),
        None => note.message.clone(),
    }
}

/// GPU work, with the traces of each process merged.
fn gpu_work(merged: &MergedTimelines<'_>) -> Option<GpuWorkReport> {
    let work = gpu::summary::report(&merged.timelines)?;
    Some(GpuWorkReport {
        clocks: merged.clocks.clone(),
        not_merged: merged.not_merged.clone(),
        ..work
    })
}
