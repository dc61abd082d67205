//! What a program executes and waits for, by samples and times off the CPU.

use crate::paths::{common_directory, place};
use crate::report::{
    CpuFile, CpuLine, CpuReport, Location, MainThreadReport, MeanwhileReport, OffCpuLine,
    PhasesReport, Report,
};
use crate::time::{add_to, beyond, sum, times};
use crate::turns::LEAST_TURNS;
use crate::units::{counted, duration, percent};
use gctrace_event::OffCpuReason;
use std::cmp::Reverse;
use std::fmt;

/// With fewer samples, shares are not stated: at 100 the 95 % interval of a half is 40 to 60 %.
const ENOUGH: u64 = 100;
/// A shorter process has no time for that many.
pub(crate) const LONG_NS: u64 = 1_000_000_000;
/// Lines named.
const NAMED: usize = 3;
/// From this share on a line, a file or collections are worth a word.
const WORTH: f64 = 0.05;

/// Activity of the process that the verdict names. If it names none: training's process, or the process that waits
/// for workers of its own, or the process with the most CPU time: `Main thread, 60.0 s: 71.0 % on a CPU (52.0 % at
/// train.py:41 in step), 18.0 % waiting for data, ...`; for recordings without times off the CPU `CPU time, 12.3 s by
/// samples, ...`; `None` without samples, or with too few.
pub fn samples_in_short(report: &Report) -> Option<String> {
    let of = shown_process(report)?;
    // Short-lived helpers are no reason to name it.
    let is_much = |cpu: &&CpuReport| times(cpu.samples, 20) >= of.samples;
    let several = report.cpu.iter().filter(is_much).count() > 1;
    let process = if several { format!(" of process {}", of.pid) } else { String::new() };
    match &of.main_thread {
        Some(main) if main.interval_ns >= LONG_NS => {
            Some(main_thread(of, main, &process, mean_step(report)))
        }
        _ if of.samples >= ENOUGH => Some(cpu_by_line(of, &process)),
        _ => None,
    }
}

/// `No loop found: the main thread spends 98.1 % of its time waiting for a pipe or socket at serve.py:11 in ask (8 waits, a loop takes 20).`
/// `None` with a loop, with training steps, and where it is unknown or nothing waits.
pub fn no_loop_in_short(report: &Report) -> Option<String> {
    let has_steps = report.phases.as_ref().is_some_and(|phases| phases.steps.is_some());
    if report.runs > 1 || has_steps || report.loops.iter().any(|of| !of.is_in_background()) {
        return None;
    }
    let cpu = shown_process(report)?;
    let main = cpu.main_thread.as_ref()?;
    let wait = main.no_loop.as_ref()?;
    Some(format!(
        "No loop found: the main thread spends {} of its time {}{} ({}).",
        percent(wait.time_ns as f64 / main.interval_ns.max(1) as f64),
        waiting(wait.reason, wait.for_data),
        ShortPlaces::of(cpu).at(wait.line.as_ref()),
        if wait.times < LEAST_TURNS {
            format!("{}, a loop takes {LEAST_TURNS}", counted(wait.times, "wait"))
        } else {
            counted(wait.times, "wait")
        },
    ))
}

/// What a main thread does with its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThreadUse {
    /// On a CPU, outside of collections.
    Running,
    /// In collections, on a CPU or off it.
    Collecting,
    /// Off the CPU for a millisecond or longer, for this reason.
    Waiting(String),
    /// Off the CPU for less.
    Rest,
}

impl fmt::Display for ThreadUse {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Running => "on a CPU",
            Self::Collecting => "in collections",
            Self::Waiting(reason) => reason,
            Self::Rest => "off it for less than 1 ms at a time",
        })
    }
}

