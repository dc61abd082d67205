//! From sums to the report.

mod evidence;
mod traces;

use crate::accumulate::process::{OtherRecords, ProcessState};
use crate::accumulate::trace_state::TraceState;
use crate::accumulate::unlisted::UnlistedSums;
use crate::accumulate::worst_pauses::WorstPauseEntry;
use crate::analysis::Analysis;
use crate::counters::CounterSums;
use crate::pauses::{PauseTally, REASONS, known_generation};
use crate::stacks::{RankingLimits, StackRanking};
use crate::time::{add_to, after, duration_ns, sum};
use crate::{advice, garbage};
use gctrace_stats::ratio;

use crate::gpu::cost::WithoutPauses;
use crate::gpu::kept::KeptTimeline;
use crate::gpu::merge::MergedTimelines;
use crate::gpu::replays::JobReplays;
use crate::phases::{JudgedRun, training_steps};
use crate::report::{
    Basis, CopiedMemory, CountersReport, CpuReport, GpuReport, GpuWorkReport, GroupName, Level,
    LinesReport, LoopReport, MainThreadReport, MissingData, PauseGroup, ProcessReport, Report,
    SCHEMA, StepReport, Totals, TraceReport, TrainingSeries, Verdict, WorstPause,
};
use crate::{cuda, gpu, pressure, verdict, words};
use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;

/// The steps of one process, of its thread with the most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessStepRow {
    /// Number of the trace, from 0, in order of reading.
    pub trace: usize,
    /// Process id; 0 if the trace does not contain it.
    pub pid: u32,
    /// Rank in a distributed job; `None` if unknown.
    pub rank: Option<u32>,
    /// Name of the host; `None` if the trace does not contain it.
    pub host: Option<String>,
    /// In order of time.
    pub steps: Vec<StepReport>,
}

