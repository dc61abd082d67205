//! The answer in one sentence.

use crate::advice::facts::Facts;
use crate::paths::place;
use crate::report::{
    DeviceReport, GpuCost, GpuWorkReport, IdleCause, JudgedPhase, Level, PhaseReport, PhasesReport,
    Report, TraceReport, TrainingMark,
};
use crate::time::{add_to, beyond, sum};
use crate::units::{count, counted, duration, percent};
use gctrace_event::{GcReason, RecordingMode};
use std::collections::BTreeMap;

/// The part at shutdown is reported from this fraction of the stopped time.
const REPORTED_FRACTION: u64 = 10;

/// For a run that is not judged.
const TOO_SHORT: &str = "The recording is too short to judge the garbage collector";

pub(crate) fn sentence(report: &Report) -> String {
    const NO_PROBLEM: &str = "is not the problem";
    const PILES_UP: &str = "takes little time, but memory piles up";
    let level = report.verdict.level;
    let cost = report.gpu_cost.as_ref();
    let mut sentence = match (level, cost) {
        _ if report.runs > 1 => return separate_runs(report),
        (Level::Unknown, _) if report.totals.pauses.count == 0 => undetermined(&report.traces),
        (_, Some(cost)) => with_cost(level, cost, report.gpu.as_ref()) + of_part(report),
        (Level::None, None) => no_collection(report),
        _ => match &report.phases {
            Some(phases) => {
                let whose = process(phases, report);
                match phases.judged {
                    JudgedPhase::StartUp => at_start_up(level, phases, &whose),
                    JudgedPhase::Training => in_training(level, phases, &whose),
                }
            }
            None => with_collections(report),
        },
    };
    if let Some(ns) = Facts::of(report).and_then(|facts| facts.hang_ns()) {
        let hangs = format!(
            "A garbage collection had not ended after {}: the function it called (a finalizer, a callback) waits.",
            duration(ns)
        );
        return hangs + &lost(report) + &cut_off(&report.traces);
    }
    let shutdown = report.pauses_of(GcReason::Shutdown);
    let at_shutdown_ns = if let Some(pauses) = shutdown { pauses.time_ns } else { 0 };
    if cost.is_some() && at_shutdown_ns > 0 {
        sentence += &format!(
            " The {} of collections at interpreter shutdown are not included.",
            duration(at_shutdown_ns)
        );
    } else if report.phases.is_none()
        && at_shutdown_ns > 0
        && at_shutdown_ns >= report.totals.stopped_ns / REPORTED_FRACTION
    {
        sentence += &format!(" {} of it was at interpreter shutdown.", duration(at_shutdown_ns));
    }
    if super::memory::piles_up(report) {
        sentence = sentence.replacen(NO_PROBLEM, PILES_UP, 1);
    }
    let held_up = match super::turns::sentence(report) {
        Some(held_up) if report.runs < 2 => held_up + " ",
        _ => String::new(),
    };
    held_up
        + &sentence
        + &super::called::sentence(report)
        + &lost(report)
        + &cut_off(&report.traces)
}

fn separate_runs(report: &Report) -> String {
    format!(
        "These {} traces are of {} separate runs, which have no common verdict: analyze each run \
         alone.",
        report.traces.len(),
        report.runs
    )
}

fn lost(report: &Report) -> String {
    let lost = match sum(report.missing.lost.values().copied()) {
        0 => return String::new(),
        1 => "1 event was".to_owned(),
        lost => format!("{} events were", count(lost)),
    };
    format!(" These are lower bounds: {lost} lost while recording.")
}

fn cut_off(traces: &[TraceReport]) -> String {
    // A recording in progress is a remark of its own.
    let is_cut = |trace: &TraceReport| trace.cut_at.is_some() && trace.writer.is_none();
    let partly_read = |trace: &&TraceReport| is_cut(trace) || trace.damage.is_some();
    match (traces.iter().filter(partly_read).count(), traces.len()) {
        (0, _) => String::new(),
        (_, 1) if traces.iter().any(|trace| trace.damage.is_some()) => {
            " The trace is damaged; later events are not counted.".to_owned()
        }
        (_, 1) => " The trace is cut off: its recording was killed. Later events are not counted."
            .to_owned(),
        (cut, all) => format!(
            " {cut} of {all} traces are cut off or damaged; later events in them are not counted."
        ),
    }
}

