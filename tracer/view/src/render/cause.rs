//! The section on the cost of pauses for GPU work.

use super::pauses::{after_start, started_ns};
use crate::document::{Block, Section, Table, line, paragraph};
use crate::text::OrDash as _;
use crate::units::{count, counted, duration, percent};
use gctrace_analysis::report::{CauseReport, DeviceCost, NotReplayed, Report};

/// Maximum number of processes described; the others are in the JSON.
const PROCESSES_SHOWN: usize = 4;
/// Maximum number of pauses listed per process; the others are in the JSON.
const PAUSES_SHOWN: usize = 10;

/// The cost of pauses, per process.
pub(crate) fn cause(report: &Report) -> Section {
    let mut blocks = Vec::new();
    let causes = report.gpu.iter().flat_map(|work| &work.cause);
    let mut causes: Vec<&CauseReport> = causes.collect();
    if causes.len() > PROCESSES_SHOWN {
        causes.sort_by_key(|cause| std::cmp::Reverse(cause.cost_ns));
    }
    let several = causes.len() > 1;
    for cause in causes.iter().take(PROCESSES_SHOWN) {
        if several {
            blocks.push(line(format!("{}:", name(cause, report))));
        }
        blocks.extend(of_process(cause, started_ns(report, cause.trace)));
    }
    if causes.len() > PROCESSES_SHOWN {
        let others = causes.len() - PROCESSES_SHOWN;
        blocks.push(paragraph(format!(
            "and {}: their pauses cost less (--format json lists more)",
            counted(others as u64, "other process")
        )));
    }
    let not_replayed = report.gpu.as_ref().and_then(|work| work.not_replayed);
    blocks.extend(not_replayed.map(|why| paragraph(too_large(why))));
    Section::new("GPU cost of GC", blocks)
}

pub(super) fn too_large(why: NotReplayed) -> String {
    format!(
        "What the pauses cost together is unknown: the replay would need {}, and {} is the most. Analyze \
         fewer ranks, or profile fewer steps.",
        counted(why.timestamps, "timestamp"),
        count(why.most)
    )
}

fn name(cause: &CauseReport, report: &Report) -> String {
    let process = match cause.rank {
        Some(rank) => format!("Rank {rank} (process {})", cause.pid),
        None => format!("Process {}", cause.pid),
    };
    if report.traces.len() > 1 {
        format!("{process} of trace {}", cause.trace + 1)
    } else {
        process
    }
}

fn of_process(cause: &CauseReport, started_ns: u64) -> Vec<Block> {
    let mut blocks = vec![paragraph(verdict(cause))];
    blocks.extend(cause.devices.iter().map(|device| paragraph(idle(device))));
    blocks.extend(unexplained(cause).map(paragraph));
    blocks.push(table(cause, started_ns));
    blocks.push(paragraph(legend(cause)));
    blocks
}

/// "Without GC the work would have finished 1.23 s ± 0.04 s (2 SE) earlier, 12 % of 10.0 s ..."
fn verdict(cause: &CauseReport) -> String {
    let error = match cause.standard_error_ns {
        Some(error) => format!(" ± {} (2 SE)", duration(error.saturating_mul(2))),
        None => String::new(),
    };
    let no_error = match &cause.no_error_bar {
        Some(why) => format!(" No error bar: {}.", why),
        None => String::new(),
    };
    let idle: i64 = cause.devices.iter().map(|device| device.idle_cost_ns).sum();
    let idle = match u64::try_from(idle) {
        Ok(0) | Err(_) => "none".to_owned(),
        Ok(idle) => duration(idle),
    };
    let of_devices = match cause.devices.len() {
        0 | 1 => "GPU idle time".to_owned(),
        several => format!("idle time, summed over {several} GPUs"),
    };
    let hidden = match gctrace_units::beyond(cause.pauses.time_ns, cause.cost_ns) {
        0 => String::new(),
        some => format!("; {} of that was hidden", duration(some)),
    };
    format!(
        "Without GC the work would have finished {}{error} earlier, {} of {} (inferred by replay); \
         {idle} of it is {of_devices}. {} took {} (measured){hidden}.{no_error}",
        duration(cause.cost_ns),
        percent(cause.cost_ratio),
        duration(cause.span_ns),
        counted(cause.pauses.count, "pause"),
        duration(cause.pauses.time_ns),
    )
}

fn idle(device: &DeviceCost) -> String {
    format!(
        "GPU {} was idle for {} (measured); without GC, {} (inferred). {} of its idle time \
         overlaps with a pause (measured), which does not make the pause its cause.",
        device.device,
        duration(device.idle_ns),
        duration(device.idle_without_ns),
        duration(device.overlap_ns),
    )
}

fn unexplained(cause: &CauseReport) -> Option<String> {
    let steps = cause.steps.as_ref()?;
    let unexplained = steps.unexplained_ns?;
    let more = if unexplained < 0 { "shorter" } else { "longer" };
    Some(format!(
        "Unexplained: with their pauses removed, the {} of {} steps with pauses are still {} {more} \
         in total than the others (inferred, by medians).",
        count(steps.with_pauses),
        count(steps.count),
        duration(unexplained.unsigned_abs()),
    ))
}

fn table(cause: &CauseReport, started_ns: u64) -> Block {
    Table::of(cause.longest.iter().take(PAUSES_SHOWN))
        .right("after start", |pause| after_start(started_ns, pause.start_ns))
        .right("gen", |pause| pause.generation.map(|generation| generation.to_string()).or_dash())
        .right("length", |pause| duration(pause.length_ns))
        .right("exposed", |pause| duration(pause.parts.exposed_ns))
        .right("deferred", |pause| duration(pause.parts.deferred_ns))
        .right("hidden", |pause| duration(pause.parts.hidden_ns))
        .right("share", |pause| duration(pause.share_ns))
        .into()
}

fn legend(cause: &CauseReport) -> String {
    let listed = cause.longest.iter().take(PAUSES_SHOWN).count() as u64;
    let others = match gctrace_units::beyond(cause.pauses.count, listed) {
        0 => String::new(),
        some => format!(" {} not listed.", counted(some, "pause")),
    };
    format!(
        "Length is measured, the rest inferred. Exposed: GPU idle at once; deferred: paid by a later \
         wait, as the pause drained the queue; hidden: covered by queued work. Share: of the total \
         cost, with pauses removed in order of time; shares add up.{others}"
    )
}
