//! The words of each advice.

use super::places::library_switch;
use super::{AdviceText, EXPLICIT_EVERY, FREEZE_RISK, broken_cycles, callback, memory, places};
use crate::advice::facts::Facts;
use crate::paths;
use crate::report::{
    Advice, AdviceEffect, AdviceId, CleanupSite, CleanupVerdict, PauseTotal, PhaseReport,
    ProcessReport, Report, TrainingMark,
};
use crate::units::{counted, duration, percent};
use gctrace_event::CollectorKind;
use gctrace_units::if_known;

/// An advice of this report with its sentences.
pub(crate) fn advice(id: AdviceId, effect: AdviceEffect, report: &Report) -> Advice {
    let text = match id {
        AdviceId::NoCollection => no_collection(report),
        AdviceId::RecordCollections => record_collections(report),
        AdviceId::Leave => leave(report),
        AdviceId::ExplicitCalls => explicit_calls(report),
        AdviceId::Freeze => freeze(report),
        AdviceId::FreezeBeforeFork => freeze_before_fork(report),
        AdviceId::FreezeAtExit => freeze_at_exit(report),
        AdviceId::FindCycles => find_cycles(report),
        AdviceId::FindHolders => memory::find_holders(report),
        AdviceId::ShareBuffers => memory::share_buffers(report),
        AdviceId::TrimHeap => memory::trim_heap(report),
        AdviceId::CollectSometimes => memory::collect_sometimes(report),
        AdviceId::RaiseThreshold => raise_threshold(report, &effect),
        AdviceId::Planned => planned(report),
        AdviceId::OffWhileLoading => off_while_loading(report),
        AdviceId::Disable => disable(report),
        AdviceId::SwappedOut => swapped_out(),
        AdviceId::DumpHang => dump_hang(report),
        AdviceId::Uncollectable => uncollectable(report),
        AdviceId::BreakCycles => break_cycles(report),
        // These have words of their own.
        AdviceId::FasterData
        | AdviceId::FreeGil
        | AdviceId::FreeLock
        | AdviceId::FreeLoop
        | AdviceId::KeepGpuBusy => AdviceText::default(),
    };
    text.advice(id, effect)
}

/// Saving of a change, as far as it is known: `up to 11.6 s of 23.2 s`; `None` if it saves no time.
pub fn saves(advice: &Advice, report: &Report) -> Option<String> {
    let most_ns = advice.effect.saves_at_most_ns?;
    let phases = report.phases.as_ref();
    let whole_ns = match (&report.gpu_cost, phases, advice.id) {
        (Some(cost), ..) => Some(cost.run_ns),
        (None, Some(phases), AdviceId::FreezeAtExit) => Some(phases.unhindered_ns()),
        (None, Some(_), _) => report.judged_phase().map(PhaseReport::unhindered_ns),
        (None, None, _) => None,
    };
    let of = if let Some(ns) = whole_ns { format!(" of {}", duration(ns)) } else { String::new() };
    Some(format!("up to {}{of}", duration(most_ns)))
}

/// Saving of the change in measured programs: `Measured in 16 programs like it: 42 to 100 % of that, half of them
/// more than 92 %.`; `None` if it was not measured.
pub fn measured(advice: &Advice) -> Option<String> {
    let usual = advice.effect.usual?;
    let whole = |ratio: f64| format!("{:.0}", ratio * 100.0);
    let (least, median, most) = (whole(usual.least), whole(usual.median), whole(usual.most));
    Some(if usual.least == usual.most {
        format!("In {} programs like it: all of that.", usual.programs)
    } else {
        format!(
            "In {} programs like it: {least} to {most} % of that, mostly {median} %.",
            usual.programs
        )
    })
}