fn undetermined(traces: &[TraceReport]) -> String {
    format!(
        "Whether the garbage collector ran is unknown: there is no collection in {}, but the \
         PyTorch profiler and other tools record collections only if configured to.",
        match traces {
            [trace] => format!("the {} of this trace", duration(trace.duration_ns)),
            many => format!("these {} traces", many.len()),
        }
    )
}

fn no_collection(report: &Report) -> String {
    let ours = report.traces.iter().filter_map(|trace| {
        if trace.recorded_by.is_some() { Some(trace.duration_ns) } else { None }
    });
    let recorded = duration(sum(ours));
    // In-process, the first and the last ones are not seen.
    let in_process = |trace: &TraceReport| {
        let recorded = trace.recorded.as_ref();
        matches!(recorded, Some(recorded) if recorded.mode == RecordingMode::Inject)
    };
    let is_certain = report.missing.every_process_examined == Some(true);
    let ran = if report.traces.iter().any(in_process) || !is_certain { "was seen" } else { "ran" };
    let omitted = report.missing.omitted;
    match omitted.count {
        0 => format!("No garbage collection {ran} in {recorded} of recording."),
        some => format!(
            "No garbage collection of at least --min-pause {ran} in {recorded} of recording; {} \
             omitted took {} in total.",
            counted(some, "shorter pause"),
            duration(omitted.time_ns)
        ),
    }
}

/// The judged process, if there are others, with what it runs if they run something else; of the ranks or workers it is
/// the worst.
fn process(phases: &PhasesReport, report: &Report) -> String {
    if report.totals.processes < 2 {
        return String::new();
    }
    let worst = match phases.among {
        0 | 1 => String::new(),
        many => format!(", the worst of {}", count(many)),
    };
    if let Some(rank) = phases.rank {
        return format!(" of rank {rank}{worst}");
    }
    let is_told = report.processes.windows(2).any(|two| two[0].command != two[1].command);
    match super::program(phases.pid, report) {
        Some(name) if is_told => format!(" of process {} ({name}){worst}", phases.pid),
        _ => format!(" of process {}{worst}", phases.pid),
    }
}

/// What the worker's collections take together with the collections of its parent's other forked workers.
fn together(phases: &PhasesReport) -> String {
    let workers = phases.workers;
    if workers.count < 2 {
        return String::new();
    }
    let (collected, run) = (duration(workers.collected_ns), duration(workers.unhindered_ns));
    let all = match workers.count {
        2 => "both".to_owned(),
        many => format!("all {}", count(many)),
    };
    format!("; {collected} of {run} in {all} workers")
}

fn times(few: u64) -> &'static str {
    if few == 1 { "once" } else { "twice" }
}

/// Names one or two long pauses; these are no share.
fn few(phases: &PhasesReport, phase: &PhaseReport, of: &str) -> String {
    let pauses = phase.pauses.count;
    let (explicit, own) = match &phases.lines {
        Some(lines) => (lines.explicit.first(), lines.own.first()),
        None => (None, None),
    };
    let what = match (explicit, own) {
        (Some(line), _) if line.pauses.count == pauses => match pauses {
            1 => format!("one call of gc.collect() at {}", place(&line.location)),
            _ => format!("{pauses} calls of gc.collect() at {}", place(&line.location)),
        },
        (_, Some(line)) if line.pauses.count == pauses => {
            format!("triggered at {}", place(&line.location))
        }
        _ => "no share of a longer run".to_owned(),
    };
    let longest = duration(phase.longest_collection_ns().unwrap_or(0));
    format!(
        "The garbage collector ran {} in {of} ({}): {what}, {}{}.",
        times(pauses),
        duration(phase.unhindered_ns()),
        if pauses == 1 { longest } else { format!("up to {longest}") },
        overload(phase),
    )
}

