//! The words of advice on the whole run: at its start, before a fork, and where no setting is known to
//! help.

use super::{AdviceText, FREEZE_RISK};
use crate::report::{AdviceEffect, ByCause, PhasesReport, Report, TrainingMark};
use crate::units::{counted, duration, percent};

pub(super) fn freeze_before_fork(report: &Report) -> AdviceText {
    let training = report.phases.as_ref().map(|phases| &phases.training);
    let why = training.map_or(String::new(), |training| {
        format!(
            "In the forked process {} took {} of {}. Each full one traverses the heap that the process \
             inherited, and writes into its memory, so that pages shared with the parent are copied.",
            counted(training.pauses.count, "collection"),
            duration(training.paused_ns),
            duration(training.duration_ns),
        )
    });
    AdviceText {
        action: "Call gc.freeze() in the parent, before it forks workers.",
        why,
        code: "import gc\n\
               # in the parent, after everything is loaded, before Pool(), fork() or workers:\n\
               gc.collect()\n\
               gc.freeze()"
            .to_owned(),
        risk: FREEZE_RISK.to_owned(),
    }
}

pub(super) fn off_while_loading(report: &Report, effect: &AdviceEffect) -> AdviceText {
    let start_up = report.phases.as_ref().map(|phases| &phases.start_up);
    let why = start_up.map_or(String::new(), |start_up| {
        format!(
            "Until training begins, {} took {} of {}. Loading allocates objects that stay, so that \
             these collections free little, and full ones traverse again and again what was loaded \
             before. Frozen, it is not traversed later either, which is not priced here.",
            counted(start_up.pauses.count, "collection"),
            duration(start_up.paused_ns),
            duration(start_up.duration_ns),
        )
    });
    AdviceText {
        action: "Disable the collector until everything is loaded, then freeze and enable it.",
        why,
        code: "import gc\n\
               gc.disable()   # first, before other imports\n\
               # imports, data, model, optimizer; in a server before it forks workers\n\
               gc.freeze()\n\
               gc.enable()"
            .to_owned(),
        risk: match effect.memory_objects {
            Some(objects @ 1..) => format!(
                "{} of garbage in cycles that loading leaves {} kept, too: with gc.collect() before \
                 gc.freeze() not, for one full collection.",
                counted(objects, "object"),
                if objects == 1 { "is" } else { "are" },
            ),
            _ => FREEZE_RISK.to_owned(),
        },
    }
}

pub(super) fn disable(report: &Report, effect: &AdviceEffect, times: &ByCause) -> AdviceText {
    let freed = effect.memory_objects.unwrap_or(0);
    AdviceText {
        action: "Disable the collector: in this run it freed next to nothing.",
        why: format!(
            "Automatic collections took {} ({} of the pause time) and freed {}: reference counts \
             free the rest.",
            duration(times.automatic().time_ns),
            percent(report.share(times.automatic())),
            counted(freed, "object"),
        ),
        code: "import gc\n\
               gc.disable()   # first, before other imports"
            .to_owned(),
        risk: format!(
            "Garbage in cycles is never freed: {} here, more in a longer run or with other input. \
             What such objects own (tensors, buffers, files) stays with them.",
            counted(freed, "object"),
        ),
    }
}

pub(super) fn find_cycles(report: &Report) -> AdviceText {
    AdviceText {
        action: "Find the cycles:",
        why: format!(
            "{} freed {}. Garbage that reference counts free by themselves needs no collection: \
             where a few lines make the cycles, changing them saves more than any setting. What \
             garbage costs outside the pauses (memory, page faults) is not priced.",
            counted(report.totals.pauses.count, "collection"),
            counted(report.totals.pauses.collected, "object"),
        ),
        code: "gctrace --mode inject --garbage cycles -- COMMAND".to_owned(),
        ..AdviceText::default()
    }
}

pub(super) fn measure(report: &Report) -> AdviceText {
    let (what, code) = measuring(report);
    AdviceText {
        action: match what {
            Measuring::Auto => "Have a setting found and proven while it runs:",
            Measuring::Tune => "Measure the settings:",
        },
        why: format!(
            "{} took {}, and what a setting saves of that depends on what one recording does not \
             show. {what} the settings in one run, without a change to the program.",
            counted(report.totals.pauses.count, "collection"),
            duration(report.totals.pauses.time_ns),
            what = match what {
                Measuring::Auto => "gctrace auto compares",
                Measuring::Tune => "gctrace tune tries",
            }
        ),
        code,
        ..AdviceText::default()
    }
}

/// How to find out what a setting saves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measuring {
    /// `gctrace auto`: the next run is long enough to compare within it.
    Auto,
    /// `gctrace tune`, which compares whole runs of what ends early.
    Tune,
}

/// How to find out what a setting saves in this program, and the command for it.
#[must_use]
pub fn measuring(report: &Report) -> (Measuring, String) {
    /// A run is compared by time if it has no steps, from this length on, in ns: `gctrace auto` waits
    /// 10 s for steps, and decides within some ten seconds of work.
    const LONG_NS: u64 = 60_000_000_000;
    /// Runs of `gctrace tune`: one in vain, then 8 with each of 3 settings, and a fifth more.
    const RUNS: u64 = 30;
    /// Its `--budget`, unless another is given, in minutes.
    const BUDGET: u64 = 10;
    const MINUTE_NS: u64 = 60_000_000_000;
    let run_ns = report.phases.as_ref().map_or(0, PhasesReport::duration_ns);
    let mark = report.phases.as_ref().filter(|phases| phases.steps.is_some());
    let named = match mark.map(|phases| phases.training_by) {
        Some(TrainingMark::FunctionCalls) => "--step-function NAME ",
        Some(
            TrainingMark::OptimizerSteps | TrainingMark::BackwardPasses | TrainingMark::Batches,
        ) => "",
        _ if run_ns >= LONG_NS => "",
        _ => {
            let minutes = run_ns.saturating_mul(RUNS).div_ceil(MINUTE_NS);
            let budget =
                if minutes > BUDGET { format!("--budget {minutes}m ") } else { String::new() };
            return (Measuring::Tune, format!("gctrace tune {budget}-- COMMAND"));
        }
    };
    (Measuring::Auto, format!("gctrace auto {named}-- COMMAND"))
}
