//! Advice on the waits of a main thread: training's for data, any for the GIL or a lock.

use crate::report::{
    Advice, AdviceEffect, AdviceId, CpuReport, IdleCause, Location, MainThreadReport,
    MeanwhileReport, OffCpuLine, OthersDid, Report,
};
use crate::time::{beyond, sum, times};
use crate::words::samples::{LONG_NS, ShortPlaces, shown_process};
use crate::words::waits::{WaitRemedy, words};
use gctrace_event::OffCpuReason;
use std::cmp::Reverse;

/// A wait is worth a change from this share of training on.
const WORTH_RATIO: f64 = 0.1;
/// From this share of their time in waiting for a CPU on, more workers would wait more.
const NO_CPU_RATIO: f64 = 0.1;
/// From this share of the time on, training waits for this activity of the others.
const CAUSE_RATIO: f64 = 0.5;

impl AdviceId {
    /// Whether it is about the waits of a main thread, rather than the collector.
    #[must_use]
    pub fn is_of_waits(self) -> bool {
        matches!(self, Self::FasterData | Self::FreeGil | Self::FreeLock)
    }
}

impl Report {
    /// Whether training waits for data for a substantial part of its time.
    pub fn waits_for_data(&self) -> bool {
        let Some((_, main)) = training(self) else { return false };
        is_worth(data_ns(main), main)
    }

    /// Whether the main thread waits for a CPU for a substantial part of its time: other threads, of its own too,
    /// have them.
    pub fn waits_for_cpu(&self) -> bool {
        let Some((_, main)) = shown(self) else { return false };
        let waits = main.off_cpu.iter().filter(|of| of.reason == OffCpuReason::Cpu);
        is_worth(sum_of(waits), main)
    }
}

/// The changes, the largest saving first.
pub(super) fn advice(report: &Report) -> Vec<Advice> {
    let Some((cpu, main)) = shown(report) else { return Vec::new() };
    let cpus = report.traces.get(cpu.trace).and_then(|trace| trace.cpus);
    let idle = |of: fn(IdleCause) -> bool| idle_ns(report, cpu, of);
    let data = match &main.loading {
        _ if !main.training => None,
        Some(own) if is_worth(own.time_ns, main) => {
            Some((own.time_ns, first_workers(own.time_ns, (&own.line, own.line_ns), main, cpus)))
        }
        _ => data_remedy(main, cpus).map(|remedy| (data_ns(main), remedy)),
    };
    // Time in no trace of the GPU may have any cause.
    let data = data.map(|of| (AdviceId::FasterData, of, idle(|cause| cause == IdleCause::Data)));
    let gil = gil_remedy(main).map(|of| (AdviceId::FreeGil, of, idle(|_| true)));
    let lock = lock_remedy(main).map(|of| (AdviceId::FreeLock, of, idle(|_| true)));
    let places = ShortPlaces::of(cpu);
    let mut list: Vec<Advice> = data
        .into_iter()
        .chain(gil)
        .chain(lock)
        .filter_map(|(id, (waited_ns, remedy), idle_ns)| {
            let at_most_ns = waited_ns.min(idle_ns.unwrap_or(waited_ns));
            if !is_worth(at_most_ns, main) {
                return None;
            }
            let words = words(&remedy, main, places, waited_ns);
            Some(words.advice(id, AdviceEffect::saves(at_most_ns)))
        })
        .collect();
    list.sort_by_key(|advice| Reverse(advice.effect.saves_at_most_ns));
    list
}

/// The process that the verdict is about, if its steps are known.
fn training(report: &Report) -> Option<(&CpuReport, &MainThreadReport)> {
    let with_main = report.cpu.iter().filter_map(|cpu| Some((cpu, cpu.main_thread.as_ref()?)));
    with_main.into_iter().find(|(_, main)| main.training)
}

/// Training's process; if no steps are known, the process that the report shows.
fn shown(report: &Report) -> Option<(&CpuReport, &MainThreadReport)> {
    if let Some(training) = training(report) {
        return Some(training);
    }
    let cpu = shown_process(report)?;
    let main = cpu.main_thread.as_ref()?;
    if main.interval_ns >= LONG_NS { Some((cpu, main)) } else { None }
}

fn is_worth(ns: u64, main: &MainThreadReport) -> bool {
    ns as f64 >= WORTH_RATIO * main.interval_ns.max(1) as f64
}

fn data_ns(main: &MainThreadReport) -> u64 {
    sum_of(main.off_cpu.iter().filter(|of| of.for_data))
}

/// How long a GPU of the process was idle for such causes, in ns: all that such a change can save; `None` without
/// its times.
fn idle_ns(report: &Report, cpu: &CpuReport, of: fn(IdleCause) -> bool) -> Option<u64> {
    let ledgers = report.gpu.iter().flat_map(|work| &work.idle);
    let idle = ledgers.filter_map(|ledger| {
        if (ledger.id.trace, ledger.id.pid) != (cpu.trace, cpu.pid) {
            return None;
        }
        let rows = ledger.rows.iter().filter(|row| of(row.cause));
        Some(sum(rows.map(|row| row.saves_ns.unwrap_or(row.time_ns))))
    });
    idle.max()
}

/// Workers for the work that the main thread does itself, enough to keep up.
fn first_workers<'a>(
    loading_ns: u64,
    (line, line_ns): (&'a Location, u64),
    main: &MainThreadReport,
    cpus: Option<u32>,
) -> WaitRemedy<'a> {
    let rest_ns = beyond(main.interval_ns, loading_ns).max(1);
    let spare = if let Some(cpus) = cpus { u64::from(cpus).saturating_sub(1) } else { u64::MAX };
    let workers = loading_ns.div_ceil(rest_ns).min(spare);
    let workers = if workers > 0 { Some(workers) } else { None };
    WaitRemedy::FirstWorkers { workers, line, line_ns }
}

