//! Whole runs with one setting each, by turns.

use super::Tuner;
use super::candidates::{ProgramRun, all_sums, candidates};
use crate::apply::StartedCommand;
use crate::args::Verbosity;
use crate::print;
use crate::record::code_of;
use crate::text::OrDash as _;
use crate::units::{bytes, count, counted, duration, percent};
use gctrace_analysis::tune::{
    FEWEST_RUNS, MOST_RUNS, Measured, MeasuredRuns, TuneOutcome, TuneReport, TuneUnit, compare,
};
use gctrace_settings::{AppliedProcess, ApplyRequest, CollectionSums, GcSetting, SettledSteps};
use gctrace_units::{beyond, if_known, met, sum, u32_or_most, u64_or_most};
use nix::sys::resource::{UsageWho, getrusage};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// One run with one setting.
pub(super) struct TunedRun {
    /// Of the run, from the start of the command to its end.
    whole: Measured,
    /// Of its steps after the warm-up; `None`: it has too few.
    stepwise: Option<Measured>,
    /// The ranks of a job, or the process that made the most steps.
    stepping: Vec<AppliedProcess>,
    /// Processes with other steps.
    others: u64,
    program: ProgramRun,
}

/// Steps of a process to leave out, and fewest that are enough.
const WARM_UP: u64 = 50;
/// A collector that takes less than this share of the time is left alone.
const WORTH: f64 = 0.02;
/// Settings to try before any is run again.
const AT_ONCE: usize = 2;
/// Time between two looks at the memory of a run, in ms.
const LOOK_EVERY_MS: u16 = 1_000;

/// Runs of several settings.
struct ComparedRuns {
    settings: Vec<GcSetting>,
    of_settings: Vec<Vec<TunedRun>>,
    looks: u32,
    /// Whether steps are compared where every run has them.
    by_steps: bool,
}

/// Compares the settings that were named with the first of them, until each is known or the budget is spent.
pub(super) fn compare_named(tuner: &Tuner<'_>) -> anyhow::Result<u8> {
    let mut seen = ComparedRuns::new(tuner.config.settings.clone(), true);
    let mut report = seen.report(tuner);
    for round in 0_u32.. {
        let mut order: Vec<usize> = (0..seen.settings.len()).collect();
        if round % 2 == 1 {
            // Steady changes cancel out.
            order.reverse();
        }
        // A setting that is known by now is not run again.
        order.retain(|at| *at == 0 || !report.knows(*at, tuner.config.precision));
        for at in order {
            if tuner.is_over_budget() {
                break;
            }
            if let Some(code) = seen.run(tuner, at, None)? {
                return Ok(failed(tuner, report, code));
            }
        }
        if seen.is_ready() {
            seen.looks += 1;
        }
        report = seen.report(tuner);
        if tuner.is_over_budget() || report.is_known(tuner.config.precision) {
            break;
        }
    }
    tuner.print(report);
    Ok(0)
}

/// Seeks the best setting of a program among settings that may help it, until one is better beyond noise, or the budget
/// is spent. `first`: a run with the program's own settings, if there was one.
pub(super) fn seek(tuner: &Tuner<'_>, first: Option<TunedRun>) -> anyhow::Result<u8> {
    let mut seen = ComparedRuns::new(vec![GcSetting::default()], false);
    match first {
        Some(first) => seen.add(tuner, 0, first),
        None => {
            if let Some(code) = seen.run(tuner, 0, None)? {
                return Ok(failed(tuner, seen.report(tuner), code));
            }
        }
    }
    let Some(runs) = seen.of_settings.first() else { return Ok(0) };
    let Some(first) = runs.first() else { return Ok(0) };
    let (program, wall_ns) = (first.program.clone(), first.whole.wall_ns);
    let costs = (first.whole.collecting_ns, first.whole.cpu_ns);
    let is_little = matches!(costs, (Some(ns), Some(all)) if ns < WORTH * all);
    let mut waiting = candidates(&program).into_iter();
    if is_little || waiting.len() == 0 {
        print::message(match &program.asked_by {
            Some(by) if !is_little => format!(
                "no setting changes what the program itself collects: measuring has ended. Most of it is asked for \
                 at {by}"
            ),
            _ => format!("collections take less than {}: measuring has ended", percent(WORTH)),
        });
        tuner.print(TuneReport { outcome: TuneOutcome::NoDifference, ..seen.report(tuner) });
        return Ok(0);
    }
    seen.try_these(waiting.by_ref().take(AT_ONCE));
    announce(tuner, &seen, Duration::from_secs_f64(wall_ns / 1e9));
    let mut last = 0;
    let report = loop {
        seen.looks += u32::from(seen.is_ready());
        let report = seen.report(tuner);
        let is_done = seen.is_ready() && report.is_sought(tuner.config.precision);
        let mut next = None;
        if seen.is_ready() && report.outcome != TuneOutcome::Gain && leaves_much(&report) {
            next = waiting.next();
        }
        if tuner.is_over_budget() || seen.has_enough(tuner) || is_done && next.is_none() {
            break report;
        }
        seen.try_these(next);
        let Some(at) = seen.report(tuner).next_sought(last) else { break report };
        if let Some(code) = seen.run(tuner, at, program.limit_bytes())? {
            return Ok(failed(tuner, report, code));
        }
        last = at;
    };
    tuner.print(report);
    Ok(0)
}