/// `1,025 automatic collections took 11.6 s of CPU time and freed 145 objects.`
fn automatic(report: &Report) -> String {
    let automatic = report.judged_causes().automatic();
    let freed = match report.judged_phase() {
        Some(&PhaseReport { freed_objects: Some(freed), .. }) => {
            format!(" and freed {}", counted(freed, "object"))
        }
        _ => String::new(),
    };
    let times = counted(automatic.count, "automatic collection");
    format!("{times} took {} of CPU time{freed}.", duration(automatic.time_ns))
}

fn no_collection(report: &Report) -> AdviceText {
    AdviceText {
        action: "Nothing to change here.".to_owned(),
        why: match report.totals.processes_without_pauses {
            0 => "No Python process ran the collector while it was recorded. The program allocates few \
                  containers, or there was no Python interpreter in it."
                .to_owned(),
            quiet => format!("The collector never ran in {}.", counted(quiet, "Python process")),
        },
        code: "gctrace doctor --python $(which python)   # is Python found?".to_owned(),
        ..AdviceText::default()
    }
}

/// Two ways to get collections alongside the profiler's trace. `record_python_gc_info` is an
/// argument of `torch._C._profiler._ExperimentalConfig` from PyTorch 2.9 on, and has an effect only
/// with `with_stack=True` (pytorch pull request 161209).
fn record_collections(report: &Report) -> AdviceText {
    let command = super::command(report);
    AdviceText {
        action: "Record the collections too, and analyze both traces together.".to_owned(),
        why: "This trace does not show collections, so their cost is unknown. gctrace records them beside \
              the profiler, in the same run. PyTorch 2.9 and later can write them to the profiler's own \
              trace, which requires recording Python stacks."
            .to_owned(),
        code: format!(
            "sudo gctrace record -o gc.json -- {command}\n\
             gctrace analyze gc.json profiler-trace.json\n\
             # or, PyTorch 2.9 and later, in the program:\n\
             from torch._C._profiler import _ExperimentalConfig\n\
             config = _ExperimentalConfig(record_python_gc_info=True)\n\
             with torch.profiler.profile(with_stack=True, experimental_config=config):"
        ),
        ..AdviceText::default()
    }
}

fn leave(report: &Report) -> AdviceText {
    let why = match &report.gpu_cost {
        None => format!("Without any collection it would need {} of CPU time less.", {
            duration(report.judged_causes().total().time_ns)
        }),
        Some(cost) => format!(
            "By replay, without any collection the run of {} would be {} shorter ({}).",
            duration(cost.run_ns),
            duration(cost.cost_ns),
            percent(cost.ratio())
        ),
    };
    AdviceText {
        action: "Leave the garbage collector as it is.".to_owned(),
        why,
        ..AdviceText::default()
    }
}

/// Whether the explicit calls belong to a library that has no switch for them: nothing to change.
pub(crate) fn is_of_others(report: &Report) -> bool {
    let Some(line) = places::explicit_line(report) else { return false };
    line.library && places::caller_switch(&line.file).is_none()
}

/// Objects and memory freed by one call of the costliest line: `600 objects and 287 KiB`; `None` if there are none.
fn freed_by_calls(report: &Report) -> Option<(&CleanupSite, String)> {
    let facts = Facts::of(report).filter(Facts::explicit_calls_free)?;
    let site = facts.costliest_call()?;
    Some((site, super::cleanup::gives(site)))
}

/// Explicit calls that are needed, and too many.
fn fewer_calls(report: &Report, site: &CleanupSite, gives: &str) -> AdviceText {
    let call = super::cleanup::cleanup_call(site);
    let manual = report.judged_causes().manual;
    AdviceText {
        action: format!("{call} every {EXPLICIT_EVERY}th time only: it frees {gives}"),
        why: format!(
            "{} took {} of CPU time. What it frees waits up to {EXPLICIT_EVERY} times as long: break its cycles, \
             and none is needed.",
            counted(manual.count, "explicit call"),
            duration(manual.time_ns),
        ),
        code: format!("calls += 1\nif calls % {EXPLICIT_EVERY} == 0:\n    gc.collect()"),
        risk: format!(
            "The memory that waits is up to {EXPLICIT_EVERY} times the garbage of one call."
        ),
    }
}

