//! The words of each advice.

use super::AdviceInputs;
use super::places;
use super::still_growing;
use crate::gpu_cost::GpuCost;
use crate::report::Advice;
use crate::report::Basis;
use crate::report::CountersReport;
use crate::report::CpuTime;
use crate::report::PauseTotal;
use crate::report::ProcessReport;
use crate::report::Report;
use crate::units::count;
use crate::units::counted;
use crate::units::duration;
use crate::units::percent;
use crate::units::three_digits;
use gctrace_event::Counter;

/// Thresholds of CPython where the recording did not see them: 3.8 - 3.11 start with these.
const DEFAULT_THRESHOLDS: [i32; 3] = [700, 10, 10];

fn advice(id: &str, action: &str, why: String) -> Advice {
    Advice {
        id: id.to_owned(),
        action: action.to_owned(),
        why,
        code: None,
        risk: None,
        saves_at_least_ns: None,
        saves_at_most_ns: None,
        basis: Basis::Predicted,
    }
}

pub(crate) fn no_collection(report: &Report) -> Advice {
    let why = match report.totals.processes_without_pauses {
        0 => "No Python process ran the collector while it was recorded. Either the program \
              allocates few containers, or no Python interpreter was found in it."
            .to_owned(),
        quiet => format!(
            "{} recorded, and the collector never ran in {}.",
            counted(quiet, "Python process") + if quiet == 1 { " was" } else { " were" },
            if quiet == 1 { "it" } else { "them" }
        ),
    };
    let mut advice = advice("no-collection", "Nothing to change here.", why);
    advice.code = Some("gctrace doctor --python $(which python)   # is Python found?".to_owned());
    advice
}

/// Two ways to get collections alongside the profiler's trace. `record_python_gc_info` is an
/// argument of `torch._C._profiler._ExperimentalConfig` from PyTorch 2.9 on, and has an effect only
/// with `with_stack=True` (pytorch pull request 161209).
pub(crate) fn record_collections() -> Advice {
    let mut advice = advice(
        "record-collections",
        "Also record the collections, and analyze both traces together.",
        "Without them, their cost is unknown. gctrace can record them alongside the profiler, in \
         the same run. PyTorch 2.9 and later can also write them to the profiler's own trace, \
         which requires recording Python stacks."
            .to_owned(),
    );
    advice.code = Some(
        "sudo gctrace record -o gc.json -- python train.py\n\
         gctrace analyze gc.json profiler-trace.json\n\
         # or, PyTorch 2.9 and later, in the program:\n\
         from torch._C._profiler import _ExperimentalConfig\n\
         config = _ExperimentalConfig(record_python_gc_info=True)\n\
         with torch.profiler.profile(with_stack=True, experimental_config=config):"
            .to_owned(),
    );
    advice
}

pub(crate) fn leave(report: &Report) -> Advice {
    let share = report.totals.stopped_ratio.unwrap_or(0.0);
    advice(
        "leave",
        "Leave the garbage collector as it is and look elsewhere.",
        format!(
            "Without any collection the program would be at most {} faster.",
            percent(share)
        ),
    )
}

/// For pauses with a cost, if no change saves enough of it.
pub(crate) fn hidden(cost: &GpuCost) -> Advice {
    advice(
        "leave",
        "Leave the garbage collector as it is: no change of its settings saves much.",
        format!(
            "By replay, its pauses made the run {} longer ({}), but no change that was tried \
             saves 0.1 % of the run.",
            duration(cost.cost_ns),
            percent(cost.ratio())
        ),
    )
}

pub(crate) fn shutdown(facts: &AdviceInputs) -> Advice {
    advice(
        "shutdown",
        "Ignore the collections at interpreter shutdown.",
        format!(
            "{} of the pause time ({} in {}) was at interpreter shutdown. It does not slow the \
             work itself; in a longer run its share shrinks.",
            percent(facts.share(facts.shutdown)),
            duration(facts.shutdown.time_ns),
            counted(facts.shutdown.count, "collection"),
        ),
    )
}