/// Whether the best so far leaves so much of the collector's time that another may be better.
fn leaves_much(report: &TuneReport) -> bool {
    let own_ns = report.settings.first().map(|own| own.pause_ns);
    match (own_ns, report.guess().map(|best| best.pause_ns)) {
        (Some(Some(own_ns)), Some(Some(best_ns))) => best_ns > own_ns / 10,
        _ => true,
    }
}

/// Says how long measuring will take.
fn announce(tuner: &Tuner<'_>, seen: &ComparedRuns, wall: Duration) {
    if tuner.verbosity == Verbosity::Quiet {
        return;
    }
    // The first again, for its noise.
    let runs = seen.settings.len() + FEWEST_RUNS - 1;
    let names: Vec<String> = seen.settings.iter().skip(1).map(GcSetting::to_string).collect();
    let rest = wall * u32_or_most(runs - 1);
    let most = match tuner.config.precision {
        Some(_) => String::new(),
        None => format!(", {MOST_RUNS} at most"),
    };
    print::message(format!(
        "measuring takes about {} of {}{most}, with this one: {} more. They try {}",
        counted(runs as u64, "run"),
        time(wall),
        time(rest),
        names.join(" | ")
    ));
    let left = tuner.config.budget.saturating_sub(tuner.started.elapsed());
    if rest > left {
        let minutes = (wall.as_secs() + rest.as_secs()).div_ceil(60) + 1;
        print::message(format!(
            "--budget has {} left for them: gctrace tune --budget {minutes}m",
            time(left)
        ));
    }
}