fn explicit_calls(report: &Report) -> AdviceText {
    if let Some((site, gives)) = freed_by_calls(report) {
        return fewer_calls(report, site, &gives);
    }
    let manual = report.judged_causes().manual;
    let (action, code) = match places::explicit_line(report) {
        Some(line) if line.library => {
            let place = paths::place(line);
            let switch = if_known(places::caller_switch(&line.file));
            (format!("turn off the gc.collect() at {place}: {switch}"), String::new())
        }
        Some(line) => (format!("remove the gc.collect() at {}", paths::place(line)), String::new()),
        None => (
            "remove the gc.collect() calls that repeat".to_owned(),
            "grep -rn --include='*.py' 'gc\\.collect(' .".to_owned(),
        ),
    };
    AdviceText {
        action,
        why: format!(
            "{} took {} of CPU time.{}",
            counted(manual.count, "explicit call"),
            duration(manual.time_ns),
            if_known(places::explicit(report)),
        ),
        code,
        risk: format!("{}{}", super::EXPLICIT_CALLS_RISK, needed(report)),
    }
}

/// Where the set-up is over, as a comment.
fn after_set_up(report: &Report) -> &'static str {
    let has_steps = matches!(&report.phases, Some(phases) if phases.steps.is_some());
    match callback::of(report) {
        Some(callback) => callback.begin,
        None if has_steps => "after model, optimizer and data are built, before the training loop",
        None => "after everything is loaded, before the work begins",
    }
}

fn freeze(report: &Report) -> AdviceText {
    let explicit = if let Some((site, _)) = freed_by_calls(report) {
        format!(": each {} traverses all loaded objects", super::cleanup::cleanup_call(site))
    } else {
        String::new()
    };
    AdviceText {
        action: format!("gc.freeze() after set-up{explicit}"),
        why: format!(
            "{} Each full one traverses the whole heap: model, data, imported modules. Frozen objects are \
             no longer traversed.{}",
            automatic(report),
            places::automatic_full(report),
        ),
        code: format!("import gc\n# {}:\ngc.collect()\ngc.freeze()", after_set_up(report)),
        risk: format!("{FREEZE_RISK}{}", report.judged_process().map_or("", full_collection_rule)),
    }
}

/// What freezing does not change in this collector (CPython's `gc.c` and `gc_free_threading.c`).
fn full_collection_rule(process: &ProcessReport) -> &'static str {
    let collector = process.interpreter.as_ref();
    match collector.map(|interpreter| &interpreter.collector) {
        Some(CollectorKind::Incremental) => {
            " This interpreter collects the old generation in increments: no automatic collection \
             traverses the whole heap at once."
        }
        Some(CollectorKind::FreeThreaded) => {
            " This free-threaded interpreter collects the whole heap each time."
        }
        _ => "",
    }
}

fn raise_threshold(report: &Report, effect: &AdviceEffect) -> AdviceText {
    let settings = if_known(effect.settings.as_deref());
    let numbers = settings.trim_start_matches("threshold=").replace(',', ", ");
    let call = format!("gc.set_threshold({numbers})");
    AdviceText {
        action: call.clone(),
        why: format!("{}{}", automatic(report), places::automatic_partial(report)),
        code: format!("import gc\n# first, before other imports:\n{call}"),
        risk: format!("{}.", super::THRESHOLDS_RISK),
    }
}