/// What the collector cost until training.
fn at_start_up(level: Level, phases: &PhasesReport, whose: &str) -> String {
    let PhasesReport { start_up, training, .. } = phases;
    let judgment = match level {
        Level::Heavy => "is a problem at start-up",
        Level::TooShort => "took part of a short start-up",
        _ => "costs time at start-up",
    };
    let until = match (phases.training_by, phases.steps) {
        (_, Some(_)) => "before the first training step",
        (TrainingMark::AfterFork, _) => "until it forks its first worker",
        (TrainingMark::Loop, _) => "until its loop ran",
        _ => "until its imports end",
    };
    let after = match training.pauses.count {
        0 => "did not run after it".to_owned(),
        _ => format!("took {} of the time after it", percent(training.paused_ratio.unwrap_or(0.0))),
    };
    if level == Level::RareLongPauses {
        return few(phases, start_up, &format!("the time {until}{whose}"));
    }
    format!(
        "The garbage collector {judgment}{}: it paused {} of the {} {until} ({}), for up to {} at \
         a time, and {after}{}.",
        whose,
        percent(start_up.paused_ratio.unwrap_or(0.0)),
        duration(start_up.unhindered_ns()),
        duration(start_up.collected_ns()),
        duration(start_up.longest_collection_ns().unwrap_or(0)),
        overload(start_up),
    )
}

/// Says so if the pauses lasted far longer than their CPU time; the rest of the sentence is about the latter.
fn overload(phase: &PhaseReport) -> String {
    let Some(waited) = phase.overload() else { return String::new() };
    format!(
        "; by the clock {} ({} of it waited for a CPU: the machine is overloaded)",
        duration(phase.paused_ns),
        percent(waited)
    )
}

/// What the collector cost the training phase of the judged process.
fn in_training(level: Level, phases: &PhasesReport, whose: &str) -> String {
    let training = &phases.training;
    let share = percent(training.paused_ratio.unwrap_or(0.0));
    let longest = duration(training.longest_collection_ns().unwrap_or(0));
    let of = match (phases.training_by, phases.steps) {
        (TrainingMark::AfterImports, _) => "the run after its imports".to_owned(),
        (TrainingMark::AfterFork, _) => "the run after its first fork".to_owned(),
        (TrainingMark::Loop, _) => "the loop's time".to_owned(),
        (_, None) => "the run".to_owned(),
        (_, Some(steps)) => counted(steps, "training step"),
    };
    let of = of + whose;
    let judged = duration(training.unhindered_ns());
    let time = format!("{} of {judged}{}", duration(training.collected_ns()), together(phases));
    let overload = overload(training);
    match level {
        Level::RareLongPauses if training.pauses.count < PhaseReport::FEWEST_PAUSES => {
            few(phases, training, &of)
        }
        Level::Heavy => format!(
            "The garbage collector is a problem: it paused {share} of {of} ({time}), for up to \
             {longest} at a time{overload}."
        ),
        Level::Noticeable => format!(
            "The garbage collector costs {share} of {of} ({time}), in pauses of up to {longest}{overload}."
        ),
        Level::RareLongPauses => format!(
            "The garbage collector takes little of {of} ({share}: {time}), but individual pauses \
             are long: up to {longest}{overload}."
        ),
        Level::TooShort if training.pauses.count > 0 => format!(
            "{TOO_SHORT}: it paused {share} of {of} ({time}), in {} of up to {longest}{overload}.",
            counted(training.pauses.count, "pause")
        ),
        Level::TooShort => {
            format!("{TOO_SHORT}: it did not run in {of} ({}).", judged)
        }
        _ if training.pauses.count == 0 => format!(
            "The garbage collector is not the problem: it did not run in {of} ({}).",
            judged
        ),
        _ => format!(
            "The garbage collector is not the problem: it took {share} of {of} ({time}), and the \
             longest pause was {longest}{overload}."
        ),
    }
}