/// What the main thread of that process did in all its time, in ns, the longest first but for the rest;
/// `None` if no times off the CPU were recorded.
pub fn main_thread_times(report: &Report) -> Option<(u64, Vec<(ThreadUse, u64)>)> {
    let cpu = shown_process(report)?;
    let main = cpu.main_thread.as_ref()?;
    if main.interval_ns < LONG_NS {
        return None;
    }
    let ns = |samples: u64| times(samples, 1_000_000_000) / cpu.hertz.max(1);
    let collecting_ns = sum([ns(main.samples_in_pauses), main.off_cpu_in_pauses_ns]);
    let running_ns = ns(beyond(main.samples, main.samples_in_pauses));
    let waits = waits_of(&main.off_cpu).into_iter();
    let waits =
        waits.map(|wait| (ThreadUse::Waiting(waiting(wait.reason, wait.for_data)), wait.time_ns));
    let mut times: Vec<(ThreadUse, u64)> = waits.collect();
    // Beyond the lines that are listed.
    let listed: u64 = times.iter().map(|(_, ns)| *ns).sum();
    times.push((ThreadUse::Waiting("other waits".to_owned()), beyond(main.off_cpu_ns, listed)));
    times.push((ThreadUse::Collecting, collecting_ns));
    times.push((ThreadUse::Running, running_ns));
    times.sort_by_key(|(_, ns)| Reverse(*ns));
    let all: u64 = times.iter().map(|(_, ns)| *ns).sum();
    let rest_ns = beyond(main.interval_ns, all);
    times.push((ThreadUse::Rest, rest_ns));
    Some((main.interval_ns.max(all), times))
}

/// The process that the verdict names, if it names one.
pub(crate) fn shown_process(report: &Report) -> Option<&CpuReport> {
    if report.totals.processes > 1
        && let Some(judged) = report.phases.as_ref()
    {
        return report.cpu.iter().find(|cpu| (cpu.trace, cpu.pid) == (judged.trace, judged.pid));
    }
    let mut all = report.cpu.iter().filter_map(|cpu| Some((cpu, cpu.main_thread.as_ref()?)));
    let trains = all.clone().find(|(_, main)| main.training);
    let shown = match trains {
        Some(trains) => Some(trains),
        None => all.find(|(_, main)| main.workers.is_some()),
    };
    if let Some((cpu, _)) = shown { Some(cpu) } else { report.cpu.first() }
}

fn cpu_by_line(cpu: &CpuReport, process: &str) -> String {
    let share = |samples: u64| samples as f64 / cpu.samples as f64;
    let parts = lines_of(&cpu.lines, share);
    let file = cpu.files.first().filter(|file| share(file.samples) >= WORTH);
    let file = file.map(|of| format!("{} of all in {}", percent(share(of.samples)), file_name(of)));
    let collections = format!("{} in collections", percent(share(cpu.in_pauses)));
    let parts: Vec<String> = parts.into_iter().chain(file).chain([collections]).collect();
    let (time, busy) = (cpu_time(cpu, cpu.samples), percent(busy_share(cpu)));
    let parts = parts.join(", ");
    format!("CPU time{process}, {time} by samples, busiest thread {busy} busy: {parts}.")
}

/// `52.0 % at train.py:41 in step`, of the lines that are worth a word.
fn lines_of(lines: &[CpuLine], share: impl Fn(u64) -> f64) -> Vec<String> {
    let directory = common_directory(lines.iter().filter_map(|of| of.line.as_ref()));
    let worth = lines.iter().filter(|of| share(of.samples) >= WORTH).take(NAMED);
    let named = worth.map(|of| {
        let line = line(of).replacen(directory, "", 1);
        format!("{} {line}", percent(share(of.samples)))
    });
    named.collect()
}

/// Time off the CPU for one reason, and the line with most of it.
struct WaitOf<'a> {
    reason: OffCpuReason,
    for_data: bool,
    time_ns: u64,
    longest: &'a OffCpuLine,
}

/// The times by reason, the longest first.
fn waits_of(lines: &[OffCpuLine]) -> Vec<WaitOf<'_>> {
    let mut waits: Vec<WaitOf<'_>> = Vec::new();
    for line in lines {
        let same =
            |wait: &&mut WaitOf<'_>| (wait.reason, wait.for_data) == (line.reason, line.for_data);
        // For data, the awaited object does not matter.
        let same = |wait: &&mut WaitOf<'_>| same(wait) || wait.for_data && line.for_data;
        match waits.iter_mut().find(same) {
            Some(wait) => add_to(&mut wait.time_ns, line.time_ns),
            None => waits.push(WaitOf {
                reason: line.reason,
                for_data: line.for_data,
                time_ns: line.time_ns,
                longest: line,
            }),
        }
    }
    waits.sort_by_key(|wait| Reverse(wait.time_ns));
    waits
}