/// `1 min 25 s`.
fn time(time: Duration) -> String {
    match time.as_secs() {
        ..60 => duration(u64_or_most(time.as_nanos())),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

/// The command has failed, with this exit code.
fn failed(tuner: &Tuner<'_>, report: TuneReport, code: u8) -> u8 {
    print::message(format!("measuring has ended: the command failed, with exit code {code}"));
    if report.settings.iter().any(|setting| setting.pairs > 0) {
        tuner.print(report);
    }
    code
}

impl ComparedRuns {
    fn new(settings: Vec<GcSetting>, by_steps: bool) -> Self {
        let of_settings = settings.iter().map(|_| Vec::new()).collect();
        Self { settings, of_settings, looks: 0, by_steps }
    }

    fn try_these(&mut self, settings: impl IntoIterator<Item = GcSetting>) {
        for setting in settings {
            self.settings.push(setting);
            self.of_settings.push(Vec::new());
        }
    }

    /// Whether more runs would make a better guess, but hardly another one.
    fn has_enough(&self, tuner: &Tuner<'_>) -> bool {
        let runs: usize = self.of_settings.iter().map(Vec::len).sum();
        tuner.config.precision.is_none() && runs >= MOST_RUNS
    }

    /// Whether differences can be judged.
    fn is_ready(&self) -> bool {
        let first = self.of_settings.first();
        matches!(first, Some(runs) if runs.len() >= FEWEST_RUNS)
            && self.of_settings.len() > 1
            && self.of_settings.iter().all(|runs| !runs.is_empty())
    }

    /// Runs the command once; `Some`: its exit code, not 0. With more memory than `limit_bytes` the setting is taken
    /// back, and left out from then on.
    fn run(
        &mut self,
        tuner: &Tuner<'_>,
        at: usize,
        limit_bytes: Option<u64>,
    ) -> anyhow::Result<Option<u8>> {
        let Some(setting) = self.settings.get(at) else { return Ok(None) };
        let limit_bytes = if at > 0 { limit_bytes } else { None };
        match run(tuner, setting, limit_bytes)? {
            RunEnd::Failed(code) => return Ok(Some(code)),
            RunEnd::Run(run) => self.add(tuner, at, *run),
            RunEnd::TookMemory(rss_bytes) => {
                print::message(format!(
                    "{setting}: {} are resident, {} are allowed: left out",
                    bytes(rss_bytes),
                    bytes(limit_bytes.unwrap_or(0))
                ));
                self.settings.remove(at);
                self.of_settings.remove(at);
            }
        }
        Ok(None)
    }

    fn add(&mut self, tuner: &Tuner<'_>, at: usize, run: TunedRun) {
        let (Some(setting), Some(runs)) = (self.settings.get(at), self.of_settings.get_mut(at))
        else {
            return;
        };
        if tuner.verbosity > Verbosity::Quiet {
            print::message(told(setting, &run));
        }
        runs.push(run);
    }

    /// By steps if every run has them, and they are wanted.
    fn report(&self, tuner: &Tuner<'_>) -> TuneReport {
        let by = |measured: &dyn Fn(&TunedRun) -> Option<Measured>| -> Option<Vec<Vec<Measured>>> {
            let column = |runs: &Vec<TunedRun>| runs.iter().map(measured).collect();
            self.of_settings.iter().map(column).collect()
        };
        let runs = || self.of_settings.iter().flatten();
        let is_stepwise = self.by_steps && runs().next().is_some();
        let stepwise = if is_stepwise { by(&|run| run.stepwise) } else { None };
        let unit = match stepwise {
            Some(_) => TuneUnit::Step,
            None => TuneUnit::Run,
        };
        let measured = MeasuredRuns {
            unit,
            of_settings: stepwise.or_else(|| by(&|run| Some(run.whole))).unwrap_or_default(),
            looks: self.looks,
        };
        let names: Vec<String> = self.settings.iter().map(GcSetting::to_string).collect();
        let stepping = || runs().flat_map(|run| &run.stepping);
        let steps = runs().filter_map(|run| run.stepping.iter().map(|one| one.steps).min());
        TuneReport {
            steps: steps.sum(),
            warm_up_steps: if unit == TuneUnit::Step { WARM_UP } else { 0 },
            ranks: runs().map(|run| run.stepping.len() as u64).max().unwrap_or(0).max(1),
            other_processes: runs().map(|run| run.others).max().unwrap_or(0),
            agent_ns: stepping().filter_map(|one| one.agent_ns.checked_div(one.steps)).max(),
            ..compare(&names, &measured, tuner.config.measure)
        }
    }
}

/// A run in a line.
fn told(setting: &GcSetting, run: &TunedRun) -> String {
    let Measured { wall_ns, cpu_ns, collecting_ns, .. } = run.whole;
    let name = match setting.items() {
        [] => "the program's own settings".to_owned(),
        _ => setting.to_string(),
    };
    let [wall, cpu] = [Some(wall_ns), cpu_ns].map(|ns| ns.map(|ns| duration(ns as u64)));
    let mut text = format!("{name}: {}", if_known(wall));
    if let (Some(cpu), Some(all_ns), Some(ns)) = (cpu, cpu_ns, collecting_ns) {
        let share = if all_ns > 0.0 { ns / all_ns } else { 0.0 };
        text += &format!(
            ", {cpu} of CPU time: {} of it in collections that freed {} objects",
            percent(share),
            run.program.garbage.map(count).or_dash()
        );
    }
    text
}

/// The end of a run.
enum RunEnd {
    Run(Box<TunedRun>),
    /// The exit code of the command.
    Failed(u8),
    /// So many bytes were resident.
    TookMemory(u64),
}

fn run(tuner: &Tuner<'_>, setting: &GcSetting, limit_bytes: Option<u64>) -> anyhow::Result<RunEnd> {
    let config = tuner.config;
    let mut command = StartedCommand::start(
        &config.start.command,
        &tuner.invoker,
        config.start.as_root,
        config.report.is_on_stdout(),
        &ApplyRequest::of(setting.clone()),
        config.start.step_function(),
    )?;
    let clock = RunClock::start()?;
    let mut too_much = None;
    let ended = loop {
        if let Some(ended) = command.wait_a_little(LOOK_EVERY_MS)? {
            break ended;
        }
        let (true, Some(limit)) = (too_much.is_none(), limit_bytes) else { continue };
        let processes = command.session.processes().processes;
        let rss = processes.iter().filter(|process| !process.ended);
        let rss = sum(rss.filter_map(|process| process.rss_bytes_at_end));
        if rss > limit {
            too_much = Some(rss);
            command.session.take_back()?;
        }
    };
    let code = code_of(ended);
    if code != 0 {
        return Ok(RunEnd::Failed(code));
    }
    if let Some(rss_bytes) = too_much {
        return Ok(RunEnd::TookMemory(rss_bytes));
    }
    let processes = command.session.processes().processes;
    Ok(RunEnd::Run(Box::new(TunedRun::of(&processes, &clock)?)))
}

/// When a run began, and the CPU time of the runs before.
pub(super) struct RunClock {
    began: Instant,
    cpu: Duration,
}

impl RunClock {
    pub(super) fn start() -> anyhow::Result<Self> {
        Ok(Self { began: Instant::now(), cpu: children_cpu()? })
    }
}

impl TunedRun {
    /// The run that has just ended.
    pub(super) fn of(processes: &[AppliedProcess], clock: &RunClock) -> anyhow::Result<Self> {
        let (wall, cpu) = (clock.began.elapsed(), children_cpu()?.saturating_sub(clock.cpu));
        let whole = whole(processes, wall, cpu);
        let all = processes.iter().filter(|process| process.steps > 0).count() as u64;
        let stepping = stepping(processes);
        Ok(Self {
            whole,
            stepwise: stepwise(&stepping, peak_rss(processes)),
            others: beyond(all, stepping.len() as u64),
            stepping,
            program: ProgramRun::of(processes, whole.cpu_ns, whole.peak_rss_bytes),
        })
    }
}

/// For each rank the process with the most steps; without ranks only one, among all.
fn stepping(processes: &[AppliedProcess]) -> Vec<AppliedProcess> {
    let mut stepping: Vec<&AppliedProcess> =
        processes.iter().filter(|process| process.steps > 0).collect();
    stepping.sort_by_key(|process| std::cmp::Reverse(process.steps));
    let mut by_rank = BTreeMap::new();
    for process in stepping {
        by_rank.entry(process.rank).or_insert(process);
    }
    if by_rank.len() > 1 {
        by_rank.remove(&None);
    }
    by_rank.into_values().cloned().collect()
}

/// The means of the steps of a job: as long as the steps of its slowest rank, since the others wait for it; the rest is
/// the ranks' mean.
fn stepwise(ranks: &[AppliedProcess], peak_rss_bytes: Option<u64>) -> Option<Measured> {
    let settled = |rank: &AppliedProcess| {
        rank.settled.clone().filter(|settled: &SettledSteps| settled.steps >= WARM_UP)
    };
    let settled: Vec<SettledSteps> = ranks.iter().map(settled).collect::<Option<_>>()?;
    let each = |of: &dyn Fn(&SettledSteps) -> Option<u64>| -> Option<Vec<f64>> {
        settled.iter().map(|one| Some(of(one)? as f64 / one.steps as f64)).collect()
    };
    let mean = |all: Vec<f64>| all.iter().sum::<f64>() / all.len() as f64;
    let collections = [0, 1, 2].map(|generation: usize| {
        let of = |one: &SettledSteps| met(one.collections.get(generation));
        settled.iter().map(|one| of(one) as f64).sum::<f64>() / settled.len() as f64
    });
    Some(Measured {
        wall_ns: each(&|one| Some(one.wall_ns))?.into_iter().reduce(f64::max)?,
        cpu_ns: each(&|one| one.cpu_ns).map(mean),
        pause_ns: each(&|one| Some(one.pause_ns)).map(mean),
        collecting_ns: each(&|one| Some(one.collecting_ns)).map(mean),
        collections,
        peak_rss_bytes,
    })
}

/// CPU time of the commands that have ended, and of the processes they waited for.
fn children_cpu() -> anyhow::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let time = |value: nix::sys::time::TimeVal| {
        let seconds = u64::try_from(value.tv_sec()).unwrap_or(0);
        let micros = u64::try_from(value.tv_usec()).unwrap_or(0);
        Duration::from_secs(seconds) + Duration::from_micros(micros)
    };
    Ok(time(usage.user_time()) + time(usage.system_time()))
}

fn peak_rss(processes: &[AppliedProcess]) -> Option<u64> {
    let peaks: Option<Vec<u64>> = processes.iter().map(|process| process.peak_rss_bytes).collect();
    let sum = sum(peaks?);
    if sum > 0 { Some(sum) } else { None }
}

/// CPU time of all processes, except for gctrace's own code in them: it works most where collections are many.
fn whole(processes: &[AppliedProcess], wall: Duration, cpu: Duration) -> Measured {
    let sums: Vec<&CollectionSums> = processes.iter().flat_map(all_sums).collect();
    let of = |part: fn(&CollectionSums) -> u64| -> Option<f64> {
        let all = sums.iter().map(|sums| part(sums) as f64).sum();
        if processes.is_empty() { None } else { Some(all) }
    };
    let agent_ns: f64 = processes.iter().map(|process| process.agent_ns as f64).sum();
    Measured {
        wall_ns: wall.as_secs_f64() * 1e9,
        cpu_ns: Some((cpu.as_secs_f64() * 1e9 - agent_ns).max(0.0)),
        pause_ns: of(CollectionSums::all_pause_ns),
        collecting_ns: of(|sums| sums.cpu_ns),
        collections: [0, 1, 2].map(|generation: usize| {
            let of = |sums: &&CollectionSums| sums.collections.get(generation).copied();
            sums.iter().filter_map(of).map(|count| count as f64).sum()
        }),
        peak_rss_bytes: peak_rss(processes),
    }
}