fn with_collections(report: &Report) -> String {
    let totals = &report.totals;
    let share = percent(totals.stopped_ratio.unwrap_or(0.0));
    let stopped = duration(totals.stopped_ns);
    let observed = duration(totals.observed_ns);
    let longest = duration(totals.pauses.max_ns.unwrap_or(0));
    let together = match totals.processes {
        0 | 1 => String::new(),
        many => format!(", summed over {many} processes"),
    };
    let pauses = counted(totals.pauses.count, "pause");
    match report.verdict.level {
        Level::Heavy => format!(
            "The garbage collector is a problem: Python was paused for {share} of the time \
             ({stopped} of {observed}{together}), in {pauses} of up to {longest}."
        ),
        Level::Noticeable => format!(
            "The garbage collector costs {share} of the time ({stopped} of {observed}{together}), \
             in {pauses} of up to {longest}."
        ),
        Level::RareLongPauses if totals.pauses.count < PhaseReport::FEWEST_PAUSES => format!(
            "The garbage collector ran {} in {observed}{together}, for up to {longest}.",
            times(totals.pauses.count),
        ),
        Level::RareLongPauses => format!(
            "The garbage collector takes little time ({share}: {stopped} of \
             {observed}{together}), but individual pauses are long: up to {longest}."
        ),
        Level::TooShort => format!(
            "{TOO_SHORT}: Python was paused for {share} of the time ({stopped} of \
             {observed}{together}), in {pauses} of up to {longest}."
        ),
        Level::Unknown => format!(
            "The garbage collector ran for {stopped} in {pauses} of up to {longest}; how long the \
             program ran is not in the trace."
        ),
        Level::Negligible | Level::None => format!(
            "The garbage collector is not the problem: it took {share} of the time ({stopped} of \
             {observed}{together}), and the longest pause was {longest}."
        ),
    }
}

/// Where a recorder only counted other GPU work.
fn of_part(report: &Report) -> &'static str {
    match report.missing.omitted_gpu_work {
        Some(_) => {
            " That is of a part with a long pause, of which the GPU work was written; of the rest it was only \
             counted."
        }
        None => "",
    }
}

/// With GPU times: what the pauses cost the run.
fn with_cost(level: Level, cost: &GpuCost, work: Option<&GpuWorkReport>) -> String {
    let judgment = match level {
        Level::Heavy => "The garbage collector is a problem",
        Level::Noticeable => "The garbage collector costs time",
        Level::RareLongPauses => {
            "The garbage collector costs little, but some of its pauses are long"
        }
        _ => "The garbage collector is not the problem",
    };
    let pauses = counted(cost.pauses.count, "pause");
    let run = duration(cost.run_ns);
    let error = match cost.error_ns {
        None | Some(0) => String::new(),
        Some(error_ns) => format!(" ± {}", duration(error_ns)),
    };
    let made = match cost.cost_ns {
        0 => format!("its {pauses} did not delay the {run} run{error}, by replay"),
        cost_ns => format!(
            "its {pauses} made the {run} run {}{error} longer ({}{}), by replay",
            duration(cost_ns),
            percent(cost.ratio()),
            significance(cost),
        ),
    };
    let instead = match level {
        Level::Heavy | Level::Noticeable | Level::RareLongPauses => None,
        _ => work.and_then(GpuIdle::of),
    };
    format!(
        "{judgment}: {made}. The pauses took {} in total, the longest {}{}.{}",
        duration(cost.pauses.time_ns),
        duration(cost.longest_ns),
        hidden(cost),
        if let Some(idle) = instead { idle.sentence() } else { String::new() },
    )
}

/// Nothing, unless the error bar includes 0.
fn significance(cost: &GpuCost) -> &'static str {
    match cost.error_ns {
        Some(error_ns) if error_ns > 0 && error_ns >= cost.cost_ns => ", perhaps none",
        _ => "",
    }
}