/// What a main thread off the CPU does: `waiting for data`, `sleeping`.
pub fn waiting(reason: OffCpuReason, for_data: bool) -> String {
    match reason {
        _ if for_data => "waiting for data".to_owned(),
        OffCpuReason::Sleep => "sleeping".to_owned(),
        OffCpuReason::Stopped => "stopped".to_owned(),
        _ => format!("waiting for {reason}"),
    }
}

/// Activity of a process or thread while another waits for its data: to wait for data too is to have nothing to do.
pub fn waiting_meanwhile(reason: OffCpuReason, for_data: bool) -> String {
    if for_data { "waiting for work".to_owned() } else { waiting(reason, false) }
}

/// Names places of a process without the common folder of its program's places.
#[derive(Clone, Copy, Debug)]
pub struct ShortPlaces<'a>(&'a str);

impl<'a> ShortPlaces<'a> {
    /// The places in all reports on a process.
    pub fn of(cpu: &'a CpuReport) -> Self {
        let main = cpu.main_thread.as_ref();
        let meanwhile = main
            .into_iter()
            .flat_map(|main| [&main.gil, &main.lock, &main.workers, &main.threads])
            .flatten();
        let others = meanwhile.flat_map(|of| {
            let running = of.lines.iter().filter_map(|of| of.line.as_ref());
            running.chain(of.off_cpu.iter().filter_map(|of| of.line.as_ref()))
        });
        let waits = main.into_iter().flat_map(|main| &main.off_cpu);
        let own = cpu.lines.iter().filter_map(|of| of.line.as_ref());
        Self(common_directory(own.chain(waits.filter_map(|of| of.line.as_ref())).chain(others)))
    }

    /// ` at train.py:41 in step`; empty if the line is unknown.
    #[must_use]
    pub fn at(self, line: Option<&Location>) -> String {
        let place = |line| place(line).replacen(self.0, "", 1);
        if let Some(line) = line { format!(" at {}", place(line)) } else { String::new() }
    }
}

/// `, 166 ms a step`; empty if steps are unknown.
fn mean_step(report: &Report) -> String {
    match &report.phases {
        Some(PhasesReport { training, steps: Some(steps @ 1..), .. }) => {
            format!(", {} a step", duration(training.duration_ns / steps))
        }
        _ => String::new(),
    }
}

fn main_thread(cpu: &CpuReport, main: &MainThreadReport, process: &str, step: String) -> String {
    let ns = |samples: u64| samples as f64 * 1e9 / cpu.hertz as f64;
    let whole_ns = main.interval_ns.max(1) as f64;
    let share = |samples: u64| (ns(samples) / whole_ns).min(1.0);
    let package = main.packages.first().filter(|of| share(of.samples) >= WORTH);
    let package = package.map(|of| format!("{} in {}", percent(share(of.samples)), of.package));
    let running: Vec<String> = package.into_iter().chain(lines_of(&main.lines, share)).collect();
    let running = running.join(", ");
    let running = if running.is_empty() { running } else { format!(" ({running})") };
    let ran = beyond(main.samples, main.samples_in_pauses);
    let mut parts = vec![format!("{} on a CPU{running}", percent(share(ran)))];
    let places = ShortPlaces::of(cpu);
    let waits = waits_of(&main.off_cpu);
    let is_worth = |wait: &&WaitOf<'_>| wait.time_ns as f64 / whole_ns >= WORTH;
    for wait in waits.iter().filter(is_worth).take(NAMED) {
        let meanwhile = match (wait.for_data, wait.reason) {
            (true, _) => match (&main.workers, &main.threads) {
                (Some(workers), _) => workers_in_short(workers, places),
                (None, Some(threads)) => holder_in_short(threads, places),
                (None, None) => None,
            },
            (_, OffCpuReason::Gil) => main.gil.as_ref().and_then(|of| holder_in_short(of, places)),
            (_, OffCpuReason::Lock) => match &main.lock {
                // The rest is for threads that are joined.
                Some(of) if of.waited_ns > wait.time_ns / 2 => holder_in_short(of, places),
                _ => None,
            },
            _ => None,
        };
        let most = wait.longest.time_ns > wait.time_ns / 2;
        parts.push(format!(
            "{} {}{}{}",
            percent(wait.time_ns as f64 / whole_ns),
            waiting(wait.reason, wait.for_data),
            places.at(if most { wait.longest.line.as_ref() } else { None }),
            gctrace_units::if_known(meanwhile),
        ));
    }
    let off_ns = sum([main.off_cpu_ns, main.off_cpu_in_pauses_ns]) as f64;
    let rest = 1.0 - (ns(main.samples) + off_ns) / whole_ns;
    if rest >= WORTH {
        parts.push(format!("{} off it for less than 1 ms at a time", percent(rest)));
    }
    let collecting_ns = ns(main.samples_in_pauses) + main.off_cpu_in_pauses_ns as f64;
    parts.push(format!("{} in collections", percent((collecting_ns / whole_ns).min(1.0))));
    let time = duration(main.interval_ns);
    let of = if main.training { format!("of training{step}") } else { "in all".to_owned() };
    format!("Main thread{process}, {time} {of}: {}.", parts.join(", "))
}