impl Analysis {
    /// The report over all traces, once [`Analysis::settle`] has counted the collections that waited for the last.
    pub fn report(&self) -> Report {
        debug_assert!(self.is_settled(), "settle comes before the report");
        let processes = self.process_reports();
        let mut by_trace: Vec<Vec<&ProcessReport>> = vec![Vec::new(); self.traces.len()];
        for process in &processes {
            if let Some(by_trace) = by_trace.get_mut(process.trace) {
                by_trace.push(process);
            }
        }
        let traces: Vec<TraceReport> = self
            .traces
            .iter()
            .zip(by_trace)
            .map(|(trace, listed)| traces::trace_report(trace, &listed))
            .collect();
        let missing = self.missing();
        let totals = self.totals(&processes, &missing);
        let by_reason = self.groups(REASONS.map(GroupName::Reason), &self.by_reason);
        let merged = gpu::merge::merge(&self.timelines, &self.spans());
        let timelines = merged.timelines.as_ref();
        let runs = runs(&self.traces);
        let mut loops = self.loops();
        let waits_for_processes = self.waits_for_processes();
        let judged = match runs {
            0 | 1 => JudgedRun::of(self, timelines, &processes, (&loops, &waits_for_processes)),
            _ => None,
        };
        let with_gpu: Vec<&KeptTimeline> =
            timelines.iter().filter(|timeline| timeline.has_gpu_times()).collect();
        let threads = self.threads.unwrap_or(NonZeroUsize::MIN);
        let without = WithoutPauses::of(&with_gpu);
        let replays = if with_gpu.is_empty() {
            JobReplays::default()
        } else {
            JobReplays::of(&with_gpu, &[without.change()], threads)
        };
        let gpu = gpu_work(&merged, &with_gpu, &replays, threads);
        let cost = without.cost(&replays, gpu.as_ref());
        let phases = judged.as_ref().map(JudgedRun::report);
        let series = judged.as_ref().and_then(|run| TrainingSeries::of(run, timelines));
        let of_verdict = phases.as_ref().map(|phases| (phases.trace, phases.pid));
        loops.sort_by_key(|of| of.rank(of_verdict));
        let service = crate::report::service_loop(&loops, phases.as_ref());
        let verdict = verdict::verdict(&totals, phases.as_ref(), &traces, cost.as_ref(), service);
        let verdict = match runs {
            0 | 1 => verdict,
            _ => Verdict { level: Level::Unknown, ..verdict },
        };
        let cuda = cuda::report(self.traces.iter().map(|trace| &trace.cuda).enumerate());
        let mut report = Report {
            schema: SCHEMA.to_owned(),
            gctrace: env!("CARGO_PKG_VERSION").to_owned(),
            verdict,
            advice: Vec::new(),
            runs,
            by_generation: self.groups(
                [Some(0), Some(1), Some(2), None].map(GroupName::Generation),
                &self.by_generation,
            ),
            by_reason,
            worst: self.worst_pauses(),
            lines: self.lines(),
            pressure: pressure::together(
                processes.iter().filter_map(|process| process.pressure.as_ref()),
            ),
            not_covered: self.not_covered(&merged.timelines, processes.len(), cuda.is_some()),
            cuda,
            counters: self.counters(),
            cpu: self.cpu(judged.as_ref(), &loops),
            loops,
            waits_for_processes,
            gpu,
            gpu_bounds: gpu::bounds::report::report(timelines, self.bounds_context()),
            phases,
            steps: gpu::steps::report(timelines, &replays, &self.only_full()),
            gpus: self.gpus(),
            freed_nothing: self.freed_nothing(),
            explicit_calls: self.explicit_calls(&processes, totals.observed_ns),
            garbage: garbage::together(
                processes.iter().filter_map(|process| process.garbage.clone()),
                self.processes.iter().map(|process| process.sums.garbage.freed()),
            ),
            overhead: self.overhead(),
            totals,
            traces,
            traces_left_out: 0,
            processes,
            missing,
            gpu_cost: cost,
            series,
        };
        let hosts: Vec<Option<&str>> =
            report.traces.iter().map(|trace| trace.host.as_deref()).collect();
        let jobs = report.gpu.as_mut().and_then(|gpu| gpu.ranks.as_mut());
        for job in jobs.into_iter().flat_map(|ranks| &mut ranks.jobs) {
            job.spread = gpu::ranks::spread::spread(&job.ranks, &hosts);
        }
        report.advice = advice::advice(&report);
        report.verdict.sentence = words::verdict::sentence(&report);
        report
    }

    /// Each step of every process with training steps, by rank, trace and process.
    pub fn step_rows(&self) -> Vec<ProcessStepRow> {
        let merged = gpu::merge::merge(&self.timelines, &self.spans());
        let timelines = merged.timelines.as_ref();
        let with_gpu = timelines.iter().filter(|timeline| timeline.has_gpu_times());
        let with_gpu: Vec<&KeptTimeline> = with_gpu.collect();
        let replays = match with_gpu.as_slice() {
            [] => JobReplays::default(),
            with_gpu => JobReplays::of(with_gpu, &[], self.threads.unwrap_or(NonZeroUsize::MIN)),
        };
        let mut rows = gpu::steps::rows(timelines, &replays, &self.only_full());
        for row in &mut rows {
            let trace = self.traces.get(row.trace);
            row.host = trace.and_then(traces::host).filter(|host| !host.is_empty());
        }
        rows
    }

    /// Launchers of ranks, by trace and id: processes with a child of another rank. Where a scheduler
    /// started one launcher per node, the rank in its environment is the node's.
    fn launchers(&self) -> HashSet<(usize, u32)> {
        let ranks: HashMap<(usize, u32), u32> = self
            .processes
            .iter()
            .filter_map(|process| Some(((process.trace, process.sums.pid), process.sums.rank()?)))
            .collect();
        let launched = self.processes.iter().filter_map(|process| {
            let parent = (process.trace, process.sums.described.as_ref()?.parent?);
            if process.sums.rank()? != *ranks.get(&parent)? { Some(parent) } else { None }
        });
        launched.collect()
    }