/// The pause time that did not delay the run.
fn hidden(cost: &GpuCost) -> String {
    match beyond(cost.pauses.time_ns, cost.cost_ns) {
        0 => String::new(),
        hidden_ns => format!(
            "; {} of that delayed nothing, because the GPU had queued work or the run was waiting \
             for something else",
            duration(hidden_ns)
        ),
    }
}

/// Idle time of the GPUs, and the cause of most of it.
struct GpuIdle {
    /// Share of the GPUs' time between first and last operation.
    ratio: f64,
    /// The largest cause that is not garbage collection, and its share of the idle time; `None` where
    /// nothing was replayed.
    cause: Option<(IdleCause, f64)>,
}

impl GpuIdle {
    /// `None` where there are no gaps.
    fn of(work: &GpuWorkReport) -> Option<Self> {
        let total = |of: fn(&DeviceReport) -> u64| sum(work.devices.iter().map(of));
        let (span_ns, idle_ns) = (total(|device| device.span_ns), total(|device| device.idle_ns));
        let mut causes: BTreeMap<IdleCause, u64> = BTreeMap::new();
        for row in work.idle.iter().flat_map(|ledger| &ledger.rows) {
            add_to(causes.entry(row.cause).or_default(), row.time_ns);
        }
        causes.remove(&IdleCause::Gc);
        let largest = causes.into_iter().max_by_key(|(_, time_ns)| *time_ns);
        if span_ns == 0 || idle_ns == 0 {
            return None;
        }
        Some(Self {
            ratio: idle_ns as f64 / span_ns as f64,
            cause: largest.map(|(cause, time_ns)| (cause, time_ns as f64 / idle_ns as f64)),
        })
    }

    /// Why the GPU is idle, if not because of the collector.
    fn sentence(&self) -> String {
        /// Less idle time than this is not worth reporting.
        const REPORTED_FRACTION: f64 = 0.01;
        let ratio = percent(self.ratio);
        match self.cause {
            _ if self.ratio < REPORTED_FRACTION => {
                format!(" The GPU was idle at most {ratio} of the time.")
            }
            Some((cause, share)) => {
                format!(
                    " The GPU was idle {ratio} of the time, {} of that: {cause}.",
                    percent(share)
                )
            }
            None => format!(" The GPU was idle {ratio} of the time."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::PauseTotal;

    fn cost(cost_ns: u64, error_ns: Option<u64>) -> GpuCost {
        GpuCost {
            run_ns: 10_000_000_000,
            cost_ns,
            error_ns,
            pauses: PauseTotal { count: 7, time_ns: 900_000_000 },
            longest_ns: 400_000_000,
        }
    }

    #[test]
    fn sentence_has_cost_error_and_hidden_time() {
        let heavy = with_cost(Level::Heavy, &cost(600_000_000, Some(30_000_000)), None);
        assert!(heavy.contains("made the 10.0 s run 600 ms ± 30.0 ms longer (6.00 %)"), "{heavy}");
        assert!(heavy.contains("300 ms of that delayed nothing"), "{heavy}");
        let cost_may_be_0 = cost(150_000_000, Some(200_000_000));
        let unsure = with_cost(Level::Noticeable, &cost_may_be_0, None);
        assert!(unsure.contains("(1.50 %, perhaps none)"), "{unsure}");
        let free = with_cost(Level::Negligible, &cost(0, None), None);
        assert!(free.contains("did not delay the 10.0 s run"), "{free}");
    }

    #[test]
    fn names_the_other_cause_of_idle_time() {
        let mut idle = GpuIdle { ratio: 0.25, cause: Some((IdleCause::Copy, 0.8)) };
        let other = idle.sentence();
        assert!(
            other.contains("idle 25.0 % of the time, 80.0 % of that: blocking copies"),
            "{other}"
        );
        idle.ratio = 0.001;
        let busy = idle.sentence();
        assert!(busy.contains("idle at most 0.100 % of the time"), "{busy}");
    }
}
