//! Whole runs with one setting each, in ABBA order.

use super::progress::TuneProgress;
use super::{Tuner, whole_minutes};
use crate::apply::StartedCommand;
use crate::launch::CommandEnd;
use crate::print;
use crate::record::INTERRUPTED;
use gctrace_analysis::tune::{FEWEST_PAIRS, Measured, MeasuredRuns, TuneReport, TuneUnit, compare};
use gctrace_settings::{AppliedProcess, ApplyRequest, CollectionSums, GcSetting, SettledSteps};
use nix::sys::resource::{UsageWho, getrusage};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// One run with one setting.
struct TunedRun {
    /// Of the run, from the start of the command to its end.
    whole: Measured,
    /// Of its steps after the warm-up; `None`: it has too few.
    stepwise: Option<Measured>,
    /// The ranks of a job, or the process that made the most steps.
    stepping: Vec<AppliedProcess>,
    /// Processes with other steps.
    others: u64,
}

/// Steps of a process that are left out, and fewest that are enough.
const WARM_UP: u64 = 50;

/// The first group must leave time for this many.
const NEEDED: u32 = FEWEST_PAIRS as u32;

/// Measures runs until every interval is narrow or the budget is spent. A group that has begun is
/// completed.
pub(super) fn measure(tuner: &Tuner<'_>) -> anyhow::Result<u8> {
    let mut progress = TuneProgress::new(tuner);
    let mut groups: Vec<Vec<TunedRun>> = Vec::new();
    let mut found = None;
    let began = Instant::now();
    while !tuner.is_over_budget() {
        match group(tuner, groups.len())? {
            RunGroup::Done(group) => groups.push(group),
            RunGroup::Failed(code) => {
                progress.finish();
                print::message(format!(
                    "measuring has ended: the command failed, with exit code {code}"
                ));
                if let Some(report) = found {
                    tuner.print(report);
                }
                return Ok(code);
            }
        }
        if groups.len() == 1 && !is_enough(tuner, began.elapsed()) {
            progress.finish();
            print::message(too_long(began.elapsed()));
            break;
        }
        let report = report(tuner, &groups);
        let is_done = report.is_known(tuner.config.precision);
        let runs = (groups.len() * tuner.config.settings.len()) as u64;
        progress.update(tuner, runs, "run", Some(&report));
        found = Some(report);
        if is_done {
            break;
        }
    }
    progress.finish();
    let report = found.unwrap_or_else(|| report(tuner, &groups));
    tuner.print(report);
    Ok(0)
}

/// Whether the budget lasts for enough groups as long as the first.
fn is_enough(tuner: &Tuner<'_>, group: Duration) -> bool {
    let rest = tuner.config.budget.saturating_sub(tuner.started.elapsed());
    group.saturating_mul(NEEDED - 1) <= rest
}

fn too_long(group: Duration) -> String {
    let needed = whole_minutes(group.saturating_mul(NEEDED).mul_f64(1.2));
    format!(
        "a verdict needs {NEEDED} runs with each setting, and one of each took {} s: \
         gctrace tune --budget {needed}",
        group.as_secs_f64().round()
    )
}

enum RunGroup {
    /// In the order of the settings.
    Done(Vec<TunedRun>),
    /// The exit code of the command.
    Failed(u8),
}

/// One run with each setting: forwards, then backwards, so that what changes steadily cancels out.
fn group(tuner: &Tuner<'_>, number: usize) -> anyhow::Result<RunGroup> {
    let settings = &tuner.config.settings;
    let mut order: Vec<usize> = (0..settings.len()).collect();
    if number % 2 == 1 {
        order.reverse();
    }
    let mut runs = Vec::new();
    for at in order {
        let Some(setting) = settings.get(at) else {
            continue;
        };
        match run(tuner, setting)? {
            Ok(run) => runs.push((at, run)),
            Err(code) => return Ok(RunGroup::Failed(code)),
        }
    }
    runs.sort_by_key(|(at, _)| *at);
    Ok(RunGroup::Done(runs.into_iter().map(|(_, run)| run).collect()))
}

