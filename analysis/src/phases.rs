//! A run cut into start-up, training and exit.
//!
//! Finds the process that the verdict of a report is about, and the cost of its collections in each phase. A
//! collection in training costs as long as the program runs, at start-up once per start; at exit it is reported only.

mod boundaries;

pub(crate) use self::boundaries::{Phase, RunPhases, training_steps};

use self::boundaries::{At, Begins, FEWEST_STEPS};
use crate::accumulate::process::ProcessState;
use crate::analysis::Analysis;
use crate::gpu::kept::KeptTimeline;
use crate::gpu::timeline::{GpuPart, ProcessTimeline};
use crate::report::{
    Basis, JudgedPhase, LinesReport, LoopReport, PhaseReport, PhasesReport, ProcessReport,
    ProcessWaitReport, TrainingMark, Workers,
};
use crate::settings::ExplicitCalls;
use crate::spans::PauseSpan;
use crate::stacks::{NodeId, RankingLimits, StackRanking, StackSums, StackTree, WithoutStack};
use crate::time::{add_to, beyond};
use crate::{time, verdict};
use gctrace_event::{CollectorKind, GcReason, Process, ProcessOrigin};
use gctrace_stats::{ratio, scaled};
use std::collections::{BTreeMap, BTreeSet};

/// From this part of the pauses' time on that has CPU times, these stand for the rest.
const KNOWN_PART: u64 = 10;

/// The run of the process that the verdict is about.
#[derive(Clone, Debug)]
pub(crate) struct JudgedRun<'a> {
    pub(crate) process: &'a ProcessReport,
    /// Its steps and pauses, on the clock of the phases.
    pub(crate) timeline: &'a ProcessTimeline,
    pub(crate) phases: RunPhases,
    /// Number of processes compared to find the worst.
    among: u64,
    /// Whether an interpreter forked it.
    pub(crate) forked: bool,
    /// See [`PhasesReport::workers`].
    workers: Workers,
    /// Start of the trace on that clock.
    origin_ns: u64,
    /// Whether the clock of the phases is its trace's.
    has_own_clock: bool,
    tree: &'a StackTree,
    /// The processes that had its id.
    states: Vec<&'a ProcessState>,
}

impl<'a> JudgedRun<'a> {
    /// The worst process. If any process has training steps: of the processes with at least half as many steps as the
    /// most (ranks wait for the slowest). Otherwise of the ranks, as their launcher waits for them; otherwise of those
    /// whose collections requests may wait for, if the loop of a service is held up; otherwise of all.
    /// `None` if no process collected or its observed time is unknown, and for free-threaded builds: there a
    /// collection stops the program for only a part of its time. `loops`, `waits`: of the processes.
    pub(crate) fn of(
        analysis: &'a Analysis,
        timelines: &'a [KeptTimeline],
        processes: &'a [ProcessReport],
        (loops, waits): (&[LoopReport], &[ProcessWaitReport]),
    ) -> Option<Self> {
        if processes.first().is_some_and(ProcessReport::is_free_threaded) {
            return None;
        }
        let timelines = || timelines.iter().filter(|kept| kept.gpu_part != Some(GpuPart::Kept));
        let by_id: BTreeMap<_, _> =
            timelines().map(|kept| ((kept.process_trace, kept.pid), kept)).collect();
        let timeline_of =
            |process: &ProcessReport| by_id.get(&(process.trace, process.pid)).copied();
        let mut states: BTreeMap<(usize, u32), Vec<&ProcessState>> = BTreeMap::new();
        for state in &analysis.processes {
            states.entry((state.trace, state.sums.pid)).or_default().push(state);
        }
        let first_forks = first_forks(&analysis.processes);
        let steps_of =
            |process: &ProcessReport| timeline_of(process).map_or(0, |kept| kept.steps.len());
        let most_steps = processes.iter().map(steps_of).max().unwrap_or(0);
        let enough = if most_steps < FEWEST_STEPS { 0 } else { most_steps.div_ceil(2) };
        let ranks = processes.iter().any(|process| process.rank.is_some());
        let runs = processes.iter().filter_map(|process| {
            let waits = enough == 0 && ranks && process.rank.is_none();
            if process.is_free_threaded() || waits || steps_of(process) < enough {
                return None;
            }
            let states = states.get(&(process.trace, process.pid)).cloned().unwrap_or_default();
            let begins = Begins {
                forks_ns: first_forks.get(&(process.trace, process.pid)).copied(),
                serves_ns: serves_ns(analysis, process, loops),
            };
            let run = Self::of_process(analysis, timeline_of(process)?, process, states, begins)?;
            Some((run.report_without_lines(), run))
        });
        let mut runs: Vec<(PhasesReport, Self)> = runs.collect();
        let mut workers: BTreeMap<_, Workers> = BTreeMap::new();
        for (report, run) in &runs {
            if let Some(worker) = worker_of(run.process) {
                workers.entry(worker).or_default().add(&report.training);
            }
        }
        for (report, run) in &mut runs {
            let alike = worker_of(run.process).and_then(|worker| workers.get(&worker));
            run.workers = alike.copied().unwrap_or_default();
            report.workers = run.workers;
        }
        let count = runs.len() as u64;
        let noticed =
            if enough == 0 && !ranks { noticed(loops, waits, &runs) } else { BTreeSet::new() };
        let weight = |report: &PhasesReport| {
            (noticed.contains(&(report.trace, report.pid)), verdict::weight(report))
        };
        let worst = runs.into_iter().max_by(|(a, _), (b, _)| weight(a).cmp(&weight(b)));
        let (_, worst) = worst?;
        // A process that an interpreter starts by exec has another command line, or its parent is unknown.
        let worker = worst.process;
        let is_child = worker.origin == Some(ProcessOrigin::Child);
        let forked = match worker.parent {
            Some(pid) if is_child => first_forks.contains_key(&(worker.trace, pid)),
            _ => false,
        };
        Some(Self { among: count, forked, ..worst })
    }