/// ` (meanwhile each of its 2 workers: 85.0 % at train.py:41 in step)`.
pub(super) fn workers_in_short(
    workers: &MeanwhileReport,
    places: ShortPlaces<'_>,
) -> Option<String> {
    let whole_ns = times(workers.waited_ns, workers.others).max(1) as f64;
    let running = workers.lines.iter().filter(|of| of.line.is_some());
    let running = running.map(|of| (of.cpu_ns, format!("running{}", places.at(of.line.as_ref()))));
    let waits = waits_of(&workers.off_cpu);
    let waits = waits.iter().map(|wait| {
        let at = places.at(wait.longest.line.as_ref());
        (wait.time_ns, format!("{}{at}", waiting_meanwhile(wait.reason, wait.for_data)))
    });
    let collecting = (workers.collecting_ns, "in collections".to_owned());
    let mut parts: Vec<(u64, String)> = running.chain(waits).chain([collecting]).collect();
    parts.sort_by_key(|(ns, _)| Reverse(*ns));
    let worth = parts.into_iter().filter(|(ns, _)| *ns as f64 / whole_ns >= WORTH).take(NAMED);
    let parts = worth.map(|(ns, what)| format!("{} {what}", percent(ns as f64 / whole_ns)));
    let parts: Vec<String> = parts.collect();
    let whose = if workers.others == 1 {
        "its worker".to_owned()
    } else {
        format!("each of its {} workers", workers.others)
    };
    if parts.is_empty() {
        return None;
    }
    Some(format!(" (meanwhile {whose}: {})", parts.join(", ")))
}

/// ` (meanwhile another thread ran at loader.py:9 in spin)`.
fn holder_in_short(threads: &MeanwhileReport, places: ShortPlaces<'_>) -> Option<String> {
    let did = threads.longest()?;
    let does = match did.did {
        Some(reason) => format!("was {}", waiting(reason, false)),
        None => "ran".to_owned(),
    };
    Some(format!(" (meanwhile another thread {does}{})", places.at(Some(did.line))))
}

/// Share of its time with the busiest thread on a CPU, 1 at most; the thread waited for the rest, or for a CPU.
pub fn busy_share(cpu: &CpuReport) -> f64 {
    let ns = cpu.busiest_thread as f64 * 1e9 / cpu.hertz as f64;
    (ns / cpu.observed_ns.max(1) as f64).min(1.0)
}

/// Samples as time.
pub fn cpu_time(cpu: &CpuReport, samples: u64) -> String {
    duration((samples as f64 * 1e9 / cpu.hertz as f64) as u64)
}

/// `at train.py:41 in step`, or text for code without a Python line.
pub fn line(of: &CpuLine) -> String {
    match &of.line {
        Some(line) => format!("at {}", place(line)),
        None => "outside of Python".to_owned(),
    }
}

/// The name of the file.
pub fn file_name(of: &CpuFile) -> String {
    of.file.clone().unwrap_or_else(|| "unknown code".to_owned())
}
