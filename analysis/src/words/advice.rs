//! The words of each advice.

use super::{AdviceText, callback, cycles, places, whole_run};
use crate::report::{
    Advice, AdviceEffect, AdviceId, Basis, ByCause, GroupName, Level, PauseTotal, PhaseReport,
    ProcessReport, Report, SettingsReport,
};
use crate::time::stats::ratio;
use crate::units;
use crate::units::{count, counted, duration, percent, three_digits};
use gctrace_event::{CollectorKind, Counter};

/// An advice of this report with its sentences.
pub(crate) fn advice(id: AdviceId, effect: AdviceEffect, report: &Report) -> Advice {
    // These are of collections that the collector's rules explain, as in-process reasons are unknown.
    let times = match (id, effect.saves_likely_ns) {
        (AdviceId::BreakCycles, _) | (_, Some(_)) => report.by_likely_cause(),
        (_, None) => report.by_cause(),
    };
    let text = match id {
        AdviceId::NoCollection => no_collection(report),
        AdviceId::RecordCollections => record_collections(),
        AdviceId::Leave => leave(report),
        AdviceId::ExplicitCalls => explicit_calls(report, &times),
        AdviceId::Freeze => freeze(report, &effect, &times),
        AdviceId::FreezeBeforeFork => whole_run::freeze_before_fork(report),
        AdviceId::FindCycles => whole_run::find_cycles(report),
        AdviceId::Measure => whole_run::measure(report),
        AdviceId::RaiseThreshold => raise_threshold(report, &effect, &times),
        AdviceId::Planned => planned(report, &effect, &times),
        AdviceId::OffWhileLoading => whole_run::off_while_loading(report, &effect),
        AdviceId::Disable => whole_run::disable(report, &effect, &times),
        AdviceId::SwappedOut => swapped_out(report),
        AdviceId::RecordReasons => record_reasons(report, &times),
        AdviceId::Uncollectable => uncollectable(report),
        AdviceId::BreakCycles => cycles::advice(report, &times),
        // These have words of their own.
        AdviceId::FasterData | AdviceId::FreeGil => AdviceText::default(),
    };
    let some = |text: String| (!text.is_empty()).then_some(text);
    Advice {
        id,
        action: match text.action.ends_with(':') {
            true => format!("{} {}", text.action, text.code),
            false => text.action.to_owned(),
        },
        why: text.why + &replayed(&effect),
        code: some(text.code),
        risk: some(text.risk),
        effect,
        basis: Basis::Predicted,
    }
}

/// The process that was stopped longest.
#[expect(clippy::expect_used, reason = "without a process, analysis advises no setting")]
fn most(report: &Report) -> &ProcessReport {
    let first = report.processes.first();
    first.expect("invariant: settings are advised only if a process has pauses")
}

/// ` By replay, a step would take ...`.
fn replayed(effect: &AdviceEffect) -> String {
    effect.step.map_or(String::new(), |step| {
        format!(
            " By replay, a step would take {} to {} instead of {}.",
            duration(step.at_least_ns),
            duration(step.at_most_ns),
            duration(step.measured_ns)
        )
    })
}

fn no_collection(report: &Report) -> AdviceText {
    AdviceText {
        action: "Nothing to change here.",
        why: match report.totals.processes_without_pauses {
            0 => "No Python process ran the collector while it was recorded. Either the program \
                  allocates few containers, or no Python interpreter was found in it."
                .to_owned(),
            1 => "1 Python process was recorded, and the collector never ran in it.".to_owned(),
            quiet => format!(
                "{} were recorded, and the collector never ran in them.",
                counted(quiet, "Python process"),
            ),
        },
        code: "gctrace doctor --python $(which python)   # is Python found?".to_owned(),
        ..AdviceText::default()
    }
}