    /// One process; `states`: the processes that had its id; `None` if its observed time is unknown.
    pub(crate) fn of_process(
        analysis: &'a Analysis,
        kept: &'a KeptTimeline,
        process: &'a ProcessReport,
        states: Vec<&'a ProcessState>,
        begins: Begins,
    ) -> Option<Self> {
        let timeline: &ProcessTimeline = kept;
        let traces = &analysis.traces;
        let trace = traces.get(process.trace)?;
        // A merged timeline has the clock of the other trace.
        let origin_ns = traces.get(timeline.trace)?.started_ns();
        let has_own_clock = timeline.trace == timeline.process_trace;
        let span_ns = if has_own_clock {
            let start_ns = time::after(trace.started_ns(), process.since_start_ns);
            (start_ns, time::after(start_ns, process.observed_ns))
        } else {
            // An empty timeline has no phases.
            kept.activity().unwrap_or_default()
        };
        if span_ns.0 >= span_ns.1 {
            return None;
        }
        let shown = |pause: &PauseSpan| {
            let node = node(&states, pause)?;
            Some(if analysis.stacks.is_import(node) {
                At::Import
            } else {
                At::Elsewhere(analysis.stacks.own_line(node))
            })
        };
        let attached = matches!(process.origin, None | Some(ProcessOrigin::Attached));
        Some(Self {
            process,
            timeline,
            phases: RunPhases::of(timeline, span_ns, attached, begins, shown),
            among: 1,
            forked: false,
            workers: Workers::default(),
            origin_ns,
            has_own_clock,
            tree: &analysis.stacks,
            states,
        })
    }

    /// The lines that trigger the collections of a phase; `None` if no pause has a stack.
    fn lines(&self, judged: JudgedPhase) -> Option<LinesReport> {
        let phase = match judged {
            JudgedPhase::StartUp => Phase::StartUp,
            JudgedPhase::Training => Phase::Training,
        };
        let (mut by_node, mut without, mut all_ns) = (BTreeMap::new(), WithoutStack::default(), 0);
        let work = self.work(self.known_cpu());
        for (pause, cause, time_ns) in work {
            if self.phases.phase_of(&pause) != phase {
                continue;
            }
            add_to(&mut all_ns, time_ns);
            match node(&self.states, &pause) {
                None => without.add(pause.reason, time_ns),
                Some(node) => {
                    let sums: &mut StackSums = by_node.entry(node).or_default();
                    let full = pause.generation == 2;
                    let is_explicit = cause == GcReason::Manual;
                    let reason = if is_explicit { cause } else { pause.reason };
                    sums.add(pause.generation, reason, time_ns, full);
                }
            }
        }
        let mut ranking = StackRanking::new(self.tree, all_ns);
        ranking.add_without_stack(&without);
        for (node, sums) in &by_node {
            ranking.add_stack(*node, sums);
        }
        ranking.report(RankingLimits::PROCESS)
    }