    /// Processes with pauses, the most stopped first.
    fn process_reports(&self) -> Vec<ProcessReport> {
        let launchers = self.launchers();
        let mut reports: Vec<ProcessReport> = self
            .processes
            .iter()
            .filter_map(|process| {
                if process.tally.count() == 0 {
                    return None;
                }
                let trace = self.traces.get(process.trace)?;
                let ended_ns = trace.end.as_ref().map(|end| end.ended_ns);
                let observed = process.observed(ended_ns, trace.last_ns());
                let about = self.other_records(process);
                let report = process.report(trace.started_ns(), observed, &self.stacks, &about);
                let rank = report.rank.or(trace.profiler.rank);
                Some(ProcessReport {
                    rank: if launchers.contains(&(report.trace, report.pid)) { None } else { rank },
                    ..report
                })
            })
            .collect();
        reports.sort_by_key(|process| {
            (std::cmp::Reverse(process.stopped_ns), process.trace, process.pid)
        });
        reports
    }

    /// What sampled processes executed and waited for, the most samples first.
    fn cpu(&self, judged: Option<&JudgedRun<'_>>, loops: &[LoopReport]) -> Vec<CpuReport> {
        let children = self.children();
        let mut reports: Vec<CpuReport> = self
            .processes
            .iter()
            .enumerate()
            .filter_map(|(index, process)| {
                let trace = self.traces.get(process.trace)?;
                let ended_ns = trace.end.as_ref().map(|end| end.ended_ns);
                let observed = process.observed(ended_ns, trace.last_ns());
                let children = children.get(&(process.trace, process.sums.pid));
                let children = if let Some(children) = children { &children[..] } else { &[] };
                let hertz = trace.header.as_ref()?.sample_hz?;
                let cpu = process.cpu(observed, &self.stacks, hertz)?;
                // The start-up of a training program is longer than its training in a short run.
                let training = judged.filter(|run| {
                    let judged = (run.process.trace, run.process.pid);
                    judged == (process.trace, process.sums.pid) && run.phases.steps.is_some()
                });
                let within = training.map(|run| run.phases.training_ns);
                let whole = (observed.0, observed.1);
                let main = self.main_thread(index, children, hertz, within.unwrap_or(whole));
                let training = within.is_some();
                let has_loop = loops.iter().any(|of| {
                    (of.trace, of.pid) == (process.trace, process.sums.pid)
                        && !of.is_in_background()
                });
                // A service runs until something stops it.
                let ended_itself = process.sums.exit.is_some_and(|exit| exit.code.is_some());
                let main_thread = main.map(|main| MainThreadReport {
                    training,
                    no_loop: main.waits_most().filter(|_| !training && !has_loop && !ended_itself),
                    ..main
                });
                // Its main thread may have waited all the time.
                let waits = main_thread.as_ref().is_some_and(MainThreadReport::waits_in_python);
                if cpu.samples > 0 || waits { Some(CpuReport { main_thread, ..cpu }) } else { None }
            })
            .collect();
        reports.sort_by_key(|cpu| (std::cmp::Reverse(cpu.samples), cpu.trace, cpu.pid));
        reports
    }

    /// Facts about a process from its timeline and the device memory of its trace.
    fn other_records(&self, process: &ProcessState) -> OtherRecords {
        let mut timelines = self.timelines.iter();
        let timeline = timelines
            .find(|timeline| timeline.trace == process.trace && timeline.pid == process.sums.pid);
        let cuda = self.traces.get(process.trace).map(|trace| &trace.cuda);
        let has_device = matches!(cuda, Some(cuda) if !cuda.is_empty());
        let cuda = cuda.filter(|cuda| cuda.devices_of(process.sums.pid) > 0);
        OtherRecords {
            has_device,
            steps: match timeline {
                Some(timeline) => training_steps(timeline),
                None => Vec::new(),
            },
            device_bytes: cuda.map(|cuda| cuda.memory_of(process.sums.pid).0),
        }
    }