/// Two ways to get collections alongside the profiler's trace. `record_python_gc_info` is an
/// argument of `torch._C._profiler._ExperimentalConfig` from PyTorch 2.9 on, and has an effect only
/// with `with_stack=True` (pytorch pull request 161209).
fn record_collections() -> AdviceText {
    AdviceText {
        action: "Also record the collections, and analyze both traces together.",
        why: "Without them, their cost is unknown. gctrace can record them alongside the \
              profiler, in the same run. PyTorch 2.9 and later can also write them to the \
              profiler's own trace, which requires recording Python stacks."
            .to_owned(),
        code: "sudo gctrace record -o gc.json -- python train.py\n\
               gctrace analyze gc.json profiler-trace.json\n\
               # or, PyTorch 2.9 and later, in the program:\n\
               from torch._C._profiler import _ExperimentalConfig\n\
               config = _ExperimentalConfig(record_python_gc_info=True)\n\
               with torch.profiler.profile(with_stack=True, experimental_config=config):"
            .to_owned(),
        ..AdviceText::default()
    }
}

/// The share of its time that the judged process was paused until its exit; without one, that all were.
fn paused_ratio(report: &Report) -> Option<f64> {
    let Some(phases) = &report.phases else {
        return report.totals.stopped_ratio;
    };
    let sum = |figure: fn(&PhaseReport) -> u64| {
        figure(&phases.start_up).saturating_add(figure(&phases.training))
    };
    ratio(sum(|phase| phase.paused_ns), sum(|phase| phase.duration_ns))
}

fn leave(report: &Report) -> AdviceText {
    const AS_IT_IS: &str = "Leave the garbage collector as it is and look elsewhere.";
    let level = report.verdict.level;
    let (action, why) = match &report.gpu_cost {
        None => (
            AS_IT_IS,
            format!(
                "Without any collection {} would take {} less time, by the time in collections.",
                if report.totals.processes > 1 { "the worst process" } else { "the program" },
                percent(paused_ratio(report).unwrap_or(0.0))
            ),
        ),
        Some(cost) if matches!(level, Level::None | Level::Negligible) => (
            AS_IT_IS,
            format!(
                "By replay, without any collection the run of {} would be {} shorter ({}).",
                duration(cost.run_ns),
                duration(cost.cost_ns),
                percent(cost.ratio())
            ),
        ),
        Some(cost) => (
            "Leave the garbage collector as it is: no change of its settings saves much.",
            format!(
                "By replay, its pauses made the run {} longer ({}), but no change that was tried \
                 saves 0.1 % of the run.",
                duration(cost.cost_ns),
                percent(cost.ratio())
            ),
        ),
    };
    AdviceText { action, why, ..AdviceText::default() }
}

fn explicit_calls(report: &Report, times: &ByCause) -> AdviceText {
    let calls = &report.explicit_calls;
    let rate = calls.rate_per_s.map_or(String::new(), |rate| match rate {
        rate if rate >= 1.0 => format!(", {} per second", three_digits(rate)),
        rate if rate > 0.0 => format!(", one every {} s", three_digits(1.0 / rate)),
        _ => String::new(),
    });
    let callers = places::explicit(report);
    AdviceText {
        action: "Find the explicit gc.collect() calls and remove those in the loop.",
        why: match times.manual.count {
            0 => "No threshold starts some full collections here (inferred): the program, or a \
                  library, calls gc.collect()."
                .to_owned(),
            calls_made => format!(
                "{}{rate} took {} ({} of the pause time){}.{}",
                counted(calls_made, "explicit call"),
                duration(times.manual.time_ns),
                percent(report.share(times.manual)),
                freed_nothing_clause(calls.pauses.freed_nothing),
                callers.as_deref().unwrap_or(" Libraries call it too."),
            ),
        },
        code: match callers {
            Some(_) => "",
            None => {
                "grep -rn --include='*.py' 'gc\\.collect(' .\n\
                 # and in the libraries:\n\
                 python -c 'import site; print(*site.getsitepackages())'"
            }
        }
        .to_owned(),
        risk: format!("{}{}", super::EXPLICIT_CALLS_RISK, super::cleanup::needed(report)),
    }
}