    /// The CPU time of its pauses, as far as it is known.
    fn known_cpu(&self) -> KnownCpu {
        let mut known = KnownCpu::default();
        for pause in self.timeline.all_pauses() {
            add_to(&mut known.all_ns, pause.duration_ns());
            if pause.cpu_ns.is_some() {
                add_to(&mut known.known_ns, pause.duration_ns());
                add_to(&mut known.cpu_ns, pause.work_ns());
            }
        }
        known
    }

    /// Its pauses by start; why each ran, as far as the reasons and the thresholds show; and its CPU time.
    fn work(&self, known: KnownCpu) -> impl Iterator<Item = (PauseSpan, GcReason, u64)> {
        let mut calls = match (&self.process.interpreter, &self.process.settings) {
            (Some(interpreter), Some(settings))
                if interpreter.collector == CollectorKind::Generational =>
            {
                Some(ExplicitCalls::under(settings.thresholds))
            }
            _ => None,
        };
        self.timeline.all_pauses().map(move |pause| {
            let is_explicit = match calls.as_mut() {
                Some(calls) => calls.is_explicit(pause.generation, pause.reason),
                None => false,
            };
            let cause = match pause.reason {
                GcReason::Unknown if is_explicit => GcReason::Manual,
                GcReason::Unknown => GcReason::Automatic,
                known => known,
            };
            (pause, cause, known.of(&pause))
        })
    }

    /// A row with the share in CPU time, if it is known.
    fn on_cpu(&self, mut row: PhaseReport, phase: Phase) -> PhaseReport {
        let Some(cpu_ns) = row.paused_cpu_ns else { return row };
        // Readings have the clock of the trace that has the process.
        let span_ns = self.phases.span_of(phase);
        let mut waits = self.states.iter().filter(|_| self.has_own_clock);
        if let Some(wait) = waits.find_map(|state| state.waits.within(span_ns)) {
            // Threads that collect in turn may wait at the same time.
            let used_ns = cpu_ns.max(wait.cpu_ns);
            row.cpu_wait_ns = Some(wait.waited_ns.min(beyond(row.duration_ns, used_ns)));
            row.paused_ratio = ratio(row.collected_ns(), row.unhindered_ns());
        }
        row
    }

    /// The cost of its pauses in each phase.
    pub(crate) fn report(&self) -> PhasesReport {
        let report = self.report_without_lines();
        PhasesReport { lines: self.lines(report.judged), ..report }
    }

    /// Resident memory when its start-up ended; `None` without a reading until then, or
    /// a start-up.
    fn start_up_bytes(&self) -> Option<u64> {
        let readings = self.states.iter().flat_map(|state| state.sums.leaks.resident_samples());
        let until_ns = self.phases.training_ns.0;
        let is_known = self.has_own_clock && self.phases.mark != TrainingMark::WholeRun;
        let before = readings.filter(|(at_ns, _)| is_known && *at_ns <= until_ns);
        before.max_by_key(|(at_ns, _)| *at_ns).map(|(_, bytes)| bytes)
    }

    /// The same without its lines.
    pub(crate) fn report_without_lines(&self) -> PhasesReport {
        let known = self.known_cpu();
        let rows = self.phases.rows(self.work(known), known.is_enough(), self.origin_ns);
        let [start_up, training, exit] = rows;
        let mut report = PhasesReport {
            basis: match self.phases.mark {
                TrainingMark::WholeRun
                | TrainingMark::AfterImports
                | TrainingMark::PeriodicLaunches => Basis::Inferred,
                _ => Basis::Measured,
            },
            trace: self.process.trace,
            pid: self.process.pid,
            rank: self.process.rank,
            among: self.among,
            forked: self.forked,
            workers: self.workers,
            judged: JudgedPhase::Training,
            training_by: self.phases.mark,
            steps: self.phases.steps,
            start_up: self.on_cpu(start_up, Phase::StartUp),
            training: self.on_cpu(training, Phase::Training),
            exit: self.on_cpu(exit, Phase::Exit),
            start_up_bytes: self.start_up_bytes(),
            lines: None,
        };
        report.judged = verdict::judged_phase(&report);
        report
    }
}