fn planned(report: &Report) -> AdviceText {
    const STEPS: u64 = super::PLANNED_STEPS;
    let on_ranks = matches!(Facts::of(report), Some(facts) if facts.is_rank());
    let ranks = if on_ranks { ", at the same step on every rank" } else { "" };
    AdviceText {
        action: format!("collect every {STEPS} steps only{ranks}, with gc.disable()"),
        why: format!(
            "{} They come at any point of a step. In a distributed job different ranks are hit at \
             different steps and stall the others; planned collections hit all ranks at the same step.{}",
            automatic(report),
            library_switch(report).map_or(String::new(), |switch| format!(" {switch}")),
        ),
        code: match callback::of(report) {
            Some(callback) => callback.planned(STEPS),
            None => format!(
                "import gc\n\
                 gc.disable()\n\
                 for step, batch in enumerate(loader):\n\
                 \x20   train_step(batch)\n\
                 \x20   if step % {STEPS} == 0:   # the same step on every rank\n\
                 \x20       gc.collect()"
            ),
        },
        risk: "Garbage in cycles waits for the next collection, and tensors in it keep their GPU memory until \
               then: choose the interval by the memory."
            .to_owned(),
    }
}

fn freeze_before_fork(report: &Report) -> AdviceText {
    AdviceText {
        action: "gc.freeze() in the parent, before it forks workers".to_owned(),
        why: format!(
            "{} Each full one traverses the heap that the process inherited, and writes into its memory, \
             so that pages shared with the parent are copied.",
            automatic(report)
        ),
        code: "import gc\n\
               # in the parent, after everything is loaded, before Pool(), fork() or workers:\n\
               gc.collect()\n\
               gc.freeze()"
            .to_owned(),
        risk: FREEZE_RISK.to_owned(),
    }
}

fn freeze_at_exit(report: &Report) -> AdviceText {
    let exit = match &report.phases {
        Some(phases) => phases.exit.causes.total(),
        None => PauseTotal::default(),
    };
    let what = match Facts::of(report).and_then(|facts| facts.unseen_end_ns()) {
        Some(end_ns) if end_ns > exit.time_ns => {
            format!(
                "The end of the interpreter took {} of CPU time, most of it for collections",
                duration(end_ns)
            )
        }
        _ => format!(
            "{} at the end of the interpreter took {} of CPU time",
            counted(exit.count, "collection"),
            duration(exit.time_ns)
        ),
    };
    AdviceText {
        action: "atexit.register(gc.freeze)".to_owned(),
        why: format!(
            "{what}: they traverse all live objects, and the kernel takes this memory back anyway."
        ),
        code: "import atexit, gc\n\
               # first: what is registered first runs last\n\
               atexit.register(gc.freeze)"
            .to_owned(),
        risk: "Finalizers (__del__) of objects in cycles do not run at the end of the program."
            .to_owned(),
    }
}

fn off_while_loading(report: &Report) -> AdviceText {
    let until = match report.phases.as_ref().map(|phases| phases.training_by) {
        Some(TrainingMark::AfterFork) => "the first fork",
        Some(TrainingMark::Loop) => "the loop",
        Some(TrainingMark::AfterImports) | None => "the work begins",
        Some(_) => "the first step",
    };
    AdviceText {
        action: format!("gc.disable() before the imports; gc.freeze(), gc.enable() before {until}"),
        why: format!(
            "{} What a program loads stays, so these collections free little, and full ones traverse \
             again and again what was loaded before.",
            automatic(report)
        ),
        code: format!(
            "import gc\n\
             gc.disable()   # first, before other imports\n\
             # imports, data, model, optimizer; then, before {until}:\n\
             gc.freeze()\n\
             gc.enable()"
        ),
        risk: FREEZE_RISK.to_owned(),
    }
}

fn disable(report: &Report) -> AdviceText {
    AdviceText {
        action: "gc.disable() at the top of the script".to_owned(),
        why: format!("{} Reference counts free the rest.", automatic(report)),
        code: "import gc\n\
               gc.disable()   # first, before other imports"
            .to_owned(),
        risk:
            "Garbage in cycles is never freed: record again with other input, as it may make more."
                .to_owned(),
    }
}