fn data_remedy(main: &MainThreadReport, cpus: Option<u32>) -> Option<WaitRemedy<'_>> {
    match (&main.workers, &main.threads) {
        (Some(workers), _) => workers_remedy(main, workers, cpus),
        (None, Some(threads)) => {
            let (line, _) = threads.longest_line()?;
            let share = (threads.cpu_ns as f64 / threads.waited_ns.max(1) as f64).min(1.0);
            if share >= CAUSE_RATIO { Some(WaitRemedy::OtherThread { share, line }) } else { None }
        }
        (None, None) => None,
    }
}

fn gil_remedy(main: &MainThreadReport) -> Option<(u64, WaitRemedy<'_>)> {
    let gil = main.gil.as_ref()?;
    let (line, _) = gil.longest_line()?;
    let share = (gil.cpu_ns as f64 / gil.waited_ns.max(1) as f64).min(1.0);
    if share >= CAUSE_RATIO { Some((gil.waited_ns, WaitRemedy::Gil { share, line })) } else { None }
}

fn lock_remedy(main: &MainThreadReport) -> Option<(u64, WaitRemedy<'_>)> {
    let lock = main.lock.as_ref()?;
    let did = lock.longest()?;
    if did.share < CAUSE_RATIO {
        return None;
    }
    let waits = main.off_cpu.iter().filter(|of| {
        // A thread that is joined is waited for by a lock too.
        of.reason == OffCpuReason::Lock && !of.for_data && of.time_ns <= lock.waited_ns
    });
    let at = waits.max_by_key(|of| of.time_ns).and_then(|of| of.line.as_ref());
    Some((lock.waited_ns, WaitRemedy::Lock { at, did }))
}

/// The main activity of the workers while training waits for them; `None` if it is small, or unknown.
fn workers_remedy<'a>(
    main: &MainThreadReport,
    workers: &'a MeanwhileReport,
    cpus: Option<u32>,
) -> Option<WaitRemedy<'a>> {
    let now = workers.others;
    let share = |ns: u64| {
        let all_ns = times(workers.waited_ns, now).max(1);
        (ns as f64 / all_ns as f64).min(1.0)
    };
    let running = workers.longest_line();
    let for_cpu = share(sum_of(workers.off_cpu.iter().filter(|of| of.reason == OffCpuReason::Cpu)));
    if for_cpu >= NO_CPU_RATIO
        && let Some((line, _)) = running
    {
        return Some(WaitRemedy::NoCpuLeft { workers: now, waiting: Some(for_cpu), cpus, line });
    }
    let waits = [is_disk as fn(&OffCpuLine) -> bool, is_elsewhere].into_iter().filter_map(|is| {
        let of: Vec<&OffCpuLine> = workers.off_cpu.iter().filter(|of| is(of)).collect();
        let longest = of.iter().find_map(|of| Some((of.reason, of.line.as_ref()?, of.time_ns)));
        let (reason, line, line_ns) = longest?;
        Some((Some(reason), sum_of(of), line, line_ns))
    });
    let runs = running.map(|(line, line_ns)| (None, workers.cpu_ns, line, line_ns));
    let most = runs.into_iter().chain(waits).max_by_key(|(_, ns, ..)| *ns);
    let (did, ns, line, line_ns) = match most {
        Some(most) if most.1 >= workers.collecting_ns => most,
        _ => {
            let collecting = share(workers.collecting_ns);
            let less = WaitRemedy::CollectLess { workers: now, share: collecting };
            return if collecting >= CAUSE_RATIO { Some(less) } else { None };
        }
    };
    let did = OthersDid { did, share: share(ns), line, line_share: share(line_ns) };
    // One of several workers may do all the work.
    if (did.share * now as f64) < CAUSE_RATIO {
        return None;
    }
    if did.share < CAUSE_RATIO || did.waits_for_disk() {
        return Some(WaitRemedy::LessThere { workers: now, did });
    }
    let enough = enough_workers(main, workers);
    // While training waits, it needs no CPU.
    let most = match cpus {
        Some(cpus) if did.did.is_none() => u64::from(cpus),
        _ => u64::MAX,
    };
    if most <= now {
        return Some(WaitRemedy::NoCpuLeft { workers: now, waiting: None, cpus, line });
    }
    let of_cpus = if most < enough { cpus } else { None };
    Some(WaitRemedy::MoreWorkers { now, enough: enough.min(most), of_cpus, did })
}

fn sum_of<'a>(waits: impl IntoIterator<Item = &'a OffCpuLine>) -> u64 {
    sum(waits.into_iter().map(|of| of.time_ns))
}

fn is_disk(of: &OffCpuLine) -> bool {
    matches!(of.reason, OffCpuReason::Disk | OffCpuReason::PageFault)
}

/// Not for work, a CPU or the disk: for time to pass, a connection or another process.
fn is_elsewhere(of: &OffCpuLine) -> bool {
    let waits = matches!(
        of.reason,
        OffCpuReason::Sleep | OffCpuReason::Poll | OffCpuReason::Pipe | OffCpuReason::Process
    );
    waits && !of.for_data
}

/// How many workers would do, in the rest of training's time, the work that took these all of it.
fn enough_workers(main: &MainThreadReport, workers: &MeanwhileReport) -> u64 {
    let rest_ns = beyond(main.interval_ns, workers.waited_ns).max(1);
    let all = u128::from(workers.others) * u128::from(main.interval_ns);
    gctrace_units::u64_or_most(all.div_ceil(rest_ns.into())).max(workers.others.saturating_add(1))
}
