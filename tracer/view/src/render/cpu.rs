//! The sections on samples of running threads, and on their waits (`--sample`).

use super::idle::{FIRST_CAUSE, IDLE, REST, WORK, parts};
use crate::document::{Block, Section, Table, paragraph};
use crate::units::{count, counted, duration, percent};
use gctrace_analysis::report::{CpuReport, MainThreadReport, MeanwhileReport, OffCpuLine, Report};
use gctrace_analysis::words::samples::{
    ShortPlaces, ThreadUse, busy_share, cpu_time, file_name, line, main_thread_times, waiting,
    waiting_meanwhile,
};
use gctrace_units::{Ns, times};

/// Maximum number of processes listed; the others are in the JSON.
const PROCESSES_SHOWN: usize = 4;
/// Maximum number of lines, and of files, of each.
const SHOWN: usize = 10;

pub(crate) fn cpu(report: &Report) -> Section {
    let mut blocks = Vec::new();
    let ran = report.cpu.iter().filter(|cpu| cpu.samples > 0);
    for cpu in ran.take(PROCESSES_SHOWN) {
        blocks.push(paragraph(sentence(cpu, report.cpu.len() > 1)));
        blocks.extend(tables(cpu));
    }
    if !blocks.is_empty() {
        blocks.push(paragraph(
            "Measured by samples: a line has those of all that it calls, of each stack the innermost line \
             that is no library's. A thread that waits has none.",
        ));
    }
    Section::new("What used the CPU", blocks)
}

fn sentence(cpu: &CpuReport, is_one_of_several: bool) -> String {
    let of = if is_one_of_several { format!(" of process {}", cpu.pid) } else { String::new() };
    format!(
        "{} of CPU time{of} in {}, by {} samples ({} a second); the busiest thread ran {} of {}. In \
         collections: {}.",
        cpu_time(cpu, cpu.samples),
        counted(cpu.threads, "thread"),
        count(cpu.samples),
        cpu.hertz,
        percent(busy_share(cpu)),
        duration(cpu.observed_ns),
        share(cpu.in_pauses, cpu),
    )
}

fn share(samples: u64, cpu: &CpuReport) -> String {
    percent(samples as f64 / cpu.samples.max(1) as f64)
}

fn tables(cpu: &CpuReport) -> [Block; 2] {
    let lines = cpu.lines.iter().take(SHOWN).map(|of| (line(of), of.samples));
    let files = cpu.files.iter().take(SHOWN).map(|of| (file_name(of), of.samples));
    let table = |title: &str, rows: Vec<(String, u64)>| {
        Table::of(&rows)
            .left(title, |(name, _)| name.clone())
            .right("CPU time", |(_, samples)| cpu_time(cpu, *samples))
            .right("share", |(_, samples)| share(*samples, cpu))
            .into()
    };
    [table("Python line", lines.collect()), table("machine code of", files.collect())]
}

/// The waits of main threads, and the activity of others meanwhile.
pub(crate) fn off_cpu(report: &Report) -> Section {
    let mut blocks = Vec::new();
    let with = report.cpu.iter().filter_map(|cpu| Some((cpu, cpu.main_thread.as_ref()?)));
    let with = with.filter(|(_, main)| main.waits_in_python());
    for (cpu, main) in with.take(PROCESSES_SHOWN) {
        let places = ShortPlaces::of(cpu);
        blocks.push(paragraph(main_sentence(cpu, main, report.cpu.len() > 1)));
        blocks.push(waits(&main.off_cpu, main.interval_ns, places));
        let gil = main.gil.as_ref().map(|of| ("other threads while it waited for the GIL", of));
        let workers = main.workers.as_ref().map(|of| ("its workers while it waited for data", of));
        let lock = main.lock.as_ref().map(|of| ("the thread that had the lock it waited for", of));
        for (what, meanwhile) in gil.into_iter().chain(lock).chain(workers) {
            blocks.push(meanwhile_table(what, meanwhile, places));
        }
    }
    if !blocks.is_empty() {
        blocks.push(paragraph(
            "Measured by the scheduler, at switches: times of a millisecond or longer. Without a line: it \
             has no Python stack, was preempted, or the waits were too many for one each.",
        ));
    }
    Section::new("What the main thread waited for", blocks)
}