    /// Processes, by trace and id, with a collector that runs only full collections.
    fn only_full(&self) -> HashSet<(usize, u32)> {
        let free_threaded = self.processes.iter().filter_map(|process| {
            let id = (process.trace, process.sums.pid);
            if process.sums.free_threaded() { Some(id) } else { None }
        });
        free_threaded.collect()
    }

    fn lines(&self) -> Option<LinesReport> {
        let mut ranking = StackRanking::new(&self.stacks, self.all.time_ns());
        for process in self.processes.iter().chain(&self.unlisted) {
            ranking.add(&process.stacks);
        }
        ranking.report(RankingLimits::ALL)
    }

    fn worst_pauses(&self) -> Vec<WorstPause> {
        let entries = self.worst.entries.iter();
        entries.map(|entry| self.worst_pause(entry)).collect()
    }

    fn worst_pause(&self, entry: &WorstPauseEntry) -> WorstPause {
        let pause = &entry.pause;
        let process = entry.process.map(|at| &self.processes[at]);
        let trace = &self.traces[entry.trace];
        let after_start_ns = duration_ns(trace.started_ns(), pause.start_ns);
        let rank = process.and_then(|process| process.sums.rank());
        let line = entry.node.map(|node| self.stacks.own_line(node));
        let started_unix_ns = trace.started_unix_ns();
        WorstPause {
            trace: entry.trace,
            pid: pause.pid,
            rank: rank.or(trace.profiler.rank),
            tid: pause.tid,
            thread: entry.thread.clone(),
            line: line.cloned(),
            after_start_ns,
            start_ns: pause.start_ns,
            unix_ns: started_unix_ns.map(|started| after(started, after_start_ns)),
            duration_ns: pause.duration_ns(),
            generation: known_generation(pause),
            reason: pause.reason,
            collected: pause.collected,
            objects: pause.heap_objects.or(pause.oldest_objects),
            cpu_ns: pause.cpu_ns,
            unfinished: pause.unfinished,
        }
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
            let first = self.processes.partition_point(|process| process.trace < index);
            let later = self.processes.iter().skip(first);
            let processes = later.take_while(|process| process.trace == index);
            let recorded = processes.map(|process| (process.sums.pid, process.sums.rank()));
            trace.gpus.report(index, &recorded.collect())
        };
        self.traces.iter().enumerate().flat_map(of_trace).collect()
    }

    fn totals(&self, processes: &[ProcessReport], missing: &MissingData) -> Totals {
        let listed = |of: fn(&ProcessReport) -> u64| processes.iter().map(of);
        let unlisted = || self.traces.iter().map(|trace| &trace.unlisted);
        let others = |of: fn(&UnlistedSums) -> u64| unlisted().map(of);
        let omitted_ns = missing.omitted.time_ns;
        let not_listed = sum(others(|sums| sums.collecting));
        let paused_unlisted = || others(|sums| sums.paused_ns).chain([omitted_ns]);
        let measured = |process: &ProcessReport| process.basis == Basis::Measured;
        let quiet = |without_python: bool| {
            let quiet = self.processes.iter().filter(move |process| {
                let sums = &process.sums;
                let described = sums.described.is_some() && process.tally.count() == 0;
                described && sums.without_python() == without_python
            });
            quiet.count() as u64
        };
        Totals {
            basis: basis(
                processes.iter().all(measured)
                    && self.stops_known()
                    && !unlisted().any(|sums| sums.inferred || sums.free_threaded),
            ),
            pauses: self.all.report(),
            observed_ns: sum(
                listed(|process| process.observed_ns).chain(others(|sums| sums.observed_ns))
            ),
            paused_ns: sum(listed(|process| process.paused_ns).chain(paused_unlisted())),
            stopped_ns: sum(listed(|process| process.stopped_ns).chain(paused_unlisted())),
            stopped_ratio: stopped_ratio(
                processes.iter(),
                sum(others(|sums| sums.observed_ns)),
                sum(others(|sums| sums.paused_of_observed_ns).chain([omitted_ns])),
            ),
            worst_process_ratio: processes
                .iter()
                .filter_map(|process| process.stopped_ratio)
                .chain(unlisted().filter_map(|sums| sums.worst_ratio))
                .max_by(f64::total_cmp),
            processes: processes.len() as u64 + not_listed,
            processes_not_listed: not_listed,
            processes_without_python: quiet(true) + sum(others(|sums| sums.without_python)),
            processes_without_pauses: quiet(false) + sum(others(|sums| sums.without_pauses)),
            copied: self.copied(),
        }
    }

    fn copied(&self) -> Option<CopiedMemory> {
        let each = self.processes.iter();
        let copies =
            each.filter_map(|one| Some((one.sums.memory.copied_bytes()?, one.tally.count())));
        let mut all = CopiedMemory::default();
        for (bytes, collections) in copies {
            all.processes += 1;
            all.collecting += u64::from(collections > 0);
            add_to(&mut all.bytes, bytes);
            all.most_bytes = all.most_bytes.max(bytes);
        }
        if all.processes > 0 { Some(all) } else { None }
    }

    fn stops_known(&self) -> bool {
        self.processes.iter().all(|process| process.tally.count() == 0 || process.stopped_ns().1)
    }

    fn groups(&self, names: [GroupName; 4], tallies: &[PauseTally; 4]) -> Vec<PauseGroup> {
        let mut groups = Vec::new();
        for (name, tally) in names.into_iter().zip(tallies) {
            if tally.count() > 0 {
                let time_ratio = ratio(tally.time_ns(), self.all.time_ns()).unwrap_or(0.0);
                groups.push(PauseGroup { name, time_ratio, pauses: tally.report() });
            }
        }
        groups
    }
}