/// Processes by trace and id: of each loop that is held up the own one, or the one for whose collections it waited
/// longer than for its own.
fn noticed(
    loops: &[LoopReport],
    waits: &[ProcessWaitReport],
    runs: &[(PhasesReport, JudgedRun<'_>)],
) -> BTreeSet<(usize, u32)> {
    let held_up = loops.iter().filter(|of| of.is_held_up());
    let noticed = held_up.map(|of| {
        let id = (of.trace, of.pid);
        let own = runs.iter().find(|(report, _)| (report.trace, report.pid) == id);
        let own_ns = own.map_or(0, |(report, _)| report.training.collected_ns());
        let longest = waits.iter().find(|wait| (wait.trace, wait.pid) == id);
        match longest {
            Some(wait) if wait.in_collections_ns > own_ns => (wait.trace, wait.for_pid),
            _ => id,
        }
    });
    noticed.collect()
}

/// When the loop of a service, or of a process that reads messages, first waited, on the clock of its trace.
fn serves_ns(analysis: &Analysis, process: &ProcessReport, loops: &[LoopReport]) -> Option<u64> {
    let id = (process.trace, process.pid);
    let own = || loops.iter().filter(|of| (of.trace, of.pid) == id && !of.takes_work());
    let of = own().find(|of| of.waits_for_many()).or_else(|| own().find(|of| of.main_thread))?;
    let trace = analysis.traces.get(process.trace)?;
    Some(time::after(trace.started_ns(), of.since_start_ns))
}

/// The length of all pauses of a process, the length of pauses with a known CPU time, and that CPU time.
#[derive(Clone, Copy, Default)]
struct KnownCpu {
    all_ns: u64,
    known_ns: u64,
    cpu_ns: u64,
}

impl KnownCpu {
    /// Whether it stands for the rest.
    fn is_enough(&self) -> bool {
        self.known_ns >= self.all_ns.div_ceil(KNOWN_PART)
    }

    /// The CPU time of a pause. If its own is unknown (a switch was missed, or it called functions of the program) it
    /// is as much of its length as of the others'.
    fn of(&self, pause: &PauseSpan) -> u64 {
        match pause.cpu_ns {
            None if self.is_enough() => scaled(pause.duration_ns(), self.cpu_ns, self.known_ns),
            _ => pause.work_ns(),
        }
    }
}

/// The process that forked it, by trace and id, and its command; `None` if it is no worker.
fn worker_of(process: &ProcessReport) -> Option<(usize, u32, &[String])> {
    if process.origin != Some(ProcessOrigin::Child) {
        return None;
    }
    Some((process.trace, process.parent?, process.command.as_slice()))
}

/// The stack of a pause of these processes, of one id; `None` without one.
fn node(states: &[&ProcessState], pause: &PauseSpan) -> Option<NodeId> {
    let frame = pause.stack?;
    states.iter().find_map(|state| state.stacks.node(frame.get()))
}

/// When each process, by trace and id, first forked a worker: a child that runs the same command.
fn first_forks<'a>(processes: &'a [ProcessState]) -> BTreeMap<(usize, u32), u64> {
    let described = |state: &'a ProcessState| Some((state.trace, state.sums.described.as_ref()?));
    let described: Vec<(usize, &Process)> = processes.iter().filter_map(described).collect();
    let by_id: BTreeMap<(usize, u32), &Process> =
        described.iter().map(|(trace, process)| ((*trace, process.pid), *process)).collect();
    let mut first: BTreeMap<(usize, u32), u64> = BTreeMap::new();
    for (trace, worker) in &described {
        let parent = worker.parent.map(|pid| (*trace, pid));
        if worker.origin == ProcessOrigin::Child
            && let Some(parent) = parent
            && matches!(by_id.get(&parent), Some(parent) if parent.command == worker.command)
        {
            let first_ns = first.entry(parent).or_insert(worker.since_ns);
            *first_ns = worker.since_ns.min(*first_ns);
        }
    }
    first
}