fn main_sentence(cpu: &CpuReport, main: &MainThreadReport, is_one_of_several: bool) -> String {
    let of = if is_one_of_several { format!(" of process {}", cpu.pid) } else { String::new() };
    let running = Ns(times(main.samples, 1_000_000_000) / cpu.hertz.max(1));
    let off = Ns(main.off_cpu_ns) + Ns(main.off_cpu_in_pauses_ns);
    let rest = Ns(main.interval_ns) - running - off;
    format!(
        "The main thread{of}, {}{}: {} on a CPU (by samples), {} off it for a millisecond or longer, \
         {} of that in collections; the rest, {}, for less at a time.",
        duration(main.interval_ns),
        if main.training { " of training" } else { "" },
        duration(running.0),
        duration(off.0),
        duration(main.off_cpu_in_pauses_ns),
        duration(rest.0),
    )
}

fn waits(off_cpu: &[OffCpuLine], whole_ns: u64, places: ShortPlaces<'_>) -> Block {
    let rows: Vec<&OffCpuLine> = off_cpu.iter().take(SHOWN).collect();
    let part = |ns: u64| percent(ns as f64 / whole_ns.max(1) as f64);
    Table::of(&rows)
        .right("time", |of| duration(of.time_ns))
        .right("share", |of| part(of.time_ns))
        .left("off the CPU", |of| {
            format!("{}{}", waiting(of.reason, of.for_data), places.at(of.line.as_ref()))
        })
        .into()
}

fn meanwhile_table(what: &str, meanwhile: &MeanwhileReport, places: ShortPlaces<'_>) -> Block {
    let running = meanwhile.lines.iter().take(SHOWN).map(|of| {
        let at = of.line.as_ref().map(|line| places.at(Some(line)));
        (format!("running{}", at.as_deref().unwrap_or(" outside of Python")), of.cpu_ns)
    });
    let waits = meanwhile.off_cpu.iter().take(SHOWN).map(|of| {
        let at = places.at(of.line.as_ref());
        (format!("{}{at}", waiting_meanwhile(of.reason, of.for_data)), of.time_ns)
    });
    let collecting = ("collecting".to_owned(), meanwhile.collecting_ns);
    let mut rows: Vec<(String, u64)> = running.chain(waits).chain([collecting]).collect();
    rows.retain(|(_, ns)| *ns > 0);
    rows.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    rows.truncate(SHOWN);
    let whole_ns = times(meanwhile.waited_ns, meanwhile.others).max(1);
    Table::of(&rows)
        .right("time", |(_, ns)| duration(*ns))
        .right("share", |(_, ns)| percent(*ns as f64 / whole_ns as f64))
        .left(&format!("{what} ({})", duration(meanwhile.waited_ns)), |(did, _)| did.clone())
        .into()
}

/// If at least this share of the pauses was off the CPU, the machine is named as a cause.
const BUSY_MACHINE: f64 = 0.2;

pub(crate) fn processor(report: &Report) -> Section {
    let all = &report.totals.pauses;
    let mut sentences = Vec::new();
    if let Some(cpu) = &all.cpu {
        let of = if cpu.pauses == all.count {
            String::new()
        } else {
            format!(" (of {} of {} pauses)", count(cpu.pauses), count(all.count))
        };
        sentences.push(format!(
            "The collecting thread was on a CPU for {} of {} of pauses{of}, and preempted or \
             waiting for {}.",
            duration(cpu.on_cpu_ns),
            duration(cpu.pause_ns),
            percent(cpu.off_cpu_ratio),
        ));
        if cpu.off_cpu_ratio >= BUSY_MACHINE {
            sentences.push(
                "The machine has too few CPUs for its load, or memory was paged in: on an idle \
                 one the pauses would be shorter; or finalizers of the program waited."
                    .to_owned(),
            );
        }
    }
    if let Some(world) = &all.stop_the_world {
        sentences.push(format!(
            "Free-threaded Python: {} took {}; other threads were stopped for {} of that.",
            counted(world.runs, "collector run"),
            duration(world.run_ns),
            duration(world.stopped_ns),
        ));
    }
    Section::of_sentences("CPU time", &sentences)
}

/// The activity of the main thread of the process with the most CPU time.
pub(crate) fn main_thread(report: &Report) -> Vec<Block> {
    let Some((whole_ns, times)) = main_thread_times(report) else {
        return Vec::new();
    };
    let colored = |(at, (use_of, ns)): (usize, (ThreadUse, u64))| {
        let color = match use_of {
            ThreadUse::Running => WORK,
            ThreadUse::Collecting => IDLE,
            ThreadUse::Waiting(_) => FIRST_CAUSE + 1 + at % 10,
            ThreadUse::Rest => REST,
        };
        (use_of.to_string(), ns, color)
    };
    let times: Vec<_> = times.into_iter().enumerate().map(colored).collect();
    vec![Block::Bar(format!("Main thread, {}", duration(whole_ns)), parts(&times, whole_ns))]
}