/// A clause with the number and time of collections that freed nothing, to end a sentence.
fn freed_nothing_clause(nothing: PauseTotal) -> String {
    match nothing.count {
        0 => String::new(),
        some => format!(
            "; {} of them freed nothing and took {}",
            count(some),
            duration(nothing.time_ns)
        ),
    }
}

fn freeze(report: &Report, effect: &AdviceEffect, times: &ByCause) -> AdviceText {
    let most = most(report);
    let nothing = report.freed_nothing.by_cause.automatic_full;
    let mut why = format!(
        "{} took {} ({} of the pause time){}. Each traverses the whole heap: model, optimizer, \
         imported modules. Frozen objects are no longer traversed.",
        counted(times.automatic_full.count, "automatic full collection"),
        duration(times.automatic_full.time_ns),
        percent(report.share(times.automatic_full)),
        freed_nothing_clause(nothing),
    );
    why += &places::automatic_full(report);
    if let Some(growth) = &most.growth
        && let Some(slope) = growth.ns_per_million_objects.filter(|slope| *slope > 0.0)
    {
        why += &format!(
            " In process {} the pause grew by {} per million objects.",
            most.pid,
            duration(slope as u64)
        );
        if growth.still_growing() {
            why += &format!(
                " But its heap still grew in the second half of the run, from {} to {} objects: \
                 objects allocated after the freeze are traversed as before.",
                count(growth.at(0.5).objects),
                count(growth.last.objects)
            );
        }
    }
    why += &places::before_workers(report, most);
    if let Some(once_ns @ 1..) = effect.costs_once_ns {
        why += &format!(
            " The collection before the freeze takes {} once, which is not in the saving.",
            duration(once_ns)
        );
    }
    let has_steps = report.phases.as_ref().is_some_and(|phases| phases.steps.is_some());
    let place = if let Some(callback) = callback::of(report) {
        callback.begin
    } else if has_steps {
        "after model, optimizer and data are built, before the training loop"
    } else {
        "after everything is loaded, before the work begins"
    };
    AdviceText {
        action: "Call gc.freeze() once, after setup.",
        why,
        code: format!("import gc\n# {place}:\ngc.collect()\ngc.freeze()"),
        risk: format!("{} {}", super::FREEZE_RISK, full_collection_rule(most)),
    }
}

/// When the collector of this process decides to go through the whole heap, and what that means
/// for freezing and for threshold 2 (CPython's `gc.c`, `gc_select_generation`, 3.8 - 3.13 and from
/// 3.14.5 on; `gc_free_threading.c`, `gc_should_collect`).
fn full_collection_rule(process: &ProcessReport) -> &'static str {
    let collector = process.interpreter.as_ref();
    match collector.map(|interpreter| &interpreter.collector) {
        Some(CollectorKind::Incremental) => {
            "This interpreter collects the old generation in increments, so its automatic \
             collections never traverse the whole heap at once."
        }
        Some(CollectorKind::FreeThreaded) => {
            "This free-threaded interpreter collects the whole heap each time; a collection \
             starts when new objects exceed threshold 0 and a quarter of those that survived the \
             last one."
        }
        _ => {
            "CPython starts a full collection when threshold 2 is exceeded and the objects added \
             since the last one exceed a quarter of those that survived it; frozen objects do not \
             count as survivors, so full collections may be more frequent, each much shorter. By \
             the same rule, raising threshold 2 alone changes little in a large heap."
        }
    }
}