fn find_cycles(report: &Report) -> AdviceText {
    let code = super::find_cycles_command(report);
    let process = report.judged_process();
    let how = if process.is_some_and(ProcessReport::is_free_threaded) {
        "with a build that has the GIL, as this one lists no garbage, find the cycles"
    } else {
        "find the cycles that it frees"
    };
    AdviceText {
        action: format!("{how}, to break them: {code}"),
        why: format!(
            "{} Where a few lines make these cycles, changing them saves more than any setting: \
             reference counts free the rest at once.",
            automatic(report)
        ),
        code,
        ..AdviceText::default()
    }
}

fn break_cycles(report: &Report) -> AdviceText {
    if let Some(called) = Facts::of(report).and_then(|facts| facts.uncounted()) {
        return AdviceText {
            action: broken_cycles::action_by_code(&called.line),
            why: format!(
                "{} They run its code (by samples) to free what CPython does not count.",
                automatic(report)
            ),
            code: broken_cycles::code_by_code(&called.line),
            risk: broken_cycles::RISK.to_owned(),
        };
    }
    let Some(process) = report.judged_process() else { return AdviceText::default() };
    let Some(garbage) = &process.garbage else { return AdviceText::default() };
    let (why, code) = match &garbage.verdict {
        Some(main) => (broken_cycles::why(main), broken_cycles::code(garbage, main)),
        None => (
            format!("What refers to what: {}", super::find_cycles_command(report)),
            broken_cycles::code_of_kinds(garbage),
        ),
    };
    AdviceText {
        action: broken_cycles::action(garbage),
        why: format!("{} {why}", automatic(report)),
        code,
        risk: broken_cycles::RISK.to_owned(),
    }
}

fn dump_hang(report: &Report) -> AdviceText {
    let pid = if let Some(process) = report.judged_process() { process.pid } else { 0 };
    AdviceText {
        action: format!(
            "gctrace dump -p {pid} while it hangs: the line of a finalizer or callback, and the reason why it waits"
        ),
        why: "A collection runs finalizers (`__del__`, callbacks of weak references) in the middle of any line that \
              allocates, also within a lock. One that takes the same lock waits for itself."
            .to_owned(),
        code: "lock = threading.RLock()   # or: let __del__ only append to a collections.deque".to_owned(),
        ..AdviceText::default()
    }
}

fn swapped_out() -> AdviceText {
    AdviceText {
        action: "add memory, or use less: the heap is swapped out".to_owned(),
        why: "A collection traverses every object of its generations, so it pages in all of them that were \
              swapped out."
            .to_owned(),
        code: "free -h; vmstat 1   # are si and so above 0?\n\
               swapon --show"
            .to_owned(),
        risk: "At program start such waits are first reads of files, not swapping.".to_owned(),
    }
}

fn uncollectable(report: &Report) -> AdviceText {
    let objects = report.totals.pauses.uncollectable;
    AdviceText {
        action: "look at gc.garbage: some cycles cannot be freed".to_owned(),
        why: format!(
            "{} {} found that CPython could not free; they stay in memory.",
            counted(objects, "object"),
            if objects == 1 { "was" } else { "were" }
        ),
        code: "import gc; print([type(x) for x in gc.garbage])".to_owned(),
        ..AdviceText::default()
    }
}

/// The line that frees the most memory held by cycles, not to be removed without a thought; empty without one.
pub(super) fn needed(report: &Report) -> String {
    let sites = report.processes.iter().filter_map(|process| process.cleanup.as_ref());
    let needed = sites
        .flat_map(|cleanup| &cleanup.sites)
        .filter(|site| site.verdict == CleanupVerdict::FreesCycles)
        .max_by_key(|site| site.freed_bytes.max(site.device_bytes));
    if let Some(site) = needed {
        format!(" Not all are useless. {}", super::cleanup::cleanup_verdict(site))
    } else {
        String::new()
    }
}