/// The number of separate runs that the traces are of: traces of one run overlap in time. Traces
/// without Unix time may be of any run and are not counted.
fn runs(traces: &[TraceState]) -> u64 {
    let span = |trace: &TraceState| {
        let start_ns = trace.started_unix_ns()?;
        let length_ns = duration_ns(trace.started_ns(), trace.last_ns());
        Some((start_ns, after(start_ns, length_ns)))
    };
    let mut spans: Vec<(u64, u64)> = traces.iter().filter_map(span).collect();
    spans.sort_unstable();
    let mut runs = 0;
    let mut last_ns = None;
    for (start_ns, end_ns) in spans {
        runs += u64::from(last_ns < Some(start_ns));
        last_ns = last_ns.max(Some(end_ns));
    }
    runs
}

/// Share of time stopped, over the processes with a known observed time.
fn stopped_ratio<'a>(
    processes: impl Iterator<Item = &'a ProcessReport>,
    more_observed_ns: u64,
    more_stopped_ns: u64,
) -> Option<f64> {
    let (mut stopped, mut observed) = (more_stopped_ns, more_observed_ns);
    for process in processes.filter(|process| process.observed_ns > 0) {
        add_to(&mut stopped, process.stopped_ns);
        add_to(&mut observed, process.observed_ns);
    }
    ratio(stopped.min(observed), observed)
}

fn basis(measured: bool) -> Basis {
    if measured { Basis::Measured } else { Basis::Inferred }
}

/// GPU work, with the traces of each process merged.
fn gpu_work(
    merged: &MergedTimelines<'_>,
    with_gpu: &[&KeptTimeline],
    replays: &JobReplays,
    threads: NonZeroUsize,
) -> Option<GpuWorkReport> {
    let work = gpu::summary::report(with_gpu, replays, threads)?;
    Some(GpuWorkReport {
        clocks: merged.clocks.clone(),
        not_merged: merged.not_merged.clone(),
        ..work
    })
}