fn raise_threshold(report: &Report, effect: &AdviceEffect, times: &ByCause) -> AdviceText {
    let most = most(report);
    let settings = most.settings.as_ref();
    let thresholds =
        settings.map_or(SettingsReport::DEFAULT_THRESHOLDS, |setting| setting.thresholds);
    let advised = effect.settings.as_ref().and_then(|setting| setting.thresholds);
    let raised = advised.unwrap_or_else(|| SettingsReport::raised(thresholds));
    let youngest = GroupName::Generation(Some(0));
    let mut groups = report.by_generation.iter();
    let youngest = groups.find(|group| group.name == youngest);
    let freed_nothing = youngest.map_or(0, |group| group.pauses.freed_nothing.count);
    AdviceText {
        action: "Raise the first threshold to make collections less frequent.",
        why: format!(
            "{} of younger generations took {} ({} of the pause time); {} of generation 0 freed \
             nothing. In process {}{} the thresholds are {}.{}",
            counted(times.automatic_partial.count, "automatic collection"),
            duration(times.automatic_partial.time_ns),
            percent(report.share(times.automatic_partial)),
            count(freed_nothing),
            most.pid,
            most.young_per_s.filter(|rate| *rate > 0.0).map_or(String::new(), |rate| format!(
                " generation 0 was collected {} times per second;",
                three_digits(rate)
            )),
            match settings {
                Some(_) => thresholds.map(|threshold| threshold.to_string()).join(", "),
                None => "not in the trace".to_owned(),
            },
            places::automatic_partial(report),
        ),
        code: format!(
            "import gc\n# first, before other imports:\n{}",
            super::set_threshold(raised)
        ),
        risk: format!(
            "{}; each collection of generation 0 traverses up to ten times as many objects.{}",
            super::THRESHOLDS_RISK,
            match effect.memory_objects {
                Some(objects @ 1..) => format!(
                    " Up to {}{} of garbage wait longer.{}",
                    counted(objects, "object"),
                    memory(effect),
                    unseen(effect),
                ),
                _ => String::new(),
            }
        ),
    }
}

/// With the interval that was priced; every 1000 steps if none was.
fn planned(report: &Report, effect: &AdviceEffect, times: &ByCause) -> AdviceText {
    let settings = effect.settings.as_ref();
    let step = settings.and_then(|setting| setting.collect_every_steps).unwrap_or(1000);
    AdviceText {
        action: "Disable automatic collection and call gc.collect() between steps.",
        why: format!(
            "Automatic collections took {} ({} of the pause time) at unpredictable points. In a \
             distributed job different ranks are hit at different steps and stall the others; \
             planned collections hit all ranks at the same step.{}",
            duration(times.automatic().time_ns),
            percent(report.share(times.automatic())),
            places::library_switch(report).map_or(String::new(), |switch| format!(" {switch}")),
        ),
        code: callback::of(report).map_or_else(
            || {
                format!(
                    "import gc\n\
                     gc.disable()\n\
                     for step, batch in enumerate(loader):\n\
                     \x20   train_step(batch)\n\
                     \x20   if step % {step} == 0:   # the same step on every rank\n\
                     \x20       gc.collect()"
                )
            },
            |callback| callback.planned(step),
        ),
        risk: match effect.memory_objects {
            Some(objects) => waiting_risk(effect, objects),
            None => planned_risk(most(report)),
        },
    }
}

/// ` (20 MiB, 3 GiB of device memory)`, what garbage that waits holds; empty if unknown.
fn memory(effect: &AdviceEffect) -> String {
    let least = if effect.memory_is_least { "at least " } else { "" };
    let host = effect.memory_bytes.map(|host| format!("{least}{}", units::bytes(host)));
    let device = effect.memory_device_bytes.filter(|device| *device > 0);
    let device = device.map(|device| format!("{} of device memory", units::bytes(device)));
    let memory: Vec<String> = host.into_iter().chain(device).collect();
    if memory.is_empty() { String::new() } else { format!(" ({})", memory.join(", ")) }
}

/// ` What garbage owns ...`, if the memory is only a part of it.
fn unseen(effect: &AdviceEffect) -> &'static str {
    if effect.memory_is_least {
        " What garbage owns outside Python's objects (buffers, arrays, tensors) was not measured: \
         --mode both or inject does, with glibc."
    } else {
        ""
    }
}