pub(crate) fn explicit_calls(report: &Report, facts: &AdviceInputs) -> Advice {
    let calls = &report.explicit_calls;
    let rate = calls.rate_per_s.map_or(String::new(), |rate| match rate {
        rate if rate >= 1.0 => format!(", {} per second", three_digits(rate)),
        rate if rate > 0.0 => format!(", one every {} s", three_digits(1.0 / rate)),
        _ => String::new(),
    });
    let callers = places::explicit(report);
    let mut advice = advice(
        "explicit-calls",
        "Find the explicit gc.collect() calls and remove those in the loop.",
        format!(
            "{}{rate} took {} ({} of the pause time){}.{}",
            counted(facts.manual.count, "explicit call"),
            duration(facts.manual.time_ns),
            percent(facts.share(facts.manual)),
            freed_nothing_clause(calls.pauses.freed_nothing),
            callers.as_deref().unwrap_or(" Libraries call it too."),
        ),
    );
    advice.code = callers.is_none().then(|| {
        "grep -rn --include='*.py' 'gc\\.collect(' .\n\
         # and in the libraries:\n\
         python -c 'import site; print(*site.getsitepackages())'"
            .to_owned()
    });
    advice.risk = Some(
        "A call before a phase that needs a lot of memory may be intentional; calls before \
         torch.cuda.empty_cache() free GPU memory only if tensors are in cycles."
            .to_owned(),
    );
    advice.saves_at_most_ns = Some(facts.manual.time_ns);
    advice
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

pub(crate) fn freeze(report: &Report, most: &ProcessReport, facts: &AdviceInputs) -> Advice {
    let nothing = report.freed_nothing.automatic_full;
    let mut why = format!(
        "{} took {} ({} of the pause time){}. Each traverses the whole heap: model, optimizer, \
         imported modules. Frozen objects are no longer traversed.",
        counted(facts.automatic_full.count, "automatic full collection"),
        duration(facts.automatic_full.time_ns),
        percent(facts.share(facts.automatic_full)),
        freed_nothing_clause(nothing),
    );
    why += &places::automatic_full(report, facts.automatic_full);
    if let Some(growth) = &most.growth
        && let Some(slope) = growth.ns_per_million_objects.filter(|slope| *slope > 0.0)
    {
        why += &format!(
            " In process {} the pause grew by {} per million objects.",
            most.pid,
            duration(slope as u64)
        );
        if still_growing(growth) {
            why += &format!(
                " But its heap still grew in the second half of the run, from {} to {} objects: \
                 objects allocated after the freeze are traversed as before.",
                count(growth.at(0.5).objects),
                count(growth.last.objects)
            );
        }
    }
    let mut advice = advice(
        "freeze",
        "Call gc.freeze() once, after setup and before the loop.",
        why,
    );
    advice.code = Some(
        "import gc\n\
         # after model, optimizer and data are built, before the training loop:\n\
         gc.collect()\n\
         gc.freeze()"
            .to_owned(),
    );
    advice.risk = Some(format!(
        "Frozen objects that become garbage in a cycle are never freed (gc.unfreeze() undoes it). \
         {}",
        full_collection_rule(most)
    ));
    advice.saves_at_most_ns = Some(facts.automatic_full.time_ns);
    advice
}

/// When the collector of this process decides to go through the whole heap, and what that means
/// for freezing and for threshold 2 (CPython's `gc.c`, `gc_select_generation`, 3.8 - 3.13 and from
/// 3.14.5 on; `gc_free_threading.c`, `gc_should_collect`).
fn full_collection_rule(process: &ProcessReport) -> &'static str {
    let collector = process.interpreter.as_ref();
    match collector.map(|interpreter| interpreter.collector.as_str()) {
        Some("incremental") => {
            "This interpreter collects the old generation in increments, so its automatic \
             collections never traverse the whole heap at once."
        }
        Some("free-threaded") => {
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

pub(crate) fn raise_threshold(
    report: &Report,
    most: &ProcessReport,
    facts: &AdviceInputs,
) -> Advice {
    let settings = most.settings.as_ref();
    let [young, middle, old] = settings.map_or(DEFAULT_THRESHOLDS, |settings| settings.thresholds);
    let raised = young.max(100).saturating_mul(10);
    let rate = most.young_per_s.unwrap_or(0.0);
    let youngest = report.by_generation.iter().find(|group| group.name == "0");
    let freed_nothing = youngest.map_or(0, |group| group.pauses.freed_nothing.count);
    let mut advice = advice(
        "raise-threshold",
        "Raise the first threshold to make collections less frequent.",
        format!(
            "{} of younger generations took {} ({} of the pause time); {} of generation 0 freed \
             nothing. In process {} generation 0 was collected {} times per second; its thresholds \
             are {}.",
            counted(facts.automatic_partial.count, "automatic collection"),
            duration(facts.automatic_partial.time_ns),
            percent(facts.share(facts.automatic_partial)),
            count(freed_nothing),
            most.pid,
            three_digits(rate),
            match settings {
                Some(_) => format!("{young}, {middle}, {old}"),
                None => "not in the trace".to_owned(),
            },
        ) + &places::automatic_partial(report, facts.automatic_partial),
    );
    advice.code = Some(format!(
        "import gc\ngc.set_threshold({raised}, {middle}, {old})"
    ));
    advice.risk = Some(
        "Cyclic garbage lives up to ten times longer before it is freed; each collection of \
         generation 0 traverses up to ten times as many objects."
            .to_owned(),
    );
    advice.saves_at_most_ns = Some(facts.rarer_saves_ns());
    advice
}

pub(crate) fn planned(most: &ProcessReport, facts: &AdviceInputs) -> Advice {
    let mut advice = advice(
        "planned",
        "Disable automatic collection and call gc.collect() between steps.",
        format!(
            "Automatic collections took {} ({} of the pause time) at unpredictable points. In a \
             distributed job different ranks are hit at different steps and stall the others; \
             planned collections hit all ranks at the same step.",
            duration(facts.automatic().time_ns),
            percent(facts.share(facts.automatic())),
        ),
    );
    advice.code = Some(
        "import gc\n\
         gc.disable()\n\
         for step, batch in enumerate(loader):\n\
         \x20   train_step(batch)\n\
         \x20   if step % 1000 == 0:   # the same step on every rank\n\
         \x20       gc.collect()"
            .to_owned(),
    );
    advice.risk = Some(match most.freed_per_s {
        Some(freed) if freed >= 0.5 => format!(
            "Memory grows by the garbage of up to 1000 steps: in process {} automatic collections \
             freed {} objects per second, so a million accumulate in {}. Tensors in cycles keep \
             their GPU memory until then. Choose the interval accordingly.",
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
    });
    advice.saves_at_most_ns = Some(facts.automatic().time_ns);
    advice
}

pub(crate) fn preempted(cpu: &CpuTime) -> Advice {
    let mut advice = advice(
        "preempted",
        "Give the processes more CPU time.",
        format!(
            "For {} of the pause time the collecting thread was off CPU (measured over {}): it \
             was preempted, or memory was being paged in.",
            percent(cpu.off_cpu_ratio),
            counted(cpu.pauses, "pause"),
        ),
    );
    advice.code = Some(
        "nproc; uptime   # is the load above the number of CPUs?\n\
         OMP_NUM_THREADS=4 python train.py   # and fewer DataLoader workers"
            .to_owned(),
    );
    advice.saves_at_most_ns = Some(cpu.pause_ns.saturating_sub(cpu.on_cpu_ns));
    advice
}

pub(crate) fn swapped_out(
    report: &Report,
    counters: &CountersReport,
    facts: &AdviceInputs,
) -> Advice {
    let pauses = counters.major_fault_pauses;
    let faults = counters.counters.iter();
    let faults = faults.filter(|counter| counter.name == Counter::MajorFaults.as_str());
    let faults = faults.map(|counter| counter.inside).sum();
    let mut advice = advice(
        "swapped-out",
        "Add memory, or make the program use less: its heap is swapped out.",
        format!(
            "{} of {} waited for a disk ({}) and took {} of the pause time. A collection \
             traverses every object of its generations, so it pages in all of them that were \
             swapped out.",
            count(pauses.count),
            counted(report.totals.pauses.count, "pause"),
            counted(faults, "major page fault"),
            percent(facts.share(pauses)),
        ),
    );
    advice.code = Some(
        "free -h; vmstat 1   # are si and so above 0?\n\
         swapon --show"
            .to_owned(),
    );
    advice.risk =
        Some("At program start such waits are first reads of files, not swapping.".to_owned());
    advice.saves_at_most_ns = Some(pauses.time_ns);
    advice
}

pub(crate) fn unknown_reason(report: &Report, facts: &AdviceInputs) -> Advice {
    let what = match facts.unknown.count {
        0 => counted(report.totals.pauses.count, "pause"),
        unknown => counted(unknown, "pause"),
    };
    let mut recorded = report
        .traces
        .iter()
        .filter_map(|trace| trace.recorded.as_ref());
    if !recorded.any(|recorded| recorded.sources.injected > 0) {
        let mut advice = advice(
            "record-reasons",
            "Record with gctrace to see why these collections ran.",
            format!(
                "The trace does not contain the reason for {what}, so no change can be \
                     recommended."
            ),
        );
        advice.code = Some("sudo gctrace -- python train.py".to_owned());
        return advice;
    }
    let mut advice = advice(
        "record-reasons",
        "Find out whether the program requests these collections itself.",
        format!(
            "The reason for {what} ({} of the pause time) is unknown: CPython does not report it \
             in-process. As root, gctrace records it. Otherwise look for calls: without any, the \
             collections are automatic, and gc.freeze() after setup makes those of generation 2 \
             shorter.",
            percent(facts.share(facts.unknown))
        ),
    );
    advice.code = Some(
        "sudo gctrace -- python train.py\n\
         # or without root: does anything call gc.collect()?\n\
         grep -rn --include='*.py' 'gc.collect' ."
            .to_owned(),
    );
    advice
}

pub(crate) fn uncollectable(report: &Report) -> Advice {
    let mut advice = advice(
        "uncollectable",
        "Inspect gc.garbage: some cycles cannot be freed.",
        format!(
            "{} found that CPython could not free; they stay in memory.",
            counted(report.totals.pauses.uncollectable, "object")
                + if report.totals.pauses.uncollectable == 1 {
                    " was"
                } else {
                    " were"
                }
        ),
    );
    advice.code = Some("import gc; print([type(x) for x in gc.garbage])".to_owned());
    advice
}