/// Runs the command once; `Err`: its exit code, not 0.
fn run(tuner: &Tuner<'_>, setting: &GcSetting) -> anyhow::Result<Result<TunedRun, u8>> {
    let config = tuner.config;
    let mut command = StartedCommand::start(
        &config.command,
        &tuner.invoker,
        config.as_root,
        config.prints_to_stdout(),
        &ApplyRequest::of(setting.clone()),
        config.step_function(),
    )?;
    let (began, cpu) = (Instant::now(), children_cpu()?);
    let ended = command.supervisor.wait_for_end()?;
    let wall = began.elapsed();
    let code = ended.map_or(INTERRUPTED, CommandEnd::exit_code);
    if code != 0 {
        return Ok(Err(code));
    }
    let processes = command.session.processes().processes;
    let all = processes.iter().filter(|process| process.steps > 0).count() as u64;
    let stepping = stepping(&processes);
    Ok(Ok(TunedRun {
        whole: whole(&processes, wall, children_cpu()?.saturating_sub(cpu)),
        stepwise: stepwise(&stepping, peak_rss(&processes)),
        others: all.saturating_sub(stepping.len() as u64),
        stepping,
    }))
}

/// Of each rank the process with the most steps; without ranks the one of all.
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

/// The means of the steps of a job: as long as those of its slowest rank, for which the others wait; the rest
/// is the ranks' mean.
#[expect(clippy::cast_precision_loss, reason = "counts and times are below 2^52")]
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
        let of = |one: &SettledSteps| one.collections.get(generation).map_or(0, |count| *count);
        settled.iter().map(|one| of(one) as f64).sum::<f64>() / settled.len() as f64
    });
    Some(Measured {
        wall_ns: each(&|one| Some(one.wall_ns))?.into_iter().reduce(f64::max)?,
        cpu_ns: each(&|one| one.cpu_ns).map(mean),
        pause_ns: each(&|one| Some(one.pause_ns)).map(mean),
        collections,
        peak_rss_bytes,
    })
}

/// CPU time of the commands that have ended, and of what they waited for.
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
    let sum = peaks?.into_iter().fold(0, u64::saturating_add);
    (sum > 0).then_some(sum)
}

/// The collections of a process from its start to its end.
fn all_sums(process: &AppliedProcess) -> impl Iterator<Item = &CollectionSums> {
    let always = [&process.before, &process.freezing];
    let others = process.startup.iter().chain(&process.after);
    always.into_iter().chain(others).chain(&process.later)
}

#[expect(clippy::cast_precision_loss, reason = "counts and times are below 2^52")]
fn whole(processes: &[AppliedProcess], wall: Duration, cpu: Duration) -> Measured {
    let sums: Vec<&CollectionSums> = processes.iter().flat_map(all_sums).collect();
    let pauses = sums.iter().map(|sums| sums.all_pause_ns() as f64);
    Measured {
        wall_ns: wall.as_secs_f64() * 1e9,
        cpu_ns: Some(cpu.as_secs_f64() * 1e9),
        pause_ns: (!processes.is_empty()).then(|| pauses.sum()),
        collections: [0, 1, 2].map(|generation: usize| {
            let of = |sums: &&CollectionSums| sums.collections.get(generation).copied();
            sums.iter().filter_map(of).map(|count| count as f64).sum()
        }),
        peak_rss_bytes: peak_rss(processes),
    }
}

/// By steps if every run has them.
fn report(tuner: &Tuner<'_>, groups: &[Vec<TunedRun>]) -> TuneReport {
    let by = |measured: &dyn Fn(&TunedRun) -> Option<Measured>| -> Option<Vec<Vec<Measured>>> {
        let group = |group: &Vec<TunedRun>| group.iter().map(measured).collect();
        groups.iter().map(group).collect()
    };
    let stepwise = by(&|run| run.stepwise).filter(|groups| !groups.is_empty());
    let unit = match stepwise {
        Some(_) => TuneUnit::Step,
        None => TuneUnit::Run,
    };
    let runs = || groups.iter().flatten();
    let measured = MeasuredRuns {
        unit,
        groups: stepwise.or_else(|| by(&|run| Some(run.whole))).unwrap_or_default(),
    };
    let stepping = || runs().flat_map(|run| &run.stepping);
    let steps = runs().filter_map(|run| run.stepping.iter().map(|one| one.steps).min());
    TuneReport {
        steps: steps.sum(),
        warm_up_steps: if unit == TuneUnit::Step { WARM_UP } else { 0 },
        ranks: runs().map(|run| run.stepping.len() as u64).max().unwrap_or(0).max(1),
        other_processes: runs().map(|run| run.others).max().unwrap_or(0),
        agent_ns: stepping().filter_map(|one| one.agent_ns.checked_div(one.steps)).max(),
        ..compare(&tuner.names(), &measured, tuner.config.measure())
    }
}