fn waiting_risk(effect: &AdviceEffect, objects: u64) -> String {
    format!(
        "Up to {}{} of garbage wait for each collection; tensors in cycles keep their GPU \
         memory until then.{} gc.collect(1) would be cheaper, but what survives two collections is \
         then never freed.",
        counted(objects, "object"),
        memory(effect),
        unseen(effect),
    )
}

fn planned_risk(most: &ProcessReport) -> String {
    match most.freed_per_s {
        Some(freed) if freed >= 0.5 => format!(
            "Memory grows by the garbage of up to 1000 steps: in process {} automatic \
             collections freed {} objects per second, so a million accumulate in {}. Tensors in \
             cycles keep their GPU memory until then. Choose the interval accordingly.",
            most.pid,
            count(freed as u64),
            duration((1e15 / freed) as u64)
        ),
        _ => format!(
            "Memory grows by the garbage of up to 1000 steps. In process {} automatic collections \
             freed almost nothing in this recording, so this is little if other phases \
             (validation, checkpoints) behave the same.",
            most.pid
        ),
    }
}

fn swapped_out(report: &Report) -> AdviceText {
    let counters = report.counters.as_ref();
    let pauses = counters.map_or(PauseTotal::default(), |counter| counter.major_fault_pauses);
    let faults = counters.into_iter().flat_map(|counter| &counter.counters);
    let faults = faults.filter(|counter| counter.name == Counter::MajorFaults);
    AdviceText {
        action: "Add memory, or make the program use less: its heap is swapped out.",
        why: format!(
            "{} of {} waited for a disk ({}) and took {} of the pause time. A collection \
             traverses every object of its generations, so it pages in all of them that were \
             swapped out.",
            count(pauses.count),
            counted(report.totals.pauses.count, "pause"),
            counted(faults.map(|counter| counter.inside).sum(), "major page fault"),
            percent(report.share(pauses)),
        ),
        code: "free -h; vmstat 1   # are si and so above 0?\n\
               swapon --show"
            .to_owned(),
        risk: "At program start such waits are first reads of files, not swapping.".to_owned(),
    }
}

fn record_reasons(report: &Report, times: &ByCause) -> AdviceText {
    let what = match times.unknown.count {
        0 => counted(report.totals.pauses.count, "pause"),
        unknown => counted(unknown, "pause"),
    };
    let mut recorded = report.traces.iter().filter_map(|trace| trace.recorded.as_ref());
    if !recorded.any(|recorded| recorded.sources.injected > 0) {
        return AdviceText {
            action: "Record with gctrace to see why these collections ran.",
            why: format!(
                "The trace does not contain the reason for {what}, so no change can be \
                 recommended."
            ),
            code: "sudo gctrace -- python train.py".to_owned(),
            ..AdviceText::default()
        };
    }
    AdviceText {
        action: "Find out whether the program requests these collections itself.",
        why: format!(
            "The reason for {what} ({} of the pause time) is unknown: CPython does not report it \
             in-process. As root, gctrace records it. Otherwise look for calls: without any, the \
             collections are automatic, and gc.freeze() after setup makes those of generation 2 \
             shorter.",
            percent(report.share(times.unknown))
        ),
        code: "sudo gctrace -- python train.py\n\
               # or without root: does anything call gc.collect()?\n\
               grep -rn --include='*.py' 'gc.collect' ."
            .to_owned(),
        ..AdviceText::default()
    }
}

fn uncollectable(report: &Report) -> AdviceText {
    let objects = report.totals.pauses.uncollectable;
    AdviceText {
        action: "Inspect gc.garbage: some cycles cannot be freed.",
        why: format!(
            "{} {} found that CPython could not free; they stay in memory.",
            counted(objects, "object"),
            if objects == 1 { "was" } else { "were" }
        ),
        code: "import gc; print([type(x) for x in gc.garbage])".to_owned(),
        ..AdviceText::default()
    }
}
